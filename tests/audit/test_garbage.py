"""Whatever another program has written into a key or a field: no command, page, scheduler or listener
dies of it or loops on it, other tasks run, and `blueque doctor` names it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import in_process
import pytest
import redis as redis_py
from asking import ask_app
from garbage import FAMILIES, VALUES, Garbage, family_of, garbage, names_of, sweep
from hypothesis import HealthCheck, Phase, given, settings, strategies
from restoring import restoring
from running import until
from test_audit import NODE, D, G, House, Q
from transactions import protocol

from blueque import BluequeError, Client
from blueque.connection.plain import SocketConnection
from blueque.connection.redis import Redis
from blueque.listener.listener import Listener
from blueque.model import keys, limits
from blueque.model.attempt_ref import AttemptRef
from blueque.model.encoding import day_of
from blueque.model.group import condition_on
from blueque.model.log_line import Line
from blueque.model.new_task import NewTask
from blueque.protocol.archiving import BatchRef
from blueque.protocol.feeding import FeedRef
from blueque.scheduler.scheduler import Scheduler
from blueque.spool.spool import Spool
from blueque.system import process
from blueque.system.embedded_redis import Server, running_server
from blueque.web import create_app
from blueque.web.access import Viewer
from blueque.web.objects import OBJECTS
from blueque.web.views import VIEWS

QUEUES = (Q, G, D, "sound")
IS_LONG = bool(os.environ.get("BLUEQUE_SOAK"))
MOST_COMMANDS = 20_000  # that one command, page, or turn of a program may send to Redis
LATER = "4000000000"
HEALTHY = "healthy"  # begins the ids of tasks that nothing is done to, and that have to run
COMMANDS = """
status, status --json, ls, ls --state all --json, queue ls, queue show graph, host ls, host ls --json
host show gpu, stats, stats --json, failures, timeline, tags, metrics --once, schedule ls
schedule ls --json, schedule show paused, schedule history paused, group ls, group show keyed
group show f, export --state all
"""
ORDERS = """
queue pause graph, queue resume graph, queue set graph max-running=7, schedule pause paused
schedule resume over, schedule trigger paused, schedule rm over, group close idle
group cancel g\u00a01 --yes, group requeue g\u00a01 --yes, group forget f1 --yes, host pause gpu
host drain b, enqueue graph {}, wait d-root --timeout 0.01
"""
OF_A_TASK = "show, show --json, why, why --json, logs, history, graph"
ORDERS_OF_A_TASK = """
move --priority 3, move --now, move --unblock, move --first, move --to graph
interrupt, requeue --yes, cancel --yes, delete --yes
"""


# The names that pages are asked for.
NAMES = {"queues": Q, "nodes": NODE, "failures": "other", "schedule": "paused", "groups": "g 1"}


class Looping(BaseException):
    """Redis got more commands than anything may need."""


class Sent:
    """Counts what this process sends to Redis, and stops what sends too much."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.commands = 0
        send = SocketConnection.send

        def counted(connection: SocketConnection, commands: Any) -> None:
            several = [*commands]
            self.commands += len(several)
            if self.commands > MOST_COMMANDS:
                raise Looping(several[:3])
            send(connection, several)

        patch.setattr(SocketConnection, "send", counted)


def flat(fields: dict[str, Any]) -> list[Any]:
    return [word for pair in fields.items() for word in pair]


