"""Whatever a task does to the files of its attempt, its listener reports its end and runs the next
task.
"""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
import spoiled
from handlers import ended, has_moved, ledger, pid_of, running
from running import Programs, patched, until
from spoiled import FILES, HUGE, KINDS

from blueque import Retry
from blueque.node.unreadable import guarded
from blueque.spool.attempt import Attempt
from blueque.system.embedded_redis import running_server

WORK = """
    import os, signal, time
    from pathlib import Path
    from spoiled import spoil

    def run(task):
        kind, ending, *names = task.parameters.split()
        ledger = os.open("ledger", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(ledger, f"{task.id} {task.attempt} {os.getpid()}\\n".encode())
        os.close(ledger)
        # Only a later attempt has a directory of its task around its own.
        begins = 1 if ".." in names else 0
        failures = task.failures or 0
        if failures < begins:
            raise ValueError("not yet")
        if failures > begins:
            return "done"
        directory = Path(os.environ["BLUEQUE_TASK_DIR"])
        print("a line")
        task.progress(1, 2)
        task.checkpoint("half")
        task.checkpoint_dir
        for name in names:
            spoil((directory / name).resolve() if name in (".", "..") else directory / name, kind)
        if ending == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if ending == "fail":
            raise ValueError("no such codec")
        if ending == "wait":
            Path(f"spoiled.{task.id}").touch()
            while not Path(f"go.{task.id}").exists():
                time.sleep(0.005)
        return "done"
"""
ENDINGS = ("return", "kill", "fail")
# else each file has one of the endings in turn, each kind one test
IS_LONG = bool(os.environ.get("BLUEQUE_SOAK"))
# A master would let a second pass before it replaces a listener that has not lived for as long.
QUICK = patched({"node.reporter.PACE": 0.05, "node.slots._YOUNG": 0.1})
# A task that leaves one of these, and is killed, has written its own end.
FORGED = {("record", "exit"), ("record", "exit.new")}


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """Programs with a server and a directory that all tests here share."""
    directory = tmp_path_factory.mktemp("spoiled")
    with running_server() as server, Programs(server.url, directory, QUICK) as programs:
        programs.write(WORK)
        programs.write(Path(spoiled.__file__).read_text(), "spoiled.py")
        yield programs
    # pytest could not, of what is so deep
    subprocess.run(["rm", "-rf", directory / "spool"], check=True)


@pytest.fixture(scope="module")
def listener(programs):
    return programs.listener("work:run")


@pytest.fixture(scope="module")
def shell(programs):
    """The queue of a listener whose tasks are scripts, and begin in the directory of their attempt."""
    programs.listener("--exec", "sh", "-c", 'cd "$BLUEQUE_TASK_DIR"; exec sh', queue="shell")
    return programs.client.get_queue("shell")


@pytest.fixture
def started(programs, listener):
    """The listener, which lives on, reports all ends and logs no traceback."""
    slots, before = listener.slots(), len(listener.log)
    yield listener
    if listener.slots() != slots:
        listener.ready()
    until(
        lambda: not os.listdir(programs.directory / "spool" / "open"),
        what="that all ends are reported",
    )
    assert "Traceback" not in listener.log[before:], listener.log[before:]


@pytest.fixture(autouse=True)
def no_waiting():
    """Fail, instead of waiting for a pipe for ever."""

    def give_up(*_):
        raise AssertionError("it waits")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(100)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("kind", KINDS)
def test_each_end_is_reported_and_the_next_task_runs_whatever_has_become_of_a_file(
    programs, started, kind
):
    slots, queue, tasks = started.slots(), programs.client.get_queue("work"), {}
    for number, name in enumerate(
        FILES if kind != "deep" else ("checkpoint", "exit", "result"), [*KINDS].index(kind)
    ):
        for ending in ENDINGS if IS_LONG else ENDINGS[number % 3 :][:1]:
            retry = Retry(max=1, backoff=0) if ending == "fail" else None
            tasks[name, ending] = queue.enqueue(f"{kind} {ending} {name}", retry=retry)

    ends = {which: ended(programs.client, task_id, 60) for which, task_id in tasks.items()}

    for (name, ending), task in ends.items():
        expected = (
            ("failed", None, "killed by SIGKILL")
            if ending == "kill"
            else ("complete", "done", None)
        )
        if ending != "kill" or (kind, name) not in FORGED:
            error = task.error and task.error.partition(":\n")[0]  # without its standard error
            assert (task.status, task.result, error) == expected, (name, ending)
        assert len(ledger(programs, task.id)) == (2 if ending == "fail" else 1), started.lines(
            task.id
        )
    assert started.slots() == slots, started.log


