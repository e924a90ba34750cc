"""The pages of the protocol are what the server sees: their sections, commands, keys and fields
against the code.

Each Sample runs one function on a real Redis under MONITOR. What the server has seen must be what
the function's section prints, once its placeholders are filled with the values of the sample. To
follow a change of the protocol, change the section and, if a placeholder or a condition is new, the
samples of that function. `protocol_pages` reads the pages.
"""

from __future__ import annotations

import inspect
import itertools
import json
import re
import shlex
import socket
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock
from urllib.parse import unquote as percent_decoded

import pytest
from protocol_pages import (
    CORE,
    DEFINITIONS,
    PAGES,
    PRINTED,
    TEXT,
    blank,
    blocks,
    chapter,
    first_column,
    headings,
    key_rows,
    remark,
    section,
    sections,
    sentences,
    written,
)
from transactions import TRANSACTIONS, protocol

import blueque
from blueque.connection.redis import Redis, as_hash
from blueque.errors import (
    BluequeError,
    HasDependents,
    InvalidInput,
    NoSuchGroup,
    NoSuchSchedule,
    NoSuchTask,
    NotFree,
    NotOwner,
    NotRegistered,
    Taken,
    WrongGroup,
    WrongQueue,
    WrongSchedule,
    WrongState,
)
from blueque.listener.resources import Pool
from blueque.listener.time_left import TimeLeft
from blueque.model import group as group_fields
from blueque.model import keys
from blueque.model import schedule as schedule_fields
from blueque.model.attempt_ref import AttemptRef
from blueque.model.conditions import KINDS
from blueque.model.encoding import day_of
from blueque.model.group import Links
from blueque.model.group_terms import Terms
from blueque.model.ids import (
    FEED_NAMESPACE,
    GROUP_NAMESPACE,
    NAMESPACE,
    SCHEDULE_NAMESPACE,
    SPAWN_NAMESPACE,
    WORKFLOW_NAMESPACE,
    id_of_occurrence,
    id_of_trigger,
    ids_of_feed,
    ids_of_group_keys,
    ids_of_keys,
    ids_of_schedule,
    ids_of_spawned,
    ids_of_workflow,
)
from blueque.model.lines import write_needs
from blueque.model.log_line import Line
from blueque.model.new import spawned_id
from blueque.model.new_task import NewTask
from blueque.model.queue_settings import NOT_PAUSED, pausing
from blueque.model.recurrence import Rule
from blueque.model.retry import Retry
from blueque.model.schedule import Definition, digest_of
from blueque.model.states import STATUSES, TYPES, Entry, Place
from blueque.model.task import FIELDS
from blueque.model.units import Timing
from blueque.producer.queue import Queue
from blueque.protocol import rechecking, settling
from blueque.protocol.archiving import BatchRef, Written
from blueque.protocol.bulk import Batch, NewTasks
from blueque.protocol.ends import End
from blueque.protocol.events import SETTLED, Event
from blueque.protocol.feeding import FEEDER, Cursor, FeedChunk, FeedRef, Whole, Window
from blueque.protocol.graphs import Graph
from blueque.protocol.members import MemberBatch
from blueque.protocol.membership import Heartbeat
from blueque.protocol.occurrences import plan_of
from blueque.protocol.parents import TaskParent, parent_of
from blueque.protocol.pruning import FinishedTask
from blueque.protocol.recover import Loss
from blueque.protocol.reserving import Popped
from blueque.protocol.schedules import Define, Pause, Resume
from blueque.protocol.transaction import prove
from blueque.system.embedded_redis import Server

ROOT = Path(__file__).parents[2]
# A page and the titles of some of its sections, as docstrings and comments name them.
PAGE_NAMED = re.compile(r'(docs/protocol[\w./-]*?\.md)((?:,?(?:\s|#)*(?:and )?"[^"]+")*)')
CONSTANTS = {
    keys.QUEUES,
    keys.UNSETTLED_TASKS,
    keys.UNSETTLED_MEMBERS,
    keys.GROUPS,
    keys.SCHEDULES,
    keys.TAGS,
    keys.EXPIRING,
}  # keys without a name in them
ID_MAKERS: Mapping[uuid.UUID, Callable[..., list[bytes]]] = {
    NAMESPACE: ids_of_keys,
    GROUP_NAMESPACE: ids_of_group_keys,
    FEED_NAMESPACE: ids_of_feed,
    SPAWN_NAMESPACE: ids_of_spawned,
    WORKFLOW_NAMESPACE: ids_of_workflow,
    SCHEDULE_NAMESPACE: ids_of_schedule,
}

Command = list[str]
Values = Mapping[str, Any]


# Reading the document


def commands(
    lines: Sequence[str], values: Values, holds: Sequence[str] = (), look: str = ""
) -> list[Command]:
    """Return the commands of some lines with their placeholders filled, those of their events
    included.

    holds: the conditions, as after "# if", under which the optional lines stand.
    look: "second" for the lines of a second look; otherwise those lines are left out that belong to
        it only.
    """
    found = []
    for line in lines:
        command, of_look, when = remark(line)
        words = shlex.split(command)
        if of_look and of_look != (look or "first"):
            continue
        if when.startswith("each "):
            names = re.findall(r"\[(\w+)\]", when)
            rows = zip(*[values[name] for name in names], strict=True)
            for row in rows:
                found += command_of(words, {**values, **dict(zip(names, row, strict=True))})
        elif not when or when.removeprefix("if ") in holds:
            found += command_of(words, values)
    return found


def command_of(words: Sequence[str], values: Values) -> list[Command]:
    if words[0] not in PRINTED:
        return [fill(words, values)]
    named = dict(zip(words[2::2], words[3::2], strict=False))
    values = {**values, "WHAT": words[1]}
    facts = {name: known(word, values) for name, word in named.items()}
    values = {
        **values,
        "QUEUE": facts.pop("in", values["QUEUE"]),
        "TASK": facts.pop("of", values["TASK"]),
    }
    if words[0] == "COUNT":
        told = {
            name: known(word, values) for name, word in zip(words[3::2], words[4::2], strict=True)
        }
        values = {**values, "QUEUE": told.pop("in", values["QUEUE"])}
        return commands(
            DEFINITIONS["COUNT"],
            {**values, **numbers(values, told), "TIMES": known(words[2], values)},
            ["it says what it took"] if "took" in told else [],
        )
    past: Mapping[str, str] = values["BEFORE"].get(values["TASK"], {})
    told = {
        "event": words[1],
        "at": values["NOW"],
        "attempt": int(values.get("ATTEMPT", past.get("attempt", 0))),
    }
    told |= {name: fact for name, fact in facts.items() if fact is not None}
    is_early = int(past.get("events", 0)) < 20
    history = keys.history(values["TASK"]) if is_early else keys.recent(values["TASK"])
    values = {
        **values,
        **numbers(values, told),
        "EVENTS": int(past.get("events", 0)) + 1,
        "HISTORY": history,
    }
    values["EVENT"] = json.dumps(told, separators=(",", ":"))
    holds = [
        text
        for text, is_so in (
            ("it is not one of the first 20", not is_early),
            ("it says what it took", "took" in told),
            ("it has an error type", "error_type" in told),
            ("that is lost or poison", told.get("error_type") in ("lost", "poison")),
            *[
                (f"{ENDS}, and the task has {what}", words[1] in SETTLED and field in past)
                for field, what in (("dependents", "`dependents`"), ("group", "a `group`"))
            ],
        )
        if is_so
    ]
    return commands(printed(words[0]), values, holds)


def printed(name: str) -> list[str]:
    """Return the lines that a word stands for, with what the words in them stand for."""
    return [line for part in DEFINITIONS.get(name, []) for line in printed(part) or [part]]


def known(word: str, values: Values) -> Any:
    """Return the value that a word of an event stands for; None: it is not known."""
    name = word.strip("[]")
    if not word.startswith("["):
        return word
    past: Mapping[str, str] = values["BEFORE"].get(values["TASK"], {})
    if name == "WAITED":
        return values["NOW"] - max(
            float(past.get(field, 0)) for field in ("created", "eta", "queued")
        )
    if name == "BEGAN":
        return past["started"]
    if name == "RAN":
        ended = (
            values["FINISHED"]
            if values["WHAT"] in ("complete", "failed") and "FINISHED" in values
            else values["NOW"]
        )
        return max(ended - float(past["started"]), 0.0) if "started" in past else None
    facts = dict(zip(values.get("FACTS", ())[::2], values.get("FACTS", ())[1::2], strict=True))
    who = (
        dict(zip(values.get("WHO", ())[::2], values.get("WHO", ())[1::2], strict=True))
        if name in ("BY", "REASON")
        else {}
    )
    found = {
        "ERROR_TYPE": facts.get("error_type"),
        "LAST_ERROR": facts.get("last_error"),
        "LAST_ERROR_TYPE": facts.get("last_error_type"),
        "BY": who.get("cancelled_by", "bob"),
        "REASON": values.get("REASON") or who.get("cancel_reason"),
    }
    return found[name] if name in found else values[name]


