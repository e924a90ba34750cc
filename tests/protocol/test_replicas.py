"""Changes that replicas have to confirm; on a real primary with real replicas.

What that costs an `enqueue`, with N = 0 and 1:

    PYTHONPATH=tests:tests/machinery python -m timeit -n 500 -s 'from sentinels import replicated
    from blueque import Client
    servers = replicated(1); url = servers.__enter__()[0].url
    queue = Client(url, replicas=N, patience=60).get_queue("a"); queue.enqueue(1)' 'queue.enqueue(1)'
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis as redis_py
from faults import FaultProxy
from running import until
from sentinels import replicated
from test_document import Monitor

from blueque import BatchFailed, Client, Config, InvalidInput, NotReplicated, RedisRefused
from blueque.connection.redis import Look
from blueque.model import keys
from blueque.protocol.permissions import require_rights
from blueque.protocol.transaction import Change, transact
from blueque.system.embedded_redis import Server

QUICK = Config(redis={"replicas_timeout": 0.05})


@pytest.fixture(scope="module")
def servers() -> Iterator[list[Server]]:
    with replicated(1) as servers:
        yield servers


@pytest.fixture
def primary(servers: list[Server]) -> Server:
    primary, replica = servers
    os.kill(replica.pid, signal.SIGCONT)
    with admin(primary) as here:
        here.flushall()
        here.config_resetstat()
        until(lambda: here.wait(1, 1000) == 1, what="the replica")
    return primary


@pytest.fixture
def replica(primary: Server, servers: list[Server]) -> Server:
    return servers[1]


@pytest.fixture
def stopped(replica: Server) -> Iterator[Server]:
    """The replica, which stands still."""
    os.kill(replica.pid, signal.SIGSTOP)
    yield replica
    os.kill(replica.pid, signal.SIGCONT)


@pytest.fixture(params=["plain", "redis_py"])
def open_client(primary: Server, request: pytest.FixtureRequest) -> Iterator[Callable[..., Client]]:
    """Return a client whose changes one replica has to confirm, over either kind of connection."""
    with contextlib.ExitStack() as stack:

        def open_client(patience: float = 0.0, replicas: int = 1) -> Client:
            way: dict[str, Any] = {"url": primary.url}
            if request.param == "redis_py":
                way = {"redis": stack.enter_context(admin(primary))}
            client = Client(**way, patience=patience, replicas=replicas, config=QUICK)
            return stack.enter_context(client)

        yield open_client


def admin(server: Server) -> redis_py.Redis:
    return redis_py.Redis(port=server.port, decode_responses=True)


def cut_off(server: Server) -> None:
    """Have a replica get nothing more of its primary."""
    with admin(server) as there:
        there.replicaof("127.0.0.1", 1)


def promote(server: Server) -> None:
    with admin(server) as there:
        there.replicaof("NO", "ONE")


def in_line(server: Server) -> list[str]:
    with admin(server) as there:
        return there.lrange(keys.pending("video"), 0, -1)


def in_thread(action: Callable[[], object]) -> tuple[threading.Thread, list[Any]]:
    returned: list[Any] = []
    thread = threading.Thread(target=lambda: returned.append(action()))
    thread.start()
    return thread, returned


def test_what_was_acknowledged_survives_the_primary_only_if_a_replica_has_confirmed_it():
    with replicated(1) as (primary, replica):
        with (
            Client(primary.url, replicas=1, patience=60) as cautious,
            Client(primary.url, replicas=1, patience=0) as impatient,
            Client(primary.url) as client,
        ):
            queues = [each.get_queue("video") for each in (cautious, impatient, client)]
            queues[0].enqueue("before")  # once the replica has connected
            kept = queues[0].enqueue("in")
            cut_off(replica)
            with pytest.raises(NotReplicated):
                queues[1].enqueue("in")
            lost = queues[2].enqueue("in")
            primary.kill()
        promote(replica)

        with Client(replica.url) as there:
            assert [there.get_task(task).status for task in (kept, lost)] == ["pending", None]
        assert len(in_line(replica)) == 2


@pytest.mark.parametrize("patience", [0, 0.3])
def test_a_change_that_no_replica_confirms_is_in_redis_and_not_acknowledged(
    open_client, primary, stopped, patience
):
    client = open_client(patience)
    within = max(patience, 0.05)
    words = rf"^create: the change is in Redis, but no replica has confirmed it within {within} s \(replicas = 1\)$"

    with pytest.raises(NotReplicated, match=words) as error:
        client.get_queue("video").enqueue("in")

    assert in_line(primary) == [error.value.task_id]
    assert (error.value.confirmed, error.value.replicas) == (0, 1)


def test_more_replicas_than_there_are_confirm_nothing(open_client, primary):
    client = open_client(replicas=2)

    with pytest.raises(NotReplicated, match="only 1 of 2 replicas have confirmed it within"):
        client.get_queue("video").enqueue("in")

    assert len(in_line(primary)) == 1


def test_a_batch_says_that_it_may_be_there_and_waits_once(open_client, primary, stopped):
    client = open_client()
    with admin(primary) as here:
        with pytest.raises(BatchFailed, match="no replica has confirmed it") as error:
            client.get_queue("video").enqueue_many(["a", "b", "c"])

        assert error.value.is_unknown
        assert here.info("commandstats")["cmdstat_wait"]["calls"] == 2  # the fixture, and the batch
    assert len(in_line(primary)) == 3


def test_a_call_waits_for_a_replica_that_comes_back_and_changes_nothing_twice(
    open_client, primary, stopped, caplog
):
    queue = open_client(patience=60).get_queue("video")

    thread, returned = in_thread(lambda: queue.enqueue("in"))
    until(lambda: "trying again" in caplog.text, what="a second try")
    assert not returned
    os.kill(stopped.pid, signal.SIGCONT)
    thread.join()

    assert in_line(primary) == returned


def test_a_call_makes_its_change_on_the_server_that_has_become_the_primary(caplog):
    with replicated(2) as (old, new, other), contextlib.closing(FaultProxy(old.url)) as proxy:
        queue = Client(proxy.url, patience=60, replicas=1, config=QUICK).get_queue("video")
        kept = queue.enqueue("before")
        with admin(old) as here:
            until(lambda: here.wait(2, 1000) == 2, what="both replicas")
        cut_off(new)
        cut_off(other)

        thread, returned = in_thread(lambda: queue.enqueue("in"))
        until(lambda: "trying again" in caplog.text, what="a second try")
        promote(new)
        with admin(other) as there:
            there.replicaof("127.0.0.1", new.port)
        proxy.lead_to(new.url)
        thread.join()
        old.kill()

        assert in_line(new) == in_line(other) == [*returned, kept]


def test_a_task_that_is_there_already_waits_for_replicas_too(open_client, primary, replica):
    open_client().get_queue("video").enqueue("in", key="a")
    queue = open_client().get_queue("video")
    with admin(replica) as there, there.pubsub() as received:
        received.subscribe("blueque")
        assert received.get_message(timeout=10)["type"] == "subscribe"

        queue.enqueue("in", key="a")  # changes nothing

        assert received.get_message(timeout=10)["data"] == "", "a replica was sent nothing"
    os.kill(replica.pid, signal.SIGSTOP)
    with pytest.raises(NotReplicated, match="create: the change is in Redis, but no replica"):
        queue.enqueue("in", key="a")


def test_what_a_listener_says_of_itself_waits_for_no_replica(primary, stopped):
    with Client(primary.url, replicas=1, patience=0, config=QUICK) as client:
        with contextlib.suppress(NotReplicated):
            client.get_queue("video").enqueue("in")
        listener = client.get_listener("video")
        task = listener.listen()
        listener.beat()
        with pytest.raises(NotReplicated, match="start: the change is in Redis"):
            client.get_processor(task).start(os.getpid())

        assert client.get_task(task.id).status == "started"
        client.get_processor(task).progress("half")
        with pytest.raises(NotReplicated, match="end: the change is in Redis"):
            client.get_processor(task).complete("out")
        assert client.get_task(task.id).status == "complete"


def test_the_wait_stands_between_a_change_and_the_look_at_the_next_one(primary):
    ahead = Look(["a"], [("GET", "a")])
    with Client(primary.url, replicas=1) as client, contextlib.closing(Monitor(primary)) as monitor:
        redis = client.connections

        def change() -> None:
            look = Look(["b"], [("GET", "b")])
            transact(redis, "first", look, lambda b: Change([("SET", "a", 1)], b), next_look=ahead)
            found = transact(redis, "second", ahead, lambda a: Change([("SET", "b", 2)], a))
            assert found == "1"

        seen = monitor.commands_of(redis, change)

    names = [command[0] for command in seen]
    look, first, second = ["WATCH", "GET"], ["MULTI", "SET", "EXEC", "WAIT"], ["MULTI", "SET"]
    assert names == [*look, *first, *look, *second, "EXEC", "WAIT"]


@pytest.mark.parametrize("forbidden", ["wait", "publish"])
def test_a_user_who_may_not_wait_is_told_at_once(primary, forbidden, caplog):
    user = ["ACL", "SETUSER", "maker", "on", ">word", "~*", "&*", "+@all", f"-{forbidden}"]
    with admin(primary) as here:
        here.execute_command(*user)
    url = primary.url.replace("//", "//maker:word@")
    with Client(url, replicas=1, patience=60) as client:
        queue = client.get_queue("video")
        if forbidden == "publish":  # only needed where there is nothing to change
            queue.enqueue("in", key="a")
        with pytest.raises((NotReplicated, RedisRefused), match=f"NOPERM.*'{forbidden}'"):
            queue.enqueue("in", key="a")
        assert "trying again" not in caplog.text

        with pytest.raises(RedisRefused, match=rf"this user lacks, as listener: \+{forbidden}$"):
            require_rights(client.connections, "listener", ["video"])


def test_the_file_the_environment_and_the_client_say_how_many(monkeypatch, tmp_path):
    file = tmp_path / "a.toml"
    file.write_text('[redis]\nreplicas = 2\nreplicas_timeout = "500ms"\n')

    def asked(*environment: str, **given: Any) -> tuple[int, float]:
        for name, value in zip(("", "_TIMEOUT"), environment, strict=False):
            monkeypatch.setenv(f"BLUEQUE_REPLICAS{name}", value)
        settings = Client("redis://nowhere", **given).connections.settings
        return settings.replicas, settings.replicas_timeout

    assert asked() == (0, 1.0)
    assert asked(config=file) == (2, 0.5)
    assert asked("3", "2s", config=file) == (3, 2.0)
    assert asked("3", "2s", config=file, replicas=0) == (0, 2.0)
    with pytest.raises(InvalidInput, match=r"^BLUEQUE_REPLICAS: '-1' is not a number of replicas"):
        asked("-1")
    with pytest.raises(
        InvalidInput, match=r"^BLUEQUE_REPLICAS_TIMEOUT: it is 6 s; it must be from"
    ):
        asked("1", "6s")
