"""Clients on a real Redis that go one round trip at a time: every order of their steps, every fault
at each of them.

Each actor is a thread that runs real client code on a connection which stops before each write. One
actor moves at a time. What happens next is a choice: who sends, and whether that goes well. The
list of all choices is a schedule; the same list gives the same run. `explore` goes through the
schedules of a bounded space, those with few interruptions first, so the first one that breaks a
rule is a shortest one.
"""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

from blueque.connection import redis as connection_module
from blueque.connection.plain import Exchange
from blueque.connection.redis import Command, Connection, Redis
from blueque.errors import RedisAway
from blueque.protocol import transaction

END = "end"  # what is still on its way arrives when all is over
BACK = "back"  # Redis goes back by so many changes


class Fault(enum.StrEnum):
    """What may happen to one write. After the last three the client finds its connection closed."""

    DIE_BEFORE = "dies before"
    DIE_AFTER = "dies after"
    LOSE = "answer lost"
    REFUSE = "not delivered"
    DELAY = "delivered later"


class Bounds(NamedTuple):
    """How many times in one schedule an actor may be interrupted by another, and how many faults
    may strike.
    """

    preemptions: int
    faults: int


class Option(NamedTuple):
    choice: str
    preemptions: int = 0
    faults: int = 0


class Killed(BaseException):
    """The actor is dead: it does not even clean up."""


class Actor:
    """One client. `commands` is what it wants to send next, `is_changing` tells whether that may
    change something.
    """

    def __init__(
        self,
        name: str,
        program: Callable[[Redis], None],
        faults: Collection[Fault],
        patience: float = 0.0,
    ) -> None:
        self.name, self.program, self.faults, self.patience = name, program, faults, patience
        self.commands: list[Command] = []
        self.is_changing = False
        self.fault: Fault | None = None
        self.is_over = self.is_dead = False
        self.baton = locked()

    def possible_faults(self, is_thorough: bool) -> Iterable[Fault]:
        """Return the faults that make a difference at this write.

        One that changes nothing cannot be lost in two ways, and who dies at it has as well died at
        a change before or after.
        """
        if is_thorough or self.is_changing:
            return self.faults
        return [Fault.REFUSE] if Fault.REFUSE in self.faults else []


class Held(NamedTuple):
    """A write that the client has given up on, on its old connection."""

    actor: str
    connection: Connection
    commands: list[Command]
    since: int  # the number of choices made before

    def is_in_vain(self) -> bool:
        """Tell whether Redis will do nothing of it: a key has changed that the connection watches."""
        if not is_guarded(self.commands):
            return False
        (facts,) = self.connection.exchange([("CLIENT", "INFO")])
        return "d" in dict(fact.split("=", 1) for fact in facts.split())["flags"]


