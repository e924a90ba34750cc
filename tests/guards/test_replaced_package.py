"""The installed package is replaced under programs that run: none of them imports a part of it
late.
"""

from __future__ import annotations

import ast
import os
import shutil
import signal
import sys
import time
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest
from handlers import begin, ended, ledger, let_go, pid_of
from running import ROOT, Listener, Programs, keeper_of, until
from test_layers import Module, imports_of, modules

from blueque import __version__
from blueque.system.embedded_redis import Server

# Every import that a process begun before the replacement makes after it, of our package or by it.
# A keeper has a copy of our package, but not of what that imports.
RECORDER = """
    import os, sys

    class Recorder:
        @staticmethod
        def find_spec(name, path=None, target=None):
            if os.path.exists(SITE + "/replaced"):
                frame = sys._getframe(1)
                while "importlib" in frame.f_code.co_filename:
                    frame = frame.f_back
                caller = frame.f_code.co_filename
                is_copied = "blueque-keeper" in sys.orig_argv
                copies = [each for each in sys.meta_path if type(each).__name__ == "PackageCopy"]
                if is_copied and (not name.startswith("blueque") or copies[0].find_spec(name)):
                    return None
                if name.startswith("blueque") or caller.startswith(SITE + "/blueque/"):
                    with open(SITE + "/late", "a") as file:
                        file.write(f"{os.getpid()} {name} by {os.path.relpath(caller, SITE)}:{frame.f_code.co_name}\\n")

    SITE = os.path.dirname(__file__)
    if not os.path.exists(SITE + "/replaced"):
        sys.meta_path.insert(0, Recorder)
"""

WORK = """
    import logging, math, os, signal, sys, time

    IMPORTS

    def run(task):
        ledger = os.open("ledger", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(ledger, f"{task.id} {task.attempt} {os.getpid()}\\n".encode())
        os.close(ledger)
        print("printed before")
        how, *words = task.parameters.split()
        while not os.path.exists("go") and not os.path.exists(f"go.{task.id}"):
            time.sleep(0.005)
        print("printed after")
        use_everything(task)
        return globals()[how](task, *words)

    def use_everything(task):
        import blueque
        for name in {*blueque.__all__} - {"ForkingRunner", "archive", "feed"}:
            if "Client" in globals() or name in LIGHT:
                getattr(blueque, name)
        from blueque import InvalidType, RunningTask, TooLarge, current_task

        assert current_task() is task and isinstance(task, RunningTask)
        for odd in (math.nan, math.inf, -1, 7, 10**400, "copying", None, True, object(), [], b"x"):
            task.progress(odd)
            task.progress(odd, odd, odd, odd)
        with task.stage("one", 1, of=2), task.stage("odd", "first", of=math.nan):
            task.progress(0.5, "half")
        list(task.track(range(3), "counting"))
        assert task.checkpoint({"part": 1}) and task.checkpointed == {"part": 1}
        (task.checkpoint_dir / "model").write_text("weights")
        for wrong in (object(), "x" * 2**21):
            try:
                task.checkpoint(wrong)
            except (InvalidType, TooLarge):
                pass
        assert task.resources == {"gpu": task.resources["gpu"]}
        logging.getLogger("work").warning("logged by the handler")

    LIGHT = {"Fail", "HandBack", "InvalidType", "NotOwner", "Retry", "RetryLater", "RunningTask", "Task", "TooLarge",
             "current_task"}

    def complete(task):
        return "done"

    def use_client(task):
        from blueque import Client
        client = Client()
        queue = client.get_queue("next")
        first = queue.enqueue({"after": task.id})
        queue.enqueue_many(["a", "b"])
        queue.schedule("later", time.time() + 3600)
        queue.cancel(first)
        assert client.wait(first).status == "cancelled"
        snapshot = client.freeze("next", "pending")
        assert len(list(client.tasks_of(snapshot))) == 2 and client.thaw(snapshot)
        client.get_history(first), client.get_log(first), client.get_statistics("next")
        client.get_timeline(["next"], 60), client.get_feeds("next"), client.get_listeners()
        client.get_inspector().failures(["next"], 1), client.get_listener("next")
        queue.enqueue_many(["c"], keys=["c"], group="late")
        assert client.group("late").progress().members == 1
        return "done"

    def give_up(task):
        from blueque import Fail
        raise Fail("no such film")

    def postpone(task):
        from blueque import RetryLater
        raise RetryLater(3600, "not yet")

    def hand_back(task):
        from blueque import HandBack
        while not task.should_stop:
            time.sleep(0.005)
        raise HandBack

    def raise_error(task):
        return {}["a"]

    def return_nonsense(task):
        return object()

    def leave(task):
        sys.exit(3)

    def kill_itself(task):
        os.kill(os.getpid(), signal.SIGKILL)

    def eat(task):
        eaten = b"x" * 2**28
        stay(task)

    def leave_a_child(task):
        if os.fork() == 0:
            stay(task)
        return "done"

    def stay(task, why=""):
        while True:
            time.sleep(1000)
"""

