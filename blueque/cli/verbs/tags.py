"""`blueque tags`: list the tags of tasks, with how many tasks have each."""

from __future__ import annotations

import click

from blueque.cli import printing
from blueque.cli.options import Invocation, shared_options
from blueque.cli.printing import Column
from blueque.cli.values import limit_option
from blueque.documents.groups import of_tags
from blueque.queries.listing import STATUSES

_COLUMNS = [Column("TAG", can_shrink=True), Column("TASKS", True), Column("STATES")]


@click.command()
@click.argument("prefix", required=False, default="", metavar="[TAG]")
@limit_option(1000)
@shared_options
def tags(invocation: Invocation, prefix: str, limit: int) -> None:
    """List the tags of the tasks in Redis, and how many tasks have each; with TAG, those that begin with it.

    \b
    blueque tags
    blueque tags customer:

    STATES counts the tasks in each state, of up to 10,000 tasks in all. To list the tasks of a tag: blueque ls --tag
    TAG
    """
    seen, has_more = invocation.client().get_inspector().tags(prefix, limit)
    if invocation.as_json:
        printing.print_json("tags", **of_tags(seen, has_more))
        return
    rows = [[each.tag, str(each.tasks), _states(each.states)] for each in seen]
    if rows:
        printing.print_table(_COLUMNS, rows)
    else:
        printing.talk("no tags")
    if has_more:
        printing.talk(f"Only the first {limit}: --limit N shows more.")


def _states(states: dict[str, int] | None) -> str:
    if states is None:
        return "-"
    return ", ".join(f"{states[name]} {name}" for name in STATUSES if name in states) or "gone"
