"""examples/clients: a producer and a worker in JavaScript, written from docs/protocol.md alone,
with ours on one Redis.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import signal
import subprocess

import pytest
from protocol_pages import chapter, flat, form, section, sections
from running import PATIENCE, ROOT, Programs, is_there, until
from test_document import Monitor
from transactions import protocol

from blueque import Client, Retry
from blueque.audit.audit import audit
from blueque.model import keys
from blueque.model.new_task import NewTask

CLIENTS = ROOT / "examples" / "clients"
WORK = """
    def show(task):
        return {"got": task.parameters}
"""


def node() -> str:
    found = shutil.which("node")
    assert found, "Node.js is needed: bin/test installs it; on Debian: apt install nodejs"
    return found


@pytest.fixture
def programs(url, tmp_path):
    with Programs(url, tmp_path, {"BLUEQUE_REDIS_URL": url}) as programs:
        programs.write(WORK)
        yield programs


def produce(programs: Programs, *arguments: str) -> list[str]:
    """Run the foreign producer to its end and return what it prints."""
    producer = programs.start([node(), str(CLIENTS / "producer.js"), *arguments])
    assert producer.wait() == 0, producer.log
    return producer.printed.split()


def start_worker(programs: Programs, shell: str, queue: str = "video", beat: float = 10):
    """Start the foreign worker, whose program is a line of shell, and wait until it is registered."""
    command = [node(), str(CLIENTS / "worker.js"), queue, "sh", "-c", shell]
    worker = programs.start(command, environ={"BEAT": str(beat)})
    worker.says("register ")
    return worker


def ended(client: Client, task: str, status: str, seconds: float = PATIENCE) -> dict[str, str]:
    """Wait until a task has that status and return its fields."""
    until(
        lambda: client.get_task(task).status == status,
        seconds,
        what=f"{status}: {client.get_task(task).fields}",
    )
    return dict(client.get_task(task).fields)


def events(client: Client, task: str) -> list[str]:
    return [event.event for event in client.get_history(task).events[1:]]


def transactions(seen: list[tuple[str, list[str]]]) -> list[tuple[str, str]]:
    """Return the look and the change of each transaction of the foreign clients, as `flat` writes
    them.
    """
    by_client: dict[str, list[list[str]]] = {}
    for client, command in seen:
        by_client.setdefault(client, []).append(command)
    found = []
    for commands in by_client.values():
        if commands[:3] != [["SELECT", "0"], ["MULTI"], ["EXEC"]]:
            continue  # one of ours
        look = r" WATCH [^;]*;(?: (?!MULTI;|UNWATCH;|WATCH )[^;]*;)*"
        change = r" MULTI;.*? EXEC;| UNWATCH;"
        found += re.findall(f"({look})({change})", flat(commands))
    return found


@functools.cache
def forms() -> list[tuple[str, re.Pattern[str], re.Pattern[str]]]:
    """Return the section, the look and the change of each transaction of the pages."""
    return [
        (name, re.compile(form(section(name).looks[change.look])), re.compile(form(change.lines)))
        for name in sections()
        for change in section(name).changes
        if change.look is not None
    ]


def names_of(look: str, change: str) -> set[str]:
    """Return the sections of which a transaction may be one."""
    # Nothing within MULTI: a watched key had changed, and MONITOR does not show what was not
    # executed.
    is_refused = change in (" UNWATCH;", " MULTI; EXEC;")
    return {
        name
        for name, its_look, its_change in forms()
        if its_look.fullmatch(look) and (is_refused or its_change.fullmatch(change))
    }


def test_our_listener_runs_what_the_foreign_producer_makes(programs, client, redis):
    plain = produce(programs, "video", "a.mov", "ü\n☃")
    keyed = produce(programs, "video", "b.mov", "--key", "b") + produce(
        programs, "video", "b.mov", "--key", "b"
    )
    ours = programs.listener("work:show", queue="video")

    fields = [ended(client, task, "complete") for task in [*plain, keyed[0]]]

    assert [json.loads(each["result"]) for each in fields] == [
        {"got": text} for text in ("a.mov", "ü\n☃", "b.mov")
    ]
    assert keyed[0] == keyed[1] == client.get_queue("video").enqueue("b.mov", key="b")
    assert ours.stop() == 0
    assert audit(redis) == []


def test_what_the_foreign_producer_schedules_is_put_in_line_by_ours(programs, client, redis):
    (task,) = produce(programs, "video", "a.mov", "--in", "3600", "--retry", '{"max":1}')
    assert client.get_task(task).status == "scheduled" and audit(redis) == []

    client.get_queue("video").bring_forward(task)
    client.get_queue("video").enqueue_due_tasks()

    assert client.get_task(task).status == "pending"
    assert client.get_task(task).retry == Retry(max=1)
    assert audit(redis) == []


def test_a_task_of_the_foreign_producer_is_in_redis_as_one_of_ours(programs, queue, cli, state):
    produce(programs, "video", "a.mov", "--key", "a")
    foreign = state()
    cli.flushall()
    queue.enqueue("a.mov", key="a")

    ours = state()

    assert set(foreign) == set(ours)
    (hash_of_task,) = [key for key in ours if key.startswith("blueque_task_")]
    # It may say which process it is, as ours do.
    assert {*foreign[hash_of_task], "producer"} == set(ours[hash_of_task])


def test_the_foreign_producer_makes_the_ids_of_the_page():
    rows = [
        re.findall(r"`([^`]+)`", row)[-3:]
        for row in re.findall(r"^\| of `create`.*$", chapter("Keys of tasks"), flags=re.M)
    ]
    assert rows
    for queue, key, task in rows:
        script = f"console.log(require('{CLIENTS}/producer.js').idOfKey({queue}, {key}))"
        assert (
            subprocess.run(
                [node(), "-e", script], capture_output=True, text=True, check=True
            ).stdout.strip()
            == task
        )


def test_the_foreign_worker_runs_our_tasks(programs, client, queue, cli, redis):
    worker = start_worker(programs, "cat; echo 'progress: half of it' >&2", beat=0.2)
    tasks = [queue.enqueue(text) for text in ("a.mov", "ü\n☃", "")] + [
        queue.enqueue({"a": [1, None]})
    ]

    fields = [ended(client, task, "complete") for task in tasks]

    assert [each["result"] for each in fields] == ["a.mov", "ü\n☃", "", '{"a":[1,null]}']
    assert [(each["attempt"], each["progress"]) for each in fields] == [("1", "half of it")] * 4
    assert [events(client, task) for task in tasks] == [["reserved", "started", "complete"]] * 4
    assert cli.hget("blueque_totals_video", "complete") == "4"
    until(lambda: int(cli.hget(*registration(cli, client), "beat")) > 2, what="three beats")
    assert audit(redis) == []
    assert worker.stop() == 0
    assert cli.smembers("blueque_listeners_video") == set() == set(cli.keys("blueque_listener_*"))
    assert audit(redis) == []


def registration(cli, client: Client) -> tuple[str]:
    (listener,) = client.get_inspector().listeners("video")
    return (f"blueque_listener_video_{listener}",)


def test_a_failure_under_the_foreign_worker_is_followed_by_what_the_policy_allows(
    programs, client, queue, redis
):
    worker = start_worker(programs, "read n; [ $n = kill ] && kill -9 $$; exit $n")
    killed, final = queue.enqueue("kill\n"), queue.enqueue("3\n")
    retried = queue.enqueue("7\n", retry=Retry(max=1, backoff=0, exit_codes=[7]))

    ended(client, retried, "scheduled")
    assert audit(redis) == []
    queue.enqueue_due_tasks()

    assert ended(client, retried, "failed")["exit_code"] == "7"
    assert client.get_task(retried).attempt == 2 and client.get_task(retried).failures == 1
    assert ended(client, final, "failed")["error"] == "the program exited with 3"
    assert ended(client, killed, "failed")["signal"] == "SIGKILL"
    assert events(client, retried) == [
        "reserved",
        "started",
        "retried",
        "due",
        "reserved",
        "started",
        "failed",
    ]
    assert audit(redis) == []
    assert worker.stop() == 0


def test_what_waits_for_tasks_of_the_foreign_worker_goes_on_when_these_have_ended(
    programs, client, queue, redis
):
    worker = start_worker(programs, "read n; exit $n")
    parents = [f"ends-with-{number}" for number in (0, 3)]
    for number, parent in zip((0, 3), parents, strict=True):
        options = {"dependents": 1, "group": "night"}
        protocol.enqueue(redis, "later", parent, f"{number}\n", 1.5, options)
    for parent, child in zip(parents, ("ok", "any"), strict=True):
        new = NewTask(child, "audio", "in", {}, {parent: child})
        protocol.enqueue_after(redis, [new], 2.5)
        protocol.place(redis, "later", parent, 3.5, to="video")
    ended(client, parents[0], "complete")
    ended(client, parents[1], "failed")

    assert redis.read(
        ("ZRANGE", keys.UNSETTLED_TASKS, 0, -1), ("ZRANGE", keys.UNSETTLED_MEMBERS, 0, -1)
    ) == [parents, parents]
    for parent in parents:
        protocol.settle(redis, parent, 9.5)
    assert [client.get_task(child).status for child in ("ok", "any")] == ["pending", "pending"]
    assert worker.stop() == 0


def test_the_foreign_worker_ends_what_is_cancelled_or_takes_too_long(
    programs, client, queue, redis
):
    worker = start_worker(programs, "cat; exec sleep 600")
    cancelled = queue.enqueue("a")
    pid = int(ended(client, cancelled, "started")["pid"])
    too_long = queue.enqueue("b", time_limit=0.3)
    waiting = queue.enqueue("c")

    assert queue.cancel(waiting) == "cancelled"
    assert queue.cancel(cancelled, reason="enough") == "cancelling"

    assert ended(client, cancelled, "cancelled")["cancel_reason"] == "enough"
    assert not is_there(pid)
    assert ended(client, too_long, "failed")["error_type"] == "time_limit"
    assert events(client, cancelled) == ["reserved", "started", "cancelling", "cancelled"]
    assert audit(redis) == []
    assert worker.stop() == 0


def test_the_foreign_worker_obeys_limit_pause_and_orders(programs, client, queue, cli, redis):
    queue.set_settings({"max_running": 1})
    workers = [
        start_worker(programs, "cat; while [ ! -e go ]; do sleep 0.02; done", beat=0.2)
        for _ in range(2)
    ]
    tasks = [queue.enqueue("a"), queue.enqueue("b")]

    # Either: each worker pops one, and the slower one finds the queue full.
    first = until(
        lambda: [task for task in tasks if client.get_task(task).status == "started"],
        what="a started task",
    )[0]
    (second,) = {*tasks} - {first}
    beaten = {
        node: cli.zscore("blueque_nodes_video", node)
        for node in client.get_inspector().listeners("video")
    }
    until(
        lambda: all(cli.zscore("blueque_nodes_video", node) > at for node, at in beaten.items()),
        what="beats of both",
    )
    assert client.get_task(second).status == "pending"
    queue.pause("tests")
    (programs.directory / "go").touch()
    ended(client, first, "complete")
    assert client.get_task(second).status == "pending"
    queue.resume()
    ended(client, second, "complete")
    for listener in client.get_inspector().listeners("video"):
        client.get_listeners().drain(listener, "tests")

    for worker in workers:
        assert worker.wait() == 0
    assert audit(redis) == []


def test_a_task_with_needs_in_the_default_line_goes_back_to_its_own(
    programs, client, queue, cli, redis
):
    """As the scheduler of 1.0.0 puts it there; our listener, which has what it needs, then runs it."""
    task = queue.enqueue("a", resources={"gpu": 1}, lock="a b")
    (line,) = cli.keys("blueque_line_*")
    cli.rename(line, "blueque_pending_tasks_video")
    worker = start_worker(programs, "cat")

    until(lambda: cli.lrange(line, 0, -1) == [task], what="the task in its own line")

    assert worker.stop() == 0
    assert audit(redis) == []


def test_what_a_dead_foreign_worker_held_is_seen_to_by_ours(programs, client, queue, redis):
    # and what it had started is lost after 3 seconds
    worker = start_worker(programs, "cat; exec sleep 600", beat=0.05)
    task = queue.enqueue("a", retry=Retry(max=0, interruptions=1))
    pid = int(ended(client, task, "started")["pid"])
    worker.send(signal.SIGKILL)
    worker.wait()
    os.kill(pid, signal.SIGKILL)
    until(lambda: not is_there(pid), what="the end of its process")

    ours = programs.listener("work:show", queue="video")

    assert json.loads(ended(client, task, "complete", 60)["result"]) == {"got": "a"}
    assert client.get_task(task).attempt == 2
    assert ours.stop() == 0
    assert audit(redis) == []


def test_each_transaction_of_the_foreign_clients_is_one_of_the_pages(
    programs, client, queue, redis, server
):
    monitor = Monitor(server)
    produce(programs, "video", "0\n", "--key", "a")
    produce(programs, "video", "0\n", "--in", "3600")
    of_producer = monitor.seen_until_now(redis)
    worker = start_worker(
        programs,
        "read n; echo 'progress: half' >&2; [ $n -lt 9 ] || exec sleep 600; exit $n",
        beat=0.2,
    )
    failed, retried = queue.enqueue("3\n"), queue.enqueue("4\n", retry=Retry(max=1))
    ended(client, failed, "failed")
    ended(client, retried, "scheduled")
    cancelled = queue.enqueue("9\n")
    ended(client, cancelled, "started")
    queue.cancel(cancelled)
    ended(client, cancelled, "cancelled")
    queue.set_settings({"max_running": 1})
    ended(client, queue.enqueue("0\n"), "complete")
    assert worker.stop() == 0
    of_worker = monitor.seen_until_now(redis)
    monitor.close()

    for seen, expected in (
        (of_producer, {"create"}),
        (
            of_worker,
            {"register", "beat", "pop", "reserve", "start", "progress", "end", "deregister"},
        ),
    ):
        names = {transaction: names_of(*transaction) for transaction in transactions(seen)}
        assert [transaction for transaction, found in names.items() if not found] == []
        assert {name for found in names.values() for name in found} >= expected
