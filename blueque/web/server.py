"""Run the page as a program: the address, the tokens, and an end without delay."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Mapping
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple

import uvicorn

from blueque.errors import InvalidInput
from blueque.system.listen_address import is_loopback, parse_address

if TYPE_CHECKING:
    from starlette.applications import Starlette

PORT, NEXT = 8264, 10  # the first port that is tried, and how many
UNIX = "unix:"
MOST_CONNECTIONS = 500
SHORTEST = 16  # characters of a token


class Address(NamedTuple):
    """Where the page listens: a host and a port, or the path of a Unix socket."""

    host: str = "127.0.0.1"
    port: int | None = None  # None: the first free one from PORT on
    path: str = ""

    @property
    def is_private(self) -> bool:
        """Whether only this machine, or the user of the socket, can reach it."""
        return bool(self.path) or is_loopback(self.host)


def address_of(text: str) -> Address:
    """Return the address in HOST:PORT or unix:PATH. Raises InvalidInput."""
    if text.startswith(UNIX):
        path = text.removeprefix(UNIX)
        if not path:
            raise InvalidInput("unix: needs the path of a socket")
        return Address(path=path)
    host, port = parse_address(text)
    return Address(host, port)


def bind(address: Address) -> socket.socket:
    """Return a socket that listens there. Raises OSError."""
    if address.path:
        return _bind_path(address.path)
    if address.port is not None:
        return _bind(address.host, address.port)
    for port in range(PORT, PORT + NEXT):
        with contextlib.suppress(OSError):
            return _bind(address.host, port)
    return _bind(address.host, 0)


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
        made.listen(128)
    except OSError:
        made.close()
        raise
    return made


def _bind_path(path: str) -> socket.socket:
    """Bind a socket that only this user may open; replace one that nobody serves any more."""
    made = socket.socket(socket.AF_UNIX)
    mask = os.umask(0o177)
    try:
        with contextlib.suppress(FileNotFoundError):
            _remove_unserved(path)
        made.bind(path)
        made.listen(128)
    except OSError:
        made.close()
        raise
    finally:
        os.umask(mask)
    return made


def _remove_unserved(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as asking:
        try:
            asking.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)


class _Server(uvicorn.Server):
    """A server that returns when it is told to stop; with uvicorn the signal would end the process."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.force_exit = self.should_exit
        self.should_exit = True


def serve(app: Starlette, listening: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=True,
        limit_concurrency=MOST_CONNECTIONS,
        lifespan="off",
        proxy_headers=False,  # the guard knows whom to believe
        timeout_graceful_shutdown=1,  # what a thread has begun goes on to its end
    )
    server = _Server(config)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(server.serve(sockets=[listening]))


def tokens_of(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the tokens that are set, with their roles.

    They are BLUEQUE_WEB_TOKEN, or the content of the file BLUEQUE_WEB_TOKEN_FILE, and
    BLUEQUE_WEB_VIEWER_TOKEN.
    Raises InvalidInput.
    """
    token = environ.get("BLUEQUE_WEB_TOKEN", "")
    file = environ.get("BLUEQUE_WEB_TOKEN_FILE", "")
    if file:
        try:
            with open(file, encoding="utf-8") as opened:
                token = opened.read().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(f"BLUEQUE_WEB_TOKEN_FILE: cannot read {file}: {error}") from error
        if not token:
            raise InvalidInput(f"BLUEQUE_WEB_TOKEN_FILE: {file} is empty")
    viewer = environ.get("BLUEQUE_WEB_VIEWER_TOKEN", "")
    if token and token == viewer:
        raise InvalidInput("BLUEQUE_WEB_VIEWER_TOKEN is the token of operators: choose another")
    found = {token: "operator", viewer: "viewer"}
    if any(0 < len(one) < SHORTEST for one in found):
        raise InvalidInput(f"a token of the page needs at least {SHORTEST} characters")
    return {one: role for one, role in found.items() if one}
