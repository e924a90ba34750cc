"""The handlers of a listener: those that options and blueque.toml name, and those that register
themselves in the modules of --module, BLUEQUE_MODULES or blueque.toml.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import click
from click.core import ParameterSource

from blueque.cli.failure import CONFIGURATION, Failure
from blueque.cli.program import nearest, refuse_both
from blueque.config.checker import shown_path
from blueque.errors import InvalidInput
from blueque.model.units import HandlerName
from blueque.model.working_directory import WorkingDirectory

if TYPE_CHECKING:
    from blueque.config.contents import Config
    from blueque.node.handler_check import Registered

    Look = Callable[[Sequence[str]], dict[str, Registered]]

# what makes no sense for a program, which always runs in its own process
_FOR_CALLABLES = ("preload", "reuse", "reuse_for")
DECORATOR = '@blueque.handler("{}")'


class Found(NamedTuple):
    """What the modules have.

    modules: those that were imported. handlers: by queue.
    goes_first: an option or a variable names the modules, so they go before what blueque.toml says
        of a queue.
    """

    modules: Sequence[str] = ()
    handlers: Mapping[str, Registered] = MappingProxyType({})
    goes_first: bool = False

    def get_run(self, queue: str) -> HandlerName | None:
        """Return the handler of a queue; None: the modules have none."""
        return HandlerName(self.handlers[queue].run) if queue in self.handlers else None

    def get_queues(self) -> list[str]:
        """Return the queues to listen to if the arguments name none. Ends the program if there are
        none.
        """
        found = [queue for queue, handler in self.handlers.items() if handler.is_own]
        if found:
            return found
        names = ", ".join(self.modules)
        several = len(self.modules) > 1
        raise Failure(
            CONFIGURATION,
            f"the module{'s' * several} {names} define{'s' * (not several)} no handler",
            f"Write {DECORATOR.format('some.queue')} above a function there, or name a queue.",
        )


def find(context: click.Context, config: Config, queues: Collection[str], look: Look) -> Found:
    """Import the modules if they may have the handler of a queue. Ends the program if that fails.

    queues: those in the arguments; without any, those of the modules are meant.
    look: returns the handlers of the modules, by queue. Raises InvalidInput.
    """
    advice = "these modules name the handlers of their queues, and the other is for all queues"
    for key in ("handler", "exec"):
        refuse_both(context, key, "modules", advice)
    given = nearest(context, {}, "handler", "exec", "modules")
    modules = given.get("modules") or (() if given else config.listener.get("modules", ()))
    is_needed = not queues or any(config.queue(queue).handler is None for queue in queues)
    if not modules and not queues:
        how = "name a queue, or modules whose handlers name theirs: --module MODULE"
        raise click.UsageError(f"QUEUE is missing: {how}", context)
    if not modules or not (given or is_needed):
        return Found()
    try:
        found = look(modules)
        handlers = {config.aliases.get(queue, queue): own for queue, own in found.items()}
        if len(handlers) < len(found):
            names = ", ".join(queue for queue in found if queue in config.aliases)
            raise InvalidInput(
                f"{names}: the modules have a handler for the queue of this alias, too"
            )
        return Found(modules, handlers, bool(given))
    except InvalidInput as error:
        raise Failure(CONFIGURATION, str(error)) from error


def handlers_of(
    context: click.Context, config: Config, queues: Iterable[str], modules: Found
) -> dict[str, HandlerName]:
    """Return the handler of each queue. Ends the program if a queue has none."""
    refuse_both(context, "handler", "exec", "a task has one handler, so give one of the two")
    found = nearest(context, {}, "handler", "exec", "modules")
    if context.get_parameter_source("exec") is ParameterSource.COMMANDLINE:
        if ParameterSource.COMMANDLINE in map(context.get_parameter_source, _FOR_CALLABLES):
            raise click.UsageError(
                "--preload, --reuse and --reuse-for need --handler: a program always runs in its own process"
            )
        _refuse_swallowed(context.command, found["exec"])
        found["exec"] = found["exec"][found["exec"][0] == "--" :]
    given, said = (
        HandlerName(values.get("handler"), values.get("exec"))
        for values in (found, config.listener)
    )
    handlers = {}
    for queue in queues:
        nearer, farther = config.queue(queue).handler, modules.get_run(queue)
        if modules.goes_first:
            nearer, farther = farther, nearer
        handlers[queue] = given if any(given) else nearer or farther or said
        if not any(handlers[queue]):
            raise Failure(CONFIGURATION, *_no_handler(queue, modules.modules))
    return handlers


def registered_among(
    handlers: Mapping[str, HandlerName],
    known: Mapping[str, Registered],
    look: Callable[[HandlerName], Registered | None],
) -> dict[str, Registered]:
    """Return the callables that have registered themselves, by the queue whose tasks they run here.
    Ends the program if one of all cannot be a handler.

    known: those of modules, which need no look. look: imports a callable. Raises InvalidInput.
    """
    from blueque.node.choices import kinds  # here: --help does without

    found = {
        q: own for q, own in known.items() if q in handlers and handlers[q] == (own.run, None, [])
    }
    alike = kinds({q: name for q, name in handlers.items() if name.run and q not in found})
    for queue, first in alike.items():
        try:
            own = found.get(first) if queue != first else look(handlers[queue])
        except InvalidInput as error:
            where = f"queue {queue!r}: " if len({*kinds(handlers).values()}) > 1 else ""
            raise Failure(CONFIGURATION, f"{where}{error}", _advice(handlers[queue])) from error
        if own is not None:
            found[queue] = own
    return found


def _advice(name: HandlerName) -> str:
    """Return what may be meant by a callable that cannot be imported; empty if that is not clear."""
    is_module = name.run is not None and ":" not in name.run
    return f"For a module of decorated handlers: --module {name.run}" if is_module else ""


def _no_handler(queue: str, modules: Sequence[str]) -> tuple[str, ...]:
    """Return the message, and the ways to name a handler. modules: those that have none for it."""
    where = f" in {', '.join(modules)}" if modules else ""
    return (
        f"queue {queue!r} has no handler{where}. Name a callable or a program in one of these ways:",
        f"a decorator: {DECORATOR.format(queue)} on a function in a module that --module MODULE names",
        "an option: --handler MODULE:CALLABLE, or --exec PROGRAM [ARGS]...",
        f'blueque.toml: handler = "MODULE:CALLABLE" or exec = ["PROGRAM"] in [{shown_path(("queues", queue))}] or in [listener]',
        "a variable: BLUEQUE_HANDLER=MODULE:CALLABLE, or BLUEQUE_EXEC='PROGRAM [ARGS]...'",
    )


def found_from_here(
    config: Config, handlers: Mapping[str, HandlerName], cwd: Mapping[str, WorkingDirectory]
) -> dict[str, HandlerName]:
    """Return what runs the tasks of each queue, with paths that hold in any working directory."""
    found = {}
    for queue, name in handlers.items():
        words = name.exec
        if words and "/" in words[0] and cwd.get(queue, WorkingDirectory()).is_own:
            words = [os.path.abspath(words[0]), *words[1:]]
        paths = [os.path.abspath(path) for path in config.queue(queue).pythonpath]
        found[queue] = name._replace(exec=words, paths=paths)
    return found


def _refuse_swallowed(command: click.Command, program: Sequence[str]) -> None:
    """Refuse options of the listener among the arguments of the program, unless -- comes before."""
    arguments = program[1 : program.index("--") if "--" in program else None]
    options = [one for one in command.params if isinstance(one, click.Option)]
    known = {name for one in options for name in (*one.opts, *one.secondary_opts)}
    for word in arguments:
        if word.partition("=")[0] in known:
            raise click.UsageError(
                f"{word} would be given to {program[0]}: options of the listener go before --exec. To allow it: "
                f"--exec -- {shlex.join(program)}"
            )