def furnish(redis: Redis) -> None:
    """Add what a house does not have, and a task in each queue to which nothing is done."""
    attempt, now = AttemptRef(Q, "started", "t-started", NODE), time.time()
    protocol.log(redis, attempt, 1, [Line(n, 5.0, "stdout", f"line {n}") for n in (1, 2)])
    protocol.progress(redis, attempt, "1/2 frames", 6.0)
    new = NewTask("d-group", D, "p", {}, {condition_on("g 1"): "ok"})
    protocol.enqueue_after(redis, [new], 1.0)
    protocol.checkpoint(redis, attempt, 1, "1.0", {"value": "1", "directory": "h:/x"}, 5.0)
    for queue in (Q, G, D):
        protocol.claim_batch(redis, BatchRef(queue, "b", "w"), {}, {}, now)
    for name in ("f", "f1", "f2", "f3"):
        protocol.begin_feed(redis, FeedRef(Q, name, "t"), "i", "s", {}, None, now)
    line = {"attempt": 1, "line": 1, "at": 5.0, "stream": "stdout", "text": "x"}
    stats = {"complete": 2, "complete_s5": 2, "complete_seconds": 10.5, "complete_squares": 60}
    copy = keys.frozen("snap", "complete", Q)
    redis.read(
        ("RPUSH", keys.recent("started"), '{"event":"noted","at":5.0,"attempt":1,"text":"x"}'),
        ("XADD", keys.log_head("started"), "*", *flat(line)),
        ("HSET", keys.stats(Q, day_of(now)), *flat(stats), "error:OSError", 1),
        ("HSET", keys.task("started"), "spawned", 1),
        ("SADD", keys.spawned("started"), b"0123456789abcdef"),
        ("HSET", keys.inputs("d-waits"), "d-root", "tr"),
        ("HSET", keys.task("second"), "start_before", LATER),
        ("ZADD", keys.EXPIRING, LATER, "second"),
        ("SET", keys.snapshot("snap"), now, "EX", 1000),
        ("RPUSH", copy, "complete"),
        ("EXPIRE", copy, 1000),
        ("ZADD", keys.orders(Q, NODE), 0, 0),
        ("ZADD", keys.UNSETTLED_TASKS, 0, "d-root"),
        ("ZADD", keys.UNSETTLED_MEMBERS, 0, "g-next"),
        ("HSET", keys.fed(Q, "f"), "a", "m"),
    )
    for number, queue in enumerate(QUEUES):
        protocol.enqueue(redis, queue, f"{HEALTHY}-{number}", "p", 1.0)


