"""The facts about a request: its viewer, its address, and whether one of our pages has sent it.

Each function takes the ASGI scope of a request; nothing here talks to Redis.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Any, NamedTuple
from urllib.parse import urlsplit

COOKIE = "blueque"
PARTS = "blueque-parts"  # the header with which an open page asks for its parts
LASTS = 12 * 3600.0  # seconds for which a login is valid
ROLES = ("viewer", "operator")
MOST_NAME = 100  # characters
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})

Scope = Mapping[str, Any]


class Viewer(NamedTuple):
    """A viewer of the page. role: viewer, who only reads, or operator, who may also act.

    is_program: the request has a secret that no browser sends by itself, such as a bearer token.
    """

    name: str
    role: str = "viewer"
    is_program: bool = False

    @property
    def may_act(self) -> bool:
        return self.role == "operator"


def header(scope: Scope, name: str) -> str | None:
    """Return a header; None: it is missing, or repeated."""
    found = [value for key, value in scope["headers"] if key == name.encode()]
    return found[0].decode("latin-1") if len(found) == 1 else None


def path_of(scope: Scope) -> str:
    """Return the path of a request below the root of the application."""
    path, root = str(scope["path"]), scope.get("root_path", "").rstrip("/")
    is_below = root and (path == root or path.startswith(f"{root}/"))
    return path.removeprefix(root) or "/" if is_below else path


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
    """Return the address from which a request comes; empty for a Unix socket."""
    client = scope.get("client")
    return client[0] if client else ""


def is_secure(scope: Scope) -> bool:
    return scope.get("scheme") in ("https", "wss")


def is_host_known(scope: Scope, names: Collection[str]) -> bool:
    """Return whether the request names a host of ours, or an address. This stops DNS rebinding."""
    host = _host_in(f"//{header(scope, 'host') or ''}")
    return host is not None and (host in names or host in _LOOPBACK or _is_address(host))


def is_own(scope: Scope, viewer: Viewer | None) -> bool:
    """Return whether a request that changes something comes from a page of ours, or from a program.

    Browsers name the origin of a request in Sec-Fetch-Site, or at least in Origin.
    """
    if viewer is not None and viewer.is_program:
        return True
    site = header(scope, "sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    scheme, _, place = (header(scope, "origin") or "").partition("://")
    is_as_safe = scheme == "https" or (scheme == "http" and not is_secure(scope))
    return is_as_safe and place == header(scope, "host")


def is_name(text: str) -> bool:
    """Return whether a text can be the name of a viewer."""
    return 0 < len(text) <= MOST_NAME and text.isprintable() and text == text.strip()


def _host_in(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
