"""The spool: the files of each attempt on the node's disk."""

from __future__ import annotations

import errno
import json
import os
import resource
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from running import ROOT

from blueque.errors import SpoolRefused
from blueque.node.spool_room import make_room
from blueque.spool import spool as module
from blueque.spool.spool import Spool
from blueque.system import process
from blueque.system.process import Reaped

FIELDS = {"status": "reserved", "queue": "video", "parameters": "a.mov ü\udc80", "attempt": "1"}
RECORD = {"status": "complete", "result": 'a "result" ü\n', "result_encoding": None}
MIB = 2**20


@pytest.fixture
def root(tmp_path):
    return tmp_path / "spool"


@pytest.fixture
def spool(root):
    spool = Spool(str(root), MIB)
    spool.open()
    return spool


@pytest.fixture
def attempt(spool):
    return spool.create("some-task", 1, FIELDS)


def tree(root):
    """Return all that is in the spool, but for two directories that are always there."""
    return sorted(
        str(path.relative_to(root))
        for path in root.rglob("*")
        if path not in (root / "open", root / "blanks")
    )


def reported(spool, task_id, number, when):
    """Make an attempt whose end Redis has known since then."""
    attempt = spool.create(task_id, number, FIELDS)
    attempt.mark_reported()
    os.utime(f"{attempt.path}/reported", (when, when))
    return attempt


def rooms(root):
    """Return the names of the rooms that are set aside."""
    return {name for name in os.listdir(root) if name.startswith("room.")}


def ended_pid():
    """Return the pid of a process that is no more."""
    child = subprocess.Popen(["true"])
    child.wait()
    return child.pid


class FullOnce:
    """An os.pwrite for which the disk is full after a few bytes of the first write, and of that one
    only.
    """

    def __init__(self, code=errno.ENOSPC):
        self.code, self.calls = code, 0
        self._pwrite = os.pwrite

    def __call__(self, descriptor, content, offset):
        self.calls += 1
        if self.calls == 1:
            return self._pwrite(descriptor, content[:5], offset)
        if self.calls == 2:
            raise OSError(self.code, os.strerror(self.code))
        return self._pwrite(descriptor, content, offset)


# The directory


def test_the_directory_is_made_for_its_owner_alone(root):
    Spool(str(root), MIB).open()
    assert stat.S_IMODE(root.stat().st_mode) == 0o700


def test_a_directory_that_others_can_read_is_closed_to_them(root):
    root.mkdir()
    root.chmod(0o755)
    Spool(str(root), MIB).open()
    assert stat.S_IMODE(root.stat().st_mode) == 0o700


def test_a_symbolic_link_is_refused_and_what_it_leads_to_left_alone(root, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real").chmod(0o755)
    root.symlink_to("real")
    with pytest.raises(SpoolRefused, match="not a directory"):
        Spool(str(root), MIB).open()
    assert stat.S_IMODE((tmp_path / "real").stat().st_mode) == 0o755


def test_a_directory_of_another_user_is_refused_and_left_alone(root, monkeypatch):
    root.mkdir()
    root.chmod(0o755)
    monkeypatch.setattr(os, "geteuid", lambda: root.stat().st_uid + 1)
    with pytest.raises(SpoolRefused, match="belongs to user"):
        Spool(str(root), MIB).open()
    assert stat.S_IMODE(root.stat().st_mode) == 0o755


def test_a_directory_with_other_things_in_it_is_not_closed_to_others(root):
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "tool").touch()
    root.chmod(0o755)
    with pytest.raises(SpoolRefused):
        Spool(str(root), MIB).open()
    assert stat.S_IMODE(root.stat().st_mode) == 0o755


