"""The one place where a listener waits."""

from __future__ import annotations

import ast
import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import redis as redis_py
from running import until
from transactions import protocol

import blueque.node
from blueque import Client
from blueque.connection.redis import Connection
from blueque.errors import RedisAway
from blueque.listener.listener import Listener
from blueque.model import keys
from blueque.model.units import Timing
from blueque.node import waiting
from blueque.node.context import Master, NodeContext
from blueque.node.control import Order, OrderCame, Pause
from blueque.node.duties import Duties
from blueque.node.waiting import Waiting
from blueque.settings.in_effect import InEffect
from blueque.spool.spool import Spool

BEAT = 0.05
LONG = 60.0
NODE = Path(blueque.node.__file__).parent
# Neither the master nor the runner of 1.0.0 beats.
MAY_WAIT = {"waiting.py", "forking_runner.py", "main.py", "master.py", "reload.py"}
WAITS = {"sleep", "poll", "select", "epoll", "wait_readable", "idle", "watch_orders"}


class Listening:
    """A registered listener, and what it takes to wait."""

    def __init__(self, client: Client, directory: str, queues: Sequence[str] = ("work",)) -> None:
        spool = Spool(directory, 1000)
        group = Listener(client.connections, list(queues))
        self._pipe = os.pipe()  # the lifeline and the requests of a master that lives
        master = Master(os.getppid(), *self._pipe, Pause())
        context = NodeContext.of(client, group, spool, InEffect(Timing(beat=BEAT)), None, master)
        self.orders, self.group = context.orders, context.listener
        self.duties = Duties(context)
        self.maintenance = self.duties._maintenance
        self.waiting = Waiting(context, self.duties)
        context.client.connections.has_answer = self.waiting.has_answer
        self._context = context
        self._client = client

    def close(self) -> None:
        self.orders.pause.close()
        for end in self._pipe:
            os.close(end)

    @property
    def planned(self) -> dict[str, float]:
        """When each part of the maintenance is due, on the monotonic clock."""
        return self.maintenance._at

    @property
    def registration(self) -> dict[str, str]:
        return self._client.get_inspector().registration("work", self.group.node)

    def connection(self) -> Connection:
        return self._client.connections.connection()

    @property
    def beats(self) -> int:
        return int(self.registration.get("beat", "0"))


@pytest.fixture
def listening(url: str, tmp_path) -> Iterator[Listening]:
    client = Client(url, patience=0)
    listening = Listening(client, str(tmp_path))
    listening.waiting.register()
    yield listening
    listening.close()
    client.close()


def wait(listening: Listening, descriptor: int) -> None:
    listening.waiting.wait(LONG, [descriptor])


def wait_for_work(listening: Listening, descriptor: int) -> None:
    listening.waiting.wait_for_work()


def wait_for_order(listening: Listening, descriptor: int) -> None:
    listening.waiting.wait_for_order()


def wait_for_order_or(listening: Listening, descriptor: int) -> None:
    never = time.monotonic() + LONG
    listening.waiting.wait_for_order_or([descriptor], never, lambda: never)


def retry(listening: Listening, descriptor: int) -> None:
    before = listening.beats

    def fail_until_a_beat() -> None:
        if listening.beats == before:
            raise RedisAway("not now")

    listening.waiting.retry_until_order(fail_until_a_beat)


@pytest.mark.parametrize("how", [wait, wait_for_work, wait_for_order, wait_for_order_or, retry])
def test_every_wait_beats_and_takes_no_longer_than_until_the_next_beat(listening, how):
    read, write = os.pipe()
    before, began = listening.beats, time.monotonic()

    for _ in range(3):
        number = listening.beats
        while listening.beats == number:
            how(listening, read)

    assert listening.beats - before >= 3
    assert time.monotonic() - began < LONG / 2
    for descriptor in (read, write):
        os.close(descriptor)


