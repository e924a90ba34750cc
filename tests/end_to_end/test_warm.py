"""Task processes that are ready before their task: with the handler imported, some of it
preloaded.

An import is the user's code: whatever it does, the listener goes on, and a task fails with it as it
would without.
"""

from __future__ import annotations

import os
import signal
import time

import pytest
from handlers import ended, files, pid_of
from running import Programs, is_there, keeper_of, patched, task_processes_of, until

from blueque.system.embedded_redis import running_server

# An import that tells of itself, and does what the file `what` says; but for the first, which is
# the check at the start.
IMPORT = """
    import os, signal, sys, threading, time
    from pathlib import Path

    what = Path("what").read_text()
    ledger = os.open("imports", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(ledger, f"{os.getpid()}\\n".encode())
    os.close(ledger)
    IMPORTED_BY = os.getpid()
    if len(Path("imports").read_text().split()) > 1:
        exec(what)

    def run(task):
        print("running")
        return [IMPORTED_BY, os.getpid()]
"""


def imports(programs) -> list[int]:
    """Return which processes have begun to import the handler, one after the other."""
    path = programs.directory / "imports"
    return [int(line) for line in path.read_text().splitlines()] if path.exists() else []


def become(programs, what: str) -> None:
    """Have what is imported from now on do this."""
    (programs.directory / "what.new").write_text(what)
    (programs.directory / "what.new").rename(programs.directory / "what")


def spare_of(listener) -> int:
    """Return the pid of the one waiting task process."""
    (slot,) = listener.slots()
    (spare,) = until(
        lambda: len(found := task_processes_of(slot)) == 1 and found, what="a spare process"
    )
    return spare


def next_spare_of(programs, listener) -> int:
    """Run a task, and return the pid of the process that then waits for another."""
    _, pid = run(programs)
    (slot,) = listener.slots()
    (spare,) = until(lambda: task_processes_of(slot) - {pid}, what="a spare process")
    return spare


def warm_spare_of(programs, listener) -> int:
    spare = spare_of(listener)
    until(lambda: spare in imports(programs), what="its import")
    return spare


def run(programs):
    """Run a task, and return it and the pid of its process."""
    task = ended(programs.client, programs.client.get_queue("work").enqueue(""))
    return task, task.pid


@pytest.fixture
def programs(url, tmp_path):
    with Programs(url, tmp_path) as programs:
        programs.write(IMPORT)
        become(programs, "")
        yield programs


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """Programs that tests share which do no lasting harm, and their listener."""
    environ = patched({"node.slots._YOUNG": 0.1})
    with (
        running_server() as server,
        Programs(server.url, tmp_path_factory.mktemp("warm"), environ) as programs,
    ):
        programs.write(IMPORT)
        become(programs, "")
        yield programs, programs.listener("work:run", "--warm", grace="0.1s")


def prepare(programs, listener, what: str) -> int:
    """Have the next task process of a shared listener do this at its import, and return its pid."""
    warm_spare_of(programs, listener)
    become(programs, what)
    spare = next_spare_of(programs, listener)  # the one before has imported something else
    until(lambda: spare in imports(programs), what="its import")
    return spare


def test_the_handler_is_imported_before_there_is_a_task_and_once(shared):
    programs, listener = shared
    spare = prepare(programs, listener, "")

    task, pid = run(programs)

    assert (task.status, task.result, pid) == ("complete", [spare, spare], spare)
    assert imports(programs).count(spare) == 1


def test_a_cold_one_imports_nothing_before_its_task(programs):
    spare = next_spare_of(programs, programs.listener("work:run", "--no-warm"))
    until(lambda: os.getsid(spare) == spare, what="its waiting")
    assert spare not in imports(programs)

    assert run(programs)[0].result == [spare, spare]


def test_a_listener_with_gpus_imports_nothing_ahead_unless_told(programs):
    """What is imported may look for GPUs at once, and never again."""
    started = programs.listener("work:run", "--resource", "gpu=1")
    spare = next_spare_of(programs, started)
    until(lambda: os.getsid(spare) == spare, what="its waiting")
    assert spare not in imports(programs)
    started.stop()

    warm_spare_of(programs, programs.listener("work:run", "--resource", "gpu=1", "--warm"))


def test_what_an_import_prints_goes_to_the_files_of_the_task_that_runs_in_its_process(shared):
    programs, listener = shared
    what = "print('from the import'); print('a warning', file=sys.stderr); os.system('echo from a child')"
    prepare(programs, listener, what)

    for _ in range(2):
        task, _ = run(programs)
        printed = (files(programs, task) / "stdout").read_text()
        assert printed == "from the import\nfrom a child\nrunning\n"
        assert (files(programs, task) / "stderr").read_text() == "a warning\n"
    assert "a warning" not in listener.log and "from" not in listener.printed