def test_a_place_where_no_directory_can_be_made_is_refused_with_the_reason(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(SpoolRefused, match="Not a directory; choose another with --spool"):
        Spool(str(tmp_path / "file" / "spool"), MIB).open()


def test_a_relative_directory_is_meant_from_where_we_are_and_stays_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    spool = Spool("here", MIB)
    monkeypatch.chdir("/")
    spool.open()
    assert (tmp_path / "here").is_dir()


# Attempts


def test_an_attempt_has_the_task_as_it_was_reserved(spool, root):
    attempt = spool.create("some-task", 2, FIELDS)
    assert attempt.path == f"{root}/some-task/2"
    assert attempt.read_task() == ("some-task", FIELDS)
    assert stat.S_IMODE(os.stat(attempt.path).st_mode) == 0o700


def test_a_second_attempt_lies_beside_the_first(spool, root):
    spool.create("some-task", 1, FIELDS)
    spool.create("some-task", 2, FIELDS)
    assert tree(root) == [
        "some-task",
        "some-task/2",
        "some-task/2/task",
        "some-task@1",
        "some-task@1/task",
    ]


def test_an_attempt_that_was_there_already_stays_as_it_is_and_the_new_one_lies_beside_it(
    spool, root
):
    spool.create("some-task", 1, {"parameters": "old"}).write_exit(RECORD)
    attempt = spool.create("some-task", 1, {"parameters": "new"})
    assert attempt.path == f"{root}/some-task/1"
    third = spool.create("some-task", 1, {"parameters": "newest"})
    assert third.path.startswith(f"{root}/some-task/1.")
    assert third.read_task()[1] == {"parameters": "newest"}
    assert attempt.read_exit() is None and attempt.read_task()[1] == {"parameters": "new"}
    old = spool.attempt("some-task", 1)
    assert old.read_exit() == RECORD and old.read_task()[1] == {"parameters": "old"}


def test_a_creation_that_fails_leaves_nothing_behind_however_often_it_is_tried(spool, root):
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # a file may be made but not written, as on a full disk
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        for _ in range(3):
            with pytest.raises(OSError, match="File too large"):
                spool.create("some-task", 1, FIELDS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert tree(root) in ([], ["some-task"])


@pytest.mark.parametrize(
    "task_id",
    [
        "../../x",
        "/x",
        "a/b",
        "..",
        ".",
        "",
        "-x",
        "room.7",
        "open",
        "listeners",
        "resources",
        "two words",
        "ü",
        "\udc80",
        "x" * 101,
        "\0",
    ],
)
def test_a_task_id_that_could_lead_elsewhere_gets_a_name_of_its_own_inside(spool, root, task_id):
    attempt = spool.create(task_id, 1, FIELDS)
    path = Path(attempt.path)
    assert path.parent == root and path.name.startswith("id-") and path.is_dir()
    assert attempt.read_task()[0] == task_id
    assert spool.attempt(task_id, 1).path == attempt.path


def test_different_strange_ids_have_different_places(spool):
    assert (
        len(
            {spool.attempt(task_id, 1).path for task_id in ("a/b", "a//b", "../a/b", "A/b", "a/b ")}
        )
        == 5
    )


def test_an_attempt_has_begun_from_its_first_moment_on(attempt):
    assert not attempt.has_begun()
    attempt.begin()
    assert attempt.has_begun()


def test_the_parameters_are_written_byte_for_byte(attempt):
    path = attempt.write_parameters("a\r\nü\udc80\0")
    assert Path(path).read_bytes() == b"a\r\n\xc3\xbc\x80\0"


@pytest.mark.parametrize(
    ("content", "tail"),
    [
        (b"", ""),
        (b"short", "short"),
        (b"a longer text", "ger text"),
        ("üüüüü".encode(), "üüüü"),
        (b"\xff", "\ufffd"),
    ],
)
def test_a_tail_is_the_end_of_a_file_as_text(attempt, content, tail):
    Path(attempt.path, "stderr").write_bytes(content)
    assert attempt.tail("stderr", 8) == tail


def test_the_tail_of_a_file_that_is_not_there_is_empty(attempt):
    assert attempt.tail("stderr", 8) == ""


# Open attempts


def test_an_attempt_is_found_by_its_token(spool):
    for number, token in ((1, "a"), (2, "b")):
        spool.create("some-task", number, {**FIELDS, "token": token})
    assert spool.find("some-task", "b").path == spool.attempt("some-task", 2).path
    spool.create("a copy", 1, {**FIELDS, "token": "b"})
    Path(spool.attempt("a copy", 1).path, "task").write_text(
        json.dumps({"id": "some-task", "path": "", "room": "", "fields": {"token": "b"}})
    )
    assert spool.find("a copy", "b") is None
    assert spool.find("some-task", "c") is None
    assert spool.find("some-task", None) is None
    assert spool.find("other-task", "b") is None


@pytest.mark.parametrize("task_id", ["some-task", "a/b", "open"])
def test_an_attempt_is_found_under_any_id_and_beside_what_is_not_whole(spool, task_id):
    attempt = spool.create(task_id, 1, {**FIELDS, "token": "a"})
    for name, content in (("2", "{"), ("3", "[]"), ("4", None)):
        broken = Path(attempt.path.removesuffix("@1")) / name
        broken.mkdir(parents=True)
        if content is not None:
            (broken / "task").write_text(content)
    assert spool.find(task_id, "a").path == attempt.path


def test_the_newest_attempt_of_a_task_is_known_by_when_the_task_was_created(spool):
    for number, created in (("1", "7.5"), ("3", "7.5"), ("2", "9.5")):
        spool.create("t", int(number), {**FIELDS, "attempt": number, "created": created})
    spool.create("another", 9, {**FIELDS, "attempt": "9", "created": "7.5"})

    assert spool.newest("t") == {"7.5": 3, "9.5": 2, None: 3}
    assert spool.newest("unknown") == {}
    for number in (1, 3):
        spool.attempt_at(f"{spool.root}/t/{number}").mark_reported()
    assert spool.newest("t") == {"7.5": 3, "9.5": 2, None: 2}


@pytest.mark.parametrize("number", ["9" * 300, "9" * 5000, "-1", "1.5", "first"])
def test_an_attempt_that_has_forged_its_number_does_not_count(spool, number):
    spool.create("t", 1, {**FIELDS, "attempt": number, "created": "7.5"})
    assert spool.newest("t") == {"7.5": 0, None: 0}


def test_open_attempts_are_told_with_their_processes_and_what_is_none_is_skipped(spool, root):
    for number in (1, 2):
        spool.create("some-task", number, FIELDS).open(spool.open_path, 70 + number, 5)
    (root / "open" / "README").write_text("no link")
    (root / "open" / "7-x").symlink_to("somewhere")
    (root / "open" / "7-8").mkdir()
    found = {(pid, ticks): attempt.path for pid, ticks, attempt in spool.open_attempts()}
    assert found == {
        (71, 5): spool.attempt("some-task", 1).path,
        (72, 5): spool.attempt("some-task", 2).path,
    }


def test_a_process_runs_the_attempt_that_its_file_names_and_no_earlier_one(spool):
    first, second = (spool.create(task, 1, FIELDS) for task in ("first", "second"))
    first.open(spool.open_path, 4021, 99)
    assert spool.runs(4021, 99, first)
    first.write_exit(RECORD)
    assert spool.runs(4021, 99, first), "it may be about to end"
    first.close()

    second.open(spool.open_path, 4021, 99)

    assert not spool.runs(4021, 99, first) and spool.runs(4021, 99, second)


def test_a_process_without_a_file_runs_what_has_not_ended(spool, attempt):
    assert spool.runs(4021, 99, attempt)
    attempt.write_exit(RECORD)
    assert not spool.runs(4021, 99, attempt), "it waits for another task"


def test_what_the_process_of_an_attempt_had_used_before_is_read_where_it_began(attempt):
    assert attempt.used_before() == 0.0

    attempt.begin(12.5)

    assert attempt.used_before() == 12.5
    assert attempt.began_at() is not None and attempt.has_begun()


@pytest.mark.parametrize("written", ["\n5 -1", "\n5 nan", "\n5 inf", "\n5 much", "\n5"])
def test_a_forged_use_before_it_began_does_not_count(attempt, written):
    with open(f"{attempt.path}/task", "a") as file:
        file.write(written)
    assert attempt.used_before() == 0.0


def test_how_a_process_ended_is_noted_where_its_attempt_is_and_nowhere_else(spool, attempt):
    attempt.open(spool.open_path, 77, 5)
    reaped = Reaped(-9, 0.25, 4096, True)
    spool.note_ending(77, 5, reaped)
    assert attempt.read_ending() is None, "it has not begun"
    attempt.begin()
    spool.note_ending(77, 6, reaped)
    assert attempt.read_ending() is None
    spool.note_ending(77, 5, reaped)
    assert Reaped(**attempt.read_ending()) == reaped
    attempt.mark_reported()
    spool.note_ending(77, 5, Reaped(0, 0.25, 4096))
    assert Reaped(**attempt.read_ending()) == reaped


def test_how_a_process_ended_is_noted_before_it_is_reaped(spool, attempt, monkeypatch):
    pid = process.fork(lambda: 7)
    attempt.open(spool.open_path, pid, process.start_ticks(pid))
    attempt.begin()
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    wait_usage, before = process.wait_usage, []

    def see(pid):
        before.append(attempt.read_ending())
        return wait_usage(pid)

    monkeypatch.setattr(process, "wait_usage", see)
    reaped = spool.reap(pid)

    assert (before[0]["code"], before[0]["max_rss_bytes"]) == (7, 0)
    assert Reaped(**attempt.read_ending()) == reaped and reaped.max_rss_bytes > 0


def test_how_a_process_ended_is_not_noted_beside_an_exit_record(spool, attempt):
    attempt.open(spool.open_path, 77, 5)
    attempt.begin()
    attempt.write_exit({"status": "complete", "result": "1"})

    spool.note_ending(77, 5, Reaped(-9, 0.25, 4096))

    assert attempt.read_ending() is None


# Exit records


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        [[]],
        [["t", "parts", "text", {}, {}]],
        [["t", "parts", 5, {}, {}, None]],
        [["t", "parts", "text", {"priority": []}, {}, None]],
        [["t", "parts", "text", {}, {"t": 1}, None]],
        [["t", "parts", "text", {}, {}, "soon"]],
        [["t", "\ud800", "text", {}, {}, None]],
    ],
)
def test_a_record_whose_new_tasks_cannot_be_read_is_none(attempt, wrong):
    record = {**RECORD, "then": [["t", "parts", "text", {"priority": 1}, {"t": "ok"}, 5.5]]}
    attempt.write_exit(record)
    assert attempt.read_exit() == record
    Path(attempt.path, "exit").write_text(json.dumps({**RECORD, "then": wrong}))
    assert attempt.read_exit() is None


