"""A slot and its fork server: whatever becomes of the fork server, tasks run as without it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from handlers import WORK, beat_of, begin, ended, ledger, let_go, pid_of
from running import (
    ROOT,
    Listener,
    Programs,
    fork_server_of,
    is_fork_server,
    is_there,
    parent_of,
    patched,
    state_of,
    task_processes_of,
    until,
)

from blueque.model import keys
from blueque.system import process
from blueque.task_process.main import NAME

# Does to a fork server, or to its middle process, what the file `fault` says.
SABOTAGE = f"""
    import errno, os, signal, sys, time

    exec(open({str(ROOT / "tests" / "patched" / "sitecustomize.py")!r}).read())

    def is_to(fault):
        try:
            return open("fault").read() == fault
        except OSError:
            return False

    def fork():
        who = "server" if os.getpid() == SERVER else "middle"
        if is_to(f"no processes for {{who}}"):
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        if is_to(f"kill {{who}}"):
            os.kill(os.getpid(), signal.SIGKILL)
        if is_to(f"stop {{who}}"):
            os.kill(os.getpid(), signal.SIGSTOP)
        pid = FORK()
        if pid and is_to(f"kill {{who}} after a fork"):
            os.kill(os.getpid(), signal.SIGKILL)
        return pid

    if "blueque.task_process.fork_server" in sys.orig_argv:
        SERVER, FORK, os.fork = os.getpid(), os.fork, fork
        if is_to("end at the start"):
            sys.exit(1)
        while is_to("hang at the start"):
            time.sleep(0.01)
"""
SOON = {"node.forks.ANSWER": 0.5, "node.forks.START": 1.0, "node.forks.TRY_AGAIN": 0.2}  # seconds
AT_ONCE = ["end at the start", "kill server", "kill middle", "kill middle after a fork"]
LATE = ["hang at the start", "stop server", "stop middle"]
NO_PROCESSES = ["no processes for server", "no processes for middle"]


@pytest.fixture
def programs(url, tmp_path) -> Iterator[Programs]:
    (tmp_path / "site").mkdir()
    environ = patched(SOON)
    environ["PYTHONPATH"] = f"{tmp_path}/site{os.pathsep}{environ['PYTHONPATH']}"
    with Programs(url, tmp_path, environ) as programs:
        programs.write(WORK)
        programs.write(SABOTAGE, "site/sitecustomize.py")
        yield programs


def have(programs: Programs, fault: str | None) -> None:
    """Let this happen from now on; None: nothing."""
    path = programs.directory / "fault"
    if fault is None:
        path.unlink()
    else:
        path.write_text(fault)


def run(programs: Programs, count: int) -> list[str]:
    """Run tasks one after the other, each of which completes at its first attempt."""
    queue = programs.client.get_queue("work")
    done = [ended(programs.client, queue.enqueue("quick")) for _ in range(count)]
    assert [(task.status, task.attempt) for task in done] == [("complete", 1)] * count
    return [task.id for task in done]


def run_once(programs: Programs, tasks: list[str]) -> bool:
    """Tell whether each of the tasks has run, and that once."""
    return [line.task for line in ledger(programs)] == tasks


def slot_of(listener: Listener) -> int:
    (slot,) = listener.slots()
    return slot


def name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def is_of_server(pid: int) -> bool:
    """Tell whether a process was forked by a fork server, and not by its slot."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return b"blueque.task_process.fork_server" in words


def spare_of_server(slot: int) -> int:
    """Return the task process that waits, once it is one that the fork server has forked."""
    (spare,) = until(
        lambda: [pid for pid in task_processes_of(slot) if is_of_server(pid)],
        what="a spare process",
    )
    return spare


def test_task_processes_are_children_of_the_slot_in_groups_of_their_own(programs):
    slot = slot_of(programs.listener("work:run"))
    run(programs, 1)
    server = fork_server_of(slot)
    spare = spare_of_server(slot)

    task = begin(programs, "wait")

    assert (task.pid, parent_of(task.pid)) == (spare, slot)

    assert (name_of(task.pid), os.getsid(task.pid)) == (NAME, task.pid)
    let_go(programs)
    assert ended(programs.client, task.id).fields.get("status") == "complete"
    assert fork_server_of(slot) == server


