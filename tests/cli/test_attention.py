"""blueque.sentences.attention: which facts are worth somebody's attention, and what is said of them."""

from __future__ import annotations

import json
import subprocess
import time

import forked
import pytest
from running import BLUEQUE
from transactions import protocol

from blueque import Client
from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.model.task import Task
from blueque.protocol.ends import End
from blueque.queries.inspector import Inspector
from blueque.queries.listeners import Node
from blueque.queries.overview import Overview
from blueque.queries.queue_looks import HOUR
from blueque.queries.queue_overview import Counts, Failures, QueueOverview
from blueque.queries.queues import Pause, Settings
from blueque.queries.schedules import Watched
from blueque.sentences import attention
from blueque.sentences.attention import concerns
from blueque.sentences.concern import Concern
from blueque.sentences.pace import left_of

NOW = 1_000_000.0
GOOD = {
    "redis_version": "7.0.15",
    "role": "master",
    "used_memory": "100",
    "maxmemory": "1000",
    "maxmemory_policy": "noeviction",
    "aof_enabled": "1",
    "save": "",
}
NODE = "gpu-1.example.com_4021"
PARTS = ("counts", "settings", "waiting", "due", "failures")  # of QueueOverview


def line(**values):
    """Return a queue with these values, each in the part that has a field of that name."""
    found = QueueOverview("video", listeners=1)
    for name, value in values.items():
        part = next((part for part in PARTS if name in getattr(found, part)._fields), None)
        if part is None:
            found = found._replace(**{name: value})
        else:
            found = found._replace(**{part: getattr(found, part)._replace(**{name: value})})
    return found


def node(state="up", **values):
    return Node(NODE, "video", state, 5.0, (), **values)


def running(task_id="t1", **fields):
    return Task(
        task_id,
        {"status": "started", "queue": "video"}
        | {name: str(value) for name, value in fields.items()},
    )


def told(lines=(), tasks=(), nodes=None, **facts):
    overview = Overview(
        NOW, list(lines), list(tasks), [node()] if nodes is None else nodes, [], GOOD | facts
    )
    return list(concerns(overview._replace(lines=overview.lines or [line()])))


def test_on_a_good_day_nothing_needs_attention():
    assert (
        told(
            [line(pending=3, oldest_for=5.0, started=1, complete=7)], [running(started=NOW - 7200)]
        )
        == []
    )


def test_what_is_urgent_comes_first_for_the_others_may_not_fit():
    old = [line(queue=f"old-{n}", pause=Pause(NOW - 7200, "ada", None)) for n in range(2)]
    stuck = line(queue="video", pending=1, oldest_for=9.0)

    found = [(each.code, each.about) for each in told([*old, stuck], nodes=[])]

    assert found == [("no_listener", "video"), ("paused", "old-0"), ("paused", "old-1")]


@pytest.mark.parametrize(
    ("facts", "code", "words"),
    [
        ({"used_memory": "801"}, "memory", "801 B of 1000 B in use"),
        ({"maxmemory_policy": "allkeys-lru"}, "maxmemory-policy", "Set it to noeviction"),
        ({"aof_enabled": "0"}, "persistence", "nothing is written to disk"),
        ({"role": "slave"}, "role", "a replica"),
        (
            {"role": "master", "connected_slaves": "1", "confirming_replicas": "2"},
            "replicas",
            "no change is confirmed",
        ),
    ],
)
def test_a_server_that_may_lose_tasks_or_take_none_is_pointed_at(facts, code, words):
    (concern,) = told(**facts)

    assert (concern.about, concern.code, concern.command) == ("Redis", code, "blueque doctor")
    assert words in concern.sentence


