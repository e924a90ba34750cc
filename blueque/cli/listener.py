"""blueque-listener: reads its arguments, then becomes `blueque.listener_main` by exec: every fork copies what that holds."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping, MutableSequence, Sequence
from typing import TYPE_CHECKING, Any

import click

from blueque import settings
from blueque.cli.exits import run
from blueque.cli.failure import CONFIGURATION, Failure
from blueque.cli.options import (
    DURATION,
    Invocation,
    LogLimit,
    Room,
    config_option,
    debug_option,
    limit_options,
    log_format_option,
    pass_invocation,
    redis_url_option,
    version_option,
)
from blueque.config import MAX_SLOTS, ON_TERM
from blueque.errors import InvalidInput
from blueque.limits import fields
from blueque.lines import require_resources
from blueque.process import is_in_container
from blueque.resources import GPU
from blueque.selection import NAMES, require_weight
from blueque.settings import BEAT, LEASE, LOST_AFTER, Timing

if TYPE_CHECKING:
    from blueque.client import Client
    from blueque.config import Config
    from blueque.retry import Retry

KEEP = 7 * 86400.0                                     # seconds for which the files of a past attempt stay


class _WithProgram(click.Command):
    """A command whose --exec takes all that follows, options of the program included."""

    def parse_args(self, ctx: click.Context, args: MutableSequence[str]) -> list[str]:
        own, program = list(args), None
        at = next((number for number, word in enumerate(own) if word == "--exec" or word.startswith("--exec=")), None)
        if at is not None:
            first = own[at].removeprefix("--exec").removeprefix("=")
            own, program = own[:at], [*([first] if first else []), *own[at + 1 :]]
            if not program:
                raise click.UsageError("--exec needs a program", ctx)
        rest = super().parse_args(ctx, own)
        ctx.params["program"] = program
        return rest


@click.command(cls=_WithProgram)
@click.argument("queues", metavar="QUEUE[=WEIGHT]...", nargs=-1, required=True)
@click.option("--run", "handler", metavar="MODULE:CALLABLE", help="Run this Python callable for each task.")
@click.option("--exec", "program", metavar="PROGRAM [ARGS]...", help="Run this program for each task; comes last.")
@click.option(
    "--select", type=click.Choice(NAMES),
    help="From which of several queues to take: the first that has work, each in turn, or drawn by weight.",
)
@click.option("--slots", type=click.IntRange(1, MAX_SLOTS), help="How many tasks at a time; else 1.")
@click.option(
    "--resource", "resources", metavar="NAME=AMOUNT", multiple=True,
    help="What this node has for tasks that ask for some of it, such as gpu=2 or memory=64GiB; shared with other listeners "
    "of the same --spool.",
)
@click.option(
    "--warm/--no-warm", "is_warm", default=None,
    help="Import the callable before there is a task; the default, unless the node has gpu.",
)
@click.option("--spawn", "is_spawned", is_flag=True, help="Run each task in a fresh interpreter, for CUDA and threads.")
@click.option("--preload", metavar="MODULE", multiple=True, help="Import this once in each slot, for all its tasks.")
@click.option("--spool", metavar="DIR", help="Where the files of attempts lie; else BLUEQUE_SPOOL.")
@click.option("--keep", type=DURATION, help="How long the files of a past attempt stay; else 7d.")
@click.option(
    "--spool-limit", type=Room(), metavar="SIZE|PERCENT",
    help="How much room all of them may take before the oldest go; else BLUEQUE_SPOOL_LIMIT, 20% of the disk.",
)
@click.option(
    "--log-limit", type=LogLimit(), metavar="SIZE",
    help="How much a task may print, to stdout and to stderr, before the middle goes; else BLUEQUE_LOG_LIMIT, 1GiB.",
)
@click.option("--beat", type=DURATION, help="How often to show that we live; else BLUEQUE_BEAT, 10s.")
@click.option("--lease", type=DURATION, help="Dead after so long without a beat; else BLUEQUE_LEASE, 60s.")
@click.option("--lost-after", type=DURATION, help="Its tasks lost after so long; else BLUEQUE_LOST_AFTER, 10m.")
@click.option(
    "--on-term", type=click.Choice(ON_TERM),
    help="At SIGTERM: leave running tasks to their listeners, wait for them, stop them; drain in a container, else leave.",
)
@click.option(
    "--until-empty", is_flag=True,
    help="Leave when nothing is left to take in any QUEUE: none pending, whatever keeps it from running, and none scheduled "
    "and due. What is scheduled for later, waits for other tasks or runs elsewhere does not count.",
)
@click.option(
    "--max-runtime", type=DURATION, help="After so long do as at SIGTERM: take nothing new, and then as --on-term says."
)
@log_format_option
@limit_options(grace="30s")
@redis_url_option
@config_option
@debug_option
@version_option
@pass_invocation
def command(
    invocation: Invocation,
    /,
    queues: tuple[str, ...],
    select: str | None,
    handler: str | None,
    program: list[str] | None,
    slots: int | None,
    resources: tuple[str, ...],
    is_warm: bool | None,
    is_spawned: bool,
    preload: tuple[str, ...],
    spool: str | None,
    keep: float | None,
    spool_limit: float | None,
    log_limit: int | None,
    beat: float | None,
    lease: float | None,
    lost_after: float | None,
    on_term: str | None,
    until_empty: bool,
    max_runtime: float | None,
    log_format: str,
    retry: Retry | None,
    **limits: float | None,
) -> None:
    """Take tasks from each QUEUE and run each task in a process of its own.

    \b
    blueque-listener video.encode --run mypackage.tasks:encode --slots 4
    blueque-listener video.encode --exec ./encode.sh --fast
    blueque-listener urgent normal night --run mypackage.tasks:work
    blueque-listener render.4k=100 ingest=5 --run mypackage.tasks:work

    With several queues each slot takes one task at a time from all of them together: from the first queue that has work
    (--select ordered), from each in turn (round-robin), or as a draw decides in which each has a chance in proportion to
    its WEIGHT (lottery, the default where a weight is given). To name a queue whose own name holds an =, add a weight of
    1: a=x=1. A blueque.toml may say all this, and more of each queue; what is said here goes before it.

    The callable gets the task, task.parameters among its attributes, and returns the result. A program gets the
    parameters on its standard input, and BLUEQUE_TASK_ID, BLUEQUE_QUEUE, BLUEQUE_ATTEMPT and BLUEQUE_TASK_DIR in its
    environment; its last line of output, or the file `result` in that directory, is the result.

    Ctrl-C: take nothing new, leave when the running tasks have ended; the second one, a second later or more, stops
    them. SIGTERM: see --on-term. With leave, the default outside a container, the running tasks run on, each with a
    listener behind it, and those who start the next blueque-listener here find them. --retry and the limits are for tasks
    that have none of their own.

    SIGUSR2: take nothing new, and stay; the next one: take tasks again. SIGHUP: read blueque.toml again, for tasks to come.
    SIGUSR1: write to the log where master and listeners are just now. None of them touches a task.
    """
    if (handler is None) == (program is None):
        raise click.UsageError("say what to do with a task: either --run MODULE:CALLABLE or --exec PROGRAM [ARGS]...")
    if program is not None and (is_spawned or preload):
        raise click.UsageError("--spawn and --preload are for --run: a program is a process of its own anyway")
    if is_spawned and preload:
        raise click.UsageError("--preload is for forks: a fresh interpreter (--spawn) imports everything itself")
    _refuse_swallowed(program or [])
    program = program[1:] if program and program[0] == "--" else program
    config, client = invocation.config, invocation.client()    # refuses a bad address; does not connect
    said = config.listener
    amounts = _amounts(resources) or said.get("resources", {})
    names, weights, select = _chosen(client, config, queues, select)
    url, source = invocation.address()
    timing = Timing(said.get("beat", BEAT), said.get("lease", LEASE), said.get("lost_after", LOST_AFTER))
    try:
        timing = settings.timing(beat, lease, lost_after, otherwise=timing)
        given = fields(**limits)  # type: ignore[arg-type]  # what the options have made of them
    except InvalidInput as error:
        named = " and ".join(name for name in Timing._fields if name in said)
        raise Failure(CONFIGURATION, f"{error} ({named} from {config.path})" if named else str(error)) from error
    if is_warm is None:
        is_warm = said.get("warm", GPU not in amounts)
    if program is None and not is_spawned and not preload:
        is_spawned, preload = said.get("spawn", False), () if said.get("spawn") else tuple(said.get("preload", ()))
    policy = said.get("retry") if retry is None else retry
    choices = [
        names, select, weights, slots or said.get("slots", 1), url, source,
        spool or settings.spool(otherwise=said.get("spool")), client.max_bytes,
        said.get("keep", KEEP) if keep is None else keep, *_room(said, spool_limit, log_limit), handler, program,
        _held_to({**said.get("limits", {}), **given}), timing, policy.to_text() if policy else None,
        on_term or said.get("on_term") or ("drain" if is_in_container() else "leave"),
        amounts, is_warm, is_spawned, preload, _of_queues(config, names, retry, given),
        client.retention_rules(names), settings.statistics_keep(otherwise=config.statistics_keep), config.path,
        until_empty, max_runtime, log_format,
    ]
    _become_master(choices)


def _room(said: Mapping[str, Any], spool_limit: float | None, log_limit: int | None) -> tuple[float, int]:
    """Return how much room the spool may take, and each file that a task prints to."""
    try:
        return (
            spool_limit or settings.spool_limit(otherwise=said.get("spool_limit")),
            log_limit or settings.log_limit(otherwise=said.get("log_limit")),
        )
    except InvalidInput as error:
        raise Failure(CONFIGURATION, str(error)) from error


def _refuse_swallowed(program: Sequence[str]) -> None:
    """Refuse options that look like our own among the arguments of the program, unless -- comes before."""
    arguments = program[1 : program.index("--") if "--" in program else None]
    options = [one for one in command.params if isinstance(one, click.Option)]
    known = {name for one in options for name in (*one.opts, *one.secondary_opts)}
    for word in arguments:
        if word.partition("=")[0] in known:
            raise click.UsageError(
                f"{word} would be given to {program[0]}: options of the listener go before --exec. If that is meant: "
                f"--exec -- {shlex.join(program)}"
            )


def _of_queues(
    config: Config, names: Sequence[str], retry: Retry | None, given: Mapping[str, int | float]
) -> dict[str, list[object]]:
    """Return, of each queue of which the file says something, what its tasks are held to: limits and policy."""
    found: dict[str, list[object]] = {}
    for name in names:
        if name in config.queues:
            its = config.queues[name]
            policy = next((one for one in (retry, its.retry, config.listener.get("retry")) if one is not None), None)
            limits = {**config.listener.get("limits", {}), **its.limits, **given}
            found[name] = [_held_to(limits), policy.to_text() if policy else None]
    return found


def _held_to(limits: Mapping[str, int | float | None]) -> list[int | float | None]:
    """Return the limits in the order of `Limits`."""
    most = [limits.get(name) for name in ("time_limit", "stall_limit", "memory_limit")]
    return [*most, limits.get("grace", settings.GRACE), limits.get("lead", 0.0)]


def _chosen(
    client: Client, config: Config, words: Sequence[str], select: str | None
) -> tuple[list[str], dict[str, float], str]:
    """Return the queues, their weights, and how to choose among them."""
    names: list[str] = []
    weights: dict[str, float] = {}
    for word in words:
        queue, sign, number = word.rpartition("=")
        try:
            weight = require_weight(float(number)) if sign else 1.0
        except InvalidInput as error:
            raise click.UsageError(f"{word!r}: {error}") from error
        except ValueError as error:
            raise click.UsageError(
                f"{word!r}: {number!r} is no weight: write QUEUE=WEIGHT, and a queue whose own name holds an = with a "
                f"weight of 1, {word + '=1'!r}"
            ) from error
        name = queue if sign else word
        if name in names:
            raise click.UsageError(f"queue {name!r} is named twice")
        client.get_queue(name)                         # refuses a bad name
        names.append(name)
        if sign:
            weights[name] = weight
    known = {name: its for name in names if (its := config.queue(name).weight) is not None}
    if select is None:
        select = "lottery" if weights else config.listener.get("select") or ("lottery" if known else "ordered")
    heavy = next((name for name, weight in weights.items() if weight != 1), None)
    if select != "lottery" and heavy is not None:
        raise click.UsageError(f"the weight of queue {heavy!r} has no meaning with --select {select}, only with lottery")
    return names, {**known, **weights}, select


def _amounts(words: Sequence[str]) -> dict[str, int]:
    """Return how much of each resource there is."""
    amounts: dict[str, str] = {}
    for word in words:
        name, _, amount = word.partition("=")
        if not amount or name in amounts:
            raise click.UsageError(f"--resource {word}: " + ("named twice" if amount else "write NAME=AMOUNT"))
        amounts[name] = amount
    try:
        return require_resources(amounts)
    except InvalidInput as error:
        raise click.UsageError(f"--resource: {error}") from error


def _become_master(choices: list[object]) -> None:
    from blueque.listener_main import CHOICES, Choices, check_work  # here: --help does without
    from blueque.rereading import ANSWER_TO

    if ANSWER_TO in os.environ:                        # a master asks what it should do from now on
        descriptor = int(os.environ.pop(ANSWER_TO))
        os.set_inheritable(descriptor, False)
        sys.path.insert(0, os.getcwd())
        if (refusal := check_work(Choices(*choices))) is not None:  # type: ignore[arg-type]  # as they come from JSON
            raise Failure(CONFIGURATION, refusal)
        with open(descriptor, "w") as answer:
            answer.write(json.dumps(choices) + "\n")
        return
    # -P: what lies in the directory we were started in, a logging.py say, shall not take the place of what we import.
    arguments = [sys.executable, "-P", "-m", "blueque.listener_main", *_without_url(sys.argv[1:])]
    try:
        os.execve(sys.executable, arguments, {**os.environ, CHOICES: json.dumps(choices)})
    except OSError as error:
        raise Failure(CONFIGURATION, f"cannot run {sys.executable}: {error.strerror}") from error


def _without_url(arguments: list[str]) -> list[str]:
    """Return the arguments fit to be seen by everybody in a list of processes, for days: there may be a password in it."""
    own = arguments[: arguments.index("--exec")] if "--exec" in arguments else arguments
    shown = [word for word in own if not word.startswith("--redis-url=")]
    if "--redis-url" in shown:
        at = shown.index("--redis-url")
        del shown[at : at + 2]
    return shown + arguments[len(own) :]


def main() -> None:
    """Run the blueque-listener program."""
    run(command, "blueque-listener")


if __name__ == "__main__":
    main()
