"""The invariants of schedules: each is found when it is due, and its next time follows from its rule.

Their records are read a hundred at a time, without the parameters, and not kept.
docs/protocol/audit.md, "Invariants", has the same in words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from blueque.audit.observation import Finding, Observation
from blueque.audit.reads import read_groups
from blueque.connection.redis import Command, Redis, as_fields
from blueque.errors import InvalidInput
from blueque.model import keys
from blueque.model.schedule import FIELDS, Definition, is_out_of_order, read_options, score_of

CODES = (
    "schedule_score",
    "schedule_index",
    "schedule_order",
    "schedule_rule",
    "schedule_queue",
)  # of findings, whose text is the schedule
_READ = (*[field for field in FIELDS if field != "parameters"], "doomed")


def judge(redis: Redis, observed: Observation) -> Iterator[Finding]:
    """Yield the faults of the schedules that the scan has seen."""
    bad = observed.bad_keys
    if keys.SCHEDULES in bad:
        return
    sound = [name for name in observed.schedules if keys.schedule(name) not in bad]
    groups: list[list[Command]] = [
        [
            ("HMGET", keys.schedule(name), *_READ),
            ("HEXISTS", keys.schedule(name), "parameters"),
            ("ZSCORE", keys.SCHEDULES, name),
        ]
        for name in sound
    ]
    for name, replies in zip(sound, read_groups(redis, groups), strict=True):
        values, has_parameters, score = replies
        record = as_fields(_READ, values)
        if has_parameters:
            record["parameters"] = ""
        observed.note_keys(str(read_options(record).get("needs", "")))
        yield from _judge(name, record, None if score is None else float(score))
        yield from _queue(name, record, observed)


def _judge(name: str, record: Mapping[str, str], score: float | None) -> Iterator[Finding]:
    what = f"schedule {name}"
    if not record:
        if score is not None:
            sentence = f"{keys.SCHEDULES} has {what}, which has no record."
            yield _find("schedule_index", name, record, sentence, key=keys.SCHEDULES)
        return
    wanted = float(score_of(record))
    is_in_order = not is_out_of_order(record)
    if score is None:
        sentence = f"{what} is not in {keys.SCHEDULES}: it never makes a task."
        yield _find("schedule_index", name, record, sentence, key=keys.SCHEDULES)
    elif score != wanted and is_in_order:
        sentence = (
            f"{what} has the score {score:.15g}, not {score_of(record)}: {_effect(score, wanted)}."
        )
        yield _find("schedule_score", name, record, sentence, key=keys.SCHEDULES)
    try:
        following = Definition.of(record).rule.next_after(int(record["last"]))
    except (InvalidInput, KeyError, ValueError) as error:
        sentence = f"this version cannot read {what}, so it makes no tasks: {_reason(error)}."
        advice = "If no newer version has written it, define it again, or remove it with blueque schedule rm."
        yield _find("schedule_rule", name, record, f"{sentence} {advice}", None)
        return
    yield from _order(name, record, following)


def _order(name: str, record: Mapping[str, str], following: int | None) -> Iterator[Finding]:
    """Yield a finding if the next time does not follow from what was decided last."""
    what, planned, last = f"schedule {name}", record.get("planned"), record["last"]
    if is_out_of_order(record):
        times = f"what is next, {planned} at {record.get('at')}, does not follow on {last}"
        yield _find("schedule_order", name, record, f"{what}: {times}, the last that was decided.")
    elif planned is None and following is not None:
        sentence = f"{what} has no next time, but its rule has one after {last}: {following}."
        yield _find("schedule_order", name, record, sentence)
    elif planned is not None and planned != str(following):
        then = "none" if following is None else following
        sentence = f"{what} plans {planned} next; by its rule and the time zones of this host, {then} comes after {last}."
        advice = "If this host is right, define or apply it again."
        yield _find("schedule_order", name, record, f"{sentence} {advice}", None)


def _queue(name: str, record: Mapping[str, str], observed: Observation) -> Iterator[Finding]:
    queue = record.get("queue")
    if queue is None or keys.QUEUES in observed.bad_keys:
        return
    seen = observed.queues.get(queue)
    # One that has keys is reported as unknown_queue.
    if seen is None or (seen.score is None and not seen.is_used):
        sentence = f"{keys.QUEUES} does not have queue {queue}, which schedule {name} fills."
        yield _find("schedule_queue", name, record, sentence, "align_queue", keys.QUEUES)


def _find(
    code: str,
    name: str,
    record: Mapping[str, str],
    sentence: str,
    fix: str | None = "align_schedule",
    key: str | None = None,
) -> Finding:
    key = keys.schedule(name) if key is None else key
    return Finding(code, key, None, record.get("queue"), sentence, fix, text=name)


def _effect(score: float, wanted: float) -> str:
    return "it is read too early" if score < wanted else "its tasks come late, or never"


def _reason(error: Exception) -> str:
    if isinstance(error, InvalidInput):
        return str(error).rstrip(".")
    return "it does not say which time was decided last"