@pytest.mark.parametrize(
    "facts",
    [
        {"min_slaves_good_slaves": "0"},
        {"aof_last_write_status": "err"},
        {"rdb_last_bgsave_status": "err"},
        {"used_memory": "1001"},
        {"role": "slave"},
    ],
)
def test_while_redis_refuses_changes_a_silent_listener_is_not_to_be_replaced(facts):
    silent = node("silent", is_late=True)._replace(held=("t1",))

    about_redis, listener = told(nodes=[silent], **facts)

    assert about_redis.about == "Redis" and "refuses changes" in about_redis.sentence
    assert listener.sentence.endswith(
        "1 task: Redis refuses changes, so no beat arrives; see the line about Redis"
    )
    assert listener.command == "blueque doctor"
    assert "start one on gpu-1" in told(nodes=[silent, node()], **facts)[1].sentence
    assert "start one on gpu-1" in told(nodes=[silent], used_memory="900")[1].sentence


def test_a_server_that_evicts_does_not_refuse_changes_when_it_is_full():
    evicts = {"used_memory": "1001", "maxmemory_policy": "allkeys-lru"}

    assert not any("refuses changes" in concern.sentence for concern in told(**evicts))


@pytest.mark.parametrize("facts", [{"aof_enabled": "0", "save": "3600 1"}, {"used_memory": "800"}])
def test_a_server_with_snapshots_or_memory_left_is_good_enough(facts):
    assert told(**facts) == []


def test_listeners_of_two_versions_are_counted_each_once():
    nodes = [
        node(version="2.0.0"),
        node(version="2.0.0")._replace(queue="video"),
        node(version="2.1.0")._replace(id="b_2"),
    ]

    assert told(nodes=nodes) == [
        Concern(
            "listeners",
            "versions",
            "their versions differ: 1 of 2.0.0, 1 of 2.1.0",
            "blueque host ls",
        )
    ]


def test_a_queue_that_nobody_serves_is_pointed_at_with_the_task_that_waits_longest():
    (concern,) = told([line(pending=3, oldest_for=18600.0, oldest="t-first")], nodes=[])

    assert concern == Concern(
        "video",
        "no_listener",
        "3 pending, oldest waits 5 h 10 m, no listener",
        "blueque why t-first",
    )


@pytest.mark.parametrize(
    ("started", "progress_at", "is_told"),
    [
        (NOW - 7000, NOW - 3590, False),
        (NOW - 7000, NOW - 3610, True),
        (NOW - 100_000, NOW - 5000, False),
        (NOW - 100_000, NOW - 10_000, True),
        (NOW - 100_000, None, False),
    ],
)
def test_no_progress_is_long_after_an_hour_and_a_tenth_of_the_time_until_then(
    started, progress_at, is_told
):
    fields = {"started": started} | ({"progress_at": progress_at} if progress_at else {})

    found = told(tasks=[running(**fields)])

    assert [concern.code for concern in found] == ["no_progress"] * is_told
    assert all(concern.command == "blueque stack t1" for concern in found)


@pytest.mark.parametrize(("ran", "is_told"), [(7499.0, False), (7501.0, True)])
def test_a_task_that_runs_much_longer_than_others_of_its_queue_is_pointed_at(ran, is_told):
    overview = Overview(
        NOW, [line()], [running(started=NOW - ran)], [node()], [], GOOD, tails={"video": 3600.0}
    )

    found = list(concerns(overview))

    wanted = Concern(
        "video",
        "long_run",
        "t1 has run for 2 h 5 m; 19 of 20 tasks of this queue took at most 1 h",
        "blueque show t1",
    )
    assert found == [wanted] * is_told
    assert list(concerns(overview._replace(tails={"audio": 1.0}))) == []


def test_of_many_tasks_that_run_long_three_are_named():
    tasks = [running(f"t{n}", started=NOW - 9000) for n in range(9)]

    found = list(
        concerns(Overview(NOW, [line()], tasks, [node()], [], GOOD, tails={"video": 60.0}))
    )

    assert [concern.code for concern in found] == ["long_run"] * 4
    assert found[3].sentence == "6 more have run more than twice as long as usual"


@pytest.mark.parametrize(
    ("completed", "tails"), [(19, {}), (20, {"video": pytest.approx(360.0, abs=60.0)})]
)
def test_what_is_long_is_known_from_twenty_that_completed(redis, completed, tails):
    now = Inspector(redis).now()
    protocol.register(redis, "video", NODE, "i", {}, now)
    for n in range(completed):
        finish(redis, f"g{n}", "complete", now - 3900, now - 3600)
    begin(redis, "t1", now)

    assert Inspector(redis).overview().tails == tails


