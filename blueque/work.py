"""Work: the two kinds of it that a task process can do, a Python callable and any program."""

from __future__ import annotations

import importlib
import os
import signal
from collections.abc import Callable
from typing import Any, NamedTuple

from blueque import checkpoint_files, stack
from blueque.attempt import Attempt
from blueque.errors import InvalidInput
from blueque.records import MAX_ERROR, Record, record_of_exit
from blueque.task import Task
from blueque.values import encode, printable

Handler = Callable[[Task], Any]


class Work(NamedTuple):
    """What is done for each task.

    run: does it. prepare: what of it can be done before there is a task, if anything; may raise what it likes.
    """

    run: Callable[[Task, Attempt], Record]
    prepare: Callable[[], object] | None = None


def handler(get: Callable[[], Handler], max_bytes: int) -> Work:
    """Work that is a Python callable.

    get: returns it. Called in the task process only, so that nothing the user imports runs in a listener.
    """

    def work(task: Task, attempt: Attempt) -> Record:
        call = get()
        stack.register(attempt)
        result = call(task)
        try:
            text, encoding = encode(result, "the result", max_bytes)
        except InvalidInput as error:
            return {"status": "failed", "error": printable(error, MAX_ERROR), "error_type": "result"}
        return {"status": "complete", "result": text, "result_encoding": encoding}

    return Work(work, get)


def resolve(name: str) -> Handler:
    """Return the callable that `package.module:callable` names. Raises InvalidInput, or whatever its import raises."""
    module_name, _, path = name.partition(":")
    if not module_name or not path:
        raise InvalidInput(f"{name!r} is not of the form package.module:callable")
    found: Any = importlib.import_module(module_name)
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            raise InvalidInput(f"{module_name} has no {path!r}") from error
    if not callable(found):
        raise InvalidInput(f"{name} is a {type(found).__name__}, not a callable")
    handler: Handler = found
    return handler


def program(command: list[str], max_bytes: int) -> Work:
    """Work that is any program: parameters on its standard input, its exit code the outcome. No shell is involved."""

    def work(task: Task, attempt: Attempt) -> Record:
        stopping = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT}
        for number in stopping:
            signal.signal(number, signal.SIG_IGN)      # they are for the program; we stay to write down how it ends
        parameters = attempt.write_parameters(task.fields.get("parameters", ""))
        os.makedirs(f"{attempt.path}/{checkpoint_files.DIRECTORY}", mode=0o700, exist_ok=True)
        try:
            pid = os.posix_spawnp(
                command[0], command, os.environ,
                file_actions=[(os.POSIX_SPAWN_OPEN, 0, parameters, os.O_RDONLY, 0)],
                setsigdef=[*stopping, signal.SIGUSR1, signal.SIGPIPE, signal.SIGXFSZ],
            )
        except OSError as error:
            return {"status": "failed", "error": f"cannot run {command[0]}: {error.strerror}", "error_type": "exit"}
        signal.signal(signal.SIGUSR1, lambda *_: os.kill(pid, signal.SIGUSR1))     # not reaped yet: it cannot be another's
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if code != 0:
            return record_of_exit(code, attempt)
        return _result_of_program(attempt, max_bytes)

    return Work(work)


def _result_of_program(attempt: Attempt, max_bytes: int) -> Record:
    if os.path.exists(f"{attempt.path}/result"):
        size = os.path.getsize(f"{attempt.path}/result")
        text = attempt.tail("result", max_bytes)
    else:
        lines = attempt.tail("stdout", max_bytes + 2).rstrip("\r\n").split("\n")
        text = lines[-1].rstrip("\r")
        size = len(text.encode())
        if not text:
            return {"status": "complete", "result": "null", "result_encoding": "json"}
    if size > max_bytes or len(text.encode()) > max_bytes:
        error = f"the result takes {size:,} bytes or more; the limit is {max_bytes:,} bytes"
        return {"status": "failed", "error": error, "error_type": "result"}
    return {"status": "complete", "result": text}
