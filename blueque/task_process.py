"""The task process: what runs between the fork and the exit record. It talks to files only, never to Redis.

`main` is the whole life of the process; `handler` and `program` are the two kinds of work it can do.
"""

from __future__ import annotations

import gc
import importlib
import io
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from blueque import process, signals
from blueque.attempt import Attempt
from blueque.errors import InvalidInput
from blueque.retry import MAX_NAME, class_name, class_names
from blueque.spool import Spool
from blueque.task import Task
from blueque.values import encode, printable, require_number
from blueque.verdicts import Fail, RetryLater

SIGNALS = (signal.SIGTERM, signal.SIGQUIT, signal.SIGINT, signal.SIGCHLD, signal.SIGTTOU)
MAX_PATH = 4096                                        # bytes; a pipe takes so many at once or none
MAX_ERROR = 16 * 1024                                  # bytes of an error, or characters of a traceback, that are kept
MAX_ERROR_LINES = 10                                   # lines of a program's stderr that become its error

Record = dict[str, Any]
Work = Callable[[Task, Attempt], Record]
Handler = Callable[[Task], Any]

_current: RunningTask | None = None                    # the one piece of state: a task process has one task


class RunningTask(Task):
    """The task that this process runs: what a handler gets."""

    __slots__ = ("_progress_file", "should_stop")

    def __init__(self, task_id: str, fields: Mapping[str, str], directory: str) -> None:
        super().__init__(task_id, fields)
        self.should_stop = False                       # SIGUSR1 has come: a limit is near
        self._progress_file = f"{directory}/progress"

    def progress(self, done: float, total: float | None = None, unit: str = "", text: str = "") -> None:
        """Tell how far it is: `progress(0.4)`, or `progress(450, 1500, "frames")`. It is what a stall limit goes by.

        Goes to a file that the listener looks at. Never fails, and waits for nothing but the disk.
        """
        said = f"{done:g}" if total is None else f"{done:g}/{total:g} {unit}".rstrip()
        line = " ".join(f"{said} {text}".split())[:200].encode("utf-8", "backslashreplace")
        try:
            # A new file each time: who reads sees the old words or the new ones, and that something has changed.
            with open(f"{self._progress_file}.new", "wb") as file:
                file.write(line)
            os.rename(f"{self._progress_file}.new", self._progress_file)
        except OSError:
            pass


def current_task() -> RunningTask:
    """Return the task that this process runs. Raises LookupError elsewhere."""
    if _current is None:
        raise LookupError("this process runs no task")
    return _current


def main(work: Work, spool: Spool, gate: int) -> int:
    """Wait at the gate, do the work, write the exit record; return the exit status.

    gate: a pipe. The path of an attempt opens it; when it closes without, there is nothing to run.
    """
    global _current
    pid = os.getpid()
    os.setsid()
    signal.set_wakeup_fd(-1)
    signals.discard(SIGNALS)                           # they were the listener's
    signal.signal(signal.SIGUSR1, _take_warning)       # its default would be the end of us
    signals.unblock(SIGNALS)
    path = os.read(gate, MAX_PATH)
    if not path.endswith(b"\n"):
        return 0
    os.close(gate)
    attempt = spool.attempt_at(os.fsdecode(path[:-1]))
    spare = os.open(os.devnull, os.O_RDONLY)           # for the exit record, should the task use up all descriptors
    try:
        attempt.begin()
        _redirect(attempt)
        task_id, fields = attempt.read_task()
        _current = task = RunningTask(task_id, {**fields, "status": "started", "pid": str(pid)}, attempt.path)
        os.environ["BLUEQUE_TASK_ID"] = task.id
        os.environ["BLUEQUE_QUEUE"] = task.queue or ""
        os.environ["BLUEQUE_ATTEMPT"] = str(task.attempt)
        os.environ["BLUEQUE_TASK_DIR"] = attempt.path
        record = work(task, attempt)
    except BaseException as error:                     # SystemExit and KeyboardInterrupt end a task too
        record = _record_of(error)
    if os.getpid() != pid:                             # a child that the task has forked, and that came back from it
        return 0
    _flush_files()
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    record["cpu_seconds"] = round(sum(one.ru_utime + one.ru_stime for one in used), 3)
    record["memory_peak"] = max(one.ru_maxrss for one in used) * 1024
    try:
        os.close(spare)
    except OSError:                                    # the task has closed that too
        pass
    attempt.write_exit({**record, "finished": time.time()})
    return 0 if record["status"] == "complete" else 1


def _take_warning(number: int, frame: object) -> None:
    if _current is not None:
        _current.should_stop = True


def open_gate(gate: int, attempt: Attempt) -> None:
    """Let the process at the other end of the pipe run the attempt. Raises BrokenPipeError when it is gone."""
    os.write(gate, os.fsencode(attempt.path) + b"\n")


def handler(get: Callable[[], Handler], max_bytes: int) -> Work:
    """Work that is a Python callable.

    get: returns it. Called in the task process, so that nothing the user imports ever runs in a listener.
    """

    def work(task: Task, attempt: Attempt) -> Record:
        result = get()(task)
        try:
            text, encoding = encode(result, "the result", max_bytes)
        except InvalidInput as error:
            return {"status": "failed", "error": printable(error, MAX_ERROR), "error_type": "result"}
        return {"status": "complete", "result": text, "result_encoding": encoding}

    return work


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
            return _record_of_exit(code, attempt)
        return _result_of_program(attempt, max_bytes)

    return work


