"""Checkpoints: the next attempt goes on where the last one was, whoever has died and wherever it
runs, Redis or not.
"""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys

import pytest
from handlers import has_moved, is_sound, ledger, let_go, pid_of, running
from running import ROOT, is_there, outcome, until
from test_guarantees import Network

from blueque import Retry, Task
from blueque.audit.audit import audit
from blueque.model import keys
from blueque.node import checkpoint_sync
from blueque.node.checkpoint_sync import CheckpointSync
from blueque.spool import checkpoint as checkpoint_files
from blueque.spool.attempt import Attempt
from blueque.spool.spool import Spool
from blueque.system import hosts, process
from blueque.task_process.running_task import RunningTask

# The parameters say up to which number to count, each a checkpoint, and how to go on from there.
WORK = """
    import os, signal, sys, time
    from pathlib import Path


    def run(task):
        begin = task.checkpointed
        files = {path.name: path.read_text() for path in sorted(task.checkpoint_dir.iterdir())}
        if begin is not None and "goes on" in task.parameters:
            return [begin, files]
        most, how = task.parameters.split(" ", 1)
        for number in range(1, int(most) + 1):
            (task.checkpoint_dir / "state").write_text(str(number))
            assert task.checkpoint({"number": number})
        ledger = os.open("ledger", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(ledger, f"{task.id} {task.attempt} {os.getpid()}\\n".encode())
        os.close(ledger)
        if "more" in how:
            while not Path("more").exists():
                time.sleep(0.005)
            task.checkpoint({"number": 99})
            Path("more").unlink()
        if "fails" in how:
            raise ValueError("as it was told")
        while not Path("go").exists():
            time.sleep(0.005)
        return [begin, files]
"""
QUICK = ("--beat", "0.2s", "--lease", "0.6s", "--lost-after", "0.9s")
AT_ONCE = Retry(max=1, backoff=0, jitter=0)
NINE = [{"number": 9}, {"state": "9"}]
NINE_ELSEWHERE = [{"number": 9}, {}]  # the directory stays on its host


@pytest.fixture
def queue(programs):
    return programs.client.get_queue("work")


@pytest.fixture
def network(url):
    network = Network(url)
    yield network
    network.close()


def published(programs, task_id, number=9):
    """Wait until Redis has the checkpoint."""

    def value():
        return json.loads(programs.client.get_inspector().checkpoint(task_id).get("value", "null"))

    until(lambda: value() == {"number": number}, what=f"checkpoint {number} in Redis")


OUTSIDE = """
import os
from blueque import current_task
task = current_task()
(task.checkpoint_dir / "state").touch()
if os.fork() == 0:
    raise SystemExit
os.wait()
assert (task.checkpoint_dir / "state").exists()
print(task.checkpoint_dir)
"""


def test_outside_of_a_task_there_is_one_directory_which_goes_with_the_process():
    path = subprocess.run(
        [sys.executable, "-c", OUTSIDE], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    assert "blueque-checkpoint-" in path and not os.path.exists(path.strip())


# As files


def test_a_value_is_read_as_it_was_written_and_the_last_one_counts(tmp_path):
    task = RunningTask("t1", {}, str(tmp_path))
    assert task.checkpointed is None
    for value in ("text", ["ä", 1.5, {"a": None}], 0, {}):
        assert task.checkpoint(value)
        assert RunningTask("t1", {}, str(tmp_path)).checkpointed == value
    assert os.listdir(tmp_path) == ["checkpoint.json"]


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ({1: 2}, "the checkpoint: it has the key 1, not a string: write it as one"),
        (float("nan"), "the checkpoint: it is nan, which JSON does not have; pass None"),
        (
            b"x",
            "the checkpoint: it is of the type bytes, which JSON does not have; pass a str of base64",
        ),
        ("x" * 99, "the checkpoint takes 101 bytes; the limit is 100 bytes; it is kept in {}.txt"),
    ],
)
def test_what_cannot_be_a_checkpoint_is_refused_and_the_one_before_counts(tmp_path, value, error):
    task = RunningTask("t1", {}, str(tmp_path), max_bytes=100)
    task.checkpoint(1)
    with pytest.raises(ValueError, match=re.escape(error.format(tmp_path / "checkpoint"))):
        task.checkpoint(value)
    assert task.checkpointed == 1


def test_on_a_disk_that_takes_nothing_a_checkpoint_is_not_made_and_says_so(tmp_path):
    task = RunningTask("t1", {}, str(tmp_path / "gone"))
    assert task.checkpoint(1) is False


