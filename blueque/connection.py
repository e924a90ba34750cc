"""Connections to Redis: one for each thread, none inherited over a fork, nothing ever sent twice by itself.

A plain `redis://` or `unix://` address is spoken to by `Connection`: a socket and the hiredis parser. That spares a
listener, which forks all day, the memory of redis-py, and every program its import. Everything else (TLS, a ready client,
unusual options) goes through redis-py's own connection behind the same methods, `ClientConnection`.
"""

from __future__ import annotations

import logging
import os
import re
import select
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

import hiredis

from blueque.errors import InvalidInput, RedisAway, RedisRefused
from blueque.pauses import pause

if TYPE_CHECKING:
    import redis as redis_py

log = logging.getLogger("blueque")

Command = Sequence[str | int | float]

CONNECT_TIMEOUT = 5.0
REPLY_TIMEOUT = 10.0

# Redis answers with an error, but what it means is "not now": as good as away.
_AWAY = {"LOADING", "MASTERDOWN", "UNBLOCKED", "TRYAGAIN", "CLUSTERDOWN"}
# The codes that redis-py leaves in front of an answer.
_CODES = _AWAY | {
    "ASK", "BUSY", "CROSSSLOT", "DENIED", "ERR", "EXECABORT", "MISCONF", "MOVED", "NOAUTH", "NOPERM", "NOPROTO",
    "NOREPLICAS", "OOM", "READONLY", "WRONGPASS", "WRONGTYPE",
}
_INCOMPLETE = object()


class Look(NamedTuple):
    """What a transaction watches and then reads; `task` is the id of the task that it is about, if it is about one."""

    watch: Sequence[str]
    reads: Sequence[Command]
    task: str | None = None


class Ahead(NamedTuple):
    """A look that travelled with the previous EXEC, so that the next transaction saves a round trip."""

    look: Look
    replies: list[Any]


class Connection(Protocol):
    """What the rest of Blueque knows of a connection. Error replies are values; a broken connection raises RedisAway."""

    ahead: Ahead | None
    is_proven: bool                                    # it has been seen to take a MULTI

    @property
    def is_closed(self) -> bool: ...

    def send(self, commands: Iterable[Command]) -> None:
        """Send the commands in one write."""

    def receive(self, count: int) -> list[Any]:
        """Return the next `count` replies, in order."""

    def wait(self, seconds: float) -> bool:
        """Wait until something can be received; False when nothing came."""

    def track(self) -> bool:
        """Ask Redis to tell which of the keys that this connection reads change afterwards; False when it won't."""

    def take_invalidated(self) -> set[str] | None:
        """Return those keys, each once until it is read again; None when all have to be taken for changed."""

    def fileno(self) -> int: ...

    def close(self) -> None: ...


class SocketConnection:
    """A plain TCP or Unix socket."""

    def __init__(self, address: Address) -> None:
        self.ahead: Ahead | None = None
        self.is_proven = False
        self._pushed: list[Any] = []
        self._reader = hiredis.Reader(
            replyError=RedisRefused, encoding="utf-8", errors="surrogateescape", notEnoughData=_INCOMPLETE
        )
        try:
            self._socket = address.connect()
        except OSError as error:
            raise RedisAway(f"no Redis at {address.shown}: {_reason(error)}") from error
        greeting = address.greeting()
        if greeting:
            self.send(greeting)
            for reply in self.receive(len(greeting)):
                if isinstance(reply, RedisRefused):
                    self.close()
                    raise reply

    def send(self, commands: Iterable[Command]) -> None:
        try:
            self._socket.sendall(b"".join([pack(command) for command in commands]))
        except OSError as error:
            self._lost(error)

    def receive(self, count: int) -> list[Any]:
        replies: list[Any] = []
        while len(replies) < count:
            reply = self._next()
            if reply is _INCOMPLETE:
                self._feed()
            elif isinstance(reply, hiredis.PushNotification):
                self._pushed.append(reply)
            else:
                replies.append(_unless_away(reply, self))
        return replies

    def wait(self, seconds: float) -> bool:
        if self._reader.has_data():
            return True
        poll = select.poll()                           # not select.select: it refuses descriptors above 1023
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(max(seconds, 0) * 1000))

    def track(self) -> bool:
        commands: list[Command] = [("HELLO", 3), ("CLIENT", "TRACKING", "ON")]
        return not any(isinstance(reply, RedisRefused) for reply in exchange(self, commands))

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
                if what[0] is None:                    # FLUSHALL and the like
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

    def _next(self) -> Any:
        try:
            return self._reader.gets()
        except hiredis.ProtocolError as error:
            self._lost(OSError(f"this is not Redis: {error}"))

    def _feed(self) -> None:
        try:
            data = self._socket.recv(65536)
        except OSError as error:
            self._lost(error)
        if not data:
            self._lost(OSError("the server closed the connection"))
        self._reader.feed(data)

    def _lost(self, error: OSError) -> NoReturn:
        self.close()
        raise RedisAway(f"lost the connection to Redis: {_reason(error)}") from error


