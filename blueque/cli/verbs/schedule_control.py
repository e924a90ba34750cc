"""`blueque schedule pause`, `resume`, `trigger` and `rm`: change the course of a recurring task."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from blueque.cli import printing
from blueque.cli.consent import require_consent
from blueque.cli.options import Invocation, reason_option, shared_options, yes_option
from blueque.cli.printing import count
from blueque.cli.recurring import find_schedule
from blueque.cli.schedule_options import PAST_TEXT, past
from blueque.documents.schedules import item
from blueque.model.schedule import MOST_BACKFILLED
from blueque.sentences.made import backfilled, of_backfill
from blueque.sentences.recurring import outlook, whole, zone_of, zone_of_rule
from blueque.text.hints import of_schedule

if TYPE_CHECKING:
    from datetime import tzinfo

    from blueque.producer.schedules import Schedule

_MOST = 1_000_000  # tasks that one command makes with --yes


@click.command(short_help="Pause a recurring task until it is resumed.")
@click.argument("name", metavar="SCHEDULE")
@reason_option
@shared_options
def pause(invocation: Invocation, name: str, reason: str | None) -> None:
    """Pause a recurring task: no task is made at its planned times until blueque schedule resume. Its tasks run on.

    \b
    blueque schedule pause nightly --reason 'the disk is full'
    """
    schedule = find_schedule(invocation.client(), name)
    is_new = schedule.pause(invocation.by, reason)
    who = schedule.refresh().record.get("paused_by")
    stays = "; its reason stays as it is" if reason is not None else ""
    say(
        invocation,
        schedule,
        invocation.as_json,
        "paused" if is_new else f"paused already, by {who}{stays}",
    )


@click.command(short_help="End the pause of a recurring task.")
@click.argument("name", metavar="SCHEDULE")
@click.option(
    "--catch-up", is_flag=True, help="Make the tasks that were planned during the pause, too."
)
@shared_options
def resume(invocation: Invocation, name: str, catch_up: bool) -> None:
    """End the pause of a recurring task.

    No task is made for the planned times of the pause, unless you pass --catch-up: then the catch_up and window of the
    schedule apply.
    """
    schedule = find_schedule(invocation.client(), name)
    was_paused = schedule.resume(catch_up, invocation.by)
    what = "resumed" if was_paused else "was not paused"
    nexts = outlook(schedule.refresh().seen, invocation.is_utc)
    say(invocation, schedule, invocation.as_json, f"{what}, {nexts}")


@click.command(short_help="Make a task of a recurring task now.")
@click.argument("name", metavar="SCHEDULE")
@click.option("--force", is_flag=True, help="Even if the previous task has not ended.")
@click.option(
    "--since",
    "begin",
    type=PAST_TEXT,
    metavar="AGE|TIME",
    help="Make the tasks of all planned times since then instead: 3d, 2026-11-01.",
)
@click.option(
    "--until",
    "end",
    type=PAST_TEXT,
    metavar="AGE|TIME",
    help="With --since: until then; default now.",
)
@yes_option
@shared_options
def trigger(
    invocation: Invocation,
    name: str,
    force: bool,
    begin: str | None,
    end: str | None,
    is_sure: bool,
) -> None:
    """Make a task of a recurring task now and print its id, or make the tasks of past planned times.

    \b
    blueque wait "$(blueque schedule trigger nightly)"
    blueque schedule trigger nightly --since 2026-11-01 --until 2026-11-15

    It also works while the schedule is paused. The exit code is 5 if the previous task has not ended and overlap
    allows no other task.

    With --since, each planned time gets one task, however often you repeat this. They run one after the other, unless
    the schedule has --overlap allow. Both times are included. For more than 1,000 tasks it asks first.
    """
    schedule = find_schedule(invocation.client(), name)
    if begin is None:
        if end is not None:
            raise click.UsageError("--until needs --since")
        made, planned = [schedule.trigger(force, invocation.by)], None
    elif force:
        raise click.UsageError("--since does not go with --force")
    else:
        made, planned = _make_past(invocation, schedule, begin, end, is_sure)
    if invocation.as_json:
        printing.print_json("schedule_trigger", name=name, planned=planned, tasks=made)
    elif planned is None:
        click.echo(made[0])
    else:
        click.echo(printing.clean(f"{name}  {backfilled(len(made), planned)}"))


def _make_past(
    invocation: Invocation, schedule: Schedule, begin: str, end: str | None, is_sure: bool
) -> tuple[list[str], int]:
    """Make the tasks of past planned times. Return the new ones and the number of times."""
    name, zone = schedule.name, zone_of(schedule.seen, invocation.is_utc)
    first, last = _span(begin, end, zone_of_rule(schedule.rule), schedule.seen.now)
    times = schedule.planned_between(first, last, _MOST + 1)
    if not times:
        printing.talk(f"Nothing was planned then. See: {of_schedule('show', name)}")
        return [], 0
    ends = whole(times[0], zone), whole(times[-1], zone)
    if len(times) > MOST_BACKFILLED:
        most = _MOST if len(times) > _MOST else 0
        require_consent(is_sure, of_backfill(name, len(times), *ends, most), "Make them?")
    else:
        printing.talk(f"{count(len(times), 'planned time')} from {ends[0]} to {ends[1]}")
    overlap = "allow" if schedule.definition.overlap == "allow" else "queue"
    return schedule.backfill(first, last, overlap=overlap, most=_MOST), len(times)


def _span(begin: str, end: str | None, zone: tzinfo | None, now: float) -> tuple[float, float]:
    """Return both ends in Unix seconds. now: the clock of Redis."""
    first, last = past(begin, now, zone), now if end is None else past(end, now, zone)
    if last > now:
        raise click.UsageError(
            "--until is still to come: give a time that is past, or none for now"
        )
    if first > last:
        raise click.UsageError("--since is later than --until")
    return first, last


@click.command("rm", short_help="Remove a recurring task. Its tasks stay.")
@click.argument("name", metavar="SCHEDULE")
@shared_options
def remove(invocation: Invocation, name: str) -> None:
    """Remove a recurring task with its history. Its tasks stay.

    If you make it again under this name, no planned time gets a second task.
    """
    schedule = find_schedule(invocation.client(), name)
    schedule.delete(invocation.by)
    say(invocation, schedule, invocation.as_json, "removed")
    if schedule.record.get("origin") == "file":
        printing.talk(
            "It comes from a file. Remove it there too, or it comes back with the next apply."
        )


def say(invocation: Invocation, schedule: Schedule, as_json: bool, what: str) -> None:
    """Print what has become of a recurring task."""
    if as_json:
        printing.print_json("recurring", item=item(schedule.seen, invocation.hider(False)))
    else:
        click.echo(printing.clean(f"{schedule.name}  {what}"))
