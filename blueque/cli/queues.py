"""`blueque pause`, `resume` and `limit`: how much of a queue may run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from blueque.cli import show
from blueque.cli.failure import MISSING, Failure
from blueque.cli.options import Invocation, json_option, pass_invocation, shared_options
from blueque.cli.show import count

if TYPE_CHECKING:
    from blueque.client import Client
    from blueque.inspector import Inspector

_queues = click.argument("names", nargs=-1, required=True, metavar="QUEUE...")


class _Most(click.ParamType):  # type: ignore[type-arg]  # generic in newer click only
    """How many, or none."""

    name = "number"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int | None:
        if value == "none":
            return None
        if not str(value).isdecimal():
            self.fail(f"{value!r} is no number of tasks, and not the word none", param, ctx)
        return int(str(value))


@click.command(short_help="Have listeners take nothing from a queue.")
@_queues
@click.option("--reason", metavar="TEXT", help="Why; status and why show it.")
@click.option("--by", metavar="NAME", help="Who wants it; else USER@HOST.")
@json_option
@shared_options
@pass_invocation
def pause(invocation: Invocation, names: Sequence[str], reason: str | None, by: str | None, as_json: bool) -> None:
    """Have listeners take nothing from a queue until `blueque resume`; what runs, runs on.

    \b
    blueque pause video.encode --reason 'deploying 3.1'

    Tasks can still be enqueued. Listeners of 1.0.0 know of no pause and go on. A queue that is paused already stays so
    by whom and why it was.
    """
    client = invocation.client()
    inspector = _require(client, names)
    for name in names:
        is_new = client.get_queue(name).pause(by, reason)
        known = inspector.paused(name)
        who = known.by if known is not None else None
        if not as_json:
            click.echo(f"{show.clean(name)}  paused" + ("" if is_new else f" already, by {show.clean(who or 'somebody')}"))
    _warn(inspector, names)
    if as_json:
        _print_json("pause", inspector, names)


@click.command()
@_queues
@json_option
@shared_options
@pass_invocation
def resume(invocation: Invocation, names: Sequence[str], as_json: bool) -> None:
    """Have listeners take tasks from a queue again.

    \b
    blueque resume video.encode
    """
    client = invocation.client()
    inspector = _require(client, names)
    for name in names:
        was_paused = client.get_queue(name).resume()
        if not as_json:
            click.echo(f"{show.clean(name)}  {'resumed' if was_paused else 'was not paused'}")
    if as_json:
        _print_json("resume", inspector, names)


@click.command(
    context_settings={"ignore_unknown_options": True},   # a negative number is none
    short_help="Set how many tasks of a queue may run at a time.",
)
@click.argument("name", metavar="QUEUE")
@click.argument("most", metavar="N|none", type=_Most())
@json_option
@shared_options
@pass_invocation
def limit(invocation: Invocation, name: str, most: int | None, as_json: bool) -> None:
    """Set how many tasks of a queue may run at a time, on all nodes together.

    \b
    blueque limit video.encode 8
    blueque limit video.encode none

    What runs already, runs on. Listeners of 1.0.0 know of no limit, but what they run counts.
    """
    client = invocation.client()
    inspector = _require(client, [name])
    client.get_queue(name).set_max_concurrency(most)
    _warn(inspector, [name])
    if as_json:
        _print_json("limit", inspector, [name])
        return
    room = inspector.room(name)
    run = f"{room.taken} run{'s' if room.taken == 1 else ''} now"
    how_many = "no limit" if most is None else f"{count(most, 'task')} at a time"
    click.echo(f"{show.clean(name)}  {how_many}, {run}")


def _require(client: Client, names: Sequence[str]) -> Inspector:
    """Return what looks at these queues; end the program when one of them is not there."""
    inspector = client.get_inspector()
    known = set(inspector.queues())
    for name in names:
        client.get_queue(name)                         # is it a name at all?
        if name not in known and inspector.paused(name) is None and inspector.room(name).limit is None:
            advice = "See the names: blueque status. A queue comes to be with its first task or listener."
            raise Failure(MISSING, f"no queue {name!r}", advice)
    return inspector


def _warn(inspector: Inspector, names: Sequence[str]) -> None:
    """Say who does not obey."""
    for name in dict.fromkeys(names):
        deaf = sum(node.queue == name and node.state == "1.0.0" for node in inspector.nodes())
        if deaf:
            show.talk(f"{count(deaf, 'listener')} of 1.0.0 on {name} {'knows' if deaf == 1 else 'know'} nothing of that.")


def _print_json(kind: str, inspector: Inspector, names: Sequence[str]) -> None:
    items = []
    for name in names:
        paused, room = inspector.paused(name), inspector.room(name)
        items.append({
            "queue": name, "paused": paused is not None, **show.times(paused_at=paused.since if paused else None),
            "paused_by": paused.by if paused else None, "paused_reason": paused.reason if paused else None,
            "max_concurrency": room.limit, "running": room.taken,
        })
    show.print_json(kind, items=items)
