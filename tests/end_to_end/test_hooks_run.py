"""Hooks: what a class of the user does around each task."""

from __future__ import annotations

import json

import pytest
from handlers import ended, is_sound
from running import until

from blueque import Retry

WORK = """
    import os

    def run(task):
        print("handler")
        return globals()[task.parameters](task)

    def good(task):
        return {"answer": 42, "begun": os.environ["BEGUN"]}

    def bad(task):
        raise ValueError("no such film")
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

    class Bad:
        def before_start(self, task):
            raise OSError("no trace")

        def after_end(self, task, ended):
            os._exit(5)
"""


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


def all_told(programs, task, number=1):
    return until(lambda: len(found := told(programs, task)) == number and found, what="the hooks")


@pytest.mark.parametrize("option", [(), ("--no-warm",)], ids=repr)
def test_hooks_are_called_around_a_task(programs, option):
    programs.listener("work:run", "--hooks", "hooks:Hooks", *option)

    task = run(programs, "good")

    assert task.result == {"answer": 42, "begun": task.id}
    (after,) = all_told(programs, task)
    assert after == ["after_end", task.id, "complete", task.result, None, None, 2, task.pid]
    lines = [line.text for line in programs.client.get_log(task.id)[0]]
    assert lines == ["before", "handler", "after"]


def test_a_failure_is_told_after_each_attempt(programs):
    programs.listener("work:run", environ={"BLUEQUE_HOOKS": "hooks:Hooks"})

    bad = run(programs, "bad", retry=Retry(max=1, backoff=0))

    assert (bad.status, bad.attempt) == ("failed", 2)
    attempts = all_told(programs, bad, 2)
    error = "ValueError: no such film"
    assert [words[2:6] for words in attempts] == [["failed", None, error, "ValueError"]] * 2


def test_a_program_has_hooks_too(programs):
    programs.write("[listener]\nhooks = 'hooks:Hooks'", "blueque.toml")
    programs.listener("--exec", "sh", "-c", "echo $BEGUN")

    task = run(programs, "")

    assert task.result == task.id
    assert all_told(programs, task)[0][:4] == ["after_end", task.id, "complete", task.id]


def test_what_a_hook_raises_is_logged_and_changes_nothing(programs):
    programs.listener("work:run", "--hooks", "hooks:Bad", environ={"BEGUN": "never"})

    task = run(programs, "good")

    assert (task.status, task.result) == ("complete", {"answer": 42, "begun": "never"})
    lines = [line.text for line in programs.client.get_log(task.id)[0]]
    assert "OSError: no trace" in lines
    assert "-- blueque: the hook before_start raised OSError --" in lines
    assert is_sound(programs.client)


def test_hooks_are_called_once_for_each_task_of_a_process_that_is_reused(programs):
    programs.listener("work:run", "--hooks", "hooks:Hooks", "--reuse", "2")

    tasks = [run(programs, "good"), run(programs, "good")]

    calls = [all_told(programs, task)[0][6] for task in tasks]
    assert len({task.pid for task in tasks}) == 1 and calls == [2, 4]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("hooks:", "--hooks: 'hooks:' is not of the form package.module:callable"),
        ("hooks:Nothing", "cannot import the hooks hooks:Nothing: hooks has no 'Nothing'"),
        ("nothing:Hooks", "cannot import the hooks nothing:Hooks: ModuleNotFoundError: No module"),
        ("bad:Empty", "the hooks bad:Empty have none of before_start, after_end"),
        ("bad:Wrong", "the hook bad:Wrong.after_end cannot be called with the task and its end: "),
        (
            "bad:Slow",
            "the hook bad:Slow.after_end is a coroutine function (async def): give a plain",
        ),
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
            async def after_end(self, task, ended): pass
        class Needs:
            def __init__(self, name): pass
        """,
        "bad.py",
    )

    code, log = programs.run_to_end("work", "--hooks", name, "--handler", "work:run")

    assert code == (2 if said.startswith("--") else 78)
    assert f"blueque-listener: {said}" in log
