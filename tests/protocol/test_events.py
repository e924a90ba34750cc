"""Events: each transition leaves one in the history of its task and in the stream of its queue, and
is counted.
"""

from __future__ import annotations

import json
import threading
import time

import pytest
from click.testing import CliRunner
from running import until
from transactions import protocol

from blueque.cli.main import blueque
from blueque.cli.options import Invocation
from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.model.encoding import day_of
from blueque.model.retry import Retry
from blueque.protocol.ends import End
from blueque.protocol.recover import Loss

Q, NODE = "video", "host_1"
DAY = 86400.0
TODAY = time.time() // DAY * DAY  # the numbers of a day long past are gone at once


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


def stats(cli):
    found = cli.hgetall(keys.stats(Q, day_of(TODAY)))
    return {name: float(text) for name, text in found.items()}


def test_the_history_of_a_task_begins_with_its_birth_and_ends_with_its_end(client, redis, at_work):
    protocol.enqueue(redis, Q, "t1", "in", now=5.5)
    at_work()
    protocol.end(
        redis,
        AttemptRef(Q, "t1", "token", NODE),
        End.retry(30.0, {"last_error": "no disk", "last_error_type": "OSError"}),
        20.5,
    )
    protocol.enqueue_due(redis, Q, 31.5)
    at_work(reserved=40.0, started=41.0, token="next")
    protocol.end(redis, AttemptRef(Q, "t1", "next", NODE), End.complete("out"), 61.0)

    events = client.get_history("t1").events

    assert [(event.event, event.at, event.attempt) for event in events] == [
        ("enqueued", 5.5, 0),
        ("reserved", 10.5, 1),
        ("started", 11.5, 1),
        ("retried", 20.5, 1),
        ("due", 31.5, 1),
        ("reserved", 40.0, 2),
        ("started", 41.0, 2),
        ("complete", 61.0, 2),
    ]
    assert [event.facts.get("took") for event in events] == [
        None,
        5.0,
        None,
        9.0,
        None,
        10.0,
        None,
        20.0,
    ]
    assert events[3].facts == {
        "error": "no disk",
        "error_type": "OSError",
        "eta": 30.0,
        "took": 9.0,
    }
    assert {event.by for event in events if event.event != "due"} == {None, NODE}


def test_what_a_person_does_is_told_with_who_it_was(client, redis, at_work):
    protocol.enqueue(redis, Q, "t1", "in", now=5.5)
    at_work()
    protocol.cancel(redis, Q, "t1", "ann", "too late", 12.0)
    protocol.end(redis, AttemptRef(Q, "t1", "token", NODE), End.confirm_cancel(), 13.5)
    protocol.requeue(redis, Q, "t1", "mark", 14.0, "bob")
    protocol.enqueue(redis, Q, "t2", "in", now=14.0)
    protocol.place(redis, Q, "t1", 14.25, "ann", priority=7)
    protocol.place(redis, Q, "t2", 14.25, "ann", priority=7)
    protocol.place(redis, Q, "t2", 14.5, "bob", is_first=True)
    protocol.place(redis, Q, "t2", 14.75, "bob", is_first=True)
    protocol.place(redis, Q, "t1", 15.0, "bob", to="audio")

    *_, cancelling, cancelled, requeued, prioritized, moved = client.get_history("t1").events
    _, _, put_first = client.get_history("t2").events

    assert (cancelling.event, cancelling.by, cancelling.facts) == (
        "cancelling",
        "ann",
        {"reason": "too late"},
    )
    assert (cancelled.event, cancelled.by, cancelled.facts) == ("cancelled", NODE, {"took": 2.0})
    assert (requeued.event, requeued.by) == ("requeued", "bob")
    assert (prioritized.event, prioritized.by, prioritized.facts) == (
        "prioritized",
        "ann",
        {"priority": 7},
    )
    assert (put_first.event, put_first.at, put_first.by, put_first.facts) == (
        "put_first",
        14.5,
        "bob",
        {},
    )
    assert (moved.event, moved.by, moved.facts) == ("moved", "bob", {"from": Q})


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


