"""blueque-scheduler as a program, and the Scheduler and the Lookout that it is made of."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import socket
import statistics
import threading
import time
from urllib.parse import urlsplit

import legacy
import pytest
import redis as redis_py
from legacy import ledger
from running import patched, until

from blueque import Client
from blueque.queries.queue_changes import Lookout
from blueque.scheduler import Scheduler
from blueque.scheduler.unsettled_ends import LOOK_AT_ALL
from blueque.system.process import wait_readable

WORK = legacy.WORK

PROMPT = 1.0  # seconds; ten times what is promised, for a machine with much to do


@pytest.fixture
def scheduler(programs, url, cli):
    """The program, idle and watching."""
    return watching(programs, url, cli)


@pytest.fixture
def own(own_server):
    """A server that the test may stop, and what anybody sees there."""
    with redis_py.Redis.from_url(own_server.url, decode_responses=True) as cli:
        yield own_server, cli


def watching(programs, url, cli):
    """Start a scheduler and wait until it has looked at everything once and waits for news."""
    known = len(trackers(cli))
    scheduler = programs.scheduler(url)
    until(lambda: len(trackers(cli)) > known, what="it has asked for news")
    return scheduler


def trackers(cli):
    """Return the ids of the connections that Redis tells of changes and that have looked at
    something.
    """
    asking = ("hello", "client", "client|tracking")
    return {
        each["id"]
        for each in cli.client_list()
        if "t" in each["flags"] and each["cmd"] not in asking
    }


def is_promoted(client, task_id):
    return client.get_task(task_id).status == "pending"


def delay(client, task_id):
    """Wait until the task is promoted; return for how long it had been due then."""
    until(lambda: is_promoted(client, task_id), what="the task is promoted")
    task = client.get_task(task_id)
    return task.updated - task.eta


def warnings(program):
    """Return what it has logged without the times, its first line and those about tasks."""
    lines = [line.partition(" ")[2] for line in program.log.splitlines()[1:]]
    return [line for line in lines if not line.startswith("enqueue_due task=")]


def show(what, seconds):
    print(
        f"{what}: median {statistics.median(seconds) * 1000:.1f} ms, slowest {max(seconds) * 1000:.1f} ms"
    )


def processor_seconds(program):
    with open(f"/proc/{program.pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def serve(scheduler, is_done):
    """Do in this process what the program does, until it is so."""
    deadline = time.monotonic() + 10
    while not is_done():
        assert time.monotonic() < deadline, "it never came to that"
        seconds = scheduler.step()
        news = scheduler._lookout.fileno()
        wait_readable([] if news is None else [news], min(seconds, 0.05))


@contextlib.contextmanager
def nobody_at(port):
    """Listen where Redis was, hang up on everybody, and yield a function that waits for so many
    callers.
    """
    with socket.create_server(("127.0.0.1", port)) as listening:
        listening.settimeout(15)

        def turn_away(callers):
            for _ in range(callers):
                listening.accept()[0].close()

        yield turn_away


def test_a_task_that_1_0_0_schedules_shortly_ahead_in_a_brand_new_queue_is_promoted_promptly(
    scheduler, legacy, client, cli
):
    assert not cli.exists("blueque_queues")

    (task_id,) = legacy.run("say(client.get_queue('new').schedule('in', time.time() + 0.3))")

    assert 0 <= delay(client, task_id) < PROMPT


def test_two_schedulers_promote_each_of_two_hundred_tasks_once(programs, client, queue, cli, url):
    both = [watching(programs, url, cli), watching(programs, url, cli)]
    cli.config_resetstat()
    soon = time.time() + 0.5
    ids = [queue.schedule("in", soon + number / 400) for number in range(200)]
    until(lambda: cli.llen("blueque_pending_tasks_video") >= 200, what="all are in line")

    assert not cli.exists("blueque_scheduled_tasks_video")
    assert cli.lrange("blueque_pending_tasks_video", 0, -1)[::-1] == ids
    assert {client.get_task(task_id).status for task_id in ids} == {"pending"}
    assert [program.stop() for program in both] == [0, 0]
    assert cli.llen("blueque_pending_tasks_video") == 200


def test_it_survives_a_restart_of_redis_and_says_so_once(programs, own):
    server, cli = own
    scheduler = watching(programs, server.url, cli)
    client = Client(server.url, patience=5)
    first = client.get_queue("video").schedule("in", time.time() + 0.1)
    delay(client, first)
    server.kill()
    with nobody_at(server.port) as turn_away:
        turn_away(2)
    server.start()
    until(lambda: "answers again" in scheduler.log, what="it has noticed")
    task_id = client.get_queue("video").schedule("in", time.time() + 0.3)

    assert 0 <= delay(client, task_id) < PROMPT
    client.close()
    assert [re.sub(r"[:;] .*| after .*", "", line) for line in warnings(scheduler)] == [
        "lost the connection to Redis",
        "Redis answers again",
    ]


def cut_all_connections(cli):
    for each in cli.client_list():
        if each["id"] != str(cli.client_id()):
            cli.client_kill_filter(_id=each["id"])


def test_it_goes_on_when_its_connections_are_cut(scheduler, client, queue, cli):
    delay(client, queue.schedule("in", time.time() + 0.1))
    cut_all_connections(cli)

    task_id = queue.schedule("in", time.time() + 0.3)

    assert 0 <= delay(client, task_id) < PROMPT
    assert scheduler.is_running and "Traceback" not in scheduler.log


def test_it_says_once_that_its_connections_are_cut(scheduler, client, queue, cli):
    delay(client, queue.schedule("in", time.time() + 0.1))
    cli.delete("blueque_pending_tasks_video")  # else it would use its second connection right away
    cut_all_connections(cli)
    until(lambda: "answers again" in scheduler.log, what="it has noticed")

    delay(client, queue.schedule("in", time.time() + 0.1))

    assert [re.sub(r"[:;] .*| after .*", "", line) for line in warnings(scheduler)] == [
        "lost the connection to Redis",
        "Redis answers again",
    ]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_stops_at_once_when_it_is_told_to(scheduler, number):
    assert scheduler.stop(number) == 0
    assert len(scheduler.log.splitlines()) == 1


def test_it_stops_at_once_while_redis_is_away(programs, own):
    server, _ = own
    server.kill()
    with nobody_at(server.port) as turn_away:
        scheduler = programs.scheduler(server.url)
        turn_away(4)  # by now it pauses for long between two tries

        assert scheduler.stop() == 0


def test_it_stops_at_once_while_redis_stands_still(programs, own):
    server, _ = own
    os.kill(server.pid, signal.SIGSTOP)
    scheduler = programs.scheduler(server.url)
    until(lambda: "blueque-scheduler" in scheduler.log, what="it has begun")
    until(lambda: is_connecting(scheduler, server.port), what="it waits for an answer")

    scheduler.send(signal.SIGTERM)

    try:
        until(lambda: not scheduler.is_running, 2, "its end")
    finally:
        os.kill(server.pid, signal.SIGCONT)
    assert scheduler.wait() == 0


def is_connecting(program, port):
    """Tell whether a connection to that port stands in this network, seen from the other end than
    the server's own.
    """
    with open(f"/proc/{program.pid}/net/tcp") as file:
        return any(
            line.split()[2].endswith(f":{port:04X}") and line.split()[3] == "01"
            for line in file.readlines()[1:]
        )


def make_idle(client, cli, number):
    """Make queues that nothing happens in, half of them with a task for much later."""
    cli.zadd("blueque_queues", {f"idle{index}": 0 for index in range(number)})
    for index in range(0, number, 2):
        client.get_queue(f"idle{index}").schedule("in", 4e9)


def test_fifty_idle_queues_cost_nothing_between_two_looks_at_everything(programs, client, cli, url):
    make_idle(client, cli, 50)
    cli.config_resetstat()
    scheduler = watching(programs, url, cli)
    # The queues, the next task of each, ends, groups, schedules and tasks that are to begin by a time;
    # then one look for listeners.
    until(
        lambda: (
            cli.info("commandstats").get("cmdstat_zrange", {}).get("calls") == 55
            and cli.info("commandstats").get("cmdstat_exists", {}).get("calls", 0) >= 52
        ),
        what="it has looked at everything",
    )
    began, spent = cli.info("stats")["total_commands_processed"], processor_seconds(scheduler)
    time.sleep(3)  # the time that is measured
    commands = cli.info("stats")["total_commands_processed"] - began - 1

    spent = processor_seconds(scheduler) - spent
    print(
        f"idle with 50 queues: {commands / 3:.2f} commands and {spent / 3 * 1000:.1f} ms of processor per second"
    )
    assert commands / 3 < 2 and spent / 3 < 0.02


def test_the_regular_look_at_fifty_idle_queues_costs_less_than_two_commands_a_second(client, cli):
    make_idle(client, cli, 50)
    lookout = Lookout(client.connections.connect)
    lookout.refresh()
    began = cli.info("stats")["total_commands_processed"]

    lookout.refresh(whole=True)
    commands = cli.info("stats")["total_commands_processed"] - began - 1
    lookout.close()

    assert commands / LOOK_AT_ALL < 2


def test_an_idle_listener_gets_within_a_second_what_1_0_0_enqueues(
    scheduler, legacy, programs, cli, url
):
    listener = programs.listener("work:record", queue="video", slots=2)
    producer = legacy.start("""
