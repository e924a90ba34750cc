"""The address of Redis: parse a URL, and show it without its password."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from typing import NamedTuple, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from blueque.connection.waits import BLOCKING, SEND_TIMEOUT, Waits
from blueque.errors import InvalidInput

CONNECT_TIMEOUT = 5.0
REPLY_TIMEOUT = SEND_TIMEOUT
SILENCE = 1.0  # seconds without an answer after which Sentinel is asked whether there will be one
_VERSIONS = ("TLSv1.2", "TLSv1.3")
_YES_OR_NO = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
# For a client, Python takes "optional" as "required".
_REQUIREMENTS = {"required": True, "optional": True, "none": False}
_T = TypeVar("_T")
_IN_PASSWORD = "; in a password, write / # ? @ % as %2F %23 %3F %40 %25"


class TlsOptions(NamedTuple):
    """The options of a `rediss://` address: those of redis-py without `ssl_`.

    ca_certs: the file of the authorities; None: those of the system. certfile, keyfile, password:
        our own certificate. cert_reqs: whether the certificate of the server must be valid.
    """

    ca_certs: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    password: str | None = None
    check_hostname: bool = True
    cert_reqs: bool = True
    min_version: str = _VERSIONS[0]

    @classmethod
    def read(cls, given: Mapping[str, str]) -> TlsOptions:
        """Return the options. Raises ValueError for an invalid value."""
        if "ssl_keyfile" in given and "ssl_certfile" not in given:
            raise ValueError("ssl_keyfile needs ssl_certfile")
        return cls(
            given.get("ssl_ca_certs"),
            given.get("ssl_certfile"),
            given.get("ssl_keyfile"),
            given.get("ssl_password"),
            _one_of(_YES_OR_NO, given, "ssl_check_hostname", "true"),
            _one_of(_REQUIREMENTS, given, "ssl_cert_reqs", "required"),
            _one_of({name: name for name in _VERSIONS}, given, "ssl_min_version", _VERSIONS[0]),
        )


def _one_of(known: Mapping[str, _T], given: Mapping[str, str], name: str, default: str) -> _T:
    found = {key.lower(): value for key, value in known.items()}.get(
        given.get(name, default).lower()
    )
    if found is None:
        raise ValueError(f"{name} is one of {', '.join(known)}")
    return found


class Address:
    """The address of Redis: `redis://[user[:password]@]host[:port][/db]`, `rediss://` for TLS, or
    `unix://[user[:password]@]/path[?db=n]`.

    tls: the options of `rediss://`; None: no TLS. unknown: options that may be those of redis-py;
        is_plain: whether there are none.
    connect_timeout: in seconds.
    """

    def __init__(self, url: str, connect_timeout: float = CONNECT_TIMEOUT) -> None:
        self.connect_timeout, self.waits = connect_timeout, BLOCKING
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
        of_tls = TlsOptions._fields if parts.scheme == "rediss" else ()
        known = {"db", *(f"ssl_{name}" for name in of_tls)}
        self.unknown = set(options) - known
        self.is_plain = not self.unknown
        if parts.scheme not in ("redis", "rediss", "unix"):
            raise InvalidInput(
                f"{hide_password(url)!r} is not a Redis address: redis://host:port/db, rediss://, unix:// or redis+sentinel://host,host/service"
            )
        self.shown = hide_password(url)
        self._path = unquote(parts.path) if parts.scheme == "unix" else None
        try:
            self.host, self._port = parts.hostname or "localhost", 6379 if port is None else port
            db = options.get("db") or (parts.path.strip("/") if self._path is None else "")
            self._db = int(db or 0)
        except ValueError:
            raise InvalidInput(
                f"{self.shown!r} is not a Redis address: the database must be a number"
            ) from None
        self.tls = None
        if parts.scheme == "rediss" and self.is_plain:
            try:
                self.tls = TlsOptions.read(options)
            except ValueError as error:
                raise InvalidInput(f"{self.shown!r} is not a Redis address: {error}") from None
        self._user = unquote(parts.username or "")
        self._password = unquote(parts.password or "")

    @property
    def place(self) -> str:
        """Host and port."""
        return f"[{self.host}]:{self._port}" if ":" in self.host else f"{self.host}:{self._port}"

    def wait_by(self, waits: Waits) -> None:
        """Replace blocking waits of the connections to this address by others."""
        self.waits = waits

    def connect(self) -> socket.socket:
        """Return a connected socket. Wait before you receive. Raises OSError."""
        if self._path is not None:
            return self.waits.connect(self._path, self.connect_timeout)
        connected = self.waits.connect((self.host, self._port), self.connect_timeout)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
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
    url = re.sub(r"([?&][^=&]*pas[^=&]*=)[^&]*", r"\1***", url)  # also where it is misspelled
    scheme, separator, rest = url.partition("://") if "://" in url else ("", "", url)
    credentials, at, place = rest.rpartition("@")
    if not at:
        return url
    user = credentials.partition(":")[0]
    return f"{scheme}{separator}{user}:***@{place}"
