"""What the rules of the model test have in common: the clock, the actors, one call made twice, and
what is true after it.
"""

from __future__ import annotations

import functools
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple
from unittest import mock

import hypothesis
import hypothesis.strategies as st
import model
from hypothesis.stateful import RuleBasedStateMachine, invariant
from model import Life, Model
from oracle import EVENTS, TIES
from reaching_in import name_listener
from transactions import protocol

import blueque.listener.beating
import blueque.listener.peer_wakeup
import blueque.listener.processor
import blueque.listener.registration
import blueque.listener.reserver
import blueque.listener.stale_holders
import blueque.producer.orders
import blueque.producer.queue
import blueque.producer.settings
import blueque.queries.inspector
from blueque import Client, Retry
from blueque.audit.audit import audit
from blueque.connection.redis import Command, Redis, as_hash
from blueque.errors import BluequeError
from blueque.listener.listener import Listener
from blueque.listener.processor import Processor
from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.model.states import STATUSES
from blueque.model.task import Task
from blueque.producer.queue import Queue
from blueque.protocol.recover import Loss

TICK = 1 / 64  # between two operations: no two of them have the same time
MAX_BYTES = 1000

NODES = {"video": ("host_1", "host_2", "host_3"), "audio": ("host_1", "host_4")}
FACTS = {"beat_every": 10.0, "lease": 60.0, "lost_after": 600.0}
TOTALS = {"host_1": {"gpu": 2}, "host_2": {"gpu": 1}}  # what a node has; others have nothing
POLICIES: dict[str, dict[str, Any]] = {
    "twice": {"max": 2, "backoff": 0.0, "interruptions": 1},
    "later": {
        "max": 1,
        "backoff": 8.0,
        "interruptions": 0,
        "on": ("ValueError",),
        "not_on": ("mod.Odd",),
    },
    "never": {"max": 0, "interruptions": 2},
    "codes": {"max": 3, "backoff": 4.0, "factor": 3.0, "exit_codes": (75,), "on": ("Busy",)},
}


Call = Callable[[], Any]


class Pool:
    """What a node has, of which nobody takes anything away: that is for test_resources.py."""

    def __init__(self, totals: dict[str, int]) -> None:
        self.totals = totals

    def claim(self, wanted: Mapping[str, int]) -> Pool | None:
        return (
            self
            if all(self.totals.get(name, 0) >= amount for name, amount in wanted.items())
            else None
        )

    def close(self) -> None:
        pass


# What else than a task a transaction may answer.
WORDS = (*STATUSES, "cancelling", "released", "dropped", "claimed", "stale")


BEGIN = 1_000_340_200  # when a history begins, in Unix seconds: a time that Queue.schedule takes


class Clock:
    """What the objects take for the module time, and for the module random and the ids."""

    def __init__(self) -> None:
        self.set_back()

    def set_back(self) -> None:
        self.now, self.made = float(BEGIN), 0

    def time(self) -> float:
        return self.now

    monotonic = time

    def time_of(self, reply: object) -> float:
        """Return what Redis is to have answered to TIME."""
        return self.now

    def shuffle(self, some: list[str]) -> None:
        """Leave it to chance, which has them come in their order."""

    def random_id(self) -> str:
        self.made += 1
        return f"task-{self.made}"


clock = Clock()


@contextmanager
def own_clock() -> Iterator[None]:
    """Have the objects of layer 2 read our clock, and make ids that are the same in every run."""
    with ExitStack() as stack:
        for module in (
            blueque.producer.orders,
            blueque.producer.queue,
            blueque.producer.settings,
            blueque.listener.beating,
            blueque.listener.registration,
            blueque.listener.reserver,
            blueque.listener.processor,
            blueque.listener.stale_holders,
            blueque.listener.peer_wakeup,
        ):
            stack.enter_context(mock.patch.object(module, "time", clock))
        stack.enter_context(mock.patch.object(blueque.producer.queue, "random_id", clock.random_id))
        stack.enter_context(mock.patch.object(blueque.queries.inspector, "random", clock))
        # Redis has no other clock than we: blueque.protocol has a function of the same name.
        for name in ("schedules", "occurrences"):
            written = sys.modules[f"blueque.protocol.{name}"]
            stack.enter_context(mock.patch.object(written, "time_of", clock.time_of))
        reserver = blueque.listener.reserver
        stack.enter_context(mock.patch.object(reserver, "clock_of", clock.time_of))
        yield