def test_numbers_are_those_of_the_day_and_of_all_days(redis, cli, at_work):
    for number, (wait, run_) in enumerate([(4.0, 30.0), (90.0, 7200.5), (0.25, 61.0)]):
        start = TODAY + number * 100.0
        protocol.enqueue(redis, Q, "t1", "in", now=start)
        at_work(reserved=start + wait, started=start + wait)
        protocol.end(
            redis,
            AttemptRef(Q, "t1", "token", NODE),
            End.complete("out", finished=start + wait + run_),
            TODAY + 50_000.0,
        )
        protocol.delete(redis, Q, "t1")
    day, totals = stats(cli), cli.hgetall(keys.totals(Q))

    assert (day["reserved"], day["started"], day["complete"]) == (3, 3, 3)
    assert {name: day[name] for name in day if name.startswith("reserved_")} == {
        "reserved_s4": 1,
        "reserved_m1": 1,
        "reserved_s0": 1,
        "reserved_seconds": 94.25,
        "reserved_squares": 16.0 + 8100.0 + 0.0625,
    }
    assert {name for name in day if name.startswith("complete_")} == {
        "complete_s30",
        "complete_h2",
        "complete_m1",
        "complete_seconds",
        "complete_squares",
    }
    assert totals["deleted"] == "3"
    assert {name: float(totals[name]) for name in totals if name != "deleted"} == {
        name: count for name, count in day.items() if not name.endswith("_squares")
    }
    assert cli.expiretime(keys.stats(Q, day_of(TODAY))) == TODAY + 91 * DAY


def test_failures_are_counted_by_their_type(redis, cli, at_work):
    protocol.enqueue(redis, Q, "t1", "in", now=5.5)
    at_work(TODAY, TODAY)
    protocol.end(
        redis,
        AttemptRef(Q, "t1", "token", NODE),
        End.retry(None, {"last_error": "e", "last_error_type": "OSError"}),
        TODAY,
    )
    at_work(TODAY, TODAY, "next")
    protocol.end(
        redis, AttemptRef(Q, "t1", "next", NODE), End.fail("e", {"error_type": "OSError"}), TODAY
    )
    protocol.enqueue(redis, Q, "t2", "in", now=5.5)
    at_work(TODAY, TODAY, "third", "t2")
    protocol.fence(redis, Q, NODE, "i1", "0", 9.25)
    protocol.lose(redis, AttemptRef(Q, "t2", "third", NODE), "i1", Loss("gone"), Retry(), TODAY)

    found = stats(cli)

    assert (found["error:OSError"], found["error:lost"]) == (2, 1)
    assert (found["retried"], found["failed"], found["lost"]) == (1, 1, 1)


def test_a_task_that_was_scheduled_has_not_waited_before_its_time(client, redis, at_work):
    protocol.schedule(redis, Q, "t1", "in", 1000.0, now=5.5)
    protocol.enqueue_due(redis, Q, 1001.0)
    at_work(reserved=1004.0, started=1004.0)

    reserved = next(event for event in client.get_history("t1").events if event.event == "reserved")

    assert reserved.facts["took"] == 4.0


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


def test_a_call_that_is_repeated_tells_and_counts_once(client, redis, cli, at_work):
    protocol.enqueue(redis, Q, "t1", "in", now=5.5)
    at_work(TODAY, TODAY)
    for _ in range(3):
        protocol.end(redis, AttemptRef(Q, "t1", "token", NODE), End.complete("out"), TODAY)

    assert [event for event, _, _ in told(client)].count("complete") == 1
    assert stats(cli)["complete"] == 1
    assert cli.xlen(keys.events(Q)) == 3


def test_an_unknown_task_has_no_history(client):
    assert client.get_history("nobody") is None


