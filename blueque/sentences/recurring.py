"""Describe the next step of a recurring task, what became of it, and why it makes no tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, tzinfo
from itertools import takewhile
from typing import TYPE_CHECKING

from blueque.errors import InvalidInput
from blueque.model.cron import find_zone
from blueque.model.schedule import OPEN, Definition, Occurrence
from blueque.model.states import FINISHED
from blueque.sentences.reason import Reason
from blueque.text.format import span
from blueque.text.hints import of_schedule
from blueque.text.terminal import short_id

if TYPE_CHECKING:
    from blueque.model.recurrence import Rule
    from blueque.producer.schedules import Schedule
    from blueque.queries.inspector import Inspector
    from blueque.queries.schedules import ScheduleSeen

RECENT = 10  # occurrences that a note looks at
NEXT = 3  # planned times that are shown
LATE = 60.0  # seconds after which something is overdue
MINUTE = 60
HALF_A_DAY = 43200  # seconds within which the time of the day says enough
FEW_DAYS = 6 * 86400  # within which the day of the week says enough


def rule_of(seen: ScheduleSeen) -> Rule | None:
    """Return the rule; None: this version cannot read the record."""
    try:
        return Definition.of(seen.fields).rule
    except InvalidInput:
        return None


def zone_of(seen: ScheduleSeen, is_utc: bool) -> tzinfo | None:
    """Return the zone in which the times of a schedule are shown; None: the local one."""
    if is_utc:
        return UTC
    rule = rule_of(seen)
    return None if rule is None else zone_of_rule(rule)


def zone_of_rule(rule: Rule) -> tzinfo | None:
    """Return the zone of a rule; None: it has none, or this host does not know it."""
    if rule.cron is None:
        return None
    try:
        return find_zone(rule.timezone)
    except InvalidInput:
        return None


def coming(seen: ScheduleSeen, is_utc: bool, *, is_brief: bool = False) -> str:
    """Return when the next task comes: `in 3 h, 02:30 CET`, `in 2 d, Mon 02:30 CET`; or `paused`.

    is_brief: without the time if it is past, or less than a minute away.
    """
    at = seen.record.get("at")
    if "paused" in seen.record:
        return "paused"
    if at is None:
        return "-"
    words = f"in {coarse(at - seen.now)}" if at > seen.now else f"due {coarse(seen.now - at)} ago"
    if is_brief and at - seen.now < MINUTE:
        return words
    return f"{words}, {clock(at, zone_of(seen, is_utc), seen.now)}"


def outlook(seen: ScheduleSeen, is_utc: bool) -> str:
    """Return what comes next, or that nothing does."""
    if "paused" in seen.record:
        return f"paused, to resume: {of_schedule('resume', seen.name)}"
    if "at" not in seen.record:
        return "no more tasks"
    return f"next {coming(seen, is_utc)}"


def planned(schedule: Schedule, number: int = NEXT) -> list[float]:
    """Return the next times of tasks; none if it is paused or its rule is unreadable."""
    if "at" not in schedule.record or schedule.is_paused:
        return []
    try:
        return [each.timestamp() for each in schedule.next_times(number)]
    except InvalidInput:
        return []


def clock(seconds: float, zone: tzinfo | None, now: float) -> str:
    """Return a time: `02:30 CET` within half a day, `Mon 02:30 CET` within days, else with the date.

    It has seconds if they are not zero.
    """
    ahead = abs(seconds - now)
    day = "" if ahead < HALF_A_DAY else "%a " if ahead < FEW_DAYS else "%Y-%m-%d "
    return moment_of(seconds, zone).strftime(f"{day}{_clock_of(seconds)} %Z")


def moment_of(seconds: float, zone: tzinfo | None) -> datetime:
    """Return a time in a zone. zone: None: the local one."""
    found = datetime.fromtimestamp(seconds, zone or UTC)
    return found.astimezone() if zone is None else found


def whole(seconds: float, zone: tzinfo | None, *, to_the_second: bool = False) -> str:
    """Return a time with its day of the week: `Mon 2026-12-07 02:30 CET`.

    It has seconds if they are not zero, or if wanted.
    """
    clock = "%H:%M:%S" if to_the_second else _clock_of(seconds)
    return moment_of(seconds, zone).strftime(f"%a %Y-%m-%d {clock} %Z")


def have_seconds(times: Iterable[float]) -> bool:
    """Return whether one of the times is not a whole minute, so that all in a table show seconds."""
    return any(int(time) % MINUTE for time in times)


def _clock_of(seconds: float) -> str:
    return "%H:%M:%S" if have_seconds([seconds]) else "%H:%M"


def coarse(seconds: float) -> str:
    """Return a duration in its largest unit: 3 h."""
    return " ".join(span(max(int(seconds), 1)).split()[:2]).replace(".0", "")


def latest(seen: ScheduleSeen) -> str:
    """Return what became of the last task: `complete, 12 m`."""
    if "current" not in seen.record:
        return "-"
    if seen.status is None:
        return "gone"
    ago = "" if seen.since is None else f", {coarse(seen.now - seen.since)}"
    return f"{seen.status}{ago}"


def note(seen: ScheduleSeen, recent: Sequence[Occurrence]) -> str:
    """Return what is unusual about a recurring task."""
    record = seen.record
    if rule_of(seen) is None:
        return "cannot be read"
    found = []
    if "paused" in record:
        why = f" ({record['paused_reason']})" if "paused_reason" in record else ""
        found.append(f"paused{why}")
    elif seen.overdue > LATE:
        found.append("overdue")
    elif "at" not in record:
        found.append("over")
    what, times = in_a_row(recent)
    if what in ("skipped", "missed"):
        found.append(f"{what} {times}")
    if (failures := failures_of(seen)) > 1:
        found.append(f"{failures} failures")
    return ", ".join(found)


def failures_of(seen: ScheduleSeen) -> int:
    """Return how many of the last tasks in a row have failed."""
    if seen.status == "complete":
        return 0
    return int(seen.record.get("failures", 0)) + (seen.status == "failed")


def in_a_row(recent: Sequence[Occurrence]) -> tuple[str | None, int]:
    """Return what became of the last planned times for the same reason, and of how many in a row."""
    found = _decided(recent)
    same = [*takewhile(lambda each: (each.what, each.why) == (found[0].what, found[0].why), found)]
    return (same[0].what if same else None), sum(each.times or 1 for each in same)


def _decided(recent: Sequence[Occurrence]) -> list[Occurrence]:
    return [each for each in recent if each.what in ("made", "skipped", "missed")]


def why_nothing(
    seen: ScheduleSeen, recent: Sequence[Occurrence], inspector: Inspector, is_utc: bool = True
) -> list[Reason]:
    """Return why a recurring task makes no tasks, or made none the last time.

    recent: its last occurrences, newest first.
    """
    queue = seen.record.get("queue")
    is_minded = queue is not None and bool(inspector.listeners(queue))
    return [*_reasons(seen, recent[:RECENT], is_minded, is_utc)]


def _reasons(
    seen: ScheduleSeen, recent: Sequence[Occurrence], is_minded: bool, is_utc: bool
) -> Iterator[Reason]:
    """is_minded: whether its queue has a listener."""
    record, zone = seen.record, zone_of(seen, is_utc)
    try:
        rule = Definition.of(seen.fields).rule
    except InvalidInput as error:
        yield Reason("unreadable", f"This version cannot read it: {error}.")
        return
    if "paused" in record:
        yield _of_pause(seen)
    elif "at" not in record:
        until = rule.until
        end = "" if until is None else f" until = {whole(until, zone)} has passed"
        yield Reason("over", f"It makes no more tasks:{end or ' the rule has no more times'}.")
    elif seen.overdue > LATE:
        listener = f"listener of {record.get('queue')}"
        who = f"no {listener} has either" if is_minded else f"there is no {listener}"
        sentence = (
            f"It is overdue by {span(seen.overdue)}: no scheduler has made its task, and {who}."
        )
        yield Reason("overdue", sentence, "blueque-scheduler")
    yield from _of_last(seen, recent, is_minded, zone)


def _of_pause(seen: ScheduleSeen) -> Reason:
    record = seen.record
    by = record.get("paused_by", "an unknown user")
    reason = f": {record['paused_reason']}" if "paused_reason" in record else ""
    since = span(seen.now - record["paused"])
    sentence = f"It has been paused for {since} by {by}{reason}."
    return Reason("paused", sentence, of_schedule("resume", seen.name))


def _of_last(
    seen: ScheduleSeen, recent: Sequence[Occurrence], is_minded: bool, zone: tzinfo | None
) -> Iterator[Reason]:
    name = seen.name
    what, times = in_a_row(recent)
    if what not in ("skipped", "missed"):
        return
    last = _decided(recent)[0]
    when = clock(last.until or last.planned, zone, seen.now)
    how_often = f", like the {times - 1} before it" if times > 1 else ""
    sentence = f"The last planned time, {when}, was {what}{how_often}: {why_not(last)}."
    help = of_schedule("history", name)
    if last.task is not None and last.task == seen.record.get("current") and seen.status in OPEN:
        since = "" if seen.since is None else f" for {span(seen.now - seen.since)}"
        doing = "running" if seen.status == "started" else seen.status
        sentence += f" That task has been {doing}{since}."
        help = f"blueque {'show' if seen.status == 'started' else 'why'} {last.task}"
        if not is_minded and seen.status == "pending":
            sentence += f" No listener serves {seen.record.get('queue')}."
    elif last.task == seen.record.get("current") and seen.status in FINISHED:
        is_coming = "at" in seen.record and "paused" not in seen.record
        sentence += f" That task has ended{', so the next one will be made' if is_coming else ''}."
    yield Reason(what, sentence, help)


def why_not(occurrence: Occurrence) -> str:
    """Return why a planned time got no task; empty: it got one."""
    if occurrence.by is not None:
        return f"by {occurrence.by}"
    words = {
        "overlap": f"{short_id(occurrence.task or '')} had not ended ({occurrence.status})",
        "window": "it was older than the window when a scheduler looked",
        "catch_up": "it was late, and catch_up left it out",
        "paused": "the schedule was paused",
        "changed": "the rule was changed before it",
    }
    return words.get(occurrence.why or "", occurrence.why or "")
