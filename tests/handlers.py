"""What tasks do in tests of listeners that die, of limits and of cancelling, and the proof that
they were doing it.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any, NamedTuple

import redis as redis_py
from running import PATIENCE, Programs, is_there, until

from blueque import Client, Task
from blueque.audit.audit import audit
from blueque.model import keys
from blueque.spool.attempt import Attempt

# The parameters say what to do, in words. Each task notes in the ledger when it is in the midst of
# it.
WORK = """
    import os, signal, subprocess, sys, time
    from pathlib import Path

    from blueque import Fail, RetryLater


    def run(task):
        how, *words = task.parameters.split()
        return globals()[how](task, *words)

    def note(task):
        ledger = os.open("ledger", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(ledger, f"{task.id} {task.attempt} {os.getpid()}\\n".encode())
        os.close(ledger)

    def quick(task):
        note(task)
        return "done"

    def wait(task):
        note(task)
        await_word(task)
        return "done"

    def await_word(task):
        while not Path("go").exists() and not Path(f"go.{task.id}").exists():
            time.sleep(0.005)

    def ignore(task):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        return wait(task)

    def finish(task):
        signal.signal(signal.SIGTERM, lambda *_: Path(f"go.{task.id}").touch())
        return wait(task)

    def complain(task):
        def complain(*_):
            raise RuntimeError("do not disturb")
        signal.signal(signal.SIGTERM, complain)
        return wait(task)

    def drop_out_on_term(task):
        signal.signal(signal.SIGTERM, lambda *_: os._exit(9))
        return wait(task)

    def drop_out(task, code):
        wait(task)
        os._exit(int(code))

    def fail(task):
        note(task)
        raise ValueError("no such codec")

    def fail_at_first(task):
        if task.attempt == 1:
            fail(task)
        return [task.attempt, os.environ["BLUEQUE_ATTEMPT"]]

    class Flaky(ConnectionError):
        pass

    def raise_own_error(task):
        note(task)
        raise Flaky

    def raise_key_error(task):
        note(task)
        return {}["a"]

    def kill_itself(task):
        note(task)
        os.kill(os.getpid(), signal.SIGKILL)

    def give_up(task):
        note(task)
        raise Fail("no such film")

    def ask_for_more_time(task, seconds):
        note(task)
        if task.attempt == 1:
            raise RetryLater(float(seconds))
        return "done"

    def fail_then_wait(task):
        return fail(task) if task.attempt == 1 else wait(task)

    def nap(task, seconds):
        note(task)
        time.sleep(float(seconds))
        return "done"

    def first_nap(task, seconds):
        return nap(task, seconds if task.attempt == 1 else 0)

    def await_warning(task):
        note(task)
        while not task.should_stop:
            time.sleep(0.005)
        return "has heeded the warning"

    def tell_progress(task, times):
        note(task)
        for number in range(int(times)):
            task.progress(number, int(times))
            time.sleep(0.1)
        return "done"

    def tell_progress_and_wait(task, times):
        tell_progress(task, times)
        return wait(task)

    def spawn(task, *words):
        child = subprocess.Popen([sys.executable, "-c", EAT, *words], stdout=subprocess.PIPE)
        child.stdout.readline()
        note(task)
        return child

    # Takes so many MiB and uses the processor for so many seconds, says so, and waits.
    EAT = (
        "import sys, time\\n"
        "eaten = b'x' * (int(sys.argv[1]) << 20)\\n"
        "end = time.process_time() + float(sys.argv[2])\\n"
        "while time.process_time() < end: pass\\n"
        "print(flush=True)\\n"
        "time.sleep(float(sys.argv[3]))\\n"
    )

    def have_a_child_eat(task, mebibytes):
        spawn(task, mebibytes, "0", "1000").wait()

    def eat_until_warned(task, mebibytes):
        eaten = b"x" * (int(mebibytes) << 20)
        return await_warning(task)

    def share(task, mebibytes, children, seconds):
        eaten = b"x" * (int(mebibytes) << 20)
        pids = [os.fork() or stay(float(seconds)) for _ in range(int(children))]
        note(task)
        for pid in pids:
            os.waitpid(pid, 0)
        return "done"

    def stay(seconds):
        time.sleep(seconds)
        os._exit(0)

    def use(task, how):
        spawn(task, "60", "0.3", "0").wait()
        await_word(task)
        if how == "fail":
            raise ValueError("no such codec")
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        return "done"

    def leave_children(task, *kinds):
        sleep = ["sleep", "1000"]
        commands = {
            "plain": (sleep, False),
            "session": (sleep, True),
            "twice": (["sh", "-c", "setsid sleep 1000 & exec true"], True),
            "deaf": (["sh", "-c", "trap '' TERM; echo; exec sleep 1000"], False),
            "short": (["sh", "-c", "trap '' TERM; echo; exec sleep 0.5"], False),
        }
        for kind in kinds:
            command, is_leader = commands[kind]
            child = subprocess.Popen(command, start_new_session=is_leader, stdout=subprocess.PIPE)
            if kind in ("deaf", "short"):
                child.stdout.readline()                # else SIGTERM might be there before its trap
        return wait(task)
"""


class Run(NamedTuple):
    """One line of the ledger: an attempt, and the process that said so."""

    task: str
    attempt: int
    pid: int


def ledger(programs: Programs, task_id: str | None = None) -> list[Run]:
    """Return which attempts have been in the midst of their work."""
    path = programs.directory / "ledger"
    lines = path.read_text().splitlines() if path.exists() else []
    runs = [
        Run(task, int(attempt), int(pid)) for task, attempt, pid in (line.split() for line in lines)
    ]
    return [run for run in runs if task_id in (None, run.task)]


def begin(programs: Programs, how: str = "wait", queue: str = "work", **options: Any) -> Task:
    """Put a task in line and return it when it is certainly running."""
    return running(programs, programs.client.get_queue(queue).enqueue(how, **options))


def running(programs: Programs, task_id: str, attempt: int = 1) -> Task:
    """Return the task when it is in the midst of this attempt: it says so itself, Redis says so,
    its process is there.
    """

    def said() -> list[Run]:
        return [run for run in ledger(programs, task_id) if run.attempt == attempt]

    (run,) = until(said, what=f"attempt {attempt}")
    task = programs.client.get_task(task_id)
    assert (task.status, task.attempt, task.pid) == ("started", attempt, run.pid)
    assert is_there(run.pid)
    return task


def children_of_task(task_id: str) -> set[int]:
    """Return the processes that the task has started, wherever they have gone: they have its
    environment.
    """
    mark = f"BLUEQUE_TASK_ID={task_id}".encode()
    found = set()
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb", buffering=0) as file:
            if mark in file.read().split(b"\0"):
                found.add(int(name))
    return {pid for pid in found if is_there(pid)}


def let_go(programs: Programs, task_id: str | None = None) -> None:
    """Let one task end, or all."""
    (programs.directory / (f"go.{task_id}" if task_id else "go")).touch()


def ended(client: Client, task_id: str, seconds: float = PATIENCE) -> Task:
    """Wait until the task has ended, in whatever way, and return it."""

    def look() -> Task | None:
        task = client.get_task(task_id)
        return task if task.status in ("complete", "failed", "cancelled") else None

    return until(look, seconds, f"the end of task {task_id}")


def owner(client: Client, task_id: str) -> str:
    """Return the node that has the started task; the reserved lists, the started set and the hash
    must agree on it.
    """
    task = client.get_task(task_id)
    assert task.status == "started", task.fields
    queue = task.queue or ""
    (lists, members) = client.connections.read(
        ("KEYS", keys.reserved(queue, "*")), ("SMEMBERS", keys.started(queue))
    )
    held = (
        client.connections.read(*[("LRANGE", key, 0, -1) for key in sorted(lists)]) if lists else []
    )
    having = [
        key for key, ids in zip(sorted(lists), held, strict=True) for each in ids if each == task_id
    ]
    assert having == [keys.reserved(queue, task.node or "")], "not in the one list of its node"
    mentioned = [member for member in members if member.endswith(f" {task_id}")]
    assert mentioned == [keys.started_member(task.node or "", task.pid or 0, task_id)], (
        "not once in the started set"
    )
    return task.node or ""


def pid_of(node: str) -> int:
    return int(node.rpartition("_")[2])


def has_moved(client: Client, task: Task, seconds: float = PATIENCE) -> str:
    """Wait until another listener than that of the snapshot has the task, and return its node."""
    until(
        lambda: client.get_task(task.id).node not in (None, task.node), seconds, "another listener"
    )
    return owner(client, task.id)


def files(programs: Programs, task: Task, attempt: int = 1, spool: str = "spool") -> Path:
    """Return the directory of an attempt."""
    name = f"{task.id}@1" if attempt == 1 else f"{task.id}/{attempt}"
    return programs.directory / spool / name


def has_begun(directory: Path) -> bool:
    """Tell whether the attempt with these files has begun to run."""
    return Attempt(str(directory), "").has_begun()


def beat_of(client: Client, queue: str, node: str) -> int:
    """Return how many times the listener has shown that it lives; -1 when it is not known."""
    known = client.get_inspector().registration(queue, node)
    return int(known.get("beat", -1))


# A process that sees none of the others here, as on another machine.
ELSEWHERE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


def make_due(cli: redis_py.Redis, schedule: str) -> None:
    """Have a planned time of a schedule be due since a second."""
    due = int(cli.time()[0]) - 1
    cli.hset(keys.schedule(schedule), mapping={"planned": due, "at": due, "last": due - 3600})
    cli.zadd(keys.SCHEDULES, {schedule: due})


def is_sound(client: Client, settle: float = 0.3) -> bool:
    """Tell whether an audit finds nothing wrong; what it has found is the failure."""
    findings = [
        finding.sentence for finding in audit(client.connections, settle) if not finding.is_warning
    ]
    assert findings == []
    return True
