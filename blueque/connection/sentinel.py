"""Redis behind Sentinel: find the primary server, and leave a server that no longer is.

    redis+sentinel://[user[:password]@]host[:26379][,host[:port]]...[/service[/db]]

A replaced server may still answer for a while, and everything that it then acknowledges is lost. So
each connection in use asks again every few seconds, and is replaced if Sentinel names another
server. One that gets no answer asks each second.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode

from blueque.connection.address import Address, hide_password
from blueque.connection.opening import connect
from blueque.connection.plain import reason_of
from blueque.connection.redis import Connection, bare
from blueque.connection.waits import BLOCKING, Waits
from blueque.errors import OURS, InvalidInput, RedisAway, RedisRefused

log = logging.getLogger("blueque")

SERVICE = "mymaster"  # the name in the example configuration of Redis
PORT = 26379
ANSWER = 0.5  # seconds for one Sentinel
GREETING = 2.0  # seconds for a primary to say that it is one
ASK_EVERY = 10.0  # seconds between two questions of one connection
_FORM = "redis+sentinel://host:26379,host:26379/service/db"
_URL = re.compile(
    r"(?P<scheme>rediss?)\+sentinel://((?P<credentials>[^/?#]*)@)?(?P<hosts>[^/?#@]+)"
    r"(/(?P<service>[^/?#]*)(/(?P<db>[^/?#]*))?)?(\?(?P<options>[^#]*))?"
)
_HOST = re.compile(r"(?P<name>\[[^\]]+\]|[^:\[\]]+)(:(?P<port>[0-9]+))?")


class SentinelAddress:
    """The address of a service that Sentinel watches.

    sentinels: their addresses; the last one that answered comes first.
    Options are those of an address of Redis, those of TLS for the Sentinels too, and sentinel_user
    and sentinel_password. tls, is_plain: see Address.
    """

    def __init__(self, url: str) -> None:
        self.shown, self._waits = hide_password(url), BLOCKING
        found = _URL.fullmatch(url)
        if found is None:
            raise InvalidInput(f"{self.shown!r} is not an address of Sentinels: {_FORM}")
        options = dict(parse_qsl(found["options"] or ""))
        user, password = (options.pop(f"sentinel_{name}", "") for name in ("user", "password"))
        own = f"{quote(user, safe='')}:{quote(password, safe='')}@" if password else ""
        self._service = unquote(found["service"] or SERVICE)
        db = options.pop("db", None) or found["db"] or "0"
        more = f"?{urlencode(options)}" if options else ""
        at = f"{found['credentials']}@" if found["credentials"] else ""
        self._head, self._tail = f"{found['scheme']}://{at}", f"/{db}{more}"
        hosts = _hosts(found["hosts"], self.shown)
        if not db.isdecimal():
            raise InvalidInput(f"{self.shown!r} is not an address of Sentinels: {_FORM}")
        try:
            self.sentinels = [
                Address(f"{found['scheme']}://{own}{name}:{port}{more}", ANSWER)
                for name, port in hosts
            ]
        except InvalidInput as error:  # it names an address that the user has not written
            why = str(error).rpartition(": ")[2]
            raise InvalidInput(f"{self.shown!r} is not an address of Sentinels: {why}") from None
        example = self.primary("localhost", PORT)
        if example.unknown:
            raise InvalidInput(
                f"{min(example.unknown)!r} is not an option of a {found['scheme']}+sentinel:// address"
            )
        self.tls, self.is_plain = example.tls, True

    def wait_by(self, waits: Waits) -> None:
        """Replace blocking waits of the connections to servers and Sentinels by others."""
        self._waits = waits
        for sentinel in self.sentinels:
            sentinel.wait_by(waits)

    def primary(self, host: str, port: int) -> Address:
        """Return the address of a server that Sentinel names."""
        address = Address(f"{self._head}{host}:{port}{self._tail}")
        address.wait_by(self._waits)
        return address

    def connect(self) -> Connection:
        """Return a connection to the primary. Raises RedisAway, RedisRefused."""
        host, port = self.ask()
        try:
            connection = self._connect_to(self.primary(host, port))
        except RedisAway:
            # That Sentinel may be cut off from the others: ask another one first the next time.
            self.sentinels = [*self.sentinels[1:], self.sentinels[0]]
            raise
        connection.is_current, connection.ask_sentinels = self._question(host, port), self.ask_each
        return connection

    def _connect_to(self, primary: Address) -> Connection:
        connection = connect(primary, lambda connection: connection.wait(GREETING))
        try:
            (reply,) = connection.exchange([("ROLE",)])
            connection.has_answer = None
            if isinstance(reply, RedisRefused):
                raise reply
            if reply[0] != "master":  # Sentinel may be ahead of the servers
                raise RedisAway(f"{primary.place} is not the primary of {self._service} yet")
        except BaseException:
            connection.close()
            raise
        return connection

    def _question(self, host: str, port: int) -> Callable[..., bool]:
        """Return a function that returns, and asks now and then, whether a server is the primary."""
        asked_at = time.monotonic()

        def is_current(every: float | None = None) -> bool:
            nonlocal asked_at
            if time.monotonic() < asked_at + (ASK_EVERY if every is None else every):
                return True
            asked_at = time.monotonic()
            try:
                named = self.ask()
            except (RedisAway, RedisRefused) as error:  # the primary may be healthy
                log.debug("%s", error)
                return True
            if named != (host, port):
                log.warning("Sentinel names %s:%d the primary, no longer %s:%d", *named, host, port)
            return named == (host, port)

        return is_current

    def ask(self) -> tuple[str, int]:
        """Return host and port of the primary, from the first answer.

        Raises RedisAway, or RedisRefused if no answering Sentinel knows the service.
        """
        errors: list[RedisAway | RedisRefused] = []
        for sentinel in self.sentinels:
            try:
                host, port = self.ask_one(sentinel)
            except (RedisAway, RedisRefused) as error:
                errors.append(error)
            else:
                others = [each for each in self.sentinels if each is not sentinel]
                self.sentinels = [sentinel, *others]
                return host, port
        for each in errors:
            if isinstance(each, RedisRefused):
                raise each
        reasons, first = "; ".join(map(str, errors)), errors[0].__cause__
        raise RedisAway(f"no Sentinel answers: {reasons}") from first

    def ask_one(self, sentinel: Address) -> tuple[str, int]:
        """Return the answer of one Sentinel. Raises RedisAway, RedisRefused."""
        (reply,) = self._answers(sentinel, "GET-MASTER-ADDR-BY-NAME")
        if isinstance(reply, RedisRefused):
            reply.sentinel = sentinel.place
            raise reply
        if reply is None:
            raise RedisRefused(
                f"SENTINEL the Sentinel at {sentinel.place} does not know service {self._service!r}"
            )
        host, port = reply
        return f"[{host}]" if ":" in host else host, int(port)

    def ask_each(self, *questions: str) -> list[list[Any] | RedisAway | RedisRefused]:
        """Return the answers of each Sentinel to questions about the service, or its error."""
        found: list[list[Any] | RedisAway | RedisRefused] = []
        for sentinel in self.sentinels:
            try:
                found.append(self._answers(sentinel, *questions))
            except (RedisAway, RedisRefused) as error:
                found.append(error)
        return found

    def _answers(self, sentinel: Address, *questions: str) -> list[Any]:
        try:
            connection = connect(sentinel, lambda connection: connection.wait(ANSWER))
            try:
                return connection.exchange(
                    [("SENTINEL", question, self._service) for question in questions]
                )
            finally:
                connection.close()
        except RedisRefused as error:
            error.sentinel = "" if error.code in OURS else sentinel.place
            raise
        except RedisAway as error:
            cause = error.__cause__ or error
            raise RedisAway(f"{sentinel.place}: {reason_of(cause)}") from bare(cause)


def _hosts(text: str, shown: str) -> list[tuple[str, int]]:
    found = [_HOST.fullmatch(part.strip()) for part in text.split(",")]
    if None in found:
        raise InvalidInput(f"{shown!r} is not an address of Sentinels: {_FORM}")
    return [(each["name"], int(each["port"] or PORT)) for each in found if each is not None]
