"""The login page: with a token, or with a name and a password."""

from __future__ import annotations

import json
import logging

import anyio
import anyio.to_thread
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from blueque.web import access
from blueque.web.access import COOKIE, LASTS, Viewer
from blueque.web.logins import Logins
from blueque.web.preferences import form_of, path_below, root_of, set_cookie
from blueque.web.shared import Shared
from blueque.web.visit import Page

log = logging.getLogger("blueque")

MOST_WAITING = 20  # logins; one is looked at after the other, for a password takes memory
TOO_MANY = "Too many wrong passwords: wait a minute."


class _TooMany(Exception):
    """This address has sent too many wrong passwords."""


class Login:
    """The login page, and the cookie that remembers the viewer."""

    def __init__(self, shared: Shared, logins: Logins) -> None:
        self._shared = shared
        self._logins = logins
        self._turn = anyio.CapacityLimiter(1)

    def routes(self) -> list[Route]:
        return [
            Route("/login", self._ask),
            Route("/login", self._check, methods=["POST"]),
            Route("/logout", self._forget, methods=["POST"]),
        ]

    async def _ask(self, request: Request) -> Response:
        return self._page(request, request.query_params.get("next", "/"))

    async def _check(self, request: Request) -> Response:
        form, address = await form_of(request), access.client_of(request.scope)
        there = form.get("next", "/")
        if "token" in form:  # too long to be guessed, and soon compared: it waits for nothing
            viewer = _logged(self._logins.viewer_of(form["token"]), address)
            return self._answer(request, there, viewer, "This token is wrong.")
        if self._logins.wrong.is_blocked(address, form.get("name", "")):
            return self._page(request, there, TOO_MANY, 429)
        if self._turn.statistics().tasks_waiting >= MOST_WAITING:
            return self._page(request, there, "Too many people are logging in: wait a minute.", 503)
        try:
            viewer = await anyio.to_thread.run_sync(
                self._entering, form, address, limiter=self._turn
            )
        except _TooMany:
            return self._page(request, there, TOO_MANY, 429)
        return self._answer(request, there, viewer, "Name or password is wrong.")

    def _answer(
        self, request: Request, there: str, viewer: Viewer | None, mistake: str
    ) -> Response:
        if viewer is None:
            return self._page(request, there, mistake, 403)
        answer = RedirectResponse(path_below(request, there), 303)
        set_cookie(answer, request, COOKIE, self._logins.cookie(viewer), int(LASTS))
        return answer

    def _entering(self, form: dict[str, str], address: str) -> Viewer | None:
        """Return who logs in with a password. Raises _TooMany."""
        wrong, name = self._logins.wrong, form.get("name", "")
        if wrong.is_blocked(address, name):  # by those that were before it in the queue
            raise _TooMany
        viewer = self._logins.person_of(name, form.get("password", ""))
        if viewer is None:
            wrong.note(address, name)
        return _logged(viewer, address)

    async def _forget(self, request: Request) -> Response:
        answer = RedirectResponse(path_below(request, "/login"), 303)
        answer.delete_cookie(COOKIE, path=root_of(request))
        return answer

    def _page(self, request: Request, there: str, error: str = "", status: int = 200) -> Response:
        context = {
            "next": there,
            "error": error,
            "has_passwords": self._logins.has_passwords,
            "has_tokens": self._logins.has_tokens,
            "is_live": False,
        }
        page = Page("login.html", context, status)
        return HTMLResponse(self._shared.pages.page(page, self._shared.visit(request)), status)


def _logged(viewer: Viewer | None, address: str) -> Viewer | None:
    """Log who has tried to log in, and return the viewer."""
    facts = {"address": address, "name": viewer.name if viewer else None}
    log.info("web login %s", json.dumps({"is_right": viewer is not None, **facts}))
    return viewer
