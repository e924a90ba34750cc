"""blueque-listener: read the arguments, then exec `blueque.node.main`, whose memory each fork copies."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Mapping, MutableSequence, Sequence
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from blueque.cli import listener_handlers
from blueque.cli.exits import run
from blueque.cli.failure import CONFIGURATION, Failure
from blueque.cli.listener_handlers import found_from_here, handlers_of, registered_among
from blueque.cli.listener_queues import (
    chosen_among,
    cwd_of,
    fixed_of,
    held_to,
    limits_of,
    named_queues,
    own_of,
    reuse_of,
)
from blueque.cli.options import (
    WITH_SHORT_HELP,
    Invocation,
    config_option,
    debug_option,
    log_options,
    pass_invocation,
    redis_url_option,
    version_option,
)
from blueque.cli.program import Program, given, settings_of, variable
from blueque.cli.task_options import limit_options
from blueque.cli.values import COMMAND, DURATION, Value
from blueque.config.tables import MAX_SLOTS, MOST_REUSED, ON_TERM
from blueque.config.values import LIMITS
from blueque.errors import InvalidInput
from blueque.listener.resources import GPU
from blueque.model import units
from blueque.model.limits import fields
from blueque.model.lines import require_resources
from blueque.model.queue_order import NAMES, is_own_select
from blueque.model.units import (
    BEAT,
    LEASE,
    LOG_FORMATS,
    LOG_LEVEL,
    LOST_AFTER,
    HandlerName,
    Timing,
    parse_log_limit,
    parse_room,
    require_callable_name,
    require_module_name,
)
from blueque.model.working_directory import CWD, KEEP_CWD
from blueque.node.reload import ANSWER_TO, complete_environment
from blueque.system import signals
from blueque.system.hosts import VARIABLE as HOST
from blueque.system.hosts import require_host_name
from blueque.system.process import is_in_container, keep_in_memory

if TYPE_CHECKING:
    from blueque.config.contents import Config
    from blueque.node.handler_check import Registered

# Variables that a task inherits, because other programs use them as well.
_FOR_ALL = {
    f"BLUEQUE_{name}"
    for name in ("HOST", "SPOOL", "SPOOL_LIMIT", "LOG_LIMIT", "BEAT", "LEASE", "LOST_AFTER")
}
KEEP = 7 * 86400.0  # seconds for which the files of a finished attempt stay


class _Listener(Program):
    """A command whose --exec takes all following words, also options."""

    def parse_args(self, ctx: click.Context, args: MutableSequence[str]) -> list[str]:
        own, program = list(args), None
        at = next(
            (
                number
                for number, word in enumerate(own)
                if word == "--exec" or word.startswith("--exec=")
            ),
            None,
        )
        if at is not None:
            first = own[at].removeprefix("--exec").removeprefix("=")
            own, program = own[:at], [*([first] if first else []), *own[at + 1 :]]
            if not program:
                raise click.UsageError("--exec needs a program", ctx)
        rest = super().parse_args(ctx, own)
        if program is not None:
            ctx.params["exec"] = program
            ctx.set_parameter_source("exec", ParameterSource.COMMANDLINE)
        return rest


class _Select(click.Choice):  # type: ignore[type-arg]  # generic in newer click only
    """One of the names, or the name of a callable."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value in NAMES:
            return str(value)
        try:
            if is_own_select(str(value)):
                return require_callable_name(value)
        except InvalidInput as error:
            self.fail(str(error), param, ctx)
        self.fail(f"{value!r} is not one of {', '.join(NAMES)}, MODULE:CALLABLE", param, ctx)