@pytest.mark.parametrize(("ahead", "is_told"), [(1.0, False), (-30.0, False), (100.0, True)])
def test_a_clock_that_is_ahead_is_pointed_at(redis, ahead, is_told):
    now = Inspector(redis).now()
    for queue in ("video", "audio"):
        protocol.register(redis, queue, NODE, "i", {"beat_every": 10}, now + ahead)

    found = [
        concern for concern in concerns(Inspector(redis).overview()) if concern.code == "clock"
    ]

    assert [(concern.about, concern.command) for concern in found] == [
        ("listeners", "blueque host show gpu-1.example.com")
    ] * is_told
    assert all("the clock of gpu-1.example.com is at least 1 m" in one.sentence for one in found)


@pytest.mark.parametrize(
    ("state", "stuck", "sentences"),
    [
        (
            "up",
            f"t 1 {NOW - 300} T",
            [
                "t 1: its listener killed it 5 m ago, but the process is still there (state T). It is st"
            ],
        ),
        ("draining", f"t1 {NOW - 300} -", ["t1: its listener killed it 5 m ago, but the process"]),
        ("up", "", []),
        ("up", "t1 long D", []),
        ("dead", f"t1 {NOW - 300} D", []),
    ],
)
def test_a_task_that_sigkill_does_not_end_is_pointed_at_while_its_listener_says_so(
    state, stuck, sentences
):
    found = [one.sentence for one in told(nodes=[node(state, stuck=stuck)]) if one.code == "stuck"]

    assert [sentence[: len(sentences[0])] for sentence in found] == sentences


def begin(redis, task, at):
    protocol.enqueue(redis, "video", task, "1", at)
    protocol.pop(redis, "video", NODE, "i")
    protocol.reserve(redis, AttemptRef("video", task, task, NODE), "i", at)
    protocol.start(redis, AttemptRef("video", task, task, NODE), 77, at)


def finish(redis, task, action, began, ended=None):
    at = began if ended is None else ended
    begin(redis, task, began)
    if action == "failed":
        protocol.end(redis, AttemptRef("video", task, task, NODE), End.fail("x"), at)
    else:
        protocol.end(redis, AttemptRef("video", task, task, NODE), End.complete("x"), at)


@pytest.mark.parametrize(
    ("old", "failed", "good", "failing"),
    [(0, 4, 0, 0), (0, 5, 0, 5), (0, 5, 19, 5), (0, 5, 20, 0), (25, 5, 19, 5), (25, 6, 24, 0)],
)
def test_failures_are_too_many_from_five_within_an_hour_and_a_fifth_of_what_ended(
    redis, old, failed, good, failing
):
    now = Inspector(redis).now()
    protocol.register(redis, "video", NODE, "i", {}, now)
    for n in range(old):
        finish(redis, f"o{n}", "complete", now - HOUR - 10)
    for n in range(failed):
        finish(redis, f"f{n}", "failed", now - HOUR + 100)
    for n in range(good):
        finish(redis, f"g{n}", "complete", now - HOUR + 100)

    (found,) = Inspector(redis).overview().lines

    assert found.failures.failing == failing


def test_the_overview_tells_when_a_running_task_has_last_printed(redis, cli):
    now = Inspector(redis).now()
    protocol.register(redis, "video", NODE, "i", {}, now)
    finish(redis, "ended", "complete", now)
    begin(redis, "t1", now)
    for task in ("t1", "ended"):
        cli.xadd(f"blueque_log_{task}", {"attempt": 1, "text": "frame"}, id="1234567-0")

    assert Inspector(redis).overview().printed == {"t1": 1234.567}


