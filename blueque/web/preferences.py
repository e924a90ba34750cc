"""Forms, and the preferences of a viewer: the time zone and the colours, stored in cookies."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qs

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from blueque.web import access
from blueque.web.visit import is_zone

MOST_BYTES = 65536  # of a form
MOST_REASON = 200  # characters, as the forms have it
YEAR = 365 * 86400
ZONE, THEME = "blueque-zone", "blueque-theme"  # cookies
THEMES = ("light", "dark", "")  # the last one is that of the browser


async def keep_preferences(request: Request) -> Response:
    """Store what a viewer has chosen."""
    form = await form_of(request)
    answer = RedirectResponse(path_below(request, form.get("next", "/")), 303)
    if is_zone(form.get("zone", "")):
        set_cookie(answer, request, ZONE, form["zone"], YEAR)
    if form.get("theme") in THEMES:
        set_cookie(answer, request, THEME, form["theme"], YEAR)
    return answer


def chosen(cookies: Mapping[str, str]) -> tuple[str, str]:
    """Return the time zone and the theme of a viewer."""
    zone, theme = cookies.get(ZONE, "UTC"), cookies.get(THEME, "")
    return zone if is_zone(zone) else "UTC", theme if theme in THEMES else ""


async def form_of(request: Request) -> dict[str, str]:
    """Return the fields of a form. Raises HTTPException if it is too large."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BYTES:
            raise HTTPException(413, "The form is too large.")
    fields = parse_qs(body.decode(errors="replace"), keep_blank_values=True)
    return {name: values[-1] for name, values in fields.items()}


def reason_of(form: Mapping[str, str]) -> str | None:
    """Return why an order is given. Raises HTTPException if it is too long."""
    reason = form.get("reason", "").strip()
    if len(reason) > MOST_REASON:
        raise HTTPException(400, f"A reason has at most {MOST_REASON} characters.")
    return reason or None


def root_of(request: Request) -> str:
    """Return the path of the application."""
    root: str = request.scope.get("root_path", "")
    return root.rstrip("/") or "/"


def path_below(request: Request, path: str) -> str:
    """Return a path of this server; another address becomes the first page."""
    return f"{root_of(request).rstrip('/')}{path if is_path(path) else '/'}"


def is_path(text: str) -> bool:
    """Return whether a text is a path of this server, and no address of another one."""
    return text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable()


def set_cookie(answer: Response, request: Request, name: str, value: str, seconds: int) -> None:
    answer.set_cookie(
        name,
        value,
        max_age=seconds,
        path=root_of(request),
        secure=access.is_secure(request.scope),
        httponly=True,
        samesite="lax",
    )
