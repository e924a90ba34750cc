"""ForkingRunner: it forks and waits, as in 1.0.0."""

from __future__ import annotations

import signal

import pytest
from handlers import ended
from running import Programs, children_of, is_there, state_of, until

RUNNER = """
    import os, sys, time
    from pathlib import Path
    from blueque import Client, ForkingRunner

    def run(task):
        if task.parameters == "fail":
            raise ValueError("no such codec")
        if task.parameters == "exit":
            sys.exit(3)
        if task.parameters == "die":
            os.kill(os.getpid(), 9)
        while task.parameters == "wait" and not Path("go").exists():
            time.sleep(0.005)
        return {"ran": task.id, "leads": os.getsid(0) == os.getpid()}

    ForkingRunner(Client(sys.argv[1]), "work", run).run()
"""


@pytest.fixture
def programs(url, tmp_path):
    with Programs(url, tmp_path) as programs:
        yield programs


@pytest.fixture
def queue(programs):
    return programs.client.get_queue("work")


def start(programs):
    return programs.script(RUNNER.replace("sys.argv[1]", repr(programs.url)))


def is_started(programs, task_id):
    task = programs.client.get_task(task_id)
    return task if task.status == "started" else None


def test_each_task_runs_in_a_process_of_its_own_that_records_its_end(programs, queue):
    runner = start(programs)

    first, second = (ended(programs.client, queue.enqueue(number)) for number in (1, 2))

    assert first.result == {"ran": first.id, "leads": True}
    assert len({first.pid, second.pid, runner.pid}) == 3


@pytest.mark.parametrize(
    ("how", "error"),
    [("fail", "no such codec"), ("exit", "exit code 1"), ("die", "killed by SIGKILL")],
)
def test_a_task_that_fails_however_its_process_ends_is_failed_and_the_next_one_runs(
    programs, queue, how, error
):
    start(programs)

    failed, following = queue.enqueue(how), queue.enqueue("run")

    task = ended(programs.client, failed)
    assert (task.status, task.error) == ("failed", error)
    assert ended(programs.client, following).status == "complete"


def test_a_task_outlives_its_runner_and_the_next_runner_waits_for_it(programs, queue):
    runner = start(programs)
    task_id = queue.enqueue("wait")
    task = until(lambda: is_started(programs, task_id), what="its start")
    runner.send(signal.SIGKILL)
    runner.wait()
    following = queue.enqueue("run")

    start(programs)
    assert is_there(task.pid)
    (programs.directory / "go").touch()

    first, second = ended(programs.client, task_id), ended(programs.client, following)
    assert (first.status, first.pid, first.attempt) == ("complete", task.pid, 1)
    assert second.status == "complete" and first.finished <= second.started


def test_a_task_that_was_reserved_by_a_dead_runner_runs(programs, queue):
    reserve = f"""
        import os
        from blueque import Client
        Client({programs.url!r}).get_listener("work").listen()
        os.kill(os.getpid(), 9)
    """
    task_id = queue.enqueue("run")
    assert programs.script(reserve).wait() == -signal.SIGKILL
    assert programs.client.get_task(task_id).status == "reserved"

    start(programs)

    assert ended(programs.client, task_id).status == "complete"


def test_what_a_task_has_logged_into_memory_is_written_at_its_end(programs, queue):
    log = programs.directory / "log"
    memory = f"""
    import logging, logging.handlers
    file = logging.FileHandler({str(log)!r}, delay=True)
    logging.getLogger().addHandler(logging.handlers.MemoryHandler(1000, target=file))

    def run(task):
        logging.warning("ran")

    ForkingRunner("""
    text = RUNNER.replace("\n    ForkingRunner(", memory)
    programs.script(text.replace("sys.argv[1]", repr(programs.url)))

    ended(programs.client, queue.enqueue("run"))

    until(lambda: log.exists() and log.read_text() == "ran\n", what="the line in the log")


def test_other_children_of_the_program_are_left_alone(programs, queue):
    child = """
    import subprocess
    child = subprocess.Popen(["sh", "-c", "exit 7"])
    ForkingRunner("""
    text = RUNNER.replace("\n    ForkingRunner(", child)
    runner = programs.script(text.replace("sys.argv[1]", repr(programs.url)))

    ended(programs.client, queue.enqueue("run"))

    until(lambda: [*map(state_of, children_of(runner.pid))] == ["Z"], what="its own child alone")