@pytest.mark.parametrize(
    ("entry", "printed"),
    [
        ({"attempt": 1, "stream": "blueque", "printed": "1200.5"}, {"t1": 1200.5}),
        ({"attempt": 1, "stream": "blueque"}, {}),
        ({"attempt": 7, "stream": "stdout"}, {}),
    ],
    ids=[
        "a line of ours after one that it has printed",
        "a line of ours",
        "a line of another attempt",
    ],
)
def test_what_a_running_task_has_not_printed_is_no_sign_of_life(redis, cli, entry, printed):
    now = Inspector(redis).now()
    protocol.register(redis, "video", NODE, "i", {}, now)
    begin(redis, "t1", now)
    cli.xadd("blueque_log_t1", {"text": "frame", **entry})

    assert Inspector(redis).overview().printed == printed


def test_who_may_not_ask_for_info_sees_the_rest(server, redis, cli):
    protocol.enqueue(redis, "video", "t1", "1", 1.0)
    cli.acl_setuser(
        "reader",
        enabled=True,
        nopass=True,
        keys=["*"],
        commands=["+@read", "+@connection", "+time"],
    )
    client = Client(server.url.replace("redis://", "redis://reader:x@"))

    overview = client.get_inspector().overview()
    client.close()
    cli.acl_deluser("reader")

    assert (overview.server, overview.lines[0].counts.pending) == (None, 1)


def test_check_ends_with_75_when_something_needs_attention_and_with_0_otherwise(own_server):
    client = Client(own_server.url)

    def check(*more):
        command = [*BLUEQUE, "status", "--check", "--redis-url", own_server.url, *more]
        return subprocess.run(command, capture_output=True, timeout=30, text=True)

    good = check()
    task_id = client.get_queue("video").enqueue("1")
    bad = check("--json")
    client.close()

    assert (good.returncode, "!" in good.stdout, bad.returncode) == (0, False, 75)
    (concern,) = json.loads(bad.stdout)["attention"]
    assert (concern["about"], concern["code"]) == ("video", "no_listener")
    assert concern["command"] == f"blueque why {task_id}"


def test_progress_and_what_is_left_of_it_are_shown_of_running_tasks(redis, cli, url):
    now = time.time()
    protocol.register(redis, "video", NODE, "i", {}, now)
    protocol.enqueue(redis, "video", "t1", "1", now)
    protocol.pop(redis, "video", NODE, "i")
    protocol.reserve(redis, AttemptRef("video", "t1", "t1", NODE), "i", now)
    protocol.start(redis, AttemptRef("video", "t1", "t1", NODE), 77, now - 7200)
    cli.hset("blueque_task_t1", mapping={"progress": "50 % encoding", "progress_at": now})

    command = [*BLUEQUE, "status", "--redis-url", url]
    shown = subprocess.run(command, capture_output=True, timeout=30, text=True).stdout

    (row,) = [line.split(maxsplit=7) for line in shown.splitlines() if line.startswith("t1 ")]
    assert row[:7] == ["t1", "1", "video", NODE, "2", "h", "50"]
    assert row[7].startswith("%  encoding  ~2 h  ")


@pytest.mark.parametrize(
    ("attempt", "first", "words"),
    [
        (2, (-7200, "40 %"), "~10 h"),
        (2, (0, "50 %"), None),  # it has reported once
        (2, None, None),
        (1, (0, "50 %"), "~2 h"),
        (1, (-7200, "40 %"), "~10 h"),  # it has found a part that was done before
        (1, (-7200, "preparing"), "~2 h"),
        (1, None, "~2 h"),
    ],
)
def test_an_attempt_that_goes_on_from_a_checkpoint_is_measured_from_its_first_report(
    attempt, first, words
):
    shown = {"progress": "50 %", "progress_at": NOW, "started": NOW - 7200, "attempt": attempt}
    if first is not None:
        shown["progress_first"] = f"{NOW + first[0]} {first[1]}"

    assert left_of(running("t1", **shown), NOW)[1] == words


# Schedules


def of_schedules(*schedules, is_minded=True):
    overview = Overview(NOW, [line(is_minded=is_minded)], [], [node()], [], GOOD)
    return list(concerns(overview._replace(schedules=schedules)))