@pytest.mark.parametrize("content", [b"", b"{", b'{"status": "compl', b"[]", b"{}", b"\xff"])
def test_a_record_that_is_not_whole_is_none(attempt, content):
    Path(attempt.path, "exit.new").write_bytes(content)
    assert attempt.read_exit() is None


def test_a_whole_record_whose_renaming_was_lost_with_the_power_counts(attempt):
    Path(attempt.path, "exit.new").write_text(json.dumps(RECORD))
    assert attempt.read_exit() == RECORD


def test_a_record_cut_short_by_the_power_failure_gives_way_to_the_whole_one(attempt):
    Path(attempt.path, "exit").write_bytes(b"")
    Path(attempt.path, "exit.new").write_text(json.dumps(RECORD))
    assert attempt.read_exit() == RECORD


def test_a_second_record_replaces_the_first_even_if_it_is_shorter(attempt):
    attempt.write_exit({**RECORD, "result": "x" * 1000})
    attempt.write_exit(RECORD)
    assert attempt.read_exit() == RECORD


def test_a_record_is_on_the_disk_when_it_is_written(attempt, monkeypatch):
    events, fsync = [], os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda fd: (events.append(os.readlink(f"/proc/self/fd/{fd}")), fsync(fd))
    )
    attempt.write_exit(RECORD)
    assert events == [f"{attempt.path}/exit"]
    assert attempt.read_exit() == RECORD


