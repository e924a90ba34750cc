"""blueque-listener: read the arguments, then exec `blueque.node.main`, whose memory each fork copies."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, MutableSequence, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from blueque.cli import listener_handlers
from blueque.cli.exits import run
from blueque.cli.failure import CONFIGURATION, Failure
from blueque.cli.listener_handlers import (
    decorated,
    found_from_here,
    handlers_of,
    registered_among,
    remarks_on,
    require_program,
)
from blueque.cli.listener_queues import chosen_among, cwd_of, named_queues, of_queue, reuse_of
from blueque.cli.options import (
    WITH_SHORT_HELP,
    Invocation,
    config_option,
    debug_option,
    pass_invocation,
    redis_url_option,
    version_option,
)
from blueque.cli.setting_options import setting_options, sources_of
from blueque.errors import InvalidInput, NotInstalled
from blueque.listener.resources import GPU
from blueque.model import units
from blueque.model.units import HandlerName, Timing
from blueque.node.reload import ANSWER_TO, complete_environment
from blueque.settings.of_programs import LISTENER
from blueque.settings.of_tasks import QUEUE
from blueque.settings.table import TABLES, variable
from blueque.settings.values import address_of_tasks
from blueque.system import signals
from blueque.system.hosts import VARIABLE as HOST
from blueque.system.process import keep_in_memory

if TYPE_CHECKING:
    from blueque.model.payloads import Payloads
    from blueque.node.handler_check import Registered
    from blueque.settings.contents import Config
    from blueque.settings.resolver import Resolver

# Their variables are inherited by tasks, because other programs use them as well.
_FOR_ALL = ("host", "spool", "spool_limit", "log_limit", "beat", "lease", "lost_after")
# A listener that a task starts has its own options and file, so it must not inherit these variables.
_NOT_FOR_TASKS = sorted(
    {
        str(variable(table, row.key))
        for table in ("listener", "scheduler")
        for row in TABLES[table]
        if row.key not in _FOR_ALL
    }
)
# The settings of a listener that queues do not have.
_OWN = [row.key for row in LISTENER if row not in QUEUE]


class _Listener(click.Command):
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
        return rest


@click.command(cls=_Listener, context_settings=WITH_SHORT_HELP)
@click.argument("queues", metavar="[QUEUE[=WEIGHT]]...", nargs=-1)
@setting_options("listener")
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

    With several queues, each slot takes one task at a time, from the first queue that has work (--select ordered), or
    from each queue in turn (round-robin). With lottery, the default if a weight is given, it draws a queue by WEIGHT.
    For a queue whose name contains =, add a weight: a=x=1.

    A handler can name its queue itself, with @blueque.handler("video.encode") above the function. --module imports it.
    Every option can also be set in the environment (--max-runtime is BLUEQUE_MAX_RUNTIME) or in blueque.toml, and some
    of them for one queue. The command line wins:

    \b
    [listener]
    modules = ["mypackage.tasks"]

    \b
    [queues."video.encode"]
    handler = "mypackage.tasks:encode"

    The callable gets the task, with its parameters as task.parameters, and returns the result; it may be an async def. A
    program gets the parameters on its standard input, and BLUEQUE_TASK_ID, BLUEQUE_QUEUE, BLUEQUE_ATTEMPT and
    BLUEQUE_TASK_DIR in its environment. Its result is its last line of output, or the file `result` in that directory.

    Ctrl-C: take nothing new, and exit when the running tasks have ended; a second Ctrl-C, at least a second later, stops
    them. SIGTERM: see --on-term. With leave, the default outside a container, running tasks run on, each with its
    listener, and the next blueque-listener here finds them. --retry and the limits apply to tasks without their own.

    SIGUSR2: take nothing new, and stay; the next one: take tasks again. SIGHUP: reload blueque.toml and handlers. SIGUSR1:
    write the stacks of master and listeners to the log. These three signals do not affect tasks.
    """
    # refuse a mistake in the file, and a bad address
    config, client = invocation.config, invocation.client()
    context = click.get_current_context()
    require_program(context)
    sources = sources_of(context, config, "listener")
    settings = sources.of("listener")
    own = of_listener(settings, config.path)
    importer = Importer.of(invocation, settings)
    named = named_queues(client, queues)
    modules = listener_handlers.find(sources, [*named], importer.look)
    named = named or dict.fromkeys(modules.get_queues())
    handlers = handlers_of(sources, named, modules)
    known = {q: weight for q in named if (weight := config.queue(q).get("weight")) is not None}
    weights, own["select"] = chosen_among(settings, known, named)
    farther = sources.farther()
    nearer = {queue: sources.nearer(queue, weight) for queue, weight in named.items()}
    whole = {queue: its.then(*farther.layers) for queue, its in nearer.items()}
    programs = found_from_here(config, handlers, {q: cwd_of(its) for q, its in whole.items()})
    registered = registered_among(programs, modules.handlers, importer.look_at)
    if not any(name.run for name in handlers.values()):
        own["preload"] = []  # programs import nothing
    if own["hooks"] is not None:
        importer.check_hooks(own["hooks"])
    of_queues, remarks = _of_queues(config, nearer, farther, registered)
    of_client = client.connections.settings
    _become_master(
        {
            "settings": own,
            "weights": weights,
            "handlers": programs,
            "of_queues": of_queues,
            "reuse": {q: reuse_of(its) for q, its in whole.items() if handlers[q].run is not None},
            "redis_url": importer.url,
            "url_source": importer.source,
            "max_bytes": client.max_bytes,
            "statistics_keep": of_client.days_kept,
            "replicas": (of_client.replicas, of_client.replicas_timeout),
            "payloads": _variables_of(of_client.payloads),
            "config": config.path,
            "remarks": remarks,
        }
    )


