"""Recurring tasks, against a real Redis. Its clock decides, so the tests move the records back."""

from __future__ import annotations

import contextlib
import json
import time

import pytest
from faults import Fault
from transactions import protocol

import blueque
from blueque import InvalidInput, NoSuchSchedule, WrongSchedule
from blueque.model import keys
from blueque.model.ids import id_of_occurrence
from blueque.model.units import Timing
from blueque.producer import schedules as schedules_of_people
from blueque.producer.firing import Firing
from blueque.producer.schedule_file import SchedulesOfFile
from blueque.protocol.occurrences import plan_of
from blueque.protocol.schedules import Define, Pause, Resume
from blueque.queries import history, schedules

HOUR = 3600
# In what a change of a schedule writes. A new connection is tried with an empty MULTI first.
CHANGE = b'"event":"schedule_'


@pytest.fixture
def hourly(client):
    """Return what makes a schedule of every hour."""

    def make(name="hourly", **options):
        given = {"queue": "reports", "every": "1h", "parameters": {"kind": "hourly"}}
        return client.set_schedule(name, **{**given, **options})

    return make


def miss(cli, name, hours, late=5):
    """Put a schedule back: the last of so many undecided planned times was a moment ago. Return them."""
    seconds, _ = cli.time()
    begin = int(seconds) - late - (hours - 1) * HOUR
    times = [begin + HOUR * number for number in range(hours)]
    record = {"start": begin, "last": begin - 1, "planned": begin, "at": begin}
    cli.hset(keys.schedule(name), mapping=record)
    cli.zadd(keys.SCHEDULES, {name: begin})
    return times


def fire(client):
    """Do what a scheduler does until nothing is due."""
    firing = Firing(client.connections)
    while firing.step() == 0.0:
        pass


def tasks(client, queue="reports"):
    (ids,) = client.connections.read(("ZRANGE", keys.tasks(queue), 0, -1))
    return [client.get_task(task) for task in ids]


def start_one(client, queue="reports"):
    listener = client.get_listener(queue)
    listener.register(Timing())
    task = listener.take()
    processor = client.get_processor(task)
    processor.start(77)
    return processor, task


def what(client, name="hourly"):
    """Return what came of the planned times, the oldest first."""
    found = client.get_schedule(name).history()
    return [(each.what, each.why, each.times or 1) for each in reversed(found)]


def numbers(client, name="hourly"):
    record = client.get_schedule(name).record
    return tuple(record.get(field, 0) for field in ("made", "skipped", "missed"))


# What comes


def test_any_number_of_schedulers_make_one_task(client, cli, hourly, other):
    hourly()
    (planned,) = miss(cli, "hourly", 1)
    record = schedules.records(client.connections, ["hourly"])[0]
    plans = [plan_of("hourly", record, planned + 5) for _ in range(2)]

    first = protocol.fire(client.connections, "hourly", plans[0])
    second = protocol.fire(other, "hourly", plans[1])

    assert (first.what, second) == ("made", None)
    assert len(tasks(client)) == 1 and what(client) == [("made", None, 1)]


@pytest.mark.parametrize("fault", [Fault.CUT_BEFORE, Fault.CUT_AFTER])
def test_a_lost_answer_makes_no_second_task(client, cli, hourly, proxy, fault):
    hourly()
    miss(cli, "hourly", 1)
    away = blueque.Client(proxy.url, patience=5)
    proxy.arm(fault, having=b"blueque_occurrences_")

    Firing(away.connections).step()

    assert len(tasks(client)) == 1 and what(client) == [("made", None, 1)]
    away.close()


def test_a_schedule_that_is_removed_and_made_again_does_not_run_the_same_time_twice(
    client, cli, hourly
):
    hourly()
    miss(cli, "hourly", 1)
    fire(client)
    client.get_schedule("hourly").delete()
    hourly()
    miss(cli, "hourly", 1)
    (task,) = tasks(client)
    old = int(task.planned.timestamp())
    cli.hset(
        keys.schedule("hourly"), mapping={"start": old, "last": old - 1, "planned": old, "at": old}
    )

    fire(client)

    assert [each.id for each in tasks(client)] == [task.id]
    assert what(client) == [("made", None, 1)]