def record_of_ending(ending: process.Ending, is_out_of_memory: bool, has_begun: bool = True) -> Record:
    """Return the exit record of a task process that left none.

    is_out_of_memory: the kernel was killing processes for want of memory at the time.
    """
    before = "" if has_begun else " before it had begun"
    if ending.signal is None:
        error = f"the process left with exit code {ending.exit_code} and without a result{before}"
        return {"status": "failed", "error": error, "error_type": "exit", "exit_code": ending.exit_code}
    error = f"killed by {ending.signal}{before}" + (" (core dumped)" if ending.dumped_core else "")
    if ending.signal == "SIGKILL" and is_out_of_memory:
        error += ": out of memory; the kernel was ending processes for want of it"
        return {"status": "failed", "error": error, "error_type": "memory", "signal": ending.signal}
    return {"status": "failed", "error": error, "error_type": "signal", "signal": ending.signal}


def _record_of(error: BaseException) -> Record:
    if isinstance(error, SystemExit):
        code = 0 if error.code is None else int(error.code) if isinstance(error.code, int) else None
        if code == 0:                                  # a program that ends like this has succeeded
            return {"status": "complete", "result": "null", "result_encoding": "json"}
        if code is not None:
            return {"status": "failed", "error": f"sys.exit({code})", "error_type": "exit", "exit_code": code}
        said = printable(error.code, MAX_ERROR)
        return {"status": "failed", "error": f"sys.exit: {said}", "error_type": "exit", "exit_code": 1}
    if isinstance(error, RetryLater) and (record := _record_of_wish(error)):
        return record
    import traceback  # here: a listener forks all day and never needs it

    kind = type(error)
    message = printable(error, MAX_ERROR)
    try:
        trace = printable("".join(traceback.format_exception(error))[-MAX_ERROR:], 4 * MAX_ERROR)
    except Exception:                                  # the exception of the user's own class cannot even be shown
        trace = ""
    record = {
        "status": "failed",
        "error": printable(f"{kind.__qualname__}: {message}" if message else kind.__qualname__, MAX_ERROR),
        "error_type": printable(class_name(kind), MAX_ERROR),
        "error_types": [printable(name, MAX_NAME) for name in class_names(kind)],
        "traceback": trace,
    }
    if isinstance(error, Fail):
        record |= {"error": message or "Fail", "error_type": "Fail", "retry": "never"}
    return record


def _record_of_wish(error: RetryLater) -> Record | None:
    """Return None for one that has lost its seconds, in a class of the user's own: such a wish cannot be granted."""
    try:
        seconds = require_number(error.seconds, "seconds")
        said = printable(error, MAX_ERROR)
    except (AttributeError, InvalidInput):
        return None
    return {"status": "failed", "error": said, "error_type": "RetryLater", "retry_after": seconds}


def _record_of_exit(code: int, attempt: Attempt) -> Record:
    """code: as os.waitstatus_to_exitcode gives it; negative for a signal."""
    lines = attempt.tail("stderr", MAX_ERROR).strip().split("\n")[-MAX_ERROR_LINES:]
    said = ":\n" + "\n".join(lines) if any(lines) else ""
    if code < 0:
        name = signals.signal_name(-code)
        return {"status": "failed", "error": f"killed by {name}{said}", "error_type": "signal", "signal": name}
    return {"status": "failed", "error": f"exit code {code}{said}", "error_type": "exit", "exit_code": code}


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


def _flush_files() -> None:
    """Write out what the task left in buffers, its own files too: the process ends without what Python does at its end."""
    files = [thing for thing in gc.get_objects() if type(thing) in (io.TextIOWrapper, io.BufferedWriter)]
    for file in [sys.stdout, sys.stderr, *files]:
        try:
            file.flush()
        except (OSError, ValueError, AttributeError):  # the task has closed or removed it, or the disk is full
            pass


def _redirect(attempt: Attempt) -> None:
    """Send output to the spool and read from nothing: no pipe of ours may break under the task when we die."""
    for number, path in enumerate([os.devnull, f"{attempt.path}/stdout", f"{attempt.path}/stderr"]):
        descriptor = os.open(path, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        if descriptor != number:                       # it is the same when the listener itself had this one closed
            os.dup2(descriptor, number)
            os.close(descriptor)
    sys.stdin = _stream(sys.stdin, 0, "r")
    sys.stdout = _stream(sys.stdout, 1, "w")
    sys.stderr = _stream(sys.stderr, 2, "w")


def _is_on(stream: Any, number: int) -> bool:
    try:
        return isinstance(stream, io.TextIOWrapper) and not stream.closed and stream.fileno() == number
    except (OSError, ValueError):                      # it is on no descriptor at all
        return False


def _stream(inherited: Any, number: int, mode: str) -> Any:
    """Return a text stream on the descriptor: the inherited one if that is what it is, else a new one."""
    if _is_on(inherited, number):
        # `process.fork` has flushed it. A line should be seen when it is printed, whatever characters it holds.
        if mode == "w" and not (inherited.line_buffering and inherited.errors == "backslashreplace"):
            inherited.reconfigure(line_buffering=True, errors="backslashreplace")
        return inherited
    return open(number, mode, buffering=1 if mode == "w" else -1, errors="backslashreplace", closefd=False)