class Stepper:
    """One schedule. It follows `prefix`, then lets everybody run on undisturbed.

    check: tells after each change what is wrong in Redis now, or None.
    begin_again: puts Redis back as it was at the beginning, if it may go back, as a replica does that
        takes over: to a beginning of the history. All connections are lost then. went_back: called
        after that.
    is_reduced: leaves out the schedules that differ from another only in when a write arrives that
        Redis refuses.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        actors: Sequence[Actor],
        bounds: Bounds,
        check: Callable[[], str | None],
        prefix: Sequence[str] = (),
        *,
        is_thorough: bool = False,
        is_reduced: bool = False,
        begin_again: Callable[[], object] | None = None,
        went_back: Callable[[], object] = lambda: None,
    ) -> None:
        self.choices: list[str] = []
        self.costs: list[int] = []  # of the choices up to each
        self.others: list[list[Option]] = []  # what could have been chosen instead, at each
        self.steps: list[tuple[str, list[Command]]] = []
        self.wrong: str | None = None
        self.held: list[Held] = []  # what has not been delivered yet
        self.age = 0  # how many times Redis has gone back
        self._begin_again, self._went_back = begin_again, went_back
        self._history: list[list[Command]] = []  # the changes that Redis has executed
        self._has_changed = False  # since the last choice
        self._connect, self._actors, self._bounds, self._check = connect, actors, bounds, check
        self._prefix, self._is_thorough, self._is_reduced = prefix, is_thorough, is_reduced
        self._preemptions = self._faults = 0
        self._is_dirty = self._is_running = self._is_aborted = False
        self._main = locked()

    def run(self) -> None:
        """Run to the end. What went wrong is in `wrong`. See to `deliver_late` then."""
        threads = [
            threading.Thread(target=self._act, args=(actor,), daemon=True) for actor in self._actors
        ]
        for thread in threads:
            thread.start()  # it goes as far as its first write
            self._main.acquire()
        self._is_running = True
        self._pass_on(self._next(None))
        self._main.acquire()
        self._is_aborted = True
        for actor, thread in zip(self._actors, threads, strict=True):
            actor.baton.release()
            thread.join()
        if self.wrong is None and len(self.choices) < len(self._prefix):
            self.wrong = (
                f"cannot be replayed: all was over before {self._prefix[len(self.choices)]!r}"
            )

    def trace(self) -> list[str]:
        """Return who sent what, a line for each step."""
        return [f"{choice:<28} {shown(commands)}" for choice, commands in self.steps]

    def deliver_late(self) -> bool:
        """Deliver what is still held; tell whether there was something."""
        had_some = bool(self.held)
        while self.held:
            self._deliver(self.held[0])
        return had_some

    # What an actor's connection calls, in the actor's thread

    def step(self, actor: Actor, commands: list[Command]) -> Fault | None:
        """Wait for this actor's turn; return what happens to its write."""
        if actor.is_dead or self._is_aborted:
            raise Killed
        actor.commands, actor.is_changing = commands, is_change(commands)
        chosen = self._next(actor) if self._is_running else None
        if chosen is not actor:
            baton = actor.baton
            self._pass_on(chosen)
            baton.acquire()
        if self._is_aborted:
            raise Killed
        self.steps.append((self.choices[-1], commands))
        if actor.fault in (Fault.DIE_BEFORE, Fault.DIE_AFTER):
            actor.is_dead = True
        return actor.fault

    def done(self, actor: Actor, replies: list[Any]) -> None:
        """Redis has executed what the actor sent."""
        if actor.is_changing and not was_refused(actor.commands, replies):
            self._is_dirty = True
            self._history.append(actor.commands)

    def hold(self, actor: Actor, connection: Connection, commands: list[Command]) -> None:
        self.held.append(Held(actor.name, connection, commands, len(self.choices)))

    # Inside

    def _act(self, actor: Actor) -> None:
        redis = Redis(lambda: SteppedConnection(self, actor, self._connect()), actor.patience)
        try:
            actor.program(redis)
        except Killed:
            pass
        except Exception as error:
            self.wrong = self.wrong or f"{actor.name} broke: {type(error).__name__}: {error}"
        redis.close()
        actor.is_over = True
        if not self._is_aborted:
            self._pass_on(self._next(actor) if self._is_running else None)

    def _pass_on(self, actor: Actor | None) -> None:
        (self._main if actor is None else actor.baton).release()

    def _next(self, last: Actor | None) -> Actor | None:
        """Choose who goes on; None when the run is over."""
        while True:
            if self._is_dirty and self._is_reduced:
                self._deliver_in_vain()
            if self._is_dirty and len(self.choices) >= len(self._prefix):
                self.wrong = self.wrong or self._check()
            self._has_changed, self._is_dirty = self._is_dirty, False
            options = [] if self.wrong else self._options(last)
            if not options:
                return None
            choice = self._choose(options)
            if choice == END:
                return None
            who, _, what = choice.partition(": ")
            if who == BACK:
                self._go_back(choice, int(what))
                continue
            if who != "deliver":
                (actor,) = [actor for actor in self._actors if actor.name == who]
                actor.fault = Fault(what) if what else None
                return actor
            held = self.held[int(what)]
            self.steps.append((choice, held.commands))
            if not was_refused(held.commands, self._deliver(held)):
                self._history.append(held.commands)
            self._is_dirty = True

    def _options(self, last: Actor | None) -> list[Option]:
        """Return what may happen next; first, what happens when nothing is to be tried."""
        live = [actor for actor in self._actors if not actor.is_over]
        may_arrive = [
            number
            for number, held in enumerate(self.held)
            if held.since < len(self.choices) or not live
        ]
        delivery = [Option(f"deliver: {number}") for number in may_arrive]
        back = self._ways_back()
        if not live:
            return [*delivery, Option(END), *back] if delivery or back else []
        price = 0 if last is None or last.is_over else 1
        if price:
            live = [
                last,
                *[
                    actor
                    for actor in live
                    if actor is not last and self._preemptions < self._bounds.preemptions
                ],
            ]
        options = [Option(actor.name, price if actor is not live[0] else 0) for actor in live]
        if self._faults < self._bounds.faults:
            options += [
                Option(f"{actor.name}: {fault}", option.preemptions, 1)
                for actor, option in zip(live, options[:], strict=True)
                for fault in actor.possible_faults(self._is_thorough)
            ]
        return options + delivery + back

    def _ways_back(self) -> list[Option]:
        """Return by how many changes Redis may go back now. It makes no difference whether it does so
        after a change, or later, before the next one.
        """
        may_go = self._begin_again is not None and self._faults < self._bounds.faults
        if not may_go or (self._is_reduced and not self._has_changed):
            return []
        return [Option(f"{BACK}: {count}", 0, 1) for count in range(1, len(self._history) + 1)]

    def _go_back(self, choice: str, count: int) -> None:
        """Have Redis be what it was before its last changes."""
        assert self._begin_again is not None
        self._begin_again()
        self._history = self._history[:-count]
        for commands in self._history:
            connection = self._connect()
            # not what is looked at behind it
            connection.exchange(commands[: (place_of_exec(commands) or len(commands)) + 1])
            connection.close()
        for held in self.held:  # it was on its way to the server that is gone
            held.connection.close()
        self.held.clear()
        self.age += 1
        self.steps.append((choice, []))
        self._is_dirty = True
        self._went_back()

    def _choose(self, options: list[Option]) -> str:
        option = options[0]
        if len(self.choices) < len(self._prefix):
            wanted = self._prefix[len(self.choices)]
            found = [option for option in options if option.choice == wanted]
            if not found:
                self.wrong = f"cannot be replayed: {wanted!r} is not among {[option.choice for option in options]}"
                return END
            (option,) = found
        self._preemptions += option.preemptions
        self._faults += option.faults
        self.choices.append(option.choice)
        self.others.append([other for other in options if other != option])
        self.costs.append(self._preemptions + self._faults)
        return option.choice

    def _deliver_in_vain(self) -> None:
        """Deliver at once what Redis refuses, now and later.

        A connection does not forget that a key which it watches has changed. So the schedules that
        differ only in when such a write arrives from here on all come to the same, and this is one
        of them.
        """
        for held in [held for held in self.held if held.is_in_vain()]:
            self.steps.append(("refused", held.commands))
            if not was_refused(held.commands, self._deliver(held)):
                self.wrong = self.wrong or "Redis has done what was to be refused"

    def _deliver(self, held: Held) -> list[Any]:
        self.held.remove(held)
        try:
            return held.connection.exchange(held.commands)
        except RedisAway:
            return []
        finally:
            held.connection.close()