@pytest.mark.parametrize("fault", [*AT_ONCE, *LATE])
def test_whatever_becomes_of_it_tasks_run_once_and_another_one_is_started(programs, fault):
    have(programs, fault)
    listener = programs.listener("work:run", "--beat", "0.2s", "--lease", "2s")

    tasks = run(programs, 3)

    listener.says("fork server pid=")
    have(programs, None)
    slot = slot_of(listener)

    def lasting() -> int | None:
        """Return a fork server that outlives ten tasks. One that began before the fault was taken away
        does not.
        """
        tasks.extend(run(programs, 1))
        servers = [child for child in process.children(slot) if is_fork_server(child)]
        tasks.extend(run(programs, 10) if servers else [])
        return next(filter(is_there, servers), None)

    server = until(lasting, what="another fork server")
    assert run_once(programs, tasks)
    assert listener.is_running
    assert listener.stop() == 0
    until(lambda: not is_there(server), what="its end")


@pytest.mark.parametrize("fault", NO_PROCESSES)
def test_without_room_for_processes_the_task_waits(programs, fault):
    listener = programs.listener("work:run")
    tasks = run(programs, 1)
    have(programs, fault)
    waiting = [programs.client.get_queue("work").enqueue("quick") for _ in range(30)]

    listener.says("cannot run a task")
    have(programs, None)

    assert {ended(programs.client, task).attempt for task in waiting} == {1}
    assert run_once(programs, tasks + waiting)
    assert "has forked nothing" not in listener.log, "it is no reason for another one"


def test_a_task_that_runs_does_not_notice_its_end(programs):
    slot = slot_of(programs.listener("work:run"))
    task = begin(programs, "wait")
    server, _ = fork_server_of(slot), spare_of_server(slot)

    os.kill(server, signal.SIGKILL)
    until(lambda: not is_there(server), what="its end, reaped")
    let_go(programs)

    task = ended(programs.client, task.id)
    assert (task.status, task.attempt) == ("complete", 1)
    # If the fork server dies before it has told of the spare process, that passes for one of the task.
    assert task.fields.get("leaked") in (None, "1")


def test_one_that_is_stopped_while_it_is_not_needed_costs_one_wait(programs):
    listener = programs.listener("work:run", "--beat", "0.2s", "--lease", "2s")
    tasks = run(programs, 1)
    slot = slot_of(listener)
    server, _ = fork_server_of(slot), spare_of_server(slot)
    os.kill(server, signal.SIGSTOP)
    until(lambda: state_of(server) == "T", what="its stop")

    tasks += run(programs, 5)

    listener.says("has not answered in time")
    until(lambda: not is_there(server), what="its end, reaped")
    assert run_once(programs, tasks)


@pytest.fixture
def brief(url, tmp_path) -> Iterator[Programs]:
    """Programs in which a fork server is not needed after half a second without a task."""
    with Programs(url, tmp_path, patched({"node.prefork.UNNEEDED": 0.5})) as programs:
        programs.write(WORK)
        yield programs


def test_one_that_is_not_needed_ends_and_comes_with_the_next_task(brief):
    slot = slot_of(brief.listener("work:run", "--beat", "0.2s", "--lease", "2s"))
    assert not any(map(is_fork_server, process.children(slot))), "no task has come"
    run(brief, 1)
    server, spare = fork_server_of(slot), spare_of_server(slot)

    until(lambda: process.children(slot) == {spare}, what="its end, reaped")

    task = begin(brief, "wait")
    assert task.pid == spare
    assert fork_server_of(slot) != server
    (next_spare,) = until(lambda: task_processes_of(slot) - {spare}, what="the next spare process")
    assert is_of_server(next_spare)
    until(lambda: process.children(slot) == {spare, next_spare}, what="its end while a task runs")
    let_go(brief)
    assert ended(brief.client, task.id).fields.get("leaked") is None
    assert run(brief, 3)


def test_one_with_preloaded_modules_stays(brief):
    slot = slot_of(
        brief.listener("work:run", "--preload", "colorsys", "--beat", "0.2s", "--lease", "2s")
    )
    server, node = fork_server_of(slot), begin(brief, "wait").node

    until(lambda: beat_of(brief.client, "work", node) > 10, what="two seconds")

    assert fork_server_of(slot) == server


def test_no_task_runs_in_a_fork_of_a_listener_that_runs_code_of_the_user(programs):
    programs.write("def first(queues, ready):\n    return queues\n", "choice.py")
    slot = slot_of(programs.listener("work:run", "--select", "choice:first"))

    (spare,) = until(lambda: task_processes_of(slot), what="a spare process")

    assert is_of_server(spare)
    assert begin(programs, "wait").pid == spare
    let_go(programs)


