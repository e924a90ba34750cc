"""blueque/documents/fields.txt, of which docs/json.md is made: it names every kind of object that a
verb prints with --json, every field, its type, and nothing else.
"""

from __future__ import annotations

import json
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
from dependent import block
from running import until
from transactions import protocol

from blueque import Retry
from blueque.cli.main import VERBS, blueque
from blueque.documents import schema
from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.model.log_line import Line
from blueque.model.new_task import NewTask
from blueque.protocol.ends import End
from blueque.protocol.feeding import FeedRef
from blueque.protocol.graphs import Graph
from blueque.protocol.recover import Loss
from blueque.recovery.group_settling import settle_groups_step

pytest.importorskip("pyarrow")

NODE, DEAD = "gpu-1.example.com_4021", "gpu-2.example.com_77"
# In this order: what changes comes after what only looks. {dir}: a directory of the test.
LINES = (
    "status",
    "status --check",
    "ls",
    "ls --state finished",
    "ls --state held",
    "ls --state scheduled --limit 1",
    "show runs-0001",
    "show bad-0001",
    "show lost-0001",
    "show gone-0001",
    "show again-0001",
    "show {limited}",
    "why pend-0001",
    "show join-0001",
    "why join-0001",
    "graph join-0001",
    "move join-0001 --unblock",
    "logs runs-0001",
    "history runs-0001",
    "timeline",
    "stats",
    "stats --tag customer:17",
    "failures",
    "doctor --settle 0",
    "doctor --fix --settle 0",
    "wait good-0001",
    "wait good-0001 --results",
    "wait pend-0001 --timeout 0.01",
    "wait -q video --timeout 0.01",
    "run video 1 --key again",
    "feed {dir}/backlog video --name f",
    "tags",
    "config",
    "group ls",
    "group show night",
    "group close night",
    "group requeue night --yes",
    "group cancel night --reason late --yes",
    "group forget done",
    "host ls",
    "host show gpu-1",
    "queue ls",
    "schedule show hourly",
    "schedule history hourly",
    "schedule apply --dry-run --config {dir}/schedules.toml",
    "schedule apply --config {dir}/schedules.toml",
    "schedule ls",
    "schedule add daily -q reports --every 1d --dry-run",
    "schedule add daily -q reports --every 1d",
    "schedule add daily -q reports --every 1d --jitter 10m --replace",
    "schedule pause daily --reason deploy",
    "schedule show daily",
    "schedule resume daily",
    "schedule trigger daily --force",
    "schedule trigger daily --since 2026-01-01T00:00Z --until 2026-01-03T00:00Z",
    "schedule rm daily",
    "move late-0001 --now",
    "requeue bad-0001 --dry-run",
    "requeue bad-0001",
    "cancel -q video --state pending --dry-run",
    "cancel pend-0001 good-0001",
    "interrupt runs-0001 --yes",
    "move pend-0002 --priority 5",
    "move pend-0002 --first",
    "move pend-0002 --to audio",
    "delete gone-0001 --yes",
    "delete good-0001 --dry-run",
    "delete good-0001 --yes",
    "group show f",
    "group forget f --yes",
    "queue pause video --reason deploy",
    "queue resume video",
    "queue set video max-running=4 lead=5 retention.failed=9d",
    "queue show video",
    "queue forget video",
    "delete --kept-too-long --dry-run",
    "archive shelf {dir}/archive",
    "delete --kept-too-long --yes",
    "delete -q video --state pending --yes",
    "host pause gpu-1",
    "host resume gpu-1",
    "host drain gpu-1 --yes",
)


PAGE = Path(__file__).parents[2] / "docs" / "json.md"
SHAPES = schema.read()
KINDS = {kind for shape in SHAPES for kind in shape.kinds}
NUMBERS = ("number", "integer")
TYPES = {
    "text": str,
    "number": int | float,
    "integer": int,
    "boolean": bool,
    "list": list,
    "object": dict,
    "any": object,
    "null": type(None),
}