def test_a_schedule_that_cannot_be_read_keeps_no_other_waiting(client, cli, hourly, caplog):
    for number in range(3):
        hourly(f"bad {number}")
        miss(cli, f"bad {number}", 2)
    cli.hset(keys.schedule("bad 0"), "overlap", "as in 2030")
    cli.hset(keys.schedule("bad 1"), "cron", "x")
    cli.delete(keys.schedule("bad 2"))
    cli.set(keys.schedule("bad 2"), "no hash")
    hourly("good")
    miss(cli, "good", 1)

    firing = Firing(client.connections)
    for _ in range(5):
        firing.step()

    assert [task.schedule for task in tasks(client)] == ["good"]
    assert sum("skipping schedule" in record.message for record in caplog.records) == 3


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("cron", "61 * * * *"),
        ("every", "0"),
        ("every", "-3600"),
        ("options", '{"needs": [1]}'),
        ("options", '{"priority": {}}'),
    ],
)
def test_what_no_version_has_written_ends_no_scheduler(client, cli, hourly, caplog, field, value):
    hourly()
    miss(cli, "hourly", 1)
    cli.hset(keys.schedule("hourly"), field, value)
    if field == "cron":
        cli.hdel(keys.schedule("hourly"), "every")

    fire(client)

    assert tasks(client) == []
    assert "skipping schedule 'hourly'" in caplog.text


def test_a_listener_makes_the_tasks_of_its_own_queues(client, cli, hourly):
    for number in range(150):
        hourly(f"other {number}", queue="other")
        miss(cli, f"other {number}", 1, late=10)
    hourly("mine")
    miss(cli, "mine", 1)
    firing = Firing(client.connections, ["reports"])
    cli.config_resetstat()

    while firing.step() == 0.0:
        pass

    # The records of other queues may be large: they are not read.
    assert cli.info("commandstats")["cmdstat_hgetall"]["calls"] == 2
    assert [task.schedule for task in tasks(client)] == ["mine"]
    assert tasks(client, "other") == []


# What was missed


@pytest.mark.parametrize(
    ("options", "made", "missed"),
    [
        ({}, [3], [("catch_up", 3)]),
        ({"catch_up": "none"}, [3], [("catch_up", 3)]),
        ({"catch_up": "all", "overlap": "allow"}, [0, 1, 2, 3], []),
        ({"window": "90m"}, [3], [("window", 2), ("catch_up", 1)]),
        ({"window": "90m", "catch_up": "all", "overlap": "allow"}, [2, 3], [("window", 2)]),
        ({"window": 0}, [3], [("window", 3)]),
    ],
)
def test_what_was_missed_is_caught_up_as_wanted(client, cli, hourly, options, made, missed):
    hourly(**options)
    times = miss(cli, "hourly", 4)

    fire(client)

    assert {task.id for task in tasks(client)} == {
        id_of_occurrence("hourly", times[place]) for place in made
    }
    found = [(why, count) for name, why, count in what(client) if name == "missed"]
    assert found == missed
    assert numbers(client) == (len(made), 0, sum(count for _, count in missed))
    assert client.get_schedule("hourly").record["last"] == times[-1]


def test_catch_up_none_takes_nothing_that_is_a_minute_late(client, cli, hourly):
    hourly(catch_up="none")
    miss(cli, "hourly", 3, late=70)
    fire(client)
    assert tasks(client) == [] and numbers(client) == (0, 0, 3)


