"""The rehearsal of a fork server, in an interpreter of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
