"""The orders for the listeners of a host: how each is given, and the text to confirm."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from blueque.text.format import count

if TYPE_CHECKING:
    from blueque.listener.listeners import Listeners, Told
    from blueque.queries.listeners import Node


class HostOrder(NamedTuple):
    """A kind of order. tell: gives it to listeners by name. state: of a listener that obeyed."""

    tell: Callable[[Listeners, str, str | None], Told]
    state: str


HOST_ORDERS: Mapping[str, HostOrder] = {
    "pause": HostOrder(lambda listeners, name, by: listeners.pause(name, by), "paused"),
    "resume": HostOrder(lambda listeners, name, by: listeners.resume(name, by), "up"),
    "drain": HostOrder(lambda listeners, name, by: listeners.drain(name, by), "draining"),
}


def of_drain(nodes: Sequence[Node]) -> str:
    """Return what happens if these listeners drain: a sentence without capital and full stop."""
    # a listener of several queues counts once
    listeners, busy = {node.id for node in nodes}, {node.id for node in nodes if node.held}
    after = f"{len(busy)} of them after their task"
    return f"{count(len(listeners), 'listener')} would exit, {after}"