def test_thousands_of_missed_times_take_few_transactions(client, cli, hourly):
    hourly(every="10s", window="1h")
    seconds = int(cli.time()[0])
    begin = seconds // 10 * 10 - 10 * 2500
    cli.hset(keys.schedule("hourly"), mapping={"last": begin - 1, "planned": begin, "at": begin})
    cli.zadd(keys.SCHEDULES, {"hourly": begin})

    fire(client)

    made, skipped, missed = numbers(client)
    assert (made, skipped) == (1, 0) and missed >= 2500
    assert 3 <= len(what(client)) <= 8
    assert client.get_schedule("hourly").record["last"] >= seconds // 10 * 10


# The one before has not ended


def test_a_lock_of_the_task_keeps_its_tasks_apart(client, cli, hourly):
    schedule = hourly(overlap="queue", lock="licence", resources={"gpu": 1})
    assert schedule.definition.lock == "licence"
    with pytest.raises(InvalidInput, match="may be held by 3 tasks"):
        hourly(overlap="queue", lock=("licence", 3))


def test_one_task_at_a_time_waits_for_the_end_of_the_one_before(client, cli, hourly):
    hourly(overlap="queue")
    for late in (15, 10, 5):
        miss(cli, "hourly", 1, late)
        fire(client)
        if late == 15:
            start_one(client)

    assert what(client) == [("made", None, 1)] * 2 + [("skipped", "overlap", 1)]


def test_nothing_comes_of_what_is_paused_or_over(client, hourly):
    hourly()
    record, later = schedules.records(client.connections, ["hourly"])[0], time.time() + 2 * HOUR
    assert plan_of("hourly", record, later) is not None

    over = {name: text for name, text in record.items() if name not in ("planned", "at")}

    assert plan_of("hourly", over, later) is None
    assert plan_of("hourly", record | {"paused": "1.5"}, later) is None


def test_a_lock_that_the_task_before_does_not_hold_keeps_no_task_apart_from_it(client, hourly):
    schedule = hourly(overlap="queue")
    schedule.trigger()
    start_one(client)

    changed = hourly(overlap="queue", lock="licence")

    with pytest.raises(WrongSchedule, match="without the lock"):
        changed.trigger()


def test_none_is_made_beside_one_that_runs_if_the_schedule_skips_it(client, hourly):
    schedule = hourly(overlap="skip")
    schedule.trigger()
    start_one(client)

    with pytest.raises(WrongSchedule, match="allows no second task"):
        schedule.trigger()


def test_the_newest_task_is_the_current_one_unless_it_was_made_by_force(client, hourly):
    schedule = hourly(overlap="allow")

    _, newest = schedule.trigger(), schedule.trigger()
    assert schedule.record["current"] == newest

    schedule.trigger(force=True)
    assert schedule.record["current"] == newest


def test_failed_tasks_in_a_row_are_counted(client, hourly):
    schedule, listener = hourly(), client.get_listener("reports")
    listener.register(Timing())
    counts = []
    for how in ("fail", "fail", "cancel", "complete", "fail"):
        task = schedule.trigger()
        counts.append(schedule.record["failures"])
        if how == "cancel":
            client.get_queue("reports").cancel(task)
        else:
            processor = client.get_processor(listener.take())
            processor.start(77)
            processor.fail("why") if how == "fail" else processor.complete("out")

    assert counts == [0, 1, 2, 2, 0]


# What people do


def test_a_schedule_that_changes_in_a_pause_stays_paused(cli, hourly):
    hourly().pause()

    hourly(every="30m")

    assert cli.zscore(keys.SCHEDULES, "hourly") == float("inf")


def test_what_was_planned_in_a_pause_is_missed_or_caught_up(client, cli, hourly):
    schedule = hourly()
    assert schedule.pause("ann", "move") and not schedule.pause("bob")
    miss(cli, "hourly", 3)
    cli.zadd(keys.SCHEDULES, {"hourly": "inf"})
    fire(client)
    assert tasks(client) == []

    assert schedule.resume() and not schedule.resume()
    assert what(client) == [("missed", "paused", 3)]
    fire(client)
    assert tasks(client) == []

    schedule.pause()
    times = miss(cli, "hourly", 3)
    cli.zadd(keys.SCHEDULES, {"hourly": "inf"})
    assert schedule.resume(catch_up=True)
    fire(client)
    assert [task.id for task in tasks(client)] == [id_of_occurrence("hourly", times[-1])]


