"""Serve the metrics over HTTP. The exporter keeps nothing, so any number of them may run."""

from __future__ import annotations

import ipaddress
import logging
import signal
import socket
import socketserver
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from blueque.errors import BluequeError, InvalidInput
from blueque.metrics import collect as metrics
from blueque.metrics.prometheus_text import CONTENT_TYPE, Family, registry, text
from blueque.system.outage import Outage
from blueque.system.signals import StopRequest, request_stop

log = logging.getLogger("blueque")

PATH = "/metrics"
REQUEST_TIMEOUT = 10.0  # seconds that a client may take to send its request


class Exporter:
    """Reads the metrics from Redis and returns them as text. Raises NotInstalled.

    collect: returns the families of metrics, and raises BluequeError when Redis does not answer.
    timeout: how many seconds Redis may take for an answer; Prometheus waits for 10.
    """

    def __init__(self, collect: Callable[[], list[Family]], timeout: float = 4.0) -> None:
        self._collect, self._timeout = collect, timeout
        self._registry = registry(self._families)
        self._outage = Outage("Redis answers again")
        self._lock = threading.Lock()
        self.is_up = True  # Redis answered the last request

    def scrape(self) -> str:
        """Return the whole text; if Redis does not answer, only the metrics of the scrape."""
        return text(self._registry)

    def _families(self) -> list[Family]:
        began = time.monotonic()
        # Scrapes at the same time wait for each other, but with a timeout: while Redis hangs, they
        # would pile up.
        if not self._lock.acquire(timeout=self._timeout):
            return metrics.about_scrape(time.monotonic() - began, False)
        try:
            found = self._ask()
        finally:
            self._lock.release()
        return [*found, *metrics.about_scrape(time.monotonic() - began, self.is_up)]

    def _ask(self) -> list[Family]:
        try:
            found = self._collect()
        except BluequeError as error:
            self.is_up = False
            self._outage.note(str(error), "reporting that it is down")
            return []
        self.is_up = True
        self._outage.note(None)
        return found


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of `127.0.0.1:9464`, `[::1]:9464` or `:9464`. Raises InvalidInput."""
    host, colon, port = text.rpartition(":")
    if (
        not colon
        or not port.isdecimal()
        or int(port) > 65535
        or (":" in host and not host.startswith("["))
    ):
        if colon and port.isdecimal() and int(port) > 65535:
            raise InvalidInput(f"{text!r}: the port is more than 65535")
        raise InvalidInput(
            f"{text!r} is not an address: write HOST:PORT, as 127.0.0.1:9464 or [::1]:9464"
        )
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """Tell whether only this machine reaches that host. Raises OSError if the name is unknown."""
    found = {
        address[4][0] for address in socket.getaddrinfo(host or None, 0, flags=socket.AI_PASSIVE)
    }
    return all(
        ipaddress.ip_address(str(address).partition("%")[0]).is_loopback for address in found
    )


def open_server(exporter: Exporter, host: str, port: int) -> ThreadingHTTPServer:
    """Return a server that listens already. port: 0 for any free one. Raises OSError."""

    class Handler(_Handler):
        scrape = staticmethod(exporter.scrape)

    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        daemon_threads = True
        server_bind = socketserver.TCPServer.server_bind  # HTTPServer's asks the name server

    return Server((host, port), Handler)


def serve(server: ThreadingHTTPServer) -> int:
    """Serve until SIGTERM or Ctrl-C; return the exit status."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, request_stop)
    try:
        server.serve_forever()
    except StopRequest:
        pass
    finally:
        server.server_close()
    return 0


class _Handler(BaseHTTPRequestHandler):
    server_version, sys_version = "blueque", ""
    timeout = REQUEST_TIMEOUT

    scrape: Callable[[], str]  # of the exporter, see open_server

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != PATH:
            self._answer(
                404, f"Not found; the metrics are at {PATH}.\n", "text/plain; charset=utf-8"
            )
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
        except OSError:  # the client has disconnected
            self.close_connection = True