def test_a_second_record_is_on_the_disk_before_it_takes_the_place_of_the_first(
    attempt, monkeypatch
):
    attempt.write_exit({**RECORD, "result": "x" * 1000})
    events = []
    fsync, rename = os.fsync, os.rename
    monkeypatch.setattr(
        os, "fsync", lambda fd: (events.append(os.readlink(f"/proc/self/fd/{fd}")), fsync(fd))
    )
    monkeypatch.setattr(
        os, "rename", lambda old, new: (events.append((old, new)), rename(old, new))
    )
    attempt.write_exit(RECORD)
    assert events == [
        f"{attempt.path}/exit.new",
        (f"{attempt.path}/exit.new", f"{attempt.path}/exit"),
    ]


def test_a_process_killed_while_it_writes_its_record_leaves_none(attempt):
    script = """
import os, signal, sys
from blueque.spool.attempt import Attempt
def pwrite(descriptor, content, offset, real=os.pwrite):
    real(descriptor, content[: len(content) // 2], offset)
    os.kill(os.getpid(), signal.SIGKILL)
os.pwrite = pwrite
Attempt(sys.argv[1], "no room").write_exit({"status": "complete", "result": "x" * 1000})
"""
    killed = subprocess.run([sys.executable, "-c", script, attempt.path], cwd=ROOT, check=False)
    assert killed.returncode == -9
    assert Path(attempt.path, "exit").stat().st_size > 500
    assert attempt.read_exit() is None