@pytest.fixture
def populated(redis, client, tmp_path):
    """Some of everything; returns what the lines have in braces."""
    now = time.time()
    facts = {
        "beat_every": 10,
        "version": "2.0.0",
        "resources": "gpu=2",
        "spool": "/var/lib/blueque/spool",
        "boot": "b",
    }
    for node in (NODE, DEAD):
        protocol.register(redis, "video", node, "i", facts, now)
    queue = client.get_queue("video")
    for task in ("runs-0001", "good-0001", "bad-0001", "gone-0001", "again-0001", "stop-0001"):
        take(redis, task, now - 60)
    redis.read(("HSET", keys.listener("video", NODE), "stuck", f"runs-0001 {now - 9} D"))
    redis.read(("HSET", keys.task("runs-0001"), "needs", "gpu=1"))
    protocol.progress(
        redis, AttemptRef("video", "runs-0001", "token", NODE), "450/1500 frames", now - 1
    )
    protocol.log(
        redis,
        AttemptRef("video", "runs-0001", "token", NODE),
        1,
        [Line(1, now - 2, "stdout", "hello")],
    )
    protocol.checkpoint(
        redis,
        AttemptRef("video", "runs-0001", "token", NODE),
        1,
        repr(now - 60),
        {"value": '{"frame": 450}'},
        now,
    )
    used = {
        "memory_peak": 2**20,
        "cpu_seconds": 1.5,
        "leaked": 2,
        "files": "/var/lib/blueque/spool/video/bad-0001/1",
    }
    protocol.end(
        redis,
        AttemptRef("video", "good-0001", "token", NODE),
        End.complete('{"frames": 1500}', {"result_encoding": "json", **(used)}),
        now,
    )
    bad = {"error_type": "ValueError", "exit_code": 3, "traceback": "...", "failures": 1, **used}
    protocol.end(
        redis, AttemptRef("video", "bad-0001", "token", NODE), End.fail("ValueError: odd", bad), now
    )
    protocol.cancel(redis, "video", "gone-0001", "ada", "wrong input", now)
    protocol.end(redis, AttemptRef("video", "gone-0001", "token", NODE), End.confirm_cancel(), now)
    more = {
        "failures": 1,
        "last_error": "OSError: no",
        "last_error_type": "OSError",
        "last_files": "/var/lib/x",
    }
    protocol.end(
        redis, AttemptRef("video", "again-0001", "token", NODE), End.retry(now + 3600, more), now
    )
    take(redis, "lost-0001", now - 60, DEAD)
    lost = {"error_type": "lost", "lost_node": DEAD, "last_seen": now - 30}
    (beat,) = redis.read(("HGET", keys.listener("video", DEAD), "beat"))
    assert protocol.fence(redis, "video", DEAD, "i", beat, 9.25)
    protocol.lose(
        redis, AttemptRef("video", "lost-0001", "token", DEAD), "i", Loss("lost", lost), None, now
    )
    protocol.schedule(
        redis, "video", "late-0001", "1", now - 3600, now - 7200, {"parameters_encoding": "json"}
    )
    for n in range(1, 4):
        protocol.enqueue(redis, "video", f"pend-000{n}", "1", now, {"parameters_encoding": "json"})
    protocol.enqueue(redis, "shelf", "old-0001", "1", now - 90, {"parameters_encoding": "json"})
    protocol.register(redis, "shelf", NODE, "i", facts, now)
    limited = queue.enqueue(
        {"input": "a.mov", "n": 3},
        key="k",
        retry=Retry(max=3, backoff=1),
        time_limit="1h",
        stall_limit="10m",
        grace=5,
        lead=9,
        memory_limit="8GiB",
        resources={"gpu": 1, "memory": "8GiB"},
        lock="disk",
        priority=2,
        title="Encode a.mov",
        tags=["customer:17"],
        context={"trace": "4bf9"},
    )
    again = queue.enqueue("1", key="again")
    queue.cancel(again)
    protocol.begin_feed(
        redis, FeedRef("video", "open", "t"), "i", "/backlog", {"node": NODE}, None, now - 7200
    )
    there = queue.enqueue("there", key="there")
    client.group("linked").open(after=there, broken="cancel", keep="90d", hold="until_collected")
    queue.enqueue_many(["1"], keys=["b"], group="batch")
    client.group("done").open().close()
    left = [NewTask("left-0001", "shelf", "1", {"group": "left"}, {"group gate left": "ok"})]
    protocol.open_graph(redis, Graph("left", 60, "0123abcd", left), now - 90)
    night = client.group("night").open()
    client.get_queue("shelf").enqueue("1", group=night)
    client.get_queue("shelf").cancel(client.get_queue("shelf").enqueue("2", group=night))
    settle_groups_step(redis, time.time())
    block(redis, "join-0001", {"bad-0001": "ok", "gone-0001": "any"}, now=now)
    block(redis, "last-0001", "join-0001", now=now)
    block(redis, "stay-0001", "bad-0001", now=now)
    protocol.settle(redis, "bad-0001", now)
    # It would not be blocked any more.
    more = ["broken", "cancel", "group", "night", "spawned_by", "runs-0001"]
    more += ["schedule", "nightly", "planned", int(now)]
    more += ["start_before", int(now), "expired_to", "late"]
    more += ["interrupted_at", int(now), "interrupted_by", "ada", "interrupt_reason", "reboot"]
    redis.read(("HSET", keys.task("join-0001"), *more))
    # What another program has added, and what takes a listener long to come to.
    redis.read(
        (
            "HSET",
            keys.task("bad-0001"),
            "colour",
            "red",
            "requeued",
            "r",
            "interruptions",
            1,
            "run",
            "done",
        )
    )
    hourly = client.set_schedule("hourly", queue="reports", every="1h", parameters={"n": 1})
    hourly.trigger()
    tables = [f'[schedules.n{n}]\nqueue = "reports"\nevery = 10\n' for n in range(170)]
    (tmp_path / "schedules.toml").write_text("".join(tables))
    (tmp_path / "backlog").mkdir()
    (tmp_path / "backlog" / "a.jsonl").write_text('{"n": 1}\n')
    return {"dir": str(tmp_path), "limited": limited}


