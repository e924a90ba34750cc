"""The real blueque 1.0.0, in an environment of its own, as other processes.

The environment is made once, in `.venv-1.0.0` beside this checkout's `.venv`: see environments.py.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import environments
from running import ROOT, Program, Programs

DIRECTORY = ROOT / ".venv-1.0.0"
PYTHON = environments.python_of(DIRECTORY)
REQUIREMENTS = ["blueque==1.0.0", "redis>=5,<6"]  # the redis-py that it was made for

# What tasks do, under our programs and under 1.0.0. Nothing heavy: each task process imports it.
WORK = """
    import os
    import time


    def record(task):
        '''Write one line into the ledger, whole or not at all.'''
        line = f"{task.id} {os.environ.get('RUNNER', 'ours')} {time.time()}\\n".encode()
        ledger = os.open("ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(ledger, line)
        os.close(ledger)
        return "recorded"


    def hold(task):
        record(task)
        while not os.path.exists("released"):
            time.sleep(0.005)
        return "released"


    def show(task):
        record(task)
        return ascii(task.parameters)


    def refuse(task):
        raise ValueError("Äpfel and \\udcff")
"""

# The words that every snippet has: `client`, `argv` (what was passed), `say` (a value for the
# test), and the tasks' `work`.
_PRELUDE = """\
import json, os, sys, time
sys.path.insert(0, os.getcwd())
import blueque, work
from blueque.client import Client
from blueque.forking_runner import ForkingRunner
client = Client(sys.argv[1])
argv = json.loads(sys.argv[2])
def say(value):
    print(json.dumps(value), flush=True)
"""

_IS_RIGHT = """\
import sys, blueque, redis
from importlib.metadata import version
sys.exit(version("blueque") != "1.0.0" or redis.__version__[0] != "5" or not blueque.__file__.startswith(sys.argv[1]))
"""


class Line(NamedTuple):
    """One line of the ledger: which task was run by whom (`ours` or `1.0.0`), and when."""

    task: str
    runner: str
    at: float


def ledger(programs: Programs) -> list[Line]:
    """Return which tasks have been run."""
    path = programs.directory / "ledger"
    lines = path.read_text().splitlines() if path.exists() else []
    return [Line(task, runner, float(at)) for task, runner, at in (line.split() for line in lines)]


def release(programs: Programs) -> None:
    """Let the tasks that `hold` holds end."""
    (programs.directory / "released").touch()


class Legacy:
    """1.0.0 beside one Redis."""

    def __init__(self, url: str, programs: Programs) -> None:
        self._url, self._programs = url, programs

    def run(self, code: str, *argv: Any) -> list[Any]:
        """Run a snippet to its end and return what it said."""
        program = self.start(code, *argv)
        assert program.wait() == 0, f"blueque 1.0.0 has failed: {program.log}"
        return program.said()

    def start(self, code: str, *argv: Any) -> Program:
        """Run a snippet beside the test, which stops it by its pid."""
        command = [str(PYTHON), "-I", "-c", _PRELUDE + code, self._url, json.dumps(argv)]
        return self._programs.start(command, environ={"RUNNER": "1.0.0"})


def install() -> None:
    """Make the environment unless it is there. Raises EnvironmentMissing."""
    environments.install(DIRECTORY, REQUIREMENTS, _IS_RIGHT)
