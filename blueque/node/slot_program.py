"""What a master runs in each process that it forks for a slot."""

from __future__ import annotations

import logging
import os

from blueque.client import Client
from blueque.errors import CLUSTER, InvalidInput, RedisRefused, SpoolRefused
from blueque.listener.listener import Listener
from blueque.model import units
from blueque.model.queue_order import Select, is_own_select, selector
from blueque.node import context, own_select
from blueque.node.choices import Choices, kinds, pool_of
from blueque.node.context import NodeContext
from blueque.node.reuse import Reuse
from blueque.node.slot import PreloadRefused, Slot
from blueque.node.slots import EXIT_CONFIGURATION, EXIT_DRAINED, EXIT_EMPTY, EXIT_NOT_ALLOWED
from blueque.node.task_processes import Work
from blueque.settings.contents import Config
from blueque.spool.spool import Spool
from blueque.system import process
from blueque.system.dropped_prints import dropping_prints
from blueque.system.title import Title
from blueque.task_process import keeper
from blueque.task_process.import_ahead import import_for_payloads

log = logging.getLogger("blueque")

NAME = "blueque-slot"  # for `ps -o comm`


def run_slot(choices: Choices, orders: keeper.Orders, master: context.Master) -> int:
    """Run one listener in this process; return the exit status.

    orders: for its keeper, as the master has made them.
    """
    process.set_name(NAME)
    Title().show(f"blueque: slot of {' '.join(choices.queues)}")
    os.environ.update(choices.payloads)  # for task processes and their programs as well
    import_for_payloads()
    said = Config(statistics_keep=choices.statistics_keep)
    if choices.replicas[0]:  # for our client, and for those of tasks
        names = ("BLUEQUE_REPLICAS", "BLUEQUE_REPLICAS_TIMEOUT")
        os.environ.update(zip(names, map(str, choices.replicas), strict=True))
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


def _work(choices: Choices, orders: keeper.Orders) -> Work:
    """Return what the slot runs."""
    return Work(
        orders,
        choices.settings["warm"] is not False,
        choices.settings["warm"] is True or bool(choices.settings["preload"]),
        kinds(choices.handlers),
        choices.settings["until_empty"],
        {queue: Reuse.of(*said) for queue, said in choices.reuse.items()},
    )


def preload(choices: Choices) -> str | None:
    """Import the modules; return why one cannot be imported, or None."""
    with dropping_prints():
        return keeper.preload(choices.settings["preload"])