# Room


def test_room_for_the_largest_record_is_set_aside_once_and_given_back(spool, root):
    assert spool.want_of_room() is None
    room = root / f"room.{os.getpid()}"
    assert tree(root) == [room.name]
    assert room.stat().st_size == room.stat().st_blocks * 512 >= 2 * MIB + module.RECORD_OVERHEAD
    before = room.stat()
    assert spool.want_of_room() is None
    assert room.stat().st_ino == before.st_ino and room.stat().st_mtime_ns == before.st_mtime_ns
    spool.close()
    assert tree(root) == []


def test_a_record_that_no_longer_fits_on_the_disk_takes_over_the_room_set_aside(
    spool, root, attempt, monkeypatch
):
    spool.want_of_room()
    room = (root / f"room.{os.getpid()}").stat().st_ino
    full = FullOnce()
    monkeypatch.setattr(os, "pwrite", full)
    attempt.write_exit(RECORD)
    assert full.calls == 3
    assert attempt.read_exit() == RECORD
    assert Path(attempt.path, "exit").stat().st_ino == room
    assert tree(root) == ["some-task@1", "some-task@1/exit", "some-task@1/task"]


def test_the_room_is_set_aside_again_before_the_next_attempt(spool, root, attempt, monkeypatch):
    spool.want_of_room()
    monkeypatch.setattr(os, "pwrite", FullOnce())
    attempt.write_exit(RECORD)
    assert spool.want_of_room() is None
    assert (root / f"room.{os.getpid()}").stat().st_size >= 2 * MIB


def test_a_disk_that_fails_otherwise_is_an_error_and_costs_no_room(
    spool, root, attempt, monkeypatch
):
    spool.want_of_room()
    monkeypatch.setattr(os, "pwrite", FullOnce(errno.EIO))
    with pytest.raises(OSError, match="Input/output error"):
        attempt.write_exit(RECORD)
    assert (root / f"room.{os.getpid()}").exists()
    assert attempt.read_exit() is None


