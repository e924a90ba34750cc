"""The checks of each request: the host it names, its viewer and its origin; and the headers of each
answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from starlette.datastructures import MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from blueque.web import access
from blueque.web.site import Authorize, Site

SAFE = ("HEAD", "GET", "OPTIONS")
OPEN = ("/healthz", "/readyz", "/login")  # paths that need no login, beside those of files
STATIC = "/static/"
PROGRAMS = "/api/"  # paths whose answers are not for people
MOST_URL = 8192  # characters
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors ",
    )
)
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class Guard:
    """Middleware that lets a request pass if its host is known and its viewer is allowed.

    A request that changes something must come from a page of ours. The viewer is in
    `scope["viewer"]`.
    """

    def __init__(self, app: ASGIApp, site: Site, authorize: Authorize) -> None:
        self.app = app
        self.site = site
        self.authorize = authorize
        self._headers = {**HEADERS, **framing(site.frame_ancestors)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if self.site.prefix:
            scope = _below(scope, self.site.prefix)
        if self.site.proxies is not None:
            scope = self.site.proxies.believed(scope)
        path = access.path_of(scope)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
                is_file = path.startswith(STATIC) and message["status"] == 200
                kept = "public, max-age=31536000, immutable" if is_file else "no-store"
                headers.setdefault("Cache-Control", kept)
            await send(message)

        scope = {**scope, "viewer": self.authorize(scope)}
        refusal = self._refusal(scope, path)
        await (refusal or self.app)(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope, path: str) -> Response | None:
        if self.site.hosts and not access.is_host_known(scope, self.site.hosts):
            return PlainTextResponse(
                "This server does not allow the host name in the address: see --host-name.", 421
            )
        if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > MOST_URL:
            return PlainTextResponse("The address is too long.", 414)
        if scope["method"] not in SAFE and not access.is_own(scope, scope["viewer"]):
            sentence = "This request does not come from a page of this server."
            return PlainTextResponse(sentence, 403)
        if scope["viewer"] is not None or path in OPEN or path.startswith(STATIC):
            return None
        if (
            scope["method"] in SAFE
            and not path.startswith(PROGRAMS)
            and access.bearer(scope) is None
            and access.header(scope, access.PARTS) is None
        ):
            query = scope["query_string"].decode("latin-1")
            there = quote(f"{path}{f'?{query}' if query else ''}", safe="")
            return RedirectResponse(f"{scope.get('root_path', '')}/login?next={there}", 303)
        return PlainTextResponse("Log in first.", 401, {"WWW-Authenticate": "Bearer"})


def framing(origins: Sequence[str]) -> dict[str, str]:
    """Return the headers that say which sites may show this page in a frame."""
    if not origins:
        return {"Content-Security-Policy": f"{POLICY}'none'", "X-Frame-Options": "DENY"}
    return {"Content-Security-Policy": f"{POLICY}'self' {' '.join(origins)}"}


def _below(scope: Scope, prefix: str) -> dict[str, Any]:
    """Return the scope of an application below a prefix, whether a proxy has removed it or not."""
    path = scope["path"]
    is_whole = path == prefix or path.startswith(f"{prefix}/")
    return {**scope, "root_path": prefix, "path": path if is_whole else f"{prefix}{path}"}
