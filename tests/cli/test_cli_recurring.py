"""`blueque schedule`: recurring tasks, by hand and from a file."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime

import pytest
from transactions import protocol

from blueque.cli.verbs import schedule_file
from blueque.listener.listener import Listener
from blueque.model import keys
from blueque.model.schedule import Occurrence
from blueque.model.units import Timing
from blueque.producer.firing import Firing

NEW_YORK = {"TZ": "America/New_York"}  # the local zone
NIGHTLY = ("nightly", '{"kind": "daily"}', "-q", "reports", "--cron", "30 2 * * 1-5")
TABLE = '[schedules.{name}]\nqueue = "reports"\n{rule}\n'


@pytest.fixture
def nightly(run):
    result = run("schedule", "add", *NIGHTLY, "--timezone", "Europe/Berlin")
    assert result.returncode == 0, result.stderr
    return result


@pytest.fixture
def file(tmp_path, run):
    """Write blueque.toml and return what runs a verb with it."""
    path = tmp_path / "blueque.toml"

    def write(*rules, text=""):
        tables = [TABLE.format(name=f"f{n}", rule=rule) for n, rule in enumerate(rules)]
        path.write_text(text + "".join(tables))
        return lambda *words: run("schedule", *words, "--config", str(path))

    return write


def items(run, *words, **more):
    return json.loads(run("schedule", *words, "--json", **more).stdout)


def since(begin, end=None):
    return ("--since", begin, *(() if end is None else ("--until", end)))


def come_due(cli, name, ago=5.0):
    """Move the record so that its next planned time is past; return that time."""
    planned = int(cli.time()[0] - ago)
    record = {"start": planned, "last": planned - 1, "planned": planned, "at": planned}
    cli.hset(keys.schedule(name), mapping=record)
    cli.zadd(keys.SCHEDULES, {name: planned})
    return planned


def start_one(client, queue="reports") -> Listener:
    listener = client.get_listener(queue)
    listener.register(Timing())
    client.get_processor(listener.take()).start(77)
    return listener


# add, show


def test_add_makes_it_and_says_when_it_comes(nightly, client):
    assert nightly.stdout.startswith("nightly  next in ") and nightly.stderr == ""
    schedule = client.get_schedule("nightly")
    assert schedule.rule.text() == "30 2 * * 1-5 Europe/Berlin"
    assert schedule.definition.parameters == '{"kind":"daily"}'
    assert schedule.record["origin"] == "hand"


def test_add_refuses_one_that_is_there(run, nightly):
    again = run("schedule", "add", *NIGHTLY)

    assert again.returncode == 5
    assert again.stderr.splitlines() == [
        "blueque: there is a schedule 'nightly' already",
        "See it: blueque schedule show nightly",
        "To replace it: --replace, with all of its options; what is left out has its default then.",
    ]


def test_replace_says_what_has_changed_and_gives_the_rest_its_default(run, nightly, client):
    run("schedule", "add", "nightly", "-q", "reports", "--every", "1h", "--overlap", "queue")
    words = ("schedule", "add", "nightly", "-q", "reports", "--every", "2h", "--replace")

    changed, same = run(*words), run(*words)

    assert changed.stdout.startswith(
        "nightly  changed: cron, every, timezone, parameters; next in "
    )
    assert same.stdout.startswith("nightly  same, next in ")
    after = client.get_schedule("nightly").definition
    assert (after.rule.cron, after.rule.every, after.parameters) == (None, 7200, "null")
    run("schedule", "pause", "nightly")
    paused = run(*words, "--priority", "5", "--until", "2090-01-01")
    until = "paused, to resume: blueque schedule resume nightly\n"
    assert paused.stdout == f"nightly  changed: until, priority; {until}"
    reset = "Not given, and now at the default: until 3786912000"
    assert reset in (told := run(*words).stderr) and "priority 5 -> default" in told


def test_the_options_of_a_task_are_those_of_enqueue(run, client):
    options = ("--retry", "2", "--time-limit", "2h", "--priority", "3", "--lock", "disk")
    run("schedule", "add", *NIGHTLY, *options, "--resource", "gpu=1")

    found = items(run, "show", "nightly")["item"]["options"]

    assert (found["time_limit"], found["priority"]) == (7200, 3)
    assert found["needs"] == "gpu=1,lock:disk=1" and json.loads(found["retry"]) == {"max": 2}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--cron", "1 2 3"), "--cron: '1 2 3' has 3 fields, not five"),
        (("--every", "5s"), "--every: it must be from 10s to 366d"),
        (("--every", "soon"), "--every: 'soon' is not a duration"),
        ((), "--cron: a rule needs cron or every"),
        (("--every", "1h", "--catch-up", "all"), '--catch-up: "all" needs overlap = "allow"'),
        (("--every", "1h", "--jitter", "2d"), "--jitter: it must be from 0 to 1d"),
        (("--every", "1h", "--window", "5000d"), "--window: it must be from 0 to 3660d"),
        (("--every", "1h", "--until", "2020-01-01"), "--until: the rule has no time before it"),
        (("--cron", "* * * * *", "--timezone", "Berln"), "--timezone: 'Berln' is not a name"),
        (("{", "--every", "1h"), "not valid JSON"),
        (("--every", "1h", "--lock", "a=x"), "--lock 'a=x'"),
    ],
)
def test_a_wrong_option_is_named_with_exit_code_2_and_nothing_is_made(run, client, words, sentence):
    result = run("schedule", "add", "bad", "-q", "reports", *words)

    assert (result.returncode, result.stdout) == (2, "")
    assert sentence in result.stderr
    assert client.get_schedules() == []


def test_a_bound_without_a_zone_is_a_time_of_the_zone_of_the_rule(run, client):
    bounds = ("--start", "2090-01-01 08:00", "--until", "2090-06-01T00:00:00Z")
    run("schedule", "add", *NIGHTLY, "--timezone", "Europe/Berlin", *bounds, **NEW_YORK)
    run("schedule", "add", "utc", "-q", "reports", "--cron", "0 0 * * *", *bounds, **NEW_YORK)
    run("schedule", "add", "plain", "-q", "reports", "--every", "1h", *bounds, **NEW_YORK)
    rules = {name: client.get_schedule(name).rule for name in ("nightly", "utc", "plain")}

    def start(hour):
        return datetime(2090, 1, 1, hour, tzinfo=UTC).timestamp()

    assert [rules[name].start for name in rules] == [start(7), start(8), start(13)]
    assert {rule.until for rule in rules.values()} == {datetime(2090, 6, 1, tzinfo=UTC).timestamp()}


def test_the_times_of_a_backfill_without_a_zone_are_of_that_of_the_rule(run, client):
    rule = ("--cron", "0 8 * * *", "--timezone", "Europe/Berlin")
    run("schedule", "add", "daily", "-q", "reports", *rule)
    run("schedule", "add", "plain", "-q", "reports", "--every", "1h")

    times = ("2026-01-01 08:00", "2026-01-02 08:00")
    result = run("schedule", "trigger", "daily", *since(*times), **NEW_YORK)
    of_one = since("2026-01-01 08:00", "2026-01-01 08:00")
    plain = items(run, "trigger", "plain", *of_one, **NEW_YORK)

    assert result.stderr == (
        "2 planned times from Thu 2026-01-01 08:00 CET to Fri 2026-01-02 08:00 CET\n"
    )
    (task,) = plain["tasks"]
    assert client.get_task(task).planned == datetime(2026, 1, 1, 13, tzinfo=UTC)


def test_show_hides_secrets_and_says_what_comes(run, client):
    secret = {"token": "geheim"}
    client.set_schedule("n", queue="reports", every="1h", parameters=secret, context=secret)

    shown = run("schedule", "show", "n")

    lines = dict(line.split(None, 1) for line in shown.stdout.splitlines() if line[:1].strip())
    assert shown.returncode == 0
    assert (lines["name"], lines["queue"], lines["rule"]) == ("n", "reports", "every 1h")
    assert "geheim" not in shown.stdout
    assert "geheim" in run("schedule", "show", "n", "--reveal").stdout
    assert items(run, "show", "n")["reasons"] == []
    for line in (["show", "n", "--json"], ["ls", "--json"]):
        told = run("schedule", *line)
        assert told.returncode == 0 and "geheim" not in told.stdout
        assert told.stdout.count("[hidden]") == 2


def reasons(run, name):
    return {each["code"]: each for each in items(run, "show", name)["reasons"]}


def test_show_says_by_whom_it_is_paused(run, nightly, client):
    client.get_schedule("nightly").pause("ann", "the disk is full")

    found = reasons(run, "nightly")["paused"]

    assert found["sentence"].endswith(" by ann: the disk is full.")
    assert found["command"] == "blueque schedule resume nightly"


def test_show_says_that_its_end_is_past(run, nightly, cli):
    cli.hset(keys.schedule("nightly"), "until", 1_700_000_000)
    cli.hdel(keys.schedule("nightly"), "planned", "at")
    cli.zadd(keys.SCHEDULES, {"nightly": "+inf"})

    sentence = reasons(run, "nightly")["over"]["sentence"]

    assert sentence == ("It makes no more tasks: until = Tue 2023-11-14 23:13:20 CET has passed.")


def test_show_says_that_neither_scheduler_nor_listener_makes_its_task(run, nightly, client, cli):
    come_due(cli, "nightly", ago=300)

    found = reasons(run, "nightly")["overdue"]
    assert found["sentence"].startswith("It is overdue by 5 m")
    assert "there is no listener of reports" in found["sentence"]
    assert found["command"] == "blueque-scheduler"
    client.get_listener("reports").register(Timing())
    assert "no listener of reports has either" in reasons(run, "nightly")["overdue"]["sentence"]


def test_a_paused_one_shows_no_time_at_which_something_comes(run, nightly, client):
    client.get_schedule("nightly").pause("ann")

    shown = run("schedule", "show", "nightly").stdout.splitlines()
    listed = run("schedule", "ls").stdout.splitlines()

    assert [line.split() for line in shown if line.startswith(("next", "planned"))] == [
        ["next", "paused"]
    ]
    assert "  paused  " in listed[1] and listed[1].split()[-1] == "paused"
    assert items(run, "show", "nightly")["next"] == []


def test_show_says_which_task_runs_instead(run, client, cli):
    client.set_schedule("hourly", queue="reports", every="1h")
    task = client.get_schedule("hourly").trigger()
    listener = start_one(client)
    come_due(cli, "hourly")
    Firing(client.connections).step()

    found = reasons(run, "hourly")["skipped"]

    assert f"{task} had not ended (started). That task has been running for " in found["sentence"]
    assert found["command"] == f"blueque show {task}"
    listener.leave()


def test_show_says_why_the_task_that_is_in_the_way_does_not_start(run, client, cli):
    client.set_schedule("hourly", queue="reports", every="1h")
    task = client.get_schedule("hourly").trigger()
    come_due(cli, "hourly")
    Firing(client.connections).step()

    found = reasons(run, "hourly")["skipped"]

    assert found["command"] == f"blueque why {task}"
    assert found["sentence"].endswith(". No listener serves reports.")
    client.get_listener("reports").register(Timing())
    assert "No listener" not in reasons(run, "hourly")["skipped"]["sentence"]


@pytest.mark.parametrize("end", ["paused", "over", None])
def test_show_says_that_the_next_one_comes_only_if_it_does(run, client, cli, end):
    client.set_schedule("hourly", queue="reports", every="1h")
    task = client.get_schedule("hourly").trigger()
    come_due(cli, "hourly")
    Firing(client.connections).step()
    client.get_queue("reports").cancel(task)
    if end == "paused":
        client.get_schedule("hourly").pause("ann")
    elif end == "over":
        cli.hdel(keys.schedule("hourly"), "planned", "at")

    sentence = reasons(run, "hourly")["skipped"]["sentence"]

    rest = "" if end else ", so the next one will be made"
    assert sentence.endswith(f" That task has ended{rest}.")


def test_times_have_seconds_if_they_are_not_zero(run, client, cli):
    client.set_schedule("often", queue="reports", every="10s", start="2090-01-01T00:00:30Z")

    shown = run("schedule", "show", "often").stdout

    planned = shown[shown.index("planned") :].split("\n")
    assert "next" in shown and "2090-01-01 00:00:30 UTC" in shown
    assert [line.split()[-2] for line in planned[:3]] == ["00:00:30", "00:00:40", "00:00:50"]


def test_show_says_that_this_version_cannot_read_it(run, nightly, cli):
    cli.hset(keys.schedule("nightly"), "overlap", "sometimes")

    assert (
        "a policy that this version does not know"
        in reasons(run, "nightly")["unreadable"]["sentence"]
    )
    assert "cannot be read" in run("schedule", "ls").stdout
    for verb in ("show", "history"):
        assert run("schedule", verb, "nightly").returncode == 0


# ls


def test_ls_notes_what_is_unusual(run, client, cli, redis):
    for name in ("paused", "late", "skips", "fails"):
        client.set_schedule(name, queue="reports", every="1h")
    client.get_schedule("paused").pause("ann", "move")
    come_due(cli, "late", ago=300)
    skipped = Occurrence("skipped", 1, 2.0, why="overlap").text()
    cli.lpush(keys.occurrences("skips"), skipped, skipped, skipped)
    cli.hset(keys.schedule("fails"), "failures", 3)

    lines = run("schedule", "ls").stdout.splitlines()

    notes = {line.split()[0]: line for line in lines}
    assert notes["paused"].endswith("paused (move)")
    assert "due 5 m ago" in notes["late"] and notes["late"].endswith("overdue")
    assert notes["skips"].endswith("skipped 3")
    assert notes["fails"].endswith("3 failures")


def test_ls_says_what_became_of_the_last_task(run, nightly, client):
    task, queue = client.get_schedule("nightly").trigger(), client.get_queue("reports")
    seen = [run("schedule", "ls").stdout]
    queue.cancel(task)
    seen.append(run("schedule", "ls").stdout)
    queue.delete_task(client.get_task(task))
    seen.append(run("schedule", "ls").stdout)

    assert [text.splitlines()[1].split()[-3] for text in seen[:2]] == ["pending,", "cancelled,"]
    assert seen[2].rstrip().endswith(" gone")


def test_ls_fits_into_eighty_columns(nightly, client, answer, url):
    client.set_schedule("a-long-name-of-a-schedule", queue="render.4k.large", every="1d")
    client.get_schedule("nightly").pause("ann", "the disk is full, and nobody has another one")
    client.get_schedule("a-long-name-of-a-schedule").trigger()

    code, seen = answer(b"", "schedule", "ls", "--redis-url", url, columns=80)

    assert code == 0 and "a-long-" in seen
    assert max(map(len, seen.splitlines())) <= 80


# pause, resume, trigger, history, backfill, rm


def test_pause_and_resume_say_what_has_changed(run, nightly):
    words = ("--reason", "move", "--as", "ann")
    assert run("schedule", "pause", "nightly", *words).stdout == "nightly  paused\n"
    assert run("schedule", "pause", "nightly").stdout == "nightly  paused already, by ann\n"
    assert items(run, "pause", "nightly")["item"]["paused_reason"] == "move"
    assert run("schedule", "resume", "nightly").stdout.startswith("nightly  resumed, next in ")
    assert run("schedule", "resume", "nightly").stdout.startswith("nightly  was not paused, next ")


def test_a_second_pause_says_that_its_reason_is_dropped(run, nightly):
    run("schedule", "pause", "nightly", "--reason", "move", "--as", "ann")

    again = run("schedule", "pause", "nightly", "--reason", "the disk is full")

    assert again.stdout == "nightly  paused already, by ann; its reason stays as it is\n"


def test_show_and_why_of_a_recurring_task_name_the_right_command(run, nightly):
    for verb in ("show", "why"):
        result = run(verb, "nightly")
        assert (result.returncode, result.stdout) == (3, "")
        assert result.stderr.splitlines() == [
            "blueque: 'nightly' is a recurring task, not a task",
            "See it: blueque schedule show nightly",
        ]


def test_trigger_prints_the_id_and_is_refused_beside_another(run, nightly, client):
    task = run("schedule", "trigger", "nightly", "--as", "ann").stdout.strip()
    again = run("schedule", "trigger", "nightly")
    forced = run("schedule", "trigger", "nightly", "--force")

    assert client.get_task(task).status == "pending"
    assert (again.returncode, again.stdout) == (5, "")
    assert f"task {task} has not ended (pending)" in again.stderr
    assert forced.returncode == 0 and forced.stdout.strip() != task


def test_a_task_and_a_recurring_task_are_each_refused_with_the_other_command(run, nightly, client):
    task = client.get_queue("mail").schedule("x", time.time() + 3600)

    name, of_task = run("schedule", "run", "nightly"), run("schedule", "trigger", task)

    assert (name.returncode, of_task.returncode) == (2, 3)
    assert "Use: blueque schedule trigger SCHEDULE" in name.stderr
    assert of_task.stderr.splitlines()[1].endswith(f"in line now: blueque move {task} --now")


def test_times_in_a_table_are_all_to_the_second_if_one_is(run, client, cli):
    client.set_schedule("often", queue="reports", every="10s")
    missed = Occurrence("missed", 3600, 1.0, why="window", until=3630, times=4)
    cli.lpush(keys.occurrences("often"), missed.text())

    header, row = run("schedule", "history", "often").stdout.splitlines()
    rule = ("-q", "reports", "--every", "10s")
    dry = run("schedule", "add", "often", *rule, "--dry-run").stdout.splitlines()[1:]

    assert header.split() == ["PLANNED", "WHAT", "TASK", "STATE", "WHY"]
    assert row.startswith("Thu 1970-01-01 01:00:00 UTC  missed 4")
    assert row.endswith("when a scheduler looked, until 01:00:30")
    assert {line.split()[2].count(":") for line in dry} == {2}


def test_history_of_a_new_one_says_when_it_comes(run, nightly):
    result = run("schedule", "history", "nightly")

    assert "It has made no task yet. Next: in " in result.stderr


def test_backfill_makes_each_planned_time_once(run, client):
    client.set_schedule("daily", queue="reports", every="1d")
    few = run("schedule", "trigger", "daily", *since("2026-01-01T00:00Z", "2026-01-04T12:00Z"))
    more = run("schedule", "trigger", "daily", *since("2026-01-01T00:00Z", "2026-01-05T00:00Z"))

    assert few.stdout == "daily  4 tasks made\n"
    assert more.stdout == "daily  1 task made, 4 existed already\n"
    assert few.stderr == (
        "4 planned times from Thu 2026-01-01 00:00 UTC to Sun 2026-01-04 00:00 UTC\n"
    )


def test_the_tasks_of_a_backfill_are_found_by_ls(run, client):
    client.set_schedule("daily", queue="reports", every="1d")
    client.get_queue("reports").enqueue("another")
    made = items(run, "trigger", "daily", *since("2026-01-01T00:00Z", "2026-01-03T00:00Z"))["tasks"]

    client.get_queue("reports").cancel(made[0])
    listed = run("ls", "--schedule", "daily", "--ids").stdout.split()

    assert listed == [*made[1:], made[0]] and len(made) == 3


def test_backfill_takes_ages_by_the_clock_of_redis(run, client, monkeypatch):
    client.set_schedule("hourly", queue="reports", every="1h")
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 1800)

    result = run("schedule", "trigger", "hourly", *since("1h"))

    assert (result.returncode, result.stdout) == (0, "hourly  1 task made\n")


def test_backfill_asks_before_it_makes_more_than_a_thousand(run, client):
    client.set_schedule("often", queue="reports", every="10m")
    words = ("schedule", "trigger", "often", *since("2026-01-01T00:00Z", "2026-01-08T00:00Z"))

    refused = run(*words)
    made = json.loads(run(*words, "--yes", "--json").stdout)

    assert refused.returncode == 6 and "1,009 tasks would be made for often" in refused.stderr
    assert made["planned"] == len(made["tasks"]) == 1009


@pytest.mark.parametrize(
    ("times", "sentence"),
    [
        (("2026-01-02", "2026-01-01"), "--since is later than --until"),
        (("2026-01-02", "2090-01-01"), "--until is still to come"),
        (("soon",), "'soon' is not a time"),
        (("1h", "2h"), "--since is later than --until"),
    ],
)
def test_backfill_refuses_times_that_make_no_sense(run, nightly, times, sentence):
    result = run("schedule", "trigger", "nightly", *since(*times))

    assert result.returncode == 2 and sentence in result.stderr


def test_rm_removes_it_and_leaves_its_tasks(run, nightly, client):
    task = client.get_schedule("nightly").trigger()

    assert run("schedule", "rm", "nightly").stdout == "nightly  removed\n"
    assert client.get_schedules() == [] and client.get_task(task).status == "pending"


VERBS = ("show", "pause", "resume", "trigger", "history", "rm")


@pytest.mark.parametrize("verb", VERBS)
def test_one_that_does_not_exist_is_missing(run, verb):
    result = run("schedule", verb, "nightly")

    assert result.returncode == 3
    assert result.stderr.splitlines() == [
        "blueque: there is no schedule 'nightly'",
        "See them: blueque schedule ls",
    ]


def test_a_dry_run_of_add_shows_the_times_and_does_without_redis(run):
    words = ("--timezone", "Europe/Berlin", "--start", "2090-03-25T00:00+01:00", "--dry-run")
    rule = ("-q", "reports", "--cron", "30 2 * * *", *words)
    result = run("schedule", "add", "n", *rule, "--redis-url", "redis://localhost:1")

    header, first, second, *_ = result.stdout.splitlines()
    assert header.split() == ["PLANNED", "DUE"]
    assert first.startswith("Sat 2090-03-25 02:30 CET   in ")
    assert second.startswith("Sun 2090-03-26 03:00 CEST  in ")


# apply


def test_apply_brings_the_tables_to_redis_once(file, client):
    schedule = file('cron = "30 2 * * *"\nparameters = { n = 1 }', 'every = "1h"')

    first, again = schedule("apply"), schedule("apply")

    assert (first.stdout, again.stdout) == ("f0  new\nf1  new\n", "f0  same\nf1  same\n")
    found = client.get_schedule("f0")
    assert (found.record["origin"], found.record["version"]) == ("file", 1)
    assert found.definition.parameters == '{"n":1}'


def test_apply_changes_what_differs_and_prunes_only_what_came_from_a_file(file, client, tmp_path):
    file('every = "1h"', 'every = "2h"')("apply")
    client.set_schedule("mine", queue="reports", every="1h")
    schedule = file('every = "3h"\njitter = "5m"')

    dry = schedule("apply", "--dry-run", "--prune")
    kept = schedule("apply")
    pruned = schedule("apply", "--prune")

    assert dry.stdout == "f0  would change: every, jitter\nf1  would be removed\n"
    assert kept.stdout == "f0  changed: every, jitter\n"
    assert kept.stderr == (
        "f1 came from a file, is not in this one, and stays."
        f" To remove it: blueque schedule apply --prune --config {tmp_path / 'blueque.toml'}\n"
    )
    assert pruned.stdout == "f0  same\nf1  removed\n"
    assert sorted(client.get_schedules()) == ["f0", "mine"]


def test_a_dry_run_writes_nothing(file, redis, state):
    before = state()

    assert file('every = "1h"')("apply", "--dry-run").stdout == "f0  would be new\n"
    assert state() == before


def test_apply_of_one_that_was_made_by_hand_writes_nothing(file, client):
    client.set_schedule("f1", queue="reports", every="1h")

    result = file('every = "1h"', 'every = "2h"')("apply")

    assert (result.returncode, result.stdout) == (5, "")
    assert "blueque.toml: schedules.f1: it was made by hand" in result.stderr
    assert client.get_schedules() == ["f1"]


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ('every = "5s"', "schedules.f1.every: it must be from 10s to 366d"),
        ('every = "1h"\nuntil = 2020-01-01T00:00:00Z', "schedules.f1.until: it is past"),
        ('every = "1h"\noverlap = "queue"\nlock = ["x", 2]', "schedules.f1.overlap: the lock 'x'"),
    ],
)
def test_a_mistake_in_one_table_keeps_all_from_being_applied(file, client, rule, sentence):
    schedule = file('every = "1h"', rule)

    for words in (("apply",), ("apply", "--dry-run")):
        result = schedule(*words)
        assert result.returncode == 78 and sentence in result.stderr
    assert client.get_schedules() == []


def test_what_comes_from_the_file_is_not_changed_by_hand(run, file, client):
    file('every = "1h"')("apply")

    refused = run("schedule", "add", "f0", "-q", "reports", "--every", "2h", "--replace")
    paused = run("schedule", "pause", "f0")
    removed = run("schedule", "rm", "f0")

    assert refused.returncode == 5 and "it comes from a file" in refused.stderr
    assert paused.returncode == 0
    assert removed.returncode == 0 and "it comes back with the next apply" in removed.stderr


def test_a_table_takes_the_settings_of_its_queue(file, client):
    file('every = "1h"', text='[queues.reports]\ntime_limit = "2h"\n')("apply")

    assert client.get_schedule("f0").definition.options["time_limit"] == 7200


def test_without_tables_there_is_nothing_to_apply_but_something_to_prune(file, client):
    file('every = "1h"')("apply")
    empty = file(text="")

    assert empty("apply").returncode == 3 and empty("apply", "--dry-run").returncode == 3
    assert empty("apply", "--prune").stdout == "f0  removed\n"
    assert "has no recurring tasks" in empty("apply", "--prune").stderr


def test_apply_without_any_file_removes_nothing(run, file, client, monkeypatch, tmp_path):
    file('every = "1h"')("apply")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")

    for words in (("apply",), ("apply", "--prune"), ("apply", "--prune", "--dry-run")):
        result = run("schedule", *words, XDG_CONFIG_HOME=str(tmp_path / "empty"))
        assert (result.returncode, result.stdout) == (3, "")
        assert result.stderr.startswith("blueque: no blueque.toml was found\n")
    assert client.get_schedules() == ["f0"]


def test_a_dry_run_warns_of_a_minute_with_too_many(file, client, monkeypatch):
    monkeypatch.setattr(schedule_file, "MOST_AT_ONCE", 40)
    client.set_schedule("mine", queue="reports", cron="0 0 1 * *")
    many = ['cron = "0 0 1 * *"'] * 40

    found = json.loads(file(*many)("apply", "--dry-run", "--json").stdout)
    spread = json.loads(
        file(*[f'{rule}\njitter = "1h"' for rule in many])("apply", "--dry-run", "--json").stdout
    )
    warned = file(*many)("apply", "--dry-run")

    assert [each["planned"] for each in found["crowded"]] == [41]
    assert spread["crowded"] == []
    assert warned.returncode == 0 and warned.stderr.splitlines()[1].startswith(
        "41 planned times share the minute"
    )


def test_a_dry_run_checks_the_file_before_it_asks_redis(file):
    result = file('every = "1h"')("apply", "--dry-run", "--redis-url", "redis://localhost:1")

    assert result.returncode == 69 and "1 recurring task, no mistake" in result.stderr


def test_a_changed_zone_is_a_change(file, client, cli):
    schedule = file('cron = "30 2 * * *"')
    schedule("apply")
    cli.hincrby(keys.schedule("f0"), "planned", 3600)  # as by another tzdata

    assert schedule("apply", "--dry-run").stdout == "f0  would change: planned\n"
    assert schedule("apply").stdout == "f0  changed: planned\n"
    assert schedule("apply").stdout == "f0  same\n"


def test_a_name_without_a_record_has_no_row(run, redis, cli):
    cli.zadd(keys.SCHEDULES, {"gone": 1})

    assert run("schedule", "ls").stderr == "no recurring tasks\n"
    assert protocol.delete_schedule(redis, "gone", "ann") is False
