"""`blueque node`: list, pause, resume and drain listeners on any host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from blueque.cli import printing
from blueque.cli.consent import require_consent
from blueque.cli.failure import MISSING, REFUSED, Failure
from blueque.cli.options import Invocation, json_option, shared_options, yes_option
from blueque.cli.printing import Column, count
from blueque.cli.verbs.node_list import node_ls, node_show
from blueque.documents.orders import TELL_NOTHING, of_told, state_after, why_not

if TYPE_CHECKING:
    from blueque.listener.listeners import Listeners, Told
    from blueque.queries.listeners import Node

_TOLD = [
    Column("NODE", can_shrink=True),
    Column("QUEUE", can_shrink=True),
    Column("STATE"),
    Column("NOTE", can_shrink=True),
]


@click.group(subcommand_metavar="VERB [ARGS]...")
def node() -> None:
    """List listeners on any host, and send them orders."""


node.add_command(node_ls)
node.add_command(node_show)


class _Wish(NamedTuple):
    """An order to listeners.

    kind: of the JSON. tell: the call that sends the order. state: of a listener that has obeyed.
    would, question: words of the question to the user.
    """

    kind: str
    tell: Callable[[Listeners, str], Told]
    state: str
    would: str
    question: str


@node.command(short_help="Make listeners take nothing new, and exit.")
@click.argument("name", metavar="NODE|HOST")
@yes_option
@json_option
@shared_options
def drain(invocation: Invocation, name: str, is_sure: bool, as_json: bool) -> int:
    """Make a listener, or all of a host, take nothing new, and exit when its task has ended.

    \b
    blueque node drain gpu-1.example.com_4021
    blueque node drain gpu-1

    Use a name as status and ls show it. The order holds for all queues of the listener. For more than one listener it
    asks first. blueque-listener exits when all its listeners have; one that starts later takes tasks. The exit code is 5
    if a listener could not be told.
    """
    wish = _Wish(
        "drain", lambda listeners, name: listeners.drain(name), "draining", "exit", "Drain them?"
    )
    return _tell(invocation, name, wish, is_sure, as_json)


@node.command(short_help="Make listeners take nothing new, and stay.")
@click.argument("name", metavar="NODE|HOST")
@yes_option
@json_option
@shared_options
def pause(invocation: Invocation, name: str, is_sure: bool, as_json: bool) -> int:
    """Make the listeners of a host take nothing new until `node resume`. Running tasks run on.

    \b
    blueque node pause gpu-1
    blueque node resume gpu-1

    Use a name as status and ls show it. All slots of a blueque-listener pause together, even if you name one of them, and
    so do their replacements. A blueque-listener that starts later takes tasks. For more than one listener it asks first.
    The exit code is 5 if a listener could not be told.
    """
    wish = _Wish(
        "node_pause",
        lambda listeners, name: listeners.pause(name),
        "paused",
        "take nothing new",
        "Pause them?",
    )
    return _tell(invocation, name, wish, is_sure, as_json)


@node.command(short_help="Make paused listeners take tasks again.")
@click.argument("name", metavar="NODE|HOST")
@yes_option
@json_option
@shared_options
def resume(invocation: Invocation, name: str, is_sure: bool, as_json: bool) -> int:
    """Make the listeners of a host take tasks again, after `node pause` or SIGUSR2.

    \b
    blueque node resume gpu-1

    Use a name as status and ls show it. For more than one listener it asks first. The exit code is 5 if a listener could
    not be told.
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
            MISSING, f"no listener and no host {name!r}", "See the names: blueque node ls"
        )
    able = [one for one in found if one.state not in TELL_NOTHING]
    ids = {one.id for one in able}  # a listener of several queues counts once
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
    order = wish.tell(listeners, name)
    told, not_told = order
    if as_json:
        printing.print_json(wish.kind, **of_told(order, wish.state))
    elif told:
        rows = [
            [*_names(one), state_after(one, wish.state), _note(one, wish.state)] for one in told
        ]
        printing.print_table(_TOLD, rows)
    for one in not_told:
        printing.talk(f"{one.id} of {one.queue} was not told: {why_not(one)}")
    return REFUSED if not_told else 0


def _names(one: Node) -> Sequence[str]:
    return printing.short_node(one.id), one.queue


def _note(one: Node, wanted: str) -> str:
    if one.state == "silent":
        return "silent: it obeys with its next beat"
    if not one.held:
        return ""
    verb = "exits after" if state_after(one, wanted) == "draining" else "goes on with"
    return f"{verb} {printing.short_id(one.held[0])}"