def test_a_wait_does_not_beat_before_the_listener_has_registered_nor_after_it_has_left(
    client, tmp_path
):
    listening = Listening(client, str(tmp_path))
    listening.waiting.wait(2 * BEAT)
    assert listening.beats == 0

    listening.waiting.register()
    listening.duties.end()
    assert listening.group.leave()
    listening.waiting.wait(2 * BEAT)
    assert client.get_inspector().listeners("work") == []
    listening.close()


def test_what_redis_does_not_do_is_given_up_at_the_second_try_after_the_order(listening):
    tries = []

    def fail() -> None:
        tries.append(1)
        if len(tries) == 2:
            listening.orders.now = Order.DRAIN
        raise RedisAway("not now")

    with pytest.raises(OrderCame):
        listening.waiting.retry_until_order(fail, until=Order.DRAIN)

    assert len(tries) == 3


def test_an_answer_of_a_server_that_sentinel_has_replaced_is_not_waited_for(listening, monkeypatch):
    """However long an answer may take."""
    monkeypatch.setattr(waiting, "REPLY_TIMEOUT", 3600.0)
    connection = listening.connection()
    connection.is_current = lambda every=None: False

    with pytest.raises(RedisAway, match="gave up waiting for an answer"):
        connection.exchange([("BLPOP", "nothing", 0)])

    assert connection.is_closed


IDLE = {
    "bzpopmin": 1,
    "exists": 1,
    "watch": 1,
    "hmget": 1,
    "smembers": 1,
    "multi": 1,
    "hgetall": 1,
    "hset": 1,
    "zadd": 1,
    "exec": 1,
}


def commands_of_an_idle_listener(listening: Listening, cli: redis_py.Redis) -> dict[str, int]:
    """Return what a listener sends from one beat to the next, with all that it does beside it."""
    listening.duties.look_after_others()
    planned = listening.planned
    listening.duties._next_beat = listening.duties._next_look = listening.duties.next_at = 0.0
    planned["enqueue_due"] = 0.0
    # At every sixth beat only, if no task waits for others and nothing is planned.
    planned |= dict.fromkeys(("settle", "recheck", "fire"), time.monotonic() + LONG)
    beats = listening.beats
    cli.config_resetstat()
    listening.waiting.wait_for_work()
    sent = {name[8:]: its["calls"] for name, its in cli.info("commandstats").items()}
    assert listening.beats == beats + 1
    del sent["config|resetstat" if "config|resetstat" in sent else "config"]
    return sent


def test_an_idle_listener_sends_ten_commands_from_beat_to_beat(listening, cli):
    assert commands_of_an_idle_listener(listening, cli) == IDLE


def test_a_listener_looks_at_schedules_at_each_beat_if_something_is_planned(listening, client):
    now = time.monotonic()

    listening.maintenance.do_due(now, nothing_scheduled=True)
    assert listening.planned["fire"] >= now + 6 * BEAT

    client.set_schedule("hourly", queue="work", every="1h")
    listening.planned["fire"] = now
    listening.maintenance.do_due(now, nothing_scheduled=True)
    assert now + BEAT <= listening.planned["fire"] <= time.monotonic() + BEAT


def test_after_an_error_what_is_done_seldom_waits_for_six_beats(listening, cli):
    now = time.monotonic()
    for key in (keys.EXPIRING, keys.blocked("work"), keys.scheduled("work")):
        cli.set(key, "of a wrong type")
    listening.planned.update(dict.fromkeys(("expire", "recheck", "enqueue_due"), now))

    listening.maintenance.do_due(now, nothing_scheduled=False)

    until = {name: at - now for name, at in listening.planned.items()}
    assert min(until["expire"], until["recheck"]) >= 6 * BEAT
    assert BEAT <= until["enqueue_due"] < until["recheck"]


