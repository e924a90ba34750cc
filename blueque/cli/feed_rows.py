"""The rows of a table of feeds."""

from __future__ import annotations

from collections.abc import Mapping

from blueque.cli import printing
from blueque.cli.printing import Column, number_columns, text_columns
from blueque.queries.feeds import numbers, state_of

COLUMNS = [
    Column("FEED", can_shrink=True, is_name=True),
    *text_columns("QUEUE", "SOURCE"),
    *number_columns("TASKS", "BAD", "DONE"),
    Column("STATE"),
    Column("FOR", True),
    Column("FEEDER", can_shrink=True),
]


def row(record: Mapping[str, str], now: float) -> list[str]:
    """Return the cells of a feed, see COLUMNS."""
    state, since = state_of(record)
    share = 1.0 if state == "finished" else numbers(record).get("share")
    done = "-" if share is None else f"{int(100 * share)} %"
    return [
        record["feed"],
        record["queue"],
        *[record.get(name, "-") for name in ("source", "tasks", "skipped")],
        done,
        state,
        printing.span(None if since is None else now - since),
        printing.short_node(record.get("node", "-")),
    ]
