"""Tasks that the kernel kills because memory ran out, and tasks that a person kills."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from handlers import ended
from running import LISTENER, until

MEMORY = Path("/sys/fs/cgroup/memory")  # of version 1, where a test may set a limit
LIMIT = 300 << 20  # for a listener, too
EAT = "eaten = []\nwhile True: eaten.append(bytearray(10**7))"
WORK = f"""
    import os

    def run(task):
        if task.parameters == "be killed":
            os.kill(os.getpid(), 9)
        exec({EAT!r})
"""
PROGRAMS = {
    "handler": ("--handler", "work:run"),
    "program": ("--exec", sys.executable, "-c", EAT),
    "shell": ("--exec", "sh", "-c", f"{sys.executable} -c '{EAT}'; exit $?"),
}


@contextlib.contextmanager
def limited(name):
    """Make a cgroup with little memory."""
    directory = MEMORY / f"blueque-test-{name}-{os.getpid()}"
    try:
        directory.mkdir()
        (directory / "memory.limit_in_bytes").write_text(str(LIMIT))
    except OSError as error:
        pytest.skip(f"needs the right to limit memory by a cgroup of version 1: {error}")
    try:
        yield directory
    finally:
        until(lambda: not (directory / "cgroup.procs").read_text(), what="the end of its processes")
        directory.rmdir()


def start(programs, directory, kind):
    programs.write(WORK)
    environ = {"BLUEQUE_REDIS_URL": programs.url, "BLUEQUE_SPOOL": "spool"}
    enter = ("sh", "-c", f'echo $$ >{directory}/cgroup.procs; exec "$@"', "sh")
    return programs.start([*enter, *LISTENER, "work", *PROGRAMS[kind]], environ=environ)


@pytest.mark.parametrize("kind", PROGRAMS)
def test_what_the_kernel_kills_for_want_of_memory_fails_with_memory(programs, queue, kind):
    with limited("task") as directory:
        listener = start(programs, directory, kind)

        task = ended(programs.client, queue.enqueue("eat"))

        assert (task.status, task.error_type) == ("failed", "memory"), task.error
        assert "out of memory; the kernel was killing processes" in task.error
        assert listener.stop() == 0


def test_what_a_person_kills_fails_with_signal_though_others_have_run_out_of_memory(
    programs, queue
):
    with limited("task") as directory, limited("others") as others:
        listener = start(programs, directory, "handler")
        until(lambda: programs.client.get_inspector().nodes(), what="its registration")
        enter = f"echo $$ > {others}/cgroup.procs; exec {sys.executable} -c '{EAT}'"
        assert subprocess.run(["sh", "-c", enter], check=False).returncode == -9

        task = ended(programs.client, queue.enqueue("be killed"))

        assert (task.status, task.error_type) == ("failed", "signal")
        assert task.error == "killed by SIGKILL"
        assert listener.stop() == 0