@click.command(cls=_Listener, context_settings=WITH_SHORT_HELP)
@click.argument("queues", metavar="[QUEUE[=WEIGHT]]...", nargs=-1)
@click.option(
    "--module",
    "modules",
    type=Value("module", require_module_name),
    metavar="MODULE",
    multiple=True,
    help="Import this module; its functions that @blueque.handler decorates run the tasks of their queues. Without a QUEUE, "
    "listen to all of these.",
)
@click.option(
    "--handler", metavar="MODULE:CALLABLE", help="Run this Python callable for each task."
)
@click.option(
    "--exec",
    type=COMMAND,
    metavar="PROGRAM [ARGS]...",
    help="Run this program for each task; must come last.",
)
@click.option(
    "--hooks",
    metavar="MODULE:CLASS",
    help="Call before_start and after_end of this class around each task.",
)
@click.option(
    "--select",
    type=_Select(NAMES),
    metavar=f"[{'|'.join(NAMES)}|MODULE:CALLABLE]",
    help="How to choose among several queues: the first with work, each in turn, drawn by weight, or as this callable says.",
)
@click.option(
    "--slots",
    type=click.IntRange(1, MAX_SLOTS),
    metavar="N",
    help="Number of tasks at a time; default 1.",
)
@click.option(
    "--resource",
    "resources",
    metavar="NAME=AMOUNT",
    multiple=True,
    help="What this node has for tasks that ask for some of it, such as gpu=2 or memory=64GiB; shared with other listeners "
    "of the same --spool.",
)
@click.option(
    "--warm/--no-warm",
    default=None,
    help="Import the callable before there is a task; default unless the host has the resource gpu.",
)
@click.option(
    "--preload", metavar="MODULE", multiple=True, help="Import this once for all tasks of a slot."
)
@click.option(
    "--reuse",
    type=click.IntRange(1, MOST_REUSED),
    metavar="N",
    help="Run up to N tasks in a process, one after the other; default 1. What one leaves in memory, the next one finds.",
)
@click.option(
    "--reuse-for",
    type=DURATION,
    help="Stop giving tasks to a process this long after its first one began. Without --reuse, the number of tasks has no limit.",
)
@click.option(
    "--cwd",
    type=click.Choice(CWD),
    help="Where a task works: in the directory of the listener, the default, or in an empty one of its own, which is removed "
    "at its end.",
)
@click.option(
    "--keep-cwd",
    type=click.Choice(KEEP_CWD),
    help="When a directory of --cwd task stays, for as long as the other files of its attempt; default never.",
)
@click.option(
    "--task-redis/--no-task-redis",
    default=None,
    help="Which tasks may know the address of Redis: all, programs by BLUEQUE_REDIS_URL; or none. Else callables only, for "
    "Client().",
)
@click.option(
    "--host",
    type=Value("name", require_host_name),
    metavar="NAME",
    help="Name of this host in node ids; default BLUEQUE_HOST, the full name, or the short name if that is localhost.",
)
@click.option(
    "--spool", metavar="DIR", help="Directory for the files of attempts; default BLUEQUE_SPOOL."
)
@click.option(
    "--keep", type=DURATION, help="How long the files of a finished attempt stay; default 7d."
)
@click.option(
    "--spool-limit",
    type=Value("room", parse_room),
    metavar="SIZE|PERCENT",
    help="Size of the spool above which the oldest files are removed; default BLUEQUE_SPOOL_LIMIT, 20% of the disk.",
)
@click.option(
    "--log-limit",
    type=Value("size", parse_log_limit),
    metavar="SIZE",
    help="Size of stdout or stderr of a task above which the middle is removed; default BLUEQUE_LOG_LIMIT, 1GiB.",
)
@click.option(
    "--beat",
    type=DURATION,
    help="Interval of beats, which show that a listener lives; default BLUEQUE_BEAT, 10s.",
)
@click.option(
    "--lease",
    type=DURATION,
    help="A listener without a beat for so long is dead; default BLUEQUE_LEASE, 60s.",
)
@click.option(
    "--lost-after",
    type=DURATION,
    help="Tasks of a dead listener are lost after so long; default BLUEQUE_LOST_AFTER, 10m.",
)
@click.option(
    "--on-term",
    type=click.Choice(ON_TERM),
    help="At SIGTERM: leave running tasks to their listeners, wait for them, or stop them; default drain in a container, else leave.",
)
@click.option(
    "--until-empty",
    is_flag=True,
    help="Leave when nothing is left to take in any QUEUE: none pending, whatever keeps it from running, and none scheduled "
    "and due. What is scheduled for later, waits for other tasks or runs elsewhere does not count.",
)
@click.option(
    "--max-runtime",
    type=DURATION,
    help="After so long, take nothing new, and then do what --on-term says. With --on-term stop, take no task whose time "
    "limit is longer than what is left.",
)
@log_options
@limit_options(grace="30s")
@redis_url_option
@config_option
@debug_option
@version_option
@pass_invocation
def command(invocation: Invocation, /, queues: tuple[str, ...], **_: Any) -> None:
    """Take tasks from each QUEUE and run each task in a process of its own.

    \b
    blueque-listener video.encode --module mypackage.tasks
    blueque-listener video.encode --handler mypackage.tasks:encode --slots 4
    blueque-listener video.encode --exec ./encode.sh --fast
    blueque-listener urgent normal night --handler mypackage.tasks:work
    blueque-listener render.4k=100 ingest=5 --handler mypackage.tasks:work

    With several queues, each slot takes one task at a time: from the first queue that has work (--select ordered), from
    each queue in turn (round-robin), or from a queue drawn with a chance in proportion to its WEIGHT (lottery, the
    default if a weight is given). For a queue whose name contains =, add a weight: a=x=1. blueque.toml can set all of
    this, and more for each queue; options overrule it.

    A handler can name its queue itself, with @blueque.handler("video.encode") above the function. --module imports it. The
    handler can also be set in blueque.toml, for all queues or for each queue, or in BLUEQUE_HANDLER or BLUEQUE_EXEC:

    \b
    [listener]
    modules = ["mypackage.tasks"]

    \b
    [queues."video.encode"]
    handler = "mypackage.tasks:encode"

    So can every option: --max-runtime is BLUEQUE_MAX_RUNTIME in the environment, and max_runtime in [listener].

    The callable gets the task, with its parameters as task.parameters, and returns the result; it may be an async def. A
    program gets the parameters on its standard input, and BLUEQUE_TASK_ID, BLUEQUE_QUEUE, BLUEQUE_ATTEMPT and
    BLUEQUE_TASK_DIR in its environment. Its result is its last line of output, or the file `result` in that directory.

    Ctrl-C: take nothing new, and exit when the running tasks have ended; a second Ctrl-C, at least a second later, stops
    them. SIGTERM: see --on-term. With leave, the default outside a container, running tasks run on, each with its
    listener, and the next blueque-listener here finds them. --retry and the limits apply to tasks without their own.

    SIGUSR2: take nothing new, and stay; the next one: take tasks again. SIGHUP: start anew with what blueque.toml says now.
    SIGUSR1: write the stacks of master and listeners to the log. These three signals never touch a task.
    """
    # refuse a mistake in the file, and a bad address
    config, client = invocation.config, invocation.client()
    context, said = click.get_current_context(), config.listener
    options = given(context)
    named = named_queues(client, queues)
    url, source = invocation.address()
    task_url = None if {**said, **options}.get("task_redis") is False else url
    found = listener_handlers.find(
        context, config, named, functools.partial(look, url, source, task_url)
    )
    named = named or dict.fromkeys(found.get_queues())
    handlers = handlers_of(context, config, named, found)
    weights, select = chosen_among(config, named, options.get("select"))
    values = {**said, **options}
    # programs import nothing
    preload = values.get("preload", ()) if any(name.run for name in handlers.values()) else ()
    amounts = (
        _amounts(context, options["resources"])
        if "resources" in options
        else said.get("resources", {})
    )
    names, limits = [*named], _limits(options)
    cwd = cwd_of(config, options, names)
    policy = values.get("retry")
    on_term = values.get("on_term") or ("drain" if is_in_container() else "leave")
    spool_limit, log_limit = _room(said, options)
    timing = _timing(config, options)
    programs = found_from_here(config, handlers, cwd)
    look_at_one = functools.partial(look_at, url, source, task_url)
    registered = registered_among(programs, found.handlers, look_at_one)
    own, remarks = own_of(config, registered, options)
    _become_master(
        {
            "queues": names,
            "select": select,
            "weights": weights,
            "slots": values.get("slots", 1),
            "redis_url": url,
            "url_source": source,
            "max_bytes": client.max_bytes,
            "spool": values.get("spool") or units.spool(),
            "keep": values.get("keep", KEEP),
            "spool_limit": spool_limit,
            "log_limit": log_limit,
            "handlers": programs,
            "limits": held_to({**said.get("limits", {}), **limits}),
            "timing": timing,
            "retry": policy.to_text() if policy else None,
            "on_term": on_term,
            "resources": amounts,
            "is_warm": values.get("warm", GPU not in amounts),
            "preload": preload,
            "reuse": reuse_of(config, options, handlers),
            "cwd": cwd,
            "of_queues": limits_of(config, own, names, options.get("retry"), limits),
            "fixed": fixed_of(config, own, names, options, weights),
            "retention": {name: config.retention_of(name) for name in names},
            "statistics_keep": units.statistics_keep(otherwise=config.statistics_keep),
            "config": config.path,
            "until_empty": values.get("until_empty", False),
            "max_runtime": values.get("max_runtime"),
            "log_format": values.get("log_format", LOG_FORMATS[0]),
            "log_level": values.get("log_level", LOG_LEVEL),
            "host": values.get("host"),
            "task_redis": values.get("task_redis"),
            "remarks": remarks,
            "hooks": _hooks(values.get("hooks"), url, source, task_url),
        }
    )


