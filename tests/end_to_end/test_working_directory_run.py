"""Where tasks work: in a directory of their own, with the modules that the table of their queue names."""

from __future__ import annotations

import os
import signal

import pytest
from handlers import ended
from handlers import files as files_of
from running import LISTENER, Programs, until

from blueque.system.embedded_redis import running_server

WORK = """
    import blueque, os, subprocess, sys, time
    from pathlib import Path

    AT_IMPORT, HOME = os.getcwd(), Path(__file__).parent

    def run(task):
        found = os.listdir()
        os.makedirs("cache/locked")
        Path("cache/locked/file").touch()
        os.chmod("cache/locked", 0o500)
        os.chmod("cache", 0o500)
        if task.parameters == "fail":
            raise ValueError("no such codec")
        if task.parameters == "later" and task.attempt == 1:
            raise blueque.RetryLater(0.01)
        if task.parameters == "wait":
            Path(HOME, "begun").touch()
            while not Path(HOME, "go").exists():
                time.sleep(0.005)
        import hidden
        look = "import hidden; print(hidden.NAME)"
        return {
            "found": found,
            "cwd": os.getcwd(),
            "pwd": os.environ["PWD"],
            "at import": AT_IMPORT,
            "module": hidden.NAME,
            "module of child": subprocess.check_output([sys.executable, "-c", look], text=True),
            "pid": os.getpid(),
        }
"""
TOML = """
    [listener]
    cwd = "task"

    [queues.own]
    handler = "work:run"
    pythonpath = "first"
    keep_cwd = "on-failure"
    reuse = 10

    [queues.program]
    exec = ["./program.sh"]
    pythonpath = ["first", "second"]

    [queues.plain]
    handler = "work:run"
    cwd = "listener"
    pythonpath = ["second"]
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    with (
        running_server() as server,
        Programs(server.url, tmp_path_factory.mktemp("directories")) as programs,
    ):
        programs.write(WORK)
        for name in ("first", "second"):
            (programs.directory / name).mkdir()
            programs.write(f"NAME = {name!r}", f"{name}/hidden.py")
        programs.write(TOML, "blueque.toml")
        programs.write(
            """
            #!/bin/sh
            touch file && echo "$(pwd) $PWD $PYTHONPATH" >"$BLUEQUE_TASK_DIR/result"
            """,
            "program.sh",
            mode=0o755,
        )
        yield programs


@pytest.fixture(scope="module")
def listener(programs):
    """One listener with a slot for three queues, each with its own table."""
    command = [*LISTENER, "own", "program", "plain", "--redis-url", programs.url]
    spool = programs.directory / "spool"
    started = programs.start([*command, "--spool", str(spool)])
    until(lambda: all(map(programs.client.get_inspector().listeners, ("own", "program", "plain"))))
    return started


def run(programs, queue, parameters="run"):
    """Return a task that has ended, and its working directory."""
    task = ended(programs.client, programs.client.get_queue(queue).enqueue(parameters))
    return task, str(files_of(programs, task) / "work")


def test_a_task_works_in_an_empty_directory_of_its_own_which_is_gone_when_its_end_is_known(
    programs, listener
):
    (first, _), (second, _) = ran = run(programs, "own"), run(programs, "own")
    for task, cwd in ran:
        assert task.result["found"] == []
        assert task.result["cwd"] == task.result["pwd"] == cwd
        assert task.result["at import"] == str(programs.directory)
        assert not os.path.lexists(cwd)
    assert first.result["pid"] == second.result["pid"]  # both of them in one process


def test_the_table_of_a_queue_names_modules_and_others_do_not_have_them(programs, listener):
    own, plain = run(programs, "own")[0].result, run(programs, "plain")[0].result
    assert (own["module"], own["module of child"]) == ("first", "first\n")
    assert (plain["module"], plain["cwd"]) == ("second", str(programs.directory))


def test_a_program_is_found_where_its_listener_was_started_and_works_elsewhere(programs, listener):
    task, directory = run(programs, "program")
    cwd, pwd, path = task.result.split()
    assert cwd == pwd == directory
    first, second = path.split(os.pathsep)[:2]
    assert (first, second) == (f"{programs.directory}/first", f"{programs.directory}/second")
    assert not os.path.lexists(cwd)


def test_the_directory_of_an_attempt_that_has_failed_stays_on_request(programs, listener):
    _, cwd = run(programs, "own", "fail")
    assert os.path.exists(f"{cwd}/cache/locked/file")
    task, cwd = run(programs, "own", "later")
    assert (task.attempt, task.result["found"]) == (2, [])
    assert not os.path.lexists(cwd)  # that of the first attempt, which has not failed


def test_who_adopts_a_task_removes_its_directory(programs):
    listener = programs.listener("work:run", queue="orphans")
    task_id = programs.client.get_queue("orphans").enqueue("wait")
    until((programs.directory / "begun").exists, what="the task")
    cwd = files_of(programs, programs.client.get_task(task_id)) / "work"
    assert os.listdir(cwd) == ["cache"]
    os.kill(listener.slots()[0], signal.SIGKILL)
    listener.says("adopt task=")
    (programs.directory / "go").touch()
    assert ended(programs.client, task_id).error_type == "ModuleNotFoundError"
    assert not os.path.lexists(cwd)
    assert listener.stop() == 0


def test_a_directory_for_modules_that_is_missing_is_refused_in_a_sentence(programs):
    config = programs.write('[queues.refused]\npythonpath = "nowhere"', "refused.toml")
    code, log = programs.run_to_end("refused", "--handler", "work:run", "--config", str(config))
    assert code == 78 and "/nowhere is not a directory" in log