def test_events_are_seen_as_they_happen(client, redis, cli, at_work):
    protocol.enqueue(redis, Q, "t1", "in", now=5.5)
    at_work()
    seen = []
    waiting = threading.Thread(target=lambda: seen.append(next(client.events(Q, "audio"))))
    waiting.start()
    until(lambda: cli.info("clients")["blocked_clients"] == 1)

    protocol.end(redis, AttemptRef(Q, "t1", "token", NODE), End.complete("out"), 20.5)
    waiting.join(10)

    assert [(event.queue, event.task, event.event, event.at) for event in seen] == [
        (Q, "t1", "complete", 20.5)
    ]


def test_one_goes_on_behind_the_last_event_that_was_seen(client, redis, at_work):
    protocol.enqueue(redis, Q, "t1", "in", now=5.5)
    at_work()
    events = client.events(Q, after={Q: "0-0"})
    first = next(events)
    again = client.events(Q, after={Q: first.place})

    assert (first.event, next(again).event) == ("reserved", "started")


def test_nothing_is_missed_of_a_queue_that_was_silent(client, redis, at_work):
    places = client.get_event_places(Q, "audio")
    protocol.enqueue(redis, Q, "t1", "in", now=5.5)
    at_work()

    assert next(client.events(Q, "audio", after=places)).event == "reserved"


def test_a_queue_tells_who_has_paused_resumed_and_limited_it(client, cli):
    queue = client.get_queue(Q)
    queue.pause("ann", "the disk is full")
    queue.pause("bob")  # it is paused
    queue.resume("bob")
    queue.resume("bob")  # it is not
    queue.set_max_concurrency(3, "eve")
    queue.set_max_concurrency(3, "ann")  # it is
    queue.set_max_concurrency(None, "eve")

    events = client.events(Q, after={Q: "0-0"})
    seen = [next(events) for _ in range(cli.xlen(keys.events(Q)))]

    assert [(event.task, event.event, event.by, event.facts) for event in seen] == [
        ("", "paused", "ann", {"reason": "the disk is full"}),
        ("", "resumed", "bob", {}),
        ("", "limited", "eve", {"max_concurrency": 3}),
        ("", "limited", "eve", {}),
    ]
    assert client.get_statistics(Q, days=2).total.complete == 0


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


def test_a_lost_task_that_comes_back_is_no_failure(client, redis, cli, at_work):
    protocol.enqueue(redis, Q, "t1", "in", now=5.5)
    at_work(TODAY, TODAY)
    protocol.fence(redis, Q, NODE, "i1", "0", 9.25)
    protocol.lose(redis, AttemptRef(Q, "t1", "token", NODE), "i1", Loss("gone"), None, TODAY + 9)
    before = client.get_statistics(Q, days=2).total  # two: this module was imported before midnight
    protocol.end(redis, AttemptRef(Q, "t1", "token", NODE), End.complete("out"), TODAY + 10)

    after = client.get_statistics(Q, days=2).total

    assert (before.failed, after.failed, after.complete) == (1, 0, 1)


def test_many_due_tasks_do_not_make_their_queue_forget(client, redis, cli, at_work):
    protocol.enqueue(redis, Q, "t0", "in", now=5.5)
    at_work(task="t0")
    for number in range(1, 6):
        protocol.schedule(redis, Q, f"t{number}", "in", 8.0, now=5.5)

    protocol.enqueue_due(redis, Q, TODAY)

    assert cli.xlen(keys.events(Q)) == 2
    assert [event.event for event in client.get_history("t3").events] == ["enqueued", "due"]
    assert (stats(cli)["due"], cli.hget(keys.task("t3"), "events")) == (5, "1")


@pytest.mark.parametrize(
    ("given", "counted"),
    [
        ("ValueError", "ValueError"),
        ("a.b-c_1", "a.b-c_1"),
        ("no disk", "other"),
        ("", "other"),
        ("x" * 101, "other"),
        ("1", "other"),
    ],
)
def test_only_what_looks_like_a_type_has_a_number_of_its_own(redis, cli, at_work, given, counted):
    protocol.enqueue(redis, Q, "t1", "in", now=5.5)
    at_work(TODAY, TODAY)

    protocol.end(
        redis, AttemptRef(Q, "t1", "token", NODE), End.fail("e", {"error_type": given}), TODAY
    )

    assert [name for name in stats(cli) if name.startswith("error:")] == [f"error:{counted}"]


