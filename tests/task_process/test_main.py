"""What a task process does before there is a task."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import os, sys
from blueque.task_process.main import _keep
from blueque.task_process.redirect import Output
answer = os.dup(1)
_keep(Output(), sys.argv[1])
print("lost")
os.write(answer, os.readlink("/proc/self/fd/1").encode())
"""


def shown(directory):
    """Return where output goes in a task process that has made this directory."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, directory], capture_output=True, text=True, check=True
    )
    return done.stdout


def test_a_task_process_that_is_late_for_its_own_directory_lives_on(tmp_path):
    # The listener gives the directory to the attempt as soon as it is there.
    assert shown(f"{tmp_path}/gone") == "/dev/null"
    (tmp_path / "stdout").touch()  # one that is gone between the two files
    assert shown(str(tmp_path)) == "/dev/null"
    (tmp_path / "stderr").touch()
    assert shown(str(tmp_path)) == f"{tmp_path}/stdout"
