"""docs/guarantees.md: each row names a test that is there; and those rows that have no other home
are tested here.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import handlers
import pytest
from faults import Fault
from handlers import ELSEWHERE, begin, ended, is_sound, ledger, let_go, owner
from running import ROOT, is_there, state_of, until

from blueque import Client, OutcomeUnknown, Retry
from blueque.node.memory_kills import MemoryKills
from blueque.spool import outcome_record
from blueque.system import cgroup, process
from blueque.system.embedded_redis import running_server

WORK = handlers.WORK

QUICK = ("--beat", "0.2s", "--lease", "1.5s")


class Network:
    """The way of some programs to Redis: it can be cut, and mended."""

    def __init__(self, url: str) -> None:
        self._server = ("127.0.0.1", int(re.search(r":(\d+)", url.removeprefix("redis:"))[1]))
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listening.getsockname()[1]}/0"
        self._is_cut = False
        self._ends: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._is_cut = True
        for end in self._ends:
            _shut(end)

    def mend(self) -> None:
        self._is_cut = False

    def close(self) -> None:
        _shut(self._listening)
        self._listening.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            if self._is_cut:
                client.close()
                continue
            server = socket.create_connection(self._server)
            self._ends += [client, server]
            for one, other in ((client, server), (server, client)):
                threading.Thread(target=_pump, args=(one, other), daemon=True).start()


def _pump(one: socket.socket, other: socket.socket) -> None:
    with one:
        try:
            while data := one.recv(65536):
                other.sendall(data)
        except OSError:
            pass
        _shut(one)
        _shut(other)


def _shut(end: socket.socket) -> None:
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass


@pytest.fixture
def network(url) -> Iterator[Network]:
    network = Network(url)
    yield network
    network.close()


@pytest.mark.parametrize(
    ("page", "columns", "least"), [("guarantees.md", 5, 60), ("pipelines.md", 3, 14)]
)
def test_every_row_is_proved_by_a_test_that_is_there(page, columns, least):
    document = (ROOT / "docs" / page).read_text()
    files = [path.read_text() for path in Path(__file__).parents[1].rglob("test_*.py")]
    tests = {name for text in files for name in re.findall(r"^def (test_\w+)", text, re.M)}
    footnotes = dict(re.findall(r"^\[\^(\w+)\]: (`test_\w+`(?:, `test_\w+`)*)$", document, re.M))
    tables = re.findall(r"^\|.* \| proof \|\n\|[-|]+\n((?:\|.*\n)+)", document, re.M)
    promises = [row for table in tables for row in table.splitlines()]
    assert len(promises) >= least
    named = [re.findall(r"\[\^(\w+)\]", row.split("|")[columns]) for row in promises]
    assert [
        row for row, footnotes_of_row in zip(promises, named, strict=True) if not footnotes_of_row
    ] == []
    assert {footnote for footnotes_of_row in named for footnote in footnotes_of_row} == set(
        footnotes
    )
    assert set(re.findall(r"`(test_\w+)`", document)) - tests == set()


# Producers


def test_a_producer_without_an_answer_is_told_the_id_to_ask_for(client, proxy):
    queue = Client(proxy.url, patience=0.3).get_queue("work")
    queue.enqueue("first")
    proxy.arm(Fault.CUT_AFTER, having=b"EXEC")
    proxy.stop_listening()
    with pytest.raises(OutcomeUnknown) as unknown:
        queue.enqueue("second")
    assert proxy.has_struck
    assert client.get_task(unknown.value.task_id).parameters == "second"
    assert client.get_inspector().pending("work") == 2


# Processes


@pytest.mark.parametrize("file", ["memory.events", "vmstat"])
def test_a_task_that_the_kernel_kills_for_want_of_memory_says_so(tmp_path, monkeypatch, file):
    counted = tmp_path / file
    counted.write_text("oom 7\noom_kill 3\noom_group_kill 8\n")
    own = str(tmp_path) if file == "memory.events" else None
    monkeypatch.setattr(cgroup, "own_memory", lambda: own)
    monkeypatch.setattr(process, "VMSTAT", str(tmp_path / "vmstat"))
    kills = MemoryKills()
    kills.note()
    kills.note()
    assert not kills.are_new()

    counted.write_text("oom_kill 4\n")
    kills.note()

    assert kills.are_new()
    kills.note()
    assert not kills.are_new()


@pytest.mark.parametrize(
    ("record", "error"),
    [
        ({"signal": "SIGKILL", "error": "killed by SIGKILL"}, "killed by SIGKILL: out of memory; "),
        ({"exit_code": 137, "error": "exit code 137:\nKilled"}, "exit code 137: out of memory; "),
        ({"exit_code": 1, "error": "exit code 1"}, None),
        ({"signal": "SIGTERM", "error": "killed by SIGTERM"}, None),
    ],
)
def test_what_sigkill_has_ended_may_have_been_killed_for_want_of_memory(record, error):
    record = {"status": "failed", "error_type": "signal", **record}

    assert outcome_record.is_killed(record) is (error is not None)
    if error is not None:
        told = outcome_record.as_out_of_memory(record)
        assert told["error_type"] == "memory" and told["error"].startswith(error)
        assert told["error"].partition("\n")[2] == record["error"].partition("\n")[2]


def test_a_task_process_that_is_stopped_stands_still_until_its_stall_limit(programs):
    programs.listener("work:run", *QUICK)
    still = begin(programs)
    os.kill(still.pid, signal.SIGSTOP)
    until(lambda: state_of(still.pid) == "T", what="the standing still")
    beats = programs.client.get_inspector().registration("work", still.node)["beat"]
    until(
        lambda: (
            int(programs.client.get_inspector().registration("work", still.node)["beat"])
            > int(beats) + 5
        )
    )
    assert owner(programs.client, still.id) == still.node and is_there(still.pid)
    os.kill(still.pid, signal.SIGCONT)
    let_go(programs, still.id)
    assert ended(programs.client, still.id).result == "done"
    stalled = begin(programs, stall_limit=0.5, grace=5)
    os.kill(stalled.pid, signal.SIGSTOP)
    assert ended(programs.client, stalled.id).error_type == "stall_limit"
    assert not is_there(stalled.pid)


# The network


def test_a_network_cut_that_is_shorter_than_lost_after_costs_nothing(programs, network):
    direct, programs.url = programs.url, network.url
    programs.listener(
        "work:run", *QUICK, "--lost-after", "30s", spool="one", before=ELSEWHERE, is_awaited=False
    )
    task_id = programs.client.get_queue("work").enqueue("wait", retry=Retry(max=0))
    until(lambda: len(ledger(programs)) == 1, what="the task")
    programs.url = direct
    judge = programs.listener("work:run", *QUICK, spool="two", before=ELSEWHERE, is_awaited=False)
    network.cut()
    judge.says("its beat did not change")  # it can take nothing more, and its task runs on
    assert programs.client.get_task(task_id).status == "started"
    network.mend()
    let_go(programs)
    done = ended(programs.client, task_id)
    # On a busy machine it may have been put back before it began, for which an attempt counts, too.
    assert (done.result, [run.attempt for run in ledger(programs)]) == ("done", [done.attempt])
    assert is_sound(programs.client)


def test_after_a_network_cut_that_is_longer_than_lost_after_only_the_newest_attempt_counts(
    programs, network
):
    direct, programs.url = programs.url, network.url
    timing = (*QUICK, "--lost-after", "2s")
    first = programs.listener(
        "work:run", *timing, slots=2, spool="one", before=ELSEWHERE, is_awaited=False
    )
    queue = programs.client.get_queue("work")
    safe, once = queue.enqueue("wait", retry=Retry(max=0)), queue.enqueue("wait")
    until(lambda: len(ledger(programs)) == 2, what="both tasks")
    begun = {run.task: run.attempt for run in ledger(programs)}
    programs.url = direct
    programs.listener("work:run", *QUICK, spool="two", before=ELSEWHERE, is_awaited=False)
    network.cut()
    assert ended(programs.client, once).error_type == "lost"
    until(lambda: len(ledger(programs, safe)) == 2, what="the next attempt")
    network.mend()
    first.says("no longer the owner")  # the one that is not the newest is stopped
    until(
        lambda: programs.client.get_task(once).status == "started",
        what="the return of the one that nobody ran again",
    )
    let_go(programs)
    done = {task_id: ended(programs.client, task_id) for task_id in (safe, once)}
    assert done[once].attempt == begun[once] and done[safe].attempt > begun[safe]
    assert [run.attempt for run in ledger(programs, safe)] == [begun[safe], done[safe].attempt]
    assert {task.result for task in done.values()} == {"done"}
    assert len(ledger(programs, once)) == 1 and is_sound(programs.client)


# Redis


def test_what_redis_has_answered_survives_its_own_death_with_everysec():
    with running_server("--appendonly", "yes", "--appendfsync", "everysec") as server:
        client = Client(server.url)
        queue = client.get_queue("work")
        ids = [queue.enqueue(str(number)) for number in range(500)]
        # While a busy disk has not ended the last fsync, Redis gives nothing to the kernel.
        until(
            lambda: (
                "aof_buffer_length:0\r\n" in client.connections.read(("INFO", "persistence"))[0]
            ),
            what="the kernel has all",
        )
        server.kill()
        server.start()
        again = Client(server.url)
        assert [again.get_task(task_id).parameters for task_id in ids] == [
            str(number) for number in range(500)
        ]
        assert again.get_inspector().pending("work") == 500


def forget_start(cli, task):
    """Be a replica that has taken over and knows of the task, and not of its start."""
    before = task.fields
    with cli.pipeline() as pipe:
        pipe.delete(
            f"blueque_task_{task.id}",
            "blueque_started_tasks_work",
            f"blueque_reserved_tasks_work_{task.node}",
        )
        kept = {name: before[name] for name in ("queue", "parameters", "created", "updated")}
        pipe.hset(f"blueque_task_{task.id}", mapping={**kept, "status": "pending", "attempt": 0})
        pipe.lpush("blueque_pending_tasks_work", task.id)
        pipe.execute()


def test_a_running_task_that_redis_has_forgotten_is_put_back_at_the_next_beat(programs, cli):
    programs.listener("work:run", *QUICK)
    task = begin(programs)
    forget_start(cli, task)
    until(lambda: programs.client.get_task(task.id).status == "started", what="its return")
    assert owner(programs.client, task.id) == task.node
    back = programs.client.get_task(task.id)
    assert (back.pid, back.attempt, back.token) == (task.pid, 1, task.token)
    let_go(programs)
    assert ended(programs.client, task.id).result == "done"
    assert len(ledger(programs)) == 1 and is_sound(programs.client)


def test_the_result_of_a_task_that_redis_has_forgotten_counts_even_if_it_comes_before_the_next_beat(
    programs, cli
):
    programs.listener("work:run", "--beat", "30s", "--lease", "90s")
    task = begin(programs)
    forget_start(cli, task)
    let_go(programs)
    done = ended(programs.client, task.id, 5.0)
    assert (done.status, done.result, done.attempt) == ("complete", "done", 1)
    assert done.token == task.token
    following = ended(programs.client, programs.client.get_queue("work").enqueue("quick"))
    assert [run.task for run in ledger(programs)] == [task.id, following.id] and is_sound(
        programs.client
    )
