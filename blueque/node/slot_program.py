"""What a master runs in each process that it forks for a slot."""

from __future__ import annotations

import logging
from collections.abc import Callable

from blueque.client import Client
from blueque.errors import CLUSTER, InvalidInput, RedisRefused, SpoolRefused
from blueque.listener.listener import Listener
from blueque.model import units
from blueque.model.queue_order import Select, is_own_select, selector
from blueque.node import context, own_select
from blueque.node.choices import Choices, kinds, pool_of
from blueque.node.context import NodeContext
from blueque.node.prefork import BURST, ONCE, Work
from blueque.node.reuse import Reuse
from blueque.node.slot import PreloadRefused, Slot
from blueque.node.slots import EXIT_CONFIGURATION, EXIT_DRAINED, EXIT_EMPTY, EXIT_NOT_ALLOWED
from blueque.settings.contents import Config
from blueque.spool.spool import Spool
from blueque.system import process
from blueque.system.dropped_prints import dropping_prints
from blueque.system.title import Title
from blueque.task_process import fork_server, job, process_end

log = logging.getLogger("blueque")

NAME = "blueque-slot"  # for `ps -o comm`


def run_slot(choices: Choices, orders: fork_server.Orders, master: context.Master) -> int:
    """Run one listener in this process; return the exit status.

    orders: for its fork server, as the master has made them.
    """
    process.set_name(NAME)
    Title().show(f"blueque: slot of {' '.join(choices.queues)}")
    said = Config(statistics_keep=choices.statistics_keep)
    client = Client(choices.redis_url, patience=0, max_bytes=choices.max_bytes, config=said)
    spool = Spool(choices.spool, choices.max_bytes)
    # for a client that a module makes when it is imported
    units.connect_as_listener(choices.job.redis_url)
    try:
        select = _select(choices)
    except InvalidInput as error:
        log.error("%s", error)
        return EXIT_CONFIGURATION
    listener = Listener(client.connections, choices.queues, select)
    shared = NodeContext.of(client, listener, spool, choices.in_effect(), pool_of(choices), master)
    slot = Slot(shared, _work(choices, orders._replace(spool=spool.root, slot=spool.slot)))
    try:
        is_drained = slot.run()
        return EXIT_EMPTY if slot.has_emptied else EXIT_DRAINED if is_drained else 0
    except RedisRefused as error:
        log.error("%s", error)
        return EXIT_CONFIGURATION if error.code in CLUSTER else EXIT_NOT_ALLOWED
    except (SpoolRefused, PreloadRefused) as error:
        log.error("%s", error)
        return EXIT_CONFIGURATION


def _select(choices: Choices) -> Select:
    """Return how to choose among the queues. Raises InvalidInput."""
    if is_own_select(choices.select):
        return own_select.load(choices.select)
    return selector(choices.select, choices.weights)


def _work(choices: Choices, server: fork_server.Orders) -> Work:
    """Return what the slot runs. server: for its fork server."""
    reuse = {queue: Reuse.of(*said) for queue, said in choices.reuse.items()}
    # One process follows that of all tasks; each may have loaded a large model.
    has_burst = {*reuse.values()} <= {ONCE}
    return Work(
        _life(choices),
        choices.settings["warm"],
        kinds(choices.handlers),
        burst=BURST if has_burst else 1,
        until_empty=choices.settings["until_empty"],
        reuse=reuse,
        server=server,
        forks_first=not (choices.settings["preload"] or is_own_select(choices.select)),
    )


def _life(choices: Choices) -> Callable[[Spool, int, str | None], int]:
    """Return what a task process does that the listener itself has forked."""

    def live(spool: Spool, handshake: int, prepared: str | None) -> int:
        process_end.disown()
        preload(choices)  # as the fork server would have; what fails there fails in the handler
        return job.run(choices.job, spool, handshake, prepared)

    return live


def preload(choices: Choices) -> str | None:
    """Import the modules; return why one cannot be imported, or None."""
    with dropping_prints():
        return fork_server.preload(choices.settings["preload"])
