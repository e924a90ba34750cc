"""`blueque history`: of a task, and what happens in queues."""

from __future__ import annotations

import json
import time

from running import BLUEQUE, Programs, until
from transactions import protocol

from blueque.model.attempt_ref import AttemptRef
from blueque.model.queue_settings import pausing

NOTIFY = """
    #!/bin/sh
    cat >>told
    [ -e broken ] && rm broken && exit 3
    exit 0
"""


def told(programs: Programs) -> list[tuple[str, str]]:
    path = programs.directory / "told"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(each["task"], each["event"]) for each in map(json.loads, lines)]


def cancel(redis, *tasks):
    for task in tasks:
        protocol.enqueue(redis, "video", task, "1", time.time())
        protocol.cancel(redis, "video", task, "ann", None, time.time())


def test_a_task_has_been_enqueued_by_its_producer_and_says_itself_what_it_has_noted(
    run, redis, client
):
    task = client.get_queue("video").enqueue("in")
    protocol.register(redis, "video", "host_7", "i1", {}, 1.0)
    protocol.pop(redis, "video", "host_7", "i1")
    attempt = AttemptRef("video", task, "token", "host_7")
    protocol.reserve(redis, attempt, "i1", 2.0)
    protocol.start(redis, attempt, 99, 3.0)
    protocol.note(redis, attempt, 1, "took the old model", 4.0)

    lines = run("history", task).stdout.splitlines()

    assert lines[1].split()[-1] == client.get_task(task).producer
    assert lines[-1].split()[-5:] == ["noted", "took", "the", "old", "model"]


def shown(run, *options):
    result = run("history", "-q", "video", "--json", *options)
    assert result.returncode == 0, result.stderr
    return [(each["event"], each["by"]) for each in map(json.loads, result.stdout.splitlines())]


def is_in_the_second_after(redis, second):
    """An event at its very beginning would be of the time until then, too."""
    ((now, microseconds),) = redis.read(("TIME",))
    return now != second and int(microseconds) >= 2000


def test_the_events_of_a_queue_are_shown_by_time_kind_and_person_and_then_it_ends(run, redis):
    cancel(redis, "t-1")
    before = redis.read(("TIME",))[0][0]
    until(lambda: is_in_the_second_after(redis, before), what="the next second")
    protocol.set_settings(
        redis, "video", pausing("Bob@web", None, time.time()), time.time(), "Bob@web"
    )

    assert shown(run) == [("cancelled", "ann"), ("paused", "Bob@web")]
    assert shown(run, "--on", "paused", "--since", "1h") == [("paused", "Bob@web")]
    assert shown(run, "--by", "bob") == [("paused", "Bob@web")]
    assert shown(run, "--until", str(int(before) + 1)) == [("cancelled", "ann")]
    assert shown(run, "--since", str(int(before) + 1)) == [("paused", "Bob@web")]
    assert shown(run, "--on", "failed") == []
    assert run("history", "-q", "video", "--on", "failed").stderr == "no such event\n"


def test_what_people_do_is_told_from_what_listeners_do(run, redis, client):
    client.get_queue("video").enqueue("in")
    protocol.register(redis, "video", "host_7", "i1", {}, 1.0)
    protocol.pop(redis, "video", "host_7", "i1")
    task = client.get_inspector().listing(["video"], ["pending", "reserved"], 1).tasks[0].id
    protocol.reserve(redis, AttemptRef("video", task, "token", "host_7"), "i1", time.time())
    cancel(redis, "t-1")

    assert [event for event, _ in shown(run)] == ["reserved", "cancelled"]
    assert shown(run, "--on", "people") == [("cancelled", "ann")]


def test_each_order_of_a_person_leaves_one_event_with_the_name(run, redis, client):
    queue = client.get_queue("video")
    first = queue.enqueue(1)
    tasks = [queue.enqueue(2) for _ in range(3)]
    later = queue.schedule(3, time.time() + 3600)
    blocked = queue.enqueue(4, after=[first])
    protocol.register(redis, "video", "host_7", "i1", {}, time.time())
    orders = {
        "brought_forward": ("move", later, "--now"),
        "put_first": ("move", tasks[2], "--first"),
        "prioritized": ("move", tasks[0], "--priority", "5"),
        "unblocked": ("move", blocked, "--unblock"),
        "listener_paused": ("host", "pause", "host"),
        "listener_resumed": ("host", "resume", "host"),
        "listener_draining": ("host", "drain", "host"),
        "purged": ("delete", "-q", "video", "--state", "pending", "--force", "--yes"),
    }

    for order in orders.values():
        assert run(*order, "--as", "ann").returncode == 0, order

    assert shown(run, "--on", "people") == [(event, "ann") for event in orders]
    for name in ("listener_paused", "listener paused"):  # as JSON has it, and as the table
        assert shown(run, "--on", name) == [("listener_paused", "ann")]


