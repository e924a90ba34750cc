"""How a program ends: every error becomes an exit code and at most three lines, with what happened
and what to do.
"""

from __future__ import annotations

import errno
import io
import os
import re
import sys
from typing import NoReturn, TextIO

import click

from blueque import errors
from blueque.cli.failure import AWAY, BUG, CONFIGURATION, FORBIDDEN, INTERRUPTED, PIPE, Failure
from blueque.cli.options import Invocation
from blueque.cli.printing import talk
from blueque.errors import (
    CLUSTER,
    NOT_NOW,
    BatchFailed,
    BluequeError,
    ConfigRefused,
    OutcomeUnknown,
    QueueFull,
    RedisAway,
    RedisRefused,
    TooLarge,
)
from blueque.system import signals

_ADVICE: dict[type[BluequeError], str] = {
    TooLarge: "Pass the path of a file instead. For larger parameters and results: max_bytes, or BLUEQUE_MAX_BYTES.",
    errors.NoSuchSchedule: "See them: blueque schedule ls",
    RedisAway: "{origin} Is Redis running there? To use another one: --redis-url URL",
    QueueFull: "{what} allow more: {command}",
    errors.Contended: "Try again in a moment.",
    errors.SnapshotGone: "Try again: it continues where it stopped.",
}

_OF_SENTINEL = (
    "Correct the Sentinels in the address (usually port 26379), or its sentinel_password."
)
# By the first word of the answer of Redis.
_REFUSALS: dict[str, tuple[int, str]] = {
    "NOAUTH": (FORBIDDEN, "Add the password to the address: redis://default:PASSWORD@host:port/db"),
    "WRONGPASS": (FORBIDDEN, "Correct the user or the password in the address; write % as %25."),
    "NOPERM": (FORBIDDEN, "This Redis user lacks a permission. See: blueque acl check"),
    "DENIED": (FORBIDDEN, "This Redis accepts connections from its own machine only."),
    "READONLY": (FORBIDDEN, "This is a replica: use the address of its primary."),
    "OOM": (
        AWAY,
        "Redis has no memory left and refuses even deletions: raise its maxmemory first.",
    ),
    "MISCONF": (AWAY, "Redis cannot write to its disk, so it refuses changes: see its log."),
    "NOREPLICAS": (AWAY, "Redis has too few replicas, so it refuses changes: blueque doctor"),
    "BUSY": (AWAY, "A script keeps Redis busy: wait, or end it with SCRIPT KILL."),
    "WRONGTYPE": (
        CONFIGURATION,
        "A key named blueque_... is of another type: does another program use this database?",
    ),
    "TLS": (
        CONFIGURATION,
        "Correct the certificate, or the files in the address: ssl_ca_certs, ssl_certfile, ssl_keyfile.",
    ),
    "SENTINEL": (CONFIGURATION, "Correct the name of the service in the address."),
    **dict.fromkeys(
        CLUSTER, (CONFIGURATION, "Use a Redis without cluster mode; it may have replicas.")
    ),
    "ERR": (
        CONFIGURATION,
        "Check the database and the password in the address, and the version of the server.",
    ),
}


def run(command: click.Command, program: str) -> NoReturn:
    """Run a click command as the program with this name, and exit.

    The return value of the command is the exit code; None means 0.
    """
    signals.keep_ended_children()
    # None if the parent process has closed it
    sys.stdin = sys.stdin or io.TextIOWrapper(io.BytesIO())
    sys.stdout, sys.stderr = _safe(sys.stdout), _safe(sys.stderr)
    invocation = Invocation()
    code = _invoke(command, program, invocation)
    _print_lines(*(f"{program}: {sentence}" for sentence in invocation.wrong_types.sentences()))
    _flush_or_forget()
    sys.exit(code)


def explain(error: BluequeError, origin: str) -> Failure:
    """Return the failure with which an error ends the program.

    origin: a sentence about the source of the address of Redis.
    """
    if isinstance(error, BatchFailed) and isinstance(error.__cause__, BluequeError):
        why = explain(error.__cause__, origin)
        there = f"When Redis is back, see: blueque show {error.ids[0]}" if error.is_unknown else ""
        if isinstance(error.__cause__, errors.NotReplicated):
            there = ""
        return Failure(why.exit_code, str(error), there or why.advice[0])
    if isinstance(error, errors.NotReplicated) and error.refusal is not None:
        why = explain(error.refusal, origin)
        return Failure(why.exit_code, str(error), why.advice[0])
    if isinstance(error, RedisRefused):
        code, advice = _REFUSALS.get(error.code, (BUG, "Please report this."))
        advice = _OF_SENTINEL if error.sentinel else advice
        return Failure(code, str(error), advice)
    refusal = error.__cause__
    if type(error) is RedisAway and isinstance(refusal, RedisRefused) and refusal.code in NOT_NOW:
        return Failure(_REFUSALS[refusal.code][0], str(error), _REFUSALS[refusal.code][1])
    advice = next((text for kind, text in _ADVICE.items() if isinstance(error, kind)), "")
    if isinstance(error, errors.NotReplicated):
        seen = f"blueque show {error.task_id} and " if error.task_id else ""
        advice = f"A failover may take it back. See: {seen}blueque doctor"
    elif isinstance(error, OutcomeUnknown) and error.task_id:
        advice = f"When Redis is back, see: blueque show {error.task_id}"
    if isinstance(error, TooLarge) and not error.what.endswith(("parameters", "result")):
        advice = ""  # no setting makes that limit higher
    of_queue = _of_full_queue(error) if isinstance(error, QueueFull) else {}
    return Failure(error.exit_code, str(error), advice.format(origin=origin, **of_queue))


