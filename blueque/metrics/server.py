"""Exporter: a small web server that tells Prometheus what Redis knows. It keeps nothing, so any
number may run.
"""

from __future__ import annotations

import ipaddress
import logging
import signal
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from blueque.errors import BluequeError, InvalidInput
from blueque.metrics import collect as metrics
from blueque.metrics.prometheus_text import CONTENT_TYPE, Family, text
from blueque.system.outage import Trouble

log = logging.getLogger("blueque")

PATH = "/metrics"
SLOWEST = 10.0  # seconds that somebody may take to ask


class Exporter:
    """Asks Redis, and makes the text of the answer.

    collect: returns the families of metrics, and raises BluequeError when Redis does not answer.
    longest: how many seconds Redis may take for an answer; Prometheus waits for 10.
    """

    def __init__(self, collect: Callable[[], list[Family]], longest: float = 4.0) -> None:
        self._collect, self._longest = collect, longest
        self._trouble = Trouble("Redis answers again")
        self._turn = threading.Lock()
        self.is_up = True  # Redis answered when it was asked last

    def scrape(self) -> str:
        """Return the whole text; when Redis does not answer, it says so, and the rest is missing."""
        began = time.monotonic()
        # Whoever asks at the same time waits for its turn, but not for ever: a Redis that hangs
        # would gather them.
        if not self._turn.acquire(timeout=self._longest):
            return text(metrics.about_scrape(time.monotonic() - began, False))
        try:
            found = self._ask()
        finally:
            self._turn.release()
        return text([*found, *metrics.about_scrape(time.monotonic() - began, self.is_up)])

    def _ask(self) -> list[Family]:
        try:
            found = self._collect()
        except BluequeError as error:
            self.is_up = False
            self._trouble.tell(str(error), "telling that it is down")
            return []
        self.is_up = True
        self._trouble.tell(None)
        return found


def parse_address(said: str) -> tuple[str, int]:
    """Return host and port of `127.0.0.1:9464`, `[::1]:9464` or `:9464`. Raises InvalidInput."""
    host, colon, port = said.rpartition(":")
    if (
        not colon
        or not port.isdecimal()
        or int(port) > 65535
        or (":" in host and not host.startswith("["))
    ):
        raise InvalidInput(
            f"{said!r} is no address: write HOST:PORT, as 127.0.0.1:9464 or [::1]:9464"
        )
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """Tell whether only this machine reaches that host. Raises OSError when nobody knows the name."""
    found = {
        address[4][0] for address in socket.getaddrinfo(host or None, 0, flags=socket.AI_PASSIVE)
    }
    return all(
        ipaddress.ip_address(str(address).partition("%")[0]).is_loopback for address in found
    )


def open_server(exporter: Exporter, host: str, port: int) -> ThreadingHTTPServer:
    """Return a server that listens already. port: 0 for any that is free. Raises OSError."""

    class Handler(_Handler):
        scrape = staticmethod(exporter.scrape)

    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        daemon_threads = True

    return Server((host, port), Handler)


def serve(server: ThreadingHTTPServer) -> int:
    """Serve until SIGTERM or Ctrl-C; return the exit status."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    try:
        server.serve_forever()
    except _Stop:
        pass
    finally:
        server.server_close()
    return 0


class _Handler(BaseHTTPRequestHandler):
    server_version, sys_version = "blueque", ""
    timeout = SLOWEST

    scrape: Callable[[], str]  # of the exporter, see open_server

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != PATH:
            self._answer(404, f"There is only {PATH}.\n", "text/plain; charset=utf-8")
        else:
            self._answer(200, self.scrape(), CONTENT_TYPE)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        log.debug(format, *args)

    def _answer(self, status: int, body: str, kind: str) -> None:
        content = body.encode()
        try:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)
        except OSError:  # who asked has gone
            self.close_connection = True


class _Stop(BaseException):
    """Somebody wants us to leave."""


def _stop(number: int, frame: object) -> None:
    for other in (signal.SIGTERM, signal.SIGINT):  # a second one shall not disturb our leaving
        signal.signal(other, signal.SIG_IGN)
    raise _Stop