while not os.path.exists("idle"):
    time.sleep(0.01)
queue = client.get_queue("video")
for number in range(10):
    began = time.time()
    task_id = queue.enqueue("in")
    say([task_id, began])
    while client.get_task(task_id).status != "complete":
        time.sleep(0.01)
""")
    until(lambda: cli.info("clients")["blocked_clients"] == 2, what="both listeners wait")
    (programs.directory / "idle").touch()
    assert producer.wait() == 0, producer.log

    enqueued = dict(producer.said())
    late = [line.at - enqueued[line.task] for line in ledger(programs)]
    show("from 1.0.0's enqueue to our handler", late)
    assert len(late) == 10 and max(late) < PROMPT
    assert "Traceback" not in listener.log + scheduler.log


def test_it_wakes_a_listener_for_tasks_that_were_in_line_before_it_came(legacy, programs, cli, url):
    listener = programs.listener("work:record", queue="video")
    until(lambda: cli.info("clients")["blocked_clients"] == 1, what="the listener waits")
    legacy.run("client.get_queue('video').enqueue('in')")
    assert cli.llen("blueque_pending_tasks_video") == 1
    programs.scheduler(url)

    until(lambda: ledger(programs), 5, what="it runs")
    assert "Traceback" not in listener.log


def test_work_that_has_to_wait_costs_a_scheduler_nothing(client, queue, programs, cli, url):
    queue.pause("me")
    queue.enqueue("in")
    queue.enqueue("in", priority=5)
    cli.delete("blueque_wake_video")
    scheduler = watching(programs, url, cli)
    until(lambda: cli.exists("blueque_wake_video"), what="it has found the work")

    def commands_of_a_second():
        before = cli.info("stats")["total_commands_processed"]
        time.sleep(1)  # the time that is measured
        return cli.info("stats")["total_commands_processed"] - before - 1

    until(lambda: commands_of_a_second() < 2, what="a second in which it asks nothing")
    assert warnings(scheduler) == []


def test_news_that_comes_together_with_an_answer_is_not_overlooked(programs, cli, url):
    cli.zadd("blueque_queues", {"first": 0, "second": 0})
    cli.config_resetstat()
    with HoldingProxy(url, having=b"blueque_pending_tasks_first") as proxy:
        watching(programs, proxy.url, cli)
        until(
            lambda: cli.info("commandstats").get("cmdstat_exists", {}).get("calls") == 3,
            what="it has looked at all, for members of groups, and for listeners",
        )
        proxy.arm()
        cli.lpush("blueque_pending_tasks_first", "t1")
        until(lambda: proxy.held, what="it has asked about the first queue")
        cli.lpush("blueque_pending_tasks_second", "t2")
        until(
            lambda: b"blueque_pending_tasks_second" in proxy.held,
            what="and is told of the second one",
        )
        proxy.release()
        until(lambda: cli.exists("blueque_wake_first"), what="it has got the answer")

        until(lambda: cli.exists("blueque_wake_second"), 2, "it has looked at the second one")


class HoldingProxy:
    """Forwards to Redis; once armed, keeps the answer to a write that has these bytes in it, and
    what comes after it.
    """

    def __init__(self, server_url, having):
        place = urlsplit(server_url)
        self._server, self._having = (place.hostname, place.port), having
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listening.getsockname()[1]}/0"
        self._is_armed = False
        self._holding = None  # the client whose answers are kept
        self._lock = threading.Lock()
        self.held = b""
        self._open = [self._listening]

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        for end in self._open:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def arm(self):
        self._is_armed = True

    def release(self):
        """Deliver all that was kept, in one piece."""
        with self._lock:
            self._holding.sendall(self.held)
            self._holding = None

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client = self._listening.accept()[0]
                threading.Thread(target=self._forward, args=(client,), daemon=True).start()

    def _forward(self, client):
        server = socket.create_connection(self._server)
        self._open += [client, server]
        with contextlib.suppress(OSError, ValueError):
            while True:
                ready = select.select([client, server], [], [])[0]
                data = b""
                with self._lock:
                    if server in ready:
                        data = server.recv(65536)
                        if self._holding is client:
                            self.held += data
                        else:
                            client.sendall(data)
                    elif client in ready:
                        data = client.recv(65536)
                        if self._is_armed and self._having in data:
                            self._is_armed, self._holding = False, client
                        server.sendall(data)
                if not data:
                    break


def test_it_polls_through_a_client_of_redis_py(client, url):
    with redis_py.Redis.from_url(url) as ready:
        polling = Client(redis=ready, patience=0)
        scheduler = Scheduler(polling)
        task_id = client.get_queue("new").schedule("in", time.time() + 0.3)

        serve(scheduler, lambda: is_promoted(client, task_id))

        assert 0 <= delay(client, task_id) < 1 + PROMPT
        assert scheduler._lookout.fileno() is None
        assert 0.5 < max(scheduler.step() for _ in range(3)) <= 1
        scheduler.close()
        polling.close()


@pytest.mark.parametrize("seconds", [3600, -3600])
def test_a_task_is_due_by_the_clock_of_redis(client, queue, cli, monkeypatch, seconds):
    soon, later = queue.schedule("in", time.time() + 0.5), queue.schedule("in", time.time() + 1800)
    monkeypatch.setattr(time, "time", lambda now=time.time: now() + seconds)
    scheduler = Scheduler(client)

    serve(scheduler, lambda: is_promoted(client, soon))
    assert 0 < scheduler.step() <= LOOK_AT_ALL

    assert client.get_task(later).status == "scheduled"
    scheduler.close()


def test_a_key_of_the_wrong_type_is_said_once_and_does_not_keep_the_processor_busy(
    programs, client, queue, cli, url
):
    queue.schedule("in", 4e9)
    cli.set("blueque_scheduled_tasks_video", "text")
    scheduler = programs.scheduler(url, environ=patched({"scheduler.refused.REFUSED_PAUSE": 1.2}))
    until(lambda: "WRONGTYPE" in scheduler.log, what="it has found it")
    began, spent = cli.info("stats")["total_commands_processed"], processor_seconds(scheduler)
    time.sleep(1)  # the time that is measured
    commands = cli.info("stats")["total_commands_processed"] - began - 1
    spent = processor_seconds(scheduler) - spent
    cli.delete("blueque_scheduled_tasks_video")
    task_id = queue.schedule("in", time.time() + 0.1)

    assert delay(client, task_id) < 10
    print(
        f"a key of the wrong type: {commands} commands and {spent * 1000:.0f} ms of processor in a second"
    )
    assert commands < 100 and spent < 0.3
    assert scheduler.log.count("WRONGTYPE") == 1
    scheduler.says("serving queue 'video' again after")


def test_a_full_redis_is_said_once_for_all_queues(programs, own):
    server, cli = own
    scheduler = watching(programs, server.url, cli)
    with contextlib.closing(Client(server.url)) as client:
        for name in "abc":
            client.get_queue(name).schedule("in", time.time() + 1)
    cli.config_set("maxmemory", 1)
    scheduler.says("OOM command not allowed")

    cli.config_set("maxmemory", 0)
    scheduler.says("Redis no longer answers OOM after")

    assert scheduler.log.count("OOM command") == 1 and "alone" not in scheduler.log


@pytest.mark.parametrize("key", ["blueque_scheduled_tasks_broken", "blueque_wake_broken"])
def test_a_key_of_the_wrong_type_in_one_queue_does_not_hold_up_another(
    programs, client, queue, cli, url, key
):
    client.get_queue("broken").enqueue("in")
    cli.delete(key)
    cli.set(key, "text")
    scheduler = programs.scheduler(url)
    until(lambda: "blueque-scheduler" in scheduler.log, what="it has begun")
    task_id = queue.schedule("in", time.time() + 0.1)

    until(lambda: is_promoted(client, task_id), 2, "the task is promoted")
