"""The orders for the listeners of a host: what a person reads before, and how each is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from blueque.documents.orders import TELL_NOTHING
from blueque.text.format import count

if TYPE_CHECKING:
    from blueque.listener.listeners import Listeners, Told
    from blueque.queries.listeners import Node


class HostOrder(NamedTuple):
    """One kind of order. word: of the button. tell: gives it to those of a name.

    state: of a listener that has obeyed. would: what listeners would do.
    """

    word: str
    tell: Callable[[Listeners, str, str | None], Told]
    state: str
    would: str

    def ask(self, nodes: Sequence[Node]) -> str:
        """Return what would happen, a sentence without capital and full stop."""
        able = [node for node in nodes if node.state not in TELL_NOTHING]
        # a listener of several queues counts once
        listeners, busy = {node.id for node in able}, {node.id for node in able if node.held}
        tasks = "have a task" if self.state != "draining" else "after the task they have"
        return (
            f"{count(len(listeners), 'listener')} would {self.would}, {len(busy)} of them {tasks}"
        )


HOST_ORDERS: Mapping[str, HostOrder] = {
    "pause": HostOrder(
        "Pause", lambda listeners, name, by: listeners.pause(name, by), "paused", "take nothing new"
    ),
    "resume": HostOrder(
        "Resume", lambda listeners, name, by: listeners.resume(name, by), "up", "take tasks again"
    ),
    "drain": HostOrder(
        "Drain", lambda listeners, name, by: listeners.drain(name, by), "draining", "exit"
    ),
}