def test_the_wait_for_its_answer_goes_on_through_signals(url, tmp_path):
    with Programs(url, tmp_path, patched({"node.forks.ANSWER": 60.0})) as programs:
        programs.write(WORK)
        listener = programs.listener("work:run")
        slot = slot_of(listener)
        run(programs, 1)
        server, spare = fork_server_of(slot), spare_of_server(slot)
        os.kill(server, signal.SIGSTOP)
        until(lambda: state_of(server) == "T", what="its stop")
        os.kill(spare, signal.SIGKILL)
        until(lambda: not is_there(spare), what="the end of the spare process")
        task = programs.client.get_queue("work").enqueue("quick")
        line = ("LLEN", keys.pending("work"))
        until(
            lambda: programs.client.connections.read(line) == [0],
            what="the task, for which there is no process",
        )

        for _ in range(10):
            before = switches_of(slot)
            os.kill(slot, signal.SIGCHLD)
            until(lambda before=before: switches_of(slot) > before, what="that the slot has woken")
        os.kill(server, signal.SIGCONT)

        assert ended(programs.client, task).attempt == 1
        assert "cannot run a task" not in listener.log and "fork server pid=" not in listener.log


def switches_of(pid: int) -> int:
    """Return how many times a process has begun to wait."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (count,) = [line.split()[1] for line in lines if line.startswith("voluntary_ctxt_switches")]
    return int(count)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_listener_without_some_of_its_standard_streams_runs_tasks(programs, closed):
    command = [sys.executable, "-m", "blueque.cli.listener", "work", "--handler", "work:run"]
    command += ["--redis-url", programs.url, "--spool", str(programs.directory / "spool")]
    started = programs.start(["sh", "-c", f'exec "$@" {closed}', "sh", *command])

    tasks = run(programs, 3)
    (slot,) = [pid for pid in process.children(started.pid) if name_of(pid) == "blueque-slot"]
    until(lambda: any(map(is_of_server, task_processes_of(slot))), what="one of the fork server")
    tasks += run(programs, 3)

    assert run_once(programs, tasks)
    for task in tasks:
        attempt = programs.directory / "spool" / f"{task}@1"
        assert [(attempt / name).read_text() for name in ("stdout", "stderr")] == ["", ""]


def test_it_goes_with_a_slot_that_is_killed_and_the_task_is_adopted(programs):
    slot = slot_of(programs.listener("work:run"))
    task, server = begin(programs, "wait"), fork_server_of(slot)

    os.kill(slot, signal.SIGKILL)

    until(lambda: not is_there(server), what="the end of its fork server")
    let_go(programs)
    task = ended(programs.client, task.id)
    assert (task.status, task.attempt) == ("complete", 1)


def test_a_listener_that_adopts_starts_one_when_it_reserves_a_task(programs):
    listener = programs.listener("work:run", "--beat", "0.2s", "--lease", "2s")
    slot, task = slot_of(listener), begin(programs, "wait")
    fork_server_of(slot)

    os.kill(slot, signal.SIGKILL)

    adopter = until(
        lambda: pid if (pid := pid_of(programs.client.get_task(task.id).node)) != slot else None,
        what="another listener",
    )
    assert process.children(adopter) == set()
    let_go(programs)
    assert ended(programs.client, task.id).status == "complete"
    assert run(programs, 1) and fork_server_of(adopter)


def test_it_ignores_what_ends_a_group_and_a_task_does_not(programs):
    listener = programs.listener("work:run")
    slot = slot_of(listener)
    task, server = begin(programs, "wait"), fork_server_of(slot)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        os.kill(server, number)

    os.kill(task.pid, signal.SIGTERM)

    assert ended(programs.client, task.id).status == "failed"
    assert (run(programs, 1) and fork_server_of(slot)) == server


def test_an_edited_handler_counts_at_once(programs):
    programs.write("def run(task):\n    return 'old'\n", "film.py")
    slot = slot_of(programs.listener("film:run", "--no-warm"))
    queue = programs.client.get_queue("work")
    assert ended(programs.client, queue.enqueue("")).result == "old"

    programs.write("def run(task):\n    return 'edited'\n", "film.py")

    assert ended(programs.client, queue.enqueue("")).result == "edited"
    assert fork_server_of(slot)


@pytest.mark.parametrize("options", [(), ("--no-warm",)])
def test_what_a_handler_imports_of_the_library_is_there_for_the_next(programs, options):
    programs.write(
        """
        import sys
        IS_THERE = "logging" in sys.modules
        import logging

        def run(task):
            return IS_THERE
        """,
        "film.py",
    )
    slot, queue = (
        slot_of(programs.listener("film:run", *options)),
        programs.client.get_queue("work"),
    )
    ended(programs.client, queue.enqueue(""))
    spare_of_server(slot)

    found = [ended(programs.client, queue.enqueue("")).result for _ in range(12)]

    assert (found[0], found[-1]) == (False, True)


@pytest.mark.parametrize("size", [1_000, 99_000, 101_000, 300_000])
def test_parameters_of_any_size_reach_a_task(programs, size):
    programs.write("def run(task):\n    return len(task.parameters['text'])\n", "film.py")
    programs.listener("film:run")

    task = programs.client.get_queue("work").enqueue({"text": "é" * size})

    assert json.loads(ended(programs.client, task).fields["result"]) == size


def test_the_preloaded_are_in_the_next_fork_server_too(programs):
    programs.write("import os\nBY = os.getpid()\n", "heavy.py")
    programs.write("def run(task):\n    import heavy\n    return heavy.BY\n", "film.py")
    slot = slot_of(programs.listener("film:run", "--preload", "heavy"))
    queue, first = programs.client.get_queue("work"), fork_server_of(slot)
    assert ended(programs.client, queue.enqueue("")).result == first

    os.kill(first, signal.SIGKILL)

    def used() -> bool:
        by = ended(programs.client, queue.enqueue("")).result
        return by != first and by in process.children(slot)

    until(used, what="a task of the next fork server")


TWO_FILES = """
    import os, sys
    sys.path.insert(0, os.path.dirname(__file__))
    import utils

    def run(task):
        return utils.NAME
