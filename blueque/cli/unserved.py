"""Say that no listener serves a queue: its name may be a mistake."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blueque.cli import printing
from blueque.cli.advice import like

if TYPE_CHECKING:
    from blueque.cli.options import Invocation
    from blueque.client import Client


def warn_of_no_listener(
    invocation: Invocation, client: Client, queue: str, what: str = "the task waits"
) -> None:
    """Say if a queue has no listener: its name may be a mistake."""
    served = {node.queue for node in client.get_inspector().nodes() if not node.is_unheard}
    if queue not in served:
        printing.talk(
            f"No listener serves {queue}, so {what}.{like(queue, served)} Start one: {invocation.serve(queue)}"
        )