def numbers(values: Values, told: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the second block of an event needs; all samples are of the first day, and take
    less than a minute.
    """
    took = told.get("took", 0.0)
    return {
        "DAY": "1970-01-01",
        "UNTIL": 91 * 86400,
        "TIMES": 1,
        "TOOK": took,
        "SQUARE": took * took,
        "BUCKET": f"s{int(took)}",
        "TYPE": told.get("error_type"),
    }


def fill(words: Sequence[str], values: Values) -> Command:
    filled: Command = []
    for word in words:
        if word.endswith("..."):
            # One for each value of those that are lists; what is no list is the same in all of
            # them.
            names = [
                name for name in re.findall(r"\[(\w+)\]", word) if isinstance(values[name], list)
            ]
            rows = zip(*[values[name] for name in names], strict=True)
            filled += [
                substitute(word[:-3], {**values, **dict(zip(names, row, strict=True))})
                for row in rows
            ]
        else:
            filled.append(substitute(word, values))
    return filled


def substitute(word: str, values: Values) -> str:
    return re.sub(r"\[(\w+)\]", lambda match: str(values[match[1]]), word)


def group(title: str) -> list[str]:
    """Return the fields that are removed together: those in the table of a chapter."""
    return first_column(chapter(title))


def conditions(lines: Sequence[str]) -> set[str]:
    return {when.removeprefix("if ") for _, _, when in map(remark, lines) if when.startswith("if ")}


# Watching the server


class Monitor:
    """What the server sees, on a connection of its own."""

    def __init__(self, server: Server) -> None:
        self._socket = socket.create_connection(("127.0.0.1", server.port), 10)
        self._lines = self._socket.makefile("rb")
        self._socket.sendall(b"MONITOR\r\n")
        assert self._lines.readline() == b"+OK\r\n"

    def commands_of(self, redis: Redis, action: Callable[[], object]) -> list[Command]:
        """Run the action and return the commands that came over the connection of `redis`, this
        thread's, meanwhile.
        """
        begin, end = ["ECHO", f"begin {uuid.uuid4()}"], ["ECHO", f"end {uuid.uuid4()}"]
        prove(redis.connection())  # the empty MULTI of a new connection is no part of any section
        redis.read(begin)
        try:
            action()
        finally:
            redis.read(end)
        client = next(client for client, command in self._seen() if command == begin)
        found: list[Command] = []
        for other, command in self._seen():
            if command == end:
                break
            if other == client:
                found.append(command)
        return found

    def commands_until_now(self, redis: Redis) -> list[Command]:
        """Return the commands of everybody since the last call."""
        return [command for _, command in self.seen_until_now(redis)]

    def seen_until_now(self, redis: Redis) -> list[tuple[str, Command]]:
        """Return the commands of everybody since the last call, each with the address of its
        client.
        """
        end = ["ECHO", f"end {uuid.uuid4()}"]
        redis.read(end)
        return list(itertools.takewhile(lambda seen: seen[1] != end, self._seen()))

    def _seen(self) -> Iterator[tuple[str, Command]]:
        for line in self._lines:
            match = re.fullmatch(rb"\+[\d.]+ \[\d+ (\S+)\] (.*)\r\n", line)
            assert match, line
            yield (
                match[1].decode(),
                [unquote(part) for part in re.findall(rb'"((?:[^"\\]|\\.)*)"', match[2])],
            )

    def close(self) -> None:
        self._lines.close()
        self._socket.close()


def unquote(text: bytes) -> str:
    """Undo the quoting of MONITOR."""
    letters = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"a": b"\a", b"b": b"\b"}

    def undo(match: re.Match[bytes]) -> bytes:
        code = match[1]
        return bytes([int(code[1:], 16)]) if code[:1] == b"x" else letters.get(code, code)

    return re.sub(rb"\\(x[0-9a-f]{2}|.)", undo, text).decode("utf-8", "surrogateescape")


@pytest.fixture
def monitor(server: Server) -> Iterator[Monitor]:
    monitor = Monitor(server)
    yield monitor
    monitor.close()


# The samples. Names with spaces, quotes and so on, for the document must hold for them as well.

Q = 'films "à la carte" \\ [1] # {2}\n'
NODE = "a host_7"
DEAD = "a host_6"
I, T = "instance-1", "token-1"  # noqa: E741
Given = Callable[[Redis], object]


class Sample(NamedTuple):
    """One call of one function.

    given: what makes the state that it meets.
    holds: the conditions under which optional lines are sent.
    block: which change of the section applies.
    look: which look goes before it; None: the one above it.
    until: the line that is not reached, for there is nothing to change. At MULTI, UNWATCH comes
        instead.
    refuses: the error that is raised.
    answers: what the call returns; ANY for what other tests look at.
    """

    function: str
    case: str
    given: Given
    call: Given
    values: Values
    holds: Sequence[str] = ()
    block: int = 0
    look: int | None = None
    until: str = ""
    refuses: type[BluequeError] | None = None
    answers: Any = mock.ANY


class Case(NamedTuple):
    """What is special in a sample of a function.

    values: what is other than in most samples of the function, by the names of its placeholders.
    """

    name: str
    given: Given
    holds: Sequence[str]
    values: Values
    fields: Mapping[str, Any]


def case(
    name: str,
    given: Given,
    *holds: str,
    call: Given | None = None,
    values: Values | None = None,
    block: int = 0,
    look: int | None = None,
    until: str | None = None,
    refuses: type[BluequeError] | None = None,
    answers: Any = mock.ANY,
    **changed: Any,
) -> Case:
    """Return a case, for `samples`. call, values: if they are other ones than in most samples.

    until: see Sample. A call that is refused reaches no MULTI.
    """
    if until is None:
        until = "MULTI" if refuses else ""
    fields = {"block": block, "look": look, "until": until, "refuses": refuses, "answers": answers}
    fields |= {} if call is None else {"call": call}
    fields |= {} if values is None else {"values": values}
    return Case(name, given, holds, changed, fields)


def samples(function: str, call: Given, values: Values) -> Callable[..., list[Sample]]:
    """Return what makes samples of a function from its cases."""

    def made(*cases: Case) -> list[Sample]:
        found = []
        for each in cases:
            sample = Sample(function, each.name, each.given, call, values, each.holds)
            sample = sample._replace(**each.fields)
            found.append(sample._replace(values={**sample.values, **each.values}))
        return found

    return made


def given(*steps: Given) -> Given:
    return lambda redis: [step(redis) for step in steps]


def raw(*command: Any) -> Given:
    """What another program did."""
    return lambda redis: redis.read(command)


def enqueued(task: str, parameters: str = "p", **options: Any) -> Given:
    return lambda redis: protocol.enqueue(redis, Q, task, parameters, 1.0, options)


def scheduled(task: str, eta: float, **options: Any) -> Given:
    return lambda redis: protocol.schedule(redis, Q, task, "p", eta, 1.0, options)


def registered(node: str = NODE, instance: str = I) -> Given:
    return lambda redis: protocol.register(redis, Q, node, instance, {"pid": 7}, 2.0)


def in_two(redis: Redis) -> None:
    registered()(redis)
    protocol.register(redis, "audio", "host_1b", "instance-1b", {"pid": 7}, 2.0)


def popped(node: str = NODE, instance: str = I, line: str = "0") -> Given:
    return lambda redis: protocol.pop(redis, Q, node, instance, line)


def reserved(task: str, node: str = NODE, instance: str = I, token: str = T) -> Given:
    return given(
        enqueued(task),
        popped(node, instance),
        lambda redis: protocol.reserve(redis, AttemptRef(Q, task, token, node), instance, 3.0),
    )


def started(task: str, node: str = NODE, instance: str = I) -> Given:
    return given(
        reserved(task, node, instance),
        lambda redis: protocol.start(redis, AttemptRef(Q, task, T, node), 99, 4.0),
    )


def waiting(task: str, eta: float | None = None, queue: str = Q, **conditions: Any) -> Given:
    """A task with these conditions, and other fields, which have no word of a condition."""
    after = {each: kind for each, kind in conditions.items() if kind in KINDS}
    options = {name: value for name, value in conditions.items() if name not in after}
    new = NewTask(task, queue, "p", options, after, eta)
    return lambda redis: protocol.enqueue_after(redis, [new], 1.0)


def in_time(task: str, before: float = 9.0, **options: Any) -> Given:
    """A task that must start by a time; by default it has not."""
    return enqueued(task, start_before=before, **options)


def ended(how: End) -> Given:
    """Let the task that is the next be run, with this end."""

    def end(redis: Redis) -> None:
        (task,) = redis.read(("LINDEX", keys.pending(Q), -1))
        attempt = AttemptRef(Q, task, T, NODE)
        given(registered(), popped())(redis)
        protocol.reserve(redis, attempt, I, 3.0)
        protocol.start(redis, attempt, 99, 4.0)
        protocol.end(redis, attempt, how, 5.0)

    return end


completes, fails = ended(End.complete("r")), ended(End.fail("e"))
is_parent = raw("HSET", keys.task("t1"), "dependents", 1)


def completed(task: str) -> Given:
    return given(
        registered(),
        started(task),
        lambda redis: protocol.end(redis, AttemptRef(Q, task, T, NODE), End.complete("r"), 5.0),
    )


def failed(task: str) -> Given:
    return given(
        registered(),
        started(task),
        lambda redis: protocol.end(redis, AttemptRef(Q, task, T, NODE), End.fail("e"), 5.0),
    )


def reserved_by_1_0_0(task: str) -> Given:
    return given(
        raw(
            "HSET",
            keys.task(task),
            "status",
            "reserved",
            "queue",
            Q,
            "parameters",
            "p",
            "node",
            NODE,
        ),
        raw("LPUSH", keys.reserved(Q, NODE), task),
    )


nothing = given()
struck_off = raw("SREM", keys.listeners(Q), NODE)
FACTS = {"pid": 7, "version": "2"}
IDENTITY = {"pid_start": 12, "boot": "b", "ns": "4026"}
ENDING = {"error_type": "signal", "signal": "SIGKILL"}
FAILURE = {"failures": 1, "last_error": "e", "last_error_type": "ValueError"}
MEASURED = {"memory_peak": 4096, "cpu_seconds": 1.5}


def flat(mapping: Mapping[str, Any]) -> list[Any]:
    return [item for pair in mapping.items() for item in pair]


def in_default_line(*tasks: str) -> Values:
    return {"LINE": [keys.pending(Q)], "JOINING": [list(tasks)]}


def octets(*tasks: str) -> list[str]:
    return [uuid.UUID(task).bytes.decode("utf-8", "surrogateescape") for task in tasks]


IN_NO_LINE = {"LINE": [], "JOINING": [], "NAME": [], "PRIORITY": [], "LOCKED": [], "LOCK": []}
NONE: list[str] = []
TASK = {
    "QUEUE": Q,
    "TASK": "t1",
    "NODE": NODE,
    "NOW": 9.25,
    "TOKEN": T,
    "INSTANCE": I,
    "OUTCOME": group("Outcome"),
    "OWNER": group("Owner"),
    "LINE": keys.pending(Q),
    "ROOM": [],
    # No groups, unless a sample says so.
    **dict.fromkeys(("GROUP", "OUTER", "ENTERED", "ENTRANTS", "PLACES", "TIED"), NONE),
    **dict.fromkeys(("AWAITED", "WAITERS", "UNAWARE", "OVER"), NONE),
    # Nor tags.
    **dict.fromkeys(("TAG", "TAGGING", "TAGGED", "UNTAGGING"), NONE),
}
# A line that is not the default one, and what a task has that stands in it; with a lock, and
# without.
URGENT = {"NAME": "5,gpu=1", "PRIORITY": 5, "LINE": keys.line(Q, "5,gpu=1")}
SHARED = {
    "NAME": "0,lock:a%20b=2",
    "PRIORITY": 0,
    "LINE": keys.line(Q, "0,lock:a%20b=2"),
    "LOCK": "a b",
}
IS_URGENT, IS_SHARED = {"priority": 5, "needs": "gpu=1"}, {"needs": "lock:a%20b=2"}
urgent = raw("HSET", keys.task("t1"), "priority", 5, "needs", "gpu=1")
holding = raw("HSET", keys.task("t1"), "needs", "lock:a%20b=2", "lock", "a b", "counted", 1)
limited = raw("HSET", keys.settings(Q), "max_running", 3)
OPTIONS = {
    "retry": '{"max":3,"on":["ValueError"]}',
    "time_limit": 7200,
    "memory_limit": 2**33,
    "lead": 0.5,
    "tags": "customer:17 ü",
}


def tagging(*tasks: str) -> Values:
    """What is entered for new tasks with the tags in OPTIONS."""
    tags = ["customer:17", "ü"]
    entries = [[word for task in tasks for word in (0, f"{tag} {task}")] for tag in tags]
    return {"TAG": tags, "TAGGING": entries}


def untagging(*tasks: str) -> Values:
    """What is removed for tasks with these tags."""
    entries = [[f"customer:17 {task}", f"ü {task}"] for task in tasks]
    return {"TAGGED": list(tasks), "UNTAGGING": entries}


def tagged(*tasks: str) -> Given:
    return given(*[raw("HSET", keys.task(task), "tags", OPTIONS["tags"]) for task in tasks])


NEW = {
    **TASK,
    "PARAMETERS": 'line 1\r\n"quoted" \\x00 \x00\x1b\a\b\t é ☃',
    "ENCODING": [],
    "OPTIONS": [],
    "KEYED": [],
}
NEW_JSON = {
    **NEW,
    "PARAMETERS": '{"a":1}',
    "ENCODING": ["parameters_encoding", "json"],
    "OPTIONS": flat(OPTIONS),
    **tagging("t1"),
}
JSON_OPTIONS = {"parameters_encoding": "json", **OPTIONS}
A_KEY = {"key": "a", "keep": 60, "enqueued_by": "m"}
WITH_KEY = {**NEW, "KEYED": flat(A_KEY), "GIVEN": A_KEY}
TEXTS = ["p", NEW["PARAMETERS"], "100 %s"]
MANY = {
    **NEW,
    "ALL": ["t1", "t2", "t3"],
    "TASK": ["t1", "t2", "t3"],
    "TEXTS": TEXTS,
    "FIRST": "t1",
    "PARAMETERS": TEXTS,
    "ENTRIES": [9.25, "t1", 9.25, "t2", 9.25, "t3"],
    **IN_NO_LINE,
    **in_default_line("t1", "t2", "t3"),
    "NEW": ["t1", "t2", "t3"],
    "KEYED": [[]] * 3,
}
MANY_SHARED = {
    **MANY,
    "GIVEN": IS_SHARED,
    "OPTIONS": flat(IS_SHARED),
    "LINE": [SHARED["LINE"]],
    "NAME": [SHARED["NAME"]],
    "PRIORITY": [0],
    "LOCKED": [SHARED["NAME"]],
    "LOCK": ["a b"],
}
MANY_JSON = {
    **MANY,
    "ENCODING": NEW_JSON["ENCODING"],
    "OPTIONS": NEW_JSON["OPTIONS"],
    **tagging("t1", "t2", "t3"),
}
KEYED = {
    **MANY,
    "TEXTS": ["p"] * 3,
    "PARAMETERS": ["p"] * 3,
    "KEY": ["a", "ä\n%", "c"],
    "KEEP": 60,
    "MARK": "m",
    "KEYED": [["key", key, "keep", 60, "enqueued_by", "m"] for key in ("a", "ä\n%", "c")],
}
KEPT = {"keys": [key.encode() for key in KEYED["KEY"]], "keep": 60, "mark": "m"}
# What members that wait for nothing have of them.
UNLINKED: dict[str, list[Any]] = {
    "PARENT": [],
    "OUTER": [],
    "ENTERED": [],
    "BLOCKED": [],
    "OF_KEY": [],
    "DUE": [],
    "KINDS": [],
    "BLOCKING": [],
    "LOOKS": [],
    "JOINED": [],
    "ENTRANTS": [],
    "PLACES": [],
    "UNMET": [],
    "CHILDREN": [],
    "AWAITED": [],
    "WAITERS": [],
    "ENDED": [],
    "OVER": [],
    "THERE": [],
    "NOTED": [],
    "CLOSED": [],
}
MEMBER_KEYS = [b"k1", b"k2", b"k3"]
ONE, TWO, THREE = (
    f"{first}-0000-4000-8000-00000a0d225c" for first in ("00000000", "00010000", "0003ff80")
)
KEYED_LATER = {
    "LATER": [ONE, TWO],
    "ITS_KEY": ["k1", "k2"],
    "ETA": [20.5, 30.0],
    "TIMES": [20.5, ONE, 30.0, TWO],
    "ETAS": [20.5, 30.0, None],
    "NEW": [THREE],
    "KEY": ["k3"],
}
FEED = 'b 1 "x"'
BEGUN_FEED = {
    **TASK,
    "FEED": FEED,
    "SOURCE": "backlog/",
    "FACTS": flat(FACTS),
    "FEEDER": list(FEEDER),
    "DONE": [],
}
FEEDING = {
    **BEGUN_FEED,
    **MANY,
    "KEYS": [[]] * 3,
    "OTHER": [keys.line(Q, "5"), keys.line(Q, "0,lock:a%20b=2")],
    "FILE": "b 2.jsonl",
    "MARK": "7 8 c",
    "ROW": 2,
    "OFFSET": 40,
    "ROWS": 3,
    "SHARE": 0.5,
    "MADE": 3,
    "SKIPPED": 2,
}
WITH_KEYS = {**FEEDING, "KEYS": [["key", "a"], ["key", "ä\n%"], ["key", "c"]]}
NO_TASK = {**FEEDING, **IN_NO_LINE, "TASK": [], "NEW": [], "KEYS": [], "PARAMETERS": [], "MADE": 0}
ONE_NEW = {
    **WITH_KEYS,
    "NEW": ["t2"],
    "PARAMETERS": TEXTS[1:2],
    "KEYS": WITH_KEYS["KEYS"][1:2],
    "MADE": 1,
    "ENTRIES": [9.25, "t2"],
    **in_default_line("t2"),
}
NONE_NEW = {**NO_TASK, "TASK": ["t1", "t2", "t3"], "NEW": []}
DONE = {"b 1.parquet": "1 2 d"}
FEED_ENDED = {**BEGUN_FEED, "NOW": 9e8, "KEPT": 7776000, "OLD": 9e8 - 7776000}
DUE = {
    **TASK,
    **IN_NO_LINE,
    "LIMIT": 100,
    "DUE": [],
    "STILL": [],
    "MOVED": [],
    "OLD": [],
    "CREATED": [],
    "DUE_AT": [],
    "EVENTS": [],
    "COUNT": 0,
}
BEAT = {
    **TASK,
    "QUEUE": [Q, "audio"],
    "NODE": [NODE, "host_1b"],
    "BEAT": [5, 7],
    "STRUCK_OFF": [],
    "ITS_NODE": [],
    "HELD_IN": [Q, "audio"],
    "HOLDER": [NODE, "host_1b"],
    "OBEYED": [],
    "FACTS": [[], []],
}
OBSERVED = {"FIRST": Q, "QUEUE": [Q, "audio"], "UNREAD": [Q, "audio"]}
WAIT = {"QUEUE": [Q], "NODE": [NODE], "SECONDS": 0.01}
ATTEMPT = {
    **TASK,
    "ATTEMPT": 1,
    "CREATED": 1.0,
    "ROOM": [],
    "HELD": [],
    "EARLIER": group("Outcome"),
}
START = {**TASK, "PID": 99, "IDENTITY": []}
NOTED = ("EVENT", "NOTE", "TELL")  # lines that stand for the record of an event
ENDS = "it is an end or undoes one"
CHECKPOINT = {
    **TASK,
    "ATTEMPT": 1,
    "CREATED": "1.0",
    "GONE": [],
    "PARTS": ["value", 7, "directory", "host:/spool/t1/1"],
}
END = {**TASK, "PID": 99, "FINISHED": 9.0, "FACTS": [], "BY": ["finished_by", T], "GONE": []}
CLAIM = {**TASK, "DEAD": DEAD, "HELD": []}
dead_listener = registered(DEAD, "instance-0")
held_by_the_dead = reserved("t1", DEAD, "instance-0")
started_by_the_dead = started("t1", DEAD, "instance-0")
claimed = raw("HSET", keys.task("t1"), "reclaimed_node", "a host_5")
with_files = raw("HSET", keys.task("t1"), "files", "host:/spool/t1/1")


FREEZE = {
    **TASK,
    "SNAPSHOT": "s1",
    "KEEP": 60,
    "LINED": [],
    "HELD": [],
    "NODE": [],
    "WHERE": [],
    "SET": [],
    "OF": [],
    "SOURCE": [keys.complete(Q), keys.failed(Q), keys.cancelled(Q)],
    "PART": ["complete", "failed", "cancelled"],
    "ITS_QUEUE": [Q] * 3,
    "LIST": ["complete", "failed", "cancelled"],
    "IN": [Q] * 3,
}
FREEZE_ALL = {
    **FREEZE,
    "LINED": [Q, "audio"],
    "HELD": [Q, "audio"],
    "NODE": [NODE],
    "WHERE": [Q],
    "SOURCE": [
        keys.pending(Q),
        URGENT["LINE"],
        keys.complete(Q),
        keys.failed(Q),
        keys.cancelled(Q),
        *[kind("audio") for kind in (keys.pending, keys.complete, keys.failed, keys.cancelled)],
        *[kind(queue) for queue in (Q, "audio") for kind in (keys.blocked, keys.scheduled)],
    ],
    "PART": [
        "pending",
        f"line:{URGENT['NAME']}",
        *FREEZE["PART"],
        "pending",
        *FREEZE["PART"],
        *["blocked", "scheduled"] * 2,
    ],
    "ITS_QUEUE": [Q] * 5 + ["audio"] * 4 + [Q, Q, "audio", "audio"],
    "LIST": ["pending", f"line:{URGENT['NAME']}", *FREEZE["PART"], "pending", *FREEZE["PART"]],
    "IN": [Q] * 5 + ["audio"] * 4,
    "SET": ["blocked", "scheduled"] * 2,
    "OF": [Q, Q, "audio", "audio"],
}
THAW = {**FREEZE, "COPY": [keys.frozen("s1", "complete", Q)]}


def freeze(queues: Sequence[str], statuses: Sequence[str]) -> Given:
    return lambda redis: protocol.freeze(redis, "s1", queues, statuses, 60, 9.25)


def thaw(redis: Redis) -> None:
    protocol.thaw(redis, "s1", THAW["COPY"])


WHO = {"by": "ann@host", "pid": 7}
UNUSED = {
    **TASK,
    "PART": [],
    "OTHER": [],
    "LOCK": [],
    "DAY": [day_of(9.25 - 86400 * age) for age in range(-1, 91)],
}
BATCH = {
    **TASK,
    "BATCH": "b1",
    "WRITER": "w",
    "PLACE": ["directory", "/archive", "archive", "a1"],
    "FACTS": flat(WHO),
}
# What belongs to the tasks that are deleted, as `UNLINK_TASKS` names it.
NOTHING_MORE: dict[str, list[str]] = {
    "BEGUN": [],
    "TOLD": [],
    "TOLD_MORE": [],
    "BOUND": [],
    "AWAITED": [],
    "GIVEN": [],
    "SPAWNER": [],
}
ERASE = {
    **BATCH,
    **NOTHING_MORE,
    "BEGUN": ["t1"],
    "TOLD": ["t1", "t2"],
    "TASK": ["t1", "t2", "t3"],
    "SAME": ["t1", "t2"],
    "COUNT": 2,
    "COMPLETE": ["t1"],
    "FAILED": [],
    "CANCELLED": ["t2"],
    "KEPT": ["t2"],
    "MARK": ["m"],
    "KEEP": [60],
}


def claim_batch(writer: str, over: str | None = None) -> Given:
    place = {"directory": "/archive", "archive": "a1"}
    return lambda redis: protocol.claim_batch(
        redis, BatchRef(Q, "b1", writer), WHO, place, 9.25, over
    )


def mark_batch(state: str | None, **facts: str | int) -> Given:
    return lambda redis: protocol.mark_batch(redis, BatchRef(Q, "b1", "w"), state, facts, 9.25)


ROWS = ("t1", "complete", 5.0, 1), ("t2", "cancelled", 9.25, None), ("t3", "complete", 9.25, None)


def erase(*rows: tuple[str, str, float, int | None]) -> Given:
    written = [
        Written(task, status, round(updated * 1e6), attempts)
        for task, status, updated, attempts in rows
    ]
    return lambda redis: protocol.erase(redis, BatchRef(Q, "b1", "w"), written, 9.25)


PURGED = Event("purged", "ann", 9.25, {"tasks": 7, "status": "pending"})


def prune(status: str, floor: int = 0, event: Event | None = None, **seen: float) -> Given:
    return lambda redis: protocol.prune(
        redis, Q, status, [FinishedTask(task, at) for task, at in seen.items()], floor, event
    )


PRUNE = {
    **TASK,
    **NOTHING_MORE,
    "BEGUN": ["t1"],
    "TOLD": ["t1"],
    "TASK": ["t1", "t2"],
    "SAME": ["t1"],
    "COMPLETE": ["t1"],
    "FAILED": [],
    "CANCELLED": [],
    "KEPT": [],
    "MARK": [],
    "KEEP": [],
    "COUNT": 1,
    "LIST": keys.complete(Q),
}


def purge(*tasks: str, event: Event | None = None) -> Given:
    return lambda redis: protocol.purge(redis, Q, tasks, event=event)


A_SCHEDULED, A_BLOCKED = "there is a [SCHEDULED]", "there is a [BLOCKED]"
PURGE = {
    **TASK,
    **NOTHING_MORE,
    "TASK": ["t1", "t2", "t3"],
    "SAME": ["t1", "t2"],
    "PENDING": ["t1"],
    "LINE": [keys.pending(Q)],
    "SCHEDULED": ["t2"],
    "BLOCKED": [],
    "KEPT": [],
    "MARK": [],
    "KEEP": [],
    "COUNT": 2,
}


def cancelled_with_key(task: str) -> Given:
    return given(
        enqueued(task, key="a", keep=60, enqueued_by="m"),
        lambda redis: protocol.cancel(redis, Q, task, "ann", None, 9.25),
    )


def leave_batch(writer: str) -> Given:
    return lambda redis: protocol.leave_batch(redis, BatchRef(Q, "b1", writer))


def fenced(*held: Given) -> Given:
    """A listener that is declared dead, and held something."""
    return given(dead_listener, *held, fence)


def lost(node: str = NODE, instance: str = I) -> Given:
    """The task t1, declared lost with a listener that is dead."""
    return given(
        registered(node, instance),
        started("t1", node, instance),
        lambda redis: protocol.fence(redis, Q, node, instance, "0", 9.25),
        lambda redis: protocol.lose(
            redis, AttemptRef(Q, "t1", T, node), instance, Loss("e"), None, 5.0
        ),
    )


def enqueue(values: Values, is_drawn: bool = False) -> Given:
    options = JSON_OPTIONS if values["ENCODING"] else values.get("GIVEN")
    return lambda redis: protocol.enqueue(
        redis, Q, "t1", values["PARAMETERS"], 9.25, options, is_drawn=is_drawn
    )


def schedule(values: Values, is_drawn: bool = False) -> Given:
    options = JSON_OPTIONS if values["ENCODING"] else values.get("GIVEN")
    return lambda redis: protocol.schedule(
        redis, Q, "t1", values["PARAMETERS"], 100.5, 9.25, options, is_drawn
    )


def many(values: Values, **columns: Any) -> Batch:
    """Return a batch of the sample's tasks, with its options."""
    options = values.get("GIVEN", OPTIONS if values["OPTIONS"] else {})
    texts = [(text.encode(), bool(values["ENCODING"])) for text in values["TEXTS"]]
    return Batch(
        Q, NewTasks([task.encode() for task in values["ALL"]], texts, **columns), 9.25, options
    )


def enqueue_many(values: Values, **columns: Any) -> Given:
    return lambda redis: protocol.create(redis, many(values, **columns))


def schedule_many(values: Values, etas: Sequence[float | None]) -> Given:
    return lambda redis: protocol.create(redis, many(values, etas=etas))


def created(
    case: str, before: Given, call: Given, values: Values, *holds: str, until: str = ""
) -> Sample:
    """Return a sample of `create`. values: of one task, or of several; ETA is that of each."""
    one = isinstance(values["TASK"], str)
    new = values.get("NEW", [values["TASK"]])
    etas = values.get("ETA") or [None] * len(new)
    etas = etas if isinstance(etas, list) else [etas]
    keyed = [values["KEYED"]] if one else values["KEYED"]
    own = zip(keyed, etas, strict=True)
    found = {
        **values,
        "TASK": values.get("ALL", new),
        "FIRST": new[0],
        "NEW": new,
        "PARAMETERS": [values["PARAMETERS"]] if one else values["PARAMETERS"],
        "STATUS": ["pending" if eta is None else "scheduled" for eta in etas],
        "OWN": [[*of_key, *(() if eta is None else ("eta", eta))] for of_key, eta in own],
        "ENTRIES": [word for task in new for word in (9.25, task)],
        "TIMES": [word for task, eta in zip(new, etas, strict=True) if eta for word in (eta, task)],
        "STARTS": [word for task in new for word in (values.get("START_BEFORE"), task)],
    }
    if one:
        is_listed = "NAME" in values and None in etas
        found |= {name: [values[name]] if is_listed else [] for name in ("NAME", "PRIORITY")}
        is_locked = is_listed and "lock" in values["NAME"]
        found |= (
            {"LOCKED": [values["NAME"]], "LOCK": ["a b"]}
            if is_locked
            else {"LOCKED": [], "LOCK": []}
        )
        found |= {"LINE": [values["LINE"]], "JOINING": [new]} if None in etas else IN_NO_LINE
    in_time = [
        text for text, is_so in ((IS_LATER, found["TIMES"]), (IS_AT_ONCE, None in etas)) if is_so
    ]
    look = None if any(keyed) else 0
    return Sample("create", case, before, call, found, [*holds, *in_time], look=look, until=until)


def begun_feed(
    token: str = T, dead: str | None = None, queue: str = Q, feed: str = FEED, now: float = 9.25
) -> Given:
    return lambda redis: protocol.begin_feed(
        redis, FeedRef(queue, feed, token), I, "backlog/", FACTS, dead, now
    )


def feed(
    tasks: Sequence[str],
    rows: tuple[int, int] = (0, 3),
    options: Values | None = None,
    done: Values | None = None,
    skipped: int = 0,
    token: str = T,
    window: int = 3,
    others: Sequence[str] = ("5", "0,lock:a%20b=2"),
    **columns: Any,
) -> Given:
    """Feed these tasks, which are the rows from one number to another; see FEEDING."""
    new = NewTasks(
        [task.encode() for task in tasks],
        [(text.encode(), False) for text in TEXTS[: len(tasks)]],
        **columns,
    )
    batch = Batch(Q, new, 9.25, {**(options or {}), "feed": FEED}) if tasks else None
    chunk = FeedChunk(
        rows[0], Cursor("b 2.jsonl", "7 8 c", 2, 40, rows[1], 0.5), batch, skipped, done
    )
    return lambda redis: protocol.feed(
        redis, FeedRef(Q, FEED, token), chunk, Window(window, others), 9.25
    )


def end_feed(done: Values | None = None, rows: int = 0) -> Given:
    whole = None if done is None else Whole(rows, done)
    return lambda redis: protocol.end_feed(redis, FeedRef(Q, FEED, T), whole, 9e8)


def forget_queue(redis: Redis) -> None:
    protocol.forget_queue(redis, Q, 9.25)


def forget_feed(redis: Redis) -> None:
    protocol.forget_feed(redis, Q, FEED)


def joining(*tasks: str) -> Values:
    """Return the values for tasks that are due, have no attempt, and join the default line."""
    return {
        "MOVED": list(tasks),
        "DUE_AT": [{"t1": 1.0, "t2": 2.0, "t3": 3.0, "t4": 4.0}[task] for task in tasks],
        "EVENTS": [1] * len(tasks),
        "COUNT": len(tasks),
        "OLD": list(tasks),
        "CREATED": ["1.0"] * len(tasks),
        **in_default_line(*tasks),
    }


def enqueue_due(redis: Redis) -> None:
    protocol.enqueue_due(redis, Q, 9.25)


def register(redis: Redis) -> None:
    protocol.register(redis, Q, NODE, I, FACTS, 9.25, dead="instance-0")


def wait(seconds: float, is_idle: bool = True) -> Given:
    return lambda redis: protocol.wait(
        redis, [(Q, NODE)], seconds, lambda connection: connection.wait(10), is_idle
    )


HEARTBEATS = [Heartbeat(Q, NODE, I, 5), Heartbeat("audio", "host_1b", "instance-1b", 7)]


def beat(
    heartbeats: Sequence[Heartbeat] = HEARTBEATS, task: str | None = None, may_hold: bool = True
) -> Given:
    return lambda redis: protocol.beat(redis, heartbeats, 9.25, task, may_hold)


def pop(redis: Redis) -> object:
    return protocol.pop(redis, Q, NODE, I)


def pop_from(line: str) -> Given:
    return lambda redis: protocol.pop(redis, Q, NODE, I, line)


def reserve(redis: Redis) -> None:
    protocol.reserve(redis, AttemptRef(Q, "t1", T, NODE), I, 9.25)


def reserve_with_gpu(redis: Redis) -> None:
    protocol.reserve(redis, AttemptRef(Q, "t1", T, NODE), I, 9.25, line="5,gpu=1")


def reserve_without(redis: Redis) -> None:
    protocol.reserve(redis, AttemptRef(Q, "t1", T, NODE), I, 9.25, is_met=False)


def reserve_from_default(redis: Redis) -> None:
    protocol.reserve(redis, AttemptRef(Q, "t1", T, NODE), I, 9.25, line="0")


def place(**wish: Any) -> Given:
    return lambda redis: protocol.place(redis, Q, "t1", 9.25, "bob", **wish)


def bring_forward(redis: Redis) -> None:
    protocol.bring_forward(redis, Q, "t1", 9.25, "bob")


def pause(reason: str | None = None) -> Given:
    return lambda redis: protocol.set_settings(redis, Q, pausing("ann", reason, 9.25), 9.25, "ann")


def resume(redis: Redis) -> object:
    return protocol.set_settings(redis, Q, NOT_PAUSED, 9.25, "bob")


def notice(event: str, **facts: str | int) -> Values:
    """Return the value of the event of a queue."""
    return {"NOTICE": json.dumps({"event": event, "at": 9.25, **facts}, separators=(",", ":"))}


BY_A_PERSON = "a person gives it"


def of_listener(event: str) -> Values:
    return notice(event, by="ann", node=NODE)


def settings(**wanted: str | None) -> Given:
    return lambda redis: protocol.set_settings(redis, Q, wanted, 9.25, "bob")


def align_line(line: str) -> Given:
    return lambda redis: protocol.align_line(redis, Q, line)


def start(identity: Mapping[str, Any], token: str | None = T) -> Given:
    return lambda redis: protocol.start(redis, AttemptRef(Q, "t1", token, NODE), 99, 9.25, identity)


def end(how: End, token: str | None = T) -> Given:
    return lambda redis: protocol.end(redis, AttemptRef(Q, "t1", token, NODE), how, 9.25)


def complete(
    encoding: str | None = None,
    token: str | None = T,
    has_checkpoint: bool = False,
    then: Sequence[NewTask] = (),
) -> Given:
    return end(well(encoding, has_checkpoint, then), token)


def well(
    encoding: str | None = None, has_checkpoint: bool = False, then: Sequence[NewTask] = ()
) -> End:
    coded = {} if encoding is None else {"result_encoding": encoding}
    return End.complete("r", {**coded, "exit_code": 0}, 9.0, has_checkpoint, then)


def new(
    key: str,
    queue: str,
    conditions: Mapping[str, str] | None = None,
    eta: float | None = None,
    **options: Any,
) -> NewTask:
    fields = {**options, "spawned_by": "t1"}
    return NewTask(spawned_id("t1", key), queue, f"do {key}", fields, conditions or {}, eta)


A, B, C, D = (spawned_id("t1", key) for key in "abcd")
# In the default line and in another one, of another queue; one that is due later, and one that waits
# for the first and for a task that has failed.
FOUR = (
    new("a", Q),
    new("b", "joins", needs="lock:a%20b=2", parameters_encoding="json"),
    new("c", Q, eta=99.5),
    new("d", "joins", {"t2": "ok", A: "any", "group g": "ok"}, broken="cancel"),
)
CREATED = {
    "CANDIDATE": [A, B, C, D],
    "PARENT": ["t2", A],
    "OUTER": ["g"],
    "NEW": [A, B, C, D],
    "STATUS": ["pending", "pending", "scheduled", "blocked"],
    "INTO": [Q, "joins", Q, "joins"],
    "PARAMETERS": ["do a", "do b", "do c", "do d"],
    "FIELDS": [
        ["spawned_by", "t1"],
        ["needs", "lock:a%20b=2", "parameters_encoding", "json", "spawned_by", "t1"],
        ["spawned_by", "t1", "eta", 99.5],
        ["broken", "cancel", "spawned_by", "t1", "after", 3],
    ],
    "DEPENDENT": [D],
    "KINDS": [["t2", "ok", A, "any", "group g", "ok"]],
    "HOME": [Q, "joins"],
    "BLOCKING": ["joins"],
    "LOOKS": [[69.25, D]],
    "LINE": [keys.pending(Q), keys.line("joins", "0,lock:a%20b=2")],
    "JOINING": [[A], [B]],
    "LISTED": ["joins"],
    "NAME": ["0,lock:a%20b=2"],
    "PRIORITY": [0],
    "LOCKED": ["0,lock:a%20b=2"],
    "NEEDED": ["a b"],
    "WAITING": ["joins"],
    "THERE": [Q],
    "TIMES": [[99.5, C]],
    "ENTRIES": [[9.25, A, 9.25, C], [9.25, B, 9.25, D]],
    "JOINED": [Q, "joins"],
    "UNMET": ["t2", A],
    "CHILDREN": [[9.250003, D], [9.250003, D]],
    "AWAITED": ["g"],
    "WAITERS": [[9.250003, D]],
    "ENDED": [9.25, "t2"],
    "OVER": [],
}
# One, in the default line.
CREATED_ONE = {
    **CREATED,
    **{
        name: []
        for name in (
            *("PARENT", "OUTER", "DEPENDENT", "KINDS", "BLOCKING", "LOOKS", "LISTED", "NAME"),
            *(
                "PRIORITY",
                "AWAITED",
                "WAITERS",
                "LOCKED",
                "NEEDED",
                "WAITING",
                "THERE",
                "TIMES",
                "UNMET",
                "CHILDREN",
            ),
        )
    },
    "CANDIDATE": [A],
    "NEW": [A],
    "STATUS": ["pending"],
    "INTO": [Q],
    "PARAMETERS": ["do a"],
    "FIELDS": [["spawned_by", "t1"]],
    "HOME": [Q],
    "LINE": [keys.pending(Q)],
    "JOINING": [[A]],
    "ENTRIES": [[9.25, A]],
    "JOINED": [Q],
}
SPAWN = {
    **TASK,
    **CREATED,
    "OCTETS": octets(A, B, C, D),
    "ADDED": octets(A, B, C, D),
    "ENTERED": [],
    "ENTRANTS": [],
    "PLACES": [],
    "TIED": [],
}
SPAWN_ONE = {**SPAWN, **CREATED_ONE, "OCTETS": octets(A), "ADDED": octets(A)}


def spawn(*tasks: NewTask, token: str = T) -> Given:
    return lambda redis: protocol.spawn(redis, AttemptRef(Q, "t1", token, NODE), tasks, 9.25)


def fail(facts: Mapping[str, Any], token: str | None = T) -> Given:
    return end(End.fail("e", facts, 9.0), token)


def log(
    *numbers: int,
    attempt: int = 1,
    is_head: bool = False,
    is_over: bool = False,
    stream: str = "stdout",
    encoding: str | None = None,
) -> Given:
    texts = LOG["TEXT"]
    lines = [Line(number, 9.25, stream, texts[number - 1], is_head, encoding) for number in numbers]
    return lambda redis: protocol.log(redis, AttemptRef(Q, "t1", T, NODE), attempt, lines, is_over)


def checkpoint(**parts: str | None) -> Given:
    return lambda redis: protocol.checkpoint(
        redis, AttemptRef(Q, "t1", T, NODE), 1, "1.0", parts, 9.25
    )


def progress(redis: Redis) -> None:
    protocol.progress(redis, AttemptRef(Q, "t1", T, NODE), "50 %", 9.25)


def note(number: int = 1) -> Given:
    return lambda redis: protocol.note(
        redis, AttemptRef(Q, "t1", T, NODE), number, NOTE["TEXT"], 9.25
    )


def retry(eta: float | None, token: str | None = T) -> Given:
    return end(End.retry(eta, FAILURE), token)


def postpone(eta: float | None) -> Given:
    return end(End.retry(eta, MEASURED, "full"))


def cancel(reason: str | None = None) -> Given:
    return lambda redis: protocol.cancel(redis, Q, "t1", "ann", reason, 9.25)


def requeue(redis: Redis) -> None:
    protocol.requeue(redis, Q, "t1", "mark-1", 9.25, "bob")


def expire(queue: str = Q) -> Given:
    return lambda redis: protocol.expire(redis, queue, "t1", 9.25)


def expire_in(queue: str) -> Values:
    return {**EXPIRE, "QUEUE": queue, "LINE": keys.pending(queue)}


def interrupt(reason: str | None = None) -> Given:
    return lambda redis: protocol.interrupt(redis, Q, "t1", "bob", reason, 9.25)


def ask_stack(mark: str = "m1", queue: str = Q) -> Given:
    return lambda redis: protocol.ask_stack(redis, queue, "t1", mark)


def decline_stack(token: str = T) -> Given:
    return lambda redis: protocol.decline_stack(
        redis, AttemptRef(Q, "t1", token, NODE), "m1", "it is a program"
    )


def order(redis: Redis) -> object:
    return protocol.order(redis, Q, NODE, "drain", "ann", 9.25)


def leave_listener(redis: Redis) -> None:
    protocol.order(redis, Q, NODE, "leave", "a signal")


def pause_listener(redis: Redis) -> None:
    protocol.order(redis, Q, NODE, "pause", "ann", 9.25)


def delete(redis: Redis) -> object:
    return protocol.delete(redis, Q, "t1")


def delete_by_ann(redis: Redis) -> None:
    protocol.delete(redis, Q, "t1", event=Event("deleted", "ann", 9.25))


def deregister(redis: Redis) -> object:
    return protocol.deregister(redis, Q, NODE, I)


def claim(instance: str | None = "instance-0") -> Given:
    return lambda redis: protocol.claim(redis, Q, NODE, DEAD, instance)


def observe(redis: Redis) -> None:
    protocol.observe(redis, [Q, "audio"])


def observe_beaten(redis: Redis) -> None:
    protocol.observe(redis, [Q, "audio"], {Q: {NODE}, "audio": set()})


def fence(redis: Redis) -> object:
    return protocol.fence(redis, Q, DEAD, "instance-0", "0", 9.25)


def fence_legacy(redis: Redis) -> object:
    return protocol.fence(redis, Q, DEAD, None, None, 9.25)


def recover(instance: str | None = "instance-0", dead_claimant: str | None = None) -> Given:
    return lambda redis: protocol.recover(redis, Q, "t1", DEAD, instance, 9.25, dead_claimant)


def lose(
    default: Retry | None = None,
    facts: Mapping[str, Any] | None = None,
    instance: str | None = "instance-0",
    node: str = DEAD,
) -> Given:
    return lambda redis: protocol.lose(
        redis,
        AttemptRef(Q, "t1", T, node),
        instance,
        Loss("e", facts),
        default,
        9.25,
        is_ours=node == NODE,
    )


def adopt(old: str = DEAD) -> Given:
    return lambda redis: protocol.adopt(redis, AttemptRef(Q, "t1", T, old), NODE, I, 9.25)


def restore(redis: Redis) -> object:
    return protocol.restore(redis, AttemptRef(Q, "t1", T, NODE), I, 99, IDENTITY, 4.0, 9.25)


def restore_again(redis: Redis) -> object:
    about = AttemptRef(Q, "t1", T, NODE)
    return protocol.restore(redis, about, "instance-2", 99, IDENTITY, 4.0, 9.25)


def reassert(redis: Redis) -> object:
    return protocol.reassert(redis, Q, "t1", NODE, I, OURS, 9.25)


def reassert_with(more: Mapping[str, str]) -> Given:
    return lambda redis: protocol.reassert(redis, Q, "t1", NODE, I, {**OURS, **more}, 9.25)


def deregister_dead(instance: str | None = "instance-0") -> Given:
    return lambda redis: protocol.deregister(redis, Q, DEAD, instance, is_dead=True)


WAKES = "a pause ends, or the limit changes"
STARTED, FAILED_ONE, RESERVED = "it is started", "it is failed", "it is reserved"
SCHEDULED = "it is scheduled"
PENDING = "it is pending"
BLOCKED = "it is blocked"
CANCELLED = "it is cancelled"
NOT_MEMBER, MEMBER = "the node is not a member", "the node is a member"
PAST, WITH_KEEP = "there is a [PAST]", "the task has a `keep` above 0"
MOVED, CLAIMED = "there is a [MOVED]", "there is a [CLAIMED]"
OLD = "the task has no attempt"
OTHER_LINE, LOCKED = "it is not the default line", "its tasks need a lock"
IN_LOCKED_LINE = [OTHER_LINE, LOCKED]
HOLDS = ["it holds a lock", "it is counted", "it holds a lock or is counted"]
AGAIN, WITH_LOCK, LIMITED = "it looks again", "it needs a lock", "there is a limit"
FORGOTTEN, MARKED = "nothing unclaimed remains", "nothing unclaimed remains and it is registered"
release, release_with_facts = end(End.release()), end(End.release(MEASURED, "drain"))
COMPLETED = {
    **END,
    "STATUS": "complete",
    "TIME": ["finished", 9.0],
    "FACTS": ["result", "r", "exit_code", 0],
}
FAILED = {
    **END,
    "STATUS": "failed",
    "TIME": ["finished", 9.0],
    "ERROR": "e",
    "FACTS": ["error", "e", *flat(ENDING)],
}
FAILED_PLAINLY = {**FAILED, "FACTS": ["error", "e"]}
PROGRESS = {**TASK, "PROGRESS": "50 %"}
NOTE = {**TASK, "NUMBER": 1, "TEXT": 'took the "old" model', "EVENTS": 3}
LOG = {
    **TASK,
    "ATTEMPT": 1,
    "EARLY": [],
    "EARLY_TEXT": [],
    "NUMBER": [1, 2],
    "AT": 9.25,
    "STREAM": "stdout",
    "TEXT": ["one", 'two "2"'],
    "ENCODED": [],
    "PRINTED": [],
}
LATER = {**END, "STATUS": "scheduled", "TIME": ["eta", 20.5], "ETA": 20.5, "GONE": group("Owner")}
AT_ONCE = {**LATER, "STATUS": "pending", "TIME": ["queued", 9.25], "ETA": None}
RETRIED, RETRIED_AT_ONCE = ({**each, "FACTS": flat(FAILURE)} for each in (LATER, AT_ONCE))
POSTPONED, POSTPONED_AT_ONCE = (
    {**each, "FACTS": flat(MEASURED), "WISH": "full"} for each in (LATER, AT_ONCE)
)
HAS_FAILED = "it has failed, and another attempt follows"
WANTS_IT, HANDED_BACK = "the task wants to run again later", "it is handed back"
AS_LAST, AS_NEXT = "it becomes pending, as the last", "it becomes pending, as the next"
LEFT_CHECKPOINT = "it becomes complete, and has left a checkpoint"
RELEASED = AT_ONCE
WHY = {**RELEASED, "FACTS": flat(MEASURED), "REASON": "drain"}
ENDED_BY_ORDER = {
    **END,
    "STATUS": "cancelled",
    "TIME": ["finished", 9.25],
    "FACTS": flat(MEASURED),
    "GONE": ["cancel"],
}
IN_LINE_NOW, LAST = "it is in line", "it becomes the last"
NEXT, TO_BE_NEXT = "it becomes the next", "it is to be the next"
NOT_DEFAULT = "it is in line, and not in the default one"
NEEDS_LOCK = "it is in line, for a lock"
MOVES, ONLY_NEXT = "it moves", "that is all"
PRIORITIZED = "it stays, with another priority"
STAYS = {**TASK, "TO": Q, "NEW_LINE": keys.pending(Q), "CHANGED": [], "NEW_PRIORITY": 0}
TO_SEVEN = {
    **STAYS,
    "CHANGED": ["priority", 7],
    "NEW_PRIORITY": 7,
    "NEW_NAME": "7",
    "NEW_LINE": keys.line(Q, "7"),
}
MOVE = {**TASK, "TO": "to", "NEW_LINE": keys.pending("to"), "CREATED": 1.0}
TO_ANOTHER = {**MOVE, "CHANGED": ["queue", "to"], "NEW_PRIORITY": 0}
OF_SHARED = {**SHARED, "NEW_PRIORITY": 0, "NEW_NAME": SHARED["NAME"]}
EXPIRE = {
    **MOVE,
    "BY": "blueque",
    "REASON": "expired",
    "WHO": ["cancelled_by", "blueque", "cancel_reason", "expired"],
}
CANCEL = {**TASK, "WHO": ["cancelled_by", "ann"]}
UNBLOCK = {**TASK, **notice("unblocked", by="ann"), "OWN_GROUP": []}
INTERRUPT = {**TASK, "BY": "bob", "WHY": []}
REQUEUE = {**TASK, "STATUS": "pending", "MARK": "mark-1", "LAST": [], "DROPPED": [], "GROUP": []}
ASK_STACK = {**TASK, "MARK": "m1"}
DECLINE_STACK = {**ASK_STACK, "ANSWER": "m1 it is a program"}
ORDER = {**TASK, "WHAT": "drain", "WHO": "ann"}
FENCE = {**TASK, "DEAD": DEAD, "STRUCK": []}
DIED = {**FENCE, **notice("died", by=DEAD)}
OF_DEAD = {**TASK, "NODE": DEAD}
LOSE = {
    **TASK,
    "NODE": DEAD,
    "PID": 99,
    "ERROR": "e",
    "STATUS": "pending",
    "TIME": ["queued", 9.25],
    "FACTS": ["interruptions", 1, "last_error", "e", "last_error_type", "lost"],
    "GONE": group("Owner"),
}
LOSE_FOR_GOOD = {
    **LOSE,
    "STATUS": "failed",
    "TIME": [],
    "FACTS": ["error", "e", "error_type", "lost", "interruptions", 1],
    "GONE": [],
    "KIND": "lost",
}
LOSE_CANCELLED = {
    **LOSE,
    "STATUS": "cancelled",
    "TIME": ["finished", 9.25],
    "FACTS": [],
    "GONE": ["cancel"],
}
ADOPT = {**TASK, "OLD": DEAD, "PID": 99}
RESTORE = {**TASK, "PID": 99, "IDENTITY": flat(IDENTITY), "STARTED": 4.0}
OURS = {
    "status": "started",
    "queue": Q,
    "node": NODE,
    "token": T,
    "attempt": "1",
    "pid": "99",
    "created": "1.0",
}
REASSERT = {
    **TASK,
    "ATTEMPT": 1,
    "FIELDS": flat({**OURS, "updated": 9.25}),
    "PID": 99,
    "CREATED": "1.0",
}
IN_FIRST_LOOK = {"MEMBER": [], "ROOM": [], "LINE": keys.pending(Q)}
waits_in_time = given(enqueued("t2"), waiting("t1", t2="ok", start_before=9.0))
goes_to = raw("HSET", keys.task("t1"), "expired_to", "to")
HAS_TIME, ONE_HAS_TIME = "it has a `start_before`", "one has a `start_before`"
IN_TIME = {"start_before": 99.5, "expired_to": "late"}
OF_TIME = {"OPTIONS": flat(IN_TIME), "START_BEFORE": 99.5}
HAVE_TIME, MAY_EXIST = "they have a `start_before`", "it may exist"
IS_LATER, IS_AT_ONCE = "one is due later", "one is put in line"
WATCHES, NOT_IN_LIST = "it watches a task", "it is not in the list"
NOT_BEATEN = "it has not just beaten"


# Repairs. What is damaged is "t1", and what is missing or too much there is an entry of it.


def align(*entries: Entry, updated: str | None = None, task: str = "t1") -> Given:
    return lambda redis: protocol.align_task(redis, task, entries, 9.25, updated)


def align_queue(node: str | None = None) -> Given:
    return lambda redis: protocol.align_queue(redis, Q, node)


def align_schedule(redis: Redis) -> None:
    protocol.align_schedule(redis, SCHEDULE)


def aligned(
    *entries: Entry,
    wrong: Sequence[Entry] = (),
    lacking: Sequence[Entry] = (),
    score: float = 0,
    **more: Any,
) -> Values:
    """What an alignment looks at, removes and makes."""
    values = {**TASK, "KEY": list(dict.fromkeys(each.place.key for each in entries))}
    for prefix, some in (("", entries), ("WRONG_", wrong), ("LACKING_", lacking)):
        for word, kind in (("LIST", "list"), ("ZSET", "zset"), ("SET", "set")):
            of_kind = [each for each in some if TYPES[each.place.kind] == kind]
            values[f"{prefix}{word}"] = [each.place.key for each in of_kind]
            values[f"{prefix}{word}_ENTRY"] = [each.text for each in of_kind]
    return {**values, "SCORE": [score] * len(values["LACKING_ZSET"]), **more}


IN_LINE, HELD, ENDED, LATER, INDEXED, UNSETTLED, COUNTED = (
    Entry(Place(kind, queue, node), "t1")
    for kind, queue, node in (
        ("pending", Q, ""),
        ("reserved", Q, NODE),
        ("complete", Q, ""),
        ("scheduled", Q, ""),
        ("tasks", Q, ""),
        ("unsettled", "", ""),
        ("counted", Q, ""),
    )
)
RUNNING = Entry(Place("started", Q), f"{NODE} 99 t1")
OF_TAG = Entry(Place("tags", "", line="customer:17"), "customer:17 t1")
OF_LOCK = Entry(Place("lock", "", line="a b"), "t1")
IN_SHARED_LINE = Entry(Place("line", Q, line=SHARED["NAME"]), "t1")
IS_NO_TASK = "it is no task, and something is there"
MISSED = "it is missing in its line"
IS_DEAD, ABOUT_ONE = "it is dead and a member", "it is about a listener"
IS_REGISTERED = "it is registered"
IS_NOT_REGISTERED = "it is not registered"
UNDONE = ("two outcomes, and complete or cancelled", "two outcomes, and failed or cancelled")
both_outcomes = raw("HSET", keys.task("t1"), "result", "r", "error", "e")

A_NEW, A_LATER, ANY_MADE = "there is a [NEW]", "there is a [LATER]", "any is made"

ANOTHER_ATTEMPT = "the last entry is of another attempt, or there is none"
OVER = "the attempt is over"
NO_RECORD, A_TASK, A_NEW_ONE = "there is no record", "there is a [TASK]", "there is a [NEW]"
A_FILE, BAD_ROWS = "a file is done", "rows were left out"
IS_FED = "the backlog is fed"

HAS_ENDED = "there is one that has ended"
HAS_NONE = "it has ended, and has no dependents"
HAS_COME, ONE_UNSETTLED = "its time has come", "there is one"
two_parents = given(enqueued("t3"), enqueued("t4"))
waits_for_two = given(enqueued("t2"), two_parents, waiting("t1", t2="ok", t3="ok"))
AFTER = {
    **TASK,
    **CREATED_ONE,
    "TASK": ["t1", "t2"],
    "KEYED": [],
    "PARENT": ["t3", "t4"],
    "NEW": ["t1", "t2"],
    "STATUS": ["blocked"] * 2,
    "INTO": [Q] * 2,
    "PARAMETERS": ["p"] * 2,
    "FIELDS": [["after", 2], ["after", 1]],
    "DEPENDENT": ["t1", "t2"],
    "KINDS": [["t3", "ok", "t4", "any"], ["t3", "not_ok"]],
    "BLOCKING": [Q],
    "LOOKS": [[69.25, "t1", 69.25, "t2"]],
    "LINE": [],
    "JOINING": [],
    "JOINED": [],
    "ENTRIES": [[9.25, "t1", 9.25, "t2"]],
    "UNMET": ["t3", "t4"],
    "CHILDREN": [[9.25, "t1", 9.25 + 1e-6, "t2"], [9.25, "t1"]],
    "ENDED": [],
}
ONE_AFTER = {
    **AFTER,
    "TASK": ["t1"],
    "PARENT": ["t3"],
    "NEW": ["t1"],
    "STATUS": ["blocked"],
    "INTO": [Q],
    "PARAMETERS": ["p"],
    "FIELDS": [["after", 1]],
    "DEPENDENT": ["t1"],
    "KINDS": [["t3", "ok"]],
    "LOOKS": [[69.25, "t1"]],
    "ENTRIES": [[9.25, "t1"]],
    "UNMET": ["t3"],
    "CHILDREN": [[9.25, "t1"]],
}
IS_FREE = {
    **ONE_AFTER,
    **{name: [] for name in ("BLOCKING", "LOOKS", "UNMET", "CHILDREN")},
    **in_default_line("t1"),
    "STATUS": ["pending"],
    "KINDS": [["t3", "+complete"]],
    "JOINED": [Q],
}
RECHECK = {
    **TASK,
    **{name: [] for name in ("PARENT", "OUTER", "DECIDED", "MARK", "UNLINKED", "UNAWARE")},
    **{name: [] for name in ("LEFT", "LEFT_GROUP", "NOT_MET", "NOT_MET_GROUP", "UNSETTLED")},
    **{name: [] for name in ("OVER", "COPIED", "RESULT", "SIZE", "NEEDS")},
    "AGAIN": 69.25,
    "STATUS": "blocked",
    "QUEUED": [],
}
FREED = {"STATUS": "pending", "QUEUED": ["queued", 9.25]}
COPIED_T2 = {"COPIED": ["t2"], "RESULT": ["tr"], "SIZE": [1]}


def broken(reason: str, parent: str = "t2") -> Values:
    """Return why a task is cancelled: a condition on this parent cannot be met."""
    who = ["cancelled_by", "blueque", "cancel_reason", reason, "broken_by", parent]
    return {"STATUS": "cancelled", "BY": "blueque", "REASON": reason, "WHO": who}


OF_T2 = {
    "PARENT": ["t2"],
    "DECIDED": ["t2"],
    "MARK": ["+complete"],
    "LEFT": ["t2"],
    "UNSETTLED": [9.25, "t2"],
}


def enqueue_after_with(
    options: Values | None = None, eta: float | None = None, **conditions: Mapping[str, str]
) -> Given:
    """Make tasks with these conditions, all with the same options."""
    new = [NewTask(task, Q, "p", options or {}, each, eta) for task, each in conditions.items()]
    return lambda redis: protocol.enqueue_after(redis, new, 9.25)


enqueue_after = enqueue_after_with(t1={"t3": "ok", "t4": "any"}, t2={"t3": "not_ok"})


def enqueue_in_two(options: Values | None = None, **conditions: str) -> Given:
    """Make a task in each of two queues."""
    new = [
        NewTask(task, queue, "p", options or {}, conditions)
        for task, queue in (("t1", Q), ("t2", "joins"))
    ]
    return lambda redis: protocol.enqueue_after(redis, new, 9.25)


EACH = {
    **TASK,
    **CREATED_ONE,
    "TASK": ["t1", "t2"],
    "KEYED": [],
    "NEW": ["t1", "t2"],
    "STATUS": ["pending"] * 2,
    "INTO": [Q, "joins"],
    "PARAMETERS": ["p"] * 2,
    "FIELDS": [[], []],
    "HOME": [Q, "joins"],
    "LINE": [keys.pending(Q), keys.pending("joins")],
    "JOINING": [["t1"], ["t2"]],
    "ENTRIES": [[9.25, "t1"], [9.25, "t2"]],
    "JOINED": [Q, "joins"],
}


def settle(redis: Redis) -> None:
    protocol.settle(redis, "t1", 9.25)


def next_dependents(redis: Redis) -> None:
    """Only ask who is to be told of the end of a task."""
    settling.next_dependents(redis, "settle", TaskParent("t1"), 9.25)


def recheck(redis: Redis) -> object:
    return protocol.recheck(redis, Q, "t1", 9.25)


def tell(parent: str) -> Given:
    """Compare t1 with one parent, which has ended."""
    return lambda redis: rechecking.tell(redis, "t1", parent_of(parent), 9.25)


def unblock(*parents: str) -> Given:
    return lambda redis: protocol.unblock(redis, Q, "t1", 9.25, "ann", parents or None)


# Groups

GROUP = 'night "1" [2]'
IN_GROUP = {
    **TASK,
    "GROUP": GROUP,
    "KEEP": 60,
    "LOOK": 69.25,
    "CLOSED": [],
    "WHO": [],
    "PARENT": [],
    "OUTER": [],
    "TERMS": [],
}


ON_OLD = "group old"
LINKED = {
    "group": GROUP,
    "after": json.dumps({"t3": "ok", ON_OLD: "any"}, separators=(",", ":")),
    "broken": "cancel",
}
KEYED_LINKED = {
    **IN_NO_LINE,
    "OPTIONS": ["group", GROUP, "broken", "cancel", "after", 2],
    "PARENT": ["t3"],
    "OUTER": ["old"],
    "ENTERED": [GROUP],
    "NEW": [],
    "KEY": [],
    "BLOCKED": [ONE, TWO, THREE],
    "OF_KEY": ["k1", "k2", "k3"],
    "DUE": [["eta", 20.5], [], []],
    "KINDS": ["t3", "ok", ON_OLD, "any"],
    "BLOCKING": [Q],
    "LOOKS": [69.25, ONE, 69.25, TWO, 69.25, THREE],
    "JOINED": [GROUP],
    "ENTRANTS": [ONE, TWO, THREE],
    "PLACES": [9.25, ONE, 9.250001, TWO, 9.250002, THREE],
    "UNMET": ["t3"],
    "CHILDREN": [[9.25, ONE, 9.250001, TWO, 9.250002, THREE]],
    "AWAITED": ["old"],
    "WAITERS": [[9.25, ONE, 9.250001, TWO, 9.250002, THREE]],
    "OVER": ["old"],
}

KEYED_MEMBERS = {
    **MANY,
    **UNLINKED,
    "PARAMETERS": "p",
    "TASK": [ONE, TWO, THREE],
    "NEW": [ONE, TWO, THREE],
    "KEY": ["k1", "k2", "k3"],
    "LATER": [],
    "ITS_KEY": [],
    "ETA": [],
    "TIMES": [],
    "ETAS": None,
    "ENTRIES": [9.25, ONE, 9.25, TWO, 9.25, THREE],
    **in_default_line(ONE, TWO, THREE),
    "OPTIONS": ["group", GROUP],
    "ENTERED": GROUP,
    "TIED": [],
    "ENTRANTS": [ONE, TWO, THREE],
    "PLACES": [9.25, ONE, 9.250001, TWO, 9.250002, THREE],
    "AGAIN": [],
}
WAITING_MEMBERS = {**KEYED_LINKED, "ENTERED": GROUP, "TIED": [GROUP]}


def enqueue_members(values: Values, links: Links = Links(GROUP)) -> Given:  # noqa: B008
    return lambda redis: protocol.enqueue_members(redis, member_batch(values, links))


def member_batch(values: Values, links: Links, options: Values = {}) -> MemberBatch:  # noqa: B006
    tasks = NewTasks(
        [task.encode() for task in values["TASK"]],
        [(b"p", False)] * len(values["TASK"]),
        None,
        values["ETAS"],
        MEMBER_KEYS[: len(values["TASK"])],
    )
    return MemberBatch(Q, links, tasks, 9.25, options)


A_MEMBER = "a member was there"


def opened_group(redis: Redis, now: float = 1.0) -> object:
    return protocol.open_group(redis, GROUP, 60, now)


def opened_with(terms: Terms) -> Given:
    return lambda redis: protocol.open_group(redis, GROUP, 60, 9.25, terms)


def opened_after(name: str) -> Given:
    return opened_with(Terms({name: "ok"}))


def opened_held_group(redis: Redis) -> object:
    return protocol.open_group(redis, GROUP, 60, 1.0, Terms(hold=900_000))


def reopen_group(hold: int | None = None, made_by: str | None = None) -> Given:
    return lambda redis: protocol.reopen_group(redis, GROUP, 9.25, hold, made_by)


def collect_group(redis: Redis) -> object:
    return protocol.collect_group(redis, GROUP, 9.25)


def opened_group_named(name: str) -> Given:
    return lambda redis: protocol.open_group(redis, name, 60, 1.0)


def ended_group_named(name: str) -> Given:
    return given(
        opened_group_named(name),
        lambda redis: protocol.close_group(redis, name, 2.0),
        lambda redis: protocol.finish_group(redis, name, 3.0),
    )


def joined(*tasks: str) -> Given:
    new = [NewTask(task, Q, "p", {"group": GROUP}, {}) for task in tasks]
    return lambda redis: protocol.enqueue_after(redis, new, 1.0)


def waiting_for_group(kind: str, task: str = "t4", **options: str) -> Given:
    new = NewTask(task, Q, "p", options, {f"group {GROUP}": kind})
    return lambda redis: protocol.enqueue_after(redis, [new], 1.0)


def closed_group(redis: Redis, now: float = 5.0) -> object:
    return protocol.close_group(redis, GROUP, now)


def settle_members(*tasks: str, group: str = GROUP) -> Given:
    return lambda redis: protocol.settle_members(redis, group, tasks)


def finish_group(redis: Redis) -> object:
    return protocol.finish_group(redis, GROUP, 9.25)


def settle_group(redis: Redis) -> object:
    return protocol.settle_group(redis, GROUP, 9.25)


def cancel_group(reason: str | None = None) -> Given:
    return lambda redis: protocol.cancel_group(redis, GROUP, "ann", reason, 9.25)


def drop_group(redis: Redis) -> object:
    return protocol.drop_group(redis, GROUP)


def graph_task(queue: str, task: str, **conditions: str) -> NewTask:
    return NewTask(task, queue, "p", {"group": GROUP}, conditions)


GRAPH = {
    **IN_GROUP,
    **{name: [] for name in CREATED_ONE if isinstance(CREATED_ONE[name], list)},
    "OUTER": [],
    "MARK": "m",
    "GROUP": GROUP,
    "ENTERED": [GROUP],
    "LINE": [keys.pending(Q)],
    "JOINING": [["t1"]],
    "JOINED": [Q],
}
GATE = f"gate {GROUP}"
WORKFLOW = Graph(GROUP, 60, "m", [graph_task(Q, "t1"), graph_task("joins", "t2", t1="ok")])
IN_WORKFLOW = {**IN_GROUP, "MARK": "m", "GATE": GATE}
CLOSES = ["state", "closed", "closed", 9.25]


def opened_graph(redis: Redis, now: float = 1.0) -> object:
    return protocol.open_graph(redis, WORKFLOW, now)


def extend_graph(*tasks: NewTask, first: int = 0) -> Given:
    return lambda redis: protocol.extend_graph(redis, WORKFLOW, first, tasks, 9.25)


def close_graph(redis: Redis) -> object:
    return protocol.close_graph(redis, WORKFLOW, 9.25)


first_of_workflow = extend_graph(graph_task(Q, "t1", **{f"group {GATE}": "ok"}))
last_of_workflow = extend_graph(graph_task("joins", "t2", t1="ok"), first=1)
gated_and_waiting = extend_graph(graph_task(Q, "t1", **{f"group {GATE}": "ok", "t3": "ok"}))
made_workflow = given(opened_graph, first_of_workflow, last_of_workflow)
EXTENDED = {
    **GRAPH,
    **IN_WORKFLOW,
    "ENTERED": [GROUP],
    "LINE": [],
    "JOINING": [],
    "JOINED": [],
    "STATUS": ["blocked"],
    "PARAMETERS": ["p"],
    "FIELDS": [["group", GROUP, "after", 1]],
}
ended_group = given(opened_group, closed_group, finish_group)
ONE_HAS_ENDED, IS_BAD = "any has ended", "any is bad"
IS_NOT_BAD, IS_OPEN = "any is not bad", "any has not ended"
ON_GROUP = f"group {GROUP}"
WOULD_EXPIRE = "one waits on, and the record would expire"
WOULD_STAY = "none waits on, and the record would stay"
IS_MAKING = "it is `making`"
SETTLE_GROUP = {**TASK, "GROUP": GROUP, "SECONDS": 61, "EXPIRY": 69.25, "LOOK": 129.25}
MEMBERS = {**IN_GROUP, "TASK": ["t1", "t2", "t3"], "ENDED": ["t1"], "BAD": ["t2"], "AGAIN": ["t3"]}


SCHEDULE = "every \\ ten"
TEN = Definition(Q, Rule(every=10), "p", options={"keep": 60})


def at_second(now: float, call: Given) -> Given:
    """Let a call believe that the clock of Redis shows so many seconds."""

    def called(redis: Redis) -> None:
        with (
            mock.patch("blueque.protocol.schedules.time_of", return_value=now),
            mock.patch("blueque.protocol.occurrences.time_of", return_value=now),
        ):
            call(redis)

    return called


def defined(now: float = 9.25, origin: str = "hand", **options: Any) -> Given:
    """Make a schedule of every 10 seconds, or change it."""
    definition = TEN._replace(**options)
    return at_second(
        now, lambda redis: protocol.set_schedule(redis, SCHEDULE, Define(definition, origin), "bob")
    )


def fired(now: float) -> Given:
    """Fire as schedulers do."""

    def fire(redis: Redis) -> None:
        record = as_hash(*redis.read(("HGETALL", keys.schedule(SCHEDULE))))
        plan = plan_of(SCHEDULE, record, now)
        assert plan is not None
        protocol.fire(redis, SCHEDULE, plan)

    return at_second(now, fire)


def fire_by(now: float, **record: Any) -> Given:
    """Fire by this record, without a read before.

    record: what differs from that of a new schedule; None: the field is not there.
    """
    whole = {"name": SCHEDULE, **TEN.fields(), **(OF_NEW | record)}
    texts = {name: str(value) for name, value in whole.items() if value is not None}
    plan = plan_of(SCHEDULE, texts, now)
    assert plan is not None
    return at_second(now, lambda redis: protocol.fire(redis, SCHEDULE, plan))


def pause_recurring(reason: str | None = None) -> Given:
    return at_second(
        9.25, lambda redis: protocol.set_schedule(redis, SCHEDULE, Pause(reason), "bob")
    )


def resume_recurring(now: float, catches_up: bool = False) -> Given:
    return at_second(
        now, lambda redis: protocol.set_schedule(redis, SCHEDULE, Resume(catches_up), "bob")
    )


def trigger(mark: str = "m1", is_forced: bool = False) -> Given:
    return at_second(9.25, lambda redis: protocol.trigger(redis, SCHEDULE, mark, "bob", is_forced))


def delete_schedule(redis: Redis) -> None:
    at_second(9.25, lambda redis: protocol.delete_schedule(redis, SCHEDULE, "bob"))(redis)


def decided(what: str, planned: int, now: float, **more: Any) -> str:
    return json.dumps({"what": what, "planned": planned, "at": now, **more}, separators=(",", ":"))


def put(*planned: int, now: float, ids: Sequence[str] = (), needs: str = "") -> Values:
    """Return the values of PUT_TASKS for tasks of these planned times."""
    new = list(ids or [id_of_occurrence(SCHEDULE, each) for each in planned])
    more = ["needs", needs] if needs else []
    waiting = needs[len("lock:") : -len("=1")]
    return {
        **{name: [] for name in CREATED_ONE if isinstance(CREATED_ONE[name], list)},
        "NOW": now,
        "NEW": new,
        "STATUS": ["pending"] * len(new),
        "INTO": [Q] * len(new),
        "PARAMETERS": ["p"] * len(new),
        "FIELDS": [["keep", 60, *more, "schedule", SCHEDULE, "planned", each] for each in planned],
        "HOME": [Q] if new else [],
        "LINE": [keys.line(Q, f"0,{needs}" if needs else "0")] if new else [],
        "JOINING": [new] if new else [],
        "ENTRIES": [[item for task in new for item in (now, task)]] if new else [],
        "JOINED": [Q] if new else [],
        **(
            {
                "NAME": [f"0,{needs}"],
                "PRIORITY": [0],
                "LISTED": [Q],
                "LOCKED": [f"0,{needs}"],
                "NEEDED": [percent_decoded(waiting)],
                "WAITING": [Q],
            }
            if needs
            else {}
        ),
    }


def noted(changed: Sequence[Any], counts: Values, *occurrences: str) -> Values:
    """Return the values of NOTE_OCCURRENCES."""
    return {
        "SCHEDULE": SCHEDULE,
        "CHANGED": list(changed),
        "COUNTER": list(counts),
        "NUMBER": list(counts.values()),
        "NOTED": [SCHEDULE] if occurrences else [],
        "OCCURRENCES": [list(occurrences)] if occurrences else [],
    }


def told(what: str, now: float = 9.25, **facts: str) -> Values:
    """Return the event that says what a person has done to a schedule."""
    event = {"event": f"schedule_{what}", "at": now, "by": "bob", "schedule": SCHEDULE, **facts}
    return {"NOTICE": json.dumps(event, separators=(",", ":"))}


def moved_on(
    changed: Sequence[Any], counts: Values, *occurrences: str, score: Any, is_spent: bool = False
) -> Values:
    """Return the values of MOVE_ON."""
    spent = {"SPENT": [SCHEDULE] if is_spent else [], "SCORE": score}
    return {**noted(changed, counts, *occurrences), **spent}


SAYS = TEN.fields()
# The record of a new schedule of which the first planned time is next.
OF_NEW: dict[str, Any] = {
    "origin": "hand",
    "digest": digest_of(SAYS),
    "last": 9,
    "version": 1,
    "created": 9.25,
    "planned": 10,
    "at": 10,
    "updated": 9.25,
}
NEW_RECORD = [
    *flat({"name": SCHEDULE, **SAYS}),
    *flat({name: OF_NEW[name] for name in ("origin", "digest", "last", "version", "created")}),
    *("planned", 10, "at", 10),
]
TEN_ID, TRIGGERED = id_of_occurrence(SCHEDULE, 10), id_of_trigger(SCHEDULE, "m1")
LOCK_OF_TEN = write_needs({}, f"schedule:{SCHEDULE}")
LOCKING = {"options": {"keep": 60, "needs": LOCK_OF_TEN}}
FIELD_IS_GONE, IS_DEFINED = "a field is gone", "it is defined"
FIRED = {
    **TASK,
    **put(10, now=12.5),
    **moved_on(
        ["last", 10, "current", TEN_ID, "failures", 0, "planned", 20, "at", 20],
        {"made": 1},
        decided("made", 10, 12.5, task=TEN_ID),
        score=20,
    ),
    "MADE": [TEN_ID],
    "EARLIER": [],
}
QUEUEING = TEN._replace(overlap="queue", options=LOCKING["options"])
TWENTY_ID = id_of_occurrence(SCHEDULE, 20)
RUNS = given(
    defined(overlap="queue", **LOCKING),
    fired(12.5),
    raw("HSET", keys.task(TEN_ID), "status", "started"),
)
OF_QUEUEING = {**QUEUEING.fields(), "digest": digest_of(QUEUEING.fields()), "failures": 0}
SET = {**TASK, **moved_on(NEW_RECORD, {}, score=10), **told("added"), "NOW": 9.25, "GONE": []}
TRIGGER = {
    **TASK,
    **put(9, now=9.25, ids=[TRIGGERED]),
    **noted(
        ["current", TRIGGERED, "failures", 0],
        {"triggered": 1},
        decided("triggered", 9, 9.25, task=TRIGGERED, by="bob"),
    ),
    **told("triggered"),
    "TASK": TRIGGERED,
    "EARLIER": [],
}
OF_SCHEDULE = {**TASK, "SCHEDULE": SCHEDULE}
REMOVED = {**OF_SCHEDULE, **told("removed")}
IS_RECORD = "there is a record"
SAMPLES = [
    created("an id drawn just now", nothing, enqueue(NEW, is_drawn=True), NEW),
    created("JSON, with options", nothing, enqueue(NEW_JSON), NEW_JSON, MAY_EXIST),
    created(
        "with a key, again", given(enqueue(WITH_KEY)), enqueue(WITH_KEY), WITH_KEY, until="MULTI"
    ),
    created("again", given(enqueue(NEW)), enqueue(NEW), NEW, MAY_EXIST, until="MULTI")._replace(
        answers=False
    ),
    created(
        "with a key that is kept",
        raw("SET", keys.key_kept("t1"), "m2"),
        enqueue(WITH_KEY),
        WITH_KEY,
        AGAIN,
        until="MULTI",
    ),
    created("later", nothing, schedule(NEW), {**NEW, "ETA": 100.5}, MAY_EXIST),
    created(
        "later, JSON, with options",
        nothing,
        schedule(NEW_JSON),
        {**NEW_JSON, "ETA": 100.5},
        MAY_EXIST,
    ),
    created("many, JSON, with options", nothing, enqueue_many(MANY_JSON), MANY_JSON, MAY_EXIST),
    created(
        "many in a line with a lock", nothing, enqueue_many(MANY_SHARED), MANY_SHARED, MAY_EXIST
    ),
    created("many with keys", nothing, enqueue_many(KEYED, **KEPT), KEYED),
    created(
        "a key that is known, and one that is kept",
        given(enqueued("t3"), raw("SET", keys.key_kept("t1"), "m2")),
        enqueue_many(KEYED, **KEPT),
        {
            **KEYED,
            "NEW": ["t2"],
            "PARAMETERS": ["p"],
            "KEYED": KEYED["KEYED"][1:2],
            **in_default_line("t2"),
        },
        AGAIN,
    ),
    created(
        "many later, to start by a time",
        nothing,
        schedule_many({**MANY, "GIVEN": IN_TIME}, [20.5, 100.0, 30.0]),
        {**MANY, **IN_NO_LINE, **OF_TIME, "ETA": [20.5, 100.0, 30.0]},
        MAY_EXIST,
        HAVE_TIME,
    ),
    *samples("enqueue_after", enqueue_after, IS_FREE)(
        case(
            "to start by a time",
            given(completed("t3"), enqueued("t4")),
            ONE_HAS_TIME,
            call=enqueue_after_with(IN_TIME, t1={"t3": "ok"}),
            FIELDS=[[*flat(IN_TIME), "after", 1]],
            STARTS=[99.5, "t1"],
        ),
        case("two queues", nothing, call=enqueue_in_two(), values=EACH),
        case(
            "in a line with a lock",
            failed("t3"),
            call=enqueue_after_with(IS_SHARED, t1={"t3": "any"}),
            FIELDS=[[*flat(IS_SHARED), "after", 1]],
            KINDS=[["t3", "+failed"]],
            LINE=[SHARED["LINE"]],
            NAME=[SHARED["NAME"]],
            PRIORITY=[0],
            LISTED=[Q],
            LOCKED=[SHARED["NAME"]],
            NEEDED=["a b"],
            WAITING=[Q],
        ),
        case(
            "JSON, and parents that have ended otherwise, or whose result it wants",
            given(completed("t3"), failed("t4")),
            HAS_ENDED,
            call=enqueue_after_with(
                {"parameters_encoding": "json", "broken": "cancel", "inputs": 0},
                t1={"t3": "ok", "t4": "ok"},
            ),
            values={
                **ONE_AFTER,
                "PARENT": ["t3", "t4"],
                "FIELDS": [
                    ["parameters_encoding", "json", "broken", "cancel", "inputs", 0, "after", 2]
                ],
                "KINDS": [["t3", "ok", "t4", "ok"]],
                "UNMET": ["t3", "t4"],
                "CHILDREN": [[9.25, "t1"]] * 2,
                "ENDED": [9.25, "t3", 9.25, "t4"],
            },
        ),
        case(
            "with keys, one of them new",
            given(two_parents, enqueued("t2", enqueued_by="another")),
            "they have keys",
            call=enqueue_after_with(A_KEY, t1={"t3": "ok"}, t2={"t3": "ok"}),
            values={
                **ONE_AFTER,
                "TASK": ["t1", "t2"],
                "KEYED": ["t1", "t2"],
                "FIELDS": [[*flat(A_KEY), "after", 1]],
            },
        ),
        case(
            "with keys again, and no parent any more",
            given(enqueued("t1", enqueued_by="m")),
            "they have keys",
            call=enqueue_after_with(A_KEY, t1={"t3": "ok"}),
            values={**ONE_AFTER, "KEYED": ["t1"]},
            until="MULTI",
        ),
        case("again", given(two_parents, enqueue_after), values=AFTER, until="MULTI"),
        case("no such parent", enqueued("t3"), values=AFTER, refuses=NoSuchTask),
        case(
            "it joins a group, and waits for groups",
            given(opened_group, ended_group_named("old"), opened_group_named("bad")),
            call=enqueue_after_with(
                {"group": GROUP},
                t1={"group old": "ok"},
                t2={"group old": "not_ok", "group bad": "ok"},
            ),
            values={
                **AFTER,
                "PARENT": [],
                "OUTER": ["old", "bad"],
                "ENTERED": [GROUP],
                "TIED": [GROUP],
                "STATUS": ["pending", "blocked"],
                "FIELDS": [["group", GROUP, "after", 1], ["group", GROUP, "after", 2]],
                "KINDS": [["group old", "+complete"], ["group old", "not_ok", "group bad", "ok"]],
                **in_default_line("t1"),
                "JOINED": [Q],
                "LOOKS": [[69.25, "t2"]],
                "UNMET": [],
                "CHILDREN": [],
                "AWAITED": ["old", "bad"],
                "WAITERS": [[9.25 + 1e-6, "t2"]] * 2,
                "OVER": ["old"],
                "ENTRANTS": [["t1", "t2"]],
                "PLACES": [[9.25, "t1", 9.25 + 1e-6, "t2"]],
            },
        ),
        case(
            "it joins a group that is closed",
            given(opened_group, closed_group),
            call=enqueue_after_with({"group": GROUP}, t1={}),
            values={**ONE_AFTER, "PARENT": [], "ENTERED": [GROUP]},
            refuses=WrongGroup,
        ),
    ),
    *samples("begin_feed", begun_feed(), BEGUN_FEED)(
        case("the first time", nothing, NO_RECORD),
        case("left", given(begun_feed("token-0"), raw("HDEL", keys.feed(Q, FEED), *FEEDER))),
        case("another is at work", begun_feed("token-0"), until="MULTI"),
        case("again", begun_feed(), until="MULTI"),
        case(
            "of another queue",
            begun_feed(queue="y", feed=f"{FEED}_x"),
            call=begun_feed(queue="x_y"),
            QUEUE="x_y",
            refuses=InvalidInput,
        ),
    ),
    *samples("feed", feed(["t1", "t2", "t3"]), FEEDING)(
        case("as usual", begun_feed(), A_TASK, A_NEW_ONE),
        case(
            "with keys, after a file, and after bad rows",
            begun_feed(),
            A_TASK,
            A_NEW_ONE,
            A_FILE,
            BAD_ROWS,
            call=feed(["t1", "t2", "t3"], done=DONE, skipped=2, keys=KEPT["keys"]),
            values={**WITH_KEYS, "DONE": flat(DONE)},
        ),
        case("bad rows only", begun_feed(), BAD_ROWS, call=feed([], skipped=2), values=NO_TASK),
        case(
            "one is new",
            given(begun_feed(), enqueued("t1"), enqueued("t3")),
            A_TASK,
            AGAIN,
            A_NEW_ONE,
            call=feed(["t1", "t2", "t3"], window=5, keys=KEPT["keys"]),
            values=ONE_NEW,
        ),
        case(
            "none is new",
            given(begun_feed(), *map(enqueued, ("t1", "t2", "t3"))),
            A_TASK,
            AGAIN,
            A_FILE,
            BAD_ROWS,
            call=feed(["t1", "t2", "t3"], window=6, done=DONE, skipped=2),
            values={**NONE_NEW, "DONE": flat(DONE)},
        ),
        case("again", given(begun_feed(), feed(["t1", "t2", "t3"])), A_TASK, block=1),
        case("no room", given(begun_feed(), enqueued("t9", priority=5)), A_TASK, block=1),
        case(
            "astray",
            begun_feed(),
            A_TASK,
            call=feed(["t1", "t2", "t3"], rows=(7, 10)),
            until="MULTI",
        ),
        case("replaced", begun_feed("token-1b"), A_TASK, refuses=Taken),
    ),
    *samples("end_feed", end_feed({}), FEED_ENDED)(
        case("the backlog is not over", begun_feed(), call=end_feed()),
        case("the backlog is fed", begun_feed(), IS_FED),
        case(
            "the backlog is fed, with files",
            begun_feed(),
            A_FILE,
            IS_FED,
            call=end_feed(DONE),
            DONE=flat(DONE),
        ),
        case("again", given(begun_feed(), end_feed({})), until="MULTI"),
        case("replaced", begun_feed("token-1b"), refuses=Taken),
        case("rows are lost", begun_feed(), call=end_feed({}, rows=3), until="MULTI"),
    ),
    *samples("forget_feed", forget_feed, BEGUN_FEED)(
        case("as usual", given(begun_feed(), end_feed(DONE))), case("again", nothing, until="MULTI")
    ),
    *samples("forget_queue", forget_queue, UNUSED)(
        case("as usual", given(registered(), deregister)),
        case(
            "with a line that needed a lock, and a feed that has expired",
            given(
                raw("ZADD", keys.lines(Q), 0, SHARED["NAME"]), raw("ZADD", keys.feeds(Q), 1, FEED)
            ),
            values={**UNUSED, **SHARED, "LOCK": ["a b"], "PART": [keys.feed(Q, FEED)]},
        ),
        case("a schedule", defined(), OTHER=[SCHEDULE], until="MULTI"),
        case("a feed", begun_feed(), PART=[keys.feed(Q, FEED)], until="MULTI"),
    ),
    *samples("set_schedule", pause_recurring(), OF_SCHEDULE)(
        case("a new one", nothing, IS_DEFINED, call=defined(), values=SET),
        case(
            "another rule, while a time is due",
            given(defined(), raw("HSET", keys.schedule(SCHEDULE), "parameters_encoding", "json")),
            FIELD_IS_GONE,
            IS_DEFINED,
            call=defined(31.5, rule=Rule(every=30, until=40)),
            values={
                **SET,
                **moved_on(
                    [
                        *flat({"name": SCHEDULE}),
                        *flat(TEN._replace(rule=Rule(every=30, until=40)).fields()),
                        *("origin", "hand", "digest"),
                        digest_of(TEN._replace(rule=Rule(every=30, until=40)).fields()),
                        *("last", 31, "version", 2),
                    ],
                    {"missed": 3},
                    decided("missed", 10, 31.5, why="changed", until=30, times=3),
                    score="+inf",
                    is_spent=True,
                ),
                **told("changed", 31.5, why="every, until"),
                "NOW": 31.5,
                "GONE": ["parameters_encoding"],
            },
        ),
        case("the same", defined(), call=defined(15.5), values=SET, until="MULTI"),
        case(
            "one of a file",
            defined(origin="file"),
            call=defined(),
            values=SET,
            refuses=WrongSchedule,
        ),
        case(
            "whose rule has no time left",
            nothing,
            call=defined(rule=Rule(every=10, until=5)),
            values=SET,
            refuses=InvalidInput,
        ),
        case(
            "a pause",
            defined(),
            values={
                **OF_SCHEDULE,
                **moved_on(["paused", 9.25, "paused_by", "bob"], {}, score="+inf"),
                **told("paused"),
            },
        ),
        case(
            "a pause with a reason",
            defined(),
            call=pause_recurring("move"),
            values={
                **OF_SCHEDULE,
                **moved_on(
                    ["paused", 9.25, "paused_by", "bob", "paused_reason", "move"], {}, score="+inf"
                ),
                **told("paused", why="move"),
            },
        ),
        case("paused before", given(defined(), pause_recurring()), until="MULTI"),
        case("a pause of none", nothing, refuses=NoSuchSchedule),
        case(
            "a pause that ends after a time was due",
            given(defined(), pause_recurring()),
            FIELD_IS_GONE,
            call=resume_recurring(10.5),
            values={
                **OF_SCHEDULE,
                **moved_on(
                    ["last", 10, "planned", 20, "at", 20],
                    {"missed": 1},
                    decided("missed", 10, 10.5, why="paused"),
                    score=20,
                ),
                **told("resumed", 10.5),
                "NOW": 10.5,
                "GONE": ["paused", "paused_by", "paused_reason"],
            },
        ),
        case(
            "a pause that ends, to catch up",
            given(defined(), pause_recurring()),
            FIELD_IS_GONE,
            call=resume_recurring(12.5, True),
            values={
                **OF_SCHEDULE,
                **moved_on(["last", 9, "planned", 10, "at", 10], {}, score=10),
                **told("resumed", 12.5),
                "NOW": 12.5,
                "GONE": ["paused", "paused_by", "paused_reason"],
            },
        ),
        case("not paused", defined(), call=resume_recurring(12.5), until="MULTI"),
    ),
    *samples("fire", fire_by(12.5), FIRED)(
        case("one that is due", defined()),
        case(
            "one that is there",
            given(defined(), lambda redis: protocol.enqueue(redis, Q, TEN_ID, "p", 1.0)),
            **put(now=12.5),
        ),
        case(
            "all of them too old",
            defined(window=0, rule=Rule(every=10, until=10)),
            call=fire_by(
                75.5,
                window=0,
                until=10,
                digest=digest_of(TEN._replace(window=0, rule=Rule(every=10, until=10)).fields()),
            ),
            values={
                **FIRED,
                **put(now=75.5),
                **moved_on(
                    ["last", 10],
                    {"missed": 1},
                    decided("missed", 10, 75.5, why="window"),
                    score="+inf",
                    is_spent=True,
                ),
                "MADE": [],
            },
        ),
        case(
            "while the one before has not ended",
            given(defined(), fired(12.5)),
            call=fire_by(
                20.5, last=10, current=TEN_ID, failures=0, planned=20, at=20, made=1, updated=12.5
            ),
            values={
                **FIRED,
                **put(now=20.5),
                **moved_on(
                    ["last", 20, "planned", 30, "at", 30],
                    {"skipped": 1},
                    decided("skipped", 20, 20.5, task=TEN_ID, why="overlap", status="pending"),
                    score=30,
                ),
                "MADE": [id_of_occurrence(SCHEDULE, 20)],
                "EARLIER": [TEN_ID],
            },
        ),
        case(
            "one that waits for the end of the one before",
            RUNS,
            call=fire_by(
                20.5,
                **OF_QUEUEING,
                last=10,
                current=TEN_ID,
                planned=20,
                at=20,
                made=1,
                updated=12.5,
            ),
            values={
                **FIRED,
                **put(20, now=20.5, needs=LOCK_OF_TEN),
                **moved_on(
                    [
                        *("last", 20, "current", TWENTY_ID, "failures", 0, "before", TEN_ID),
                        *("planned", 30, "at", 30),
                    ],
                    {"made": 1},
                    decided("made", 20, 20.5, task=TWENTY_ID),
                    score=30,
                ),
                "MADE": [TWENTY_ID],
                "EARLIER": [TEN_ID],
            },
        ),
        case("by a record that has changed", given(defined(), fired(12.5)), until="MULTI"),
    ),
    *samples("trigger", trigger(), TRIGGER)(
        case("as usual", defined()),
        case("again", given(defined(), trigger()), EARLIER=[TRIGGERED], until="MULTI"),
        case(
            "while another waits for the end of one",
            given(RUNS, fired(20.5), raw("HSET", keys.task(TWENTY_ID), "status", "started")),
            EARLIER=[TWENTY_ID, TEN_ID],
            refuses=WrongSchedule,
        ),
    ),
    *samples("delete_schedule", delete_schedule, REMOVED)(
        case("as usual", defined()), case("again", nothing, values=OF_SCHEDULE, until="MULTI")
    ),
    *samples("enqueue_due", enqueue_due, DUE)(
        case("none due", scheduled("t1", 9.5), until="WATCH"),
        case(
            "two due",
            given(scheduled("t2", 2.0), scheduled("t1", 1.0), scheduled("t3", 9.5)),
            MOVED,
            values={**DUE, "DUE": ["t1", "t2"], "STILL": ["t1", "t2"], **joining("t1", "t2")},
        ),
        case(
            "all deleted",
            given(scheduled("t1", 2.0), raw("DEL", keys.task("t1"))),
            DUE=["t1"],
            STILL=["t1"],
        ),
        case(
            "for its second attempt",
            given(scheduled("t1", 1.0), raw("HSET", keys.task("t1"), "attempt", 1)),
            MOVED,
            values={
                **DUE,
                "DUE": ["t1"],
                "STILL": ["t1"],
                **joining("t1"),
                "OLD": [],
                "CREATED": [],
            },
        ),
    ),
    *samples("register", register, TASK)(
        case("first", nothing, NOT_MEMBER, FACTS=flat(FACTS)),
        case("in place of a dead one", registered(NODE, "instance-0"), FACTS=flat(FACTS)),
        case("again", registered(), until="MULTI"),
        case("node taken", registered(NODE, "instance-2"), refuses=Taken),
    ),
    *samples("beat", beat(), BEAT)(
        case("struck off one", given(in_two, struck_off), STRUCK_OFF=[Q], ITS_NODE=[NODE]),
        case("not registered", nothing, until="MULTI"),
        case(
            "with another policy in one",
            given(in_two, settings(retry="null")),
            call=beat([HEARTBEATS[0]._replace(facts=(("retry", ""),)), HEARTBEATS[1]]),
            OBEYED=[Q],
            FACTS=[["retry", ""], []],
        ),
        case("watching a task", given(in_two, started("t1")), WATCHES, call=beat(task="t1")),
    ),
    *samples("wait", wait(5.5), WAIT)(
        case("marker there", lambda redis: protocol.wake(redis, Q), SECONDS=5.5),
        case("no marker", nothing, call=wait(0.01)),
        case(
            "busy",
            given(registered(), lambda redis: protocol.wake(redis, Q), order),
            call=wait(5.5, is_idle=False),
            SECONDS=5.5,
            block=1,
        ),
    ),
    *samples("wake", lambda redis: protocol.wake(redis, Q), TASK)(
        case("a queue", nothing),
        case("one", nothing, call=lambda redis: protocol.wake(redis, Q, NODE), block=1),
    ),
    *samples("pop", pop, TASK)(
        case("one", given(registered(), enqueued("t1"))),
        case(
            "several lines",
            given(registered(), enqueued("t1", **IS_URGENT)),
            until="MULTI",
            answers=Popped(refusal="choose"),
        ),
        case(
            "paused",
            given(registered(), enqueued("t1"), pause()),
            call=pop_from("0"),
            until="MULTI",
            answers=Popped(refusal="paused"),
        ),
        case("not registered", enqueued("t1"), refuses=NotRegistered),
    ),
    *samples("reserve", reserve, ATTEMPT)(
        case("ours", given(registered(), enqueued("t1"), popped()), OLD),
        case(
            "for its second attempt",
            given(registered(), reserved("t1"), release, popped()),
            ATTEMPT=2,
            EARLIER=[],
        ),
        case(
            "with resources",
            given(registered(), enqueued("t1", **IS_URGENT), popped(line="5,gpu=1")),
            OLD,
            call=reserve_with_gpu,
        ),
        case(
            "with a lock",
            given(registered(), enqueued("t1", **IS_SHARED), popped(line=SHARED["NAME"])),
            OLD,
            AGAIN,
            WITH_LOCK,
            values={**ATTEMPT, **SHARED, "ROOM": [keys.lock("a b")], "HELD": ["lock", "a b"]},
        ),
        case(
            "with a limit",
            given(registered(), limited, enqueued("t1"), popped()),
            OLD,
            AGAIN,
            LIMITED,
            ROOM=[keys.counted(Q), keys.started(Q)],
            HELD=["counted", 1],
        ),
        case(
            "deleted",
            given(registered(), enqueued("t1"), popped(), raw("DEL", keys.task("t1"))),
            values=TASK,
            block=1,
        ),
        case(
            "without the resources",
            given(registered(), enqueued("t1", **IS_URGENT), popped(line="5,gpu=1")),
            OTHER_LINE,
            call=reserve_without,
            **URGENT,
            block=2,
            refuses=NotFree,
            until="",
        ),
        case(
            "found in a line that is not its own",
            given(registered(), enqueued("t1", **IS_URGENT), popped(line="5,gpu=1")),
            OTHER_LINE,
            call=reserve_from_default,
            **URGENT,
            block=2,
            refuses=NotFree,
            until="",
        ),
        case(
            "lock taken",
            given(
                registered(),
                raw("SADD", keys.lock("a b"), "t8", "t9"),
                enqueued("t1", **IS_SHARED),
                popped(line=SHARED["NAME"]),
            ),
            AGAIN,
            WITH_LOCK,
            *IN_LOCKED_LINE,
            values={**ATTEMPT, **SHARED, "ROOM": [keys.lock("a b")]},
            block=2,
            refuses=NotFree,
            until="",
        ),
        case(
            "limit reached",
            given(
                registered(),
                limited,
                raw("SADD", keys.counted(Q), "t7", "t8", "t9"),
                enqueued("t1"),
                popped(),
            ),
            AGAIN,
            LIMITED,
            ROOM=[keys.counted(Q), keys.started(Q)],
            block=2,
            refuses=NotFree,
            until="",
        ),
        case("again", given(registered(), reserved("t1")), values=TASK, until="MULTI"),
        case("not in our list", given(registered(), enqueued("t1")), values=TASK, until="MULTI"),
        case(
            "held by another node",
            given(
                registered(),
                reserved("t1", token="token-2"),
                raw("HSET", keys.task("t1"), "node", "other"),
            ),
            values=TASK,
            block=1,
        ),
        case(
            "held by a former life",
            given(registered(), reserved("t1", token="token-0")),
            values=TASK,
            until="MULTI",
        ),
        case("not registered", nothing, values=TASK, refuses=NotRegistered),
    ),
    *samples("start", start({}), START)(
        case("reserved by 1.0.0", reserved_by_1_0_0("t1"), call=start({}, token=None)),
        case("again", given(registered(), started("t1")), until="MULTI"),
        case("another's", given(registered(), reserved("t1", token="token-2")), refuses=NotOwner),
    ),
    *samples("progress", progress, PROGRESS)(
        case("as usual", given(registered(), started("t1"))),
        case("not started", given(registered(), reserved("t1")), refuses=NotOwner),
    ),
    *samples("note", note(), NOTE)(
        case("the first", given(registered(), started("t1"))),
        case(
            "the next", given(registered(), started("t1"), note()), call=note(2), NUMBER=2, EVENTS=4
        ),
        case("there already", given(registered(), started("t1"), note(2)), until="MULTI"),
        case("not started", given(registered(), reserved("t1")), refuses=NotOwner),
    ),
    *samples("log", log(1, 2), LOG)(
        case(
            "of another attempt",
            given(registered(), started("t1"), log(2, attempt=7)),
            ANOTHER_ATTEMPT,
        ),
        case(
            "not printed by the task",
            given(registered(), started("t1"), log(1)),
            call=log(2, stream="blueque"),
            NUMBER=[2],
            TEXT=LOG["TEXT"][1:],
            STREAM="blueque",
            PRINTED=["printed", 9.25],
        ),
        case(
            "compressed",
            given(registered(), started("t1"), log(1)),
            call=log(2, encoding="zlib"),
            NUMBER=[2],
            TEXT=LOG["TEXT"][1:],
            ENCODED=["encoding", "zlib"],
        ),
        case(
            "not printed by the task, nor what is there",
            given(registered(), started("t1"), log(1, stream="blueque")),
            call=log(2, stream="blueque"),
            NUMBER=[2],
            TEXT=LOG["TEXT"][1:],
            STREAM="blueque",
        ),
        case(
            "the last",
            given(registered(), started("t1"), log(1, is_head=True)),
            OVER,
            call=log(2, is_over=True),
            NUMBER=[2],
            TEXT=LOG["TEXT"][1:],
        ),
        case("all are there", given(registered(), started("t1"), log(2)), until="MULTI"),
        case("not started", given(registered(), reserved("t1")), call=log(1), refuses=NotOwner),
    ),
    *samples("checkpoint", checkpoint(value="7", directory="host:/spool/t1/1"), CHECKPOINT)(
        case("as usual", given(registered(), started("t1"))),
        case(
            "its directory is gone",
            given(registered(), started("t1")),
            "there are such",
            call=checkpoint(value="7", directory=None),
            GONE=["directory"],
            PARTS=["value", 7],
        ),
        case(
            "with another key",
            given(registered(), started("t1")),
            "it needs another key",
            call=checkpoint(value="aes:k1.0a1b2c3d AAAA", directory="host:/spool/t1/1"),
            NEEDS="key.k1.0a1b2c3d=1",
            PARTS=["value", "aes:k1.0a1b2c3d AAAA", "directory", "host:/spool/t1/1"],
        ),
        case(
            "of another task",
            given(
                registered(),
                started("t1"),
                raw("HSET", keys.checkpoint("t1"), "attempt", 3, "created", "0.5", "value", "6"),
            ),
            "it is of another task",
            call=checkpoint(value="7", directory=None),
            PARTS=["value", 7],
        ),
        case("declared lost", lost()),
        case(
            "not started",
            given(registered(), reserved("t1")),
            call=checkpoint(value="7"),
            refuses=NotOwner,
        ),
    ),
    *samples("end", complete(), COMPLETED)(
        case("complete", given(registered(), started("t1")), STARTED),
        case(
            "complete, with a checkpoint",
            given(registered(), started("t1")),
            STARTED,
            LEFT_CHECKPOINT,
            call=complete(has_checkpoint=True),
        ),
        case(
            "complete, reserved by 1.0.0",
            given(reserved_by_1_0_0("t1"), start({}, token=None)),
            STARTED,
            call=complete(token=None),
            BY=[],
        ),
        case(
            "complete, after many events",
            given(registered(), started("t1"), raw("HSET", keys.task("t1"), "events", 20)),
            STARTED,
        ),
        case("complete, again", completed("t1"), until="MULTI"),
        case("complete, after fail", failed("t1"), refuses=NotOwner),
        case(
            "complete, leaves tasks of several queues",
            given(opened_group_named("g"), failed("t2"), started("t1")),
            STARTED,
            HAS_ENDED,
            call=complete(then=FOUR),
            values={**COMPLETED, **CREATED, "OCTETS": octets(A, B, C, D)},
            block=1,
        ),
        case(
            "complete, leaves a task that waits for this one",
            given(registered(), started("t1")),
            STARTED,
            call=complete(then=[new("a", Q, {"t1": "ok"})]),
            values={
                **COMPLETED,
                **CREATED_ONE,
                "OCTETS": octets(A),
                "PARENT": ["t1"],
                "FIELDS": [["spawned_by", "t1", "after", 1]],
                "DEPENDENT": [A],
                "KINDS": [["t1", "+complete"]],
            },
            block=1,
        ),
        case(
            "complete, leaves a task that waits for one that is gone",
            given(registered(), started("t1")),
            STARTED,
            call=complete(then=[new("a", Q, {"gone": "any"})]),
            values={
                **COMPLETED,
                **CREATED_ONE,
                "OCTETS": octets(A),
                "PARENT": ["gone"],
                "FIELDS": [["spawned_by", "t1", "after", 1]],
                "DEPENDENT": [A],
                "KINDS": [["gone", "+gone"]],
            },
            block=1,
        ),
        case(
            "complete, leaves a task, with a checkpoint",
            given(registered(), started("t1")),
            STARTED,
            "it has left a checkpoint",
            call=complete(has_checkpoint=True, then=[new("a", Q)]),
            values={**COMPLETED, **CREATED_ONE, "OCTETS": octets(A)},
            block=1,
        ),
        case(
            "complete, leaves a task, declared lost",
            lost(),
            FAILED_ONE,
            call=complete(then=[new("a", Q)]),
            values={**COMPLETED, **CREATED_ONE, "OCTETS": octets(A)},
            block=1,
        ),
        case(
            "complete, leaves a task, holding a lock",
            given(registered(), started("t1"), holding),
            STARTED,
            *HOLDS,
            call=complete(then=[new("a", Q)]),
            values={**COMPLETED, **CREATED_ONE, "OCTETS": octets(A), "LOCK": "a b"},
            block=1,
        ),
        case(
            "fail, never started",
            given(registered(), reserved("t1")),
            RESERVED,
            call=fail({}),
            values=FAILED_PLAINLY,
        ),
        case("fail, declared lost", lost(), FAILED_ONE, call=fail(ENDING), values=FAILED),
        case(
            "retry at once, holding a lock",
            given(registered(), started("t1"), holding),
            STARTED,
            HAS_FAILED,
            AS_LAST,
            *HOLDS,
            *IN_LOCKED_LINE,
            call=retry(None),
            values={**RETRIED_AT_ONCE, **SHARED},
        ),
        case(
            "retry later, as the task wants",
            given(registered(), started("t1")),
            STARTED,
            WANTS_IT,
            call=postpone(20.5),
            values=POSTPONED,
        ),
        case(
            "retry, to be cancelled",
            given(registered(), started("t1"), cancel()),
            STARTED,
            call=retry(20.5),
            values={**ENDED_BY_ORDER, "FACTS": flat(FAILURE)},
        ),
        case(
            "retry, again",
            given(registered(), started("t1"), retry(20.5)),
            call=retry(20.5),
            values=RETRIED,
            until="MULTI",
        ),
        case(
            "release, reserved",
            given(registered(), reserved("t1")),
            RESERVED,
            HANDED_BACK,
            AS_NEXT,
            call=release,
            values=RELEASED,
        ),
        case(
            "release, started",
            given(registered(), started("t1")),
            STARTED,
            HANDED_BACK,
            AS_NEXT,
            call=release_with_facts,
            values=WHY,
        ),
    ),
    *samples("spawn", spawn(*FOUR), SPAWN_ONE)(
        case(
            "of several queues",
            given(opened_group_named("g"), failed("t2"), started("t1")),
            HAS_ENDED,
            values=SPAWN,
        ),
        case(
            "with tags",
            given(registered(), started("t1")),
            call=spawn(new("a", Q, tags=OPTIONS["tags"])),
            values={
                **SPAWN_ONE,
                **tagging(A),
                "FIELDS": [["tags", OPTIONS["tags"], "spawned_by", "t1"]],
            },
        ),
        case(
            "into the closed group of its task",
            given(
                registered(),
                started("t1"),
                raw("HSET", keys.task("t1"), "group", "g"),
                opened_group_named("g"),
                lambda redis: protocol.close_group(redis, "g", 2.0),
            ),
            call=spawn(new("a", Q, group="g")),
            FIELDS=[["group", "g", "spawned_by", "t1"]],
            ENTERED=["g"],
            ENTRANTS=[[A]],
            PLACES=[[9.25, A]],
        ),
        case(
            "again",
            given(registered(), started("t1"), spawn(new("a", Q))),
            call=spawn(new("a", Q)),
            until="MULTI",
        ),
        case(
            "from an old attempt",
            given(registered(), started("t1")),
            call=spawn(new("a", Q), token="old"),
            refuses=NotOwner,
        ),
        case(
            "with a parent that is gone",
            given(registered(), started("t1")),
            call=spawn(new("a", Q, {"gone": "ok"})),
            PARENT=["gone"],
            refuses=NoSuchTask,
        ),
    ),
    *samples("place", place(priority=7), STAYS)(
        case(
            "not urgent any more",
            enqueued("t1", priority=5),
            AGAIN,
            "that is to be 0",
            IN_LINE_NOW,
            LAST,
            PRIORITIZED,
            call=place(priority=0),
            LINE=keys.line(Q, "5"),
        ),
        case("not urgent already", enqueued("t1"), call=place(priority=0), until="MULTI"),
        case("urgent, and scheduled", scheduled("t1", 20.5), PRIORITIZED, values=TO_SEVEN),
        case(
            "urgent, and reserved",
            given(registered(), reserved("t1")),
            values=TASK,
            refuses=WrongState,
        ),
        case(
            "urgent, in another queue",
            given(enqueued("t1"), raw("HSET", keys.task("t1"), "queue", "other")),
            values=TASK,
            refuses=WrongQueue,
        ),
        case(
            "first of the default line",
            given(enqueued("t0"), enqueued("t1")),
            TO_BE_NEXT,
            IN_LINE_NOW,
            NEXT,
            ONLY_NEXT,
            call=place(is_first=True),
        ),
        case(
            "the next already", enqueued("t1"), TO_BE_NEXT, call=place(is_first=True), until="MULTI"
        ),
        case(
            "first, and popped",
            given(registered(), enqueued("t1"), popped()),
            TO_BE_NEXT,
            call=place(is_first=True),
            refuses=WrongState,
        ),
        case(
            "first, and scheduled",
            scheduled("t1", 20.5),
            TO_BE_NEXT,
            call=place(is_first=True),
            refuses=WrongState,
        ),
        case(
            "to another queue, with a lock",
            enqueued("t1", **IS_SHARED),
            AGAIN,
            MOVES,
            IN_LINE_NOW,
            LAST,
            NOT_DEFAULT,
            NEEDS_LOCK,
            call=place(to="to"),
            values={**TO_ANOTHER, **OF_SHARED, "NEW_LINE": keys.line("to", SHARED["NAME"])},
        ),
        case(
            "to another queue, scheduled",
            scheduled("t1", 20.5),
            MOVES,
            SCHEDULED + " and moves",
            call=place(to="to"),
            values={**TO_ANOTHER, "ETA": 20.5},
        ),
        case(
            "to another queue, blocked",
            given(enqueued("t2"), waiting("t1", t2="ok")),
            MOVES,
            BLOCKED + " and moves",
            call=place(to="to"),
            values=TO_ANOTHER,
        ),
        case(
            "to another queue, again",
            given(enqueued("t1"), place(to="to")),
            call=place(to="to"),
            values=MOVE,
            until="MULTI",
        ),
        case(
            "to another queue, and popped",
            given(registered(), enqueued("t1"), popped()),
            call=place(to="to"),
            values=MOVE,
            refuses=WrongState,
        ),
    ),
    *samples("bring_forward", bring_forward, TASK)(
        case("scheduled", scheduled("t1", 20.5)),
        case("due", scheduled("t1", 9.25), until="MULTI"),
        case("pending", enqueued("t1"), refuses=WrongState),
    ),
    *[
        Sample("expire", how, before, expire(), EXPIRE, conditions)
        for how, before, conditions in (
            ("pending", in_time("t1"), [PENDING]),
            ("scheduled", scheduled("t1", 20.5, start_before=9.0), [SCHEDULED]),
            ("blocked", waits_in_time, [BLOCKED]),
        )
    ],
    *[
        Sample("expire", f"{how}, to another queue", before, expire(), found, conditions, block=1)
        for how, before, found, conditions in (
            ("pending", in_time("t1", expired_to="to"), EXPIRE, [PENDING]),
            (
                "scheduled",
                scheduled("t1", 20.5, start_before=9.0, expired_to="to"),
                {**EXPIRE, "ETA": 20.5},
                [SCHEDULED],
            ),
            ("blocked", given(waits_in_time, goes_to), EXPIRE, [BLOCKED]),
            (
                "with a lock",
                in_time("t1", expired_to="to", **IS_SHARED),
                {**EXPIRE, **SHARED, "NEW_LINE": keys.line("to", SHARED["NAME"])},
                [
                    AGAIN,
                    PENDING,
                    PENDING + ", and not in the default line",
                    PENDING + " and needs a lock",
                ],
            ),
        )
    ],
    *[
        Sample("expire", what, before, expire(queue), expire_in(queue), block=2)
        for what, before, queue in (
            ("without a time", enqueued("t1"), Q),
            ("had an attempt", given(in_time("t1"), raw("HSET", keys.task("t1"), "attempt", 1)), Q),
            (
                "complete",
                given(in_time("t1"), raw("HSET", keys.task("t1"), "status", "complete")),
                Q,
            ),
            ("gone", nothing, ""),
        )
    ],
    *[
        Sample("expire", what, before, expire(queue), expire_in(queue), until="MULTI")
        for what, before, queue in (
            ("not yet", in_time("t1", 9.5), Q),
            ("popped", given(registered(), in_time("t1"), popped()), Q),
            ("elsewhere", in_time("t1"), "audio"),
        )
    ],
    *samples("set_settings", pause(), TASK)(
        case(
            "a pause",
            nothing,
            "some are to be there",
            answers=True,
            values={
                **TASK,
                "NAME": ["paused", "paused_by"],
                "SET": ["paused", "9.25", "paused_by", "ann"],
                **notice("paused", by="ann"),
            },
        ),
        case(
            "a pause with a reason",
            nothing,
            "some are to be there",
            call=pause("full"),
            values={
                **TASK,
                "NAME": ["paused", "paused_by", "paused_reason"],
                "SET": ["paused", "9.25", "paused_by", "ann", "paused_reason", "full"],
                **notice("paused", by="ann", reason="full"),
            },
        ),
        case(
            "a second pause",
            pause("full"),
            call=lambda redis: protocol.set_settings(
                redis, Q, pausing("bob", None, 10.5), 10.5, "bob"
            ),
            NAME=["paused", "paused_by"],
            until="MULTI",
            answers=False,
        ),
        case(
            "the end of a pause",
            pause("full"),
            "some are to go",
            WAKES,
            call=resume,
            values={
                **TASK,
                "NAME": list(NOT_PAUSED),
                "REMOVED": list(NOT_PAUSED),
                **notice("resumed", by="bob"),
            },
        ),
        case(
            "a limit",
            nothing,
            "some are to be there",
            WAKES,
            call=settings(max_running="3"),
            values={
                **TASK,
                "NAME": ["max_running"],
                "SET": ["max_running", 3],
                **notice("set", by="bob", max_running="3"),
            },
        ),
        case(
            "some",
            settings(lead="5"),
            "some are to be there",
            call=settings(retry="null", time_limit="7200"),
            values={
                **TASK,
                "NAME": ["retry", "time_limit"],
                "SET": ["retry", "null", "time_limit", "7200"],
                **notice("set", by="bob", retry="null", time_limit="7200"),
            },
        ),
        case(
            "only remove",
            settings(lead="5"),
            "some are to go",
            call=settings(lead=None),
            values={
                **TASK,
                "NAME": ["lead"],
                "REMOVED": ["lead"],
                **notice("set", by="bob", unset="lead"),
            },
        ),
        case(
            "again",
            settings(lead="5"),
            call=settings(lead="5", weight=None),
            NAME=["lead", "weight"],
            until="MULTI",
            answers=False,
        ),
    ),
    *samples("freeze", freeze([Q], ["complete", "failed", "cancelled"]), FREEZE)(
        case(
            "all of two queues",
            given(enqueued("t0", **IS_URGENT), registered(), started("t1")),
            call=freeze([Q, "audio"], STATUSES),
            values=FREEZE_ALL,
        )
    ),
    *samples("claim_batch", claim_batch("w"), BATCH)(
        case("there is none", nothing),
        case("somebody else's", claim_batch("v"), until="MULTI"),
        case("of one that is dead", claim_batch("v"), call=claim_batch("w", over="v"), block=1),
    ),
    *samples("mark_batch", mark_batch("closed"), BATCH)(
        case("alive", claim_batch("w"), call=mark_batch(None), MARKED=[]),
        case(
            "written",
            claim_batch("w"),
            call=mark_batch("written", staging="w", rows=2),
            MARKED=["state", "written", "staging", "w", "rows", 2],
        ),
        case(
            "again",
            given(claim_batch("w"), mark_batch("published")),
            call=mark_batch("published"),
            until="MULTI",
        ),
        case("taken over", claim_batch("v"), call=mark_batch("written"), refuses=Taken),
        case("closed", claim_batch("w"), block=1),
        case("closed before", nothing, until="MULTI"),
    ),
    *samples("erase", erase(*ROWS), ERASE)(
        case(
            "as usual",
            given(claim_batch("w"), completed("t1"), cancelled_with_key("t2"), enqueued("t3")),
        ),
        case(
            "put in line again since",
            given(claim_batch("w"), failed("t1"), requeue),
            call=erase(("t1", "failed", 5.0, 1)),
            values={**BATCH, "TASK": ["t1"]},
            until="MULTI",
        ),
        case(
            "taken over",
            claim_batch("v"),
            call=erase(("t1", "failed", 5.0, 1)),
            values={**BATCH, "TASK": ["t1"]},
            refuses=Taken,
        ),
    ),
    *samples("prune", prune("complete", t1=5.0), PRUNE)(
        case(
            "the first of an order",
            given(completed("t1"), enqueued("t2")),
            "they are the first of an order",
            call=prune("complete", event=PURGED, t1=5.0, t2=5.0),
            **notice("purged", by="ann", tasks=7, status="pending"),
        ),
        case(
            "as usual",
            given(completed("t1"), enqueued("t2")),
            call=prune("complete", t1=5.0, t2=5.0),
        ),
        case(
            "as many as there are too many",
            given(completed("t1"), completed("t2")),
            call=prune("complete", 1, t1=5.0, t2=5.0),
        ),
        case(
            "no more are there than are to stay",
            completed("t1"),
            call=prune("complete", 1, t1=5.0),
            TASK=["t1"],
            until="MULTI",
        ),
        case("others wait for it", given(completed("t1"), is_parent), TASK=["t1"], until="MULTI"),
        case(
            "ended again since",
            completed("t1"),
            call=prune("complete", t1=4.5),
            TASK=["t1"],
            until="MULTI",
        ),
    ),
    *samples("purge", purge("t1"), PURGE)(
        case(
            "the first of an order",
            given(completed("t3"), enqueued("t1"), scheduled("t2", 9.5)),
            A_SCHEDULED,
            "they are the first of an order",
            call=purge("t1", "t2", "t3", event=PURGED),
            **notice("purged", by="ann", tasks=7, status="pending"),
        ),
        case(
            "with tags",
            given(completed("t3"), enqueued("t1"), scheduled("t2", 9.5), tagged("t2")),
            A_SCHEDULED,
            call=purge("t1", "t2", "t3"),
            **untagging("t2"),
        ),
        case(
            "blocked, and one for which it waits",
            given(enqueued("t1"), waiting("t2", t1="ok")),
            A_BLOCKED,
            call=purge("t1", "t2"),
            TASK=["t1", "t2"],
            SAME=["t2"],
            PENDING=[],
            LINE=[],
            SCHEDULED=[],
            BLOCKED=["t2"],
            BOUND=["t2"],
            COUNT=1,
        ),
        case(
            "an urgent one, with a key",
            given(enqueued("t1", key="a", keep=60, enqueued_by="m"), urgent),
            TASK=["t1"],
            SAME=["t1"],
            LINE=[URGENT["LINE"]],
            SCHEDULED=[],
            KEPT=["t1"],
            MARK=["m"],
            KEEP=[60],
            COUNT=1,
        ),
        case(
            "taken by 1.0.0 that has not said so",
            given(enqueued("t1"), raw("RPOP", keys.pending(Q))),
            TASK=["t1"],
            until="MULTI",
        ),
        case("taken since", completed("t1"), TASK=["t1"], until="MULTI"),
    ),
    *samples("leave_batch", leave_batch("w"), BATCH)(
        case("as usual", claim_batch("w")), case("taken over", claim_batch("v"), until="MULTI")
    ),
    *samples("thaw", thaw, THAW)(
        case("as usual", freeze([Q], ["complete"])), case("again", nothing, until="MULTI")
    ),
    *samples("align_line", align_line("5,gpu=1"), TASK)(
        case("empty", raw("ZADD", keys.lines(Q), 5, "5,gpu=1"), "it has no tasks", **URGENT),
        case(
            "empty, with a lock",
            raw("ZADD", keys.lines(Q), 0, SHARED["NAME"]),
            LOCKED,
            "it has no tasks",
            "it has none, and is for a lock",
            call=align_line(SHARED["NAME"]),
            **SHARED,
        ),
        case(
            "hidden, with a lock",
            given(enqueued("t1", **IS_SHARED), raw("DEL", keys.waiting("a b"))),
            LOCKED,
            "it has tasks",
            "it has tasks, and is for a lock",
            call=align_line(SHARED["NAME"]),
            **SHARED,
        ),
        case("listed", enqueued("t1", **IS_URGENT), **URGENT, until="MULTI"),
        case("gone", nothing, **URGENT, until="MULTI"),
    ),
    *samples("wake_waiting", lambda redis: protocol.wake_waiting(redis, "a b"), {"LOCK": "a b"})(
        case(
            "two queues",
            raw(
                "SADD",
                keys.waiting("a b"),
                f"0,lock:a%20b=2_{Q}",
                "0,lock:a%20b=2_a_b",
                "5,lock:a%20b=2_a_b",
            ),
            WAITING=["a_b", Q],
        ),
        case("nobody waits", nothing, WAITING=[]),
    ),
    *samples("cancel", cancel(), CANCEL)(
        case("scheduled", scheduled("t1", 20.5), SCHEDULED),
        case(
            "pending",
            enqueued("t1"),
            PENDING,
            call=cancel("too late"),
            WHO=["cancelled_by", "ann", "cancel_reason", "too late"],
        ),
        case("popped", given(registered(), enqueued("t1"), popped()), PENDING),
        case("reserved", given(registered(), reserved("t1")), RESERVED),
        case(
            "reserved, holding a lock",
            given(registered(), reserved("t1"), holding),
            RESERVED,
            *HOLDS,
            **SHARED,
        ),
        case(
            "reserved, and counted",
            given(registered(), reserved("t1"), raw("HSET", keys.task("t1"), "counted", 1)),
            RESERVED,
            *HOLDS[1:],
        ),
        case("blocked", given(enqueued("t2"), waiting("t1", t2="ok")), BLOCKED),
        case("others wait for it", given(enqueued("t1"), is_parent), PENDING),
        case("started", given(registered(), started("t1")), block=1),
        case("again", given(enqueued("t1"), cancel()), until="MULTI"),
        case("started, again", given(registered(), started("t1"), cancel()), until="MULTI"),
        case("with 1.0.0", reserved_by_1_0_0("t1"), refuses=WrongState),
        case("complete", completed("t1"), refuses=WrongState),
        case(
            "of another queue",
            given(enqueued("t1"), raw("HSET", keys.task("t1"), "queue", "other")),
            refuses=WrongQueue,
        ),
    ),
    *samples("requeue", requeue, REQUEUE)(
        case(
            "declared lost",
            given(lost(), with_files),
            FAILED_ONE,
            LAST=["last_files", "host:/spool/t1/1"],
        ),
        case("failed, urgent", given(failed("t1"), urgent), FAILED_ONE, OTHER_LINE, **URGENT),
        case(
            "failed, held a lock",
            given(failed("t1"), holding),
            FAILED_ONE,
            *IN_LOCKED_LINE,
            **SHARED,
        ),
        case(
            "cancelled, with a condition that can never be met",
            given(
                enqueued("t2"),
                waiting("t1", t2="not_ok"),
                completes,
                lambda redis: protocol.settle(redis, "t2", 6.0),
            ),
            CANCELLED,
            DROPPED=["t2"],
        ),
        case(
            "cancelled, of a group",
            given(opened_group, joined("t1"), cancel()),
            CANCELLED,
            GROUP=[GROUP],
        ),
        case(
            "of a workflow that is not complete",
            given(opened_graph, first_of_workflow, cancel()),
            GROUP=[GROUP],
            refuses=WrongGroup,
        ),
        case("again", given(failed("t1"), requeue), until="MULTI"),
        case("complete", completed("t1"), refuses=WrongState),
        case(
            "of another queue",
            given(failed("t1"), raw("HSET", keys.task("t1"), "queue", "other")),
            refuses=WrongQueue,
        ),
    ),
    *[
        Sample(
            "requeue",
            f"{status}, with a condition that is not met",
            given(
                given(enqueued("t2"), enqueued("t3")),
                waiting("t1", t2="ok", t3="any"),
                cancel(),
                raw("HSET", keys.task("t1"), "status", status),
                raw("HSET", keys.conditions("t1"), "t3", "-gone"),
            ),
            requeue,
            {**REQUEUE, "STATUS": "blocked", "DROPPED": ["t3"]},
            holds,
        )
        for status, holds in (("cancelled", [CANCELLED]), ("failed", [FAILED_ONE]))
    ],
    *samples("interrupt", interrupt(), INTERRUPT)(
        case("as usual", given(registered(), started("t1"))),
        case(
            "for a reason",
            given(registered(), started("t1")),
            call=interrupt("reboot"),
            WHY=["interrupt_reason", "reboot"],
            REASON="reboot",
        ),
        case("again", given(registered(), started("t1"), interrupt()), until="MULTI"),
    ),
    *[
        Sample("interrupt", what, before, interrupt(), INTERRUPT, until="MULTI", refuses=refusal)
        for what, before, refusal in (
            ("pending", enqueued("t1"), WrongState),
            ("gone", nothing, WrongState),
            ("being cancelled", given(registered(), started("t1"), cancel()), WrongState),
            (
                "of 1.0.0",
                given(registered(), started("t1"), raw("HDEL", keys.task("t1"), "token")),
                WrongState,
            ),
            (
                "of another queue",
                given(registered(), started("t1"), raw("HSET", keys.task("t1"), "queue", "other")),
                WrongQueue,
            ),
        )
    ],
    *samples("ask_stack", ask_stack(), ASK_STACK)(
        case("as usual", given(registered(), started("t1"))),
        case("again", given(registered(), started("t1"), ask_stack()), until="MULTI"),
    ),
    *samples("decline_stack", decline_stack(), DECLINE_STACK)(
        case("as usual", given(registered(), started("t1"), ask_stack())),
        case(
            "somebody else has asked",
            given(registered(), started("t1"), ask_stack("m0")),
            until="MULTI",
        ),
    ),
    *samples("order", order, ORDER)(
        case("as usual", registered(), BY_A_PERSON, **of_listener("listener_draining")),
        case("again", given(registered(), order), until="MULTI"),
        case("nobody there", nothing, until="MULTI", answers=False),
        case(
            "pause",
            registered(),
            BY_A_PERSON,
            call=pause_listener,
            WHAT="pause",
            **of_listener("listener_paused"),
        ),
        case("of its own", registered(), call=leave_listener, WHAT="leave", WHO="a signal"),
        case(
            "pause of one that drains",
            given(registered(), order),
            call=pause_listener,
            until="MULTI",
        ),
        case(
            "leaving of one that drains",
            given(registered(), order),
            call=leave_listener,
            until="MULTI",
        ),
    ),
    *samples("delete", delete, TASK)(
        case("complete", completed("t1"), "it is complete", answers=True),
        case(
            "with tags", given(completed("t1"), tagged("t1")), "it is complete", **untagging("t1")
        ),
        case("failed", failed("t1"), "it is failed"),
        case(
            "by a person",
            failed("t1"),
            "it is failed",
            "a person deletes it",
            call=delete_by_ann,
            **notice("deleted", by="ann", status="failed"),
        ),
        case("cancelled", given(enqueued("t1"), cancel()), CANCELLED),
        case(
            "with a key",
            given(enqueue_many(KEYED, **KEPT), cancel()),
            CANCELLED,
            WITH_KEEP,
            MARK="m",
            KEEP=60,
        ),
        case("others wait for it", given(failed("t1"), is_parent), refuses=HasDependents),
        case(
            "its group has not noted its end",
            given(completed("t1"), raw("ZADD", keys.UNSETTLED_MEMBERS, 1, "t1")),
            refuses=HasDependents,
        ),
        case("again", nothing, until="MULTI", answers=False),
        case("not finished", enqueued("t1"), refuses=WrongState),
        case(
            "of another queue",
            given(completed("t1"), raw("HSET", keys.task("t1"), "queue", "other")),
            refuses=WrongQueue,
        ),
    ),
    *samples("deregister", deregister, OF_DEAD)(
        case("as usual", registered(), MEMBER, values=TASK, answers=True),
        case("struck off", given(registered(), struck_off), values=TASK),
        case(
            "holding a task",
            given(registered(), reserved("t1")),
            values=TASK,
            until="MULTI",
            answers=False,
        ),
        case(
            "replaced", registered(instance="instance-2"), values=TASK, until="MULTI", answers=False
        ),
        case("again", given(registered(), deregister), values=TASK, until="MULTI", answers=True),
        case("one that is dead", fenced(), call=deregister_dead(), answers=True),
    ),
    *samples("observe", observe, OBSERVED)(
        case("as usual", in_two, NOT_BEATEN),
        case("after a beat", in_two, call=observe_beaten, UNREAD=[]),
    ),
    *samples("fence", fence, FENCE)(
        case("as usual", dead_listener, MEMBER, values=DIED, answers=True),
        case(
            "struck off",
            given(dead_listener, raw("SREM", keys.listeners(Q), DEAD)),
            values={**DIED, "STRUCK": ["struck", 1]},
        ),
        case("again", given(dead_listener, fence), until="MULTI", answers=True),
        case(
            "has beaten",
            given(
                dead_listener,
                lambda redis: protocol.beat(redis, [Heartbeat(Q, DEAD, "instance-0", 1)], 3.0),
            ),
            until="MULTI",
            answers=False,
        ),
        case(
            "one of 1.0.0",
            raw("SADD", keys.listeners(Q), DEAD),
            call=fence_legacy,
            block=1,
            answers=True,
        ),
        case("one of 1.0.0, again", nothing, call=fence_legacy, until="MULTI", answers=False),
    ),
    *samples("recover", recover(), FENCE)(
        case("reserved", fenced(held_by_the_dead)),
        case(
            "reserved, holding a lock",
            fenced(held_by_the_dead, holding),
            *HOLDS,
            *IN_LOCKED_LINE,
            **SHARED,
        ),
        case(
            "nobody remembers it",
            given(enqueued("t1"), raw("RPOPLPUSH", keys.pending(Q), keys.reserved(Q, DEAD))),
            call=recover(None),
        ),
        case(
            "deleted",
            fenced(raw("LPUSH", keys.reserved(Q, DEAD), "t1")),
            block=1,
            answers="dropped",
        ),
        case(
            "of another queue",
            fenced(held_by_the_dead, raw("HSET", keys.task("t1"), "queue", "other")),
            block=1,
        ),
        case("started", fenced(started_by_the_dead), until="MULTI", answers="started"),
        case("claimed", fenced(held_by_the_dead, claimed), until="MULTI", answers="claimed"),
        case(
            "claimed, and started",
            fenced(started_by_the_dead, claimed, raw("HDEL", keys.task("t1"), "pid_start")),
            until="MULTI",
            answers="claimed",
        ),
        case("again", fenced(held_by_the_dead, fence, recover()), until="MULTI"),
    ),
    *samples("adopt", adopt(), ADOPT)(
        case("as usual", given(registered(), fenced(started_by_the_dead))),
        case("again", given(registered(), fenced(started_by_the_dead), adopt()), until="MULTI"),
        case("has ended", completed("t1"), call=adopt(NODE), until="MULTI"),
        case("not registered", fenced(started_by_the_dead), refuses=NotRegistered),
    ),
    *samples("lose", lose(), LOSE)(
        case("to run again", fenced(started_by_the_dead), call=lose(Retry())),
        case(
            "to run again, with files",
            fenced(started_by_the_dead, with_files),
            call=lose(Retry(), {"lost_node": DEAD}),
            FACTS=[*LOSE["FACTS"], "last_files", "host:/spool/t1/1", "lost_node", DEAD],
        ),
        case(
            "to run again, holding a lock",
            fenced(started_by_the_dead, holding),
            *HOLDS,
            *IN_LOCKED_LINE,
            call=lose(Retry()),
            **SHARED,
        ),
        case(
            "to be cancelled, holding a lock",
            fenced(started_by_the_dead, holding, cancel()),
            *HOLDS,
            values={**LOSE_CANCELLED, **SHARED},
        ),
        case("for good", fenced(started_by_the_dead), values=LOSE_FOR_GOOD),
        case(
            "once too often",
            fenced(started_by_the_dead, raw("HSET", keys.task("t1"), "interruptions", 3)),
            call=lose(Retry(), {"lost_node": DEAD}),
            values={
                **LOSE_FOR_GOOD,
                "KIND": "poison",
                "FACTS": [
                    *("error", "e", "error_type", "poison"),
                    *("interruptions", 4, "lost_node", DEAD),
                ],
            },
        ),
        case(
            "of our own",
            given(registered(), started("t1")),
            call=lose(instance=I, node=NODE),
            values={**LOSE_FOR_GOOD, "NODE": NODE},
        ),
        case("again", fenced(started_by_the_dead, fence, lose()), until="MULTI"),
        case(
            "of a listener of 1.0.0 that is back",
            given(dead_listener, started_by_the_dead, raw("DEL", keys.listener(Q, DEAD))),
            call=lose(instance=None),
            until="MULTI",
            answers=None,
        ),
    ),
    *samples("restore", restore, RESTORE)(
        case("as usual", given(lost(DEAD, "instance-0"), registered())),
        case(
            "held a lock",
            given(lost(DEAD, "instance-0"), holding, registered()),
            *HOLDS[:2],
            **SHARED,
        ),
        case("again", given(lost(DEAD, "instance-0"), registered(), restore), until="MULTI"),
        case("requeued", given(lost(DEAD, "instance-0"), registered(), requeue), until="MULTI"),
        case("of ours", given(lost(), registered(instance="instance-2")), call=restore_again),
        case("failed in another way", failed("t1"), until="MULTI", answers=None),
        case("not registered", lost(), refuses=NotRegistered),
    ),
    *samples("reassert", reassert, REASSERT)(
        case(
            "with tags",
            registered(),
            NOT_IN_LIST,
            call=reassert_with({"tags": OPTIONS["tags"]}),
            values={
                **REASSERT,
                **tagging("t1"),
                "FIELDS": flat({**OURS, "tags": OPTIONS["tags"], "updated": 9.25}),
            },
        ),
        case("pending", given(registered(), enqueued("t1")), NOT_IN_LIST),
        case("blocked", given(registered(), enqueued("t2"), waiting("t1", t2="ok")), NOT_IN_LIST),
        case("reserved", given(registered(), reserved("t1"))),
        case(
            "held a lock",
            registered(),
            NOT_IN_LIST,
            *HOLDS[:2],
            call=reassert_with(IS_SHARED | {"lock": "a b", "counted": "1"}),
            values={
                **REASSERT,
                **SHARED,
                "FIELDS": flat(
                    {**OURS, **IS_SHARED, "lock": "a b", "counted": "1", "updated": 9.25}
                ),
            },
        ),
        case(
            "pending in another line",
            given(registered(), enqueued("t1", **IS_URGENT)),
            NOT_IN_LIST,
            **URGENT,
        ),
        case(
            "pending, to begin again",
            given(registered(), enqueued("t1"), raw("HSET", keys.task("t1"), "attempt", 1)),
            until="MULTI",
            answers=None,
        ),
        case("again", given(registered(), reassert), until="MULTI"),
        case("ended", completed("t1"), until="MULTI"),
        case("not registered", nothing, refuses=NotRegistered),
    ),
    *samples("claim", claim(), CLAIM)(
        case(
            "one of two",
            given(dead_listener, *[reserved(task, DEAD, "instance-0") for task in ("t1", "t2")]),
            CLAIMED,
            HELD=["t2", "t1"],
            CLAIMED="t2",
        ),
        case("none left", dead_listener, FORGOTTEN, MARKED),
        case("of 1.0.0", raw("SADD", keys.listeners(Q), DEAD), FORGOTTEN, call=claim(None)),
        case("struck off already", nothing, until="MULTI"),
    ),
    *samples("align_task", align(), TASK)(
        case(
            "in line, deleted",
            raw("LPUSH", keys.pending(Q), "t1"),
            call=align(IN_LINE),
            values=aligned(IN_LINE, wrong=[IN_LINE]),
        ),
        case(
            "held twice",
            given(registered(), reserved("t1"), raw("LPUSH", HELD.place.key, "t1")),
            call=align(HELD),
            values=aligned(HELD, wrong=[HELD]),
        ),
        case(
            "held and in line",
            given(enqueued("t1"), raw("LPUSH", HELD.place.key, "t1")),
            call=align(HELD, IN_LINE),
            values=aligned(HELD, IN_LINE, wrong=[HELD]),
        ),
        case(
            "popped",
            given(registered(), enqueued("t1"), popped()),
            call=align(HELD, IN_LINE),
            values=aligned(HELD, IN_LINE),
            until="MULTI",
        ),
        case(
            "started, and pending",
            given(enqueued("t1"), raw("SADD", RUNNING.place.key, RUNNING.text)),
            call=align(RUNNING),
            values=aligned(RUNNING, wrong=[RUNNING]),
        ),
        case(
            "of a lock that it holds",
            given(registered(), started("t1"), holding, raw("SADD", OF_LOCK.place.key, "t1")),
            call=align(OF_LOCK),
            values=aligned(OF_LOCK),
            until="MULTI",
        ),
        case(
            "indexed, deleted by 1.0.0",
            raw("ZADD", INDEXED.place.key, 1, "t1"),
            "it is no task, and the index had it",
            call=align(INDEXED),
            values=aligned(INDEXED, wrong=[INDEXED]),
        ),
        case(
            "missing in line",
            given(enqueued("t1"), raw("DEL", IN_LINE.place.key)),
            MISSED,
            call=align(IN_LINE, updated="1.0"),
            values=aligned(IN_LINE, LINE=IN_LINE.place.key),
        ),
        case(
            "missing in a line with a lock",
            given(enqueued("t1", **IS_SHARED), raw("DEL", SHARED["LINE"])),
            MISSED,
            "it is missing in another line",
            "it is missing, and needs a lock",
            call=align(IN_SHARED_LINE, updated="1.0"),
            values=aligned(IN_SHARED_LINE, **SHARED),
        ),
        case(
            "missing in line, popped since",
            given(registered(), enqueued("t1"), popped()),
            call=align(IN_LINE, updated="0.5"),
            values=aligned(IN_LINE),
            until="MULTI",
        ),
        case(
            "missing among the scheduled ones",
            given(scheduled("t1", 8.5), raw("DEL", LATER.place.key)),
            call=align(LATER),
            values=aligned(LATER, lacking=[LATER], score=8.5),
        ),
        case(
            "missing in the index",
            given(enqueued("t1"), raw("DEL", INDEXED.place.key)),
            call=align(INDEXED),
            values=aligned(INDEXED, lacking=[INDEXED], score=1.0),
        ),
        case(
            "missing in the index of tags",
            given(enqueued("t1"), tagged("t1")),
            call=align(OF_TAG),
            values=aligned(OF_TAG, lacking=[OF_TAG]),
        ),
        case(
            "missing among the unsettled ones",
            given(
                enqueued("t1"), waiting("t2", t1="ok"), cancel(), raw("DEL", UNSETTLED.place.key)
            ),
            call=align(UNSETTLED),
            values=aligned(UNSETTLED, lacking=[UNSETTLED], score=9.25),
        ),
        case(
            "not to be settled",
            given(enqueued("t1"), cancel()),
            call=align(UNSETTLED),
            values=aligned(UNSETTLED),
            until="MULTI",
        ),
        case(
            "a stump",
            raw("HSET", keys.task("t1"), "status", "failed", "error", "e"),
            IS_NO_TASK,
            values=aligned(),
        ),
        case(
            "complete, with both outcomes",
            given(completed("t1"), both_outcomes),
            *UNDONE[:1],
            values=aligned(),
        ),
        case(
            "failed, with both outcomes",
            given(failed("t1"), both_outcomes),
            *UNDONE[1:],
            values=aligned(),
        ),
    ),
    *samples("align_queue", align_queue(NODE), TASK)(
        case(
            "no last beat",
            given(registered(), raw("DEL", keys.nodes(Q))),
            ABOUT_ONE,
            IS_REGISTERED,
            ABOUT=[NODE],
            BEAT_AT=2.0,
            COUNT=1,
        ),
        case(
            "dead",
            given(registered(), raw("HSET", keys.listener(Q, NODE), "state", "dead")),
            ABOUT_ONE,
            IS_REGISTERED,
            IS_DEAD,
            ABOUT=[NODE],
            BEAT_AT=2.0,
            COUNT=0,
        ),
        case(
            "not registered",
            raw("ZADD", keys.nodes(Q), 2, NODE),
            ABOUT_ONE,
            IS_NOT_REGISTERED,
            ABOUT=[NODE],
            COUNT=0,
        ),
        case(
            "another number",
            given(registered(), raw("ZINCRBY", keys.QUEUES, 5, Q)),
            call=align_queue(),
            ABOUT=[],
            COUNT=1,
        ),
    ),
    *samples("settle", settle, TASK)(
        case("none waits", given(failed("t1"), is_parent), HAS_NONE),
        case(
            "one waits on",
            given(
                enqueued("t1"),
                waiting("t2", t1="ok"),
                fails,
                lambda redis: protocol.settle(redis, "t1", 6.0),
            ),
        ),
        case(
            "one is left",
            given(enqueued("t1"), waiting("t2", t1="ok"), completes),
            call=next_dependents,
            until="MULTI",
        ),
        case("runs again", given(enqueued("t1"), waiting("t2", t1="ok"))),
    ),
    *samples("recheck", recheck, RECHECK)(
        case(
            "waits",
            given(two_parents, waiting("t1", t3="ok", t4="ok")),
            HAS_COME,
            PARENT=["t3", "t4"],
        ),
        case(
            "parents that do not know it, have failed, or are gone",
            given(
                enqueued("t2"),
                two_parents,
                waiting("t1", t2="ok", t3="ok", t4="ok"),
                fails,
                raw("HDEL", keys.task("t2"), "dependents"),
                raw("ZREM", keys.dependents("t3"), "t1"),
                raw("DEL", keys.task("t4")),
            ),
            HAS_COME,
            ONE_UNSETTLED,
            PARENT=["t2", "t3", "t4"],
            DECIDED=["t4"],
            MARK=["-gone"],
            UNLINKED=["t2", "t3"],
            LEFT=["t4"],
            NOT_MET=["t2"],
            UNSETTLED=[9.25, "t4", 9.25, "t2"],
        ),
        case(
            "wants two results",
            given(
                enqueued("t2"), enqueued("t3"), waiting("t1", inputs=0, t2="ok", t3="ok"), completes
            ),
            HAS_COME,
            ONE_UNSETTLED,
            PARENT=["t2", "t3"],
            UNSETTLED=[9.25, "t2"],
        ),
        case(
            "all met, with a result",
            given(enqueued("t2"), waiting("t1", inputs=0, t2="ok"), completes),
            AGAIN,
            ONE_UNSETTLED,
            call=tell("t2"),
            values={**RECHECK, **OF_T2, **FREED, **COPIED_T2, "FREED_BY": "t2"},
            block=1,
        ),
        case(
            "with an encrypted result",
            given(
                enqueued("t2"),
                two_parents,
                waiting("t1", inputs=0, t2="ok", t3="ok"),
                completes,
                raw("HSET", keys.task("t2"), "result_encoding", "aes:k1.0a1b2c3d:json"),
            ),
            AGAIN,
            ONE_UNSETTLED,
            call=tell("t2"),
            values={
                **RECHECK,
                **OF_T2,
                "COPIED": ["t2"],
                "RESULT": ["eaes:k1.0a1b2c3d:json r"],
                "SIZE": [22],
                "NEEDS": ["needs", "key.k1.0a1b2c3d=1"],
            },
        ),
        case(
            "all met, needs a lock",
            given(enqueued("t2"), waiting("t1", needs="lock:a%20b=2", t2="ok"), completes),
            ONE_UNSETTLED,
            *IN_LOCKED_LINE,
            call=tell("t2"),
            values={**RECHECK, **OF_T2, **FREED, **SHARED, "FREED_BY": "t2"},
            block=1,
        ),
        case(
            "all are met already, and its time is still to come",
            given(
                enqueued("t2"),
                waiting("t1", 100.5, t2="ok"),
                raw("HSET", keys.conditions("t1"), "t2", "+dropped"),
            ),
            HAS_COME,
            STATUS="scheduled",
            ETA=100.5,
            FREED_BY=None,
            block=1,
        ),
        case(
            "not needed",
            given(enqueued("t2"), waiting("t1", t2="not_ok"), completes),
            HAS_COME,
            ONE_UNSETTLED,
            values={**RECHECK, **OF_T2, **broken("task t2 is complete"), "MARK": ["-complete"]},
            block=2,
        ),
        case(
            "a parent has failed",
            given(enqueued("t2"), waiting("t1", broken="cancel", t2="ok"), fails),
            call=tell("t2"),
            values={**RECHECK, **broken("task t2 is failed"), "PARENT": ["t2"], "NOT_MET": ["t2"]},
            block=2,
        ),
        case(
            "groups",
            given(
                opened_group,
                opened_group_named("old"),
                opened_group_named("bad"),
                waiting("t1", **{ON_GROUP: "ok", "group old": "not_ok", "group bad": "ok"}),
                ended_group_named("old"),
                raw("DEL", keys.awaiting(GROUP), keys.awaiting("bad")),
                raw("SADD", keys.bad_members("bad"), "t2"),
                ended_group_named("bad"),
            ),
            HAS_COME,
            values={
                **RECHECK,
                **broken("group old is complete", "group old"),
                "OUTER": [GROUP, "old", "bad"],
                "DECIDED": ["group old"],
                "MARK": ["-complete"],
                "UNAWARE": [GROUP, "bad"],
                "LEFT_GROUP": ["old"],
                "OVER": ["old", "bad"],
            },
            block=2,
        ),
        case(
            "a group has failed",
            given(
                opened_group,
                waiting_for_group("ok", "t1"),
                raw("SADD", keys.bad_members(GROUP), "t2"),
                closed_group,
                finish_group,
            ),
            call=tell(ON_GROUP),
            OUTER=[GROUP],
            NOT_MET_GROUP=[GROUP],
        ),
        case(
            "cancelled",
            given(enqueued("t2"), waiting("t1", t2="ok"), cancel(), completes),
            ONE_UNSETTLED,
            call=tell("t2"),
            **OF_T2,
        ),
        case("not blocked", enqueued("t1"), HAS_COME, block=3, answers="stale"),
    ),
    *samples("unblock", unblock(), UNBLOCK)(
        case(
            "all, of one that needs a lock",
            given(enqueued("t2"), waiting("t1", needs="lock:a%20b=2", t2="ok")),
            *IN_LOCKED_LINE,
            values={
                **UNBLOCK,
                **FREED,
                **SHARED,
                "DROPPED": ["t2"],
                "PARENT": ["t2"],
                "FREED_BY": "ann",
            },
            block=1,
        ),
        case(
            "all, of one whose time is still to come",
            given(enqueued("t2"), waiting("t1", 100.5, t2="ok")),
            STATUS="scheduled",
            QUEUED=[],
            ETA=100.5,
            DROPPED=["t2"],
            PARENT=["t2"],
            FREED_BY="ann",
            block=1,
        ),
        case(
            "a group",
            given(opened_group, enqueued("t2"), waiting("t1", **{ON_GROUP: "ok", "t2": "ok"})),
            call=unblock(ON_GROUP),
            DROPPED=[ON_GROUP],
            PARENT=[],
            GROUP=[GROUP],
            WHO="ann",
            NAMES=ON_GROUP,
        ),
        case("again", given(waits_for_two, unblock()), until="MULTI"),
        case("not among them", waits_for_two, call=unblock("t4"), until="MULTI", answers="blocked"),
        case("not blocked", enqueued("t1"), refuses=WrongState),
        case(
            "of a workflow that is not complete",
            given(opened_graph, first_of_workflow),
            OWN_GROUP=[GROUP],
            refuses=WrongGroup,
        ),
        case(
            "only from another task, with its workflow not complete",
            given(enqueued("t3"), opened_graph, gated_and_waiting),
            call=unblock("t3"),
            OWN_GROUP=[GROUP],
            DROPPED=["t3"],
            PARENT=["t3"],
            WHO="ann",
            NAMES="t3",
        ),
        case(
            "of another queue",
            given(enqueued("t2"), waiting("t1", queue="audio", t2="ok")),
            refuses=WrongQueue,
        ),
    ),
    *samples("open_graph", opened_graph, IN_WORKFLOW)(
        case("as usual", nothing, call=lambda redis: opened_graph(redis, 9.25)),
        case("again", opened_graph, until="MULTI"),
        case(
            "another workflow is not complete",
            lambda redis: protocol.open_graph(redis, WORKFLOW._replace(mark="other"), 1.0),
            refuses=WrongGroup,
        ),
    ),
    *samples("extend_graph", last_of_workflow, EXTENDED)(
        case(
            "the second, which waits for the first",
            given(opened_graph, first_of_workflow),
            TASK=["t2"],
            ENTRANTS=[["t2"]],
            PLACES=[[9.25, "t2"]],
            PARENT=["t1"],
            NEW=["t2"],
            INTO=["joins"],
            DEPENDENT=["t2"],
            KINDS=[["t1", "ok"]],
            HOME=["joins"],
            ENTRIES=[[9.25, "t2"]],
            BLOCKING=["joins"],
            LOOKS=[[69.25, "t2"]],
            UNMET=["t1"],
            CHILDREN=[[9.25, "t2"]],
        ),
        case(
            "one that waits for a task that has ended",
            given(failed("t3"), opened_graph),
            HAS_ENDED,
            call=extend_graph(graph_task(Q, "t1", t3="ok")),
            TASK=["t1"],
            ENTRANTS=[["t1"]],
            PLACES=[[9.25, "t1"]],
            PARENT=["t3"],
            NEW=["t1"],
            INTO=[Q],
            DEPENDENT=["t1"],
            KINDS=[["t3", "ok"]],
            HOME=[Q],
            ENTRIES=[[9.25, "t1"]],
            BLOCKING=[Q],
            LOOKS=[[69.25, "t1"]],
            UNMET=["t3"],
            CHILDREN=[[9.25, "t1"]],
            ENDED=[9.25, "t3"],
        ),
        case("again", made_workflow, TASK=["t2"], PARENT=["t1"], until="MULTI"),
        case(
            "the task is there already",
            given(opened_graph, enqueued("t1")),
            call=extend_graph(graph_task(Q, "t1")),
            TASK=["t1"],
            refuses=WrongGroup,
        ),
    ),
    *samples("close_graph", close_graph, IN_WORKFLOW)(
        case("as usual", made_workflow),
        case("not all are there", given(opened_graph, first_of_workflow), until="MULTI"),
        case("it was cancelled", given(made_workflow, cancel_group()), refuses=WrongGroup),
        case("there is none", nothing, refuses=NoSuchGroup),
    ),
    *samples("cancel_group", cancel_group(), IN_GROUP)(
        case(
            "one that is making",
            made_workflow,
            IS_MAKING,
            values={**IN_WORKFLOW, "CLOSED": CLOSES, "WHO": ["cancelled_by", "ann"]},
        ),
        case(
            "one that has gone on since",
            made_workflow,
            call=lambda redis: protocol.cancel_group(
                redis, GROUP, "ann", None, 9.25, updated="1.0"
            ),
            values=IN_WORKFLOW,
            until="MULTI",
        ),
        case(
            "an open one",
            opened_group,
            call=cancel_group("enough"),
            CLOSED=["state", "closed", "closed", 9.25],
            WHO=["cancelled_by", "ann", "cancel_reason", "enough"],
        ),
        case(
            "a closed one",
            given(opened_group, closed_group),
            WHO=["cancelled_by", "ann"],
            answers=True,
        ),
        case("again", given(opened_group, cancel_group()), until="MULTI", answers=True),
        case("that has ended", ended_group, until="MULTI", answers=False),
        case("there is none", nothing, refuses=NoSuchGroup),
    ),
    *samples("enqueue_members", enqueue_members(KEYED_MEMBERS), KEYED_MEMBERS)(
        case("all new", opened_group, ANY_MADE, A_NEW),
        case(
            "that must start by a time",
            opened_group,
            ANY_MADE,
            A_NEW,
            "they have a `start_before`",
            call=lambda redis: protocol.enqueue_members(
                redis, member_batch(KEYED_MEMBERS, Links(GROUP), {"start_before": 90.5})
            ),
            OPTIONS=["start_before", 90.5, "group", GROUP],
            STARTS=[90.5, ONE, 90.5, TWO, 90.5, THREE],
        ),
        case(
            "some for later",
            opened_group,
            ANY_MADE,
            A_LATER,
            A_NEW,
            call=enqueue_members({**KEYED_MEMBERS, **KEYED_LATER}),
            values={**KEYED_MEMBERS, **KEYED_LATER, **in_default_line(THREE)},
        ),
        case(
            "that wait for others",
            given(enqueued("t3"), ended_group_named("old"), opened_group),
            ANY_MADE,
            call=enqueue_members(
                {**KEYED_MEMBERS, "ETAS": [20.5, None, None]},
                Links(GROUP, {"t3": "ok", ON_OLD: "any"}, "cancel"),
            ),
            **WAITING_MEMBERS,
        ),
        case(
            "that wait for others, of which one has ended",
            given(failed("t3"), ended_group_named("old"), opened_group),
            ANY_MADE,
            HAS_ENDED,
            call=enqueue_members(
                {**KEYED_MEMBERS, "ETAS": [20.5, None, None]},
                Links(GROUP, {"t3": "ok", ON_OLD: "any"}, "cancel"),
            ),
            values={**KEYED_MEMBERS, **WAITING_MEMBERS, "ENDED": [9.25, "t3"]},
        ),
        case(
            "of a group that was opened with what they wait for, which is gone",
            given(enqueued("t3"), opened_after("t3"), raw("DEL", keys.task("t3"))),
            ANY_MADE,
            call=enqueue_members(
                {**KEYED_MEMBERS, "ETAS": [20.5, None, None]}, Links(GROUP, {"t3": "ok"})
            ),
            values={
                **KEYED_MEMBERS,
                **WAITING_MEMBERS,
                "OPTIONS": ["group", GROUP, "after", 1],
                "OUTER": [],
                "KINDS": ["t3", "ok"],
                **{name: [] for name in ("UNMET", "CHILDREN", "AWAITED", "WAITERS", "OVER")},
            },
        ),
        case(
            "of a group that was opened with what others wait for",
            given(enqueued("t3"), opened_after("t3")),
            refuses=WrongGroup,
        ),
        case(
            "one is a member, though its task was deleted",
            given(
                opened_group,
                enqueue_members({**KEYED_MEMBERS, "TASK": [ONE], "ETAS": None}),
                raw("DEL", keys.task(ONE)),
            ),
            ANY_MADE,
            A_NEW,
            values={
                **KEYED_MEMBERS,
                "NEW": [TWO, THREE],
                "KEY": ["k2", "k3"],
                "ENTRIES": [9.25, TWO, 9.25, THREE],
                **in_default_line(TWO, THREE),
                "ENTRANTS": [TWO, THREE],
                "PLACES": [9.25, TWO, 9.250001, THREE],
            },
        ),
        case(
            "all were there before the group was opened again",
            given(
                opened_group,
                *[raw("HSET", keys.task(task), "group", GROUP) for task in (ONE, TWO, THREE)],
            ),
            AGAIN,
            A_MEMBER,
            values={
                **KEYED_MEMBERS,
                **IN_NO_LINE,
                "NEW": [],
                "KEY": [],
                "ENTRIES": [],
                "ENTRANTS": [],
                "PLACES": [],
                "AGAIN": [9.25, ONE, 9.250001, TWO, 9.250002, THREE],
                "THERE": [ONE, TWO, THREE],
                "NOTED": [9.25, ONE, 9.25, TWO, 9.25, THREE],
            },
        ),
    ),
    *[
        Sample(
            "enqueue_members",
            case,
            before,
            enqueue_members(KEYED_MEMBERS),
            KEYED_MEMBERS,
            holds,
            until="MULTI",
            refuses=refusal,
        )
        for case, before, holds, refusal in [
            ("again", given(opened_group, enqueue_members(KEYED_MEMBERS)), [], None),
            (
                "again, when the group is closed",
                given(opened_group, enqueue_members(KEYED_MEMBERS), closed_group),
                [],
                None,
            ),
            ("the group is closed", given(opened_group, closed_group), [], WrongGroup),
            ("there is no group", nothing, [], NoSuchGroup),
            (
                "a task with this key is in no group",
                given(opened_group, raw("HSET", keys.task(ONE), "queue", Q)),
                [AGAIN],
                WrongGroup,
            ),
        ]
    ],
    *samples("close_group", closed_group, IN_GROUP)(
        case(
            "a member was lost",
            given(opened_group, enqueue_members(KEYED_MEMBERS)),
            call=lambda redis: protocol.close_group(redis, GROUP, 9.25, 4),
            refuses=WrongGroup,
        ),
        case("one that is making", opened_graph, refuses=WrongGroup),
        case("as usual", opened_group, call=lambda redis: closed_group(redis, 9.25)),
        case("again", given(opened_group, closed_group), until="MULTI"),
        case("there is none", nothing, refuses=NoSuchGroup),
    ),
    *samples("open_group", lambda redis: opened_group(redis, 9.25), IN_GROUP)(
        case("as usual", nothing),
        case("again", opened_group, call=opened_group, until="MULTI"),
        case(
            "by a call with keys, whose tasks wait for others and are held",
            given(enqueued("t3"), ended_group_named("old")),
            call=opened_with(
                Terms({"t3": "ok", ON_OLD: "any"}, "cancel", None, 900_000, f"batch of {Q}")
            ),
            PARENT=["t3"],
            OUTER=["old"],
            TERMS=[
                *["after", LINKED["after"], "broken", "cancel"],
                *["hold", 900_009.25, "made_by", f"batch of {Q}"],
            ],
        ),
        case(
            "again, when what its tasks wait for is gone",
            given(enqueued("t3"), opened_after("t3"), raw("DEL", keys.task("t3"))),
            call=opened_after("t3"),
            PARENT=["t3"],
            until="MULTI",
        ),
    ),
    *[
        Sample(
            "open_group",
            case,
            before,
            opened_after(name),
            {**IN_GROUP, **parents},
            until="MULTI",
            refuses=refusal,
        )
        for case, before, name, parents, refusal in [
            ("with another `after`", opened_group, "t3", {"PARENT": ["t3"]}, WrongGroup),
            ("there is no such parent", nothing, "t3", {"PARENT": ["t3"]}, NoSuchTask),
            ("there is no such group", nothing, ON_OLD, {"OUTER": ["old"]}, NoSuchGroup),
            (
                "its tasks are to wait for an open group",
                opened_group_named("old"),
                ON_OLD,
                {"OUTER": ["old"]},
                WrongGroup,
            ),
        ]
    ],
    *samples("reopen_group", reopen_group(), IN_GROUP)(
        case("as usual", given(opened_group, closed_group)),
        case(
            "with members that are held",
            given(opened_group, closed_group),
            "its members are to be held",
            call=reopen_group(5),
            HOLD=14.25,
        ),
        case(
            "by a call with keys",
            given(opened_group, closed_group),
            "a call with keys opens it again",
            call=reopen_group(made_by="batch of video"),
            CLOSER="batch of video",
        ),
        case(
            "with members that are held for longer than it is kept",
            given(opened_group, closed_group),
            call=reopen_group(61),
            refuses=WrongGroup,
        ),
    ),
    *[
        Sample("reopen_group", case, before, reopen_group(), IN_GROUP, until="MULTI", refuses=why)
        for case, before, why in [
            ("again", opened_group, None),
            ("there is none", nothing, NoSuchGroup),
            ("a cancelled one", given(opened_group, cancel_group()), WrongGroup),
            ("one that is making", opened_graph, WrongGroup),
        ]
    ],
    *samples("collect_group", collect_group, IN_GROUP)(
        case("held", given(opened_held_group, closed_group))
    ),
    *[
        Sample(
            "collect_group", case, before, collect_group, IN_GROUP, until="MULTI", refuses=refusal
        )
        for case, before, refusal in [
            ("again", given(opened_held_group, closed_group, collect_group), None),
            ("not held", opened_group, None),
            ("an open one", opened_held_group, WrongGroup),
            (
                "one with an open member",
                given(opened_held_group, enqueue_members(KEYED_MEMBERS), closed_group),
                WrongGroup,
            ),
            ("there is none", nothing, NoSuchGroup),
        ]
    ],
    *samples("settle_members", settle_members("t1", "t2", "t3"), MEMBERS)(
        case(
            "as usual",
            given(
                opened_group, joined("t1", "t3"), raw("HSET", keys.task("t1"), "status", "complete")
            ),
            ONE_HAS_ENDED,
            IS_BAD,
            IS_NOT_BAD,
            IS_OPEN,
        ),
        case(
            "a complete one",
            given(opened_group, joined("t1"), raw("HSET", keys.task("t1"), "status", "complete")),
            ONE_HAS_ENDED,
            IS_NOT_BAD,
            call=settle_members("t1"),
            TASK=["t1"],
            BAD=[],
            AGAIN=[],
        ),
        case(
            "a cancelled one",
            given(opened_group, joined("t2"), raw("HSET", keys.task("t2"), "status", "cancelled")),
            ONE_HAS_ENDED,
            IS_BAD,
            call=settle_members("t2"),
            TASK=["t2"],
            ENDED=[],
            AGAIN=[],
        ),
        case(
            "one that runs again",
            given(opened_group, joined("t3")),
            IS_NOT_BAD,
            IS_OPEN,
            call=settle_members("t3"),
            TASK=["t3"],
            ENDED=[],
            BAD=[],
        ),
        case(
            "without a record",
            raw("ZADD", keys.UNSETTLED_MEMBERS, 1, "t1"),
            call=settle_members("t1", group=""),
            TASK=["t1"],
            GROUP="",
            block=1,
        ),
    ),
    *samples("finish_group", finish_group, IN_GROUP)(
        case("as usual", given(opened_group, closed_group), answers="ended"),
        case(
            "a member runs again",
            given(ended_group, raw("SADD", keys.open_members(GROUP), "t1")),
            block=1,
            answers="closed",
        ),
        case("an open one", opened_group, block=2),
        case("without a record", nothing, block=3),
        case("again", ended_group, until="MULTI"),
    ),
    *samples("settle_group", settle_group, SETTLE_GROUP)(
        case("none waits", ended_group, WOULD_STAY),
        case("none waits, again", given(ended_group, settle_group)),
        case(
            "failed, a task waits on",
            given(
                opened_group,
                raw("SADD", keys.bad_members(GROUP), "t1"),
                closed_group,
                finish_group,
                lambda redis: protocol.settle_group(redis, GROUP, 6.0),
                waiting_for_group("ok", "t2"),
                raw("ZADD", keys.awaiting(GROUP), "+inf", "t2"),
            ),
            WOULD_EXPIRE,
        ),
        case(
            "a member runs again",
            given(ended_group, raw("SADD", keys.open_members(GROUP), "t1")),
            until="MULTI",
        ),
    ),
    *samples("drop_group", drop_group, IN_GROUP)(
        case("as usual", ended_group),
        case("again", nothing, until="MULTI"),
        case("that has not ended", opened_group, refuses=WrongGroup),
        case(
            "for which a task waits",
            given(opened_group, waiting_for_group("ok"), closed_group, finish_group),
            refuses=WrongGroup,
        ),
    ),
    *samples("align_schedule", align_schedule, OF_SCHEDULE)(
        case(
            "another score",
            given(defined(), raw("ZADD", keys.SCHEDULES, 5, SCHEDULE)),
            IS_RECORD,
            SCORE=10,
        ),
        case(
            "a time that was decided",
            given(
                defined(),
                fired(12.5),
                raw("HSET", keys.schedule(SCHEDULE), "planned", 10, "at", 10),
            ),
            IS_RECORD,
            "what is next is wrong, and a time comes",
            NEXT=20,
            NEXT_AT=20,
            SCORE=20,
        ),
        case(
            "a time after the rule was over",
            given(
                defined(rule=Rule(every=10, until=10)),
                fired(12.5),
                raw("HSET", keys.schedule(SCHEDULE), "at", 30),
            ),
            IS_RECORD,
            "what is next is wrong, and no time comes",
            GONE=["at"],
            SCORE="+inf",
        ),
        case("no record", nothing, "there is no record"),
    ),
]


def held(sample: Sample) -> list[str]:
    """Return the conditions that hold, with what follows from them."""
    is_held = {STARTED, RESERVED} & {*sample.holds}
    becomes = f"it becomes {sample.values.get('STATUS')}"
    return [*sample.holds, becomes, *([f"{RESERVED} or started"] if is_held else [])]


def expected(sample: Sample, before: Values) -> list[Command]:
    """Return what the server is to see. before: the fields of the tasks before the call, by their
    ids.
    """
    events = int(before.get("t1", {}).get("events", 0)) + 1
    values = {"EVENTS": events, "DAY": "1970-01-01", **sample.values, "BEFORE": before}
    holds = held(sample)
    looks, changes = section(sample.function)
    change = changes[sample.block]
    number = change.look if sample.look is None else sample.look
    look = [] if number is None else looks[number]
    unknown = set(sample.holds) - conditions(look) - conditions(change.lines) - {AGAIN, RESERVED}
    assert not unknown, f"the section {sample.function} has no line with: if {unknown}"
    if sample.until == "WATCH":
        return commands(
            list(itertools.takewhile(lambda line: not line.startswith("WATCH"), look)),
            values,
            holds,
        )
    seen = commands(look, {**values, **IN_FIRST_LOOK} if AGAIN in holds else values, holds)
    if AGAIN in holds:
        seen += [["UNWATCH"], *commands(look, values, holds, "second")]
    if sample.until:
        return [*seen, ["UNWATCH"]]
    return seen + commands(change.lines, values, holds)


def look_of(name: str) -> list[str]:
    return section(name).looks[0]


# The tests


def test_every_function_has_a_section_and_every_section_a_function():
    assert sorted(sections()) == sorted(TRANSACTIONS)


@pytest.mark.parametrize(
    "sample", SAMPLES, ids=[f"{sample.function}: {sample.case}" for sample in SAMPLES]
)
def test_the_server_sees_what_the_section_says(sample, redis, monitor):
    sample.given(redis)
    outcome: AbstractContextManager[object] = (
        pytest.raises(sample.refuses) if sample.refuses else nullcontext()
    )

    def call() -> None:
        with outcome:
            assert sample.call(redis) == sample.answers

    before = {
        task: as_hash(*redis.read(("HGETALL", keys.task(task))))
        for task in ("t1", "t2", "t3", "t4")
    }
    redis.close()  # and with it what a look sent ahead watches

    assert monitor.commands_of(redis, call) == expected(sample, before)


@pytest.mark.parametrize("name", sorted(TRANSACTIONS))
def test_every_change_of_a_section_is_run_with_and_without_each_optional_line(name):
    looks, changes = section(name)
    whole = [sample for sample in SAMPLES if sample.function == name and not sample.until]
    look_of_sample = {
        id(each): changes[each.block].look if each.look is None else each.look for each in whole
    }

    assert {sample.block for sample in whole} == set(range(len(changes)))
    assert {number for number in look_of_sample.values() if number is not None} == set(
        range(len(looks))
    )
    for number, change in enumerate(changes):
        runs = [held(sample) for sample in whole if sample.block == number]
        for condition in conditions(change.lines):
            assert {condition in holds for holds in runs} == {True, False}, (
                f"{name}: if {condition}"
            )
    for number, look in enumerate(looks):
        runs = [held(sample) for sample in whole if look_of_sample[id(sample)] == number]
        for condition in conditions(look):
            assert {condition in holds for holds in runs} == {True, False}, (
                f"{name}: if {condition}"
            )


def test_remarks_in_blocks_are_of_the_kinds_that_the_document_explains():
    for name in sections():
        for line in section(name).lines:
            _, _, when = remark(line)
            assert not when or re.match(r"if |each \[", when), f"{name}: {line}"


def test_no_lines_are_printed_twice_where_they_could_have_a_name():
    """The look of a transaction is printed once, and so is each of its changes."""
    for name in sections():
        looks, changes = section(name)
        for printed in (looks, [change.lines for change in changes]):
            assert len({tuple(lines) for lines in printed}) == len(printed), name


def test_every_fact_of_an_event_is_in_the_table_of_events():
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|[^|]+\|([^|]*)\|", chapter("Events"), flags=re.M)
    table = {name: facts for names, facts in rows for name in re.findall(r"\w+", names)}
    told = [remark(line)[0].split() for name in sections() for line in section(name).lines]

    assert {words[1] for words in told if words[0] in NOTED} == set(table)
    for words in told:
        if words[0] in NOTED:
            for name in set(words[2::2]) - {"by", "of", "in"}:
                assert f"`{name}`" in table[words[1]], words


def test_a_spare_id_is_watched_along_with_the_exec(redis, monitor):
    drawn = section("create").changes[0]
    values, holds = created("", nothing, nothing, {**NEW, "PARAMETERS": "p"})[4:6]

    first = monitor.commands_of(
        redis, lambda: protocol.enqueue(redis, Q, "t1", "p", 9.25, spare="t2", is_drawn=True)
    )
    second = monitor.commands_of(
        redis, lambda: protocol.enqueue(redis, Q, "t2", "p", 9.25, is_drawn=True)
    )

    ahead = [["WATCH", keys.task("t2")]]
    change = commands(drawn.lines, values, holds)
    assert first == commands(look_of("create"), values) + change + ahead
    of_second = created("", nothing, nothing, {**NEW, "PARAMETERS": "p", "TASK": "t2"})
    assert second == commands(drawn.lines, of_second.values, holds)


def test_the_room_of_a_bounded_queue_is_asked_for_before_a_task_is_enqueued(redis, monitor, url):
    (asked,) = blocks(chapter("Room"))
    given(enqueued("t9", priority=5), settings(max_pending="9"))(redis)

    seen = monitor.commands_of(redis, lambda: Queue(redis, Q, 99).enqueue("p", id="t1"))

    room = commands(asked.splitlines(), {"QUEUE": Q, "MORE": ["5"]})
    assert seen[: len(room) + 1] == [*room, ["WATCH", keys.task("t1")]]


def test_every_key_in_the_document_is_in_keys_and_the_other_way_round():
    functions = [function for name, function in inspect.getmembers(keys, inspect.isfunction)]
    made = {
        re.sub("@", "[]", name)
        for name in [
            *CONSTANTS,
            *[
                function(*["@"] * len(inspect.signature(function).parameters))
                for function in functions
                if not function.__name__.startswith(
                    ("parse_", "started_member", "belongings", "tag_entry")
                )
            ],
        ]
    }
    # A name without placeholders is one of a real key.
    pattern = "|".join(re.escape(name).replace(r"\[\]", ".+") for name in made)
    named = {
        re.sub(r"\[\w+\]", "[]", name)
        for name in re.findall(rf"\b{keys.PREFIX}[\w\[\].-]*[\w\]]", TEXT)
    }

    assert {name for name in named if "[]" in name or not re.fullmatch(pattern, name)} == (
        made
    ) - CONSTANTS
    assert set(map(blank, key_rows())) == made


def test_the_fields_of_a_task_are_those_in_the_table():
    assert sorted(first_column(chapter("Task"))) == sorted(FIELDS)


def test_the_fields_of_the_record_of_a_group_are_those_in_the_table():
    assert first_column(chapter("Groups of tasks")) == list(group_fields.FIELDS)


def test_the_fields_of_the_record_of_a_schedule_are_those_in_the_table():
    assert first_column(chapter("Schedules")) == list(schedule_fields.FIELDS)


def test_the_members_of_an_occurrence_are_those_in_the_table():
    rows = re.findall(r"^\| (`.*?`) \|", chapter("Occurrences"), flags=re.M)
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(named) == sorted(schedule_fields.Occurrence._fields)


def test_the_names_and_defaults_of_a_retry_policy_are_those_in_the_table():
    rows = re.findall(r'^\| "(\w+)" \| (\S+) \|', chapter("Retry policies"), flags=re.M)

    assert (
        Retry.from_text("{" + ",".join(f'"{name}":{value}' for name, value in rows) + "}")
        == Retry()
    )
    assert [name for name, _ in rows] == list(inspect.signature(Retry).parameters)


def test_the_fields_of_a_registration_are_those_in_the_table(client, redis, cli):
    listener = client.get_listener("video")
    listener.reserver.pool = Pool("/spool/resources", {"gpu": 2})
    listener.of("video").time_left = TimeLeft(1e9, 7200.0)

    listener.obeys_settings = True

    listener.register(Timing(), "/spool", Retry())
    listener.of("video").say_stuck("t1 9.25 D")
    listener.beat()
    protocol.order(redis, "video", listener.node, "drain", "ann")
    cli.delete(keys.listeners("video"))
    protocol.fence(redis, "video", listener.node, listener.of("video").instance, "1", 9.25)

    assert sorted(first_column(chapter("Listener"))) == sorted(
        cli.hgetall(keys.listener("video", listener.node))
    )


def test_the_fields_of_the_record_of_a_feed_are_those_in_the_table(url, cli, tmp_path):
    (tmp_path / "a.jsonl").write_text("1\n")
    written: set[str] = set()

    def look(progress: object = None) -> None:
        written.update(cli.hgetall(keys.feed("video", "f")))

    blueque.feed(tmp_path, "video", name="f", url=url, progress=look)
    look()

    assert sorted(first_column(chapter("Feeds"))) == sorted(written)
    assert group("Feeder") == list(FEEDER)


def test_the_groups_of_fields_are_fields_of_a_task():
    assert set(group("Outcome")) | set(group("Owner")) <= set(FIELDS)
    assert not set(group("Outcome")) & set(group("Owner"))


def test_each_key_that_a_section_writes_is_described_on_one_page():
    described = [blank(key) for key in key_rows()]

    assert len(set(described)) == len(described)
    assert {key for name in sections() for key in written(name)} == set(described)


def test_the_ids_that_keys_stand_for_are_those_in_the_table():
    """A row has a namespace, unless it is that of the row above, the texts of an example as JSON, and the
    id that is made of them.
    """
    used, namespace = set(), NAMESPACE
    for row in re.findall(r"^\| of .*$", chapter("Keys of tasks"), flags=re.M):
        _, of_namespace, _, example, written_id = row.strip("| ").split(" | ")
        if of_namespace != "the same":
            namespace = uuid.UUID(of_namespace.strip("`"))
        texts = [json.loads(text) for text in re.findall(r"`([^`]+)`", example)]
        assert f"`{uuid.uuid5(namespace, chr(0).join(texts))}`" == written_id

        make = ID_MAKERS[namespace]
        scopes = len(inspect.signature(make).parameters) - 1
        key = "\0".join(texts[scopes:]).encode()
        assert f"`{make(*texts[:scopes], [key])[0].decode()}`" == written_id
        used.add(namespace)
    assert used == {*ID_MAKERS}


def test_every_source_in_the_code_is_a_section_that_there_is():
    """As in "Source: docs/protocol.md, "pop" and "reserve"", and wherever else the code names a
    page.
    """
    named = set()
    for path in sorted((ROOT / "blueque").rglob("*.py")):
        text = path.read_text()
        assert text.count("docs/protocol") == len(PAGE_NAMED.findall(text)), (
            f'{path}: write docs/protocol/x.md, "section"'
        )
        for page, titles in PAGE_NAMED.findall(text):
            for title in re.findall(r'"([^"]+)"', titles):
                named.add(title)
                assert title in headings((ROOT / page).read_text()), (
                    f"{path}: {page} has no {title}"
                )
    assert {"create", "reserve", "end"} <= named


def test_the_core_is_short_enough_to_be_read():
    assert len(PAGES[CORE].splitlines()) <= 1000


@pytest.mark.parametrize("page", [pytest.param(path, id=path.stem) for path in PAGES])
def test_sentences_are_short(page):
    lengths = sorted(len(sentence.split()) for sentence in sentences(PAGES[page]))

    assert lengths[len(lengths) // 2] <= 15
    assert lengths[len(lengths) * 9 // 10] <= 25


def test_every_status_is_in_the_picture():
    drawn = set(re.findall(r"\[([a-z]+)\]", blocks(chapter("States"))[0]))

    assert drawn == set(STATUSES)
