"""The log of listener and scheduler: text, JSON, and as the journal of systemd takes it."""

from __future__ import annotations

import datetime
import json
import logging
import re
import time

import pytest

from blueque.cli.listener import command as listener
from blueque.cli.scheduler import command as scheduler
from blueque.model.units import LOG_FORMATS, LOG_LEVELS
from blueque.system import log_format

JOURNAL = """
    import logging, os, sys

    status = os.fstat(2)
    os.environ["JOURNAL_STREAM"] = f"{status.st_dev}:{status.st_ino + %d}"
    from blueque.system.log_format import log_to_stderr
    log_to_stderr(%r)
    log = logging.getLogger("blueque")
    log.info("start task=%%s", "a\\nb")
    log.warning("late")
    try:
        raise ValueError("no")
    except ValueError:
        log.exception("broken")
"""


def written(programs, offset, form="text"):
    program = programs.script(JOURNAL % (offset, form))
    assert program.wait() == 0
    return program.log.splitlines()


def test_the_journal_gets_priorities_and_no_times(programs):
    lines = written(programs, 0)
    assert lines[:3] == ["<6>start task=a\\x0ab", "<4>late", "<3>broken"]
    assert lines[-1] == "<3>ValueError: no"
    assert all(line.startswith("<3>") for line in lines[2:])


def test_what_is_not_read_by_the_journal_has_local_times_with_date_and_offset(
    programs, monkeypatch
):
    monkeypatch.setenv("TZ", "IST-5:30")
    before = int(time.time())
    lines = written(programs, 1)
    at, _, message = lines[0].partition(" ")
    assert message == "start task=a\\x0ab"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+05:30", at)
    assert before <= datetime.datetime.fromisoformat(at).timestamp() <= time.time()


def test_json_is_a_whole_object_in_every_line_with_a_traceback_too(programs):
    first, second, third = map(json.loads, written(programs, 0, "json"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", first.pop("at"))
    assert first == {
        "level": "info",
        "message": "start task=a\nb",
        "event": "start",
        "task": "a\nb",
    }
    assert (second["level"], second["message"]) == ("warning", "late")
    assert (third["level"], third["traceback"].splitlines()[-1]) == ("error", "ValueError: no")


@pytest.mark.parametrize(
    ("template", "values", "fields"),
    [
        (
            "prune spool=%s attempts=%d bytes=%d",
            ("/s", 3, 4),
            {"event": "prune", "spool": "/s", "attempts": 3, "bytes": 4},
        ),
        ("task=%s pid=%d after %g s, 90%% of %s", ("t", 7, 1.5, "x"), {"task": "t", "pid": 7}),
        ("fence node=%s: %s", ("n", OSError("gone")), {"event": "fence", "node": "n"}),
        ("wake_waiting lock=%r: %s", ("l", "x"), {"event": "wake_waiting", "lock": "l"}),
        ("at=%s level=%s", ("never", "none"), {}),
        ("nothing", (), {}),
    ],
)
def test_fields_are_those_of_the_text(template, values, fields):
    record = logging.LogRecord("blueque", logging.INFO, "", 0, template, values, None)
    item = json.loads(log_format._Json().format(record))
    assert item.pop("message") == template % values
    assert (item.pop("level"), item.pop("at")[-1]) == ("info", "Z")
    assert item == fields


def test_the_whole_log_of_a_listener_and_a_scheduler_is_json_when_asked_for(programs):
    programs.write("def run(task):\n    return 1\n")
    task_id = programs.client.get_queue("work").enqueue("")
    json_too = ("--log-format", "json")
    listening = programs.listener("work:run", "--until-empty", *json_too, is_awaited=False)
    scheduling = programs.scheduler(environ={"BLUEQUE_LOG_FORMAT": "json"})
    scheduling.says("blueque-scheduler")
    assert listening.wait() == 0
    items = [
        json.loads(line) for program in (listening, scheduling) for line in program.log.splitlines()
    ]
    assert ("complete", task_id) in [(item.get("event"), item.get("task")) for item in items]


def test_both_programs_offer_the_formats_that_there_are():
    for command in (listener, scheduler):
        offered = {one.name: one.metavar for one in command.params}
        assert offered["log_format"] == f"[{'|'.join(LOG_FORMATS)}]"
        assert offered["log_level"] == f"[{'|'.join(LOG_LEVELS)}]"


def test_a_log_level_leaves_out_what_is_less_important(programs):
    programs.write("def run(task):\n    return 1\n")
    programs.client.get_queue("work").enqueue("")
    work = ("work", "--handler", "work:run", "--until-empty")
    assert programs.run_to_end(*work, "--log-level", "warning") == (0, "")

    programs.client.get_queue("work").enqueue("")
    code, log = programs.run_to_end(*work, environ={"BLUEQUE_LOG_LEVEL": "info"})
    assert code == 0 and "complete task=" in log