def test_the_want_of_room_is_told_with_what_is_needed(spool, monkeypatch):
    def fallocate(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", fallocate)
    assert (
        spool.want_of_room()
        == f"spool {spool.root}: No space left on device; a task needs 5,373,952 bytes to begin"
    )
    assert tree(Path(spool.root)) == []


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (
            {"f_bavail": 767, "f_frsize": 4096},
            "has 3,141,632 bytes free; a task needs 3,145,728 to begin",
        ),
        ({"f_files": 1000, "f_favail": 15}, "has no room for more files"),
        ({"f_bavail": 768, "f_frsize": 4096, "f_files": 0, "f_favail": 0}, None),
    ],
)
def test_room_is_wanting_when_little_more_than_what_was_set_aside_is_left(
    spool, monkeypatch, facts, reason
):
    real = os.statvfs(spool.root)
    known = {name: getattr(real, name) for name in dir(real) if name.startswith("f_")}
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(**{**known, **facts}))
    assert spool.want_of_room() == (reason and f"spool {spool.root} {reason}")


# Pruning


def test_an_attempt_that_is_removed_is_gone_at_once_and_what_a_killed_process_left_of_it_later(
    spool, monkeypatch
):
    attempt = spool.create("task", 1, {})
    attempt.mark_reported()
    removed = []
    remove = lambda path: removed.append((path, os.path.exists(attempt.path)))  # noqa: E731
    monkeypatch.setattr("blueque.spool.spool.remove_tree", remove)
    spool.prune(float("inf"))
    monkeypatch.undo()
    assert (removed[-1][0], removed[-1][1]) == (f"{spool.root}/blanks/{os.getpid()}.gone", False)
    left = f"{spool.root}/blanks/999999999.gone"
    os.rename(removed[-1][0], left)
    spool.prune(0.0)
    assert not os.path.exists(left)


def test_only_attempts_reported_before_that_time_are_pruned(spool, root):
    reported(spool, "old", 1, 1000.0)
    reported(spool, "edge", 1, 2000.0)
    reported(spool, "young", 1, 3000.0)
    os.utime(spool.create("unreported", 1, FIELDS).path, (1000, 1000))
    assert spool.prune(2000.0) == 1
    assert {path.name for path in root.iterdir()} == {
        "edge@1",
        "young@1",
        "unreported@1",
        "open",
        "blanks",
    }


def test_when_the_spool_takes_too_much_the_longest_reported_go_until_it_does_not(spool, root):
    for name, at in (("older", 1000.0), ("old", 2000.0), ("young", 3000.0)):
        attempt = reported(spool, name, 1, at)
        Path(attempt.path, "stdout").write_bytes(b"x" * 2**20)
        Path(attempt.path, "deeper").mkdir()
        Path(attempt.path, "deeper", "checkpoint").write_bytes(b"x" * 2**20)
    unreported = Path(spool.create("unreported", 1, FIELDS).path, "stdout")
    unreported.write_bytes(b"x" * 2**20)
    assert spool.shrink(2**33).removed == 0
    shrunk = spool.shrink(6 * 2**20)
    assert shrunk.removed == 1 and 6 * 2**20 > shrunk.size >= 5 * 2**20
    assert {path.name for path in root.iterdir()} == {
        "old@1",
        "young@1",
        "unreported@1",
        "open",
        "blanks",
    }
    shrunk = spool.shrink(1)
    assert shrunk.removed == 2 and shrunk.size >= 2**20, "what Redis does not know stays"
    assert {path.name for path in root.iterdir()} == {"unreported@1", "open", "blanks"}


def test_what_the_next_attempt_may_go_on_from_goes_last(spool, root):
    for name, at in (("wanted", 1000.0), ("young", 3000.0)):
        attempt = reported(spool, name, 1, at)
        Path(attempt.path, "checkpoint").mkdir()
        Path(attempt.path, "checkpoint", "state").write_bytes(b"x" * 2**20)
    spool.attempt("wanted", 1).mark_reported(is_wanted=True)
    assert spool.shrink(1.5 * 2**20).removed == 1
    assert spool.prune(4000.0, but_wanted=True) == 0
    assert {path.name for path in root.iterdir()} == {"wanted@1", "open", "blanks"}
    assert spool.prune(4000.0) == 1