class SteppedConnection(Exchange):
    """A connection that lets the stepper decide what happens to each write."""

    def __init__(self, stepper: Stepper, actor: Actor, connection: Connection) -> None:
        self.look_ahead = None
        self.has_answer = None
        self.is_current = self.ask_sentinels = None
        self.is_proven = True  # else the first step on each connection would tell nothing
        self.is_closed = False
        self._stepper, self._actor, self._connection = stepper, actor, connection
        self._replies: list[Any] = []
        self._is_held = False
        self._age = stepper.age

    def send(self, commands: Iterable[Command]) -> None:
        sent = list(commands)
        fault = self._stepper.step(self._actor, sent)
        if self._age != self._stepper.age:
            self.close()
            raise RedisAway("the server is another one")
        if fault is Fault.DELAY:
            self._is_held = True
            self._stepper.hold(self._actor, self._connection, sent)
        elif fault not in (Fault.DIE_BEFORE, Fault.REFUSE):
            self._connection.send(sent)
            # Taken at once: Redis has executed it before anybody else moves.
            self._replies = self._connection.receive(len(sent))
            self._stepper.done(self._actor, self._replies)
        if fault is not None:
            self.close()
        if self._actor.is_dead:
            raise Killed

    def receive(self, count: int) -> list[Any]:
        if self.is_closed:
            raise RedisAway("the connection is lost")
        replies, self._replies = self._replies[:count], self._replies[count:]
        return replies

    def close(self) -> None:
        self.is_closed = True
        if not self._is_held:
            self._connection.close()


