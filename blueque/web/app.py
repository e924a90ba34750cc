"""The ASGI application: the table of its routes."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from blueque.client import Client
from blueque.connection.address import hide_password
from blueque.version import __version__
from blueque.web import access
from blueque.web.api import Api
from blueque.web.controls import Controls
from blueque.web.guard import Guard
from blueque.web.login import Login
from blueque.web.logins import Logins
from blueque.web.new_task import NewTaskForm
from blueque.web.orders import Orders
from blueque.web.parts import Parts
from blueque.web.preferences import keep_preferences
from blueque.web.shared import GUEST, Shared
from blueque.web.site import Authorize, Site

# The second has what pages and reports share.
STATIC: list[str | tuple[str, str]] = [("blueque.web", "static"), ("blueque.report", "static")]


def create_app(
    client: Client, *, authorize: Authorize | None = None, site: Site | None = None
) -> Starlette:
    """Return the page as an ASGI application, which can be mounted in another one.

    authorize: takes the ASGI scope of a request and returns the `Viewer`, or None to refuse it.
        Default: every visitor may look, and none may act.
    site: how the page looks and what it serves.
    """
    site = site or Site(address=hide_password(client.url or "Redis"))
    shared = Shared(client, site)
    parts = Parts(shared)

    async def page(request: Request) -> Response:
        answer = parts.answer if access.PARTS in request.headers else shared.answer
        return await answer(request)

    logins = Login(shared, authorize) if isinstance(authorize, Logins) else None
    routes = [
        Mount(f"/static/{__version__}", StaticFiles(packages=STATIC)),
        Route("/healthz", _is_alive),
        Route("/readyz", shared.is_ready),
        Route("/api/v1/{kind}", Api(shared).answer),
        Route("/settings", keep_preferences, methods=["POST"]),
        *(logins.routes() if logins else []),
        *([] if site.is_read_only else _changes(shared)),
        Route("/{path:path}", page),
    ]
    guard = Middleware(Guard, site=site, authorize=authorize or (lambda scope: GUEST))
    smaller = Middleware(GZipMiddleware, minimum_size=1000, compresslevel=5)
    starlette = Starlette(routes=routes, middleware=[guard, smaller])
    starlette.state.shared = shared
    return starlette


def _changes(shared: Shared) -> list[Route]:
    """Return the routes that change something, and their questions. A read-only page has none of them."""
    return [
        Route("/acts/{verb}", Orders(shared).answer, methods=["POST", "GET"]),
        *Controls(shared).routes(),
        *NewTaskForm(shared).routes(),
    ]


async def _is_alive(request: Request) -> Response:
    return PlainTextResponse("ok")
