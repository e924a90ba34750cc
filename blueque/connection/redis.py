"""Connections to Redis: one for each thread, none inherited over a fork.

Nothing that changes Redis is repeated silently. There are two kinds of connection with the same
methods: `plain`, with TLS `tls`, for an address, and `redis_py` for a ready client and its options.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar, TypeVarTuple

import hiredis

from blueque.errors import NOT_NOW, InvalidInput, RedisAway, RedisRefused
from blueque.model.client_settings import ClientSettings
from blueque.model.wrong_types import WrongTypes, empty, is_look
from blueque.system.backoff import pause

log = logging.getLogger("blueque")

# The words of a command; or bytes, a whole command in Redis' wire format.
Command = Sequence[str | int | float | bytes]

# Redis answers with one of these errors while it cannot serve: treated as away.
AWAY = {"LOADING", "MASTERDOWN", "UNBLOCKED", "TRYAGAIN", "CLUSTERDOWN"}

# Errors of a server that was a primary until a failover. A new connection to its address may reach
# the new primary. Nothing was changed: Redis discards a MULTI that contains such an error.
DEMOTED = {"READONLY", "MASTERDOWN", "UNBLOCKED"}


Replies = TypeVarTuple("Replies")  # the types of the replies to the reads of a look


class Look(NamedTuple, Generic[*Replies]):
    """What a transaction watches and then reads.

    task: the id of the task that the transaction concerns, for its errors.
    """

    watch: Sequence[str]
    reads: Sequence[Command]
    task: str | None = None


AnyLook: TypeAlias = Look[*tuple[Any, ...]]


class LookAhead(NamedTuple):
    """A look that was sent with the previous EXEC, and its replies. It saves a round trip."""

    look: AnyLook
    replies: list[Any]


class Connection(Protocol):
    """The interface of a connection. Error replies are values; a lost one raises RedisAway."""

    look_ahead: LookAhead | None
    # Waits for a reply in place of a blocking read; False gives up.
    has_answer: Callable[[Connection], bool] | None
    is_proven: bool  # MULTI has worked on it
    # Tells whether Sentinel still names this server the primary; None: there is no Sentinel. It is
    # asked if the last time is longer ago than a number of seconds, which may be given.
    is_current: Callable[..., bool] | None
    # Asks each of its Sentinels the same questions: see SentinelAddress.ask_each.
    ask_sentinels: Callable[..., list[Any]] | None

    @property
    def is_closed(self) -> bool: ...

    def exchange(
        self, commands: Sequence[Command], meanwhile: Callable[[], object] | None = None
    ) -> list[Any]:
        """Send the commands in one write and return their replies, in order.

        meanwhile: called while Redis works on them; it must not use this connection.
        """

    def send(self, commands: Iterable[Command]) -> None:
        """Send the commands in one write."""

    def receive(self, count: int) -> list[Any]:
        """Return the next `count` replies, in order."""

    def wait(self, seconds: float) -> bool:
        """Wait until something can be received; False when nothing came."""

    def track(self) -> bool:
        """Ask Redis to report changes of the keys that this connection reads. False: Redis refuses."""

    def has_invalidated(self) -> bool:
        """Return whether such a report has been received already, so that no wait is needed."""

    def take_invalidated(self) -> set[str] | None:
        """Return the changed keys, each once until it is read again; None: any key may have changed."""

    def fileno(self) -> int: ...

    def close(self) -> None: ...


class Redis:
    """The connections of one Client: one for each thread, opened when first needed, not inherited
    over a fork.

    connect: opens a connection.
    patience: how many seconds a call retries while Redis does not answer.
    settings: of the Client, for what is written over these connections.
    has_answer: if set, waits for each reply instead of a blocking read, and may return False to give up.
    wrong_types: if set, a read of a key of a wrong type gets an empty reply, and records the key here.
    unbounded_until, readable_until: until when producers assume that a queue has no bound, and no
        1.0.0 listener, on the monotonic clock.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        patience: float,
        settings: ClientSettings = ClientSettings(),  # noqa: B008  # it does not change
    ) -> None:
        self.patience, self.settings = patience, settings
        self.unbounded_until: dict[str, float] = {}
        self.readable_until: dict[str, float] = {}
        self.connect = connect
        self._local = threading.local()
        self.has_answer: Callable[[Connection], bool] | None = None
        self.wrong_types: WrongTypes | None = None
        self.sleep: Callable[[float], object] = time.sleep

    def connection(self) -> Connection:
        """Return this thread's connection; open it if needed."""
        kept = self._kept()
        if kept is None or (kept.is_current is not None and not is_usable(kept)):
            kept = self.connect()
            kept.has_answer = self.has_answer
            self._local.connection = kept
        return kept

    @property
    def look_ahead(self) -> AnyLook | None:
        """The look that this thread's connection has sent ahead, if there is one."""
        kept = self._kept()
        return None if kept is None or kept.look_ahead is None else kept.look_ahead.look

    def _kept(self) -> Connection | None:
        """Return this thread's connection, if it is open and not inherited over a fork."""
        local, pid = self._local, os.getpid()
        if getattr(local, "pid", None) != pid:
            self.close()  # after a fork this closes our copy, not the parent's connection
            local.pid = pid
        kept: Connection | None = getattr(local, "connection", None)
        return None if kept is None or kept.is_closed else kept

    def another(self) -> Redis:
        """Return a copy with its own connections, for use while this one awaits a reply."""
        other = Redis(self.connect, self.patience, self.settings)
        other.has_answer = self.has_answer
        other.unbounded_until, other.readable_until = self.unbounded_until, self.readable_until
        other.wrong_types, other.sleep = self.wrong_types, self.sleep
        return other

    def lenient(self) -> Redis:
        """Return a copy that reads a key of a wrong type as empty."""
        other = self.another()
        other.wrong_types = WrongTypes() if self.wrong_types is None else self.wrong_types
        return other

    def close(self) -> None:
        """Close this thread's connection; the next call opens another."""
        kept: Connection | None = getattr(self._local, "connection", None)
        if kept is not None:
            kept.close()

    def read(self, *commands: Command) -> list[Any]:
        """Send commands that only read, in one write, and return their replies.

        It retries within the patience. Without commands it sends nothing.
        """
        replies = self.answers(*commands)
        raise_refusal(replies)
        return replies

    def answers(self, *commands: Command) -> list[Any]:
        """Do the same as `read`, but return refusals as values, for reads that an ACL may forbid."""
        if not commands:
            return []
        patience = Patience(self.patience, self.sleep)
        while True:
            try:
                connection = self.connection()
                if ("EXEC",) in commands and connection.look_ahead is not None:
                    connection.look_ahead = None
                    connection.exchange([("UNWATCH",)])  # or the EXEC may answer nil
                replies = connection.exchange(commands)
                raise_refusal(replies, NOT_NOW)
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
        """Return the replies, with empty ones for keys of a wrong type, and record those keys."""
        taken = list(replies)
        for place, (command, reply) in enumerate(zip(commands, replies, strict=True)):
            if isinstance(reply, list) and tuple(command) == ("EXEC",):
                taken[place] = self._without_wrong_types(
                    commands[place - len(reply) : place], reply
                )
            elif isinstance(reply, RedisRefused) and reply.is_wrong_type and is_look(command):
                taken[place] = empty(command)
                if self.wrong_types is not None and str(command[1]) not in self.wrong_types.kinds:
                    (kind,) = self.connection().exchange([("TYPE", command[1])])
                    self.wrong_types.kinds[str(command[1])] = str(kind)
        return taken


