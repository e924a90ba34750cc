"""`blueque metrics`: what Prometheus is told, read by its own parser."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest
import redis as redis_py
from dependent import block, enqueue
from prometheus_client.parser import text_string_to_metric_families
from transactions import protocol

from blueque import Client, __version__
from blueque.cli.verbs.metrics import collector
from blueque.metrics import server as exporter
from blueque.metrics.families import BOUNDS
from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.protocol.ends import End

Q, NODE = "video", "host_1"
PROGRAM = [sys.executable, "-m", "blueque.cli.main", "metrics"]
DOCS = Path(__file__).parents[2] / "docs" / "monitoring.md"


def values(text):
    """Return every sample by name and labels, as the parser of Prometheus reads them."""
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def of(found, name, **labels):
    return found[("blueque_" + name, *sorted(labels.items()))]


@pytest.fixture
def scrape(url):
    """What an exporter tells."""
    return lambda most=500: exporter.Exporter(collector(Client(url, patience=0), most)).scrape()


@pytest.fixture
def run_one(redis):
    """Have a task of a queue run for so many seconds and complete."""

    def run_one(task, wait, ran, queue=Q, now=None):
        now = time.time() if now is None else now
        protocol.register(redis, queue, NODE, "i1", {"beat_every": 10}, time.time())
        protocol.enqueue(redis, queue, task, "in", now - ran - wait)
        protocol.pop(redis, queue, NODE, "i1")
        protocol.reserve(redis, AttemptRef(queue, task, "token", NODE), "i1", now - ran)
        protocol.start(redis, AttemptRef(queue, task, "token", NODE), 77, now - ran)
        protocol.end(redis, AttemptRef(queue, task, "token", NODE), End.complete("out"), now)

    return run_one


def test_the_numbers_are_those_of_the_queue(scrape, redis, run_one):
    now = time.time()
    run_one("t1", 20.5, 4000.5)
    protocol.enqueue(redis, Q, "t2", "in", now - 100)
    protocol.schedule(redis, Q, "t3", "in", now + 100, now)
    protocol.schedule(redis, Q, "t4", "in", now - 700, now - 800)
    protocol.cancel(redis, Q, "t3", "ann", None, now)
    protocol.delete(redis, Q, "t3")
    block(redis, "t5", "t2", Q)

    found = values(scrape())

    assert of(found, "tasks", queue=Q, state="pending") == 1
    assert of(found, "tasks", queue=Q, state="blocked") == 1
    assert of(found, "tasks", queue=Q, state="scheduled") == 1
    assert of(found, "tasks_finished_total", queue=Q, state="complete") == 1
    assert of(found, "tasks_finished_total", queue=Q, state="cancelled") == 1
    assert of(found, "tasks_enqueued_total", queue=Q) == 5
    assert 100 <= of(found, "oldest_pending_seconds", queue=Q) < 160
    assert 700 <= of(found, "oldest_overdue_seconds", queue=Q) < 760
    assert of(found, "tasks_runnable", queue=Q) == 1
    assert [
        of(found, name, queue=Q) for name in ("listeners", "slots", "slots_busy", "queue_paused")
    ] == [1, 1, 0, 0]
    assert of(found, "nodes", state="up") == 1
    assert of(found, "task_wait_seconds_sum", queue=Q) == pytest.approx(20.5)
    assert of(found, "task_run_seconds_sum", queue=Q, state="complete") == pytest.approx(4000.5)
    assert (of(found, "redis_up"), of(found, "build_info", version=__version__)) == (1, 1)


def test_tasks_that_wait_in_vain_and_groups_are_counted(scrape, redis):
    now = time.time()
    protocol.enqueue(redis, Q, "t1", "in", now)
    block(redis, "t2", "t1", "other")
    block(redis, "t3", "t1", "other", broken="cancel")
    protocol.cancel(redis, Q, "t1", "ann", None, now)
    protocol.settle(redis, "t1", now)
    block(redis, "t4", "t2", Q)
    for group in ("even", "odd"):
        protocol.open_group(redis, group, 60, now)
    enqueue(redis, "t5", Q, group="odd")
    protocol.cancel(redis, Q, "t5", "ann", None, now)
    protocol.settle_members(redis, "odd", ["t5"])

    found = values(scrape())

    assert of(found, "tasks_held", queue=Q) == 1
    assert of(found, "tasks_held", queue="other") == 0
    assert (of(found, "groups_unended"), of(found, "groups_bad")) == (2, 1)


def test_of_running_tasks_the_longest_and_the_most_silent_are_told_and_no_task_is_named(
    scrape, redis, cli
):
    now = time.time()
    for task, node, ran in (("t1", "host_1", 5000), ("t2", "host_2", 300)):
        protocol.register(redis, Q, node, "i1", {"beat_every": 10}, now)
        protocol.enqueue(redis, Q, task, "in", now - ran)
        protocol.pop(redis, Q, node, "i1")
        protocol.reserve(redis, AttemptRef(Q, task, "token", node), "i1", now - ran)
        protocol.start(redis, AttemptRef(Q, task, "token", node), 77, now - ran)
    protocol.order(redis, Q, "host_2", "drain", "ann")
    cli.hset(keys.task("t1"), mapping={"progress": "5 %", "progress_at": now - 50})
    cli.xadd(
        keys.log("t2"),
        {"attempt": 1, "line": 1, "at": now, "stream": "blueque", "text": "blueque: stack 1"},
    )

    text = scrape()

    found = values(text)
    assert 5000 <= of(found, "longest_running_seconds", queue=Q) < 5060
    assert 300 <= of(found, "longest_silent_seconds", queue=Q) < 360
    assert [of(found, name, queue=Q) for name in ("listeners", "slots", "slots_busy")] == [2, 2, 2]
    assert (of(found, "nodes", state="up"), of(found, "nodes", state="draining")) == (1, 1)
    assert not re.search("t1|t2|host_", text)


def test_a_histogram_adds_up(scrape, run_one):
    for number, ran in enumerate([0.5, 4.9, 5.0, 59.0, 61.0, 3599.0, 90_000.0]):
        run_one(f"t{number}", 0.0, ran, now=time.time())

    found = values(scrape())

    counts = [
        of(found, "task_run_seconds_bucket", queue=Q, state="complete", le=str(bound))
        for bound in BOUNDS
    ]
    assert counts == [1, 2, 3, 4, 5, 5, 5, 6, 6, 6, 6, 6, 7, 7]
    assert all(low <= high for low, high in pairwise(counts))
    assert of(found, "task_run_seconds_count", queue=Q, state="complete") == 7


def test_of_too_many_queues_the_rest_is_told_together(scrape, run_one):
    for number in range(4):
        run_one(f"t{number}", 1.0, 30.0, queue=f"q{number}")

    found = values(scrape(2))

    assert {dict(labels)["queue"] for name, *labels in found if name == "blueque_slots"} == {
        "q0",
        "q1",
        "other",
    }
    assert of(found, "tasks_enqueued_total", queue="other") == 2
    assert of(found, "task_run_seconds_count", queue="other", state="complete") == 2


def test_without_the_extra_it_says_what_to_install(url, tmp_path):
    (tmp_path / "prometheus_client.py").write_text("raise ImportError")
    for words in (["--once"], ["--listen", "127.0.0.1:0"]):
        done = subprocess.run(
            [*PROGRAM, *words, "--redis-url", url],
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert (done.returncode, done.stdout) == (78, "")
        assert done.stderr.startswith("blueque: serving metrics needs prometheus-client, which is")
        assert done.stderr.endswith("pip install '.[metrics]'\n")


@pytest.fixture
def serving(url):
    """Start the program, and return what asks it for a page."""
    programs = []

    def serving(address=url):
        program = subprocess.Popen(
            [*PROGRAM, "--listen", "127.0.0.1:0", "--redis-url", address],
            stderr=subprocess.PIPE,
            text=True,
        )
        programs.append(program)
        port = int(re.search(r":(\d+)/metrics", program.stderr.readline())[1])

        def ask(path="/metrics", method="GET"):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            connection.request(method, path)
            answer = connection.getresponse()
            body = answer.read().decode()
            connection.close()
            return answer.status, answer.getheader("Content-Type"), body

        return program, ask

    yield serving
    for program in programs:
        program.kill()
        program.wait()
        program.stderr.close()


def test_it_answers_and_leaves_at_sigterm(serving, run_one):
    run_one("t1", 1.0, 2.0)
    program, ask = serving()

    status, kind, body = ask()

    assert (status, kind.partition(";")[0]) == (200, "text/plain")
    assert of(values(body), "tasks_enqueued_total", queue=Q) == 1
    assert ask("/metrics?x=1")[0] == 200
    assert ask(method="POST")[0] == 405
    program.send_signal(signal.SIGTERM)
    assert program.wait(10) == 0


def test_without_redis_it_says_that_it_is_down(serving, proxy, run_one):
    run_one("t1", 1.0, 2.0)
    _, ask = serving(proxy.url)
    assert of(values(ask()[2]), "redis_up") == 1

    proxy.close()
    status, _, body = ask()

    assert status == 200
    assert of(values(body), "redis_up") == 0
    assert "blueque_tasks{" not in body


def test_while_redis_hangs_everybody_who_asks_gets_an_answer_in_time(own_server):
    one = exporter.Exporter(collector(Client(own_server.url, patience=0), timeout=0.3), timeout=0.3)
    assert of(values(one.scrape()), "redis_up") == 1
    with redis_py.Redis.from_url(own_server.url) as blocked:
        blocked.execute_command("CLIENT", "PAUSE", 5000, "ALL")
    told = []
    began = time.monotonic()
    asking = [threading.Thread(target=lambda: told.append(values(one.scrape()))) for _ in range(8)]

    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()

    assert [of(found, "redis_up") for found in told] == [0] * 8
    assert time.monotonic() - began < 2


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--listen", "0.0.0.0:0"], 5, "can be reached from other machines"),
        (["--listen", ":0"], 5, "--public"),
        (["--listen", "[::]:0"], 5, "--public"),
        (["--listen", "9464"], 2, "is not an address"),
        (["--listen", "no.such.host.invalid:1"], 78, "cannot listen on no.such.host.invalid:1"),
    ],
)
def test_where_it_may_not_or_cannot_listen_it_says_so(arguments, code, words):
    done = subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True, timeout=30)

    assert (done.returncode, done.stdout) == (code, "")
    assert words in done.stderr


def test_the_documentation_names_every_metric_and_no_other(scrape):
    table = DOCS.read_text().partition("## Metrics")[2].partition("\n## ")[0]

    told = {family.name for family in text_string_to_metric_families(scrape())}

    named = set(re.findall(r"`(blueque_\w+)", table)) - {"blueque_totals_"}
    assert {name.removesuffix("_total") for name in named} == told


# Schedules


@pytest.fixture
def client(url):
    client = Client(url, patience=0)
    yield client
    client.close()


def came(cli, name, *tasks):
    """Note tasks that have come of a schedule, the oldest first; each with its status."""
    for number, (what, status) in enumerate(tasks):
        task = f"{name}-{number}"
        text = f'{{"what":"{what}","planned":{number},"at":{number},"task":"{task}"}}'
        cli.lpush(keys.occurrences(name), text)
        if status is not None:
            cli.hset(keys.task(task), mapping={"status": status, "finished": 1000 + number})


@pytest.mark.parametrize(
    ("tasks", "success"),
    [
        ([], None),
        ([("made", "started")], None),
        ([("made", "complete"), ("made", "started")], 1000),
        ([("made", "complete"), ("triggered", "complete"), ("made", "failed")], 1001),
        ([("made", "complete"), ("skipped", "started")], 1000),
        ([("made", "failed"), ("made", "cancelled")], 0),
        ([("made", "failed"), ("made", "pending")], 0),
        ([("made", "complete"), ("made", None), ("made", "failed")], None),
        ([("made", "complete"), *[("made", "failed")] * 5], 0),
    ],
)
def test_the_last_success_is_that_of_the_newest_complete_task(scrape, client, cli, tasks, success):
    client.set_schedule("nightly", queue=Q, every="1h")
    came(cli, "nightly", *tasks)

    found = values(scrape())

    assert (
        found.get(("blueque_schedule_last_success_timestamp", ("schedule", "nightly"))) == success
    )


def test_many_schedules_are_read_in_batches_and_summed_up(scrape, client, cli, monkeypatch):
    monkeypatch.setattr("blueque.metrics.schedules.BATCH", 3)
    for name in ("a", "b", "c", "d", "other"):
        client.set_schedule(name, queue=Q, every="1h")
        cli.hset(keys.schedule(name), "skipped", 1)
        came(cli, name, ("made", "complete"))

    found = values(scrape(2))

    skipped = {
        dict(labels)["schedule"]: number
        for (name, *labels), number in found.items()
        if name == "blueque_schedule_occurrences_total" and ("what", "skipped") in labels
    }
    assert skipped == {"a": 1, "b": 1, "other": 3}
    succeeded = [labels for (name, *labels) in found if name.endswith("last_success_timestamp")]
    assert succeeded == [[("schedule", "a")], [("schedule", "b")]]


def test_a_schedule_that_makes_no_sense_ends_no_scrape(scrape, client, cli):
    client.set_schedule("nightly", queue=Q, every="1h")
    cli.hset(keys.schedule("nightly"), mapping={"at": "soon", "made": "many"})
    cli.zadd(keys.SCHEDULES, {"gone": 5})
    cli.lpush(keys.occurrences("nightly"), "made by hand")

    found = values(scrape())

    assert of(found, "schedule_occurrences_total", schedule="nightly", what="made") == 0
    assert of(found, "schedule_overdue_seconds", schedule="gone") == 0


def test_a_client_that_sends_nothing_is_let_go_without_a_traceback(monkeypatch, capsys):
    monkeypatch.setattr(exporter._Handler, "timeout", 0.01)
    serving = exporter.open_server(exporter.Exporter(list), "127.0.0.1", 0)
    thread = threading.Thread(target=serving.serve_forever, args=(0.01,))
    thread.start()

    with socket.create_connection(serving.server_address, timeout=20) as idle:
        assert idle.recv(1) == b""  # the server has closed it

    serving.shutdown()
    thread.join()
    serving.server_close()
    assert capsys.readouterr().err == ""
