"""A selector of the user, `--select MODULE:CALLABLE`: the only user code that runs in a listener."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Collection, Iterable, Sequence

from blueque.errors import BluequeError, InvalidInput
from blueque.model.queue_order import Ordered, Select, require_select
from blueque.system.dropped_prints import dropping_prints
from blueque.task_process.handlers import place_of, resolve

log = logging.getLogger("blueque")


class OwnSelect:
    """Calls a selector; if it fails, takes from the first queue with work.

    name: of the selector. The log shows when it begins to fail and when that ends.
    """

    def __init__(self, name: str, select: Select) -> None:
        self._name, self._select = name, select
        self._has_failed = False

    def __call__(self, queues: Sequence[str], ready: Collection[str]) -> Iterable[str]:
        try:
            chosen = self.choose(queues, ready)
        except Exception as error:
            if not self._has_failed:
                sentence = "the selector %s fails, so the first queue with work is next: %s"
                log.error(sentence, self._name, _said(error))
            self._has_failed = True
            return Ordered()(queues, ready)
        if self._has_failed:
            log.info("the selector %s works again", self._name)
        self._has_failed = False
        return chosen

    def choose(self, queues: Sequence[str], ready: Collection[str]) -> list[str]:
        """Return the choice of the selector. Raises InvalidInput, and what the selector raises."""
        chosen = [*self._select([*queues], {*ready})]
        if unknown := [queue for queue in chosen if queue not in queues]:
            raise InvalidInput(f"it names {unknown[0]!r}, which is no queue of this listener")
        return chosen


def load(name: str) -> OwnSelect:
    """Import a selector. Raises InvalidInput, and whatever its import raises."""
    try:
        with dropping_prints():
            return OwnSelect(
                name, require_select(resolve(name, importlib.import_module)) or Ordered()
            )
    except BaseException as error:  # a module may call sys.exit when it is imported
        raise InvalidInput(f"cannot import the selector {name}: {_said(error)}") from error


def refusal(name: str, queues: Sequence[str]) -> str | None:
    """Return why this cannot choose among the queues, or None. Needs a child: handler_check.py."""
    try:
        own = load(name)
    except InvalidInput as error:
        return str(error)
    try:
        own.choose(queues, queues)
    except Exception as error:
        return f"the selector {name} cannot be used: {_said(error)}"
    return None


def _said(error: BaseException) -> str:
    if isinstance(error, BluequeError):
        return str(error)
    return f"{type(error).__name__}: {error}{place_of(error)}"