def test_output_that_an_import_sends_elsewhere_stays_there(shared):
    programs, listener = shared
    opened = "os.open('own.log', os.O_WRONLY | os.O_CREAT | os.O_APPEND)"
    prepare(programs, listener, f"os.dup2({opened}, 1)")

    task, _ = run(programs)

    assert task.status == "complete"
    assert "running" in (programs.directory / "own.log").read_text()


@pytest.mark.parametrize("option", ["--warm", "--no-warm"])
def test_an_import_that_fails_ahead_is_tried_again_for_the_task_and_the_listener_lives(
    programs, option
):
    become(programs, "print('about to fail'); raise ValueError('no such codec')")
    started = programs.listener("work:run", option)
    (slot,) = started.slots()
    if option == "--warm":
        warm_spare_of(programs, started)

    task, _ = run(programs)

    assert (task.status, task.error) == ("failed", "ValueError: no such codec")
    assert "in <module>" in task.traceback
    assert (files(programs, task) / "stdout").read_text() == "about to fail\n", (
        "once, by the task's own try"
    )
    become(programs, "")
    assert run(programs)[0].status == "complete", "it is tried again by one that has failed ahead"
    assert started.slots() == [slot]


@pytest.mark.parametrize(
    ("what", "error"),
    [
        ("sys.exit(3)", "sys.exit(3)"),
        ("os._exit(3)", "the process left with exit code 3 and without a result"),
        ("os.kill(os.getpid(), 9)", "killed by SIGKILL"),
    ],
    ids=repr,
)
def test_a_process_that_its_import_ends_is_replaced_and_the_task_fails_with_the_reason(
    programs, what, error
):
    become(programs, what)
    programs.listener("work:run", "--warm")
    until(lambda: len(imports(programs)) == 2, what="an import ahead")

    task, _ = run(programs)

    assert (task.status, task.error) == ("failed", error)
    assert len(imports(programs)) <= 4, "not one process after the other for nothing"
    become(programs, "")
    until(lambda: run(programs)[0].status == "complete", what="a process without it")


def test_one_process_is_ready_however_fast_short_tasks_come(programs):
    (slot,) = programs.listener("work:run", "--warm").slots()

    for _ in range(4):
        run(programs)
        until(lambda: len(task_processes_of(slot)) == 1, what="the next process, and no other")


def test_an_idle_listener_does_not_replace_a_process_that_died_until_it_needs_one(programs):
    become(programs, "os._exit(3)")
    started = programs.listener("work:run", "--warm")
    started.says("ended before it had begun a task (exit code 3): importing nothing ahead for 60 s")
    count = len(imports(programs))

    time.sleep(1.0)  # what is proved is that nothing happens

    assert len(imports(programs)) == count
    become(programs, "")
    assert run(programs)[0].status == "complete"


def test_a_task_that_comes_while_its_process_still_imports_runs_when_that_is_done(shared):
    programs, listener = shared
    spare = prepare(programs, listener, "while not Path('go').exists(): time.sleep(0.005)")

    task_id = programs.client.get_queue("work").enqueue("")
    until(lambda: programs.client.get_task(task_id).status == "started", what="its start")
    (programs.directory / "go").touch()

    assert ended(programs.client, task_id).result == [spare, spare]


def test_an_import_that_never_ends_falls_under_the_time_limit_of_the_task(programs):
    become(programs, "time.sleep(1000)")
    warm_spare_of(programs, programs.listener("work:run", "--warm"))

    task = ended(programs.client, programs.client.get_queue("work").enqueue("", time_limit=0.3))

    assert (task.status, task.error_type) == ("failed", "time_limit")


@pytest.mark.parametrize(
    "what",
    [
        "time.sleep(1000)",
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.signal(signal.SIGHUP, signal.SIG_IGN)",
        "threading.Thread(target=time.sleep, args=(1000,)).start()",
        "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))",
    ],
    ids=repr,
)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_no_import_keeps_a_waiting_process_alive_when_its_listener_leaves_or_is_killed(
    shared, what, how
):
    programs, listener = shared
    spare, (slot,) = prepare(programs, listener, what), listener.slots()
    become(programs, "")

    os.kill(slot, how)

    until(lambda: not is_there(spare), what="its end")
    until(lambda: listener.slots() not in ([], [slot]), what="another listener")


