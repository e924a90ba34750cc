"""A plain socket to Redis and the hiredis parser.

It saves each listener the memory of redis-py, and each program the time of its import.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

import hiredis

from blueque.connection.address import REPLY_TIMEOUT, SILENCE, Address
from blueque.connection.redis import (
    Command,
    Connection,
    LookAhead,
    bare,
    name_refused,
    pack,
    unless_away,
)
from blueque.connection.waits import READABLE, WRITABLE, Poll
from blueque.errors import RedisAway, RedisRefused

_INCOMPLETE = object()
# neither errors nor push messages: a PushNotification is a list of another type
_PLAIN = frozenset({str, list, int})
_PIECE = 8192  # the parser moves all its remaining bytes with each reply
# Raises TypeError for another sequence than a tuple, and UnicodeEncodeError.
_pack_tuple: Callable[[Command], bytes] = hiredis.pack_command  # type: ignore[assignment]


class Exchange:
    """Sends commands and receives their replies, for each kind of connection."""

    def exchange(
        self: Connection, commands: Sequence[Command], meanwhile: Callable[[], object] | None = None
    ) -> list[Any]:
        try:
            self.send(commands)
            if meanwhile is not None:
                meanwhile()
            replies = self.receive(len(commands))
        except BaseException:  # Ctrl-C, too: a late reply must not be taken for another's
            self.close()
            raise
        name_refused(commands, replies)
        return replies


class SocketConnection(Exchange):
    """A plain TCP or Unix socket."""

    def __init__(
        self, address: Address, has_answer: Callable[[Connection], bool] | None = None
    ) -> None:
        self.look_ahead: LookAhead | None = None
        self.is_proven = False
        self.has_answer = has_answer
        self.is_current: Callable[..., bool] | None = None
        self.ask_sentinels: Callable[..., list[Any]] | None = None
        self._pushed: list[Any] = []
        self._data, self._place = b"", 0  # received bytes, and how many of them the parser has
        self._reader = hiredis.Reader(
            replyError=RedisRefused,
            encoding="utf-8",
            errors="surrogateescape",
            notEnoughData=_INCOMPLETE,
        )
        try:
            self._socket = self._open(address)
        except (OSError, UnicodeError) as error:  # UnicodeError: an invalid host name
            where = address.shown.partition("?")[0]  # paths of certificates would hide the reason
            raise RedisAway(f"no Redis at {where}: {reason_of(error)}") from bare(error)
        self._poll = address.waits.poll(self._socket, READABLE)
        self._write_poll = address.waits.poll(self._socket, WRITABLE)
        greeting = address.greeting()
        if greeting:
            self.send(greeting)
            for reply in self.receive(len(greeting)):
                if isinstance(reply, RedisRefused):
                    self.close()
                    raise reply

    def _open(self, address: Address) -> socket.socket:
        return address.connect()

    def send(self, commands: Iterable[Command]) -> None:
        try:
            if self._socket.getblocking():
                self._socket.sendall(packed(commands))
            else:
                self._send_parts(memoryview(packed(commands)))
        except OSError as error:
            self._lost(error)

    def _send_parts(self, left: memoryview) -> None:
        while left:
            try:
                left = left[self._socket.send(left) :]
            except BlockingIOError:
                if not self._write_poll.poll(REPLY_TIMEOUT * 1000):
                    raise

    def receive(self, count: int) -> list[Any]:
        replies: list[Any] = []
        get = self._reader.gets
        try:
            while len(replies) < count:
                reply = get()
                if type(reply) in _PLAIN:  # such as thousands of QUEUED
                    replies.append(reply)
                elif reply is _INCOMPLETE:
                    self._feed()
                elif isinstance(reply, hiredis.PushNotification):
                    self._pushed.append(reply)
                else:
                    replies.append(unless_away(reply, self))
        except hiredis.ProtocolError as error:
            self._refuse(error)
        return replies

    def wait(self, seconds: float) -> bool:
        if self._has_data():
            return True
        return bool(self._poll.poll(max(seconds, 0) * 1000))

    def track(self) -> bool:
        commands: list[Command] = [("HELLO", 3), ("CLIENT", "TRACKING", "ON")]
        return not any(isinstance(reply, RedisRefused) for reply in self.exchange(commands))

    def has_invalidated(self) -> bool:
        return bool(self._pushed or self._has_data())

    def take_invalidated(self) -> set[str] | None:
        while self.wait(0):
            reply = self._next()
            if reply is _INCOMPLETE:
                self._feed()
            else:
                self._pushed.append(reply)
        pushed, self._pushed = self._pushed, []
        named: set[str] = set()
        for kind, *what in pushed:
            if kind == "invalidate":
                if what[0] is None:  # after FLUSHALL, for example
                    return None
                named.update(what[0])
        return named

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def is_closed(self) -> bool:
        return self._socket.fileno() < 0

    def close(self) -> None:
        self._socket.close()

    def __del__(self) -> None:
        if "_socket" in self.__dict__:  # that of a thread which has ended, or of a lost Client
            self._socket.close()

    def _next(self) -> Any:
        try:
            return self._reader.gets()
        except hiredis.ProtocolError as error:
            self._refuse(error)

    def _has_data(self) -> bool:
        return bool(self._data or self._reader.has_data())

    def _feed(self) -> None:
        """Give the parser more bytes, in pieces: its time grows with the square of their size."""
        data, place = self._data or self._receive_some(), self._place
        size = min(_PIECE, len(data) - place)
        self._reader.feed(data, place, size)
        self._data, self._place = (data, place + size) if place + size < len(data) else (b"", 0)

    def _receive_some(self) -> bytes:
        if self.has_answer is None:
            is_ready = (
                self._poll.poll(REPLY_TIMEOUT * 1000)
                if self.is_current is None
                else self._is_ready(self._poll, REPLY_TIMEOUT)
            )
            if not is_ready:
                self._lost(OSError("timed out"))
        elif not self.has_answer(self):
            self._lost(OSError("gave up waiting for an answer"))
        try:
            data = self._socket.recv(65536)
        except OSError as error:
            self._lost(error)
        if not data:
            self._lost(OSError("the server closed the connection"))
        return data

    def _is_ready(self, poll: Poll, seconds: float) -> bool:
        """Wait for the socket, unless Sentinel replaces the server meanwhile."""
        if self.is_current is None:
            return bool(poll.poll(seconds * 1000))
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if poll.poll(min(left, SILENCE) * 1000):
                return True
            if not self.is_current(SILENCE):
                return False
        return False

    def _refuse(self, error: hiredis.ProtocolError) -> NoReturn:
        self._lost(OSError(f"this is not Redis: {error}"))

    def _lost(self, error: OSError) -> NoReturn:
        self.close()
        raise RedisAway(f"lost the connection to Redis: {reason_of(error)}") from bare(error)


def packed(commands: Iterable[Command]) -> bytes:
    """Return several commands in Redis' wire format."""
    several = [*commands]
    try:  # a listener packs forty for each task, and a call of `pack` for each takes as long again
        return b"".join([one if type(one) is bytes else _pack_tuple(one) for one in several])
    except (TypeError, UnicodeEncodeError):
        return b"".join(map(pack, several))


def reason_of(error: BaseException) -> str:
    """Return the message of the system, without the number of the error."""
    if isinstance(error, BlockingIOError):  # of a send: see `Address.connect`
        return "timed out"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