# A listener that a task starts is another one: it goes by its own options and file, not by the
# variables of this one.
_NOT_FOR_TASKS = sorted({variable(option) for option in settings_of(command)} - _FOR_ALL)


def _hooks(name: str | None, url: str, source: str, task_url: str | None) -> str | None:
    """Return the name of the class of hooks. Ends the program if the class cannot be used."""
    if name is None:
        return None
    from blueque.node.handler_check import check_hooks  # here: most listeners have none

    try:
        require_callable_name(name)
        check_hooks(name, task_url, functools.partial(_take_environment, url, source))
    except InvalidInput as error:
        raise Failure(CONFIGURATION, str(error)) from error
    return name


def look(
    url: str, source: str, task_url: str | None, modules: Sequence[str]
) -> dict[str, Registered]:
    """Return the handlers of the modules, by queue. task_url: the address that tasks get. Raises
    InvalidInput.
    """
    from blueque.node.handler_check import discover  # here: most listeners name no modules

    return discover(modules, task_url, functools.partial(_take_environment, url, source))


def look_at(url: str, source: str, task_url: str | None, name: HandlerName) -> Registered | None:
    """Return the callable if it has registered itself; else None. As `look`."""
    from blueque.node.handler_check import find  # here: --help does without

    return find(name, task_url, functools.partial(_take_environment, url, source))


