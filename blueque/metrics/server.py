"""Serve the metrics over HTTP. The exporter keeps nothing, so any number of them may run."""

from __future__ import annotations

import logging
import signal
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, generate_latest, make_wsgi_app
from prometheus_client.core import Metric

from blueque.errors import BluequeError
from blueque.metrics import collect as metrics
from blueque.system.outage import Outage
from blueque.system.signals import StopRequest, request_stop

log = logging.getLogger("blueque")

REQUEST_TIMEOUT = 10.0  # seconds that a client may take to send its request


class Exporter:
    """Reads the metrics from Redis at each scrape.

    collect: returns the families of metrics, and raises BluequeError when Redis does not answer.
    timeout: how many seconds Redis may take for an answer; Prometheus waits for 10.
    """

    def __init__(self, collect: Callable[[], list[Metric]], timeout: float = 4.0) -> None:
        self._collect, self._timeout = collect, timeout
        self.registry = CollectorRegistry()
        self.registry.register(self)
        self._outage = Outage("Redis answers again")
        self._lock = threading.Lock()
        self.is_up = True  # Redis answered the last request

    def scrape(self) -> str:
        """Return the whole text; if Redis does not answer, only the metrics of the scrape."""
        return generate_latest(self.registry).decode()

    def collect(self) -> Iterable[Metric]:
        """Return the families of metrics; if Redis does not answer, only those of the scrape."""
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

    def _ask(self) -> list[Metric]:
        try:
            found = self._collect()
        except BluequeError as error:
            self.is_up = False
            self._outage.note(str(error), "reporting that it is down")
            return []
        self.is_up = True
        self._outage.note(None)
        return found


def open_server(exporter: Exporter, host: str, port: int) -> WSGIServer:
    """Return a server that listens already. port: 0 for any free one. Raises OSError."""

    class Server(socketserver.ThreadingMixIn, WSGIServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        daemon_threads = True

        def server_bind(self) -> None:
            socketserver.TCPServer.server_bind(self)  # that of HTTPServer asks the name server
            self.server_name, self.server_port = host, self.server_address[1]
            self.setup_environ()

        def handle_error(self, request: Any, client_address: Any) -> None:
            error = sys.exception()
            if isinstance(error, OSError):
                log.debug("a client has left, or has sent nothing: %s", error)
            else:
                super().handle_error(request, client_address)

    return make_server(host, port, make_wsgi_app(exporter.registry), Server, _Handler)


def serve(server: WSGIServer) -> int:
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


class _Handler(WSGIRequestHandler):
    timeout = REQUEST_TIMEOUT

    def log_message(self, format: str, *args: object) -> None:
        log.debug(format, *args)
