"""`blueque host`: list, show, pause, resume and drain the listeners of hosts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from blueque.cli import printing
from blueque.cli.consent import require_consent
from blueque.cli.failure import REFUSED
from blueque.cli.noun import Noun
from blueque.cli.options import Invocation, shared_options, yes_option
from blueque.cli.printing import Column, count
from blueque.cli.verbs.host_list import list_hosts, no_host, show_host
from blueque.documents.orders import TELL_NOTHING, of_told, state_after, why_not

if TYPE_CHECKING:
    from blueque.queries.listeners import Node

_TOLD = [
    Column("NODE", can_shrink=True),
    Column("QUEUE", can_shrink=True),
    Column("STATE"),
    Column("NOTE", can_shrink=True),
]


@click.group(cls=Noun)
def host() -> None:
    """List the hosts that serve queues, and send orders to their listeners. Without a verb it is `blueque host ls`.

    An order applies to all queues of a listener. It asks before it drains more than one listener. The exit code is 5
    if a listener could not get the order.
    """


host.add_command(list_hosts)
host.add_command(show_host)


@host.command(short_help="Make listeners take nothing new, and stay.")
@click.argument("name", metavar="HOST|NODE")
@shared_options
def pause(invocation: Invocation, name: str) -> int:
    """Make the listeners of a host take nothing new until `blueque host resume`. Running tasks run on.

    \b
    blueque host pause gpu-1

    Use a name as status and ls show it. All slots of a blueque-listener pause together, even if you name one of them, and
    so do their replacements. A blueque-listener that starts later takes tasks.
    """
    return _tell(invocation, "pause", name)


@host.command(short_help="Make paused listeners take tasks again.")
@click.argument("name", metavar="HOST|NODE")
@shared_options
def resume(invocation: Invocation, name: str) -> int:
    """Make the listeners of a host take tasks again, after `blueque host pause` or SIGUSR2.

    \b
    blueque host resume gpu-1
    """
    return _tell(invocation, "resume", name)


@host.command(short_help="Make listeners take nothing new, and exit.")
@click.argument("name", metavar="HOST|NODE")
@yes_option
@shared_options
def drain(invocation: Invocation, name: str, is_sure: bool) -> int:
    """Make the listeners of a host take nothing new, and exit when their tasks have ended.

    \b
    blueque host drain gpu-1
    blueque host drain gpu-1.example.com_4021

    blueque-listener exits when all its listeners have; one that starts later takes tasks.
    """
    from blueque.faces.hosts import of_drain  # here: --help does not need it

    found = invocation.client().get_listeners().find(name)
    able = [each for each in found if each.state not in TELL_NOTHING]
    number = len({each.id for each in able})
    if number > 1:
        table = printing.table(_TOLD[:3], [[*_names(each), each.state] for each in able])
        require_consent(is_sure, of_drain(able), f"Drain {count(number, 'listener')}?", table)
    return _tell(invocation, "drain", name)


def _tell(invocation: Invocation, verb: str, name: str) -> int:
    """Give the order to the listeners of a host, or to the one of that name, and print what they do."""
    from blueque.faces.hosts import HOST_ORDERS  # here: --help does not need it

    order, listeners = HOST_ORDERS[verb], invocation.client().get_listeners()
    told = order.tell(listeners, name, invocation.by)
    if not told.told and not told.not_told:
        raise no_host(name)
    if invocation.as_json:
        printing.print_json(f"host_{verb}", **of_told(told, order.state))
    elif told.told:
        rows = [
            [*_names(one), state_after(one, order.state), _note(one, order.state)]
            for one in told.told
        ]
        printing.print_table(_TOLD, rows)
    for one in told.not_told:
        printing.talk(f"{one.id} of {one.queue} did not get the order: {why_not(one)}")
    return REFUSED if told.not_told else 0


def _names(one: Node) -> Sequence[str]:
    return printing.short_node(one.id), one.queue


def _note(one: Node, wanted: str) -> str:
    if one.state == "silent":
        return "silent: it follows the order at its next beat"
    if not one.held:
        return ""
    verb = "exits after" if state_after(one, wanted) == "draining" else "goes on with"
    return f"{verb} {printing.short_id(one.held[0])}"
