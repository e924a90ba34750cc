"""Connections to Redis: one for each thread, none inherited over a fork, nothing ever sent twice by
itself.

There are two kinds behind the same methods: `socket_connection` for a plain `redis://` or `unix://`
address, and `client_connection` for everything else, which is redis-py's.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVarTuple

import hiredis

from blueque.errors import InvalidInput, RedisAway, RedisRefused
from blueque.model.wrong_types import WrongTypes, empty, is_look
from blueque.system.backoff import pause

log = logging.getLogger("blueque")

# Its words; or bytes, which are a whole command in Redis' wire format already.
Command = Sequence[str | int | float | bytes]

# Redis answers with an error, but what it means is "not now": as good as away.
AWAY = {"LOADING", "MASTERDOWN", "UNBLOCKED", "TRYAGAIN", "CLUSTERDOWN"}

# The answers of a server that was a primary until a failover. Its address may lead to the new
# primary by now, but this connection does not. None of them comes with a change: Redis discards the
# MULTI that one of them stands in.
DEMOTED = {"READONLY", "MASTERDOWN", "UNBLOCKED"}


Replies = TypeVarTuple("Replies")  # the types of the replies to the reads of a look


class Look(NamedTuple, Generic[*Replies]):
    """What a transaction watches and then reads.

    task: the id of the task that the transaction is about, for its errors.
    """

    watch: Sequence[str]
    reads: Sequence[Command]
    task: str | None = None


AnyLook: TypeAlias = Look[*tuple[Any, ...]]


class Ahead(NamedTuple):
    """A look that was sent with the previous EXEC, and its replies. It saves a round trip."""

    look: AnyLook
    replies: list[Any]


class Connection(Protocol):
    """What the rest of Blueque knows of a connection. Error replies are values; a broken connection
    raises RedisAway.
    """

    ahead: Ahead | None
    # waits for an answer in the owner's way; False gives up
    has_answer: Callable[[Connection], bool] | None
    is_proven: bool  # it has been seen to take a MULTI

    @property
    def is_closed(self) -> bool: ...

    def send(self, commands: Iterable[Command]) -> None:
        """Send the commands in one write."""

    def receive(self, count: int) -> list[Any]:
        """Return the next `count` replies, in order."""

    def wait(self, seconds: float) -> bool:
        """Wait until something can be received; False when nothing came."""

    def track(self) -> bool:
        """Ask Redis to tell which of the keys that this connection reads change afterwards; False
        when it won't.
        """

    def has_invalidated(self) -> bool:
        """Tell whether such news has arrived already, so that waiting for it would be in vain."""

    def take_invalidated(self) -> set[str] | None:
        """Return those keys, each once until it is read again; None when all have to be taken for
        changed.
        """

    def fileno(self) -> int: ...

    def close(self) -> None: ...


class Redis:
    """The connections of one Client: one for each thread, made when first needed, left behind after
    a fork.

    patience: how long, in seconds, a call tries again when Redis does not answer.
    days_kept: how many days the statistics of a day are kept.
    has_answer: if set, waits for each answer in place of a blocking read, and may give up by
        returning False.
    wrong_types: if set, a look at a key of a wrong type finds it empty and notes it there, in place
        of a refusal.
    """

    def __init__(self, connect: Callable[[], Connection], patience: float) -> None:
        self.patience = patience
        self.days_kept = 90
        self._connect = connect
        self._local = threading.local()
        self.has_answer: Callable[[Connection], bool] | None = None
        self.wrong_types: WrongTypes | None = None

    def connection(self) -> Connection:
        """Return this thread's connection, made now if need be."""
        kept: Connection | None = getattr(self._local, "connection", None)
        if kept is not None:
            if self._local.pid == os.getpid() and not kept.is_closed:
                return kept
            kept.close()  # after a fork this closes our copy, not the parent's connection
        self._local.connection = made = self._connect()
        made.has_answer = self.has_answer
        self._local.pid = os.getpid()
        return made

    @property
    def ahead(self) -> Ahead | None:
        """What this thread's connection already watches for a task to come, if it has one."""
        kept: Connection | None = getattr(self._local, "connection", None)
        return (
            kept.ahead
            if kept is not None and self._local.pid == os.getpid() and not kept.is_closed
            else None
        )

    def another(self) -> Redis:
        """Return the same once more, with connections of its own: for one who has to wait for an
        answer in between.
        """
        other = Redis(self._connect, self.patience)
        other.has_answer = self.has_answer
        other.days_kept = self.days_kept
        other.wrong_types = self.wrong_types
        return other

    def lenient(self) -> Redis:
        """Return another whose looks take a key of a wrong type for empty."""
        other = self.another()
        other.wrong_types = WrongTypes() if self.wrong_types is None else self.wrong_types
        return other

    def close(self) -> None:
        """Close this thread's connection; the next call opens another."""
        kept: Connection | None = getattr(self._local, "connection", None)
        if kept is not None:
            kept.close()

    def read(self, *commands: Command) -> list[Any]:
        """Send commands in one write and return their replies. They only look, so it is tried again
        if need be.
        """
        replies = self.answers(*commands)
        raise_refusal(replies)
        return replies

    def answers(self, *commands: Command) -> list[Any]:
        """Do the same, but return a refusal as a value: for looks that not everybody may have."""
        patience = Patience(self.patience)
        while True:
            try:
                replies = exchange(self.connection(), commands)
                return (
                    replies
                    if self.wrong_types is None
                    else self._without_wrong_types(commands, replies)
                )
            except (RedisAway, RedisRefused) as error:
                self.close()
                if not patience.may_reconnect(error):
                    patience.pause_or_raise(error)

    def _without_wrong_types(
        self, commands: Sequence[Command], replies: Sequence[Any]
    ) -> list[Any]:
        """Return the replies as they are without the keys of a wrong type, and note these."""
        taken = list(replies)
        for place, (command, reply) in enumerate(zip(commands, replies, strict=True)):
            if isinstance(reply, list) and tuple(command) == ("EXEC",):
                taken[place] = self._without_wrong_types(
                    commands[place - len(reply) : place], reply
                )
            elif isinstance(reply, RedisRefused) and reply.code == "WRONGTYPE" and is_look(command):
                taken[place] = empty(command)
                if self.wrong_types is not None and str(command[1]) not in self.wrong_types.found:
                    (kind,) = exchange(self.connection(), [("TYPE", command[1])])
                    self.wrong_types.found[str(command[1])] = str(kind)
        return taken