@pytest.mark.parametrize("hours", [1, 3])
def test_a_change_runs_nothing_of_the_past_and_says_what_is_lost(client, cli, hourly, hours):
    hourly()
    miss(cli, "hourly", hours)
    changed = hourly(every="30m")
    assert what(client) == [("missed", "changed", hours)]
    assert changed.record["version"] == 2 and changed.record["planned"] > time.time() - 1
    fire(client)
    assert tasks(client) == []


def test_who_changes_a_schedule_is_told_what_that_was(client, hourly):
    record = hourly().definition
    other = record._replace(window=5)
    changes = [Define(record, "hand"), Define(other, "hand"), Pause(), Pause("late"), Resume()]

    told = [protocol.set_schedule(client.connections, "hourly", each, "ann") for each in changes]

    assert told == ["same", "changed", "paused", "same", "resumed"]
    assert protocol.set_schedule(client.connections, "other", changes[0], "ann") == "new"


def test_of_two_who_make_one_name_at_the_same_instant_one_is_refused(
    client, hourly, url, overtaken, proxy
):
    with contextlib.closing(blueque.Client(url)) as other:
        overtaken(lambda: other.set_schedule("hourly", queue="theirs", every="2h"))
        with pytest.raises(WrongSchedule, match="there already"):
            hourly(only_new=True)
    assert client.get_schedule("hourly").record["queue"] == "theirs"

    with contextlib.closing(blueque.Client(proxy.url, patience=5)) as away:
        proxy.arm(Fault.CUT_AFTER, having=CHANGE)
        made = away.set_schedule("ours", queue="reports", every="1h", only_new=True)
        assert proxy.has_struck and made.record["version"] == 1


def test_a_schedule_knows_what_it_has_changed_itself(client, hourly):
    schedule = hourly()
    assert schedule.pause("ann") and schedule.is_paused
    assert schedule.resume() and not schedule.is_paused
    assert schedule.trigger() == schedule.record["current"]


def test_an_unknown_option_is_named(hourly):
    with pytest.raises(TypeError, match="a schedule has no option 'foo'"):
        hourly(foo=1)


def test_what_was_missed_is_logged(client, cli, hourly, caplog):
    hourly()
    first, second, _ = miss(cli, "hourly", 3)

    with caplog.at_level("INFO", logger="blueque"):
        fire(client)

    assert f"missed schedule=hourly planned={first} until={second} times=2" in caplog.messages
    assert any(text.startswith("made schedule=hourly") for text in caplog.messages)


def test_a_backfill_makes_each_past_task_once_one_after_the_other(client, cli, hourly):
    schedule = hourly()
    begin = int(time.time()) // HOUR * HOUR - 300 * HOUR
    made = schedule.backfill(begin, begin + 249 * HOUR)
    assert len(made) == 250 and made[0] == id_of_occurrence("hourly", begin)
    assert schedule.backfill(begin, begin + 250 * HOUR) == [
        id_of_occurrence("hourly", begin + 250 * HOUR)
    ]
    start_one(client)
    listener = client.get_listener("reports")
    listener.register(Timing())
    assert listener.take() is None
    listener.leave()
    with pytest.raises(InvalidInput, match="more than 10"):
        schedule.backfill(begin, begin + 249 * HOUR, most=10)
    with pytest.raises(InvalidInput, match="begin is Unix seconds"):
        schedule.backfill("2026-01-01", begin)
    with pytest.raises(WrongSchedule, match="still to come"):
        schedule.backfill(begin + 251 * HOUR, time.time() + 3 * HOUR)