"""


def test_modules_of_one_name_of_two_handlers_are_not_confused(programs):
    for name in ("a", "b"):
        (programs.directory / name).mkdir()
        programs.write("", f"{name}/__init__.py")
        programs.write(TWO_FILES, f"{name}/film.py")
        programs.write(f"NAME = {name!r}\n", f"{name}/utils.py")
    programs.write(
        """
        [queues.a]
        handler = "a.film:run"
        [queues.b]
        handler = "b.film:run"
        """,
        "blueque.toml",
    )
    spool = str(programs.directory / "spool")
    command = ["a", "b", "--redis-url", programs.url, "--spool", spool]
    programs.start([sys.executable, "-m", "blueque.cli.listener", *command])

    order = "aabbabbbaab"
    tasks = [programs.client.get_queue(name).enqueue("") for name in order]

    assert "".join(ended(programs.client, task).result for task in tasks) == order


LATE = """
    import os, socket, sys

    def closing(task):
        os.closerange(3, 4096)
        from blueque import Client
        return Client.__name__

    def replacing(task):
        file = os.open(__file__, os.O_RDONLY)
        for number in range(200, 260):
            os.dup2(file, number)
        from blueque import Client
        return Client.__name__

    def patching(task):
        class Own(socket.socket):
            pass
        socket.socket = Own
        import ssl
        return issubclass(ssl.SSLSocket, Own)

    def arguments(task):
        return sys.argv[1:]
"""


@pytest.mark.parametrize(
    ("name", "result"), [("closing", "Client"), ("replacing", "Client"), ("patching", True)]
)
def test_what_a_handler_does_comes_to_the_same_for_the_tenth_task(programs, name, result):
    programs.write(LATE, "film.py")
    programs.listener(f"film:{name}")
    queue = programs.client.get_queue("work")

    done = [ended(programs.client, queue.enqueue("")) for _ in range(12)]

    assert [(task.status, task.result) for task in done] == [("complete", result)] * 12


def test_a_handler_sees_the_arguments_of_its_listener(programs):
    programs.write(LATE, "film.py")
    slot = slot_of(programs.listener("film:arguments", "--no-warm"))
    queue = programs.client.get_queue("work")
    said = [ended(programs.client, queue.enqueue("")).result]
    spare_of_server(slot)

    said.append(ended(programs.client, queue.enqueue("")).result)

    assert all("film:arguments" in words and "--no-warm" in words for words in said)


def channels_of(pid: int) -> list[str]:
    """Return the pipes and sockets that a process has."""
    kept = []
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            kept.append(os.readlink(path))
    return [target for target in kept if target.startswith(("pipe", "socket"))]


@pytest.mark.parametrize("options", [("--exec", "sleep", "1000"), ("work:run", "--no-warm")])
def test_no_descriptor_of_the_fork_server_is_left_in_a_task_process(programs, options):
    slot = slot_of(programs.listener(*options))
    queue = programs.client.get_queue("work")
    for _ in range(2):
        task_id = queue.enqueue("wait")
        task = until(
            lambda task_id=task_id: (
                (now := programs.client.get_task(task_id)).status == "started" and now
            ),
            what="its start",
        )
        until(lambda pid=task.pid: not channels_of(pid), what="no pipe and no socket")
        spare_of_server(slot)
        queue.cancel(task.id)
        assert ended(programs.client, task.id).status == "cancelled"