class Stage:
    """A Redis with a key of every family, and all that reads it or acts on it.

    keys: of each family, those that are damaged. complaints: what must not be.
    """

    def __init__(self, server: Server, directory: Path, patch: pytest.MonkeyPatch) -> None:
        self.sent = Sent(patch)
        self.client, self.directory = Client(server.url, patience=0.0), directory
        self.redis = self.client.connections
        with redis_py.Redis.from_url(server.url, decode_responses=True) as cli:
            House(self.redis, cli).build()
        furnish(self.redis)
        self._restoring = restoring(self.redis)
        (names,) = self.redis.read(("KEYS", "*"))
        self.keys: dict[str, list[str]] = {}
        for name in sorted(names):
            if HEALTHY not in name and not name.endswith("_sound"):
                self.keys.setdefault(family_of(name) or name, []).append(name)
        self.fields: dict[str, list[str]] = {}
        for family, some in self.keys.items():
            if FAMILIES[family].types == ("hash",):
                replies = self.redis.read(*[("HKEYS", key) for key in some])
                self.fields[family] = sorted({field for reply in replies for field in reply})
        self.keys["blueque_packing_[task]"] = [keys.packing("started")]  # only within a transaction
        users = {name: text for name, text in os.environ.items() if not name.startswith("BLUEQUE")}
        self._environ = users | {"BLUEQUE_REDIS_URL": server.url, "COLUMNS": "80", "NO_COLOR": "1"}
        self._app = create_app(self.client, authorize=lambda scope: Viewer("ada", "operator"))
        self.tasks = {key.removeprefix(keys.task("")) for key in self.keys["blueque_task_[task]"]}
        self.complaints: list[str] = []
        self.client.close()

    def restore(self) -> None:
        self.sent.commands = 0
        self.redis.read(*self._restoring)
        self.complaints.clear()

    def damage(self, one: Garbage) -> str:
        """Do a damage and return its key."""
        some = self.keys[one.family]
        (members,) = self.redis.answers(("ZRANGE", one.key(some), 0, -1))
        sound = members if isinstance(members, list) else []
        commands = one.commands(some, [member for member in sound if HEALTHY not in member])
        self.redis.answers(*commands)
        if one.what == "named" and one.family == "blueque_task_[task]":  # and put it in line
            self.redis.answers(
                ("LPUSH", keys.pending(Q), one.key(some).removeprefix(keys.task("")))
            )
        return one.key(some)

    def run(self, *words: str) -> Any:
        """Run a command; complain about a mistake of ours, and about raw text."""
        self.sent.commands = 0
        result = in_process.run(words, self._environ)
        output, command = result.stdout + result.stderr, f"blueque {' '.join(words)}"
        if "Traceback" in output or "This is a bug" in output or result.returncode == 70:
            self.complaints.append(f"{command}: {output[-1000:]}")
        raw = re.search(r"[^\n\t -~\xa0-\u2027\u2030-\uffff\U00010000-\U0010ffff]", output)
        if raw is not None:
            self.complaints.append(
                f"{command} prints {raw[0]!r}: {output[raw.start() - 99 :]!r:.300}"
            )
        return result

    def run_each(self, commands: str, names: Sequence[str] | None = None) -> None:
        """Run each of these commands, for each of these names. A no-break space is one within a word."""
        for line in re.split(r"[,\n] *", commands.strip()):
            words = [word.replace("\u00a0", " ") for word in line.split(" ")]
            for end in [[]] if names is None else [["--", name] for name in names]:
                self.run(*words, *end)

    def read(self, tasks: Sequence[str]) -> None:
        """Run each command, and look at each page. tasks: those to look at."""
        self.run_each(COMMANDS)
        self.run_each("queue show", (Q, G))
        self.run_each(OF_A_TASK, tasks)
        paths = []
        for pattern, _ in VIEWS:
            name = NAMES.get(pattern.split("/")[1], "")
            path = pattern.replace("\\", "").replace("(?P<name>.+)", quote(name, safe=""))
            paths += [path.replace("(?P<id>[^/]+)", _quoted(task)) for task in tasks[:1]]
        for kind in OBJECTS:
            name = "paused" if kind.startswith("schedule") else Q
            asked = {"id": tasks[0], "name": name, "group": "g 1"}
            paths.append(f"/api/v1/{kind}?{urlencode(asked, errors='surrogateescape')}")
        for path in paths:
            self.sent.commands = 0
            answer = ask_app(self._app, path)
            if answer.status_code == 500:
                self.complaints.append(f"{path}: {answer.text[-500:]}")

    def act(self) -> None:
        """Be a scheduler and a listener until there is nothing to do."""
        self.sent.commands = 0
        scheduler = Scheduler(self.client)
        with contextlib.closing(scheduler), contextlib.suppress(BluequeError):
            while scheduler.step() == 0:
                pass
        self.sent.commands = 0
        spool = Spool(str(self.directory / "spool"), self.client.max_bytes)
        spool.open()
        for queue in QUEUES:
            with contextlib.suppress(BluequeError):
                self._work(queue, spool)

    def _work(self, queue: str, spool: Spool) -> None:
        listener = Listener(self.redis, [queue])
        listener.obeys_settings = True
        while (task := listener.listen(timeout=0)) is not None:
            limits.of(task.fields, limits.Limits())
            with contextlib.suppress(BluequeError):
                attempt = spool.create(task.id, task.attempt or 1, task.fields)
                if not os.path.realpath(attempt.path).startswith(os.path.realpath(spool.root)):
                    self.complaints.append(f"{attempt.path} is outside of the spool")
                processor = self.client.get_processor(task)
                processor.start(os.getpid())
                processor.complete("done")
        listener.leave()

    def order(self, tasks: Sequence[str]) -> None:
        """Run each command that changes something."""
        self.run_each(ORDERS)
        self.run_each(ORDERS_OF_A_TASK, tasks)

    def doctor(self, *options: str) -> list[dict[str, Any]]:
        result = self.run("doctor", "--settle", "0.001", "--json", *options)
        try:
            found: list[dict[str, Any]] = json.loads(result.stdout)["findings"]
        except (ValueError, KeyError):
            self.complaints.append(f"doctor says {result.stdout[:300]} {result.stderr[-300:]}")
            return []
        return found

    def unfinished(self) -> set[str]:
        """Return the queues whose healthy task has not ended."""
        asked = [("HGET", keys.task(f"{HEALTHY}-{n}"), "status") for n in range(len(QUEUES))]
        statuses = self.redis.read(*asked)
        return {
            queue for queue, status in zip(QUEUES, statuses, strict=True) if status != "complete"
        }

    def has(self, one: Garbage, key: str) -> bool:
        """Tell whether an entry is still where it was written."""
        command = {"list": "LPOS", "set": "SISMEMBER", "sorted set": "ZSCORE"}[one.kind]
        return self.redis.answers((command, key, one.text))[0] not in (None, 0)


