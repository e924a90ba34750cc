"""Hooks: what a class of the user does around each task, and when one has ended."""

from __future__ import annotations

import json

import pytest
from handlers import begin, ended, is_sound, let_go
from running import patched, until

from blueque import Retry

WORK = """
    import os, time
    from pathlib import Path
    from blueque import HandBack

    def run(task):
        print("handler")
        return globals()[task.parameters](task)

    def note(task):
        ledger = os.open("ledger", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(ledger, f"{task.id} {task.attempt} {os.getpid()}\\n".encode())
        os.close(ledger)

    def good(task):
        return {"answer": 42, "begun": os.environ["BEGUN"]}

    def bad(task):
        raise ValueError("no such film")

    def killed(task):
        os.kill(os.getpid(), 9)

    def wait(task):
        note(task)
        while True:
            time.sleep(0.005)
"""
HOOKS = """
    import json, os

    def tell(*words):
        file = os.open("told", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(file, (json.dumps(words) + "\\n").encode())
        os.close(file)

    class Hooks:
        def __init__(self):
            self.calls = 0

        def before_start(self, task):
            self.calls += 1
            os.environ["BEGUN"] = task.id
            print("before")

        def after_end(self, task, ended):
            self.calls += 1
            print("after")
            tell("after_end", task.id, *ended, self.calls, os.getpid())

        def on_end(self, task):
            tell("on_end", task.id, task.status, task.error, self.calls, os.getpid())

    class Bad:
        def before_start(self, task):
            raise OSError("no trace")

        def after_end(self, task, ended):
            os._exit(5)

        def on_end(self, task):
            raise LookupError("nobody to tell")

    class Greedy:
        def on_end(self, task):
            tell("eats", task.id)
            eaten = bytearray(2**31)
            tell("has eaten", task.id)

    class Slow:
        def on_end(self, task):
            while True:
                pass

    class Stuck:
        def on_end(self, task):
            import ctypes
            library, lock = ctypes.CDLL(None), ctypes.create_string_buffer(64)
            tell("locks", task.id)
            library.pthread_mutex_lock(lock)
            library.pthread_mutex_lock(lock)
"""
SHORT = patched({"node.end_hooks.TIME": 0.2, "node.end_hooks.LATE": 1.0, "node.end_hooks.MOST": 1})
LONG = patched({"node.end_hooks.MOST": 1})


@pytest.fixture
def programs(programs):
    programs.write(WORK)
    programs.write(HOOKS, "hooks.py")
    return programs


def run(programs, parameters, queue="work", **options):
    return ended(programs.client, programs.client.get_queue(queue).enqueue(parameters, **options))


def told(programs, task):
    """Return what the hooks have told of a task."""
    path = programs.directory / "told"
    lines = path.read_text().splitlines() if path.exists() else []
    return [words for words in map(json.loads, lines) if words[1] == task.id]


def all_told(programs, task, number=2):
    return until(lambda: len(found := told(programs, task)) == number and found, what="the hooks")


@pytest.mark.parametrize("option", [(), ("--spawn",), ("--no-warm",)], ids=repr)
def test_hooks_are_called_around_a_task_and_when_it_has_ended(programs, option):
    listener = programs.listener("work:run", "--hooks", "hooks:Hooks", *option)

    task = run(programs, "good")

    assert task.result == {"answer": 42, "begun": task.id}
    after, on_end = sorted(all_told(programs, task))
    assert after == ["after_end", task.id, "complete", task.result, None, None, 2, task.pid]
    assert on_end[:5] == ["on_end", task.id, "complete", None, 0]
    assert on_end[5] not in (task.pid, listener.pid, *listener.slots())
    lines = [line.text for line in programs.client.get_log(task.id)[0]]
    assert lines == ["before", "handler", "after"]


def test_a_failure_is_told_after_each_attempt_and_its_end_once(programs):
    programs.listener("work:run", environ={"BLUEQUE_HOOKS": "hooks:Hooks"})

    bad = run(programs, "bad", retry=Retry(max=1, backoff=0))

    assert (bad.status, bad.attempt) == ("failed", 2)
    *attempts, end = sorted(all_told(programs, bad, 3))
    error = "ValueError: no such film"
    assert [words[2:6] for words in attempts] == [["failed", None, error, "ValueError"]] * 2
    assert end[2:4] == ["failed", error]


def test_the_end_of_a_task_is_told_however_its_process_ends(programs):
    programs.write("[listener]\nhooks = 'hooks:Hooks'", "blueque.toml")
    programs.listener("work:run", grace="0")

    killed = run(programs, "killed")
    cancelled = begin(programs)
    programs.client.get_queue("work").cancel(cancelled.id)

    assert all_told(programs, killed, 1)[0][2:4] == ["failed", "killed by SIGKILL"]
    assert all_told(programs, cancelled, 1)[0][2] == "cancelled"


def test_a_program_has_hooks_too(programs):
    programs.listener("--hooks", "hooks:Hooks", "--exec", "sh", "-c", "echo $BEGUN")

    task = run(programs, "")

    assert task.result == task.id
    assert sorted(all_told(programs, task))[0][:4] == ["after_end", task.id, "complete", task.id]