def schedule(name="nightly", **values):
    return Watched(name, **{"queue": "video", "at": NOW + 60, **values})


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"at": None},
        {"at": NOW - 60},
        {"last": NOW + 60},
        {"at": NOW - 7200, "paused": NOW - 7200},
        {"failures": 2, "left_out": 2},
        {"failures": 5, "left_out": 5, "paused": NOW - 7200},
    ],
)
def test_a_schedule_that_does_what_people_want_needs_no_attention(values):
    assert of_schedules(schedule(**values)) == []


@pytest.mark.parametrize(
    ("values", "code", "sentence", "verb"),
    [
        (
            {"at": NOW - 720},
            "schedule_overdue",
            "overdue by 12 m: no program makes its task",
            "show",
        ),
        (
            {"at": NOW - 61, "queue": "audio"},
            "schedule_overdue",
            "overdue by 1 m 1 s: no listener serves queue audio, and no scheduler makes its task",
            "show",
        ),
        (
            {"last": NOW + 864000},
            "schedule_ahead",
            "it makes no task for 10 d: the clock of Redis was ahead; remove it and define it again",
            "show",
        ),
        ({"failures": 3}, "schedule_failing", "its last 3 tasks have failed", "history"),
        ({"left_out": 3}, "schedule_left_out", "its last 3 planned times made no task", "history"),
        (
            {"left_out": 5, "is_more": True},
            "schedule_left_out",
            "its last 5 or more planned times made no task",
            "history",
        ),
    ],
)
def test_a_schedule_that_needs_attention_is_said(values, code, sentence, verb):
    assert of_schedules(schedule("every night", **values)) == [
        Concern("schedule every night", code, sentence, f"blueque schedule {verb} 'every night'")
    ]


@pytest.mark.parametrize(("number", "more"), [(4, "1 more overdue"), (12, "9 more overdue")])
def test_of_many_schedules_three_are_named(number, more):
    late = [schedule(f"s{n}", at=NOW - 600) for n in range(number)]

    found = of_schedules(*late)

    assert [concern.about for concern in found[:-1]] == [f"schedule s{n}" for n in range(3)]
    assert found[-1] == Concern("schedules", "schedule_overdue", more, "blueque schedule ls")


def seen(client):
    """Return what needs attention of schedules, by code."""
    found = concerns(client.get_inspector().overview())
    return {each.code: each.sentence for each in found if each.about.startswith("schedule")}


@pytest.fixture
def hourly(client, cli):
    """A schedule whose last planned time is over for ten minutes."""
    client.set_schedule("hourly", queue="video", every="1h")
    late = int(time.time()) - 600
    cli.hset("blueque_schedule_hourly", mapping={"planned": late, "at": late, "last": late - 3600})
    cli.zadd("blueque_schedules", {"hourly": late})


@pytest.mark.usefixtures("hourly")
def test_status_reads_what_is_wrong_with_schedules(client, cli):
    task = client.get_queue("video").enqueue("1")
    assert list(seen(client)) == ["schedule_overdue"]

    cli.hset("blueque_schedule_hourly", mapping={"failures": 2, "current": task})
    assert list(seen(client)) == ["schedule_overdue"]
    cli.hset(f"blueque_task_{task}", "status", "failed")
    assert seen(client)["schedule_failing"] == "its last 3 tasks have failed"
    cli.hset(f"blueque_task_{task}", "status", "complete")
    assert list(seen(client)) == ["schedule_overdue"]

    client.get_schedule("hourly").pause()
    assert seen(client) == {}


@pytest.mark.usefixtures("hourly")
@pytest.mark.parametrize(
    ("texts", "left_out"),
    [
        (['{"what":"missed","planned":1,"at":1,"why":"window","until":9,"times":3}'], 3),
        (['{"what":"skipped","planned":1,"at":1,"why":"overlap"}'] * 4, 4),
        (['{"what":"missed","planned":1,"at":1,"why":"paused","times":9}'], 0),
        (
            [
                '{"what":"skipped","planned":1,"at":1,"why":"overlap"}',
                '{"what":"made","planned":1,"at":1}',
                *['{"what":"skipped","planned":1,"at":1,"why":"overlap"}'] * 3,
            ],
            0,
        ),
        (["made by hand"], 0),
    ],
)
def test_only_what_no_person_has_left_out_since_a_task_came_needs_attention(
    client, cli, texts, left_out
):
    cli.rpush("blueque_occurrences_hourly", *texts)

    words = f"its last {left_out} planned times made no task"
    assert seen(client).get("schedule_left_out") == (words if left_out >= 3 else None)