def locked() -> threading.Lock:
    """Return a baton that is still to be handed over."""
    lock = threading.Lock()
    lock.acquire()
    return lock


@contextmanager
def without_pauses() -> Iterator[None]:
    """Have the client pause between two tries without any time passing."""
    clock = SimpleNamespace(monotonic=time.monotonic, time=time.time, sleep=lambda seconds: None)
    with ExitStack() as stack:
        for module in (connection_module, transaction):
            stack.enter_context(mock.patch.object(module, "time", clock))
        yield


def is_change(commands: Sequence[Command]) -> bool:
    """Tell whether a write may change something: everything that is sent to look does not."""
    return any(name_of(command) not in LOOKS for command in commands)


def is_guarded(commands: Sequence[Command]) -> bool:
    """Tell whether a write does nothing if its EXEC is refused."""
    end = place_of_exec(commands)
    return end is not None and not is_change(commands[end + 1 :])


def was_refused(commands: Sequence[Command], replies: Sequence[Any]) -> bool:
    """Tell whether nothing was done, because a watched key had changed."""
    return (
        None in replies and is_guarded(commands) and replies[place_of_exec(commands) or 0] is None
    )


def place_of_exec(commands: Sequence[Command]) -> int | None:
    """Return where the EXEC is of a write that begins with MULTI."""
    names = [name_of(command) for command in commands]
    return names.index("EXEC") if names[0] == "MULTI" and "EXEC" in names else None


def shown(commands: Sequence[Command]) -> str:
    """Return the commands in one line, without the prefix that all keys have."""
    return " | ".join(
        " ".join(part.replace("blueque_", "") for part in words(command)) for command in commands
    )


def name_of(command: Command) -> str:
    name = words(command)[0] if isinstance(command, bytes) else command[0]
    return name if isinstance(name, str) else words(command)[0]


def words(command: Command) -> list[str]:
    """Return the words of a command, also of one that is packed already."""
    if isinstance(command, bytes):
        return [part.decode("utf-8", "backslashreplace") for part in command.split(b"\r\n")[2::2]]
    return [
        part.decode("utf-8", "backslashreplace") if isinstance(part, bytes) else str(part)
        for part in command
    ]


LOOKS = {
    "WATCH",
    "UNWATCH",
    "EXISTS",
    "HGET",
    "HGETALL",
    "HMGET",
    "LINDEX",
    "LLEN",
    "LPOS",
    "LRANGE",
    "MGET",
    "SCARD",
    "SISMEMBER",
    "SMEMBERS",
    "SMISMEMBER",
    "TIME",
    "ZCARD",
    "ZRANDMEMBER",
    "ZRANGE",
    "ZRANGEBYSCORE",
    "ZSCORE",
}
