"""Bad days: what must hold when processes, Redis, the disk or a task misbehave."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest
import redis as redis_py
from running import (
    Programs,
    children_of,
    is_there,
    memory_of,
    outcome,
    patched,
    state_of,
    until,
    write_hint,
)

# Every task notes in `runs` that it runs.
WORK = """
    import os, signal, subprocess, sys, time
    from pathlib import Path


    def run(task):
        ledger = os.open("runs", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(ledger, (task.id + "\\n").encode("utf-8", "surrogateescape"))
        os.close(ledger)
        how = task.parameters if task.parameters in globals() else "quick"
        return globals()[how](task)

    def quick(task):
        return "done"

    def short(task):
        time.sleep(0.05)
        return "done"

    def wait(task):
        Path("began").touch()
        while not Path("go").exists():
            time.sleep(0.005)
        return "done"

    def wait_for_much(task):
        wait(task)
        return "x" * 500000

    def leave_children(task):
        leftovers = []
        for _ in range(3):
            leftovers.append(subprocess.Popen(["sleep", "1000"]).pid)
            leftovers.append(subprocess.Popen(["sleep", "1000"], start_new_session=True).pid)
        ended = os.spawnlp(os.P_NOWAIT, "true", "true")  # and one that has ended, and is not reaped
        os.waitid(os.P_PID, ended, os.WEXITED | os.WNOWAIT)
        sys.stdout.close()
        sys.stderr.close()
        os.close(1)
        os.close(2)
        return [*leftovers, ended]
"""


@pytest.fixture
def frail(own_server, tmp_path):
    """Programs with a Redis of their own, which the test may end or stop."""
    with Programs(own_server.url, tmp_path) as programs:
        programs.write(WORK)
        yield programs


def begin(programs, how="wait"):
    """Put a task in line and return its id when it is certainly running."""
    task_id = programs.client.get_queue("work").enqueue(how)
    until((programs.directory / "began").exists, what="the task")
    assert programs.client.get_task(task_id).status == "started"
    return task_id


def let_go(programs):
    (programs.directory / "go").touch()


def runs(programs):
    path = programs.directory / "runs"
    return path.read_text().split() if path.exists() else []


def exit_records(programs):
    spool = programs.directory / "spool"
    return {path.parent.name.removesuffix("@1") for path in spool.glob("*@1/exit")}


# Processes and tasks


def test_a_task_that_leaves_children_and_closed_outputs_behind_is_over_when_they_have_been_ended(
    programs,
):
    listener = programs.listener("work:run")
    (slot,) = listener.slots()
    queue = programs.client.get_queue("work")
    task = outcome(programs.client, queue.enqueue("leave_children"))
    *leftovers, ended = task.result
    assert task.leaked == len(leftovers) == 6
    assert not any(is_there(pid) for pid in leftovers)
    assert outcome(programs.client, queue.enqueue("quick")).result == "done"
    until(lambda: {state_of(pid) for pid in [*leftovers, ended]} == {""}, what="the reaping of all")
    until(
        lambda: not {state_of(pid) for pid in children_of(slot)} & {"Z", "X"},
        what="the reaping of the children of the slot",
    )
    assert listener.stop() == 0


def test_a_program_that_fills_its_stderr_costs_the_listener_no_memory_and_leaves_a_short_error(
    programs,
):
    listener = programs.listener("--exec", "sh")
    (slot,) = listener.slots()
    queue = programs.client.get_queue("work")
    before = memory_of(slot)
    task = outcome(
        programs.client, queue.enqueue("yes $(printf '%01000d') | head -c 200M >&2; exit 3")
    )
    stderr = programs.directory / "spool" / f"{task.id}@1" / "stderr"
    size = stderr.stat().st_size
    os.truncate(stderr, 0)
    assert size == 200 * 2**20
    assert task.error.startswith("exit code 3:\n000") and len(task.error) < 17_000
    assert memory_of(slot) - before < 4 * 2**20
    assert outcome(programs.client, queue.enqueue("echo done")).result == "done"


def test_a_listener_whose_stderr_has_broken_goes_on_with_its_work(programs):
    read, write = os.pipe()
    programs.listener("work:run", stderr=write)
    os.close(write)
    os.close(read)
    queue = programs.client.get_queue("work")
    for _ in range(8):
        assert outcome(programs.client, queue.enqueue("quick"), 3).result == "done"


# Redis


def test_when_redis_is_killed_amid_fifty_tasks_and_comes_back_each_has_run_once(frail, own_server):
    queue = frail.client.get_queue("work")
    ids = [queue.enqueue("short") for _ in range(50)]
    listener = frail.listener("work:run", slots=2)
    until(lambda: len(runs(frail)) >= 15, what="the fifteenth task")
    own_server.kill()
    until(lambda: len(listener.lines("; waiting")) == 2, what="two listeners that have noticed")
    until(lambda: set(runs(frail)) == exit_records(frail), what="the end of the running tasks")
    assert 15 <= len(runs(frail)) < 50
    own_server.start()
    for task_id in ids:
        assert outcome(frail.client, task_id).result == "done"
    assert Counter(runs(frail)) == Counter(ids)
    assert len(listener.lines("; waiting")) == len(listener.lines("Redis answers again")) == 2
    assert listener.stop() == 0


def test_the_result_of_a_task_that_ends_while_redis_is_away_is_reported_when_it_returns(
    frail, own_server
):
    listener = frail.listener("work:run")
    task_id = begin(frail)
    own_server.kill()
    let_go(frail)
    listener.says("; waiting")
    assert exit_records(frail) == {task_id}
    time.sleep(1.5)  # an outage in which it tries again several times
    own_server.start()
    task = outcome(frail.client, task_id)
    assert (task.status, task.result, runs(frail)) == ("complete", "done", [task_id])
    listener.says("Redis answers again")  # said when the answer is there whose effect we have seen
    assert len(listener.lines("; waiting")) == len(listener.lines("Redis answers again")) == 1


def test_a_redis_that_stands_still_for_a_while_loses_nothing(frail, own_server):
    listener = frail.listener("work:run", slots=2)
    task_id = begin(frail)
    os.kill(own_server.pid, signal.SIGSTOP)
    try:
        let_go(frail)
        until(lambda: exit_records(frail) == {task_id}, what="the end of the task")
        time.sleep(2)  # as long as it stands still
    finally:
        os.kill(own_server.pid, signal.SIGCONT)
    assert outcome(frail.client, task_id).result == "done"
    following = frail.client.get_queue("work").enqueue("quick")
    assert outcome(frail.client, following).result == "done"
    assert runs(frail) == [task_id, following]
    assert listener.stop() == 0


def test_a_result_waits_while_redis_has_no_memory_and_that_is_said_once(frail, own_server):
    listener = frail.listener("work:run")
    task_id = begin(frail)
    with redis_py.Redis.from_url(own_server.url) as redis:
        redis.config_set("maxmemory", 1)
        let_go(frail)
        listener.says("OOM")
        until(
            lambda: redis.info("commandstats")["cmdstat_hset"]["rejected_calls"] >= 4,
            what="the fourth try",
        )
        assert frail.client.get_task(task_id).status == "started"
        redis.config_set("maxmemory", 0)
    assert outcome(frail.client, task_id).result == "done"
    listener.says("Redis no longer answers OOM")
    assert (
        len(listener.lines("; waiting")) == len(listener.lines("Redis no longer answers OOM")) == 1
    )
    assert runs(frail) == [task_id]


def test_an_idle_listener_that_may_not_write_to_redis_says_it_once(frail, own_server):
    listener = frail.listener("work:run", "--beat", "0.2s")
    with redis_py.Redis.from_url(own_server.url) as redis:
        until(lambda: redis.info("clients")["blocked_clients"] == 1, what="an idle listener")
        redis.config_set("maxmemory", 1)
        until(
            lambda: redis.info("commandstats")["cmdstat_hset"].get("rejected_calls", 0) >= 3,
            what="the third beat",
        )
        assert len(listener.lines("; waiting")) == 1


# Queues and tasks of all kinds


def test_of_ten_thousand_tasks_that_waited_for_a_listener_the_first_in_line_run_first_and_once(
    programs, cli
):
    queue = programs.client.get_queue("work")
    ids = [queue.enqueue("quick") for _ in range(10_000)]
    listener = programs.listener("work:run", slots=2)
    until(lambda: len(runs(programs)) >= 200, what="the two hundredth run")
    assert listener.stop() == 0
    done = runs(programs)
    assert sorted(done) == sorted(ids[: len(done)])
    assert cli.llen("blueque_complete_tasks_work") == len(done)
    assert cli.llen("blueque_pending_tasks_work") == 10_000 - len(done)


@pytest.mark.parametrize(
    "name",
    [
        "two words, \"quotes\", 'more' and a tab\t",
        "{braces} [and] *all* that?",
        "a line\nand another",
        "ünïcödé 🎉 \u2028",
        "%s %d",
        "x" * 200,
    ],
)
def test_a_queue_of_any_name_works_from_end_to_end(programs, cli, name):
    listener = programs.listener(
        "--exec", "sh", "-c", 'printf "%s" "$BLUEQUE_QUEUE" > $BLUEQUE_TASK_DIR/result', queue=name
    )
    task = outcome(programs.client, programs.client.get_queue(name).enqueue("quick"))
    assert (task.queue, task.result) == (name, name)
    assert listener.stop() == 0
    assert cli.lrange(f"blueque_complete_tasks_{name}", 0, -1) == [task.id]


def test_of_two_listeners_one_runs_a_task_and_that_a_hundred_times(programs):
    programs.listener("work:run")
    programs.listener("work:run")
    queue = programs.client.get_queue("work")
    ids = []
    for _ in range(100):
        ids.append(queue.enqueue("quick"))
        assert outcome(programs.client, ids[-1]).result == "done"
    assert runs(programs) == ids


HOSTILE = [
    "../../outside",
    "/outside",
    "a/b/c",
    "..",
    ".",
    "",
    "-rf",
    "room.1",
    "open",
    "listeners",
    "blanks",
    "two words",
    "a\nb",
    "ü\u202e",
    "\udc80",
    "x" * 5000,
    "id-e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
]


def test_task_ids_that_name_other_places_stay_inside_the_spool(programs):
    listener = programs.listener("work:run")
    around = {"work.py", "program0.log", "program0.out", "spool", "runs"}
    for task_id in HOSTILE:
        write_hint(programs.client, "work", task_id, parameters="quick")
    for task_id in HOSTILE:
        assert outcome(programs.client, task_id).result == "done"
    assert {path.name for path in programs.directory.iterdir()} - {"__pycache__"} == around
    assert not (programs.directory.parent / "outside").exists() and not Path("/outside").exists()
    names = {
        path.name
        for path in (programs.directory / "spool").iterdir()
        if not path.name.startswith("room.")
    }
    # 67: two of these ids have the same name here, and the second has no room beside the first.
    assert names - {name for name in names if name[:3] == "id-" and len(name) in (67, 69)} == {
        "open",
        "listeners",
        "blanks",
    }
    (own,) = listener.slots()
    assert [path.name for path in (programs.directory / "spool" / "listeners").iterdir()] == [
        str(own)
    ]
    assert listener.stop() == 0
    assert list((programs.directory / "spool" / "open").iterdir()) == []


def test_a_hash_with_nonsense_for_a_number_does_not_end_the_listener(programs):
    listener = programs.listener("work:run")
    slots, queue = listener.slots(), programs.client.get_queue("work")
    for field in ("attempt", "events", "interruptions", "failures", "priority"):
        for nonsense in ("first", "9" * 300, "9" * 5000):
            odd = f"odd-{field}-{len(nonsense)}"
            write_hint(programs.client, "work", odd, **{field: nonsense})
            assert outcome(programs.client, queue.enqueue("quick")).result == "done", odd
            assert listener.slots() == slots, odd


def test_a_hint_without_a_task_is_dropped_and_makes_no_stump(programs, state):
    listener = programs.listener("work:run")
    task_id = programs.client.get_queue("work").enqueue("quick")
    outcome(programs.client, task_id)
    programs.client.connections.read(("LPUSH", "blueque_pending_tasks_work", "gone", task_id))
    following = programs.client.get_queue("work").enqueue("quick")
    assert outcome(programs.client, following).result == "done"
    assert listener.stop() == 0
    assert runs(programs) == [task_id, following]
    assert {
        key for key in state() if "gone" in key or "pending" in key or "reserved" in key
    } == set()


# The disk


class SmallDisk:
    """A listener whose spool is a disk of 8 MB, in a mount namespace of its own; we reach it
    through /proc.
    """

    def __init__(self, programs):
        spool = programs.directory / "spool"
        spool.mkdir()
        unshare = ["unshare", "--mount", *(["--map-root-user"] if os.geteuid() else [])]
        mount = [
            "sh",
            "-c",
            'mount -t tmpfs -o size=8m,mode=0700 tmpfs "$0" && exec "$@"',
            str(spool),
        ]
        tried = subprocess.run(
            [*unshare, *mount, "true"], capture_output=True, text=True, check=False
        )
        if tried.returncode != 0:
            pytest.fail(
                f"this test needs a mount namespace, and {' '.join(unshare)} was refused: {tried.stderr.strip()}"
            )
        looks = patched({"node.launcher.TRY_AGAIN": 0.4})
        self.listener = programs.listener("work:run", before=(*unshare, *mount), environ=looks)
        self.root = Path(f"/proc/{self.listener.pid}/root{spool}")

    def fill(self):
        """Leave no room at all."""
        descriptor = os.open(self.root / "filler", os.O_WRONLY | os.O_CREAT)
        try:
            for size in (65536, 4096):
                while True:
                    os.write(descriptor, b"x" * size)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
        finally:
            os.close(descriptor)
        assert self.free() == 0

    def empty(self):
        os.unlink(self.root / "filler")

    def free(self):
        disk = os.statvfs(self.root)
        return disk.f_bavail * disk.f_frsize


def test_with_a_full_disk_nothing_is_taken_which_is_said_once_until_there_is_room(programs, cli):
    disk = SmallDisk(programs)
    queue = programs.client.get_queue("work")
    assert outcome(programs.client, queue.enqueue("quick")).result == "done"
    until(
        lambda: cli.info("clients")["blocked_clients"] == 1,
        what="the listener's wait for the next task",
    )
    disk.fill()
    task_id = queue.enqueue("quick")
    disk.listener.says("taking nothing new")
    time.sleep(0.9)  # two more looks at the disk
    assert programs.client.get_task(task_id).status == "pending"
    assert len(disk.listener.lines("taking nothing new")) == 1
    disk.empty()
    assert outcome(programs.client, task_id).result == "done"
    assert len(disk.listener.lines("there is room again")) == 1
    assert disk.listener.stop() == 0


def test_a_marker_that_goes_to_a_listener_with_a_full_disk_wakes_another(programs, cli):
    disk = SmallDisk(programs)
    until(
        lambda: cli.info("clients")["blocked_clients"] == 1, what="the first in line for the marker"
    )
    programs.listener("work:run", spool="other")
    until(lambda: cli.info("clients")["blocked_clients"] == 2, what="the second")
    disk.fill()
    task_id = programs.client.get_queue("work").enqueue("quick")
    assert outcome(programs.client, task_id, 3).result == "done"


def test_a_task_that_runs_when_the_disk_fills_up_has_its_result_reported_from_the_room_set_aside(
    programs,
):
    disk = SmallDisk(programs)
    task_id = begin(programs, "wait_for_much")
    disk.fill()
    let_go(programs)
    # Whether the record is still there is a matter of chance: with a full disk, what is reported
    # goes at once.
    assert outcome(programs.client, task_id).result == "x" * 500_000
    disk.listener.says("taking nothing new")
    assert disk.listener.stop() == 0


def test_a_listener_with_a_full_disk_leaves_at_once_when_told_to(programs, cli):
    disk = SmallDisk(programs)
    until(
        lambda: cli.info("clients")["blocked_clients"] == 1, what="the listener's wait for a task"
    )
    disk.fill()
    programs.client.get_queue("work").enqueue("quick")
    disk.listener.says("taking nothing new")
    asked = time.monotonic()
    assert disk.listener.stop() == 0
    assert time.monotonic() - asked < 2


# The spool directory


def refused(programs, spool):
    """Start a listener that is going to refuse, and return what it says."""
    listener = programs.listener("work:run", spool=str(spool), is_awaited=False)
    assert listener.wait() == 78
    (line,) = listener.log.splitlines()
    return line.split(" ", 1)[1]


def test_a_spool_that_is_a_symbolic_link_is_refused(programs, tmp_path):
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("real")
    assert (
        refused(programs, "link")
        == f"spool {tmp_path}/link is not a directory (nor may it be a symbolic link)"
    )


def test_a_spool_that_is_a_file_is_refused(programs, tmp_path):
    (tmp_path / "file").touch()
    assert (
        refused(programs, "file")
        == f"spool {tmp_path}/file: File exists; choose another with --spool"
    )


@pytest.mark.skipif(
    os.geteuid() != 0,
    reason="only root can give a directory away; tests/spool/test_spool.py does without",
)
def test_a_spool_of_another_user_is_refused(programs, tmp_path):
    spool = tmp_path / "theirs"  # never a directory of the system: one taken for ours is changed
    spool.mkdir(mode=0o755)
    os.chown(spool, 65534, 65534)
    assert (
        refused(programs, spool)
        == f"spool {spool} belongs to user 65534, but this process runs as 0"
    )
    assert spool.stat().st_mode & 0o7777 == 0o755


def test_a_spool_that_others_could_read_is_closed_to_them(programs, tmp_path):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    listener = programs.listener("work:run", spool="open")
    assert (tmp_path / "open").stat().st_mode & 0o7777 == 0o700
    assert listener.stop() == 0


def test_a_spool_that_is_not_there_is_made_with_its_parents_for_its_owner_alone(programs, tmp_path):
    programs.listener("work:run", spool="some/where/else")
    assert (tmp_path / "some/where/else").stat().st_mode & 0o7777 == 0o700