def test_what_goes_on_is_asked_for(run):
    program = run("history", "-q", "*", "--exec", "true")
    both = run("history", "-f", "-q", "*", "--until", "1h")

    assert (program.returncode, both.returncode) == (2, 2)
    assert "--exec and --place go with --follow" in program.stderr
    assert "give --until or --follow, not both" in both.stderr


def test_events_since_a_time_are_shown_first_when_it_goes_on(programs, redis):
    cancel(redis, "t-1")
    protocol.set_settings(redis, "video", pausing("ann", None, time.time()), time.time(), "ann")
    shown = programs.start(
        [*BLUEQUE, "history", "-fq", "video", "--since", "1h", "--on", "paused", "--json"],
        environ={"BLUEQUE_REDIS_URL": programs.url},
    )

    (event,) = until(shown.said, what="an event")

    assert (event["kind"], event["event"], event["by"]) == ("event", "paused", "ann")


def test_a_program_gets_each_event_and_goes_on_after_the_last_that_it_was_done_with(
    programs, redis
):
    notify = programs.write(NOTIFY, "notify.sh", mode=0o755)
    (programs.directory / "broken").touch()
    command = [*BLUEQUE, "history", "-fq", "video", "--since", "1h", "--on", "cancelled"]
    command += ["--exec", str(notify), "--place", "places.json"]
    environ = {"BLUEQUE_REDIS_URL": programs.url}
    cancel(redis, "t-1", "t-2")

    first = programs.start(command, environ=environ)
    last = programs.client.get_event_places("video")
    file = programs.directory / "places.json"
    until(lambda: file.exists() and json.loads(file.read_text()) == last, what="the events")
    first.stop()
    cancel(redis, "t-3")
    programs.start(command, environ=environ)
    until(lambda: len(told(programs)) == 4, what="the next event")

    tasks = [task for task, _ in told(programs)]
    assert tasks == ["t-1", "t-1", "t-2", "t-3"]  # the program has failed once
    assert "exited with 3; retry in" in first.log


def test_events_of_one_instant_stand_in_the_order_in_which_they_came(run, redis):
    now = time.time()
    protocol.register(redis, "video", "host_1", "i1", {}, now)
    protocol.enqueue(redis, "video", "t1", "1", now)
    protocol.pop(redis, "video", "host_1", "i1")
    attempt = AttemptRef("video", "t1", "token", "host_1")
    protocol.reserve(redis, attempt, "i1", now)
    protocol.start(redis, attempt, 77, now)

    told = run("history", "-q", "video").stdout

    assert told.index("  reserved  ") < told.index("  started  ")


def test_a_line_that_is_too_long_for_the_terminal_goes_on_below_it(run, redis, answer):
    protocol.enqueue(redis, "video", "task-1", "1", time.time())
    reason = " ".join(["the storage is being moved"] * 5)
    protocol.cancel(redis, "video", "task-1", "ann@desk.example.com", reason, time.time())

    piped = run("history", "-q", "video").stdout.splitlines()
    seen = answer(b"", "history", "-q", "video", columns=80)[1].splitlines()

    titles = ["WHEN", "TASK", "EVENT", "QUEUE", "BY", "FACTS"]
    assert piped[0].split() == titles == seen[0].split()
    assert len(piped) == 2 and piped[1].endswith(reason)
    assert len(seen) > 2 and all(len(line) <= 80 for line in seen)
    assert all(line.startswith("    ") for line in seen[2:])
    assert " ".join(" ".join(seen[2:]).split()) == f"reason {reason}"


def test_times_that_no_event_can_have_are_taken_as_the_first_and_the_last(run, redis):
    protocol.enqueue(redis, "video", "task-1", "1", time.time())
    protocol.cancel(redis, "video", "task-1", "ann", None, time.time())

    for times in (["--since=-1"], ["--since=-1", "--until", "9" * 20]):
        assert "  cancelled  " in run("history", "-q", "video", *times).stdout
    assert run("history", "-q", "video", "--since", "9" * 20).stderr == "no such event\n"
    assert run("timeline", "--since=-1").returncode == 0