def _of_full_queue(error: QueueFull) -> dict[str, str]:
    from blueque.text import hints  # here: most commands need none

    what = "Try again later, or" if error.tasks <= error.max_pending else "Send fewer at once, or"
    return {"what": what, "command": hints.of_queue("queue set", error.queue, "max-pending=N")}


def _invoke(command: click.Command, program: str, invocation: Invocation) -> int:
    try:
        # Not command.main: it exits with 1, which means a bug, when a pipe is closed.
        with command.make_context(program, sys.argv[1:], obj=invocation) as context:
            code = command.invoke(context)
        sys.stdout.flush()  # here, where a failure is handled
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
        import traceback  # here: rarely needed

        traceback.print_exception(error)
    # click has it since 8.2; its message is the whole help
    if type(error).__name__ == "NoArgsIsHelpError":
        click.echo(str(error))
        return 0
    if isinstance(error, BluequeError):
        error = explain(error, _origin(invocation, error))
    if isinstance(error, click.ClickException):
        advice: tuple[str, ...] = getattr(error, "advice", ())
        if isinstance(error, click.UsageError) and error.ctx is not None:
            program = error.ctx.command_path
            advice = (f"Try: {program} --help",)
        _print_lines(f"{program}: {_sentence(error)}", *advice)
        return error.exit_code
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
        _print_lines(f"{program}: cannot write the output: {error.strerror}")
        return BUG
    _print_lines(
        f"{program}: unexpected {type(error).__name__}: {error}",
        "This is a bug: please report it with the output of the same command with --debug.",
    )
    return BUG


def _sentence(error: click.ClickException) -> str:
    """Return the message of an error; of click's own errors with plain names of options."""
    if isinstance(error, click.NoSuchOption):
        from blueque.cli.advice import of_option  # here: only for a mistake

        names = " or ".join(_near(error))
        near = of_option(error.option_name, error.ctx) or (names and f"did you mean {names}?")
        return f"unknown option {error.option_name}{near and f'; {near}'}"
    if isinstance(error, click.BadOptionUsage):
        return error.message.replace(f"Option {error.option_name!r}", error.option_name)
    if not isinstance(error, click.BadParameter) or error.param is None or error.ctx is None:
        return _of_words(error)
    param, message = error.param, error.message
    name = param.opts[-1] if isinstance(param, click.Option) else param.make_metavar(error.ctx)
    name = re.sub(r"^\[(\w+)\]\.\.\.$", r"\1", name)
    if isinstance(error, click.MissingParameter):
        return f"{name} is missing"
    if isinstance(param.type, click.IntRange):
        least, most = param.type.min, param.type.max
        bounds = f"from {least} to {most}" if most is not None else f"of at least {least}"
        message = f"{message.partition(' is not ')[0]} is not a whole number {bounds}"
    return f"{name}: {message.removesuffix('.')}"


def _of_words(error: click.ClickException) -> str:
    """Return the message of an error about words that are not options; others unchanged."""
    from blueque.cli.advice import of_words  # here: only for a mistake

    message, context = error.format_message(), getattr(error, "ctx", None)
    extra = re.fullmatch(r"Got unexpected extra arguments? \((.*)\)", message)
    if context is not None and extra:
        return f"too many arguments: {extra[1]}. {of_words(extra[1], context)}"
    return message


def _near(error: click.NoSuchOption) -> list[str]:
    """Return the options that were probably meant: click counts the dashes as letters in common."""
    from difflib import SequenceMatcher  # here: rarely needed

    name = error.option_name.lstrip("-")
    near = (
        (SequenceMatcher(None, name, one.lstrip("-")).ratio(), one)
        for one in error.possibilities or ()
    )
    return [one for ratio, one in near if ratio >= 0.7]


def _origin(invocation: Invocation, error: BluequeError) -> str:
    """Say where the address of Redis came from."""
    try:
        url, origin = invocation.address()
    except ConfigRefused:
        url, origin = "", "default"
    if origin != "default":
        return f"The address is from {origin}.{_of_scheme(url, error)}"
    return "This is the default address. To start Redis and everything else here: blueque dev."


def _of_scheme(url: str, error: BluequeError) -> str:
    """Return a question that the scheme of the address suggests."""
    scheme = url.partition("://")[0]
    is_reset = isinstance(error.__cause__, ConnectionResetError)
    if is_reset and scheme in ("redis", "redis+sentinel"):
        return f" Does it want TLS? Then write {scheme.replace('redis', 'rediss')}://."
    if scheme.endswith("+sentinel"):
        return " During a failover, try again in a few seconds."
    return " Does it speak TLS, as rediss:// says?" if scheme == "rediss" else ""


def _print_lines(*lines: str) -> None:
    try:
        for line in filter(None, lines):
            talk(line)
    except OSError:  # the output is closed: the exit code says it
        pass


def _safe(stream: TextIO | None) -> TextIO:
    """Return a stream that accepts every character and loses none; /dev/null for a closed one."""
    if stream is None:
        return open(os.devnull, "w")
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    # an encoding with few characters still gets an answer
    stream.reconfigure(errors="backslashreplace")
    if not isinstance(stream.buffer, io.RawIOBase):
        return stream
    # With PYTHONUNBUFFERED, as in many containers, Python writes once and drops what did not fit,
    # without an error.
    whole = io.BufferedWriter(stream.buffer)
    return io.TextIOWrapper(whole, stream.encoding, "backslashreplace", line_buffering=True)


def _flush_or_forget() -> None:
    """Flush the output; drop it if it is closed, or Python prints an error at its exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