def retry_of(policy: str | None) -> Retry | None:
    return Retry(**POLICIES[policy], jitter=0) if policy else None


def whole(policy: str | None) -> dict[str, Any] | None:
    """Return the policy as the model wants it."""
    return {**model.POLICY, **POLICIES[policy]} if policy else None


class Outcome(NamedTuple):
    """What a call returned, or the name of what it raised."""

    raised: str | None
    value: Any = None

    @property
    def label(self) -> str:
        if self.raised is not None or isinstance(self.value, bool) or self.value in (None, *WORDS):
            return str(self.raised or self.value)
        return "some" if self.value else "none"


def outcome(action: Call) -> Outcome:
    try:
        return Outcome(None, action())
    except model.Refusal as refusal:
        return Outcome(refusal.kind.__name__)
    except BluequeError as error:
        return Outcome(type(error).__name__)


@dataclass(eq=False)
class Actor:
    """A process that is a listener, and its connection. One that is not up is dead, or stands
    still: it may wake up.
    """

    life: Life
    redis: Redis
    listener: Listener
    is_up: bool = True
    is_gone: bool = False  # it will not wake up
    attempt: Attempt | None = None  # that it watches, as far as it knows

    def __repr__(self) -> str:
        return f"<{self.queue} {self.life.node}, {self.life.instance}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))

    @property
    def queue(self) -> str:
        return self.life.queue

    @property
    def running(self) -> Attempt | None:
        return self.attempt if self.attempt is not None and self.attempt.is_started else None


@dataclass(eq=False)
class Attempt:
    """An attempt as its listener knows it.

    snapshot, mine: the task when the listener took it or started it, as Redis told and as the model
        did.
    """

    number: int
    snapshot: Task
    mine: model.Task
    actor: Actor
    is_started: bool = False
    pid: int = 0

    def __repr__(self) -> str:
        return f"<attempt {self.number} of {self.task} by {self.actor}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))

    @property
    def task(self) -> str:
        return self.snapshot.id

    @property
    def token(self) -> str | None:
        return self.snapshot.token

    @property
    def about(self) -> AttemptRef:
        """Return what most transactions begin with."""
        return AttemptRef(
            self.snapshot.queue or "", self.task, self.token, self.snapshot.node or ""
        )

    @property
    def identity(self) -> dict[str, Any]:
        return {"pid_start": 7000 + self.pid, "boot": "b", "ns": "n"}


