"""The handlers that register themselves in the modules of --module, BLUEQUE_MODULES or
blueque.toml.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import click

from blueque.cli.failure import CONFIGURATION, Failure
from blueque.cli.program import nearest, refuse_both
from blueque.errors import InvalidInput
from blueque.model.units import HandlerName

if TYPE_CHECKING:
    from blueque.config.contents import Config
    from blueque.node.handler_check import Registered

    Look = Callable[[Sequence[str]], dict[str, Registered]]

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

    def used_by(self, queues: Iterable[str], config: Config) -> dict[str, Registered]:
        """Return the handlers of these queues that are ours, by queue. What blueque.toml names for a
        queue is not, also if it is the same function: it need not be imported.
        """
        return {
            queue: self.handlers[queue]
            for queue in queues
            if queue in self.handlers and (self.goes_first or config.queue(queue).handler is None)
        }


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