# How each ends: the options of its task, its status, its error type.
ENDS = {
    "complete": ({}, "complete", None),
    "use_client": ({}, "complete", None),
    "give_up": ({}, "failed", "Fail"),
    "raise_error": ({}, "failed", "KeyError"),
    "return_nonsense": ({}, "failed", "result"),
    "leave": ({}, "failed", "exit"),
    "kill_itself": ({}, "failed", "signal"),
    "leave_a_child": ({}, "complete", None),
    "eat": ({"memory_limit": 2**27}, "failed", "memory_limit"),
    "stay cancel": ({}, "cancelled", None),
    # The last that begin: they must not strike before the package is replaced.
    "stay": ({"time_limit": 5, "lead": 1}, "failed", "time_limit"),
    "stay stall": ({"stall_limit": 5, "lead": 1}, "failed", "stall_limit"),
}


class Site:
    """A directory with the package, from which programs import it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.mkdir()
        self._install(self._copy("first"))
        (path / "sitecustomize.py").write_text(
            "\n".join(line.removeprefix("    ") for line in RECORDER.splitlines())
        )
        self.environ = {"PYTHONPATH": str(path)}

    def replace(self, kind: str, listener: Listener | None = None) -> None:
        """Have an empty package in the place of the package, or one in which every module has
        another name. listener: its keepers have begun.
        """
        for slot in () if listener is None else listener.slots():
            keeper_of(slot)
        new = self._path / "second"
        if kind == "empty":
            new.mkdir()
        else:
            self._copy("second")
            for module in [path for path in new.rglob("*.py") if path.stem != "__init__"]:
                module.rename(module.with_stem(f"{module.stem}_renamed"))
        (new / "__init__.py").write_text("")
        self._install(new)
        shutil.rmtree(self._path / "first")
        (self._path / "replaced").touch()

    def bring_back(self) -> None:
        self._install(self._copy("third"))

    def late(self, pids: Collection[int] | None = None) -> list[str]:
        """Return what has been imported by processes that were there before the replacement, or by
        these of them.
        """
        path = self._path / "late"
        lines = (
            [line.partition(" ") for line in path.read_text().splitlines()] if path.exists() else []
        )
        names = {name for pid, _, name in lines if pids is None or int(pid) in pids}
        return sorted(names - {"work by blueque/task_process/handlers.py:resolve"})  # the handler

    def _install(self, package: Path) -> None:
        """Have it be the package, at one blow: else an interpreter that just starts would find the
        one of these tests.
        """
        new = self._path / "link"
        new.symlink_to(package)
        new.rename(self._path / "blueque")

    def _copy(self, name: str) -> Path:
        # With its compiled modules, which are for files of this age: to compile them takes seconds.
        return Path(shutil.copytree(ROOT / "blueque", self._path / name))


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path / "site")


@pytest.fixture
def programs(url, tmp_path, site) -> Iterator[Programs]:
    with Programs(url, tmp_path, site.environ) as programs:
        programs.write(WORK.replace("IMPORTS", "import blueque"))
        yield programs


@pytest.fixture
def frail(own_server, tmp_path, site) -> Iterator[Programs]:
    with Programs(own_server.url, tmp_path, site.environ) as programs:
        programs.write(WORK.replace("IMPORTS", "import blueque"))
        yield programs


def is_clean(site: Site, log: str) -> bool:
    """Tell whether nothing was imported late, and nothing is missing."""
    assert site.late() == []
    assert [
        word
        for word in ("Traceback", "ModuleNotFoundError", "ImportError", "No module named")
        if word in log
    ] == []
    return True


@pytest.mark.parametrize("kind", ["empty", "renamed"])
def test_every_end_is_reported_though_the_package_was_replaced_under_task_and_listener(
    programs, site, kind
):
    listener = programs.listener(
        "work:run", "--resource", f"gpu={len(ENDS) + 2}", slots=len(ENDS) + 2
    )
    options = {"resources": {"gpu": 1}}
    postponed = begin(programs, "postpone", **options)
    handed_back = begin(programs, "hand_back", **options)
    tasks = {how: begin(programs, how, **options, **more) for how, (more, *_) in ENDS.items()}

    site.replace(kind, listener)
    let_go(programs)
    cancelled = tasks["stay cancel"].id
    errors = programs.directory / "spool" / f"{cancelled}@1" / "stderr"
    until(lambda: "logged by the handler" in errors.read_text(), what="that it only waits")
    programs.client.get_queue("work").cancel(cancelled)

    for how, (_, status, error_type) in ENDS.items():
        task = ended(programs.client, tasks[how].id, 60)
        assert (how, task.status, task.fields.get("error_type")) == (how, status, error_type), (
            task.error
        )
        lines = [line.text for line in programs.client.get_log(task.id)[0]]
        assert [line for line in lines if line.startswith("printed")] == [
            "printed before",
            "printed after",
        ]
        assert "logged by the handler" in lines
    until(
        lambda: programs.client.get_task(postponed.id).status == "scheduled",
        what="the hour in which it is run again",
    )
    listener.send(signal.SIGTERM)
    assert listener.wait(30) == 0
    task = programs.client.get_task(handed_back.id)
    assert task.status == "pending"
    assert programs.client.get_inspector().checkpoint(task.id)["value"] == '{"part":1}'
    assert is_clean(site, listener.log)


@pytest.mark.parametrize("options", [(), ("--warm",), ("--no-warm",)])
def test_a_listener_gets_its_first_task_after_the_replacement(programs, site, options):
    programs.write(
        """
        import asyncio
        import blueque

        async def run(task):
            task.client.get_fanout("films", to=["a", "b"])
            return f"{blueque.Fail.__name__} of {blueque.__version__}"
        """,
        "work.py",
    )
    listener = programs.listener("work:run", *options)
    slot, queue = listener.slots()[0], programs.client.get_queue("work")

    site.replace("empty")

    result = f"Fail of {__version__}"
    for _ in range(3):
        assert ended(programs.client, queue.enqueue("")).result == result
    keeper = keeper_of(slot)
    os.kill(keeper, signal.SIGKILL)
    for _ in range(3):
        assert ended(programs.client, queue.enqueue("")).result == result
    assert keeper_of(slot) != keeper
    assert listener.stop() == 0
    assert is_clean(site, listener.log)


def test_redis_goes_and_a_listener_dies_after_the_replacement(frail, own_server: Server, site):
    listener = frail.listener(
        "work:run", "--resource", "gpu=3", "--beat", "0.2s", "--lease", "2s", slots=3
    )
    options = {"resources": {"gpu": 1}}
    former = [begin(frail, "complete", **options).id for _ in range(3)]  # one for each slot
    for task_id in former:
        let_go(frail, task_id)
        assert ended(frail.client, task_id).status == "complete"
    reported, adopted = begin(frail, "complete", **options), begin(frail, "complete", **options)

    site.replace("empty", listener)
    own_server.kill()
    let_go(frail, reported.id)
    listener.says("; waiting")
    until((frail.directory / "spool" / f"{reported.id}@1" / "exit").exists, what="the exit record")
    own_server.start()
    assert ended(frail.client, reported.id).status == "complete"
    # the slot that takes its place is forked after the replacement
    os.kill(pid_of(adopted.node), signal.SIGKILL)
    until(
        lambda: frail.client.get_task(adopted.id).node not in (None, adopted.node),
        what="another listener",
    )
    following = begin(frail, "complete", **options)
    let_go(frail)

    for task_id in (adopted.id, following.id):
        assert ended(frail.client, task_id).status == "complete"
    tasks = [*former, reported.id, adopted.id, following.id]
    assert [run.task for run in ledger(frail)] == tasks
    assert listener.stop() == 0
    assert is_clean(site, listener.log)


def test_a_process_takes_another_task_after_the_replacement(programs, site):
    listener = programs.listener("work:run", "--reuse", "100", "--resource", "gpu=1")
    options = {"resources": {"gpu": 1}}
    first = begin(programs, "complete", **options)

    site.replace("empty", listener)

    let_go(programs, first.id)
    assert ended(programs.client, first.id).status == "complete"
    second = begin(programs, "complete", **options)
    let_go(programs)
    assert ended(programs.client, second.id).status == "complete"
    assert second.pid == first.pid
    assert listener.stop() == 0
    assert is_clean(site, listener.log)


def test_a_listener_whose_package_was_replaced_cannot_read_its_configuration_again_and_goes_on(
    programs, site
):
    listener = programs.listener("work:run", "--resource", "gpu=1")
    task = begin(programs, "complete", resources={"gpu": 1})

    site.replace("empty", listener)
    listener.send(signal.SIGHUP)
    listener.says("cannot reload the configuration (exit code 1; the lines above say why)")
    assert "replacing" not in listener.log
    site.bring_back()
    listener.send_again(signal.SIGHUP)
    listener.says("replacing 1 listener,")
    let_go(programs)

    assert ended(programs.client, task.id).status == "complete"
    assert listener.stop() == 0
    assert site.late() == []


def test_programs_that_tasks_run_are_reported_after_the_replacement(programs, site):
    programs.write(
        """
        import math, os, sys, time
        from pathlib import Path
        from blueque import current_task

        task = current_task()
        ledger = os.open("ledger", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(ledger, f"{task.id} {task.attempt} {os.getpid()}\\n".encode())
        while not Path("go").exists() and not task.should_stop:
            time.sleep(0.005)
        with task.stage("one", 1, of=2):
            task.progress(math.nan)
        task.checkpoint(1)
        print("printed")
        sys.exit(75 if task.should_stop else int(sys.stdin.read()))
    """,
        "program.py",
    )
    listener = programs.listener("--exec", sys.executable, "program.py", slots=3)
    queue = programs.client.get_queue("work")
    ids = [queue.enqueue(code) for code in ("0", "3", "0")]
    until(lambda: len(ledger(programs)) == 3, what="all of them")
    good, bad, cancelled = ids

    site.replace("renamed", listener)
    queue.cancel(cancelled)
    assert ended(programs.client, cancelled).status == "cancelled"
    let_go(programs)

    assert ended(programs.client, good).result == "printed"
    assert ended(programs.client, bad).fields["exit_code"] == "3"
    assert listener.stop() == 0
    assert is_clean(site, listener.log)


def test_a_scheduler_goes_on_after_the_replacement(frail, own_server: Server, site):
    scheduler = frail.scheduler(own_server.url)
    scheduler.says("blueque-scheduler")
    queue = frail.client.get_queue("work")
    first = queue.schedule("before", time.time())
    until(lambda: frail.client.get_task(first).status == "pending", what="the first in line")

    site.replace("empty")
    second = queue.schedule("after", time.time())
    until(lambda: frail.client.get_task(second).status == "pending", what="the second in line")
    scheduler.send(signal.SIGHUP)
    scheduler.says("cannot reload the configuration (exit code 1; the lines above say why)")
    own_server.kill()
    scheduler.says("; waiting")
    own_server.start()
    third = frail.client.get_queue("other").schedule("when Redis is back", time.time())
    until(lambda: frail.client.get_task(third).status == "pending", what="the third in line")

    assert scheduler.stop() == 0
    assert site.late() == []


# What may be imported in a function, though a program that runs for long may call it: module ->
# why.
LAZY = {
    "connection.addresses": "few have Sentinels; import_ahead reads the address of a program that runs for long",
    "connection.opening": "few have TLS; as for the address",
    "settings": "most programs that make a Client read no file; as for client",
    **dict.fromkeys(
        (
            "listener.processor",
            "model.client_settings",
            "model.inputs",
            "model.schedule",
            "model.task",
            "node.checkpoint_sync",
            "queries.signs",
            "queries.task_log",
            "task_process.main",
        ),
        "few payloads are compressed or encrypted; as for the address",
    ),
    "client": "a verb of the command line needs little of it; import_ahead imports the rest where programs run for long",
    "task_process.import_ahead": "that is what it is for",
    "settings.values": "few addresses have options of redis-py; as for client",
    "producer.settings": "few read or set settings of a queue; as for client",
    "producer.queue": "few wait for a whole queue; as for client",
    "queries.inspector": "the failures of a queue; as above",
    "task_process.handlers": "asyncio is for coroutines; a handler that is one is imported with it",
    "task_process.registered": "a handler need not enqueue; as for client",
    "task_process.running_task": "most tasks make no others; as above, and a keeper has copies",
}
# Programs that do not run tasks, nor for long, and what needs an extra.
ELSEWHERE = (
    "archives",
    "cli",
    "demo",
    "report",
    "spark",
    "system.embedded_redis",
    "metrics.server",
    "backlog.parquet",
    "tables.arrow",
)


def names_imported(module: Module, in_functions: bool) -> set[str]:
    """Return the modules of ours that a module imports in its functions, or outside of them."""
    inner = {
        id(node)
        for outer in ast.walk(module.tree)
        if isinstance(outer, ast.FunctionDef)
        or (isinstance(outer, ast.If) and "TYPE_CHECKING" in ast.unparse(outer.test))
        for node in ast.walk(outer)
    }
    functions = {
        id(node)
        for outer in ast.walk(module.tree)
        if isinstance(outer, ast.FunctionDef)
        for node in ast.walk(outer)
    }
    wanted = [
        node
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        and (id(node) in functions if in_functions else id(node) not in inner)
    ]
    return {name for name, _ in imports_of(wanted, module.path)}


def is_elsewhere(module: Module) -> bool:
    return any(f"{module.name}.".startswith(f"{room}.") for room in ELSEWHERE)


def test_nothing_that_runs_for_long_imports_a_part_of_the_package_late():
    ahead = set()
    line = [*names_imported(modules()["task_process.import_ahead"], in_functions=True)]
    line += ["node.main", "scheduler"]
    while line:
        name = line.pop()
        if name not in ahead:
            ahead.add(name)
            line += names_imported(modules()[name], in_functions=False)
    assert {"task_process.progress_arguments", "system.process_tree"} <= ahead

    for module in modules().values():
        late = names_imported(module, in_functions=True)
        if late and not is_elsewhere(module):
            assert module.name in LAZY, (
                f"{module.name} imports {sorted(late)} in a function: import it above"
            )
            assert late <= ahead, f"{module.name}: import_ahead lacks {sorted(late - ahead)}"


def test_every_exception_of_the_rule_is_needed():
    assert [name for name in LAZY if not names_imported(modules()[name], in_functions=True)] == []
