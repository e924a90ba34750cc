"""Fixtures for pytest: `pytest_plugins = ["blueque.testing.fixtures"]` in your conftest.py.

blueque_server: a Redis server for this run of pytest, on a free port.
blueque_client: a Client of that server, which is empty. Clients without an address use it, too.
blueque_fake: a Client of an empty Redis in memory, by fakeredis. Handlers enqueue there, too.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from blueque.client import Client
from blueque.system.embedded_redis import Server, running_server
from blueque.task_process import registered

NOWHERE = "unix:///dev/null/pass-the-fixture-as-the-client"


@pytest.fixture(scope="session")
def blueque_server() -> Iterator[Server]:
    """A Redis server; `blueque_server.url` is its address."""
    with running_server() as server:
        yield server


@pytest.fixture
def blueque_client(blueque_server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A client of the empty server. BLUEQUE_REDIS_URL has its address during the test."""
    blueque_server.clear()
    monkeypatch.setenv("BLUEQUE_REDIS_URL", blueque_server.url)
    client = Client(blueque_server.url)
    yield client
    client.close()


@pytest.fixture
def blueque_fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A client of an empty Redis in memory; requires `pip install fakeredis`.

    A `blueque.handler` enqueues there. Any other client without an address finds no Redis, so that
    no test writes to one that is in use.
    """
    import fakeredis  # here: the other fixtures need none

    client = Client(redis=fakeredis.FakeRedis(server=fakeredis.FakeServer()), patience=0)
    monkeypatch.setenv("BLUEQUE_REDIS_URL", NOWHERE)
    monkeypatch.setitem(registered.default_clients, NOWHERE, client)
    yield client
    client.close()