class Machine(RuleBasedStateMachine):
    """A Redis, a model of it, and whoever works with it.

    tally: how often what has happened, in all examples together.
    """

    def __init__(self, url: str, tally: Counter[str]) -> None:
        super().__init__()
        clock.set_back()
        self.url, self.tally = url, tally
        self.connections: list[Redis] = []
        self.redis, self.person = self.connect(), self.connect()
        self.redis.read(("FLUSHALL",))
        self.model = Model()
        self.known: list[str] = []  # the id of every task that ever was
        self.actors: list[Actor] = []
        self.attempts: list[Attempt] = []
        # by task: the tokens of those that really began
        self.starts: dict[str, list[str]] = defaultdict(list)
        self.results: dict[str, str] = {}  # by token: what that attempt has said
        self.seen: dict[str, Any] = {}  # everything in Redis, as it was when we looked last
        self.changes = 0
        # tasks that run, and of which Redis has forgotten that they need not wait for others
        self.rolled_back: set[str] = set()

    def connect(self) -> Redis:
        self.connections.append(Client(self.url, patience=60.0).connections)
        return self.connections[-1]

    def teardown(self) -> None:
        self.tally.update(self.model.happened)
        for redis in self.connections:
            redis.close()

    def both(self, name: str, act: Call, foresee: Call) -> Outcome:
        """Do it in Redis and in the model, and hold what they answer against each other."""
        clock.now += TICK
        got = outcome(act)
        if isinstance(got.value, dict):
            got = got._replace(value=without_events(got.value))
        expected = outcome(foresee)
        assert got == expected, f"{name}: Redis says {got}, the model {expected}"
        self.note(f"{name}: {got.label}")
        if hypothesis.currently_in_test_context():
            hypothesis.note(f"    {name}: {got.label}")
        return got

    def note(self, what: str) -> None:
        self.tally[what] += 1

    @staticmethod
    def pick(data: st.DataObject, some: Sequence[Any]) -> Any:
        return data.draw(st.sampled_from(some))

    # Who and what there is

    def queue(self, name: str) -> Queue:
        return Queue(self.person, name, MAX_BYTES)

    def queue_of(self, task: str) -> str:
        its = self.model.tasks.get(task)
        return (its.queue if its is not None else None) or "video"

    def has(self, *statuses: str) -> list[str]:
        """Return the tasks of these statuses."""
        return [
            task
            for task, its in self.model.tasks.items()
            if its.queue is not None and its.status in statuses
        ]

    def is_newest(self, attempt: Attempt) -> bool:
        its = self.model.tasks.get(attempt.task)
        return its is not None and its.owner.get("token") == attempt.token

    def place(self, task: str) -> tuple[str, str]:
        return self.queue_of(task), self.model.tasks[task].owner["node"]

    def up(self) -> list[Actor]:
        return [actor for actor in self.actors if actor.is_up]

    def down(self) -> list[Actor]:
        return [actor for actor in self.actors if not actor.is_up]

    def idle(self) -> list[Actor]:
        return [actor for actor in self.up() if actor.attempt is None]

    def watched(self) -> list[Attempt]:
        """Return the attempts that a listener which is up has reserved or started."""
        return [actor.attempt for actor in self.up() if actor.attempt is not None]

    def running(self) -> list[Attempt]:
        return [attempt for attempt in self.watched() if attempt.is_started]

    def loose(self) -> list[Attempt]:
        """Return the attempts that nobody watches, being over or of a listener that is down; the
        newest first.
        """
        return [
            one
            for one in reversed(self.attempts)
            if not (one.actor.is_up and one.actor.attempt is one)
        ]

    def instance(self, queue: str, node: str) -> str | None:
        known = self.model.registrations.get((queue, node))
        return known["instance"] if known is not None else None

    def corpses(self) -> list[tuple[str, str]]:
        """Return the registrations that nobody who is up stands behind."""
        alive = {actor.life.instance for actor in self.up()}
        return [
            pair
            for pair, known in self.model.registrations.items()
            if known["instance"] not in alive
        ]

    # What is done in more than one rule

    def want_cancelled(self, task: str) -> None:
        queue = self.queue_of(task)
        self.both(
            "cancel first",
            lambda: protocol.cancel(self.person, queue, task, "bob", None, clock.now),
            lambda: self.model.cancel(queue, task, "bob", None, clock.now),
        )

    def register(self, queue: str, node: str, dead: str | None, actor: Actor | None = None) -> None:
        """Register a new listener, or one that has learned that it is not registered."""
        redis = actor.redis if actor is not None else self.connect()
        instance = f"life {len(self.actors)} at {clock.now}"
        totals = TOTALS.get(node, {})
        resources = ",".join(f"{name}={amount}" for name, amount in totals.items())
        facts = {**FACTS, "spool": f"/spool/{node}", "resources": resources}
        got = self.both(
            "register",
            lambda: protocol.register(redis, queue, node, instance, facts, clock.now, dead),
            lambda: self.model.register(queue, node, instance, facts, clock.now, dead),
        )
        if got.raised is not None:
            return
        if actor is None:
            actor = Actor(Life(queue, node, instance), redis, Listener(redis, [queue]))
            self.actors.append(actor)
        life, listener = actor.life, actor.listener
        life.instance, life.beat, life.is_unsure, life.totals = instance, 0, True, totals
        listener.reserver.pool = Pool(totals)
        ours = listener.of(queue)
        name_listener(ours, node)
        ours.instance = instance
        ours._beat, ours.is_list_unsure = 0, True

    def idle_one(self, queue: str) -> Actor:
        """Return a listener that has nothing to do; a new one if need be."""
        if not any(actor.queue == queue for actor in self.idle()):
            self.register(queue, f"host_{len(self.actors) + 10}", None)
        return next(actor for actor in self.idle() if actor.queue == queue)

    def take(self, actor: Actor) -> None:
        clock.now += TICK
        got = outcome(actor.listener.take)
        task: Task | None = got.value
        expected = outcome(lambda: self.model.take(actor.life, task and task.token, clock.now))
        assert (got.raised, task and task.id) == expected, (
            f"take: Redis says {got}, the model {expected}"
        )
        self.note(f"take: {got.raised or ('some' if task else 'none')}")
        if task is not None:
            self.watch(actor, task)

    def pop(self, actor: Actor) -> None:
        """Lose the answer to it, or die then."""
        life = actor.life
        self.both(
            "pop",
            lambda: tuple(protocol.pop(actor.redis, life.queue, life.node, life.instance))[:3],
            lambda: self.model.pop(life),
        )
        actor.listener.of(life.queue).is_list_unsure = life.is_unsure = True

    def take_as_far_as(self, actor: Actor, stage: str) -> None:
        if stage == "pop":
            self.pop(actor)
        elif stage:
            self.take(actor)
        if actor.attempt is not None and stage in ("start", "end"):
            self.start(actor.attempt)

    def watch(self, actor: Actor, task: Task, is_started: bool = False, pid: int = 0) -> None:
        mine = deepcopy(self.model.tasks[task.id])
        fields = without_events(task.fields)
        assert fields == mine.fields, f"Redis has {fields}, the model {mine.fields}"
        actor.attempt = Attempt(len(self.attempts), task, mine, actor, is_started, pid)
        self.attempts.append(actor.attempt)

    def processor(self, attempt: Attempt) -> Processor:
        return Processor(attempt.actor.redis, attempt.snapshot, MAX_BYTES)

    def start(self, attempt: Attempt) -> None:
        attempt.pid = attempt.pid or 100 + attempt.number
        # Who has claimed it is a program of somebody's own: it does not say more than it must.
        is_claimed = attempt.snapshot.node != attempt.actor.life.node
        facts = {} if is_claimed else {**attempt.identity, "files": f"host:/spool/{attempt.number}"}

        def act() -> None:
            self.processor(attempt).start(attempt.pid, facts)

        got = self.both(
            "start", act, lambda: self.model.start(*attempt.about, attempt.pid, facts, clock.now)
        )
        if got.raised is not None and attempt.actor.attempt is attempt:
            attempt.actor.attempt = None
        elif got.raised is None and not attempt.is_started:
            attempt.is_started = True
            attempt.mine = deepcopy(self.model.tasks[attempt.task])
            attempt.snapshot = Task(attempt.task, attempt.mine.fields)
            self.starts[attempt.task].append(attempt.token or f"1.0.0: {attempt}")

    def give_up(self, attempt: Attempt) -> None:
        """Be a listener whose task process is gone without a word."""
        actor, instance = attempt.actor, attempt.actor.life.instance

        def act() -> str | None:
            about, loss = attempt.about, Loss("gone")
            return protocol.lose(actor.redis, about, instance, loss, None, clock.now, is_ours=True)

        def foretell() -> str | None:
            about = (*attempt.about, instance, "gone", None, {})
            return self.model.lose(*about, clock.now, is_ours=True)

        self.both("lose own", act, foretell)
        actor.attempt = None

    def restore_attempt(self, actor: Actor, attempt: Attempt) -> None:
        life = actor.life
        task = attempt.task
        token = attempt.token or ""
        pid = attempt.pid
        identity = attempt.identity
        restored = AttemptRef(life.queue, task, token, life.node)
        process = (life.instance, pid, identity, 900.5)
        got = self.both(
            "restore",
            lambda: protocol.restore(actor.redis, restored, *process, clock.now),
            lambda: self.model.restore(life, task, token, pid, identity, 900.5, clock.now),
        )
        if got.value is not None:
            self.watch(actor, Task(task, got.value), True, pid)

    def tell_progress(self, attempt: Attempt) -> None:
        self.both(
            "progress",
            lambda: self.processor(attempt).progress("half"),
            lambda: self.model.progress(*attempt.about[1:], "half", clock.now),
        )

    def tell_note(self, attempt: Attempt, number: int) -> None:
        self.both(
            "note",
            lambda: self.processor(attempt).note(number, "half", clock.now),
            lambda: self.model.take_note(*attempt.about[1:], number),
        )

    def end(
        self, attempt: Attempt, how: str, facts: dict[str, Any], is_answer_lost: bool = False
    ) -> None:
        """End an attempt that its listener watches; twice, if it does not know that it has been
        done.
        """
        for _ in range(2 if is_answer_lost else 1):
            self.tell_end(attempt, how, facts)
        attempt.actor.attempt = None

    def tell_end(self, attempt: Attempt, how: str, facts: dict[str, Any]) -> Outcome:
        its = self.model.tasks.get(attempt.task)
        is_told = its is not None and its.past.get("finished_by") == attempt.token is not None
        is_revoked = its is not None and not self.is_newest(attempt)
        is_lost = its is not None and its.is_lost
        got = self.both(how, *self._ways_to_end(attempt, facts)[how])
        if got.raised is None:
            self.model.wake_waiting(attempt.mine.owner.get("lock"))
            self.note(f"{how} became {its and its.status}")
            self.note(
                "end of a lost attempt" if is_lost else "end told twice" if is_told else "end"
            )
            self.results.setdefault(attempt.token or "", _result_of(attempt))
        elif is_revoked:
            self.note("end of a revoked attempt")
        return got

    def _ways_to_end(self, attempt: Attempt, facts: dict[str, Any]) -> dict[str, tuple[Call, Call]]:
        """Return for each way what the objects do and what the model does."""
        processor, foretell, about = self.processor(attempt), self.model, attempt.about
        default = "twice" if attempt.number % 4 == 0 else None
        failures = attempt.mine.past.get("failures", 0)
        result = {"result": _result_of(attempt), "result_encoding": "json"}
        good = {"status": "complete", **result, "cpu_seconds": 1.5, "finished": clock.now}
        bad = {
            "status": "failed",
            "error": f"error of {attempt.number}",
            "finished": clock.now,
            **facts,
        }
        plain = {"status": "failed", "error": "bad"}
        return {
            "complete": (
                lambda: processor.complete({"of": attempt.number}),
                lambda: foretell.finish(*about, "complete", result, clock.now),
            ),
            "fail": (
                lambda: processor.fail("bad"),
                lambda: foretell.report(*about, failures, plain, None, clock.now),
            ),
            "report success": (
                lambda: processor.report(good),
                lambda: foretell.report(*about, failures, good, None, clock.now),
            ),
            "report failure": (
                lambda: processor.report(bad, retry_of(default)),
                lambda: foretell.report(*about, failures, bad, whole(default), clock.now),
            ),
            "release": (processor.release, lambda: foretell.release(*about, clock.now)),
            "confirm_cancel": (
                lambda: processor.confirm_cancel({"leaked": 1}),
                lambda: foretell.confirm_cancel(*about, {"leaked": 1}, clock.now),
            ),
        }

    # What must be true after every step

    def check(self) -> None:
        """Hold everything against the model, as Hypothesis does after each rule."""
        for one in self.invariants:
            one.function(self)

    @invariant()
    def redis_is_as_foretold(self) -> None:
        expected = self.model.everything()
        got = read_everything(self.redis, expected)
        assert got == expected, "\n".join(
            f"{key}: Redis has {got.get(key)}, the model {expected.get(key)}"
            for key in sorted(got.keys() | expected.keys())
            if got.get(key) != expected.get(key)
        )
        if got != self.seen:
            self.seen, self.changes = got, self.changes + 1
            # An audit takes 20 round trips, most of the time of the whole test, to ask what we have
            # just been told.
            self._audit(self.redis if self.changes % 20 == 0 else Picture(got))

    def _audit(self, redis: Redis) -> None:
        found = audit(redis)
        hints = self.model.hints()
        said = Counter(
            (one.code, one.task or one.node)
            for one in found
            if hints[one.task or ""] < 2
            or one.code not in ("misplaced", "double", "popped", "held", "no_hash")
            # a want of listeners, or too many, or a circle through a group that was opened again, or
            # a tag of what was deleted by hand: no blemish
            if one.code not in ("stuck", "overfull", "empty_line", "circle")
            and not one.key.startswith((*TIES, keys.TAGS))
        )
        assert said == self.model.blemishes(), "\n".join(one.sentence for one in found)

    @invariant()
    def nothing_has_started_without_consent(self) -> None:
        for task, tokens in self.starts.items():
            assert len(set(tokens)) == len(tokens), f"{task}: an attempt has started twice"
            assert len(tokens) <= self.model.consents[task], (
                f"{task} has started {len(tokens)} times"
            )

    @invariant()
    def nothing_has_begun_that_waits_for_others(self) -> None:
        for task in self.model.conditions.keys() & self.model.tasks.keys() - self.rolled_back:
            texts = [one.text for one in self.model.conditions[task].values()]
            status, is_free = self.model.tasks[task].status, all(text[0] == "+" for text in texts)
            assert is_free or status in ("blocked", "cancelled"), f"{task} is {status}: {texts}"

    @invariant()
    def a_result_is_that_of_the_newest_attempt(self) -> None:
        for task in self.has("complete"):
            its = self.model.tasks[task]
            token = its.owner.get("token")
            if token is not None:
                assert its.past["finished_by"] == token
                assert its.outcome["result"] == self.results[token]