@pytest.mark.usefixtures("hourly")
def test_a_record_that_makes_no_sense_ends_no_status(client, cli):
    cli.hset("blueque_schedule_hourly", mapping={"at": "soon", "failures": "inf", "updated": "x"})
    cli.zadd("blueque_schedules", {"gone": 5})

    assert seen(client) == {}


def test_status_with_schedules_fits_eighty_columns(environ, client, cli):
    for number in range(5):
        name = f"a schedule with a long name, number {number}"
        client.set_schedule(name, queue="video", every="1h")
        cli.hset(f"blueque_schedule_{name}", mapping={"planned": 5, "at": 5})

    shown = forked.on_terminal(["status"], environ | {"COLUMNS": "80"})

    told = [one for one in shown if "blueque schedule show" not in one]  # a whole command
    assert max(map(len, told)) <= 80
    assert "and no scheduler makes its task" in " ".join(" ".join(told).split())
    assert "! schedules: 2 more overdue" in told


def test_without_concerns_the_heading_says_what_failed_today_and_what_is_paused(redis, client):
    now = Inspector(redis).now()
    protocol.register(redis, "video", NODE, "i", {}, now)
    for name, ago in (("new", 0.0), ("old", 86400.0)):
        finish(redis, name, "failed", now - ago - 5, now - ago)
    (line,) = client.get_inspector().overview().lines

    assert attention.heading([], [line]) == "Nothing needs attention. Today (UTC) 1 task failed."
    good = line._replace(failures=Failures())
    paused = good._replace(settings=Settings(Pause(now, "ada", None)))
    assert attention.heading([], [paused]) == "Nothing needs attention. 1 queue is paused."
    assert attention.heading([], [good]) == "Nothing needs attention."
    least = line._replace(failures=Failures(looked_at=7, today=7), counts=Counts(failed=9))
    assert "7 tasks or more failed." in attention.heading([], [least])
    concern = Concern("video", "dead", "it is so")
    assert attention.heading([concern] * 2, [line]) == "2 things need attention"


@pytest.mark.usefixtures("hourly")
def test_a_number_that_is_only_the_least_says_so(client, cli):
    cli.rpush(
        "blueque_occurrences_hourly", *['{"what":"skipped","planned":1,"at":1,"why":"overlap"}'] * 5
    )

    sentence = seen(client)["schedule_left_out"]

    assert sentence == "its last 5 or more planned times made no task"


def test_a_schedule_that_a_clock_of_redis_took_ahead_is_said(client, cli, hourly):
    later = int(time.time()) // 3600 * 3600 + 864000
    cli.hset(keys.schedule("hourly"), mapping={"last": later, "at": later + 3600})
    cli.zadd(keys.SCHEDULES, {"hourly": later + 3600})
    assert "the clock of Redis was ahead" in seen(client)["schedule_ahead"]


def test_the_heading_of_status_fits_eighty_columns(environ, redis, client, monkeypatch):
    monkeypatch.setattr(attention, "concerns", lambda overview, serve: [])
    now = Inspector(redis).now()
    protocol.register(redis, "video", NODE, "i", {}, now)
    for number in range(12):
        finish(redis, f"failed-{number}", "failed", now - 5, now)
    client.get_queue("video").pause()

    shown = forked.on_terminal(["status"], environ | {"COLUMNS": "80"})

    heading = "Nothing needs attention. Today (UTC) 12 tasks failed. 1 queue is paused."
    assert f"{heading} (blueque failures)" not in shown
    assert heading in shown and max(map(len, shown)) <= 80