@pytest.fixture
def small_disk():
    """Take a part of what is written, and then refuse, as a disk does that is nearly full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_of_a_checkpoint_for_which_there_is_half_the_room_nothing_is_left_and_the_one_before_counts(
    tmp_path, small_disk
):
    task = RunningTask("t1", {}, str(tmp_path))
    assert task.checkpoint(1) is True
    assert task.checkpoint("x" * 20_000) is False
    assert task.checkpointed == 1 and os.listdir(tmp_path) == ["checkpoint.json"]


def test_an_attempt_is_made_only_if_there_is_room_for_all_of_its_fields(tmp_path, small_disk):
    spool = Spool(str(tmp_path / "spool"), 2**20)
    spool.open()
    with pytest.raises(OSError, match="File too large"):
        spool.create("t1", 1, {"parameters": "x" * 20_000})


def test_outside_of_a_task_a_checkpoint_is_checked_and_goes_nowhere(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    task = RunningTask("", {}, None)
    assert (task.checkpoint(1), task.checkpointed) == (False, None)
    assert task.checkpoint_dir.parent == tmp_path
    with pytest.raises(ValueError, match="not a string"):
        task.checkpoint({1: 2})


# What is here, and what Redis has


def made(spool, number, value=None, has_begun=True, created="1.5"):
    """Make an attempt as a listener does, with a checkpoint."""
    task = Task("t1", {"attempt": str(number), "created": created})
    attempt = spool.create("t1", number, task.fields)
    if has_begun:
        attempt.begin()
    if value is not None:
        running = RunningTask("t1", {}, attempt.path)
        running.checkpoint(value)
        (running.checkpoint_dir / "state").write_text(str(value))
    return task, attempt


@pytest.mark.parametrize(
    ("kept", "value", "state"),
    [
        ({}, 7, "7"),
        # Redis was away when the attempt ended
        ({"attempt": "1", "value": "5", "created": "1.5"}, 7, "7"),
        ({"attempt": "2", "value": "9", "created": "1.5"}, 9, None),  # one that ran elsewhere since
        (
            {"attempt": "2", "value": "9", "created": "0.5"},
            7,
            "7",
        ),  # of a task that 1.0.0 has deleted
        ({"attempt": "x", "value": "9", "created": "1.5"}, 7, "7"),
        ({"attempt": "2", "value": "\udcff", "created": "1.5"}, 7, "7"),
        ({"attempt": "2", "value": "{", "created": "1.5"}, 7, "7"),
        ({"attempt": "9" * 5000, "created": "1.5"}, 7, "7"),
    ],
)
def test_of_files_that_are_here_and_what_redis_has_the_newer_counts(tmp_path, kept, value, state):
    spool = Spool(str(tmp_path / "spool"), 2**20)
    spool.open()
    _, first = made(spool, 1, 7)
    first.mark_reported(is_wanted=True)
    made(spool, 2, 8, created="0.5")  # of a task that was deleted, and had the same key
    task, third = made(spool, 3, has_begun=False)
    checkpoint_sync.carry(spool, task, third, checkpoint_sync.trusted(task, kept), 2**20)
    found = RunningTask("t1", {}, third.path)
    assert found.checkpointed == value
    assert [path.read_text() for path in found.checkpoint_dir.iterdir()] == (
        [] if state is None else [state]
    )
    assert os.path.exists(f"{first.path}/checkpoint") == (state is None)  # it has moved
    assert not first.is_wanted()


def test_an_attempt_that_never_began_passes_on_what_it_was_to_find(tmp_path):
    spool = Spool(str(tmp_path / "spool"), 2**20)
    spool.open()
    made(spool, 1, 7)
    for number in (2, 3):
        task, attempt = made(spool, number, has_begun=False)
        checkpoint_sync.carry(spool, task, attempt, {}, 2**20)
    found = RunningTask("t1", {}, attempt.path)
    assert (found.checkpointed, (found.checkpoint_dir / "state").read_text()) == (7, "7")


def test_the_directory_of_an_attempt_that_still_runs_is_copied(tmp_path):
    spool = Spool(str(tmp_path / "spool"), 2**20)
    spool.open()
    _, first = made(spool, 1, 7)
    first.open(spool.open_path, os.getpid(), process.start_ticks(os.getpid()))
    task, second = made(spool, 2, has_begun=False)
    checkpoint_sync.carry(spool, task, second, {}, 2**20)
    for attempt in (first, second):
        assert (RunningTask("t1", {}, attempt.path).checkpoint_dir / "state").read_text() == "7"


def test_an_attempt_begins_without_a_directory_that_is_removed_just_then(
    tmp_path, monkeypatch, caplog
):
    spool, told = Spool(str(tmp_path / "spool"), 2**20), Told()
    spool.open()
    _, first = made(spool, 1, 7)
    CheckpointSync(first, 2**20).finish(told.of(RunningTask("t1", {}, first.path)))
    task, second = made(spool, 2, has_begun=False)
    is_in_use = spool.is_in_use
    monkeypatch.setattr(
        spool, "is_in_use", lambda path: spool._remove_attempt(path) or is_in_use(path)
    )
    kept = {**told.has, "attempt": "1", "created": "1.5"}
    checkpoint_sync.carry(spool, task, second, kept, 2**20)
    found = RunningTask("t1", {}, second.path)
    assert found.checkpointed == 7 and not any(found.checkpoint_dir.iterdir())
    assert f"its directory {told.has['directory']} was removed" in caplog.text


def test_an_attempt_begins_without_a_directory_of_another_host_and_says_where_it_is(
    tmp_path, caplog
):
    spool = Spool(str(tmp_path / "spool"), 2**20)
    spool.open()
    task, second = made(spool, 2, has_begun=False)
    kept = {"directory": "gpu-9:/s/1/checkpoint", "attempt": "1", "created": "1.5"}
    checkpoint_sync.carry(spool, task, second, kept, 2**20)
    assert not os.path.exists(f"{second.path}/checkpoint")
    assert "its directory gpu-9:/s/1/checkpoint stays on its host" in caplog.text


def test_an_attempt_begins_without_a_directory_that_is_older_than_its_value_and_says_so(
    tmp_path, caplog
):
    spool = Spool(str(tmp_path / "spool"), 2**20)
    spool.open()
    _, first = made(spool, 1, 7)
    first.mark_reported(is_wanted=True)
    place = f"{hosts.host_name()}:{first.path}/checkpoint"
    task, third = made(spool, 3, has_begun=False)
    kept = {"directory": place, "attempt": "2", "value": "9", "created": "1.5"}
    checkpoint_sync.carry(spool, task, third, kept, 2**20)
    found = RunningTask("t1", {}, third.path)
    assert found.checkpointed == 9 and not any(found.checkpoint_dir.iterdir())
    assert f"its directory {place} is of an older attempt than its value" in caplog.text


def test_a_directory_that_is_still_in_use_is_copied_without_what_cannot_be(tmp_path, monkeypatch):
    spool = Spool(str(tmp_path / "spool"), 2**20)
    spool.open()
    _, first = made(spool, 1, 7)
    first.open(spool.open_path, os.getpid(), process.start_ticks(os.getpid()))
    old = RunningTask("t1", {}, first.path).checkpoint_dir
    os.mkfifo(old / "pipe")
    (old / "sub").mkdir()
    (old / "sub" / "latest").symlink_to("../state")
    task, second = made(spool, 2, has_begun=False)
    (tmp_path / "spool" / "t1" / "2" / "checkpoint.new").mkdir()  # of a try before, cut short
    (tmp_path / "spool" / "t1" / "2" / "checkpoint.new" / "half").touch()
    (old / "vanishing").touch()
    copy_file = checkpoint_files._copy_file

    def copy_file_late(source, target):
        (old / "vanishing").unlink(missing_ok=True)
        copy_file(source, target)

    monkeypatch.setattr(checkpoint_files, "_copy_file", copy_file_late)
    checkpoint_sync.carry(spool, task, second, {}, 2**20)
    found = RunningTask("t1", {}, second.path).checkpoint_dir
    assert sorted(str(path.relative_to(found)) for path in found.rglob("*")) == [
        "state",
        "sub",
        "sub/latest",
    ]
    assert (found / "sub" / "latest").read_text() == "7"


@pytest.mark.parametrize(("number", "is_waited_for"), [(errno.ENOSPC, True), (errno.EACCES, False)])
def test_a_directory_that_cannot_be_had_is_waited_for_only_if_there_is_no_room(
    tmp_path, monkeypatch, caplog, number, is_waited_for
):
    spool = Spool(str(tmp_path / "spool"), 2**20)
    spool.open()
    made(spool, 1, 7)
    task, second = made(spool, 2, has_begun=False)

    def refuse(*_args, **_named):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(checkpoint_files, "carry", refuse)
    if is_waited_for:
        with pytest.raises(OSError, match=os.strerror(number)):
            checkpoint_sync.carry(spool, task, second, {}, 2**20)
    else:
        checkpoint_sync.carry(spool, task, second, {}, 2**20)
        assert "starting without" in caplog.text
        assert RunningTask("t1", {}, second.path).checkpointed == 7


def test_a_second_try_after_a_full_disk_keeps_what_the_first_has_carried(tmp_path, caplog):
    spool, told = Spool(str(tmp_path / "spool"), 2**20), Told()
    spool.open()
    _, first = made(spool, 1, 7)
    CheckpointSync(first, 2**20).finish(told.of(RunningTask("t1", {}, first.path)))
    task, second = made(spool, 2, has_begun=False)
    kept = {**told.has, "attempt": "1", "created": "1.5"}
    for _ in range(2):
        checkpoint_sync.carry(spool, task, second, kept, 2**20)
    assert (RunningTask("t1", {}, second.path).checkpoint_dir / "state").read_text() == "7"
    assert "its directory" not in caplog.text


# What Redis is told


class Told:
    """In the place of a processor: what Redis has then."""

    def __init__(self):
        self.has, self.times = {}, 0

    def of(self, task):
        self.task = task
        return self

    def checkpoint(self, parts):
        self.times += 1
        self.has = {name: text for name, text in (self.has | parts).items() if text is not None}


def test_redis_is_told_the_value_and_where_the_directory_is_as_often_as_they_change(tmp_path):
    task, told = RunningTask("t1", {}, str(tmp_path)), Told()
    sync = CheckpointSync(Attempt(str(tmp_path), ""), 2**20)
    sync.step(told.of(task))
    assert told.times == 0
    (task.checkpoint_dir / "model-1").touch()
    sync.step(told.of(task))
    place = f"{hosts.host_name()}:{tmp_path}/checkpoint"
    assert told.has == {"directory": place}
    task.checkpoint("model-1")
    for _ in range(2):
        sync.step(told.of(task))
    assert (told.has, told.times) == ({"value": '"model-1"', "directory": place}, 2)
    for _ in range(2):
        sync.finish(told.of(task))
    assert (told.has, told.times) == ({"value": '"model-1"', "directory": place}, 3)


def test_what_is_no_value_is_not_sent_and_is_logged_once(tmp_path, caplog):
    task, told = RunningTask("t1", {}, str(tmp_path)), Told()
    sync = CheckpointSync(Attempt(str(tmp_path), ""), 100)
    for text in ("{", "1" * 101):
        (tmp_path / "checkpoint.json").write_text(text)
        sync.step(told.of(task))
    assert told.times == 0 and caplog.text.count("is not JSON, or takes more than 100 bytes") == 1


def test_a_checkpoint_that_an_attempt_has_been_handed_and_removes_does_not_come_back(tmp_path):
    spool, told = Spool(str(tmp_path / "spool"), 2**20), Told()
    spool.open()
    _, first = made(spool, 1, 7)
    CheckpointSync(first, 2**20).finish(told.of(RunningTask("t1", {}, first.path)))
    task, second = made(spool, 2, has_begun=False)
    checkpoint_sync.carry(
        spool, task, second, {**told.has, "attempt": "1", "created": "1.5"}, 2**20
    )
    sync = CheckpointSync(second, 2**20)
    sync.step(told.of(task))
    assert set(told.has) == {"value", "directory"}
    os.unlink(f"{second.path}/checkpoint.json")
    shutil.rmtree(f"{second.path}/checkpoint")
    sync.step(told.of(task))
    # of which Redis has to let go at its end
    assert told.has == {} and checkpoint_files.exists(second.path)
    before = told.times
    sync.step(told.of(task))
    assert told.times == before


def test_what_an_adopted_attempt_has_told_and_removes_is_removed_by_the_next_listener(tmp_path):
    spool, told = Spool(str(tmp_path / "spool"), 2**20), Told()
    spool.open()
    task, first = made(spool, 1, 7)
    CheckpointSync(first, 2**20).step(told.of(task))
    os.unlink(f"{first.path}/checkpoint.json")
    CheckpointSync(first, 2**20).step(told.of(task))
    assert set(told.has) == {"directory"}


def test_a_value_that_is_larger_than_a_reader_would_write_is_read(tmp_path):
    RunningTask("t1", {}, str(tmp_path), max_bytes=2000).checkpoint("x" * 1000)
    assert RunningTask("t1", {}, str(tmp_path), max_bytes=100).checkpointed == "x" * 1000


# Of an attempt that has failed


def test_the_next_attempt_reads_the_checkpoint_of_one_that_has_failed_on_its_host_and_elsewhere(
    programs, queue, cli
):
    first = programs.listener("work:run")
    task = queue.enqueue("9 fails goes on", retry=AT_ONCE)
    done = outcome(programs.client, task)
    assert (done.result, done.attempt) == (NINE, 2), done.error
    other = queue.enqueue("9 fails goes on")
    assert outcome(programs.client, other).status == "failed"
    # nobody goes on from one that is complete
    assert cli.exists(keys.checkpoint(other), keys.checkpoint(task)) == 1
    assert audit(programs.client.connections, 0.3) == []
    assert first.stop() == 0
    second = programs.listener("work:run", spool="elsewhere")
    queue.requeue(other)
    done = outcome(programs.client, other)
    assert (done.result, done.attempt) == (NINE_ELSEWHERE, 2)
    assert "elsewhere" in done.files
    second.says("stays on its host; starting without")
    queue.delete_task(programs.client.get_task(task))
    queue.delete_task(programs.client.get_task(other))
    assert cli.keys("blueque_checkpoint_*") == [] and is_sound(programs.client)


def test_only_the_directory_of_what_runs_again_keeps_its_place_in_a_spool_that_is_too_full(
    programs, queue
):
    programs.listener("work:run")
    failed = queue.enqueue("9 fails goes on")
    later = queue.enqueue("9 fails goes on", retry=Retry(max=1, backoff=1000))
    assert outcome(programs.client, failed).status == "failed"
    until(
        lambda: len([*programs.directory.glob("spool/*@1/reported")]) == 2,
        what="both to be reported",
    )
    assert [path.parent.name for path in programs.directory.glob("spool/*/wanted")] == [
        f"{later}@1"
    ]


# Of one whose processes were killed


@pytest.mark.parametrize(
    ("spool", "is_redis_away"), [("spool", False), ("elsewhere", False), ("elsewhere", True)]
)
def test_after_a_task_process_was_killed_the_next_attempt_reads_its_newest_checkpoint(
    programs, queue, network, spool, is_redis_away
):
    listener = programs.listener("work:run", "--redis-url", network.url)
    task = running(programs, queue.enqueue("9 goes on"))
    if is_redis_away:
        network.cut()
    os.kill(task.pid, signal.SIGKILL)
    until(lambda: not is_there(task.pid), what="its end")
    if is_redis_away:
        listener.says("waiting")
        assert programs.client.get_task(task.id).status == "started"
        network.mend()
    assert outcome(programs.client, task.id).error_type == "signal"
    if spool != "spool":
        assert listener.stop() == 0
        programs.listener("work:run", spool=spool)
    queue.requeue(task.id)
    done = outcome(programs.client, task.id)
    found = NINE if spool == "spool" else NINE_ELSEWHERE
    assert (done.result, done.attempt) == (found, 2), done.error


def test_a_task_whose_listener_was_killed_has_its_checkpoints_told_by_the_next(programs, queue):
    programs.listener("work:run")
    task = running(programs, queue.enqueue("9 goes on"))
    os.kill(pid_of(task.node), signal.SIGKILL)
    has_moved(programs.client, task, 5)
    published(programs, task.id)
    assert is_there(task.pid)
    let_go(programs)
    assert outcome(programs.client, task.id).result == [None, {}]


def kill_node(programs, task):
    """Kill all of a node at once, its task too, of which Redis then knows nothing."""
    for pid in programs.left():
        os.kill(pid, signal.SIGKILL)
    until(lambda: programs.left() == [], what="the end of the node")
    assert programs.client.get_task(task.id).status == "started" and len(ledger(programs)) == 1


def test_after_a_whole_node_was_killed_the_next_attempt_goes_on_from_its_checkpoint(
    programs, queue
):
    programs.listener("work:run", *QUICK)
    task = running(programs, queue.enqueue("9 goes on", retry=AT_ONCE))
    published(programs, task.id)  # what has not left the node is gone with it
    kill_node(programs, task)
    programs.listener("work:run", *QUICK, spool="elsewhere")
    done = outcome(programs.client, task.id)
    assert (done.result, done.attempt, done.interruptions) == (NINE_ELSEWHERE, 2, 1)
    assert is_sound(programs.client)


def test_what_a_node_that_was_killed_could_not_tell_redis_is_found_in_its_spool(
    programs, queue, network
):
    programs.listener("work:run", *QUICK, "--redis-url", network.url)
    task = running(programs, queue.enqueue("9 more goes on", retry=AT_ONCE))
    published(programs, task.id)
    network.cut()
    (programs.directory / "more").touch()
    until(lambda: not (programs.directory / "more").exists(), what="a newer checkpoint")
    kill_node(programs, task)
    published(programs, task.id)  # the one before
    programs.listener("work:run", *QUICK)
    done = outcome(programs.client, task.id)
    assert (done.result, done.attempt) == ([{"number": 99}, {"state": "9"}], 2)