def test_what_a_hook_raises_is_logged_and_changes_nothing(programs):
    listener = programs.listener("work:run", "--hooks", "hooks:Bad", environ={"BEGUN": "never"})

    task = run(programs, "good")

    assert (task.status, task.result) == ("complete", {"answer": 42, "begun": "never"})
    listener.says(
        f"hook on_end task={task.id} raised LookupError: nobody to tell ({programs.directory}"
    )
    lines = [line.text for line in programs.client.get_log(task.id)[0]]
    assert "OSError: no trace" in lines
    assert "-- blueque: the hook before_start raised OSError --" in lines
    assert is_sound(programs.client)


def test_a_listener_that_leaves_waits_for_the_hook_of_its_last_task(programs):
    made = programs.client.get_queue("work").enqueue("good")

    listener = programs.listener(
        "work:run", "--hooks", "hooks:Hooks", "--until-empty", is_awaited=False
    )

    assert listener.wait() == 0
    assert len(told(programs, programs.client.get_task(made))) == 2


def test_a_hook_has_a_limit_of_memory(programs):
    listener = programs.listener("work:run", "--hooks", "hooks:Greedy", environ={"BEGUN": ""})

    task = run(programs, "good")

    listener.says(f"hook on_end task={task.id} raised MemoryError")
    assert [words[0] for words in told(programs, task)] == ["eats"]


def test_a_hook_has_a_limit_of_time(programs):
    patch = patched({"node.end_hooks.TIME": 0.2})
    listener = programs.listener(
        "work:run", "--hooks", "hooks:Slow", environ={"BEGUN": "", **patch}
    )

    task = run(programs, "good")

    listener.says(f"hook on_end task={task.id} raised TimeoutError: it has run for 0.2 s")


def test_hooks_that_are_stuck_in_c_code_are_killed_and_keep_no_task(programs):
    queue = programs.client.get_queue("work")
    made = [queue.enqueue("good") for _ in range(3)]
    environ = {"BEGUN": "", **SHORT}

    listener = programs.listener(
        "work:run", "--hooks", "hooks:Stuck", "--until-empty", environ=environ, is_awaited=False
    )

    assert listener.wait() == 0
    for task in map(programs.client.get_task, made):
        assert task.status == "complete"
        listener.says(f"hook on_end task={task.id} does not end: killing pid=")
        assert [words[0] for words in told(programs, task)] == ["locks"]


def test_an_idle_listener_kills_a_hook_that_is_stuck_in_c_code(programs):
    listener = programs.listener(
        "work:run", "--hooks", "hooks:Stuck", "--beat", "0.2s", environ={"BEGUN": "", **SHORT}
    )

    task = run(programs, "good")

    listener.says(f"hook on_end task={task.id} does not end: killing pid=")


def test_a_listener_whose_task_waits_for_hooks_to_end_holds_no_other_task(programs, cli):
    environ = {"BEGUN": "", **LONG}
    programs.listener("work:run", "--hooks", "hooks:Stuck", environ=environ)
    all_told(programs, run(programs, "good"), 1)

    queue = programs.client.get_queue("work")
    queue.pause()
    second, third = queue.enqueue("good"), queue.enqueue("good")
    queue.resume()

    assert ended(programs.client, second).status == "complete"
    assert cli.lrange("blueque_pending_tasks_work", 0, -1) == [third]


def test_hooks_are_called_once_for_each_task_of_a_process_that_is_reused(programs):
    programs.listener("work:run", "--hooks", "hooks:Hooks", "--reuse", "2")

    tasks = [run(programs, "good"), run(programs, "good")]

    calls = [sorted(all_told(programs, task))[0][6] for task in tasks]
    assert len({task.pid for task in tasks}) == 1 and calls == [2, 4]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("hooks", "'hooks' is not of the form package.module:callable"),
        ("hooks:Nothing", "cannot import the hooks hooks:Nothing: hooks has no 'Nothing'"),
        ("nothing:Hooks", "cannot import the hooks nothing:Hooks: ModuleNotFoundError: No module"),
        ("bad:Empty", "the hooks bad:Empty have none of before_start, after_end, on_end"),
        ("bad:Wrong", "the hook bad:Wrong.after_end cannot be called with the task and its end: "),
        ("bad:Slow", "the hook bad:Slow.on_end is a coroutine function (async def): give a plain"),
        ("bad:Needs", "cannot import the hooks bad:Needs: TypeError: Needs.__init__() missing"),
    ],
)
def test_hooks_that_cannot_be_used_are_refused_at_the_start(programs, name, said):
    programs.write(
        """
        class Empty: pass
        class Wrong:
            def after_end(self, task): pass
        class Slow:
            async def on_end(self, task): pass
        class Needs:
            def __init__(self, name): pass
        """,
        "bad.py",
    )

    listener = programs.listener("work:run", "--hooks", name, is_awaited=False)

    assert listener.wait() == 78 and f"blueque-listener: {said}" in listener.log


def test_a_hook_that_runs_is_not_taken_for_a_process_that_a_task_has_left(programs):
    programs.write(
        HOOKS
        + """
    class Waiting:
        def on_end(self, task):
            tell("begins", task.id)
            while not os.path.exists("go"):
                pass
            tell("ends", task.id)
        """,
        "hooks.py",
    )
    programs.listener("work:run", "--hooks", "hooks:Waiting", environ={"BEGUN": ""})
    first = run(programs, "good")
    all_told(programs, first, 1)

    second = run(programs, "killed")

    all_told(programs, second, 1)
    let_go(programs)
    assert [words[0] for words in all_told(programs, first)] == ["begins", "ends"]
    assert "leaked" not in second.fields