class ClientConnection:
    """A connection of redis-py, made from the settings of a ready client: its TLS, credentials and kind of socket."""

    def __init__(self, client: redis_py.Redis) -> None:
        import redis  # here, not above: most users never need its 125 ms

        self.ahead: Ahead | None = None
        self.is_proven = False
        self._errors = redis.exceptions
        pool = client.connection_pool
        settings = dict(pool.connection_kwargs)
        for name in list(settings):
            # Its notices of maintenance hold on to the pool and look up names; a silent retry may enqueue twice.
            if name.startswith(("maint", "orig_", "retry")):
                del settings[name]
        settings.update(
            decode_responses=True, encoding="utf-8", encoding_errors="surrogateescape",
            socket_timeout=REPLY_TIMEOUT, health_check_interval=0,
            protocol=2,                                # whatever the client speaks, replies look alike to us
        )
        settings.setdefault("socket_connect_timeout", CONNECT_TIMEOUT)
        self._raw = pool.connection_class(**settings)
        self._call(self._raw.connect)

    def send(self, commands: Iterable[Command]) -> None:
        packed = b"".join([pack(command) for command in commands])
        self._call(lambda: self._raw.send_packed_command([packed], check_health=False))

    def receive(self, count: int) -> list[Any]:
        return [_unless_away(self._receive_one(), self) for _ in range(count)]

    def _receive_one(self) -> Any:
        try:
            reply = self._call(self._raw.read_response)
        except RedisRefused as error:
            if self.is_closed:                         # redis-py hangs up at some refusals; no other reply follows
                raise
            return error
        if isinstance(reply, list):                    # EXEC: errors stand between the replies
            return [self._refused(part) if isinstance(part, self._errors.RedisError) else part for part in reply]
        return reply

    def wait(self, seconds: float) -> bool:
        return bool(self._call(lambda: self._raw.can_read(max(seconds, 0))))

    def track(self) -> bool:
        return False                                   # redis-py keeps such messages to itself

    def take_invalidated(self) -> set[str] | None:
        return None

    def fileno(self) -> int:
        return int(self._raw._sock.fileno())

    @property
    def is_closed(self) -> bool:
        return self._raw._sock is None

    def close(self) -> None:
        self._raw.disconnect()

    def _call(self, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except (self._errors.AuthenticationError, self._errors.AuthorizationError) as error:
            raise self._refused(error) from error      # redis-py counts these among the connection errors
        except (self._errors.ConnectionError, self._errors.TimeoutError) as error:
            self.close()
            raise RedisAway(f"lost the connection to Redis: {error}") from error
        except self._errors.ResponseError as error:
            raise self._refused(error) from error

    def _refused(self, error: Exception) -> RedisRefused:
        # redis-py cuts the code off the answers for which it has a class of its own.
        codes = {"NoPermissionError": "NOPERM", "AuthenticationError": "NOAUTH", "OutOfMemoryError": "OOM",
                 "ReadOnlyError": "READONLY", "ExecAbortError": "EXECABORT", "MasterDownError": "MASTERDOWN",
                 "TryAgainError": "TRYAGAIN", "ClusterDownError": "CLUSTERDOWN"}
        answer = str(error)
        code = codes.get(type(error).__name__, "ERR")
        if code == "NOAUTH" and "pair" in answer:
            code = "WRONGPASS"
        return RedisRefused(answer if answer.split(" ")[0] in _CODES else f"{code} {answer}")


class Address:
    """Where Redis is: `redis://[user[:password]@]host[:port][/db]` or `unix://[user[:password]@]/path[?db=n]`."""

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:                             # its message may quote the password
            raise InvalidInput(f"{hide_password(url)!r} is not a Redis address: host or port cannot be read") from None
        options = dict(parse_qsl(parts.query))
        self.is_plain = parts.scheme in ("redis", "unix") and set(options) <= {"db"}
        if parts.scheme not in ("redis", "rediss", "unix"):
            raise InvalidInput(f"{hide_password(url)!r} is not a Redis address: redis://host:port/db, rediss:// or unix://")
        self.shown = hide_password(url)
        self._path = unquote(parts.path) if parts.scheme == "unix" else None
        try:
            self._host, self._port = parts.hostname or "localhost", 6379 if port is None else port
            db = options.get("db") or (parts.path.strip("/") if self._path is None else "")
            self._db = int(db or 0)
        except ValueError:
            raise InvalidInput(f"{self.shown!r} is not a Redis address: the database is a number") from None
        self._user = unquote(parts.username or "")
        self._password = unquote(parts.password or "")

    def connect(self) -> socket.socket:
        if self._path is not None:
            connected = socket.socket(socket.AF_UNIX)
            connected.settimeout(CONNECT_TIMEOUT)
            connected.connect(self._path)
        else:
            connected = socket.create_connection((self._host, self._port), CONNECT_TIMEOUT)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connected.settimeout(REPLY_TIMEOUT)
        return connected

    def greeting(self) -> list[Command]:
        commands: list[Command] = []
        if self._password:
            commands.append(("AUTH", self._user, self._password) if self._user else ("AUTH", self._password))
        if self._db:
            commands.append(("SELECT", self._db))
        return commands


class Redis:
    """The connections of one Client: one for each thread, made when first needed, left behind after a fork.

    patience: how long, in seconds, a call tries again when Redis does not answer.
    """

    def __init__(self, connect: Callable[[], Connection], patience: float) -> None:
        self.patience = patience
        self._connect = connect
        self._local = threading.local()

    def connection(self) -> Connection:
        """Return this thread's connection, made now if need be."""
        kept: Connection | None = getattr(self._local, "connection", None)
        if kept is not None:
            if self._local.pid == os.getpid() and not kept.is_closed:
                return kept
            kept.close()                               # after a fork this closes our copy, not the parent's connection
        self._local.connection = made = self._connect()
        self._local.pid = os.getpid()
        return made

    @property
    def ahead(self) -> Ahead | None:
        """What this thread's connection already watches for a task to come, if it has one."""
        kept: Connection | None = getattr(self._local, "connection", None)
        return kept.ahead if kept is not None and self._local.pid == os.getpid() and not kept.is_closed else None

    def close(self) -> None:
        """Close this thread's connection; the next call opens another."""
        kept: Connection | None = getattr(self._local, "connection", None)
        if kept is not None:
            kept.close()

    def read(self, *commands: Command) -> list[Any]:
        """Send commands in one write and return their replies. They only look, so it is tried again if need be."""
        patience = Patience(self.patience)
        while True:
            try:
                replies = exchange(self.connection(), commands)
            except RedisAway as error:
                self.close()
                patience.pause_or_raise(error)
                continue
            raise_refusal(replies)
            return replies


class Patience:
    """How long one call goes on trying: a deadline, and pauses that grow."""

    def __init__(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        self._failures = 0

    def pause_or_raise(self, error: RedisAway) -> None:
        """Wait before the next try, or raise `error` when it would come too late."""
        # No pause after the first failure: a kept connection may have been dead for hours, which says nothing of the server.
        seconds = pause(self._failures - 1) if self._failures else 0.0
        if time.monotonic() + seconds >= self._deadline:
            raise error
        self._failures += 1
        log.warning("%s; trying again", error)
        time.sleep(seconds)


def exchange(connection: Connection, commands: Sequence[Command]) -> list[Any]:
    """Send the commands in one write and return their replies, in order."""
    try:
        connection.send(commands)
        return connection.receive(len(commands))
    except BaseException:                              # a Ctrl-C, too: its reply must not be taken for another's
        connection.close()
        raise


def raise_refusal(replies: Iterable[Any]) -> None:
    """Raise the first error among the replies."""
    for reply in replies:
        if isinstance(reply, RedisRefused):
            raise reply


def pack(command: Command) -> bytes:
    """Return the command in Redis' wire format."""
    try:
        packed: bytes = hiredis.pack_command(tuple(command))  # type: ignore[arg-type]
    except UnicodeEncodeError:                         # a name that is not UTF-8, as read from Redis
        try:
            parts = [str(part).encode("utf-8", "surrogateescape") for part in command]
        except UnicodeEncodeError as error:
            raise InvalidInput(f"{error.object[error.start]!r} is not a character") from error
        packed = hiredis.pack_command(tuple(parts))  # type: ignore[arg-type]
    return packed


def hide_password(url: str) -> str:
    """Return the address with its password replaced, fit to be shown."""
    url = re.sub(r"([?&]password=)[^&]*", r"\1***", url)
    scheme, separator, rest = url.partition("://")
    credentials, at, place = rest.rpartition("@")
    if not at:
        return url
    user = credentials.partition(":")[0]
    return f"{scheme}{separator}{user}:***@{place}"


def as_hash(reply: Sequence[str]) -> dict[str, str]:
    """Return HGETALL's reply, a flat list, as a dict."""
    return dict(zip(reply[::2], reply[1::2], strict=True))


def _unless_away(reply: Any, connection: Connection) -> Any:
    if isinstance(reply, RedisRefused) and (reply.code in _AWAY or "max number of clients" in reply.answer):
        connection.close()
        raise RedisAway(f"Redis is not ready: {reply.answer}")
    return reply


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
