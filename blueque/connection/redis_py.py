"""A connection of redis-py: for a given client, and for options of redis-py."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from blueque.connection.address import CONNECT_TIMEOUT, REPLY_TIMEOUT, hide_password
from blueque.connection.plain import Exchange
from blueque.connection.redis import AWAY, Command, Connection, LookAhead, bare, pack, unless_away
from blueque.errors import InvalidInput, RedisAway, RedisRefused

if TYPE_CHECKING:
    import redis as redis_py

# The error codes that redis-py does not remove from a reply.
_CODES = AWAY | {
    "ASK",
    "BUSY",
    "CROSSSLOT",
    "DENIED",
    "ERR",
    "EXECABORT",
    "MISCONF",
    "MOVED",
    "NOAUTH",
    "NOPERM",
    "NOPROTO",
    "NOREPLICAS",
    "OOM",
    "READONLY",
    "WRONGPASS",
    "WRONGTYPE",
}


def require_options(url: str, options: Mapping[str, Any]) -> None:
    """Raise InvalidInput for an option that redis-py does not have, or a value that it refuses."""
    import redis  # here, not above: most users never need its 125 ms

    try:
        pool = redis.Redis.from_url(url, **options).connection_pool
        pool.connection_class(**pool.connection_kwargs)
    except TypeError as error:  # "... got an unexpected keyword argument 'x'"
        scheme, name = url.partition(":")[0], str(error).rpartition(" ")[2]
        raise InvalidInput(f"{name} is not an option of a {scheme}:// address") from None
    except (ValueError, redis.RedisError) as error:
        raise InvalidInput(
            f"{hide_password(url)!r} is not an address for redis-py: {error}"
        ) from None


class ClientConnection(Exchange):
    """A connection of redis-py with a client's settings: its TLS, credentials and kind of socket."""

    def __init__(self, client: redis_py.Redis) -> None:
        import redis  # here, not above: most users never need its 125 ms

        self.look_ahead: LookAhead | None = None
        self.is_proven = False
        self.is_current: Callable[..., bool] | None = None
        self.ask_sentinels: Callable[..., list[Any]] | None = None
        self.has_answer: Callable[[Connection], bool] | None = (
            None  # not used: redis-py reads by itself
        )
        self._errors = redis.exceptions
        pool = client.connection_pool
        settings = dict(pool.connection_kwargs)
        for name in list(settings):
            # Maintenance notices keep the pool alive and look up names; a silent retry may enqueue
            # twice.
            if name.startswith(("maint", "orig_", "retry")):
                del settings[name]
        settings.update(
            decode_responses=True,
            encoding="utf-8",
            encoding_errors="surrogateescape",
            socket_timeout=REPLY_TIMEOUT,
            health_check_interval=0,
            protocol=2,  # so that replies have the same form for every client
        )
        settings.setdefault("socket_connect_timeout", CONNECT_TIMEOUT)
        try:
            self._raw = pool.connection_class(**settings)
        except TypeError as error:  # an option that redis-py does not have
            raise InvalidInput(f"redis-py: {error}") from error
        self._call(self._raw.connect)

    def send(self, commands: Iterable[Command]) -> None:
        packed = b"".join([pack(command) for command in commands])
        self._call(lambda: self._raw.send_packed_command([packed], check_health=False))

    def receive(self, count: int) -> list[Any]:
        return [unless_away(self._receive_one(), self) for _ in range(count)]

    def _receive_one(self) -> Any:
        try:
            reply = self._call(self._raw.read_response)
        except RedisRefused as error:
            if self.is_closed:  # redis-py disconnects at some errors; no other reply follows
                raise
            return error
        if isinstance(reply, list):  # EXEC: errors are among the replies
            return [
                self._refused(part) if isinstance(part, self._errors.RedisError) else part
                for part in reply
            ]
        return reply

    def wait(self, seconds: float) -> bool:
        return bool(self._call(lambda: self._raw.can_read(max(seconds, 0))))

    def track(self) -> bool:
        return False  # redis-py does not pass such messages on

    def has_invalidated(self) -> bool:
        return False

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
            # redis-py counts these among the connection errors
            raise self._refused(error) from error
        except (self._errors.ConnectionError, self._errors.TimeoutError) as error:
            self.close()
            raise RedisAway(f"lost the connection to Redis: {error}") from bare(error)
        except self._errors.ResponseError as error:
            raise self._refused(error) from error

    def _refused(self, error: Exception) -> RedisRefused:
        # redis-py removes the code from errors that have a class of their own.
        codes = {
            "NoPermissionError": "NOPERM",
            "AuthenticationError": "NOAUTH",
            "OutOfMemoryError": "OOM",
            "ReadOnlyError": "READONLY",
            "ExecAbortError": "EXECABORT",
            "MasterDownError": "MASTERDOWN",
            "TryAgainError": "TRYAGAIN",
            "ClusterDownError": "CLUSTERDOWN",
            "ClusterCrossSlotError": "CROSSSLOT",
            "MovedError": "MOVED",
            "AskError": "ASK",
        }
        answer = str(error)
        code = codes.get(type(error).__name__, "ERR")
        if code == "NOAUTH" and "pair" in answer:
            code = "WRONGPASS"
        return RedisRefused(answer if answer.split(" ")[0] in _CODES else f"{code} {answer}")