@pytest.mark.parametrize("name", [".", ".."])
@pytest.mark.parametrize("kind", ["gone", "empty", "pipe", "directory", "link", "loop"])
def test_each_end_is_reported_and_the_next_task_runs_whatever_has_become_of_its_directory(
    programs, started, kind, name
):
    slots, queue = started.slots(), programs.client.get_queue("work")
    before = 1 if name == ".." else 0

    def retry(ending):
        failures = before + (ending == "fail")
        return Retry(max=failures, backoff=0) if failures else None

    returned, killed, failed = [
        ended(programs.client, queue.enqueue(f"{kind} {ending} {name}", retry=retry(ending)))
        for ending in ENDINGS
    ]

    assert (
        returned.status == "complete"
        or returned.error == "the process left with exit code 1 and without a result"
    )
    assert killed.status == "failed" and killed.error.startswith("killed by SIGKILL")
    assert (failed.status, failed.result) == ("complete", "done")
    assert len(ledger(programs, failed.id)) == before + 2
    assert started.slots() == slots, started.log


# What another listener does, and orders

WITHOUT = {
    "pipe": FILES,
    "directory": FILES,
    "loop": FILES,
    "zero": FILES,
    "socket": FILES,
    **dict.fromkeys(
        # What is written over the file itself, and not put in its place, is all that is known of the
        # attempt.
        ("empty", "garbage", "fields", "huge"),
        tuple(name for name in FILES if name not in ("task", "exit", "exit.new")),
    ),
}


def spoiled_and_waiting(programs, kind):
    """Start a task that spoils all its files, and waits; return it when it has done so."""
    task_id = programs.client.get_queue("work").enqueue(f"{kind} wait {' '.join(WITHOUT[kind])}")
    until((programs.directory / f"spoiled.{task_id}").exists, what="its files")
    return running(programs, task_id)


def of_kinds(number):
    """Return the kinds of one test: all, or in the short form each third, so that each kind is in
    one of three tests.
    """
    return [*WITHOUT] if IS_LONG else [*WITHOUT][number::3]


@pytest.mark.parametrize("kind", of_kinds(0))
def test_a_task_that_has_spoiled_all_its_files_is_adopted_and_its_end_reported(
    programs, started, kind
):
    task = spoiled_and_waiting(programs, kind)
    os.kill(pid_of(task.node), signal.SIGKILL)
    has_moved(programs.client, task)

    (programs.directory / f"go.{task.id}").touch()

    assert ended(programs.client, task.id).result == "done"


@pytest.mark.parametrize("kind", of_kinds(1))
def test_how_an_adopted_task_with_spoiled_files_was_killed_is_told(programs, started, kind):
    task = spoiled_and_waiting(programs, kind)
    os.kill(pid_of(task.node), signal.SIGKILL)
    has_moved(programs.client, task)

    os.kill(task.pid, signal.SIGKILL)

    assert ended(programs.client, task.id).error.startswith("killed by SIGKILL")


@pytest.mark.parametrize("kind", of_kinds(2))
def test_a_task_that_has_spoiled_all_its_files_can_be_cancelled(programs, started, kind):
    slots, task = started.slots(), spoiled_and_waiting(programs, kind)

    programs.client.get_queue("work").cancel(task.id, "ann")

    assert ended(programs.client, task.id).status == "cancelled"
    assert started.slots() == slots, started.log


@pytest.mark.parametrize(
    ("how", "end"),
    [
        ("mkfifo result", ("failed", None, "the file `result` cannot be read: not a regular file")),
        ("mkdir result", ("failed", None, "the file `result` cannot be read: not a regular file")),
        (
            "ln -s /dev/zero result",
            ("failed", None, "the file `result` cannot be read: not a regular file"),
        ),
        (
            "ln -s result result",
            ("failed", None, "the file `result` cannot be read: not a regular file"),
        ),
        (
            "ln -s nothing result",
            ("failed", None, "the file `result` cannot be read: No such file or directory"),
        ),
        (
            "truncate -s 1T result",
            (
                "failed",
                None,
                f"the result takes {HUGE:,} bytes or more; the limit is 1,048,576 bytes; write a file "
                "and return its path",
            ),
        ),
        ("echo 5 >other; ln -s other result", ("complete", "5\n", None)),
        ("rm stdout; mkfifo stdout", ("complete", None, None)),
    ],
    ids=repr,
)
def test_a_program_whose_result_is_no_file_fails_and_says_so(programs, shell, how, end):
    task = ended(programs.client, shell.enqueue(how))

    assert (task.status, task.result, task.error) == end


def test_what_cannot_be_looked_at_is_said_once(tmp_path, caplog):
    attempt = Attempt(str(tmp_path), "no room")

    def look():
        raise ValueError("broken")

    assert [guarded(attempt, "progress", look, 7) for _ in range(3)] == [7, 7, 7]
    assert [record.getMessage().split(" of ")[0] for record in caplog.records] == [
        "cannot read the progress"
    ]
