"""Events: each transition leaves one in the history of its task and in the stream of its queue, and
is counted.
"""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from transactions import protocol

from blueque.cli.main import blueque
from blueque.cli.options import Invocation
from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.protocol.ends import End
from blueque.protocol.recover import Loss

Q, NODE = "video", "host_1"


@pytest.fixture
def at_work(redis):
    """Register a listener, and let it take and start the task t1 at these times."""
    protocol.register(redis, Q, NODE, "i1", {}, now=0.5)

    def at_work(reserved=10.5, started=11.5, token="token", task="t1"):
        protocol.pop(redis, Q, NODE, "i1")
        protocol.reserve(redis, AttemptRef(Q, task, token, NODE), "i1", reserved)
        protocol.start(redis, AttemptRef(Q, task, token, NODE), 77, started)

    return at_work


def told(client, task="t1"):
    return [(event.event, event.at, event.attempt) for event in client.get_history(task).events]


def test_of_many_events_the_first_and_the_last_are_kept_and_the_gap_is_told(
    client, redis, cli, at_work
):
    protocol.enqueue(redis, Q, "t1", "in", now=5.5)
    for number in range(50):
        at_work(token=f"token{number}", reserved=10.0 + number, started=10.25 + number)
        protocol.end(
            redis, AttemptRef(Q, "t1", f"token{number}", NODE), End.release(), 10.5 + number
        )

    history = client.get_history("t1")

    assert (history.missing, history.early) == (50, 21)
    assert cli.llen(keys.history("t1")) == 20
    assert cli.llen(keys.recent("t1")) == 80
    assert [event.attempt for event in history.events][:4] == [0, 1, 1, 1]
    assert history.events[-1].event == "released"
    assert history.events[-1].attempt == 50


@pytest.mark.parametrize("field", ["created", "eta", "queued", "started"])
@pytest.mark.parametrize("text", ["nan", "inf", "-1e308", "soon", ""])
def test_times_of_another_program_break_nothing(redis, cli, at_work, field, text):
    protocol.enqueue(redis, Q, "t1", "in", now=5.5)
    if field != "started":
        cli.hset(keys.task("t1"), mapping={field: text, "attempt": "0"})
    at_work()
    if field == "started":
        cli.hset(keys.task("t1"), field, text)

    protocol.end(redis, AttemptRef(Q, "t1", "token", NODE), End.complete("out"), 20.5)

    assert cli.hget(keys.task("t1"), "status") == "complete"
    assert cli.llen(keys.history("t1")) == 3


def test_an_unknown_task_has_no_history(client):
    assert client.get_history("nobody") is None


def test_nothing_is_missed_of_a_queue_that_was_silent(client, redis, at_work):
    places = client.get_event_places(Q, "audio")
    protocol.enqueue(redis, Q, "t1", "in", now=5.5)
    at_work()

    assert next(client.events(Q, "audio", after=places)).event == "reserved"


def test_a_queue_tells_who_has_deleted_a_task(client, redis, cli):
    protocol.enqueue(redis, Q, "t1", "in", 5.5)
    protocol.cancel(redis, Q, "t1", "ann", None, 6.5)
    task, queue = client.get_task("t1"), client.get_queue(Q)
    queue.delete_task(task, by="eve")
    queue.delete_task(task)  # it is gone

    events = client.events(Q, after={Q: "0-0"})
    *_, told = (next(events) for _ in range(cli.xlen(keys.events(Q))))

    assert (told.task, told.event, told.by) == ("t1", "deleted", "eve")
    assert told.facts == {"status": "cancelled"}


@pytest.mark.parametrize(
    ("reason", "words"),
    [("drain", "its listener drains"), ("no_process", "no process could be started for it")],
)
def test_a_hand_back_is_called_so_and_as_json_by_its_name(redis, url, at_work, reason, words):
    protocol.enqueue(redis, Q, "t1", "in", now=5.5)
    at_work()
    protocol.end(redis, AttemptRef(Q, "t1", "token", NODE), End.release(reason=reason), 12.5)

    def shown(*arguments):
        return (
            CliRunner()
            .invoke(blueque, ["history", "t1", *arguments], obj=Invocation(url=url))
            .stdout
        )

    assert "1.0 s  " in shown() and "  handed back  " in shown() and "released" not in shown()
    assert shown().splitlines()[-1].endswith(f"  {words}")
    told = json.loads(shown("--json"))["items"][-1]
    assert (told["event"], told["facts"]) == ("released", {"reason": reason})


@pytest.fixture
def lost(redis, at_work):
    """A task whose listener, of a host with a long name, was lost with it; return the error."""
    node = f"{'gpu-1.' * 30}example.com_4021"
    error = (
        f"lost: listener {node}, last seen 2026-11-22 12:00:00 UTC, is dead, and how far process 77 got "
        "there is not known; to run it again: blueque requeue 4f1e2c80-c4b0-4d22-8b57-a35691414c3d"
    )
    protocol.enqueue(redis, Q, "t1", "in", now=5.5)
    at_work(reserved=10.5, started=10.5)
    protocol.fence(redis, Q, NODE, "i1", "0", 9.25)
    protocol.lose(redis, AttemptRef(Q, "t1", "token", NODE), "i1", Loss(error), None, now=70.5)
    return error


@pytest.mark.parametrize("columns", [80, 120])
def test_on_a_terminal_what_is_too_long_for_its_column_stands_below_its_row(
    url, lost, monkeypatch, columns
):
    monkeypatch.setattr("blueque.cli.printing.is_terminal", lambda: True)
    monkeypatch.setattr("blueque.cli.printing.terminal_width", lambda: columns)

    lines = (
        CliRunner().invoke(blueque, ["history", "t1"], obj=Invocation(url=url)).stdout.splitlines()
    )

    row = next(number for number, line in enumerate(lines) if " failed" in line)
    told = "".join(line.strip() for line in lines[row + 1 :])
    assert told.replace(" ", "") == f"began 1 m before, {lost}".replace(" ", "")
    assert all(len(line) <= columns for line in lines)
    assert lines[-1].endswith("blueque requeue 4f1e2c80-c4b0-4d22-8b57-a35691414c3d")


def test_blueque_history_as_json(run, redis, at_work):
    protocol.enqueue(redis, Q, "t1", "in", now=5.5)
    at_work()

    found = json.loads(run("history", "t1", "--json").stdout)

    assert (found["blueque"], found["kind"], found["task"]) == (2, "history", "t1")
    assert found["missing"] == 0
    assert [item["event"] for item in found["items"]] == ["enqueued", "reserved", "started"]
    assert found["items"][1]["facts"] == {"took": 5.0}
    assert run("history", "nobody").returncode == 3
    assert run("history").returncode == 2