def _timing(config: Config, options: Mapping[str, Any]) -> Timing:
    said = config.listener
    otherwise = Timing(
        said.get("beat", BEAT), said.get("lease", LEASE), said.get("lost_after", LOST_AFTER)
    )
    try:
        return units.timing(
            options.get("beat"),
            options.get("lease"),
            options.get("lost_after"),
            otherwise=otherwise,
        )
    except InvalidInput as error:
        named = " and ".join(name for name in Timing._fields if name in said)
        raise Failure(
            CONFIGURATION, f"{error} ({named} from {config.path})" if named else str(error)
        ) from error


def _limits(options: Mapping[str, Any]) -> dict[str, int | float]:
    """Return the limits from options and variables."""
    try:
        return fields(**{name: options[name] for name in LIMITS if name in options})
    except InvalidInput as error:
        raise Failure(CONFIGURATION, str(error)) from error


def _room(said: Mapping[str, Any], options: Mapping[str, Any]) -> tuple[float, int]:
    """Return the limits of the spool and of each output file."""
    try:
        return (
            options.get("spool_limit") or units.spool_limit(otherwise=said.get("spool_limit")),
            options.get("log_limit") or units.log_limit(otherwise=said.get("log_limit")),
        )
    except InvalidInput as error:
        raise Failure(CONFIGURATION, str(error)) from error


