"""`blueque pause`, `resume` and `limit`: how much of a queue may run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from blueque.cli import printing
from blueque.cli.named import queues_matching, queues_to_be
from blueque.cli.options import Invocation, json_option, pass_invocation, shared_options
from blueque.cli.printing import count
from blueque.model.encoding import require_queue_name

if TYPE_CHECKING:
    from blueque.queries.inspector import Inspector

_queues = click.argument("patterns", nargs=-1, required=True, metavar="QUEUE...")


class _Most(click.ParamType):  # type: ignore[type-arg]  # generic in newer click only
    """How many, or none."""

    name = "number"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | None:
        if value == "none":
            return None
        if not str(value).isdecimal():
            self.fail(f"{value!r} is no number of tasks, and not the word none", param, ctx)
        return int(str(value))


@click.command(short_help="Make listeners take nothing from a queue.")
@_queues
@click.option("--reason", metavar="TEXT", help="Why; status and why show it.")
@click.option("--by", metavar="NAME", help="Who wants it; else USER@HOST.")
@json_option
@shared_options
@pass_invocation
def pause(
    invocation: Invocation,
    patterns: Sequence[str],
    reason: str | None,
    by: str | None,
    as_json: bool,
) -> None:
    """Have listeners take nothing from a queue until `blueque resume`; what runs, runs on.

    \b
    blueque pause video.encode --reason 'deploying 3.1'
    blueque pause 'render.*'

    A queue that is still to come can be paused, too. Tasks can still be enqueued. Listeners of 1.0.0 know of no pause and
    go on. A queue that is paused already stays so by whom and why it was.
    """
    client = invocation.client()
    inspector = client.get_inspector()
    names = _names_to_be(inspector, patterns)
    for name in names:
        is_new = client.get_queue(name).pause(by, reason)
        known = inspector.paused(name)
        who = known.by if known is not None else None
        if not as_json:
            already = "" if is_new else f" already, by {printing.clean(who or 'somebody')}"
            click.echo(f"{printing.clean(name)}  paused{already}")
    _warn(inspector, names)
    if as_json:
        _print_json("pause", inspector, names)


@click.command(short_help="Make listeners take tasks from a queue again.")
@_queues
@json_option
@shared_options
@pass_invocation
def resume(invocation: Invocation, patterns: Sequence[str], as_json: bool) -> None:
    """Have listeners take tasks from a queue again.

    \b
    blueque resume video.encode
    blueque resume 'render.*'
    """
    client = invocation.client()
    inspector = client.get_inspector()
    names = _names_there(inspector, patterns)
    for name in names:
        was_paused = client.get_queue(name).resume()
        if not as_json:
            click.echo(f"{printing.clean(name)}  {'resumed' if was_paused else 'was not paused'}")
    if as_json:
        _print_json("resume", inspector, names)


@click.command(
    context_settings={"ignore_unknown_options": True},  # a negative number is none
    short_help="Set how many tasks of a queue may run at a time.",
)
@click.argument("pattern", metavar="QUEUE")
@click.argument("most", metavar="N|none", type=_Most())
@json_option
@shared_options
@pass_invocation
def limit(invocation: Invocation, pattern: str, most: int | None, as_json: bool) -> None:
    """Set how many tasks of a queue may run at a time, on all nodes together.

    \b
    blueque limit video.encode 8
    blueque limit video.encode none
    blueque limit 'render.*' 2

    A pattern limits each queue that it matches. A queue that is still to come can be limited, too. What runs already, runs
    on. Listeners of 1.0.0 know of no limit, but what they run counts.
    """
    client = invocation.client()
    inspector = client.get_inspector()
    names = (
        _names_there(inspector, [pattern]) if most is None else _names_to_be(inspector, [pattern])
    )
    how_many = "no limit" if most is None else f"{count(most, 'task')} at a time"
    for name in names:
        client.get_queue(name).set_max_concurrency(most)
        taken = inspector.room(name).taken
        if not as_json:
            click.echo(
                f"{printing.clean(name)}  {how_many}, {taken} run{'s' if taken == 1 else ''} now"
            )
    _warn(inspector, names)
    if as_json:
        _print_json("limit", inspector, names)


def _names_there(inspector: Inspector, patterns: Sequence[str]) -> list[str]:
    """Return the queues that are meant, also one without a task that an older version has paused or
    limited.
    """
    ahead = [
        name
        for name in patterns
        if inspector.paused(name) or inspector.room(name).limit is not None
    ]
    return queues_matching([*inspector.queues(), *ahead], patterns)


def _names_to_be(inspector: Inspector, patterns: Sequence[str]) -> list[str]:
    """Return the queues that are meant, those that are still to come among them, and say which
    these are.
    """
    known = inspector.queues()
    names = queues_to_be(known, patterns)
    for name in names:
        if require_queue_name(name) not in known:
            printing.talk(f"queue {name} has no task and no listener yet")
    return names


def _warn(inspector: Inspector, names: Sequence[str]) -> None:
    """Say who does not obey."""
    for name in dict.fromkeys(names):
        deaf = sum(node.queue == name and node.state == "1.0.0" for node in inspector.nodes())
        if deaf:
            know = "knows" if deaf == 1 else "know"
            printing.talk(f"{count(deaf, 'listener')} of 1.0.0 on {name} {know} nothing of that.")


def _print_json(kind: str, inspector: Inspector, names: Sequence[str]) -> None:
    items = []
    for name in names:
        paused, room = inspector.paused(name), inspector.room(name)
        items.append(
            {
                "queue": name,
                "paused": paused is not None,
                **printing.times(paused_at=paused.since if paused else None),
                "paused_by": paused.by if paused else None,
                "paused_reason": paused.reason if paused else None,
                "max_concurrency": room.limit,
                "running": room.taken,
            }
        )
    printing.print_json(kind, items=items)
