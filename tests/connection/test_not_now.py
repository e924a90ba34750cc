"""What a real Redis refuses for a while: NOREPLICAS, MISCONF, BUSY, READONLY."""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Iterator

import pytest
import redis as redis_py
from running import until

from blueque import Client, OutcomeUnknown, RedisAway, RedisRefused
from blueque.system.embedded_redis import Server, running_server

LOOP = "while true do end"


@pytest.fixture
def own_server() -> Iterator[Server]:
    with running_server("--lua-time-limit", "1") as server:
        yield server


@pytest.fixture
def admin(own_server: Server) -> Iterator[redis_py.Redis]:
    with redis_py.Redis(port=own_server.port) as admin:
        yield admin


def lack_replicas(server, admin):
    admin.config_set("min-replicas-to-write", 1)
    return lambda: admin.config_set("min-replicas-to-write", 0)


def be_a_replica(server, admin):
    admin.replicaof("127.0.0.1", 1)
    return lambda: admin.replicaof("NO", "ONE")


def be_busy(server, admin):
    def run():
        with redis_py.Redis(port=server.port) as client, contextlib.suppress(redis_py.RedisError):
            client.eval(LOOP, 0)

    threading.Thread(target=run, daemon=True).start()
    until(lambda: refuses(admin, "GET", "a"), what="a busy server")

    def relent():
        admin.script_kill()
        until(lambda: not refuses(admin, "GET", "a"), what="the end of the script")

    return relent


def be_unable_to_save(server, admin):
    admin.config_set("save", "3600 1")
    shutil.rmtree(server.directory)
    admin.bgsave()
    until(lambda: refuses(admin, "SET", "a", 1), what="a snapshot that fails")
    return lambda: admin.config_set("stop-writes-on-bgsave-error", "no")


def refuses(admin, *command):
    try:
        admin.execute_command(*command)
    except redis_py.RedisError:
        return True
    return False


REFUSALS = {
    "NOREPLICAS": lack_replicas,
    "READONLY": be_a_replica,
    "BUSY": be_busy,
    "MISCONF": be_unable_to_save,
}


@pytest.mark.parametrize("code", REFUSALS)
@pytest.mark.parametrize("patience", [0, 0.3])
def test_a_call_without_patience_left_keeps_the_word_of_redis(own_server, admin, code, patience):
    client = Client(own_server.url, patience=patience)
    queue = client.get_queue("video")
    queue.enqueue("before")
    relent = REFUSALS[code](own_server, admin)

    with pytest.raises(RedisAway, match=rf"Redis is not ready: .*{code}") as error:
        queue.enqueue("after")

    relent()
    assert not isinstance(error.value, OutcomeUnknown) and isinstance(
        error.value.__cause__, RedisRefused
    )
    assert error.value.__cause__.code == code
    assert admin.llen("blueque_pending_tasks_video") == 1
    client.close()


@pytest.mark.parametrize("code", REFUSALS)
def test_a_producer_waits_for_redis_within_its_patience(own_server, admin, code, caplog):
    client = Client(own_server.url, patience=60)
    queue = client.get_queue("video")
    queue.enqueue("before")
    relent = REFUSALS[code](own_server, admin)

    def relent_later():
        until(lambda: "trying again" in caplog.text, what="a second try")
        relent()

    thread = threading.Thread(target=relent_later)
    thread.start()
    queue.enqueue("after")
    thread.join()
    queue.enqueue_many(["a", "b"])

    assert admin.llen("blueque_pending_tasks_video") == 4
    client.close()


def test_a_read_waits_for_a_busy_server(own_server, admin, caplog):
    client = Client(own_server.url, patience=60)
    task_id = client.get_queue("video").enqueue("in")
    relent = be_busy(own_server, admin)

    def relent_later():
        until(lambda: "trying again" in caplog.text, what="a second try")
        relent()

    thread = threading.Thread(target=relent_later)
    thread.start()

    assert client.get_task(task_id).parameters == "in"
    thread.join()
    client.close()


def test_who_waits_for_tasks_waits_for_a_server_that_cannot_save(own_server, admin, monkeypatch):
    monkeypatch.setattr("blueque.connection.tracked.PROOF", 0.05)
    client = Client(own_server.url, patience=0)
    task_id = client.get_queue("video").enqueue("in")
    relent, ends = be_unable_to_save(own_server, admin), []
    thread = threading.Thread(target=lambda: ends.append(client.get_task(task_id).wait(60).status))
    thread.start()

    until(
        lambda: admin.info("commandstats").get("cmdstat_ping", {}).get("rejected_calls", 0) > 1,
        what="a PING that was refused, and one more",
    )
    assert thread.is_alive()

    relent()
    client.get_queue("video").cancel(task_id)
    thread.join()
    assert ends == ["cancelled"]
    client.close()
