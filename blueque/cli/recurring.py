"""Recurring tasks as the verbs of `blueque schedule` show them: one found by its name, and its row in
a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from blueque.cli.failure import MISSING, Failure
from blueque.cli.printing import Column, text_columns
from blueque.errors import NoSuchSchedule
from blueque.queries.listing import MIN_PREFIX
from blueque.sentences.recurring import coming, latest, note, rule_of
from blueque.text.hints import of_queue

if TYPE_CHECKING:
    from blueque.client import Client
    from blueque.model.schedule import Occurrence
    from blueque.producer.schedules import Schedule
    from blueque.queries.schedules import ScheduleSeen

COLUMNS = [
    Column("NAME", can_shrink=True, is_name=True),
    *text_columns("QUEUE", "RULE"),
    Column("NEXT", can_shrink=True, yields=True),
    Column("LAST"),
    Column("NOTE", can_shrink=True),
]


def find_schedule(client: Client, name: str) -> Schedule:
    """Return the recurring task; end the program if there is none."""
    try:
        return client.get_schedule(name)
    except NoSuchSchedule as error:
        raise Failure(MISSING, str(error), _advice(client, name)) from error


def _advice(client: Client, name: str) -> str:
    from difflib import get_close_matches  # here: only for a mistake

    inspector = client.get_inspector()
    if len(name) >= MIN_PREFIX and inspector.find(name):
        return (
            f"It is a task. To put a scheduled task in line now: {of_queue('move', name, '--now')}"
        )
    if close := get_close_matches(name, inspector.schedules(), n=1):
        return f"Did you mean {close[0]}?"
    return "See them: blueque schedule ls"


def row(seen: ScheduleSeen, recent: Sequence[Occurrence], is_utc: bool) -> list[str]:
    """Return the cells of a recurring task. recent: newest first."""
    rule = rule_of(seen)
    shown = "-" if rule is None else rule.cron or rule.text()
    return [
        seen.name,
        seen.record.get("queue", "-"),
        shown,
        coming(seen, is_utc, is_brief=True),
        latest(seen),
        note(seen, recent),
    ]