def test_a_backfill_ends_soon_after_its_schedule_is_deleted(client, cli, hourly, monkeypatch):
    schedule, made = hourly(), []

    def delete_meanwhile(*arguments, **options):
        made.append(1)
        if len(made) == 150:
            client.get_schedule("hourly").delete()
        return [True]

    monkeypatch.setattr(schedules_of_people, "create", delete_meanwhile)
    begin = int(time.time()) // HOUR * HOUR - 300 * HOUR
    with pytest.raises(NoSuchSchedule):
        schedule.backfill(begin, begin + 299 * HOUR)
    assert len(made) == 200


def test_a_queue_with_a_schedule_is_not_forgotten(client, hourly):
    schedule = hourly()
    assert client.forget_queue("reports") == {"schedules": 1}
    schedule.delete()
    assert client.forget_queue("reports") == {}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"every": None}, "a rule needs cron or every"),
        ({"overlap": "wait"}, 'overlap: it is \'wait\'; it has to be one of "skip", "queue"'),
        ({"catch_up": "all"}, 'catch_up: "all" needs overlap = "allow"'),
        ({"window": "soon"}, "window: "),
        ({"jitter": "2d"}, "jitter"),
        ({"priority": 500}, "priority 500"),
        ({"until": 1}, "until: "),
    ],
)
def test_a_mistake_names_its_option(hourly, options, says, cli):
    with pytest.raises(InvalidInput) as raised:
        hourly(**options)
    assert says in str(raised.value) and cli.keys("*") == []


@pytest.mark.parametrize(
    ("rule", "apart"), [({"every": "1h"}, 3600), ({"every": None, "cron": "0,20 * * * *"}, 1200)]
)
def test_no_jitter_puts_a_task_off_until_the_next_one_is_planned(hourly, rule, apart):
    assert hourly(**rule, jitter=apart).record["jitter"] == apart
    with pytest.raises(InvalidInput, match=f"only {apart} s apart"):
        hourly(**rule, jitter=apart + 1)


# What others do meanwhile


def test_a_trigger_is_refused_when_a_task_comes_before_its_exec(
    client, cli, hourly, overtaken, url
):
    schedule = hourly()
    miss(cli, "hourly", 1)
    someone = blueque.Client(url)
    overtaken(lambda: fire(someone))
    with pytest.raises(WrongSchedule, match="has just made"):
        schedule.trigger()
    assert what(client) == [("made", None, 1)]
    someone.close()


@pytest.mark.parametrize("fault", [Fault.CUT_BEFORE, Fault.CUT_AFTER])
def test_a_lost_answer_to_a_backfill_hides_no_task(client, hourly, proxy, fault):
    hourly()
    away = blueque.Client(proxy.url, patience=5)
    begin = int(time.time()) // HOUR * HOUR - 9 * HOUR
    schedule = away.get_schedule("hourly")
    proxy.arm(fault, having=b"blueque_tasks_")
    assert len(schedule.backfill(begin, begin + 3 * HOUR)) == 4
    assert proxy.has_struck
    assert len(tasks(client)) == 4
    away.close()


def test_no_more_than_sixteen_records_are_in_memory_together(client, cli, hourly, monkeypatch):
    for number in range(40):
        hourly(f"s{number}")
        miss(cli, f"s{number}", 1)
    read, pieces = schedules.records, []

    def spied(redis, names):
        pieces.append(len(names))
        return read(redis, names)

    monkeypatch.setattr(schedules, "records", spied)
    fire(client)
    assert pieces == [16, 16, 8] and len(tasks(client)) == 40


OUTCOMES = {
    "pause": (lambda schedule: schedule.pause("ann", "a move"), True),
    "resume": (lambda schedule: schedule.resume(), True),
    "delete": (lambda schedule: schedule.delete(), True),
}


@pytest.fixture(params=OUTCOMES)
def call(request, hourly):
    """Return what changes the schedule `hourly`, and what it then returns."""
    schedule = hourly()
    if request.param == "resume":
        schedule.pause("ann")
    return OUTCOMES[request.param]


