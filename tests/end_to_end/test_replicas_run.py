"""A listener whose changes a replica has to confirm, while no replica does."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator

import pytest
import redis as redis_py
from handlers import WORK, beat_of, begin, ended, ledger, let_go
from running import Programs, until
from sentinels import replicated

from blueque.model import keys
from blueque.system.embedded_redis import Server

ASKING = {"BLUEQUE_REPLICAS": "1", "BLUEQUE_REPLICAS_TIMEOUT": "50ms"}
UNCONFIRMED = "the change is in Redis, but no replica has confirmed it within 0.05 s"


@pytest.fixture
def servers() -> Iterator[list[Server]]:
    with replicated(1) as servers:
        yield servers


@pytest.fixture
def programs(servers, tmp_path) -> Iterator[Programs]:
    with Programs(servers[0].url, tmp_path) as programs:
        programs.write(WORK)
        yield programs


@pytest.fixture
def stop_replica(servers) -> Callable[[], None]:
    """Return a function that has the replica stand still once it has all that the primary has."""
    primary, replica = servers

    def stop() -> None:
        with redis_py.Redis(port=primary.port) as admin:
            admin.set("all before", 1)
            assert admin.wait(1, 10_000) == 1
        os.kill(replica.pid, signal.SIGSTOP)

    return stop


def test_an_end_that_no_replica_confirms_waits_in_the_spool(servers, programs, stop_replica):
    listener = programs.listener("work:run", "--beat", "0.1s", environ=ASKING)
    task = begin(programs, "wait")
    stop_replica()
    log = len(listener.log)
    let_go(programs)

    listener.says(f"end: {UNCONFIRMED}")
    before = beat_of(programs.client, "work", task.node)
    until(lambda: beat_of(programs.client, "work", task.node) > before + 3, what="beats")
    assert programs.client.get_task(task.id).status == "complete"
    assert "complete task=" not in listener.log
    assert listener.log[log:].count("no replica has confirmed") == 1
    assert "nothing waits for replicas" not in listener.log[log:]
    waiting = programs.client.get_queue("work").enqueue("quick")
    os.kill(servers[1].pid, signal.SIGCONT)

    listener.says("nothing waits for replicas any more after")
    assert ended(programs.client, waiting).status == "complete"
    assert [run.task for run in ledger(programs)] == [task.id, waiting]
    assert listener.stop() == 0


def test_an_attempt_that_is_put_back_and_not_confirmed_is_ended_by_its_listener(
    servers, programs, stop_replica
):
    listener = programs.listener("work:run", environ=ASKING)
    task = begin(programs, "wait")
    with redis_py.Redis(port=servers[0].port) as admin, admin.pipeline() as pipe:
        pipe.hset(keys.task(task.id), "status", "reserved")  # its start is lost
        pipe.srem(keys.started("work"), keys.started_member(task.node, task.pid, task.id))
        pipe.execute()
    stop_replica()
    let_go(programs)

    listener.says(f"reassert: {UNCONFIRMED}")
    os.kill(servers[1].pid, signal.SIGCONT)

    listener.says(f"complete task={task.id}")
    assert "does not belong to" not in listener.log and "adopt task=" not in listener.log
    assert len(ledger(programs, task.id)) == 1


def test_a_task_that_its_listener_takes_to_its_new_name_unconfirmed_is_not_let_go(
    servers, programs, stop_replica
):
    listener = programs.listener("work:run", "--beat", "0.1s", environ=ASKING)
    task = begin(programs, "wait")
    stop_replica()
    with redis_py.Redis(port=servers[0].port) as admin:  # another host has its name
        theirs = {"instance": "another", "boot": "another", "lease": 600}
        admin.hset(keys.listener("work", task.node), mapping=theirs)
    listener.says(f"adopt: {UNCONFIRMED}")
    renamed = programs.client.get_task(task.id).node
    before = beat_of(programs.client, "work", renamed)
    until(lambda: beat_of(programs.client, "work", renamed) > before + 3, what="beats")
    os.kill(servers[1].pid, signal.SIGCONT)
    let_go(programs)

    assert ended(programs.client, task.id).node == renamed != task.node
    assert "no longer watching it" not in listener.log
    assert len(ledger(programs, task.id)) == 1


@pytest.mark.parametrize("change", ["start", "end"])
def test_a_listener_that_asks_for_no_replicas_any_more_goes_on_without_them(
    programs, stop_replica, change
):
    toml = programs.directory / "blueque.toml"

    def configure(replicas: int) -> None:
        rest = f'[redis]\nreplicas = {replicas}\nreplicas_timeout = "50ms"\n'
        rest += '[listener]\nhandler = "work:run"\nspool = "spool"\n'
        toml.write_text(f'redis_url = "{programs.url}"\n{rest}')
        toml.chmod(0o600)

    configure(1)
    listener = programs.started_as(["work"], "work").ready()
    task = begin(programs, "wait") if change == "end" else None
    stop_replica()
    queue = programs.client.get_queue("work")
    first = queue.enqueue("quick") if task is None else task.id
    let_go(programs)
    listener.says(f"{change}: {UNCONFIRMED}")
    following = queue.enqueue("quick")

    configure(0)
    listener.send(signal.SIGHUP)

    assert ended(programs.client, following).status == "complete"
    assert ended(programs.client, first).status == "complete"
    assert [run.task for run in ledger(programs)] == [first, following]
