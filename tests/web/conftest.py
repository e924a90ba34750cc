"""The page without a server: requests go straight to the application."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from asking import NODE, ask_app
from starlette.applications import Starlette
from transactions import protocol

from blueque import Client
from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.producer.queue import Queue
from blueque.protocol.ends import End
from blueque.protocol.membership import Heartbeat
from blueque.web import create_app
from blueque.web.access import Viewer
from blueque.web.site import Site

OPERATOR = Viewer("ada", "operator")
Ask = Callable[..., httpx.Response]


@pytest.fixture
def app(client: Client) -> Starlette:
    site = Site(address="redis://localhost", hosts=frozenset({"localhost"}))
    return create_app(client, authorize=lambda scope: OPERATOR, site=site)


@pytest.fixture
def ask(app: Starlette) -> Ask:
    return lambda path, method="GET", **options: ask_app(app, path, method, **options)


@pytest.fixture
def everything(everything: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    """All of Redis but the gates of workflows whose tasks are all there, which expire by themselves."""
    gate = keys.group("gate ")
    return lambda: {key: its for key, its in everything().items() if not key.startswith(gate)}


@pytest.fixture
def start(client: Client, queue: Queue) -> Callable[..., str]:
    """Have a listener start a new task of the queue, and return its id."""

    def start(parameters: object = None, **options: object) -> str:
        redis, now = client.connections, time.time()
        task_id = str(queue.enqueue(parameters or {"scene": 17}, **options))
        protocol.register(redis, queue.name, NODE, "i1", {"beat_every": 10}, now)
        protocol.beat(redis, [Heartbeat(queue.name, NODE, "i1", 10)], now)
        protocol.pop(redis, queue.name, NODE, "i1")
        attempt = AttemptRef(queue.name, task_id, "token", NODE)
        protocol.reserve(redis, attempt, "i1", now)
        protocol.start(redis, attempt, 77, now)
        return task_id

    return start


@pytest.fixture
def end(client: Client, queue: Queue) -> Callable[..., None]:
    """Have the listener report the end of a started task."""

    def end(task_id: str, error: str | None = None) -> None:
        attempt = AttemptRef(queue.name, task_id, "token", NODE)
        if error is None:
            protocol.end(client.connections, attempt, End.complete("out"), time.time())
        else:
            protocol.end(client.connections, attempt, End.fail(error), time.time())

    return end
