"""Notes of a task: `task.note`, `blueque note`, and lines that a program writes."""

from __future__ import annotations

import os
import signal
import sys

import pytest
from handlers import ended
from running import Programs, until

from blueque.spool.attempt import MAX_NOTES, Attempt
from blueque.system.embedded_redis import running_server

WORK = """
    import time
    from pathlib import Path

    def run(task):
        first = task.note("took the \\x1b[31mold\\nmodel")
        while not Path("go").exists():
            time.sleep(0.005)
        return [first, *(task.note(f"step {number}") for number in range(1, 25))]
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    with (
        running_server() as server,
        Programs(server.url, tmp_path_factory.mktemp("notes")) as programs,
    ):
        programs.write(WORK)
        assert programs.client.get_inspector().queues() == []  # connected before the first test
        yield programs


def notes(programs, task_id):
    found = programs.client.get_history(task_id)
    return [event.facts["text"] for event in found.events if event.event == "noted"]


def test_what_a_task_notes_is_in_its_history_once_in_order_and_within_bounds_whoever_watches_it(
    programs,
):
    listener = programs.listener("work:run")
    task_id = programs.client.get_queue("work").enqueue("")
    until(lambda: notes(programs, task_id) == ["took the old model"], what="the first note")
    os.kill(listener.slots()[0], signal.SIGKILL)
    listener.says("adopt task=")
    (programs.directory / "go").touch()

    task = ended(programs.client, task_id)

    steps = [f"step {number}" for number in range(1, MAX_NOTES)]
    assert notes(programs, task_id) == ["took the old model", *steps]
    assert task.result == [True] * MAX_NOTES + [False] * 5
    assert listener.stop() == 0


def test_a_program_notes_with_a_command_or_in_a_file(programs):
    listener = programs.listener("--exec", "sh", queue="shell")
    command = f"{sys.executable} -m blueque.cli.main note took the old -- model"
    script = f'{command}; printf "of 2019\\n\\nno end" >>"$BLUEQUE_TASK_DIR/notes"'

    task = ended(programs.client, programs.client.get_queue("shell").enqueue(script))

    assert task.status == "complete", task.error
    assert notes(programs, task.id) == ["took the old model", "of 2019", "no end"]
    assert listener.stop() == 0


def test_a_line_without_an_end_is_no_note_before_the_end_and_a_time_that_makes_no_sense_is_text(
    tmp_path,
):
    attempt = Attempt(str(tmp_path), "")
    assert attempt.write_note("first", 12.5)
    with open(tmp_path / "notes", "a") as file:
        file.write("-5\tsecond\nthi")

    assert attempt.read_notes(is_over=False) == [("first", 12.5), ("-5 second", None)]
    assert attempt.read_notes(is_over=True)[2:] == [("thi", None)]
    assert not attempt.write_note(" \n", 13.0)
