"""`blueque node`: what a person wants of listeners, wherever they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from blueque.cli import show
from blueque.cli.consent import require_consent
from blueque.cli.failure import MISSING, REFUSED, Failure
from blueque.cli.nodes import node_ls, node_show
from blueque.cli.options import Invocation, json_option, pass_invocation, shared_options, yes_option
from blueque.cli.show import Column, count

if TYPE_CHECKING:
    from blueque.nodes import Node

_TOLD = [
    Column("NODE", can_shrink=True), Column("QUEUE", can_shrink=True), Column("STATE"), Column("NOTE", can_shrink=True),
]
_WHY_NOT = {
    "1.0.0": "a listener of 1.0.0, which takes no orders", "dead": "it is dead", "gone": "it is gone",
    "unattended": "a program uses it as a library, and it looks for no orders",
}


@click.group(subcommand_metavar="VERB [ARGS]...")
def node() -> None:
    """See listeners, and tell them what to do, wherever they are."""


node.add_command(node_ls)
node.add_command(node_show)


@node.command(short_help="Have listeners take nothing new, and leave.")
@click.argument("name", metavar="NODE|HOST")
@yes_option
@json_option
@shared_options
@pass_invocation
def drain(invocation: Invocation, name: str, is_sure: bool, as_json: bool) -> int:
    """Have a listener, or all of a host, take nothing new, and leave when its task has ended.

    \b
    blueque node drain gpu-1.example.com_4021
    blueque node drain gpu-1

    The names are those in status and ls. Of all queues; for more than one listener it asks. blueque-listener ends when
    all its listeners have left, and one that is started later works as ever. The exit code is 5 when a listener could not
    be told.
    """
    listeners = invocation.client().get_listeners()
    found = listeners.find(name)
    if not found:
        raise Failure(MISSING, f"no listener and no host {name!r}", "See their names: blueque node ls")
    able = [one for one in found if one.state not in _WHY_NOT]
    ids = {one.id for one in able}                     # a listener of several queues is one of each of them
    if len(ids) > 1:
        busy = len({one.id for one in able if one.held})
        facts = f"{count(len(ids), 'listener')} would leave, {busy} of them after the task they have"
        require_consent(is_sure, facts, "Drain them?", show.table(_TOLD[:3], [[*_names(one), one.state] for one in able]))
    told, not_told = listeners.drain(name)
    if as_json:
        show.print_json("drain", items=[_item(one) for one in told] + [_item(one, _why_not(one)) for one in not_told])
    elif told:
        click.echo("\n".join(show.table(_TOLD, [[*_names(one), "draining", _note(one)] for one in told])))
    for one in not_told:
        show.talk(f"{one.id} of {one.queue} was not told: {_why_not(one)}")
    return REFUSED if not_told else 0


def _names(one: Node) -> Sequence[str]:
    return show.short_node(one.id), one.queue


def _note(one: Node) -> str:
    if one.state == "silent":
        return "silent: obeys when it beats again"
    return f"leaves after {show.short_id(one.held[0])}" if one.held else ""


def _why_not(one: Node) -> str:
    return _WHY_NOT.get(one.state, "it has left")


def _item(one: Node, refusal: str | None = None) -> dict[str, object]:
    status = None if refusal else "draining"
    return {"node": one.id, "queue": one.queue, "status": status, "held": one.held, "refusal": refusal}
