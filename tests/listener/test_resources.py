"""Resources of a node: given out once, and back when the last process that holds them has let go or
is dead.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping

import pytest
from running import is_there, until

from blueque.errors import SpoolRefused
from blueque.listener import resources
from blueque.listener.resources import Claim, Pool
from blueque.system import process, range_locks

GIB = 2**30


class Watched(Pool):
    """A pool that can let go of all that was claimed of it."""

    def __init__(self, directory: str, totals: Mapping[str, int]) -> None:
        super().__init__(directory, totals)
        self._claims: list[Claim] = []

    def claim(self, wanted: Mapping[str, int]) -> Claim | None:
        claim = super().claim(wanted)
        if claim is not None:
            self._claims.append(claim)
        return claim

    def close(self) -> None:
        self.withdraw()
        for claim in self._claims:
            claim.close()


@pytest.fixture
def make(tmp_path) -> Iterator[Callable[..., Pool]]:
    """Make a pool as each listener of the node has one."""
    made = []

    def make(**totals: int) -> Pool:
        pool = Watched(str(tmp_path / "resources"), totals)
        made.append(pool)
        pool.open()
        return pool

    yield make
    for pool in made:
        pool.close()


@contextlib.contextmanager
def holder(descriptors: list[int]) -> Iterator[int]:
    """A process that has been sent the descriptors, and does nothing but have them."""
    ours, theirs = socket.socketpair()

    def hold() -> int:
        ours.close()
        for descriptor in descriptors:  # what the fork has given it is not what this is about
            os.close(descriptor)
        kept = socket.recv_fds(theirs, 1, 16)
        theirs.send(b"!")
        signal.pause()
        return len(kept)

    pid = process.fork(hold)
    theirs.close()
    socket.send_fds(ours, [b"."], descriptors)
    assert ours.recv(1) == b"!"
    ours.close()
    try:
        yield pid
    finally:
        kill(pid)


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_a_claim_has_numbers_of_its_own_and_gives_them_back(make):
    pool = make(gpu=3)

    first, second = pool.claim({"gpu": 2}), pool.claim({"gpu": 1})

    assert (first.numbers, second.numbers) == ({"gpu": [0, 1]}, {"gpu": [2]})
    assert pool.claim({"gpu": 1}) is None
    first.close()
    assert pool.claim({"gpu": 1}).numbers == {"gpu": [0]}


def test_what_is_measured_in_bytes_has_an_amount_and_no_numbers(make):
    pool = make(memory=64 * GIB, gpu=2)

    claim = pool.claim({"memory": 24 * GIB, "gpu": 1})

    assert claim.numbers == {"gpu": [0]}
    assert claim.granted() == {"memory": 24 * GIB, "gpu": [0]}
    assert pool.free() == {"memory": 40 * GIB, "gpu": 1}
    claim.close()
    assert pool.free() == {"memory": 64 * GIB, "gpu": 2}


def test_the_largest_amount_that_there_can_be_is_given_out(make):
    pool = make(memory=2**60)

    claim = pool.claim({"memory": 2**60 - 1})

    assert pool.free() == {"memory": 1}
    claim.close()
    assert pool.claim({"memory": 2**60}) is not None


def test_all_or_nothing_of_several_resources_is_taken(make):
    pool = make(gpu=2, licence=1)
    holding = pool.claim({"licence": 1})

    assert pool.claim({"gpu": 2, "licence": 1}) is None
    assert pool.free() == {"gpu": 2, "licence": 0}
    holding.close()
    assert pool.claim({"gpu": 2, "licence": 1}) is not None


@pytest.mark.parametrize("wanted", [{"gpu": 3}, {"tpu": 1}, {"gpu": 1, "tpu": 1}], ids=repr)
def test_what_there_never_is_cannot_be_had(make, wanted):
    pool = make(gpu=2)

    assert pool.claim(wanted) is None
    assert not pool.has(wanted)
    assert pool.free() == {"gpu": 2}


@pytest.mark.parametrize("wanted", [{}, {"gpu": 0}], ids=repr)
def test_who_wants_nothing_gets_it(make, wanted):
    claim = make(gpu=1).claim(wanted)

    assert (claim.granted(), claim.filenos()) == ({}, [])


def test_an_amount_is_put_together_from_what_lies_between_others(make):
    pool = make(memory=5 * GIB)
    claims = [pool.claim({"memory": GIB}) for _ in range(5)]
    claims[1].close()
    claims[3].close()

    assert pool.claim({"memory": 2 * GIB + 1}) is None
    both = pool.claim({"memory": 2 * GIB})

    assert pool.free() == {"memory": 0}
    both.close()
    assert pool.free() == {"memory": 2 * GIB}


def test_a_range_that_is_large_enough_goes_before_pieces(make):
    pool = make(gpu=6)
    claims = [pool.claim({"gpu": 1}) for _ in range(3)]
    claims[1].close()

    assert pool.claim({"gpu": 2}).numbers == {"gpu": [3, 4]}
    assert pool.claim({"gpu": 2}).numbers == {"gpu": [1, 5]}


def test_listeners_that_were_told_different_totals_share_what_both_know(make):
    small, large = make(gpu=1), make(gpu=3, tpu=1)
    first = small.claim({"gpu": 1})

    assert small.claim({"gpu": 1}) is None
    assert large.claim({"gpu": 2}).numbers == {"gpu": [1, 2]}
    assert large.claim({"gpu": 1}) is None
    first.close()
    assert large.free() == {"gpu": 1, "tpu": 1} and small.free() == {"gpu": 1}


def test_listeners_that_take_tasks_may_not_contradict_each_other(make, monkeypatch):
    monkeypatch.setattr(resources, "_AGREED_WITHIN", 0.0)
    first = make(gpu=2, memory=8 * GIB)
    same = make(gpu=2)
    more = make(gpu=3)
    other = make(memory=4 * GIB)
    first.declare()
    same.declare()

    with pytest.raises(SpoolRefused, match=r"gpu=3, but another listener of this node has gpu=2"):
        more.declare()
    with pytest.raises(
        SpoolRefused, match=r"memory=4GiB, but another listener of this node has memory=8GiB"
    ):
        other.declare()

    first.withdraw()
    with pytest.raises(SpoolRefused):
        more.declare()
    same.withdraw()
    more.declare()
    other.declare()
    with pytest.raises(SpoolRefused, match="has gpu=3"):
        first.declare()


def test_what_one_said_that_was_killed_or_refused_is_said_no_more(make, monkeypatch):
    monkeypatch.setattr(resources, "_AGREED_WITHIN", 0.0)
    ours, theirs = socket.socketpair()

    def say() -> int:
        make(gpu=5).declare()
        theirs.send(b"!")
        signal.pause()
        return 0

    pid = process.fork(say)
    assert ours.recv(1) == b"!"
    with pytest.raises(SpoolRefused):
        make(memory=1, gpu=2).declare()
    kill(pid)
    make(memory=2, gpu=2).declare()


def test_one_that_is_about_to_leave_is_waited_for(make):
    before, after = make(gpu=2), make(gpu=3)
    before.declare()
    leaving = threading.Timer(0.2, before.withdraw)
    leaving.start()

    after.declare()

    leaving.join()
    with pytest.raises(SpoolRefused):
        before.declare()


def test_a_claim_lasts_until_the_listener_and_the_task_process_have_both_let_go(make):
    pool = make(gpu=1)
    claim = pool.claim({"gpu": 1})
    with holder(claim.filenos()) as pid:
        claim.close()
        assert pool.free() == {"gpu": 0}, "the task process has it"
        kill(pid)
        assert pool.free() == {"gpu": 1}

    claim = pool.claim({"gpu": 1})
    with holder(claim.filenos()) as pid:
        kill(pid)
        assert pool.free() == {"gpu": 0}, "the listener has it, for what the task has left running"
        claim.close()
        assert pool.free() == {"gpu": 1}


@pytest.mark.parametrize("first", ["listener", "task"])
def test_a_claim_of_two_that_are_killed_comes_back_with_the_second(make, first):
    pool = make(gpu=2)
    ready, theirs = os.pipe()

    def claim_and_hand_on() -> int:
        claim = pool.claim({"gpu": 2})
        with holder(claim.filenos()) as pid:
            os.write(theirs, b"%d\n" % pid)
            signal.pause()
        return 0

    listener = process.fork(claim_and_hand_on)
    task = int(os.read(ready, 100))
    try:
        assert pool.free() == {"gpu": 0}
        order = [listener, task] if first == "listener" else [task, listener]
        os.kill(order[0], signal.SIGKILL)
        until(lambda: not is_there(order[0]), what="its end")
        assert pool.free() == {"gpu": 0}
        os.kill(order[1], signal.SIGKILL)
        until(lambda: pool.free() == {"gpu": 2}, what="both back")
    finally:
        kill(task)
        kill(listener)
        os.close(ready)
        os.close(theirs)


def test_a_program_that_the_holder_starts_does_not_get_the_claim(make):
    pool = make(gpu=1)
    claim = pool.claim({"gpu": 1})
    ready, theirs = os.pipe()

    actions = [(os.POSIX_SPAWN_DUP2, theirs, 1)]
    pid = os.posix_spawn(
        "/bin/sh", ["sh", "-c", "echo; exec sleep 1000"], os.environ, file_actions=actions
    )
    try:
        os.read(ready, 1)
        claim.close()
        assert pool.free() == {"gpu": 1}
    finally:
        kill(pid)
        os.close(ready)
        os.close(theirs)


def test_eight_processes_that_claim_at_once_never_have_more_than_there_is(make):
    pool = make(gpu=3, memory=10 * GIB)
    amounts = [
        ({"gpu": 1}, 1),
        ({"gpu": 2, "memory": 4 * GIB}, 2),
        ({"gpu": 3, "memory": 9 * GIB}, 3),
    ]
    # Proof of its own: each unit of the resource is a file that only one may have made at a time.
    directory = os.path.dirname(pool._directory)

    def hammer(number: int) -> int:
        for turn in range(30):
            wanted, count = amounts[(number + turn) % 3]
            claim = until(lambda wanted=wanted: pool.claim(wanted), what="its turn")
            assert len(claim.numbers["gpu"]) == count
            for unit in claim.numbers["gpu"]:
                os.close(os.open(f"{directory}/unit{unit}", os.O_CREAT | os.O_EXCL))
            for unit in claim.numbers["gpu"]:
                os.unlink(f"{directory}/unit{unit}")
            claim.close()
        return 0

    pids = [process.fork(lambda number=number: hammer(number)) for number in range(8)]

    assert [process.wait_for(pid) for pid in pids] == [0] * 8
    assert pool.free() == pool.totals


def test_what_somebody_takes_and_cannot_use_after_all_is_not_seen_as_taken(make, monkeypatch):
    """Else who asked for just that would wait, and nobody would tell it when to try again."""
    pool, take = make(gpu=1, memory=GIB), range_locks.take
    kept = pool.claim({"memory": 1})
    other: list[resources.Claim | None] = []
    thread = threading.Thread(target=lambda: other.append(pool.claim({"gpu": 1})))

    def look_around(descriptor: int, total: int, amount: int) -> list[range_locks.Range] | None:
        if total == GIB:  # the GPU is taken
            monkeypatch.setattr(range_locks, "take", take)
            thread.start()
            thread.join(0.005)
        return take(descriptor, total, amount)

    monkeypatch.setattr(range_locks, "take", look_around)

    assert pool.claim({"gpu": 1, "memory": GIB}) is None
    thread.join()
    kept.close()
    assert other[0].numbers == {"gpu": [0]}


def test_one_that_was_stopped_while_it_claimed_does_not_stop_the_others(make):
    pool = make(gpu=2)

    with pool._alone():  # as the other has it
        assert pool.claim({"gpu": 1}) is not None


def test_somebody_faster_by_a_hair_is_seen_and_the_rest_is_taken(make, monkeypatch):
    pool, lock = make(gpu=3), range_locks.lock
    other: list[resources.Claim] = []

    def overtaken(descriptor: int, start: int, end: int) -> bool:
        if end - start == 2:  # not the lock of who claims
            monkeypatch.setattr(range_locks, "lock", lock)
            other.append(pool.claim({"gpu": 1}))
        return lock(descriptor, start, end)

    monkeypatch.setattr(range_locks, "lock", overtaken)

    assert pool.claim({"gpu": 2}).numbers == {"gpu": [1, 2]}
    assert other[0].numbers == {"gpu": [0]}


def test_a_file_system_without_such_locks_is_refused(make, monkeypatch):
    for answer in (OSError(errno.EINVAL, "Invalid argument"), b"\0" * 32):

        def fcntl_of_it(descriptor, command, argument, answer=answer):
            if isinstance(answer, OSError):
                raise answer
            return range_locks._FLOCK.pack(fcntl.F_UNLCK, 0, 0, 0, 0)

        with monkeypatch.context() as patch:
            patch.setattr(range_locks.fcntl, "fcntl", fcntl_of_it)
            with pytest.raises(
                SpoolRefused,
                match=r"has no locks of open files .* choose a --spool on a local disk",
            ):
                make(gpu=1)


def test_a_directory_that_is_not_ours_alone_is_refused(make, tmp_path):
    make(gpu=1)
    os.chmod(tmp_path / "resources", 0o777)
    with pytest.raises(SpoolRefused, match="that no other user can write to"):
        make(gpu=1)
    os.rename(tmp_path / "resources", tmp_path / "elsewhere")
    os.chmod(tmp_path / "elsewhere", 0o700)
    os.symlink(tmp_path / "elsewhere", tmp_path / "resources")
    with pytest.raises(SpoolRefused):
        make(gpu=1)


def test_a_link_in_the_place_of_a_resource_is_not_followed(make, tmp_path, caplog):
    pool = make(gpu=1)
    os.symlink(tmp_path / "precious", tmp_path / "resources" / "gpu")

    assert pool.claim({"gpu": 1}) is None
    assert "symbolic links" in caplog.text
    assert not (tmp_path / "precious").exists()


def test_a_claim_that_failed_leaves_no_descriptors_behind(make):
    pool = make(gpu=1, memory=1)
    before = os.listdir("/proc/self/fd")
    claim = pool.claim({"gpu": 1})

    assert pool.claim({"gpu": 1, "memory": 1}) is None
    claim.close()
    claim.close()
    assert len(os.listdir("/proc/self/fd")) == len(before)
