"""`blueque schedule apply`: the recurring tasks in blueque.toml."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from blueque.cli import printing
from blueque.cli.failure import MISSING, REFUSED, Failure
from blueque.cli.options import Invocation, dry_run_option, shared_options
from blueque.cli.printing import count
from blueque.errors import InvalidInput, WrongSchedule
from blueque.model.recurrence import jitter_of, planned_times
from blueque.model.schedule import Definition
from blueque.text.hints import of_schedule, prune_schedules

if TYPE_CHECKING:
    from blueque.client import Client
    from blueque.producer.schedule_file import Change
    from blueque.queries.schedules import ScheduleSeen

MOST_AT_ONCE = 1000  # planned times in one minute that are not worth a warning
_AHEAD = 31 * 86400  # seconds for which --dry-run looks ahead
_PLANNED = 200_000  # planned times that it looks at, of all schedules together
_LEAST = 32  # of each
_WOULD = {"new": "would be new", "changed": "would change", "removed": "would be removed"}


@click.command(short_help="Write the recurring tasks in blueque.toml to Redis.")
@click.option(
    "--prune",
    is_flag=True,
    help="Remove recurring tasks that came from a file and are not in this one.",
)
@dry_run_option
@shared_options
def apply(invocation: Invocation, prune: bool, dry_run: bool) -> None:
    """Write the recurring tasks in the [schedules.NAME] tables of blueque.toml to Redis.

    \b
    blueque schedule apply --dry-run
    blueque schedule apply --prune

    All are checked before the first is written, and unchanged ones stay as they are. If one of them was made by hand,
    the exit code is 5.

    --dry-run warns if more than 1,000 planned times share a minute of the next 31 days:
    jitter spreads them.

    Use --prune only with one file for each Redis: two files would remove the tasks of each other. It never removes
    recurring tasks that were made by hand.
    """
    from blueque.producer import schedule_file  # here: --help does not need it

    client = invocation.client()
    wanted = schedule_file.definitions(invocation.config, client.get_queue)
    if not wanted and (not prune or invocation.config.path is None):
        _require_tables(invocation)
    if dry_run:
        sound = f"{_path(invocation)}: {count(len(wanted), 'recurring task')}, no mistake"
        printing.talk(sound)
    found, seen, now = _compare(invocation, client, wanted)
    crowded = _crowded(wanted, seen, now) if dry_run else []
    if dry_run:
        done = [
            (each.name, "removed" if each.what == "left" and prune else each.what) for each in found
        ]
    else:
        done = schedule_file.apply(client.connections, found, prune, invocation.by)
    fields = {each.name: each.fields for each in found}
    if invocation.as_json:
        items = [
            {"name": name, "change": what, "fields": fields.get(name, [])} for name, what in done
        ]
        at = [{**printing.times(minute=minute), "planned": number} for minute, number in crowded]
        path = _path(invocation)
        printing.print_json("schedule_apply", file=path, dry_run=dry_run, items=items, crowded=at)
        return
    _print_changes(done, fields, dry_run, invocation.config_file)
    if crowded:
        _warn(crowded, invocation.is_utc)
    if not done:
        printing.talk(f"{_path(invocation)} has no recurring tasks, and none has come from a file.")


def _warn(crowded: Sequence[tuple[int, int]], is_utc: bool) -> None:
    minute, number = max(crowded, key=lambda each: each[1])
    more = len(crowded) - 1
    others = f", and {count(more, 'other minute')} with too many" if more else ""
    printing.talk(
        f"{number:,} planned times share the minute of {printing.stamp(minute, is_utc)}{others}: their tasks"
        " start one after the other. Give some of them a jitter."
    )


def _require_tables(invocation: Invocation) -> None:
    path = invocation.config.path
    if path is None:
        raise Failure(MISSING, "no blueque.toml was found", "See: blueque config")
    raise Failure(MISSING, f"{path} has no table [schedules.NAME]", "See: blueque config --example")


def _compare(
    invocation: Invocation, client: Client, wanted: Mapping[str, Definition]
) -> tuple[list[Change], list[ScheduleSeen], float]:
    """Return what is to be done, the schedules in Redis, and its clock."""
    from blueque.producer import schedule_file
    from blueque.queries import schedules
    from blueque.settings.checker import refused_schedule  # here: --help does not need it

    now = schedules.clock_of(client.connections)
    seen = schedules.load_all(client.connections)
    try:
        return schedule_file.changes(_path(invocation), wanted, seen, now), seen, now
    except WrongSchedule as error:
        advice = f"To define it in the file instead: {of_schedule('rm', error.schedule)}"
        reason = refused_schedule(_path(invocation), error.schedule, InvalidInput(error.why))
        raise Failure(REFUSED, str(reason), advice) from error


def _path(invocation: Invocation) -> str:
    return invocation.config.path or "blueque.toml"


def _print_changes(
    changes: Iterable[tuple[str, str]],
    fields: Mapping[str, Sequence[str]],
    is_dry: bool,
    file: str | None,
) -> None:
    left = []
    for name, what in changes:
        if what == "left":
            left.append(name)
            continue
        words = _WOULD.get(what, what) if is_dry else what
        which = f": {', '.join(fields[name])}" if fields.get(name) else ""
        click.echo(printing.clean(f"{name}  {words}{which}"))
    if left:
        names = ", ".join(left[:3]) + (f" and {len(left) - 3} more" if len(left) > 3 else "")
        one = len(left) == 1
        printing.talk(
            f"{names} came from a file, {'is' if one else 'are'} not in this one, and"
            f" stay{'s' if one else ''}. To remove {'it' if one else 'them'}: {prune_schedules(file)}"
        )


def _crowded(
    wanted: Mapping[str, Definition], seen: Sequence[ScheduleSeen], now: float
) -> list[tuple[int, int]]:
    """Return the minutes with too many planned times, and how many, in order."""
    all_of_them = _running(seen) | dict(wanted)
    most = max(_LEAST, _PLANNED // max(len(all_of_them), 1))
    planned: dict[Any, list[int]] = {}
    minutes: Counter[int] = Counter()
    for name, definition in all_of_them.items():
        rule = definition.rule
        if rule not in planned:
            planned[rule] = planned_times(rule, now, now + _AHEAD, most)
        jitter = definition.jitter
        minutes.update((each + jitter_of(name, each, jitter)) // 60 for each in planned[rule])
    return sorted((minute * 60, times) for minute, times in minutes.items() if times > MOST_AT_ONCE)


def _running(seen: Sequence[ScheduleSeen]) -> dict[str, Definition]:
    """Return the definitions of the schedules that are not paused, if they can be read."""
    found = {}
    for each in seen:
        try:
            if "paused" not in each.record:
                found[each.name] = Definition.of(each.fields)
        except InvalidInput:  # this version cannot read it
            continue
    return found