class Picture(Redis):
    """What an audit asks of Redis, answered from what Redis has just told us."""

    def __init__(self, everything: dict[str, Any]) -> None:
        self._everything = everything

    def lenient(self) -> Picture:
        return self

    def close(self) -> None:
        pass

    def read(self, *commands: Command) -> list[Any]:
        if commands[0] == ("MULTI",):
            return ["OK", *["QUEUED"] * (len(commands) - 2), self.read(*commands[1:-1])]
        return [getattr(self, f"_{word}".lower())(*arguments) for word, *arguments in commands]

    def _scan(self, cursor: str, *_: Any) -> list[Any]:
        return ["0", list(self._everything)]

    def _type(self, key: str) -> str:
        value = self._everything[key]
        is_sorted_set = isinstance(value, dict) and isinstance(next(iter(value.values())), float)
        kinds = {dict: "hash", list: "list", set: "set", int: "set"}
        return "zset" if is_sorted_set else kinds[type(value)]

    def _zrange(self, key: str, first: int, last: int, *scores: str) -> list[Any]:
        members = self._everything.get(key, {})
        return (
            [item for pair in members.items() for item in pair] if scores else list(members)[first:]
        )

    def _lrange(self, key: str, first: int, last: int) -> list[str]:
        return list(self._everything.get(key, ()))[first : last + 1 or None]

    def _sscan(self, key: str, *_: Any) -> list[Any]:
        return ["0", list(self._everything.get(key, ()))]

    def _zscan(self, key: str, *_: Any) -> list[Any]:
        return ["0", self._zrange(key, 0, -1, "WITHSCORES")]

    def _llen(self, key: str) -> int:
        return len(self._everything.get(key, ()))

    _scard = _hlen = _llen

    def _lindex(self, key: str, place: int) -> str | None:
        line = self._everything.get(key)
        return line[place] if line else None

    def _zscore(self, key: str, member: str) -> float | None:
        return self._everything.get(key, {}).get(member)

    def _sismember(self, key: str, member: str) -> int:
        return int(member in self._everything.get(key, ()))

    def _hget(self, key: str, name: str) -> str | None:
        return self._everything.get(key, {}).get(name)

    def _hexists(self, key: str, name: str) -> int:
        return int(name in self._everything.get(key, {}))

    def _hgetall(self, key: str) -> list[str]:
        return [text for pair in self._everything.get(key, {}).items() for text in pair]

    def _hkeys(self, key: str) -> list[str]:
        return list(self._everything.get(key, ()))

    def _hmget(self, key: str, *names: str) -> list[str | None]:
        return [self._everything.get(key, {}).get(name) for name in names]


