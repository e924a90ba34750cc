"""The options that select tasks by what they are: the same for ls, cancel, requeue, wait, export and
delete.
"""

from __future__ import annotations

import json
import time

import pytest
from transactions import protocol

from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.protocol.ends import End
from blueque.queries import search
from blueque.queries.listing import STATUSES
from blueque.queries.selection import Selection

NODE = "gpu-1.example.com_4021"


@pytest.fixture
def run(run):
    """Run it and return exit code, lines of output and of remarks."""

    def lines(*arguments):
        result = run(*arguments)
        return result.returncode, result.stdout.splitlines(), result.stderr.splitlines()

    return lines


@pytest.fixture
def now(redis, client):
    """Tasks by letters: failed a and b, ten and two hours ago; c and d of group night, d with a key;
    e with a key; f waits for another attempt.
    """
    now = time.time()
    protocol.register(redis, "video", NODE, "i", {"beat_every": 10}, now)
    for task, age, error in (("a", 36000, "OSError"), ("b", 7200, "ValueError")):
        take(redis, task, '{"scene":"intro"}', now - age - 10)
        fields = {"error_type": error, "exit_code": 3}
        protocol.end(
            redis, AttemptRef("video", task, "t", NODE), End.fail("Disk full", fields), now - age
        )
    take(redis, "f", "1", now - 60)
    more = {"failures": 1, "last_error": "no route", "last_error_type": "OSError"}
    protocol.end(redis, AttemptRef("video", "f", "t", NODE), End.retry(now + 3600, more), now)
    for task, fields in (("c", {"group": "night"}), ("d", {"group": "night", "key": "k1"})):
        put(redis, task, '{"scene":"Übersicht"}', fields, now)
        join(redis, task, now)
    put(redis, "e", '{"scene":"outro"}', {"key": "k2"}, now)
    return now


def put(redis, task, text, fields, now):
    protocol.enqueue(redis, "video", task, text, now, {"parameters_encoding": "json", **fields})


def join(redis, task, now):
    """Make a task a member of the group night."""
    redis.read(
        ("HSET", keys.task(task), "group", "night"),
        ("ZADD", keys.members("night"), now, task),
        ("HSET", keys.group("night"), "group", "night", "state", "closed"),
        ("ZADD", keys.GROUPS, "+inf", "night"),
    )


def take(redis, task, text, at):
    put(redis, task, text, {}, at)
    protocol.pop(redis, "video", NODE, "i")
    protocol.reserve(redis, AttemptRef("video", task, "t", NODE), "i", at)
    protocol.start(redis, AttemptRef("video", task, "t", NODE), 77, at)


ALL = [
    (["--key", "k1"], "d"),
    (["--key", "k1", "--key", "k2"], "de"),
    (["--group", "night"], "cd"),
    (["--group", "night", "--key", "k2"], ""),
    (["--error-type", "OSError"], "af"),
    (["--error-type", "ValueError", "--error-type", "OSError"], "abf"),
    (["--text", "DISK"], "ab"),
    (["--text", "übers"], "cd"),
    (["--text", "no route"], "f"),
    (["--text", "K2"], "e"),
    (["--error-type", "OSError", "--until", "3h"], "a"),
    (["--text", "intro", "--since", "3h"], "b"),
    (["--text", "intro", "--since", "11h", "--until", "3h"], "a"),
]


@pytest.mark.usefixtures("now")
@pytest.mark.parametrize(("options", "found"), ALL)
def test_ls_lists_what_is_selected_in_all_states(run, options, found):
    assert sorted(run("ls", "--ids", *options)[1]) == list(found)


@pytest.mark.usefixtures("now")
@pytest.mark.parametrize(
    ("options", "found"), [(["--group", "night"], "cd"), (["--since", "11h", "--until", "3h"], "a")]
)
def test_export_writes_what_is_selected(run, options, found):
    lines = run("export", "--state", "all", *options)[1]

    assert sorted(json.loads(line)["id"] for line in lines) == list(found)