def _variables_of(payloads: Payloads | None) -> dict[str, str]:
    """Return the variables for how payloads are stored. Ends the program if the keys cannot be read."""
    try:
        return {} if payloads is None else payloads.variables()
    except (InvalidInput, NotInstalled) as error:
        raise Failure(CONFIGURATION, str(error)) from error


def _of_queues(
    config: Config,
    nearer: Mapping[str, Resolver],
    farther: Resolver,
    registered: Mapping[str, Registered],
) -> tuple[dict[str, Any], list[str]]:
    """Return the settings of the tasks of each queue, and remarks on what handlers set for them."""
    of_queues, remarks = {}, []
    for queue, its in nearer.items():
        handler = registered.get(queue)
        if handler is not None:
            remarks += remarks_on(config, queue, handler, its)
        of_queues[queue] = of_queue(its.then(decorated(config, queue, handler)), farther)
    return of_queues, remarks


def of_listener(settings: Resolver, path: str | None) -> dict[str, Any]:
    """Return the settings of the listener itself, by key. Ends the program if its times do not fit.

    path: of blueque.toml.
    """
    own = {key: settings.get(key) for key in _OWN if key != "host"}
    host = settings.given("host")  # the default asks a name server
    own["host"] = host.value if host is not None else None
    if own["warm"] is None and GPU in own["resources"]:
        own["warm"] = False
    times = [settings.find(key) for key in Timing._fields]
    try:
        return {**own, **units.timing(*(time.value for time in times))._asdict()}
    except InvalidInput as error:
        named = " and ".join(time.key for time in times if time.origin == "file")
        where = f" ({named} from {path})" if named else ""
        raise Failure(CONFIGURATION, f"{error}{where}") from error


class Importer(NamedTuple):
    """Imports what runs tasks, in a child that then ends.

    url, source: the address of Redis, and its origin. task_url: the address that tasks get.
    """

    url: str
    source: str
    task_url: str | None

    @classmethod
    def of(cls, invocation: Invocation, settings: Resolver) -> Importer:
        """Return that of a listener with these settings."""
        url, source = invocation.address()
        return cls(url, source, address_of_tasks(settings.get("task_redis"), url))

    def look(self, modules: Sequence[str]) -> dict[str, Registered]:
        """Return the handlers of the modules, by queue. Raises InvalidInput."""
        from blueque.node.handler_check import discover  # here: most listeners name no modules

        return discover(modules, self.task_url, self._prepare)

    def look_at(self, name: HandlerName) -> Registered | None:
        """Return the callable if it comes from `blueque.handler`; else None. Raises InvalidInput."""
        from blueque.node.handler_check import find  # here: --help does not need it

        return find(name, self.task_url, self._prepare)

    def check_hooks(self, name: str) -> None:
        """End the program if the class of hooks cannot be used."""
        from blueque.node.handler_check import check_hooks  # here: most listeners have none

        try:
            check_hooks(name, self.task_url, self._prepare)
        except InvalidInput as error:
            raise Failure(CONFIGURATION, str(error)) from error

    def _prepare(self) -> None:
        _take_environment(self.url, self.source)


def _become_master(choices: dict[str, Any]) -> None:
    from blueque.node.choices import CHOICES, Choices  # here: --help does not need it
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
    # -P: a file in the working directory, such as logging.py, must not replace what we import.
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