def _quoted(task: str) -> str:
    return quote(task, safe="", errors="surrogateescape")


def endure(stage: Stage, damages: Sequence[Garbage]) -> None:
    """Do damages, have everything read them and act on them, and raise for what must not be."""
    stage.restore()
    done = [(one, stage.damage(one)) for one in damages]
    tasks = [key.removeprefix(keys.task("")) for one, key in done if key.startswith(keys.task(""))]
    tasks = [*tasks[:3], "started", "d-last"][:3]

    found = stage.doctor()
    stage.read(tasks)
    stage.act()
    if all(one.what == "value" for one in damages):  # no repair is needed
        for queue in stage.unfinished() - stopped(done):
            stage.complaints.append(f"the task of queue {queue!r} has not run at once")
    for one, key in done:
        is_named = any(each["key"] == key for each in found)
        if one.must_be_named() and not is_named:
            stage.complaints.append(f"doctor does not name {one}, {key}")
        is_entry = one.is_of_an_index() and one.text not in stage.tasks
        if is_entry and not is_named and stage.has(one, key):
            stage.complaints.append(f"doctor does not name the entry {one}, {key}, which stays")
    stage.order(tasks)
    stage.doctor("--fix")
    left = [stage.doctor() for _ in range(2)]
    if [_identities(each) for each in left[1:]] != [_identities(each) for each in left[:1]]:
        stage.complaints.append(f"doctor has found {left[0]}, and then {left[1]}")
    stage.read(tasks[:1])
    stage.act()
    for queue in stage.unfinished() - stopped(done):
        stage.complaints.append(f"the task of queue {queue!r} has not run")
    assert not stage.complaints, "\n".join([*map(str, damages), *stage.complaints])