def _amounts(context: click.Context, words: Sequence[str]) -> dict[str, int]:
    """Return the amount of each resource, from the options or the variable."""
    amounts: dict[str, str] = {}
    try:
        for word in words:
            name, _, amount = word.partition("=")
            if not amount or name in amounts:
                raise InvalidInput(f"{word}: " + ("named twice" if amount else "write NAME=AMOUNT"))
            amounts[name] = amount
        return require_resources(amounts)
    except InvalidInput as error:
        if context.get_parameter_source("resources") is ParameterSource.ENVIRONMENT:
            raise Failure(CONFIGURATION, f"BLUEQUE_RESOURCES: {error}") from error
        raise click.UsageError(f"--resource: {error}") from error


def _become_master(choices: dict[str, Any]) -> None:
    from blueque.node.choices import CHOICES, Choices  # here: --help does without
    from blueque.node.main import check

    choices["environ"] = _take_environment(choices["redis_url"], choices["url_source"])
    if ANSWER_TO in os.environ:  # a running master asks whether it could do this from now on
        descriptor = int(os.environ.pop(ANSWER_TO))
        os.set_inheritable(descriptor, False)
        if (refusal := check(Choices.from_json(json.dumps(choices)))) is not None:
            raise Failure(CONFIGURATION, refusal)
        with open(descriptor, "w") as answer:
            answer.write(json.dumps(choices) + "\n")
        return
    # -P: what lies in the directory we were started in, a logging.py say, shall not take the place
    # of what we import.
    arguments = [sys.executable, "-P", "-m", "blueque.node.main", *_without_url(sys.argv[1:])]
    try:
        os.execve(
            sys.executable,
            arguments,
            {**os.environ, CHOICES: str(keep_in_memory(json.dumps(choices)))},
        )
    except OSError as error:
        raise Failure(CONFIGURATION, f"cannot run {sys.executable}: {error.strerror}") from error


def _take_environment(url: str, source: str) -> dict[str, str]:
    """Remove the variables that tasks must not inherit; return those that the check at SIGHUP needs."""
    names = [*_NOT_FOR_TASKS, "BLUEQUE_REDIS_URL"]
    # another address may belong to another service
    if os.environ.get("REDIS_URL") == url:
        names.append("REDIS_URL")
    found = {name: os.environ.pop(name) for name in names if name in os.environ}
    found[HOST] = os.environ.get(HOST, "")
    if source == "--redis-url":  # which is no longer among the arguments, see `_without_url`
        found["BLUEQUE_REDIS_URL"] = url
    return found


def _without_url(arguments: list[str]) -> list[str]:
    """Return the arguments without the address, which may hold a password that `ps` would show."""
    own = arguments[: arguments.index("--exec")] if "--exec" in arguments else arguments
    shown = [word for word in own if not word.startswith("--redis-url=")]
    if "--redis-url" in shown:
        at = shown.index("--redis-url")
        del shown[at : at + 2]
    return shown + arguments[len(own) :]


def main() -> None:
    """Run the blueque-listener program."""
    signals.hold_back("SIGHUP", "SIGUSR1", "SIGUSR2")  # they would end us
    complete_environment()
    run(command, "blueque-listener")


if __name__ == "__main__":
    main()
