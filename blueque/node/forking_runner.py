"""ForkingRunner: a listener in a program of one's own, by the name and with the arguments of 1.0.0."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from blueque.client import Client
from blueque.errors import InvalidInput
from blueque.listener.listener import Listener
from blueque.model import units
from blueque.model.queue_order import Select, require_select
from blueque.node.context import NodeContext
from blueque.node.prefork import Work
from blueque.node.slot import Slot
from blueque.settings.in_effect import InEffect, OfQueue
from blueque.spool.spool import Spool
from blueque.task_process import handlers, main, process_end
from blueque.task_process.import_ahead import import_for_daemon


class ForkingRunner:
    """Takes tasks from a queue, or from several, and runs `task_callback(task)` for each in a
    process of its own.

    The program that runs it must be single-threaded at that time, as for any fork. SIGTERM or
    Ctrl-C: it takes nothing new and returns when its task has ended; the second one stops the task.

    spool: the directory for the files of attempts; BLUEQUE_SPOOL, else
        ~/.local/state/blueque/spool.
    task_callback: a plain function of one argument, the task. Raises InvalidInput for another. What
        `blueque.handler` says of retries and limits does not count here.
    grace: seconds between SIGTERM and SIGKILL when a task is stopped.
    select: from which of several queues to take, see queue_order.py; else from the first that has
        work.
    """

    def __init__(
        self,
        client: Client,
        queue: str | Sequence[str],
        task_callback: handlers.Handler,
        *,
        spool: str | None = None,
        grace: float = units.GRACE,
        select: Select | None = None,
    ) -> None:
        if reason := handlers.unfit(task_callback):
            raise InvalidInput(f"task_callback {task_callback!r} {reason}")
        self._queues = [queue] if isinstance(queue, str) else list(queue)
        self._client, self._select, self._callback = client, require_select(select), task_callback
        self._spool, self._grace = spool, grace

    def run(self) -> None:
        """Work until told to leave."""
        import_for_daemon()
        limit = self._client.max_bytes
        own = handlers.handler(self._get_callback, limit)

        def life(spool: Spool, handshake: int, prepared: str | None) -> int:
            process_end.disown()
            units.connect_as_listener(self._client.url)
            return main.main(lambda _queue: own, spool, handshake, prepared)

        spool = Spool(self._spool or units.spool(), limit)
        grace = {"grace": str(self._grace)}
        defaults = InEffect(units.timing(), otherwise=OfQueue(farther=grace))
        client = self._client.with_patience(0)
        listener = Listener(client.connections, self._queues, self._select)
        context = NodeContext.of(client, listener, spool, defaults)
        Slot(context, Work(life, is_warm=False)).run()

    def _get_callback(self) -> Any:
        return self._callback
