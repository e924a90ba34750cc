"""Runs a program with spark-submit as the work of a task."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from blueque.errors import SubmitFailed
from blueque.model.task import Task
from blueque.spark import environment
from blueque.spool.attempt import Attempt
from blueque.spool.outcome_record import MAX_ERROR, MAX_ERROR_LINES
from blueque.system import plain_files


def submit(
    task: Task,
    file: str | os.PathLike[str],
    args: Sequence[object] = (),
    conf: Mapping[str, Any] | None = None,
    options: Sequence[str] = (),
) -> str | None:
    """Run a program with spark-submit in the process of a task, and return the result that it wrote.

        def work(task):
            return bs.submit(task, "nightly.py", [task.parameters["day"]], {"spark.master": "yarn"})

    Its output and environment variables are those of the task; Spark calls it blueque-[task id].
    What it writes to $BLUEQUE_TASK_DIR/progress is the progress of the task. It returns the text in
    $BLUEQUE_TASK_DIR/result, or None. `with blueque.spark.task()` in it reports Spark's own
    progress. SIGTERM, as when the task is cancelled, goes to all its processes here. Processes on a
    cluster end with them in client mode only.

    file: a Python program or a jar.
    conf: as for `session`.
    options: others of spark-submit, such as `["--class", "com.acme.Main"]`.
    Raises SubmitFailed with its last output; SystemExit after SIGTERM; NotInstalled; InvalidInput.
    """
    chosen = dict(environment.option(name, value) for name, value in (conf or {}).items())
    command = [environment.find_submit(), "--name", f"blueque-{task.id}", *options]
    for name, value in {**_defaults(chosen), **chosen}.items():
        command += ["--conf", f"{name}={value}"]
    path = os.fspath(file)
    command += [f"./{path}" if path.startswith("-") else path, *map(str, args)]
    code, was_told = _run(command, _variables(chosen))
    directory = os.environ.get("BLUEQUE_TASK_DIR", os.devnull)
    if code != 0 and was_told:
        raise SystemExit("stopped by SIGTERM")
    if code != 0:
        raise SubmitFailed(code, _last_words(Attempt(directory, "")))
    try:
        return plain_files.read(f"{directory}/result", may_be_link=True).decode("utf-8", "replace")
    except (FileNotFoundError, NotADirectoryError):
        return None


def _defaults(chosen: Mapping[str, str]) -> dict[str, str]:
    if chosen.get("spark.submit.deployMode") == "cluster":
        return {}  # our configuration is not installed
    return {"spark.ui.showConsoleProgress": "false", **environment.quiet_log()}


def _variables(chosen: Mapping[str, str]) -> dict[str, str]:
    variables = dict(os.environ)
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "PYSPARK_SUBMIT_ARGS"):
        variables.pop(name, None)  # of our session; the program has its own
    master = chosen.get("spark.master") or environment.default_master(variables) or ""
    environment.prepare(variables, is_local=master.startswith("local"))
    return variables


def _last_words(attempt: Attempt) -> str:
    """Return the last lines of both outputs. Python writes errors to stderr, Spark to stdout."""
    found = []
    for name in ("stderr", "stdout"):
        lines = attempt.tail(name, MAX_ERROR // 2).strip().split("\n")
        lines = [
            line
            for line in lines
            if line and not line.startswith("WARNING: Using incubator modules")
        ]
        found += [f"{name}:", *lines[-MAX_ERROR_LINES:]] if lines else []
    return "\n".join(found)


def _run(command: Sequence[str], variables: Mapping[str, str]) -> tuple[int, bool]:
    """Run the command. Return its exit code, or minus the signal, and whether SIGTERM came meanwhile."""
    program: subprocess.Popen[bytes] | None = None
    was_told = False

    def pass_on(number: int, frame: object) -> None:
        nonlocal was_told
        was_told = True
        if program is not None and program.returncode is None:
            os.killpg(program.pid, signal.SIGTERM)

    is_main = threading.current_thread() is threading.main_thread()
    is_ours = is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if is_ours:  # else the program uses it otherwise
        signal.signal(signal.SIGTERM, pass_on)
    try:
        sys.stdout.flush()
        program = subprocess.Popen(
            command, env=variables, stdin=subprocess.DEVNULL, process_group=0
        )
        if was_told:
            os.killpg(program.pid, signal.SIGTERM)
        return program.wait(), was_told
    finally:
        if is_ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
