"""The login by a token: a form, and a cookie that remembers it."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from blueque.web import access
from blueque.web.access import COOKIE, LASTS, Tokens
from blueque.web.preferences import form_of, path_below, root_of, set_cookie
from blueque.web.shared import Shared
from blueque.web.visit import Page


class Login:
    """The page that asks for a token and remembers it."""

    def __init__(self, shared: Shared, tokens: Tokens) -> None:
        self._shared = shared
        self._tokens = tokens

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
        if self._tokens.is_blocked(address):
            return self._page(request, there, "Too many wrong tokens: wait a minute.", 429)
        viewer = self._tokens.viewer_of(form.get("token", ""))
        if viewer is None:
            self._tokens.note_wrong(address)
            return self._page(request, there, "This is not the token.", 403)
        answer = RedirectResponse(path_below(request, there), 303)
        set_cookie(answer, request, COOKIE, self._tokens.cookie(viewer), int(LASTS))
        return answer

    async def _forget(self, request: Request) -> Response:
        answer = RedirectResponse(path_below(request, "/login"), 303)
        answer.delete_cookie(COOKIE, path=root_of(request))
        return answer

    def _page(self, request: Request, there: str, error: str = "", status: int = 200) -> Response:
        context = {"next": there, "error": error, "is_live": False}
        page = Page("login.html", context, status)
        return HTMLResponse(self._shared.pages.page(page, self._shared.visit(request)), status)