@pytest.mark.parametrize("fault", Fault)
def test_a_lost_answer_does_not_hide_that_it_was_this_call(proxy, call, fault):
    act, outcome = call
    with contextlib.closing(blueque.Client(proxy.url, patience=5)) as away:
        schedule = away.get_schedule("hourly")
        proxy.arm(fault, having=CHANGE)
        assert act(schedule) == outcome
        assert proxy.has_struck


def test_what_another_person_has_done_at_the_same_time_was_not_this_call(
    client, url, call, overtaken
):
    act, _ = call
    schedule = client.get_schedule("hourly")
    with contextlib.closing(blueque.Client(url)) as other:
        overtaken(lambda: act(other.get_schedule("hourly")))
        assert act(schedule) is False


def test_a_pause_by_another_person_is_not_taken_for_this_call_after_a_failure(
    client, hourly, proxy, url, overtaken
):
    hourly()
    with contextlib.closing(blueque.Client(proxy.url, patience=5)) as away:
        schedule = away.get_schedule("hourly")
        proxy.arm(Fault.CUT_BEFORE, having=CHANGE)
        overtaken(lambda: client.get_schedule("hourly").pause("bob"))
        assert schedule.pause("ann") is False
        assert proxy.has_struck


@pytest.mark.parametrize(
    "fields",
    [
        {"window": 400 * "9"},
        {"options": 100_000 * "["},
        {"options": '{"a":true}'},
        {"every": "1e9"},
        {"planned": 30 * "9", "at": "1"},
        {"requires": "moon"},
    ],
    ids=["window", "options", "option", "every", "planned", "requires"],
)
def test_whatever_a_record_holds_the_others_come(client, cli, hourly, fields):
    hourly("bad")
    miss(cli, "bad", 1, late=9)
    named = {name: value.encode("utf-8", "surrogateescape") for name, value in fields.items()}
    cli.hset(keys.schedule("bad"), mapping=named)
    cli.zadd(keys.SCHEDULES, {b"no \xff text": 1})
    hourly("good")
    miss(cli, "good", 1)
    firing = Firing(client.connections)
    for _ in range(5):
        firing.step()
    assert [task.schedule for task in tasks(client)] == ["good"]
    assert "good" in client.get_schedules()
    assert repr(client.get_schedule("bad")) == "<Schedule 'bad'>"


def test_a_file_is_not_applied_where_redis_refuses_a_key(client, cli, hourly, caplog):
    file = SchedulesOfFile("blueque.toml", {"daily": hourly().definition})
    cli.set(keys.schedule("daily"), "x")
    file.apply(client.connections)
    assert "the schedules of blueque.toml are not applied: " in caplog.text
    assert client.get_schedules() == ["hourly"]


def test_occurrences_are_json_that_redis_cli_shows(client, cli, hourly):
    hourly()
    (planned,) = miss(cli, "hourly", 1)
    fire(client)
    (text,) = cli.lrange("blueque_occurrences_hourly", 0, -1)
    assert json.loads(text)["planned"] == planned


# Who has changed it


def test_a_lost_answer_writes_what_a_person_has_done_once(client, hourly, proxy):
    hourly()
    away = blueque.Client(proxy.url, patience=5)
    for change in ("pause", "resume"):
        proxy.arm(Fault.CUT_AFTER, having=b"blueque_events_")
        getattr(away.get_schedule("hourly"), change)(by="ann")

    found = history.newest(client.connections, ["reports"], 100, None, None)
    assert [each.event for each in found][:2] == ["schedule_resumed", "schedule_paused"]
    assert len(found) == 3
    away.close()


@pytest.mark.parametrize("name", ["a\x1b[31m", "a\nb", "a\u202eb"])
def test_a_schedule_has_no_name_that_commands_a_terminal(client, name):
    with pytest.raises(InvalidInput, match="cannot be printed"):
        client.set_schedule(name, queue="video", every="1h")
