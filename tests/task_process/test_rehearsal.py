"""The rehearsal of a fork server, and that of a task process that waits, in an interpreter of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
    import contextlib, dis, os, sys
    from blueque.spool.spool import Spool
    from blueque.spool.task_spool import TaskSpool
    from blueque.task_process import main
    from blueque.task_process.rehearsal import rehearse
    from blueque.task_process.running_task import current_task

    def state():
        descriptors = []
        for number in range(300):
            with contextlib.suppress(OSError):
                descriptors.append((number, os.fstat(number).st_dev, os.fstat(number).st_ino))
        signals = [line for line in open("/proc/self/status") if line.startswith(("SigB", "SigI", "SigC"))]
        return dict(os.environ), descriptors, signals, os.listdir(f"{sys.argv[1]}/blanks")

    def is_quicker(function):
        quicker, plain = (
            [each.opname for each in dis.get_instructions(function, adaptive=adaptive)] for adaptive in (True, False)
        )
        return quicker != plain

    Spool(sys.argv[1], 2**20).open()
    main.settle(2**20)
    os.environ["BLUEQUE_NODE"] = "outer"
    before = state()
    assert not is_quicker(main._run)

    rehearse(TaskSpool(sys.argv[1], 2**20, os.getppid()))

    assert state() == before
    assert {is_quicker(each) for each in (main.live, main._get_ready, main._run)} == {True}
    assert current_task().id == ""
    print("printed")
"""

PRACTICE = (
    PROGRAM.partition("    rehearse(")[0].replace("import rehearse", "import practise")
    + """
    lives, live = [], main.live
    main.live = lambda *arguments, **named: lives.append(live(*arguments, **named))
    {first}
    before = state()
    practise(TaskSpool(sys.argv[1], 2**20, os.getppid()))

    assert state() == before
    assert current_task().id == ""
    print(len(lives))
"""
)

WAITING = """
    import os, select, sys
    from blueque.spool.task_spool import TaskSpool
    from blueque.task_process import handshake, main

    practised, practise = os.pipe()
    theirs, ours = handshake.make()
    has_task = sys.argv[1].endswith("-with-task")
    if has_task:
        handshake.assign(ours, handshake.Assignment(sys.argv[1], {}, {}, task=("1", {})))
    if os.fork() == 0:
        os.close(ours)
        origin = main.Origin(practise=lambda: os.write(practise, b"practised"))
        os._exit(main.live(None, TaskSpool(sys.argv[1], 2**20), theirs, origin=origin))
    os.close(theirs)
    os.close(practise)
    if has_task:
        os.close(ours)
    print(os.read(practised, 100))
"""


def run(program: str, spool: Path) -> str:
    text = "\n".join(line.removeprefix("    ") for line in program.splitlines())
    done = subprocess.run([sys.executable, "-c", text, str(spool)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_it_makes_the_code_of_a_task_process_quicker_and_leaves_nothing_behind(tmp_path):
    assert run(PROGRAM, tmp_path / "spool") == "printed\n"


def test_without_a_spool_it_does_nothing(tmp_path):
    without = PROGRAM.replace("TaskSpool(sys.argv[1],", "TaskSpool('/proc/none',")

    assert run(without.replace("== {True}", "== {False}"), tmp_path / "spool") == "printed\n"


@pytest.mark.parametrize(
    ("first", "lives"),
    [
        ("pass", 1),
        (
            "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()",
            0,
        ),
    ],
)
def test_a_task_process_practises_unless_what_it_has_imported_could_notice(tmp_path, first, lives):
    assert run(PRACTICE.replace("{first}", first), tmp_path / "spool") == f"{lives}\n"


@pytest.mark.parametrize(("spool", "said"), [("spool", b"practised"), ("spool-with-task", b"")])
def test_it_practises_while_it_waits_and_not_when_its_task_is_there(tmp_path, spool, said):
    assert run(WAITING, tmp_path / spool) == f"{said}\n"