@pytest.mark.parametrize(
    "what",
    [
        "signal.signal(signal.SIGTERM, lambda *_: None); signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
        "os.chdir('/'); os.environ.clear()",
        "import atexit; atexit.register(os._exit, 9)",
        "threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()",
        "import socket; socket.setdefaulttimeout(0.01); socket.socket = None",
        "import subprocess; subprocess.Popen(['sleep', '1000'])",
        "os.fork() or time.sleep(1000)",
        "if not os.fork(): raise ValueError",
        "os.fork()",
        "sys.stdout = sys.stderr = None",
        "sys.stdout.close()",
        "os.close(1)",
        "import logging; logging.basicConfig(force=True); logging.warning('hello')",
    ],
    ids=repr,
)
def test_what_an_import_changes_in_its_process_leaves_the_gate_working(shared, what):
    programs, listener = shared
    (slot,), before = listener.slots(), len(listener.log)
    prepare(programs, listener, what)

    for _ in range(2):
        task, pid = run(programs)
        # Where there is nothing left to print to, the handler fails at that, as it would if it
        # imported this itself.
        assert task.attempt == 1 and task.error_type in (None, "OSError", "ValueError"), (
            task.error,
            listener.log,
        )
        assert pid in imports(programs)
    assert listener.slots() == [slot]
    assert "before it had begun" not in listener.log[before:]


def test_an_import_that_closes_its_gate_costs_a_try_and_no_more(programs):
    become(programs, "os.closerange(3, 1000)")
    started = programs.listener("work:run", "--warm")
    started.says("before it had begun a task")

    assert run(programs)[0].status == "complete", started.log


def test_a_listener_killed_while_its_task_waits_for_an_import_has_it_run_anew(programs):
    become(programs, "while not Path('go').exists(): time.sleep(0.005)")
    started = programs.listener(
        "work:run", "--warm", "--beat", "0.2s", "--lease", "1s", "--lost-after", "5s"
    )
    warm_spare_of(programs, started)
    task_id = programs.client.get_queue("work").enqueue("")
    until(lambda: programs.client.get_task(task_id).status == "started", what="its start")

    os.kill(pid_of(programs.client.get_task(task_id).node), signal.SIGKILL)
    until(lambda: programs.client.get_task(task_id).attempt == 2, what="its second attempt")
    (programs.directory / "go").touch()

    task = ended(programs.client, task_id)
    assert (task.status, task.failures, task.interruptions) == ("complete", None, None)


# --preload


def test_a_preloaded_module_is_imported_once_in_each_keeper(programs):
    programs.write(
        "import os\nBY = os.getpid()\nopen('preloads', 'a').write(f'{BY}\\n')", "heavy.py"
    )
    programs.write("""
        def run(task):
            import heavy
            return heavy.BY
    """)
    started = programs.listener("work:run", "--preload", "heavy", slots=2)

    results = {run(programs)[0].result for _ in range(4)}

    keepers = {keeper_of(slot) for slot in started.slots()}
    assert results <= keepers
    assert {*map(int, (programs.directory / "preloads").read_text().split())} == keepers


def test_threads_that_a_preloaded_module_leaves_are_named_once_they_have_had_time_to_end(programs):
    programs.write(
        """
        import threading
        threading.Thread(target=threading.Event().wait, name="reporter", daemon=True).start()
        threading.Thread(target=threading.Event().wait, args=(0.2,), name="warming").start()
        """,
        "heavy.py",
    )
    programs.write("def run(task): pass")

    environ = patched({"task_process.keeper._OF_THREADS": 1.0})
    started = programs.listener("work:run", "--preload", "heavy", environ=environ)

    started.says(
        "preloaded modules have left threads: reporter: tasks are forked without them, and"
    )
    assert run(programs)[0].status == "complete"


@pytest.mark.parametrize(
    "text",
    ["raise ValueError('no such codec')", "import sys; sys.exit(3)", "import nothing_like_it"],
)
def test_a_module_that_cannot_be_preloaded_is_refused_at_the_start(programs, text):
    programs.write(text, "heavy.py")
    programs.write("def run(task): pass")

    started = programs.listener("work:run", "--preload", "heavy", is_awaited=False)

    assert started.wait() == 78
    assert "cannot preload heavy: " in started.log


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--preload", "heavy", "--exec", "true"], "need --handler"),
        (["--resource", "gpu"], "write NAME=AMOUNT"),
        (["--resource", "gpu=1", "--resource", "gpu=2"], "named twice"),
        (["--resource", "GPU=1"], "small letters"),
        (["--resource", "gpu=many"], "not a size"),
        (["--resource", "gpu=1.5"], "not a whole number"),
    ],
    ids=repr,
)
def test_what_makes_no_sense_is_refused(programs, options, said):
    work = [] if "--exec" in options else ["--handler", "work:run"]

    code, log = programs.run_to_end("work", *work, *options)

    assert code == 2 and said in log
