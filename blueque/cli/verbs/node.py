"""`blueque node`: what a person wants of listeners, wherever they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from blueque.cli import printing
from blueque.cli.consent import require_consent
from blueque.cli.failure import MISSING, REFUSED, Failure
from blueque.cli.options import Invocation, json_option, pass_invocation, shared_options, yes_option
from blueque.cli.printing import Column, count
from blueque.cli.verbs.node_list import node_ls, node_show

if TYPE_CHECKING:
    from blueque.listener.orders import Listeners, Told
    from blueque.queries.listeners import Node

_TOLD = [
    Column("NODE", can_shrink=True),
    Column("QUEUE", can_shrink=True),
    Column("STATE"),
    Column("NOTE", can_shrink=True),
]
_WHY_NOT = {
    "1.0.0": "a listener of 1.0.0, which takes no orders",
    "dead": "it is dead",
    "gone": "it is gone",
    "unattended": "a program uses it as a library, and it looks for no orders",
}


@click.group(subcommand_metavar="VERB [ARGS]...")
def node() -> None:
    """See listeners, and tell them what to do, wherever they are."""


node.add_command(node_ls)
node.add_command(node_show)


class _Wish(NamedTuple):
    """What a person wants of listeners.

    kind: of the JSON. tell: the call that gives the order. state: of a listener that obeys. would,
        question: when asking.
    """

    kind: str
    tell: Callable[[Listeners, str], Told]
    state: str
    would: str
    question: str


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
    wish = _Wish(
        "drain", lambda listeners, name: listeners.drain(name), "draining", "leave", "Drain them?"
    )
    return _tell(invocation, name, wish, is_sure, as_json)


@node.command(short_help="Have listeners take nothing new, and stay.")
@click.argument("name", metavar="NODE|HOST")
@yes_option
@json_option
@shared_options
@pass_invocation
def pause(invocation: Invocation, name: str, is_sure: bool, as_json: bool) -> int:
    """Have the listeners of a host take nothing new until `node resume`. Tasks that run go on.

    \b
    blueque node pause gpu-1
    blueque node resume gpu-1

    The names are those in status and ls. All slots of a blueque-listener pause together, also when you name one of them,
    and so do those that take the place of others. A blueque-listener that is started later takes tasks. For more than one
    listener it asks. The exit code is 5 when a listener could not be told.
    """
    wish = _Wish(
        "node_pause",
        lambda listeners, name: listeners.pause(name),
        "paused",
        "take nothing new",
        "Pause them?",
    )
    return _tell(invocation, name, wish, is_sure, as_json)


@node.command(short_help="Have paused listeners take tasks again.")
@click.argument("name", metavar="NODE|HOST")
@yes_option
@json_option
@shared_options
@pass_invocation
def resume(invocation: Invocation, name: str, is_sure: bool, as_json: bool) -> int:
    """Have the listeners of a host take tasks again, after `node pause` or SIGUSR2.

    \b
    blueque node resume gpu-1

    The names are those in status and ls. For more than one listener it asks. The exit code is 5 when a listener could not
    be told.
    """
    wish = _Wish(
        "node_resume",
        lambda listeners, name: listeners.resume(name),
        "up",
        "take tasks again",
        "Resume them?",
    )
    return _tell(invocation, name, wish, is_sure, as_json)


def _tell(invocation: Invocation, name: str, wish: _Wish, is_sure: bool, as_json: bool) -> int:
    listeners = invocation.client().get_listeners()
    found = listeners.find(name)
    if not found:
        raise Failure(
            MISSING, f"no listener and no host {name!r}", "See their names: blueque node ls"
        )
    able = [one for one in found if one.state not in _WHY_NOT]
    ids = {one.id for one in able}  # a listener of several queues is one of each of them
    if len(ids) > 1:
        busy = len({one.id for one in able if one.held})
        tasks = (
            f"{busy} of them after the task they have"
            if wish.state == "draining"
            else f"{busy} of them have a task"
        )
        facts = f"{count(len(ids), 'listener')} would {wish.would}, {tasks}"
        table = printing.table(_TOLD[:3], [[*_names(one), one.state] for one in able])
        require_consent(is_sure, facts, wish.question, table)
    told, not_told = wish.tell(listeners, name)
    if as_json:
        items = [_item(one, wish.state) for one in told] + [
            _item(one, None, _why_not(one)) for one in not_told
        ]
        printing.print_json(wish.kind, items=items)
    elif told:
        rows = [[*_names(one), _state(one, wish.state), _note(one, wish.state)] for one in told]
        click.echo("\n".join(printing.table(_TOLD, rows)))
    for one in not_told:
        printing.talk(f"{one.id} of {one.queue} was not told: {_why_not(one)}")
    return REFUSED if not_told else 0


def _state(one: Node, wanted: str) -> str:
    """Return the state of a listener that has been told: one that drains neither pauses nor takes
    tasks again.
    """
    return "draining" if one.state == "draining" else wanted


def _names(one: Node) -> Sequence[str]:
    return printing.short_node(one.id), one.queue


def _note(one: Node, wanted: str) -> str:
    if one.state == "silent":
        return "silent: obeys when it beats again"
    if not one.held:
        return ""
    verb = "leaves after" if _state(one, wanted) == "draining" else "goes on with"
    return f"{verb} {printing.short_id(one.held[0])}"


def _why_not(one: Node) -> str:
    return _WHY_NOT.get(one.state, "it has left")


def _item(one: Node, wanted: str | None, refusal: str | None = None) -> dict[str, object]:
    status = None if wanted is None else _state(one, wanted)
    return {
        "node": one.id,
        "queue": one.queue,
        "status": status,
        "held": one.held,
        "refusal": refusal,
    }