def _identities(findings: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((each["code"], each["key"], str(each["task"])) for each in findings)


RECORDS = tuple(name.partition("[")[0] for name in FAMILIES if re.search("event|stat|total", name))


def stopped(done: Sequence[tuple[Garbage, str]]) -> set[str]:
    """Return the queues that a damage stops: a key of a wrong type without which none of its tasks can be
    run, a pause, a limit.
    """
    found: set[str] = set()
    for one, key in done:
        is_order = one.family == "blueque_queue_[queue]" and one.field in ("paused", "max_running")
        if (one.what == "type" and not key.startswith(RECORDS)) or is_order:
            found |= {*QUEUES} if key == keys.QUEUES else {q for q in QUEUES if key.endswith(q)}
    return found


@pytest.fixture
def stage(opened: Stage) -> Iterator[Stage]:
    yield opened
    opened.client.close()


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with running_server() as server, pytest.MonkeyPatch.context() as patch:
        yield Stage(server, tmp_path_factory.mktemp("garbage"), patch)


def test_everything_can_be_damaged(stage):
    assert {*FAMILIES} == {*stage.keys}
    hashes = [family for family in FAMILIES.values() if family.types == ("hash",)]
    assert all({*family.fields} or stage.fields[family.template] for family in hashes)
    swept = [one for part in sweep(stage.fields, stage.keys, 0) for one in part]
    assert {(one.family, one.field) for one in swept if one.what == "value"} == {
        (family.template, name)
        for family in FAMILIES.values()
        for name in names_of(family, stage.fields)
    }


def test_nothing_is_wrong_before(stage):
    endure(stage, [])
    stage.restore()
    assert stage.doctor() == []


@pytest.mark.parametrize("turn", range(len(VALUES)) if IS_LONG else (0,))
def test_each_field_and_each_key_may_hold_garbage(stage, turn):
    for part in sweep(stage.fields, stage.keys, turn):
        endure(stage, part)


# What was found: it ended a program or a page, had it loop, or stopped more than it belongs to.
FOUND = [
    Garbage("blueque_task_[task]", 0, "type", "", "x"),  # due: the scheduler looped
    Garbage("blueque_task_[task]", 19, "value", "created", "nan"),  # all queues of its listener
    Garbage("blueque_listener_[queue]_[node]", 1, "value", "state", "-1"),
    Garbage("blueque_nodes_[queue]", 0, "value", "", "\udcff\udcfe"),  # no UTF-8 in a link
    Garbage("blueque_nodes_[queue]", 27, "score", "", ""),  # -inf
    Garbage("blueque_recent_[task]", 0, "value", "", '{"a":' * 5000),
    Garbage("blueque_totals_[queue]", 2, "value", "reserved", "x"),
    Garbage("blueque_queue_[queue]", 1, "value", "max_running", "9" * 5000),
    Garbage("blueque_group_[group]", 0, "value", "hold", "soon"),
    Garbage("blueque_group_[group]", 1, "value", "after", "[" * 100_000),
    Garbage("blueque_feed_[feed]_[queue]", 0, "value", "row", "x"),
    Garbage("blueque_checkpoint_[task]", 0, "value", "attempt", "x"),
    Garbage("blueque_archive_[queue]", 0, "value", "deleted", "x"),
]


@pytest.mark.parametrize("damages", [FOUND[:1], FOUND[1:], *([one] for one in FOUND if IS_LONG)])
def test_what_was_found_is_endured(stage, damages):
    endure(stage, damages)


def test_any_garbage_is_endured(stage):
    damages = strategies.lists(garbage(stage.fields), min_size=1, max_size=3)

    @settings(
        max_examples=int(os.environ.get("BLUEQUE_SOAK_EXAMPLES", 2000)) if IS_LONG else 15,
        derandomize=not IS_LONG,
        phases=(Phase.generate, Phase.shrink) if IS_LONG else (Phase.generate,),
        database=None,
        deadline=None,
        suppress_health_check=[*HealthCheck],
    )
    @given(damages)
    def run(several: list[Garbage]) -> None:
        endure(stage, several)

    run()


WORK = "def work(task):\n    return 'done'\n"


def test_a_listener_and_a_scheduler_run_on_whatever_is_there(stage, programs):
    """They are real processes; every part of the sweep is done to one Redis, one after the other."""
    programs.url = stage.client.url
    queue, shared = stage.client.get_queue("sound"), ("blueque_queues", "type")
    stage.restore()
    listener = programs.listen(*QUEUES, "--handler", "work:work", "--beat", "0.1")
    scheduler, slots = programs.scheduler(), process.children(listener.pid)
    before = {*os.listdir(programs.directory)}
    parts = [FOUND, *sweep(stage.fields, stage.keys, 0)]
    # Without the list of queues nothing can be enqueued.
    parts = [[one for one in part if (one.family, one.what) != shared] for part in parts]
    for part in parts:
        stage.restore()
        for one in part:
            stage.damage(one)
        task = queue.enqueue("x")
        until(lambda task=task: stage.client.get_task(task).status == "complete")
        assert commands_in_five_beats(stage) < 3000  # 500 is usual
    stage.damage(Garbage(*shared[:1], 0, "type", "", "x"))
    assert commands_in_five_beats(stage) < 3000
    assert listener.is_running and scheduler.is_running
    # At the start there may be another child, which has looked at the handler.
    assert process.children(listener.pid) <= slots
    for program in (listener, scheduler):
        assert "Traceback" not in program.log, program.log
    assert {*os.listdir(programs.directory)} <= before | {"__pycache__"}


def commands_in_five_beats(stage: Stage) -> int:
    """Wait for five beats of the listener, and return how many commands Redis got meanwhile."""
    (node,) = stage.client.get_inspector().listeners("sound")

    def look() -> tuple[int, int]:
        beat, stats = stage.redis.read(
            ("HGET", keys.listener("sound", node), "beat"), ("INFO", "stats")
        )
        return int(beat), int(re.findall(r"total_commands_processed:(\d+)", stats)[0])

    (beat, begun) = look()
    until(lambda: look()[0] >= beat + 5)
    return look()[1] - begun
