"""Attempt: what the files of one attempt tell of its beginning, its progress and its end. See also
test_spool.
"""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from blueque.spool.attempt import Attempt
from blueque.text.format import MAX_LINE

ENDING = {"code": -9, "cpu_seconds": 0.25, "max_rss_bytes": 4096}


@pytest.fixture
def attempt(tmp_path):
    (tmp_path / "attempt").mkdir()
    (tmp_path / "attempt" / "task").write_text(
        '{"id": "some-task", "path": "there", "room": "room", "fields": {}}'
    )
    return Attempt(str(tmp_path / "attempt"), str(tmp_path / "room"))


def write(attempt, name, content):
    Path(attempt.path, name).write_bytes(content)


def test_the_beginning_is_told_by_the_monotonic_clock(attempt):
    assert attempt.began_at() is None and not attempt.has_begun()
    before = time.monotonic()
    attempt.begin()
    assert attempt.read_task() == ("some-task", {})
    assert attempt.has_begun()
    assert before - 0.001 <= attempt.began_at() <= time.monotonic() + 0.001


@pytest.mark.parametrize("content", [b"", b"soon"])
def test_a_beginning_whose_time_could_not_be_written_is_one_all_the_same(attempt, content):
    write(attempt, "task", b"{}\n" + content)
    assert attempt.has_begun() and attempt.began_at() is None


@pytest.mark.parametrize("size", [10, 100, 10_000])
def test_an_attempt_has_begun_whatever_the_task_writes_behind_that(attempt, size):
    attempt.begin()
    with open(Path(attempt.path, "task"), "ab") as file:
        file.write(b"x" * size)

    assert attempt.has_begun() and attempt.began_at() is None


@pytest.mark.parametrize(
    ("name", "content", "has_ended"),
    [
        ("exit", b"", True),
        ("exit.new", b"{}", True),
        ("exit.new", b"", False),
        ("status", b"", True),
        ("reported", b"", False),
        ("status.new", b"", False),
    ],
)
def test_word_of_an_end_is_a_record_or_what_the_reaper_saw(attempt, name, content, has_ended):
    write(attempt, name, content)
    assert attempt.has_ended() is has_ended


def test_what_the_reaper_saw_comes_back_as_it_was_noted(attempt):
    assert attempt.read_ending() is None
    attempt.write_ending(ENDING)
    assert attempt.read_ending() == ENDING
    assert sorted(os.listdir(attempt.path)) == ["status", "task"]


def test_a_full_disk_leaves_no_half_of_it(attempt, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", refuse)
    attempt.write_ending(ENDING)
    assert attempt.read_ending() is None and os.listdir(attempt.path) == ["task"]


def test_what_has_lost_its_files_may_have_begun(attempt):
    os.unlink(f"{attempt.path}/task")
    assert attempt.has_begun() and attempt.began_at() is None


def test_a_record_that_cannot_be_read_now_is_not_taken_for_none(attempt, monkeypatch):
    attempt.write_exit({"status": "complete"})

    def refuse(*_):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse)
        with pytest.raises(OSError, match="Too many open files"):
            attempt.read_exit()
        assert attempt.has_begun() and not attempt.has_exit()
    assert attempt.has_exit()


@pytest.mark.parametrize("content", [b"", b'{"code": ', b"[]", b"\xff"])
def test_what_is_not_whole_is_no_word_of_an_end(attempt, content):
    write(attempt, "status", content)
    assert attempt.read_ending() is None


def test_there_is_no_progress_before_the_task_has_told_of_any(attempt):
    assert (attempt.told(), attempt.wrote_progress(), attempt.read_progress()) == (None, None, "")


def test_progress_is_the_task_s_own_words_and_changes_its_time(attempt):
    write(attempt, "progress", b"50 %\n")
    os.utime(f"{attempt.path}/progress", (5, 5))
    before = attempt.wrote_progress()
    assert before is not None and attempt.read_progress() == "50 %"
    write(attempt, "progress", b"60 %\n")
    assert attempt.wrote_progress() != before and attempt.read_progress() == "60 %"


def test_only_the_beginning_of_a_long_progress_is_read_and_what_is_no_text_is_replaced(attempt):
    write(attempt, "progress", b"\xff" + b"x" * 5000)
    assert attempt.read_progress() == "\ufffd" + "x" * (MAX_LINE - 1)


def test_an_open_attempt_is_linked_from_its_process_until_its_end_is_reported(attempt, tmp_path):
    (tmp_path / "open").mkdir()
    attempt.open(str(tmp_path / "open"), 77, 5)
    assert os.path.samefile(tmp_path / "open" / "77-5", f"{attempt.path}/task")
    attempt.mark_reported()
    assert os.listdir(tmp_path / "open") == [] and sorted(os.listdir(attempt.path)) == [
        "reported",
        "task",
    ]
    attempt.mark_reported()


def test_the_link_of_a_former_boot_gives_way(attempt, tmp_path):
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "77-5").write_text("of another attempt")
    attempt.open(str(tmp_path / "open"), 77, 5)
    assert os.path.samefile(tmp_path / "open" / "77-5", f"{attempt.path}/task")


def test_an_attempt_that_was_never_opened_is_reported_all_the_same(attempt):
    attempt.mark_reported()
    assert sorted(os.listdir(attempt.path)) == ["reported", "task"]