@pytest.mark.parametrize(
    ("full_with", "left"), [({"done@1"}, {"wanted@1"}), ({"done@1", "wanted@1"}, set())]
)
def test_a_full_disk_takes_what_the_next_attempt_may_go_on_from_only_if_nothing_else_helps(
    spool, root, monkeypatch, full_with, left
):
    for name in ("done", "wanted"):
        reported(spool, name, 1, 1000.0)
    spool.attempt("wanted", 1).mark_reported(is_wanted=True)
    real = os.statvfs(root)
    known = {name: getattr(real, name) for name in dir(real) if name.startswith("f_")}

    def statvfs(_):
        is_full = any((root / name).exists() for name in full_with)
        return SimpleNamespace(**{**known, "f_bavail": 0 if is_full else known["f_bavail"]})

    monkeypatch.setattr(os, "statvfs", statvfs)
    assert make_room(spool) is None
    assert {path.name for path in root.iterdir()} & {"done@1", "wanted@1"} == left


def test_a_share_of_the_disk_is_a_limit_too(spool, root, monkeypatch):
    attempt = reported(spool, "old", 1, 1000.0)
    Path(attempt.path, "stdout").write_bytes(b"x" * 2**20)
    disk = os.statvfs(root)
    share = 2**19 / (disk.f_blocks * disk.f_frsize)
    assert spool.shrink(8 * share).removed == 0
    assert spool.shrink(share) == (1, 0)


def test_pruning_one_attempt_leaves_the_others_of_the_task(spool, root):
    reported(spool, "some-task", 1, 1000.0)
    spool.create("some-task", 2, FIELDS)
    assert spool.prune(2000.0) == 1
    assert tree(root) == ["some-task", "some-task/2", "some-task/2/task"]


def test_an_open_attempt_that_is_reported_already_is_closed(spool, root):
    attempt = spool.create("some-task", 1, FIELDS)
    attempt.open(spool.open_path, 77, 5)
    os.link(f"{attempt.path}/task", f"{attempt.path}/reported")
    attempt.mark_reported()
    assert list(spool.open_attempts()) == [] and not attempt.is_open
    assert sorted(os.listdir(attempt.path)) == ["reported", "task"]


@pytest.mark.parametrize(
    ("name", "content", "has_left"),
    [("exit", "{}", False), ("stdout", "", False), ("stderr", "a", True), ("times", "", True)],
)
def test_an_attempt_that_has_printed_or_left_anything_is_known(spool, name, content, has_left):
    make_blank(spool)
    attempt = spool.create("some-task", 1, FIELDS, os.getpid())
    Path(attempt.path, name).write_text(content)
    assert attempt.has_left_files() is has_left


def test_another_attempt_of_a_task_is_looked_for_beside_one(spool):
    first, second = spool.attempt("some-task", 1).path, spool.attempt("some-task", 2).path
    assert [module.number_of(path) for path in (first, second, f"{second}.ab")] == [1, 2, None]
    assert module.paths_beside(first, 2) == [second]
    assert first in module.paths_beside(second, 1)


def test_one_process_prunes_at_a_time(spool, root):
    another = Spool(str(root), MIB)
    with spool.only_pruner() as first, another.only_pruner() as second:
        assert (first, second) == (True, False)
    with another.only_pruner() as third:
        assert third is True


