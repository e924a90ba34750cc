"""Describe how an attempt ended as an exit record, see `Attempt.write_exit`."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any

from blueque.errors import InvalidInput
from blueque.model.encoding import printable, require_number
from blueque.model.outcomes import Fail, HandBack, RetryLater
from blueque.model.retry import MAX_NAME, class_name, class_names
from blueque.spool.attempt import Attempt
from blueque.system import process, signals
from blueque.text.format import one_line, size

MAX_ERROR = 16 * 1024  # bytes of an error, or characters of a traceback, that are kept
HANDED_BACK = 75  # exit code of a program that gives itself back: EX_TEMPFAIL
KILLED = 137  # exit code of a shell whose program was ended by SIGKILL
MAX_ERROR_LINES = 10  # lines of a program's stderr that become its error

# The error types of ends that the handler did not cause by an exception or a result.
ENDED = (
    "exit",
    "signal",
    "memory",
    "time_limit",
    "stall_limit",
    "memory_limit",
    "cancelled",
    "interrupted",
    "stopped",
)

_CRASH = "Fatal Python error: "  # how faulthandler begins
# How the line begins by which a task process says on standard error why it leaves no exit record.
CANNOT_WRITE = "-- blueque: cannot write how the task has ended:"

Record = dict[str, Any]

_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep


def record_of(error: BaseException, is_asked_to_stop: bool = False) -> Record:
    """Return the record of an exception of the handler."""
    if isinstance(error, HandBack) and is_asked_to_stop:
        return _record_of_hand_back(printable(error, MAX_ERROR))
    if isinstance(error, SystemExit):
        return _record_of_exit(error)
    if isinstance(error, RetryLater) and (record := _record_of_wish(error)):
        return record
    kind = type(error)
    message = printable(error, MAX_ERROR)
    try:
        import traceback  # here: a listener never needs it

        lines = traceback.format_exception(kind, error, _from_the_handler_on(error.__traceback__))
        trace = printable("".join(lines)[-MAX_ERROR:], 4 * MAX_ERROR)
    except Exception:  # it cannot be shown, or the task has no right to read the standard library
        trace = ""
    record = {
        "status": "failed",
        "error": printable(
            f"{kind.__qualname__}: {message}" if message else kind.__qualname__, MAX_ERROR
        ),
        "error_type": printable(class_name(kind), MAX_ERROR),
        "error_types": [printable(name, MAX_NAME) for name in class_names(kind)],
        "traceback": trace,
    }
    if isinstance(error, HandBack):
        record["error"] += " (the task had not been asked to stop)"
    if isinstance(error, Fail):
        record |= {"error": message or "Fail", "error_type": "Fail", "retry": "never"}
    return record


def _record_of_exit(error: SystemExit) -> Record:
    code = 0 if error.code is None else int(error.code) if isinstance(error.code, int) else None
    if code == 0:  # a program that ends like this has succeeded
        return {"status": "complete", "result": "null", "result_encoding": "json"}
    text = (
        f"sys.exit({code})" if code is not None else f"sys.exit: {printable(error.code, MAX_ERROR)}"
    )
    return {
        "status": "failed",
        "error": text,
        "error_type": "exit",
        "exit_code": 1 if code is None else code,
    }


def _from_the_handler_on(trace: TracebackType | None) -> TracebackType | None:
    """Return the traceback without Blueque's frames above the handler, or the whole if only those."""
    frame = trace
    while frame is not None and frame.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.tb_next
    return frame or trace


def record_of_ending(ending: process.Ending, attempt: Attempt | None = None) -> Record:
    """Return the exit record of a task process that left none.

    attempt: whose last lines on standard error show why.
    """
    if ending.signal is None:
        error = f"the process left with exit code {ending.exit_code} and without a result"
        stderr_end = "" if attempt is None else attempt.tail("stderr", MAX_ERROR)
        _, begin, rest = stderr_end.rpartition(CANNOT_WRITE)
        error += f": {one_line(begin + rest).strip(' -')}" if begin else ""
        return {
            "status": "failed",
            "error": error,
            "error_type": "exit",
            "exit_code": ending.exit_code,
        }
    error = f"killed by {ending.signal}" + (" (core dumped)" if ending.dumped_core else "")
    error += "" if attempt is None else _last_lines(attempt)
    return {"status": "failed", "error": error, "error_type": "signal", "signal": ending.signal}


def record_of_exit(code: int, attempt: Attempt) -> Record:
    """Return the record of a program that has failed.

    code: as os.waitstatus_to_exitcode gives it; negative for a signal.
    """
    # Any program may end with that code. One that has removed the file knows what it says.
    if code == HANDED_BACK and attempt.has_taken_notice():
        return _record_of_hand_back(f"exit code {code}")
    stderr_end = _last_lines(attempt)
    if code < 0:
        name = signals.signal_name(-code)
        return {
            "status": "failed",
            "error": f"killed by {name}{stderr_end}",
            "error_type": "signal",
            "signal": name,
        }
    return {
        "status": "failed",
        "error": f"exit code {code}{stderr_end}",
        "error_type": "exit",
        "exit_code": code,
    }


def _last_lines(attempt: Attempt) -> str:
    """Return what an attempt has written to standard error last, to follow an error.

    If faulthandler has reported a crash, keep the lines before its report and the frames of user code.
    """
    text = attempt.tail("stderr", MAX_ERROR).strip()
    before, crash, stack = text.rpartition(_CRASH)
    if crash:
        frames = [line for line in stack.split("\n") if _PACKAGE not in line]
        lines = [*before.strip().split("\n")[-MAX_ERROR_LINES:], crash + frames[0], *frames[1:]]
        text = "\n".join(filter(None, lines[: 2 * MAX_ERROR_LINES]))
    else:
        text = "\n".join(text.split("\n")[-MAX_ERROR_LINES:])
    return f":\n{text}" if text else ""


def is_killed(record: Record) -> bool:
    """Return whether an attempt has failed by SIGKILL, also as a shell reports it."""
    return record["status"] == "failed" and (
        record.get("signal") == "SIGKILL" or record.get("exit_code") == KILLED
    )


def as_out_of_memory(record: Record) -> Record:
    """Return the record of a killed attempt, given that the kernel killed processes at that time."""
    how, lines, said = record["error"].partition(":\n")
    error = f"{how}: out of memory; the kernel was killing processes{lines}{said}"
    return record | {"error": error, "error_type": "memory"}


def last_words(record: Record | None) -> str:
    """Return the last line of the log of an attempt that did not end by itself; else an empty one.

    record: None: its process is gone without a record.
    """
    if record is None:
        return "-- blueque: its process is gone, and how far it got is not known --"
    is_by_itself = record.get("error_type") not in ENDED and record.get("signal") is None
    if record["status"] != "failed" or is_by_itself:
        return ""
    said = one_line(str(record.get("error")).partition("\n")[0]).rstrip(":")
    peak = record.get("memory_peak")
    return f"-- blueque: {said}{f', peak memory {size(peak)}' if isinstance(peak, int) and peak > 0 else ''} --"


def _record_of_hand_back(said: str) -> Record:
    return {
        "status": "failed",
        "error": said or "HandBack",
        "error_type": "HandBack",
        "handed_back": True,
    }


def _record_of_wish(error: RetryLater) -> Record | None:
    """Return None for an error that has lost its seconds, in a class of the user: it cannot be obeyed."""
    try:
        seconds = require_number(error.seconds, "seconds")
        said = printable(error, MAX_ERROR)
    except (AttributeError, InvalidInput):
        return None
    return {"status": "failed", "error": said, "error_type": "RetryLater", "retry_after": seconds}