def read_everything(redis: Redis, expected: dict[str, Any]) -> dict[str, Any]:
    """Return every key with its value: those that are expected as what they should be, others as
    something.
    """
    (names, *replies) = redis.read(
        ("KEYS", "*"), *[_ask(key, value) for key, value in expected.items()]
    )
    found: dict[str, Any] = {name: "something" for name in names if not name.startswith(EVENTS)}
    for (key, value), reply in zip(expected.items(), replies, strict=True):
        if isinstance(value, dict):
            reply = without_events(as_hash(reply))
            if not _is_hash(key):
                reply = {member: float(score) for member, score in reply.items()}
        found[key] = set(reply) if isinstance(value, set) else reply
    return {key: value for key, value in found.items() if value}


def without_events(fields: dict[str, str]) -> dict[str, str]:
    """Leave out how many events there have been: the model knows of no events, and no transaction
    looks at them.
    """
    return {name: text for name, text in fields.items() if name != "events"}


def _ask(key: str, value: Any) -> Command:
    if isinstance(value, int):
        return ("SCARD", key)
    if isinstance(value, dict):
        return ("HGETALL", key) if _is_hash(key) else ("ZRANGE", key, 0, -1, "WITHSCORES")
    return ("SMEMBERS", key) if isinstance(value, set) else ("LRANGE", key, 0, -1)


@functools.lru_cache(1024)  # half a million times it is asked about some hundred keys
def _is_hash(key: str) -> bool:
    return key.startswith(HASHES)


HASHES = (
    keys.task(""),
    keys.listener("", "")[:-1],
    keys.settings(""),
    keys.conditions(""),
    keys.inputs(""),
    keys.group(""),
    keys.schedule(""),
)


def _result_of(attempt: Attempt) -> str:
    return f'{{"of":{attempt.number}}}'