def take(redis, task, now, node=NODE, queue="video"):
    protocol.enqueue(redis, queue, task, "1", now, {"parameters_encoding": "json"})
    protocol.pop(redis, queue, node, "i")
    protocol.reserve(redis, AttemptRef(queue, task, "token", node), "i", now)
    protocol.start(redis, AttemptRef(queue, task, "token", node), 77, now)


def verbs_with_json():
    context = click.Context(blueque)

    def walk(command, words):
        if any(one.name == "as_json" and not one.hidden for one in command.params):
            yield " ".join(words)
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                yield from walk(command.get_command(context, name), [*words, name])

    return {
        found
        for verb in VERBS
        if verb != "task"
        for found in walk(blueque.get_command(context, verb), [verb])
    }


# The fields


class Field:
    """A field as fields.txt has it. parts: those of an object by name, or what is in a list by [];
    link: the name of a part.
    """

    def __init__(self) -> None:
        self.type, self.link, self.may_be_missing, self.is_seen = "", None, False, False
        self.parts: dict[str, Field] = {}

    def at(self, path):
        field = self
        for name in re.findall(r"\[\]|[^.\[]+", path):
            field = field.parts.setdefault(name, Field())
        return field


def shapes():
    """Return each part and each kind as one field, whose parts are its fields."""
    found = {}
    for shape in SHAPES:
        whole = Field()
        for its in (its for line in shape.lines for its in line):
            paths = [(its.name, its.type)]
            if its.type == "time":
                paths = [(its.name, "text or null"), (f"{its.name}_seconds", "number or null")]
            for path, kind in paths:
                field = whole.at(path)
                field.link = kind.strip("<>") if kind.startswith("<") else None
                field.type = "object" if field.link else kind
                field.may_be_missing = its.is_optional
        found |= dict.fromkeys(shape.kinds or [shape.name], whole)
    return found


