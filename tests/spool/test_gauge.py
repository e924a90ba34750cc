"""Gauge: how far a task is, told by one process and read by another."""

from __future__ import annotations

import multiprocessing
import os
import time

import pytest
from running import PATIENCE

from blueque.spool import progress_file
from blueque.spool.progress_file import MAX_WORDS, Gauge
from blueque.task_process.running_task import RunningTask


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ((0.4, None, "", ""), "0.4"),
        ((450, 1500, "frames", "encoding"), "450/1500 frames encoding"),
        ((None, None, "", "waiting for\na  licence"), "waiting for a licence"),
        ((12, None, "files", ""), "12 files"),
        ((0, 0, "", ""), "0/0"),
        ((float("nan"), 7, "", "x"), "x"),
    ],
)
def test_what_is_told_is_what_is_read(tmp_path, told, shown):
    Gauge(str(tmp_path)).tell(*told)

    assert str(progress_file.read(str(tmp_path))) == shown


def test_a_text_is_told_as_a_line_of_200_characters_without_what_controls_a_terminal(tmp_path):
    Gauge(str(tmp_path)).tell(
        0.5, None, "", "\x1b[31mred\x1b[0m\x07 \x1b]0;title\x07and\x9b2J\tthen\r\nblue" + "é" * 300
    )
    assert (
        str(progress_file.read(str(tmp_path))) == "0.5 " + ("red and then blue" + "é" * 300)[:200]
    )


def test_there_is_nothing_before_anything_is_told(tmp_path):
    assert progress_file.read(str(tmp_path)) is None
    Gauge(str(tmp_path))
    assert progress_file.read(str(tmp_path)) is None


@pytest.mark.parametrize("size", [0, 1, 8, 511])
def test_a_file_that_is_not_whole_tells_nothing(tmp_path, size):
    Gauge(str(tmp_path)).tell(1, 2, "frames", "encoding")
    os.truncate(tmp_path / progress_file.NAME, size)

    assert progress_file.read(str(tmp_path)) is None


def test_what_another_program_has_written_controls_no_terminal(tmp_path):
    Gauge(str(tmp_path)).tell(1, 2, "frames", "encoding")
    content = (tmp_path / progress_file.NAME).read_bytes()
    (tmp_path / progress_file.NAME).write_bytes(content.replace(b"encoding", b"\x1b[2Jcode"))

    assert str(progress_file.read(str(tmp_path))) == "1/2 frames code"


def test_shorter_words_leave_nothing_of_longer_ones_and_long_ones_are_cut(tmp_path):
    told = Gauge(str(tmp_path))
    told.tell(1, None, "", "é" * 1000)
    assert len(progress_file.read(str(tmp_path)).text.encode()) <= MAX_WORDS + 2
    told.tell(2, None, "", "short")
    assert progress_file.read(str(tmp_path))[1:] == (2.0, None, "", "short")


def test_each_telling_is_another_also_after_a_new_beginning(tmp_path):
    counts = []
    for _ in range(2):
        told = Gauge(str(tmp_path))
        for _ in range(2):
            told.tell(1, 2, "", "")
            counts.append(progress_file.read(str(tmp_path)).number)
    assert len(set(counts)) == 4 == len(counts) and counts == sorted(counts)


def test_children_of_the_task_tell_each_another_thing(tmp_path):
    told = Gauge(str(tmp_path))
    told.tell(0, 100, "", "parent")
    context, seen = multiprocessing.get_context("fork"), [progress_file.read(str(tmp_path))]
    for number in (1, 1, 2):
        child = context.Process(target=told.tell, args=(number, 100, "", "a child"))
        child.start()
        child.join()
        seen.append(progress_file.read(str(tmp_path)))
    told.tell(2, 100, "", "parent")
    seen.append(progress_file.read(str(tmp_path)))

    assert len({one.number for one in seen}) == 5
    assert [one.text for one in seen] == ["parent", *["a child"] * 3, "parent"]


def _tell(directory, ready, end):
    told = Gauge(directory)
    number = 0
    while not end.is_set():
        number += 1
        told.tell(number, number, "", f"{number} " * 50)
        if number == 1:
            ready.set()


def test_whoever_reads_while_it_is_told_sees_one_telling_and_not_parts_of_two(tmp_path):
    context = multiprocessing.get_context("fork")
    ready, end = context.Event(), context.Event()
    process = context.Process(target=_tell, args=(str(tmp_path), ready, end))
    process.start()
    try:
        assert ready.wait(10)
        seen = {}
        deadline = time.monotonic() + PATIENCE
        while len(seen) < 200:  # without the pauses of `until`, each of which is many tellings long
            if (told := progress_file.read(str(tmp_path))) is not None:
                seen[told.number] = told
            assert time.monotonic() < deadline, f"only {len(seen)} different tellings"
    finally:
        end.set()
        process.join()
    for told in seen.values():
        assert told.done == told.total
        assert {int(word) for word in told.text.split()[:-1]} <= {int(told.done)}


def test_progress_never_fails(tmp_path):
    task = RunningTask("t", {}, str(tmp_path / "gone"))
    task.progress(0.5)
    (tmp_path / "gone").mkdir()
    for wrong in ("half", None, [], 10**400):
        task.progress(wrong, wrong, text=wrong)
    task.progress(0.5, text="half")
    assert str(progress_file.read(str(tmp_path / "gone"))) == "0.5 half"


def test_room_on_the_disk_is_taken_when_it_is_made_so_that_a_full_disk_cannot_end_the_task(
    tmp_path,
):
    Gauge(str(tmp_path))

    assert os.stat(tmp_path / progress_file.NAME).st_blocks > 0
