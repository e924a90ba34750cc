"""How a program ends: every error becomes an exit code and three lines at most: what happened, to
what, what to do.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import NoReturn, TextIO

import click

from blueque.cli.failure import (
    ATTENTION,
    AWAY,
    BUG,
    CONFIGURATION,
    FORBIDDEN,
    INTERRUPTED,
    MISSING,
    PIPE,
    REFUSED,
    TIMED_OUT,
    USAGE,
    Failure,
)
from blueque.cli.options import Invocation
from blueque.cli.printing import talk
from blueque.errors import (
    CLUSTER,
    ArchiveRefused,
    BatchFailed,
    BatchTaken,
    BluequeError,
    Contended,
    FeedTaken,
    InvalidInput,
    JobFailed,
    NodeTaken,
    NoJava,
    NoServer,
    NoSuchTask,
    NotCancellable,
    NotFailed,
    NotFinished,
    NotFree,
    NotInstalled,
    NotOwner,
    NotRegistered,
    OutcomeUnknown,
    RedisAway,
    RedisRefused,
    RunDropped,
    SnapshotGone,
    SparkEnded,
    SpoolRefused,
    SubmitFailed,
    WaitTimedOut,
)

# The first that fits counts.
_CODES: list[tuple[type[BluequeError], int, str]] = [
    (NotFinished, REFUSED, ""),
    (NotCancellable, REFUSED, ""),
    (NotFailed, REFUSED, ""),
    (InvalidInput, USAGE, ""),
    (NoSuchTask, MISSING, ""),
    (WaitTimedOut, TIMED_OUT, ""),
    (NotOwner, REFUSED, ""),
    (FeedTaken, REFUSED, ""),
    (NotFree, REFUSED, ""),
    (NotRegistered, REFUSED, ""),
    (NodeTaken, REFUSED, ""),
    (RunDropped, REFUSED, ""),
    (
        RedisAway,
        AWAY,
        "The address is from {origin}. Is Redis running there? Another one: --redis-url URL",
    ),
    (Contended, ATTENTION, "Try again in a moment."),
    (BatchFailed, AWAY, ""),  # it has a cause, which says more
    (SpoolRefused, CONFIGURATION, ""),
    (NoServer, CONFIGURATION, ""),
    (NotInstalled, CONFIGURATION, ""),
    (ArchiveRefused, CONFIGURATION, ""),
    (NoJava, CONFIGURATION, ""),
    (BatchTaken, REFUSED, ""),
    (JobFailed, ATTENTION, ""),
    (SparkEnded, ATTENTION, ""),
    (SubmitFailed, ATTENTION, ""),
    (SnapshotGone, ATTENTION, "Try again; it goes on where it was."),
]

# By the first word of what Redis answered.
_REFUSALS: dict[str, tuple[int, str]] = {
    "NOAUTH": (FORBIDDEN, "Put the password into the address: redis://:PASSWORD@host:port/db"),
    "WRONGPASS": (FORBIDDEN, "Mend the user or the password in the address."),
    "NOPERM": (
        FORBIDDEN,
        "This Redis user may not do that: ask for the right, or use another user.",
    ),
    "DENIED": (FORBIDDEN, "That Redis takes connections from its own machine only."),
    "READONLY": (FORBIDDEN, "That is a replica: use the address of its primary."),
    "OOM": (
        AWAY,
        "Redis has no memory left, and takes not even what deletes: raise its maxmemory first.",
    ),
    "MISCONF": (AWAY, "Redis cannot write to its disk, so it takes nothing: see its log."),
    "NOREPLICAS": (AWAY, "Redis misses its replicas, so it takes nothing."),
    "WRONGTYPE": (
        CONFIGURATION,
        "A key named blueque_... is of another type: does another program use this database?",
    ),
    **dict.fromkeys(
        CLUSTER, (CONFIGURATION, "Use a Redis that is no cluster; it may have replicas.")
    ),
    "ERR": (
        CONFIGURATION,
        "See the number of the database and the password in the address, and the server's version.",
    ),
}


def run(command: click.Command, program: str) -> NoReturn:
    """Run a click command as the program of that name, and exit.

    What the command returns is the exit code, None being 0.
    """
    # None when it was closed by who started us
    sys.stdin = sys.stdin or io.TextIOWrapper(io.BytesIO())
    sys.stdout, sys.stderr = _safe(sys.stdout), _safe(sys.stderr)
    invocation = Invocation()
    code = _invoke(command, program, invocation)
    _print_lines(*(f"{program}: {sentence}" for sentence in invocation.wrong_types.sentences()))
    _flush_or_forget()
    sys.exit(code)


def explain(error: BluequeError, origin: str) -> Failure:
    """Return the failure that an error of Blueque ends a program with.

    origin: where the address of Redis came from.
    """
    if isinstance(error, BatchFailed) and isinstance(error.__cause__, BluequeError):
        why = explain(error.__cause__, origin)
        there = f"When Redis is back, see: blueque show {error.ids[0]}" if error.is_unknown else ""
        return Failure(why.exit_code, str(error), there or why.advice[0])
    if isinstance(error, RedisRefused):
        code, advice = _REFUSALS.get(error.code, (BUG, "Please report this."))
        return Failure(code, str(error), advice)
    for kind, code, advice in _CODES:
        if isinstance(error, kind):
            if isinstance(error, OutcomeUnknown) and error.task_id:
                advice = f"When Redis is back, see: blueque show {error.task_id}"
            return Failure(code, str(error), advice.format(origin=origin))
    return Failure(BUG, str(error))


def _invoke(command: click.Command, program: str, invocation: Invocation) -> int:
    try:
        # Not command.main: it makes exit code 1, a bug, of a closed pipe.
        with command.make_context(program, sys.argv[1:], obj=invocation) as context:
            code = command.invoke(context)
        sys.stdout.flush()  # here, where it is noticed if that cannot be done
    except click.exceptions.Exit as exit:
        return exit.exit_code
    except (KeyboardInterrupt, EOFError, click.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        return PIPE
    except Exception as error:
        return _tell(program, error, invocation)
    return code if isinstance(code, int) else 0


def _tell(program: str, error: Exception, invocation: Invocation) -> int:
    """Print what went wrong and return the exit code."""
    if invocation.is_debug:
        import traceback  # here: hardly ever needed

        traceback.print_exception(error)
    # click has it since 8.2; its message is the whole help
    if type(error).__name__ == "NoArgsIsHelpError":
        click.echo(str(error), err=True)
        return USAGE
    if isinstance(error, BluequeError):
        error = explain(error, _origin(invocation))
    if isinstance(error, click.ClickException):
        advice: tuple[str, ...] = getattr(error, "advice", ())
        if isinstance(error, click.UsageError) and error.ctx is not None:
            program = error.ctx.command_path
            advice = (f"Try: {program} --help",)
        _print_lines(f"{program}: {error.format_message()}", *advice)
        return error.exit_code
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
        _print_lines(f"{program}: cannot write the output: {error.strerror}")
        return BUG
    _print_lines(
        f"{program}: unexpected {type(error).__name__}: {error}",
        "This is a bug: please report it with what the same command prints when --debug is added.",
    )
    return BUG


def _origin(invocation: Invocation) -> str:
    """Return where the address of Redis came from."""
    try:
        return invocation.address()[1]
    except Failure:  # its file has a mistake, and the error came before that was read
        return "default"


def _print_lines(*lines: str) -> None:
    try:
        for line in filter(None, lines):
            talk(line)
    except OSError:  # nobody listens: the exit code has to do
        pass


def _safe(stream: TextIO | None) -> TextIO:
    """Return the stream as one that takes every character and loses none; of a closed one, nothing
    is expected.
    """
    if stream is None:
        return open(os.devnull, "w")
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    # an output that knows few characters still gets an answer
    stream.reconfigure(errors="backslashreplace")
    if not isinstance(stream.buffer, io.RawIOBase):
        return stream
    # PYTHONUNBUFFERED, as set in many containers: Python then writes once and forgets what did not
    # fit, without an error.
    whole = io.BufferedWriter(stream.buffer)
    return io.TextIOWrapper(whole, stream.encoding, "backslashreplace", line_buffering=True)


def _flush_or_forget() -> None:
    """Let go of output that nobody takes, or Python complains about it on its way out."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
