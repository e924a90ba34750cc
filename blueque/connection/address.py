"""The address of Redis: parse a URL, and show it without its password."""

from __future__ import annotations

import re
import socket
import struct
from urllib.parse import parse_qsl, unquote, urlsplit

from blueque.errors import InvalidInput

CONNECT_TIMEOUT = 5.0
REPLY_TIMEOUT = 10.0
_TIMEOUT = struct.Struct("ll")  # of the kernel: seconds, microseconds
_IN_PASSWORD = "; in a password, write / # ? @ as %2F %23 %3F %40"


class Address:
    """The address of Redis: `redis://[user[:password]@]host[:port][/db]` or
    `unix://[user[:password]@]/path[?db=n]`.
    """

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port
            if parts.scheme != "unix" and "@" in parts.path + parts.fragment:
                raise ValueError("the password has a character that ends host and port")
        except ValueError:  # its message may contain the password
            raise InvalidInput(
                f"{hide_password(url)!r} is not a Redis address: host or port cannot be read"
                + (_IN_PASSWORD if "@" in url else "")
            ) from None
        options = dict(parse_qsl(parts.query))
        self.is_plain = parts.scheme in ("redis", "unix") and set(options) <= {"db"}
        if parts.scheme not in ("redis", "rediss", "unix"):
            raise InvalidInput(
                f"{hide_password(url)!r} is not a Redis address: redis://host:port/db, rediss:// or unix://"
            )
        self.shown = hide_password(url)
        self._path = unquote(parts.path) if parts.scheme == "unix" else None
        try:
            self._host, self._port = parts.hostname or "localhost", 6379 if port is None else port
            db = options.get("db") or (parts.path.strip("/") if self._path is None else "")
            self._db = int(db or 0)
        except ValueError:
            raise InvalidInput(
                f"{self.shown!r} is not a Redis address: the database is a number"
            ) from None
        self._user = unquote(parts.username or "")
        self._password = unquote(parts.password or "")

    def connect(self) -> socket.socket:
        """Return a socket on which a send waits for `REPLY_TIMEOUT` at most. Wait before you receive."""
        if self._path is not None:
            connected = socket.socket(socket.AF_UNIX)
            connected.settimeout(CONNECT_TIMEOUT)
            connected.connect(self._path)
        else:
            connected = socket.create_connection((self._host, self._port), CONNECT_TIMEOUT)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        # With a timeout of its own, the module `socket` asks the kernel before each send and receive.
        connected.settimeout(None)
        timeout = _TIMEOUT.pack(int(REPLY_TIMEOUT), int(REPLY_TIMEOUT % 1 * 1e6))
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)
        return connected

    def greeting(self) -> list[tuple[str | int, ...]]:
        commands: list[tuple[str | int, ...]] = []
        if self._password:
            commands.append(
                ("AUTH", self._user, self._password) if self._user else ("AUTH", self._password)
            )
        if self._db:
            commands.append(("SELECT", self._db))
        return commands


def hide_password(url: str) -> str:
    """Return the address with its password replaced."""
    url = re.sub(r"([?&]password=)[^&]*", r"\1***", url)
    scheme, separator, rest = url.partition("://") if "://" in url else ("", "", url)
    credentials, at, place = rest.rpartition("@")
    if not at:
        return url
    user = credentials.partition(":")[0]
    return f"{scheme}{separator}{user}:***@{place}"