def test_pruning_does_not_follow_links_out_of_the_spool(spool, root, tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    attempt = reported(spool, "old", 1, 1000.0)
    Path(attempt.path, "link").symlink_to(tmp_path / "precious")
    assert spool.prune(2000.0) == 1
    assert (tmp_path / "precious" / "file").exists()


def test_the_room_of_a_dead_listener_is_given_back_and_that_of_a_living_one_kept(spool, root):
    spool.want_of_room()
    (root / f"room.{ended_pid()}").write_bytes(b"x")
    (root / f"room.{os.getppid()}").write_bytes(b"x")
    assert spool.prune(2000.0) == 0
    assert tree(root) == sorted([f"room.{os.getpid()}", f"room.{os.getppid()}"])


def test_the_room_that_an_attempt_which_runs_on_may_need_is_kept_until_it_has_ended(
    spool, root, attempt
):
    task = subprocess.Popen(["sleep", "1000"])
    attempt.open(spool.open_path, task.pid, process.start_ticks(task.pid))
    spool.want_of_room()
    spool.prune(2000.0)
    spool.close()  # the task of one that leaves may have been adopted
    assert rooms(root) == {f"room.{os.getpid()}"}
    task.kill()
    task.wait()
    spool.close()
    assert rooms(root) == set()


@pytest.mark.parametrize(
    "tidy",
    [
        lambda spool, dead: spool.prune(2000.0),
        lambda spool, dead: spool.remove_room(dead),
        lambda spool, dead: Spool(spool.root, MIB, dead).close(),
    ],
    ids=["the chore of a master", "the master of the dead", "its own end"],
)
def test_the_room_of_a_listener_goes_while_an_attempt_of_another_runs(spool, root, tidy):
    dead = ended_pid()
    Spool(str(root), MIB, dead).want_of_room()
    with subprocess.Popen(["sleep", "1000"]) as task:
        spool.want_of_room()
        spool.create("a task", 1, FIELDS).open(
            spool.open_path, task.pid, process.start_ticks(task.pid)
        )
        tidy(spool, dead)
        assert rooms(root) == {f"room.{os.getpid()}"}
        task.kill()


def test_the_own_directories_of_the_spool_are_no_tasks(spool, root):
    for name in ("open", "listeners", "resources", "blanks"):
        (root / name / "1").mkdir(parents=True)
        (root / name / "1" / "reported").touch()
        os.utime(root / name / "1" / "reported", (5, 5))
    assert spool.prune(2e9) == 0
    assert all(
        (root / name / "1" / "reported").exists()
        for name in ("open", "listeners", "resources", "blanks")
    )


def test_what_is_not_ours_in_the_spool_is_left_alone(spool, root):
    (root / "README").write_text("do not touch")
    (root / "room.for-more").write_text("do not touch")
    (root / "games").mkdir()
    assert spool.prune(2e10) == 0
    assert tree(root) == ["README", "games", "room.for-more"]


def make_blank(spool):
    """Make what the task process with our pid would have."""
    blank = spool.make_blank("made-ahead")
    blank.give_to(os.getpid())
    blank.close()


def test_the_first_attempt_of_a_task_uses_what_a_process_has_made_ahead(spool, root):
    make_blank(spool)
    inode = (root / "blanks" / str(os.getpid()) / "stdout").stat().st_ino

    attempt = spool.create("some-task", 1, FIELDS, os.getpid())

    assert attempt.read_task() == ("some-task", FIELDS)
    assert sorted(os.listdir(attempt.path)) == ["exit.new", "stderr", "stdout", "task"]
    assert os.stat(f"{attempt.path}/stdout").st_ino == inode
    assert os.listdir(root / "blanks") == []


@pytest.mark.parametrize("number", [1, 2])
def test_what_was_made_ahead_does_not_take_the_place_of_files_that_are_there(spool, root, number):
    spool.create("some-task", 1, {"parameters": "old"}).write_exit(RECORD)
    make_blank(spool)

    attempt = spool.create("some-task", number, {"parameters": "new"}, os.getpid())

    assert attempt.read_task() == ("some-task", {"parameters": "new"})
    assert attempt.read_exit() is None
    assert spool.attempt("some-task", 1).read_task() == ("some-task", {"parameters": "old"})


def test_files_made_ahead_that_nobody_has_used_can_be_removed(spool, root):
    make_blank(spool)
    spool.remove_blank(os.getpid())
    spool.remove_blank(os.getpid())

    assert os.listdir(root / "blanks") == []


def test_files_made_ahead_go_with_the_process_that_was_to_use_them(spool, root):
    make_blank(spool)
    (root / "blanks" / "999999999" / "1").mkdir(parents=True)
    (root / "blanks" / "999999999.new" / "1").mkdir(parents=True)

    assert spool.prune(2e9) == 0

    assert os.listdir(root / "blanks") == [str(os.getpid())]