@pytest.mark.parametrize("queues", [["work"], ["work", "other"]], ids=["one", "several"])
def test_a_listener_puts_a_task_in_line_by_the_clock_of_redis(url, tmp_path, monkeypatch, queues):
    client = Client(url, patience=0)
    listening = Listening(client, str(tmp_path), queues)
    listening.waiting.register()
    due = client.get_queue("work").schedule("due", time.time() + 1)
    later = client.get_queue("work").schedule("later", time.time() + 1800)
    monkeypatch.setattr(time, "time", lambda now=time.time: now() + 3600)

    def do_due():
        listening.planned["enqueue_due"] = 0.0
        listening.maintenance.do_due(time.monotonic(), nothing_scheduled=False)
        return client.get_task(due).status == "pending"

    until(do_due, what="the first task is due")

    assert client.get_task(later).status == "scheduled"
    listening.close()
    client.close()


def test_a_queue_that_refuses_its_due_tasks_does_not_slow_those_of_others(url, cli, tmp_path):
    client = Client(url, patience=0)
    listening = Listening(client, str(tmp_path), ["before", "refuses", "after"])
    listening.waiting.register()
    cli.set(keys.scheduled("refuses"), "of a wrong type")
    for queue in ("before", "after"):
        client.get_queue(queue).schedule(1, time.time() + LONG)
        cli.zadd(keys.scheduled(queue), dict.fromkeys(cli.zrange(keys.scheduled(queue), 0, 0), 1))
    now = time.monotonic()
    listening.maintenance.do_due(now, nothing_scheduled=False)

    assert [cli.llen(keys.pending(queue)) for queue in ("before", "after")] == [1, 1]
    assert listening.planned["enqueue_due"] <= time.monotonic()
    listening.close()
    client.close()


def test_the_end_of_a_task_that_is_left_alone_asks_redis_nothing(listening, cli):
    listening.maintenance._dependents._refused.add(["t1"])
    cli.config_resetstat()

    listening.duties.settle("t1")

    assert {name.partition("|")[0] for name in cli.info("commandstats")} <= {"cmdstat_config"}


def test_an_idle_listener_with_scheduled_tasks_sends_no_more_than_five_more(listening, cli):
    cli.zadd(keys.scheduled("work"), {"t1": time.time() + 3600})

    sent = commands_of_an_idle_listener(listening, cli)

    assert sent == {**IDLE, "exists": 2, "lrange": 1, "time": 1, "zrangebyscore": 1}


@pytest.mark.parametrize("is_work", [True, False])
def test_a_task_that_nobody_announced_is_seen_at_the_next_beat(listening, cli, is_work):
    key = keys.pending("work") if is_work else keys.reserved("work", listening.group.node)
    cli.rpush(key, "t1")

    assert listening.waiting.wait_for_work() is is_work
    listening.group.of("work").is_list_unsure = False
    assert listening.duties.has_unwatched() is not is_work


def test_an_order_to_drain_that_the_master_is_faster_than_is_not_lost(listening, redis):
    protocol.order(redis, "work", listening.group.node, "drain", "ann")
    listening.orders.obey(signal.SIGUSR2)  # as the master does after SIGHUP

    listening.waiting.wait(0)

    assert listening.duties.is_drained and listening.orders.now is Order.DRAIN
    assert listening.registration["order"] == "drain"


@pytest.mark.parametrize(
    ("number", "order"), [(signal.SIGUSR2, "leave"), (signal.SIGTERM, "drain")]
)
def test_a_listener_that_leaves_by_itself_has_not_been_drained(listening, number, order):
    listening.orders.obey(number)

    listening.waiting.wait(0)

    assert not listening.duties.is_drained
    assert listening.registration["order"] == order


def test_no_other_module_of_the_node_waits():
    """A wait elsewhere would be one without a beat."""
    modules = [path for path in sorted(NODE.glob("*.py")) if path.name not in MAY_WAIT]
    found = [
        f"{path.name}: {what}" for path in modules for what in waits(ast.parse(path.read_text()))
    ]

    assert found == []


def waits(tree: ast.AST) -> Iterator[str]:
    """Yield the calls that wait: for a time, a descriptor, or a marker in Redis."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            owner = ast.unparse(getattr(node.func, "value", node.func))
            if name in WAITS or (name == "wait" and not owner.endswith("waiting")):
                yield f"{owner}.{name}"