def is_usable(connection: Connection) -> bool:
    """Return whether a kept connection may be used; close one to a server that Sentinel has replaced."""
    is_open = not connection.is_closed
    if is_open and connection.is_current is not None and not connection.is_current():
        connection.close()
    return not connection.is_closed


class Patience:
    """The tries of one call: until a deadline, with growing pauses."""

    def __init__(self, seconds: float, sleep: Callable[[float], object] = time.sleep) -> None:
        self._deadline, self._sleep = time.monotonic() + seconds, sleep
        self._failures = 0
        self._has_reconnected = False

    def may_reconnect(self, error: RedisAway | RedisRefused) -> bool:
        """Return whether to retry once on a new connection, even after the deadline: after a failover."""
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
        """Wait before the next try. Raise `error` if it is a final refusal, or the deadline comes first."""
        if isinstance(error, RedisRefused):
            if error.code not in NOT_NOW:
                raise bare(error)
            refusal, error = error, RedisAway(f"Redis is not ready: {error.answer}")
            error.__cause__ = refusal
        # No pause after the first failure: the connection may have been dead for hours while the
        # server works.
        seconds = pause(self._failures - 1) if self._failures else 0.0
        if time.monotonic() + seconds >= self._deadline:
            raise bare(error)
        log.log(logging.DEBUG if self._failures else logging.WARNING, "%s; trying again", error)
        self._failures += 1
        self._sleep(seconds)