@pytest.mark.usefixtures("now")
@pytest.mark.parametrize(
    ("verb", "options", "found"),
    [
        ("cancel", ["--group", "night"], "cd"),
        ("cancel", ["-q", "video", "--text", "intro"], ""),
        ("cancel", ["--error-type", "OSError"], "f"),
        ("cancel", ["--key", "k2", "--state", "scheduled"], ""),
        ("requeue", ["--error-type", "OSError"], "a"),
        ("requeue", ["--text", "disk"], "ab"),
        ("requeue", ["--until", "3h"], "a"),
        ("delete", ["--text", "disk", "--since", "3h"], "b"),
        ("delete", ["-q", "video"], "ab"),
        ("delete", ["--state", "cancelled", "--text", "disk"], ""),
    ],
)
def test_what_is_selected_is_changed_after_a_yes(run, client, verb, options, found):
    before = {task: client.get_task(task).status for task in "abcdef"}
    dry = run(verb, *options, "--dry-run")[1]
    asked = run(verb, *options)
    done = run(verb, *options, "--yes") if asked[0] == 6 else asked

    assert [line[0] for line in dry] == list(found)
    if len(found) > 1 or (found and verb != "requeue"):
        assert (asked[0], asked[1]) == (6, [])  # one task is put in line without a question
    assert (done[0], [line[0] for line in done[1]]) == (0, list(found))
    changed = {task for task in "abcdef" if client.get_task(task).status != before[task]}
    assert changed == set(found)


def test_wait_waits_for_what_is_selected_now(run, redis):
    protocol.register(redis, "video", NODE, "i", {"beat_every": 10}, 1000.0)
    take(redis, "c", "1", 1001.0)
    join(redis, "c", 1001.0)
    protocol.end(redis, AttemptRef("video", "c", "t", NODE), End.complete("1", {}), 1002.0)

    assert run("wait", "--group", "night")[0] == 0
    assert run("wait", "--key", "day") == (3, [], ["no tasks"])


@pytest.mark.usefixtures("now")
def test_a_task_is_found_by_its_key_however_many_tasks_there_are(run, client, monkeypatch):
    keyed = client.get_queue("video").enqueue("1", key="k9")
    monkeypatch.setattr(search, "MOST_SEARCHED", 1)

    code, lines, remarks = run("cancel", "--key", "k9", "--yes")

    assert (code, lines) == (75, [f"{keyed}  cancelled"])
    assert remarks == ["Only the first 1 tasks of each queue and state were searched."]


def test_wait_prints_the_results_of_many_tasks(run, redis):
    protocol.register(redis, "video", NODE, "i", {"beat_every": 10}, 1000.0)
    of_a, of_b = (AttemptRef("video", task, "t", NODE) for task in "ab")
    take(redis, "a", "1", 1001.0)
    protocol.end(redis, of_a, End.complete('{"n":1}', {"result_encoding": "json"}), 1002.0)
    take(redis, "b", "1", 1001.0)
    protocol.end(redis, of_b, End.fail("odd", {"error_type": "ValueError"}), 1003.0)
    for task in "ab":
        join(redis, task, 1001.0)

    code, lines, _ = run("wait", "--group", "night", "--results")

    found = sorted((json.loads(line) for line in lines), key=lambda item: item["id"])
    assert (code, [item["kind"] for item in found]) == (4, ["result", "result"])
    assert [(item["id"], item["status"], item["group"]) for item in found] == [
        ("a", "complete", "night"),
        ("b", "failed", "night"),
    ]
    assert [(item["result"], item["error_type"], item["error"]) for item in found] == [
        ({"n": 1}, None, None),
        (None, "ValueError", "odd"),
    ]


@pytest.mark.usefixtures("now")
def test_json_of_ls_says_how_far_it_was_searched(run, redis, monkeypatch):
    def listed(*options):
        found = json.loads("\n".join(run("ls", "--json", *options)[1]))
        return [item["id"] for item in found["items"]], found["more"], found["looked_at"]

    assert listed("--text", "übers", "--limit", "1") == (["c"], 1, None)
    monkeypatch.setattr(search, "MOST_SEARCHED", 3)
    redis.read(("LPUSH", keys.failed("video"), "x", "y"))
    assert listed("--text", "übers") == (["c"], None, 1)


@pytest.mark.usefixtures("now")
def test_the_texts_of_many_tasks_are_read_once(client, proxy):
    inspector = type(client)(proxy.url).get_inspector()
    choice = Selection(text="scene").choice(["video"], inspector, print)
    inspector.now()
    before = proxy.writes

    found = inspector.listing(["video"], STATUSES, 9, choice).tasks

    assert len(found) == 5
    assert proxy.writes - before == 5  # lengths, listeners, ids, tasks, texts
