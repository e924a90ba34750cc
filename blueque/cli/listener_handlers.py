"""The handlers of a listener: those that options and blueque.toml name, and those of
`blueque.handler` in modules.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import click

from blueque.cli.failure import CONFIGURATION, Failure
from blueque.errors import InvalidInput
from blueque.model.units import HandlerName
from blueque.settings.contents import shown_path
from blueque.settings.resolver import Found, Layer, Resolver, Sources
from blueque.text.format import names_of

if TYPE_CHECKING:
    from blueque.model.working_directory import WorkingDirectory
    from blueque.node.handler_check import Registered
    from blueque.settings.contents import Config

    Look = Callable[[Sequence[str]], dict[str, Registered]]

# what makes no sense for a program, which always runs in its own process
_FOR_CALLABLES = ("preload", "reuse", "reuse_for")
DECORATOR = '@blueque.handler("{}")'


class Modules(NamedTuple):
    """The modules that were imported, and their handlers by queue."""

    names: Sequence[str] = ()
    handlers: Mapping[str, Registered] = MappingProxyType({})

    def get_queues(self) -> list[str]:
        """Return the queues if the arguments name none. Ends the program if there are none."""
        found = [queue for queue, handler in self.handlers.items() if handler.is_own]
        if found:
            return found
        names, several = ", ".join(self.names), len(self.names) > 1
        raise Failure(
            CONFIGURATION,
            f"the module{'s' * several} {names} define{'s' * (not several)} no handler",
            f"Write {DECORATOR.format('some.queue')} above a function there, or name a queue.",
        )


def find(sources: Sources, queues: Sequence[str], look: Look) -> Modules:
    """Import the modules if they may have the handler of a queue. Ends the program if that fails.

    queues: those in the arguments; without any, those of the modules are meant.
    look: returns the handlers of the modules, by queue. Raises InvalidInput.
    """
    named, aliases = sources.modules(queues), sources.config.aliases
    if named is None or not named.value:
        if queues:
            return Modules()
        how = "name a queue, or modules with handlers: --module MODULE"
        raise click.UsageError(f"QUEUE is missing: {how}", click.get_current_context())
    try:
        found = look(named.value)
        handlers = {aliases.get(queue, queue): own for queue, own in found.items()}
        if len(handlers) < len(found):
            names = ", ".join(queue for queue in found if queue in aliases)
            raise InvalidInput(
                f"{names}: the modules also have a handler for the queue of this alias"
            )
        return Modules(named.value, handlers)
    except InvalidInput as error:
        raise Failure(CONFIGURATION, str(error)) from error


def chosen(sources: Sources, queue: str, modules: Modules) -> Found | None:
    """Return what runs the tasks of a queue, as a `HandlerName`; None: nothing is named."""
    names = {queue: handler.run for queue, handler in modules.handlers.items()}
    found = sources.handler(queue, names)
    if found is None:
        return None
    is_callable = found.key == "handler"
    name = HandlerName(found.value) if is_callable else HandlerName(exec=[*found.value])
    return found._replace(value=name)


def handlers_of(
    sources: Sources, queues: Iterable[str], modules: Modules
) -> dict[str, HandlerName]:
    """Return the handler of each queue. Ends the program if a queue has none."""
    handlers = {}
    for queue in queues:
        found = chosen(sources, queue, modules)
        if found is None:
            raise Failure(CONFIGURATION, *_no_handler(queue, modules.names))
        handlers[queue] = found.value
    return handlers


def require_program(context: click.Context) -> None:
    """Check --exec, which takes all following words. Ends the program if some are not for it."""
    program = context.params["exec"]
    if program is None:
        return
    if any(context.params[key] is not None for key in _FOR_CALLABLES):
        raise click.UsageError(
            "--preload, --reuse and --reuse-for need --handler: a program always runs in its own process"
        )
    refuse_swallowed(context.command, program)
    context.params["exec"] = program[program[0] == "--" :]


def registered_among(
    handlers: Mapping[str, HandlerName],
    known: Mapping[str, Registered],
    look: Callable[[HandlerName], Registered | None],
) -> dict[str, Registered]:
    """Return the callables from `blueque.handler`, by the queue whose tasks they run here.

    Ends the program if any callable cannot be a handler.
    known: those of modules, which are not imported again. look: imports a callable. Raises
        InvalidInput.
    """
    from blueque.node.choices import kinds  # here: --help does not need it

    found = {
        q: own for q, own in known.items() if q in handlers and handlers[q] == (own.run, None, [])
    }
    alike = kinds({q: name for q, name in handlers.items() if name.run and q not in found})
    for queue, first in alike.items():
        try:
            own = found.get(first) if queue != first else look(handlers[queue])
        except InvalidInput as error:
            where = f"queue {queue!r}: " if len({*kinds(handlers).values()}) > 1 else ""
            raise Failure(CONFIGURATION, f"{where}{error}") from error
        if own is not None:
            found[queue] = own
    return found


def decorated(config: Config, queue: str, handler: Registered | None) -> Layer:
    """Return what a handler sets for the tasks of a queue; nothing if the queue is not its own."""
    if handler is None or queue not in _queues_of(config, handler):
        return Layer("handler", {})
    values = _said_by(handler)
    return Layer("handler", values, dict.fromkeys(values, handler.run))


def remarks_on(config: Config, queue: str, handler: Registered, nearer: Resolver) -> list[str]:
    """Return in sentences which settings in the decorator of a handler have no effect.

    nearer: what takes precedence.
    """
    unused: dict[str, list[str]] = {}
    for key in sorted(_said_by(handler)):
        found = nearer.given(key)
        if queue not in _queues_of(config, handler):
            reason = f"it is the handler of {names_of(handler.queues)}"
        elif found is None:
            continue
        elif found.origin == "file":
            reason = f"[{shown_path(('queues', queue))}] in {config.path} sets another value"
        else:
            reason = "an option or a variable wins"
        unused.setdefault(reason, []).append(key)
    return [
        f"queue {queue!r}: the decorator of {handler.run} is not used for {', '.join(keys)}: {reason}"
        for reason, keys in unused.items()
    ]


def _queues_of(config: Config, handler: Registered) -> list[str]:
    return [config.aliases.get(queue, queue) for queue in handler.queues]


def _said_by(handler: Registered) -> dict[str, object]:
    retry = {} if handler.retry is None else {"retry": handler.get_retry()}
    return {**retry, **handler.limits}


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
        if words and "/" in words[0] and cwd[queue].is_own:
            words = [os.path.abspath(words[0]), *words[1:]]
        paths = [os.path.abspath(path) for path in config.queue(queue).get("pythonpath", ())]
        found[queue] = name._replace(exec=words, paths=paths)
    return found


def refuse_swallowed(command: click.Command, program: Sequence[str]) -> None:
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