def test_blueque_history_tells_it_in_a_table(run, redis, at_work):
    protocol.enqueue(redis, Q, "t1", "in", now=5.5)
    at_work()
    protocol.end(
        redis,
        AttemptRef(Q, "t1", "token", NODE),
        End.fail("ValueError: no", {"error_type": "ValueError"}),
        3700.0,
    )

    done = run("history", "t1", "--utc")

    assert (done.returncode, done.stderr) == (0, "")
    head, *rows = done.stdout.splitlines()
    assert head.split() == ["WHEN", "AFTER", "ATTEMPT", "EVENT", "BY", "FACTS"]
    assert [" ".join(row.split()) for row in rows] == [
        "1970-01-01 00:00:05 UTC enqueued",
        "1970-01-01 00:00:10 UTC 5.0 s 1 reserved host_1 waited 5.0 s",
        "1970-01-01 00:00:11 UTC 1.0 s 1 started host_1 pid 77",
        "1970-01-01 01:01:40 UTC 1 h 1 m 1 failed host_1 ran 1 h 1 m, ValueError: no",
    ]


def test_a_hand_back_is_called_so_and_as_json_by_its_name(redis, url, at_work):
    protocol.enqueue(redis, Q, "t1", "in", now=5.5)
    at_work()
    protocol.end(redis, AttemptRef(Q, "t1", "token", NODE), End.release(reason="drain"), 12.5)

    def shown(*arguments):
        return (
            CliRunner()
            .invoke(blueque, ["history", "t1", *arguments], obj=Invocation(url=url))
            .stdout
        )

    assert "1.0 s  " in shown() and "  handed back  " in shown() and "released" not in shown()
    assert shown().splitlines()[-1].endswith("  its listener drains")
    told = json.loads(shown("--json"))["items"][-1]
    assert (told["event"], told["facts"]) == ("released", {"reason": "drain"})


@pytest.fixture
def lost(redis, at_work):
    """A task whose listener, of a host with a long name, was lost with it; return the error."""
    node = f"{'gpu-1.' * 30}example.com_4021"
    error = (
        f"lost: listener {node}, last seen 2026-11-22 12:00:00 UTC, is dead, and nobody knows how far process 77 there had "
        "come; to run it again: blueque requeue 4f1e2c80-c4b0-4d22-8b57-a35691414c3d"
    )
    protocol.enqueue(redis, Q, "t1", "in", now=5.5)
    at_work(reserved=10.5, started=10.5)
    protocol.fence(redis, Q, NODE, "i1", "0", 9.25)
    protocol.lose(redis, AttemptRef(Q, "t1", "token", NODE), "i1", Loss(error), None, now=70.5)
    return error


def test_the_history_of_a_lost_task_is_whole_and_in_words(run, client, lost):
    *_, failed = client.get_history("t1").events
    assert failed.facts["error"] == lost

    last = run("history", "t1").stdout.splitlines()[-1]

    assert last.endswith(f"  began 1 m before, {lost}")


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

    assert (found["blueque"], found["kind"], found["task"], found["missing"]) == (
        2,
        "history",
        "t1",
        0,
    )
    assert [item["event"] for item in found["items"]] == ["enqueued", "reserved", "started"]
    assert found["items"][1]["facts"] == {"took": 5.0}
    assert run("history", "nobody").returncode == 3
    assert run("history").returncode == 2


def test_a_day_is_one_in_utc():
    assert (day_of(0.0), day_of(1795305599.9), day_of(1795305600.0)) == (
        "1970-01-01",
        "2026-11-21",
        "2026-11-22",
    )
