"""Who may see the page, and who may act: tokens, cookies, and where a request comes from.

Each function gets the ASGI scope of a request, or its headers; nothing here talks to Redis.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import json
import time
from collections.abc import Callable, Iterable, Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Any, NamedTuple
from urllib.parse import urlsplit

COOKIE = "blueque"
LASTS = 12 * 3600.0  # seconds for which a login is valid
TRIES, WITHIN = 5, 60.0  # wrong tokens of an address in so many seconds
ROLES = ("viewer", "operator")
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})

Scope = Mapping[str, Any]


class Viewer(NamedTuple):
    """Who looks at the page. role: viewer, who reads, or operator, who may act, too."""

    name: str
    role: str = "viewer"

    @property
    def may_act(self) -> bool:
        return self.role == "operator"


class Tokens:
    """Logins by a token: each token has a role, and a cookie remembers the login.

    Another key makes all cookies invalid: it is derived from the tokens.
    """

    def __init__(
        self, tokens: Mapping[str, str], clock: Callable[[], float] = time.time, path: str = "/"
    ) -> None:
        self._tokens = dict(tokens)
        self._clock = clock
        self._key = hashlib.sha256("\0".join(sorted(tokens)).encode()).digest()
        self._wrong: dict[str, list[float]] = {}

    def viewer_of(self, token: str) -> Viewer | None:
        """Return who may enter with this token. It takes equally long for each wrong one."""
        found = None
        for known, role in self._tokens.items():
            if hmac.compare_digest(known.encode(), token.encode()):
                found = Viewer(role, role)
        return found

    def is_blocked(self, address: str) -> bool:
        """Tell whether an address has sent too many wrong tokens lately."""
        now = self._clock()
        recent = [at for at in self._wrong.get(address, ()) if now - at < WITHIN]
        if recent:
            self._wrong[address] = recent
        else:
            self._wrong.pop(address, None)
        return len(recent) >= TRIES

    def note_wrong(self, address: str) -> None:
        """Remember that an address has sent a wrong token."""
        self._wrong.setdefault(address, []).append(self._clock())

    def cookie(self, viewer: Viewer) -> str:
        """Return the value of a cookie for a viewer, signed, with its end."""
        content = json.dumps([viewer.name, viewer.role, int(self._clock() + LASTS)])
        text = base64.urlsafe_b64encode(content.encode()).decode()
        return f"{text}.{self._signature(text)}"

    def viewer_in(self, cookie: str) -> Viewer | None:
        """Return the viewer of a cookie; None: it is forged, or has ended."""
        text, _, signature = cookie.rpartition(".")
        if not hmac.compare_digest(self._signature(text).encode(), signature.encode()):
            return None
        name, role, end = json.loads(base64.urlsafe_b64decode(text))
        return Viewer(name, role) if end > self._clock() else None

    def _signature(self, text: str) -> str:
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()

    def __call__(self, scope: Scope) -> Viewer | None:
        """Return the viewer of a request: by a bearer token, or by the cookie."""
        token = bearer(scope)
        if token is not None:
            address = client_of(scope)
            if self.is_blocked(address):
                return None
            viewer = self.viewer_of(token)
            if viewer is None:
                self.note_wrong(address)
            return viewer
        kept = cookies_of(scope).get(COOKIE)
        return None if kept is None else self.viewer_in(kept)


def header(scope: Scope, name: str) -> str | None:
    """Return a header; None: it is not there, or more than once."""
    found = [value for key, value in scope["headers"] if key == name.encode()]
    return found[0].decode("latin-1") if len(found) == 1 else None


def path_of(scope: Scope) -> str:
    """Return the path of a request below the place where the application is."""
    path, root = scope["path"], scope.get("root_path", "").rstrip("/")
    return str(path.removeprefix(root) or "/") if root and path.startswith(root) else str(path)


def bearer(scope: Scope) -> str | None:
    """Return the bearer token of a request."""
    kind, _, token = (header(scope, "authorization") or "").partition(" ")
    return token.strip() if kind.lower() == "bearer" and token else None


def cookies_of(scope: Scope) -> dict[str, str]:
    """Return the cookies of a request; none if they are malformed."""
    try:
        jar = SimpleCookie(header(scope, "cookie") or "")
    except CookieError:
        return {}
    return {name: morsel.value for name, morsel in jar.items()}


def client_of(scope: Scope) -> str:
    """Return the address from which a request comes; a Unix socket has none."""
    client = scope.get("client")
    return client[0] if client else ""


def is_secure(scope: Scope) -> bool:
    return scope.get("scheme") in ("https", "wss")


def is_host_known(scope: Scope, names: Iterable[str]) -> bool:
    """Tell whether the request names a host of ours. It keeps foreign names from reaching us by DNS."""
    host = urlsplit(f"//{header(scope, 'host') or ''}").hostname
    return host is not None and (host in names or host in _LOOPBACK)


def is_own(scope: Scope) -> bool:
    """Tell whether a request that changes something comes from a page of ours, or from a program.

    Browsers say where a request comes from in Sec-Fetch-Site, or at least in Origin. A program has
    a bearer token, and no cookie that a browser would add by itself.
    """
    if bearer(scope) is not None:
        return COOKIE not in cookies_of(scope)
    site = header(scope, "sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin = header(scope, "origin")
    return origin is not None and urlsplit(origin).netloc == header(scope, "host")


def is_trusted(address: str, networks: Iterable[str]) -> bool:
    """Tell whether an address is in one of these networks."""
    try:
        there = ipaddress.ip_address(address)
        return any(there in ipaddress.ip_network(one) for one in networks)
    except ValueError:
        return False