def parts_of(field, known):
    return (parts_of(known[field.link], known) if field.link else {}) | field.parts


def faults(value, field, known, where, is_whole=True):
    """Yield what a value has that its field has not, or the other way round. is_whole: nothing is
    left out of it.
    """
    field.is_seen = True
    wanted = field.type or ("list" if "[]" in field.parts else "object")
    parts = parts_of(field, known)
    types = wanted.split(" or ")
    if not any(
        isinstance(value, TYPES[one]) and not (isinstance(value, bool) and one in NUMBERS)
        for one in types
    ):
        yield f"{where} is {value!r}, not {wanted}"
    elif "[]" in parts:
        for one in value or ():
            yield from faults(one, parts["[]"], known, f"{where}[]", is_whole)
    elif parts and value is not None:
        for name in value.keys() - parts.keys():
            yield f"{where}.{name} is not documented"
        for name, part in parts.items():
            if name in value:
                yield from faults(value[name], part, known, f"{where}.{name}", is_whole)
            elif is_whole and not part.may_be_missing:
                yield f"{where}.{name} is not there"


def objects(text):
    while text.strip():
        found, end = json.JSONDecoder().raw_decode(text.strip())
        text = text.strip()[end:]
        assert found.pop("blueque") == 2
        yield found.pop("kind"), found


def test_it_names_what_every_verb_prints_and_nothing_else(run, begin, redis, populated):
    known, printed = shapes(), set()
    for line in LINES:
        result = run(*line.format(**populated).split(), "--json")
        found = list(objects(result.stdout))
        assert found, (line, result.stderr)
        for kind, content in found:
            printed.add(kind)
            assert kind in KINDS, f"{line}: kind {kind} is not documented"
            assert list(faults(content, known[kind], known, kind)) == [], line
    for content in events(begin, redis):
        printed.add("event")
        assert list(faults(content, known["event"], known, "event")) == []

    assert printed == KINDS
    assert not unseen(known), unseen(known)


def unseen(known):
    """Return the fields that nothing has been printed for."""

    def walk(field, where):
        if not field.is_seen and not field.parts:
            yield where
        for name, part in field.parts.items():
            yield from walk(part, f"{where}.{name}".replace(".[]", "[]"))

    return [path for name, shape in known.items() if shape.parts for path in walk(shape, name)]


def events(begin, redis):
    """Follow a queue until it has told something."""
    program = begin("history", "-f", "-q", "shelf", "--json")

    def has_told():
        protocol.enqueue(
            redis,
            "shelf",
            new := f"new-{time.monotonic_ns()}",
            "1",
            time.time(),
            {"parameters_encoding": "json"},
        )
        protocol.cancel(redis, "shelf", new, "ada", None, time.time())
        return select.select([program.stdout], [], [], 0)[0]

    until(has_told)
    return [content for _, content in objects(program.stdout.readline())]


def test_it_names_every_verb_that_has_the_option():
    named = {
        re.sub(" (ID|FEED|--queue|--results|--dry-run|--kept-too-long)$", "", verb)
        for shape in SHAPES
        for verb in shape.verbs
    }

    assert named == verbs_with_json()


def test_the_page_is_made_of_these_fields():
    made = subprocess.run(
        [sys.executable, PAGE.with_name("json_page.py"), "--print"], capture_output=True, text=True
    )

    assert made.stdout == PAGE.read_text(), "write it anew: .venv/bin/python docs/json_page.py"