_Failure = TypeVar("_Failure", bound=BaseException)


def bare(error: _Failure) -> _Failure:
    """Return an error without traceback and context, to be raised or to be a cause.

    Its message is enough to find the reason. Its own lines, inside the connection, would hide those
    of the caller.
    """
    error.__suppress_context__ = True
    return error.with_traceback(None)


def name_refused(commands: Sequence[Command], replies: Sequence[Any]) -> None:
    """Set the command of each error among the replies."""
    if RedisRefused not in map(type, replies):  # the usual case
        return
    for command, reply in zip(commands, replies, strict=False):
        if isinstance(reply, RedisRefused):
            words = (
                str(command, "utf-8", "replace").split("\r\n")[2:5:2]
                if isinstance(command, bytes)
                else command[:2]
            )
            reply.command = " ".join(map(str, words))


def raise_refusal(replies: Sequence[Any], only: Collection[str] | None = None) -> None:
    """Raise the first error among the replies. only: with one of these codes."""
    if RedisRefused not in map(type, replies):  # the usual case
        return
    for reply in replies:
        if isinstance(reply, RedisRefused) and (only is None or reply.code in only):
            raise reply


def pack(command: Command) -> bytes:
    """Return the command in Redis' wire format."""
    if isinstance(command, bytes):
        return command
    try:
        packed: bytes = hiredis.pack_command(tuple(command))  # type: ignore[arg-type]
    except UnicodeEncodeError:
        parts = [part if isinstance(part, bytes) else as_bytes(str(part)) for part in command]
        packed = hiredis.pack_command(tuple(parts))  # type: ignore[arg-type]
    return packed


def as_bytes(text: str) -> bytes:
    """Return text as Redis gets it, even a name from Redis that is not UTF-8."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        pass
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{error.object[error.start]!r} is not a character") from error


def as_fields(names: Iterable[str], values: Iterable[str | None]) -> dict[str, str]:
    """Return the fields of a hash, from the reply to an HMGET of these names."""
    return {name: value for name, value in zip(names, values, strict=True) if value is not None}


def time_of(reply: Sequence[str]) -> float:
    """Return Unix seconds, given the reply to TIME."""
    seconds, microseconds = reply
    return int(seconds) + int(microseconds) / 1e6


def as_scores(reply: Sequence[Any]) -> dict[str, float]:
    """Return the members of a range with their scores, from replies of RESP2 or RESP3."""
    is_paired = bool(reply) and isinstance(reply[0], list)
    pairs = reply if is_paired else zip(reply[::2], reply[1::2], strict=True)
    return {member: float(score) for member, score in pairs}


def as_hash(reply: Sequence[str]) -> dict[str, str]:
    """Return HGETALL's reply, a flat list, as a dict."""
    return dict(zip(reply[::2], reply[1::2], strict=True))


def unless_away(reply: Any, connection: Connection) -> Any:
    """Return the reply. For an error that makes the connection useless, close it and raise.

    Raises RedisAway when Redis cannot serve now, RedisRefused when the server is a replica.
    """
    if isinstance(reply, RedisRefused):
        if reply.code in AWAY or "max number of clients" in reply.answer:
            connection.close()
            raise RedisAway(f"Redis is not ready: {reply.answer}") from reply
        if reply.code in DEMOTED:
            connection.close()
            raise reply
    return reply