class Patience:
    """How long one call goes on trying: a deadline, and pauses that grow."""

    def __init__(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        self._failures = 0
        self._has_reconnected = False

    def may_reconnect(self, error: RedisAway | RedisRefused) -> bool:
        """Tell whether to try once more on a new connection, however little patience there is:
        after a failover.
        """
        refusal = error if isinstance(error, RedisRefused) else error.__cause__
        if (
            self._has_reconnected
            or not isinstance(refusal, RedisRefused)
            or refusal.code not in DEMOTED
        ):
            return False
        log.warning("%s; trying again on a new connection", error)
        self._has_reconnected = True
        return True

    def pause_or_raise(self, error: RedisAway | RedisRefused) -> None:
        """Wait before the next try, or raise `error` when it would come too late or is a refusal."""
        if isinstance(error, RedisRefused):
            raise error
        # No pause after the first failure: a kept connection may have been dead for hours, which
        # says nothing of the server.
        seconds = pause(self._failures - 1) if self._failures else 0.0
        if time.monotonic() + seconds >= self._deadline:
            raise error
        log.log(logging.DEBUG if self._failures else logging.WARNING, "%s; trying again", error)
        self._failures += 1
        time.sleep(seconds)


def exchange(
    connection: Connection,
    commands: Sequence[Command],
    meanwhile: Callable[[], object] | None = None,
) -> list[Any]:
    """Send the commands in one write and return their replies, in order.

    meanwhile: is called while Redis works on them; it must not use this connection.
    """
    try:
        connection.send(commands)
        if meanwhile is not None:
            meanwhile()
        replies = connection.receive(len(commands))
    except BaseException:  # a Ctrl-C, too: its reply must not be taken for another's
        connection.close()
        raise
    name_refused(commands, replies)
    return replies


def name_refused(commands: Sequence[Command], replies: Sequence[Any]) -> None:
    """Note at each error among the replies which command it answers."""
    for command, reply in zip(commands, replies, strict=False):
        if isinstance(reply, RedisRefused):
            words = (
                str(command, "utf-8", "replace").split("\r\n")[2:5:2]
                if isinstance(command, bytes)
                else command[:2]
            )
            reply.command = " ".join(map(str, words))


def raise_refusal(replies: Iterable[Any]) -> None:
    """Raise the first error among the replies."""
    for reply in replies:
        if isinstance(reply, RedisRefused):
            raise reply


def pack(command: Command) -> bytes:
    """Return the command in Redis' wire format."""
    if isinstance(command, bytes):
        return command
    try:
        packed: bytes = hiredis.pack_command(tuple(command))  # type: ignore[arg-type]
    except UnicodeEncodeError:  # a name that is not UTF-8, as read from Redis
        try:
            parts = [
                part if isinstance(part, bytes) else str(part).encode("utf-8", "surrogateescape")
                for part in command
            ]
        except UnicodeEncodeError as error:
            raise InvalidInput(f"{error.object[error.start]!r} is not a character") from error
        packed = hiredis.pack_command(tuple(parts))  # type: ignore[arg-type]
    return packed


def pack_all(commands: Iterable[Command]) -> bytes:
    """Return the commands, one after the other, in Redis' wire format."""
    return b"".join([pack(command) for command in commands])


def as_hash(reply: Sequence[str]) -> dict[str, str]:
    """Return HGETALL's reply, a flat list, as a dict."""
    return dict(zip(reply[::2], reply[1::2], strict=True))


def unless_away(reply: Any, connection: Connection) -> Any:
    """Return the reply, unless the connection is as good as lost: then close it and raise.

    Raises RedisAway when Redis cannot serve now, RedisRefused when it serves as a replica.
    """
    if isinstance(reply, RedisRefused):
        if reply.code in AWAY or "max number of clients" in reply.answer:
            connection.close()
            raise RedisAway(f"Redis is not ready: {reply.answer}") from reply
        if reply.code in DEMOTED:
            connection.close()
            raise reply
    return reply
