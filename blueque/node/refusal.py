"""Why a master could not do what the arguments of `blueque-listener` ask for."""

from __future__ import annotations

from blueque.errors import SpoolRefused
from blueque.model.queue_order import is_own_select
from blueque.node import handler_check
from blueque.node.choices import Choices, pool_of
from blueque.spool.spool import Spool


def refusal_of(choices: Choices, is_first: bool = True) -> str | None:
    """Return why the handlers cannot run, or the node cannot serve them; None: they can.

    is_first: no listeners run yet that could publish other amounts of resources until they leave.
    """
    if (refusal := check_work(choices)) is not None:
        return refusal
    try:
        Spool(choices.spool, choices.max_bytes).open()
        if (pool := pool_of(choices)) is not None:
            pool.open()
            if is_first:
                pool.declare()  # the slots say it from then on, each as long as it takes tasks
                pool.withdraw()
    except SpoolRefused as error:
        return str(error)
    return None


def check_work(choices: Choices) -> str | None:
    """Return why the work cannot be done, in a sentence, or None.

    Callables are not checked: `blueque-listener` has imported each of them in a child.
    """
    if is_own_select(choices.select):
        url = choices.job.redis_url
        refusal = handler_check.check_select(choices.select, choices.queues, url)
        if refusal is not None:
            return refusal
    for queue, name in choices.handlers.items():
        refusal = handler_check.check_program(name)
        if refusal is not None:
            return refusal if len(choices.handlers) == 1 else f"queue {queue!r}: {refusal}"
    return None
