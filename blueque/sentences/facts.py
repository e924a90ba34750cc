"""The facts of a task that `blueque show` prints for people: labelled text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from blueque.model.encoding import seconds_of
from blueque.model.lines import keys_among, parse_needs, without_keys
from blueque.model.states import HELD
from blueque.model.task import FIELDS, Task
from blueque.queries.dependencies import NONE
from blueque.sentences import attempt_facts
from blueque.sentences.pace import left_of, progress_words, usual_of
from blueque.sentences.stuck import words_of
from blueque.sentences.why_blocked import state_of_group
from blueque.system import process
from blueque.text.eta import LATE
from blueque.text.format import ago, clean, count, due, size, span, stamp
from blueque.text.terminal import short_id, terminal_width, within

if TYPE_CHECKING:
    from blueque.queries.dependencies import Condition, Dependencies
    from blueque.queries.signs import Signs
    from blueque.text.redaction import Hide

_LAST = (
    "reclaimed_node",
    "error_type",
    "exit_code",
    "signal",
    "error",
    "traceback",
    "context",
    "parameters",
    "result",
)
_LARGE = 1 << 20  # amounts from here on are bytes
_BESIDE = 40  # columns for a label and for the text behind a cut value


def facts(
    task: Task,
    signs: Signs,
    is_utc: bool,
    hide: Hide,
    others: Dependencies = NONE,
    cause: Task | None = None,
) -> list[tuple[str, str]]:
    """Return labels and texts of everything about the task except its token, which gives control.

    hide: removes secrets from the parameters. others: what it waits for, and what waits for it.
    cause: the task or group that caused its cancellation.
    """
    now = signs.now
    told = {
        **_of_making(task, now, is_utc),
        "state": _state(task),
        "after": _after(task, others),
        "awaited by": _dependents(others),
        "priority": task.fields.get("priority"),
        "needs": _needs(task),
        "where": _where(task),
        "devices": task.fields.get("devices"),
        "lock": _lock(task),
        **{name: _time(task, name, now, is_utc) for name in ("created", "eta", "started")},
        "expires": _start_before(task, now, is_utc),
        "progress": _progress(task, signs),
        "checkpoint": _checkpoint(task, signs),
        "usual": _usual(signs),
        "signs": _signs(task, signs),
        "stuck": None if signs.stuck is None else f"its listener {words_of(signs.stuck, now)}",
        **attempt_facts.of_orders(task, now, is_utc),
        **{name: _time(task, name, now, is_utc) for name in ("finished", "updated")},
        **attempt_facts.of_attempts(task),
    }
    shown = task.for_people()
    told |= {name: shown.fields.get(name) for name in _LAST}
    if told["parameters"] is not None:
        told["parameters"] = hide(told["parameters"])
    if told["context"] is not None:
        told["context"] = json.dumps(hide(json_of(told["context"])), ensure_ascii=False)
    foreign = [(name, text) for name, text in sorted(task.fields.items()) if name not in FIELDS]
    if task.status in ("failed", "cancelled"):
        foreign.append(("next", attempt_facts.next_step(task, cause)))
    return [(label, text) for label, text in told.items() if text is not None] + foreign


def _of_making(task: Task, now: float, is_utc: bool) -> dict[str, str | None]:
    """Return its names, and what made it."""
    return {
        "task": task.id,
        "title": task.title,
        "tags": ", ".join(task.tags) if task.tags else None,
        "queue": task.queue,
        "key": task.key,
        "feed": task.feed,
        "group": task.fields.get("group"),
        "schedule": task.schedule,
        "planned": _planned(task, now, is_utc),
        "made by": task.fields.get("spawned_by"),
        "producer": task.producer,
    }


def _state(task: Task) -> str:
    attempt = f", attempt {task.attempt}" if task.attempt else ""
    return f"{task.status}{attempt}{_ending(task)}"


def _ending(task: Task) -> str:
    """Return what a person has ordered for a running task."""
    if task.status == "started" and "cancel" in task.fields:
        return ", cancelling"
    return ", interrupting" if task.is_interrupted else ""


def _after(task: Task, others: Dependencies) -> str | None:
    """Return how many conditions are met, and each of them; unmet ones first."""
    if not others.conditions:
        return None
    met = sum(each.is_met for each in others.conditions)
    then = (
        "; cancelled if one can no longer be met" if task.fields.get("broken") == "cancel" else ""
    )
    lines = [f"{met} of {count(len(others.conditions), 'condition')} met{then}"]
    for each in sorted(others.conditions, key=lambda each: each.is_met):
        other = f" in {each.task.queue}" if each.task.queue else ""
        lines.append(f"{short_id(each.task.id)}{other}: {_condition(each)}")
    return "\n".join(lines)


def _condition(each: Condition) -> str:
    """Return the status of the other task, and the wanted status unless it is `ok`."""
    status: str = each.task.status or "gone"
    if status == "open":  # a group
        status = state_of_group(each.task)
    wanted = {"any": "to end", "not_ok": "to fail"}
    if each.kind in wanted:
        return f"{status}, has {wanted[each.kind]}"
    verdict = each.kind.removeprefix("+").removeprefix("-")
    if each.kind == verdict or verdict == status:
        return status
    return f"was {verdict}, is {status}" if verdict != "dropped" else f"{status}, no longer needed"


def _dependents(others: Dependencies) -> str | None:
    if not others.dependents:
        return None
    names = ", ".join(short_id(task.id) for task in others.first)
    more = others.dependents - len(others.first)
    return f"{count(others.dependents, 'task')}: {names}{f' and {more} more' if more else ''}"


def _time(task: Task, name: str, now: float, is_utc: bool) -> str | None:
    seconds: float | None = getattr(task, name)
    if seconds is None:
        return None
    when = f"{span(now - seconds)} ago"
    if name == "eta":
        when = due(seconds, now) if task.status == "scheduled" else "was due"
    if name == "finished" and task.started is not None:
        when += f", ran {span(seconds - task.started)}"
    if name == "started" and (waited := _waited(task)) is not None:
        when += f", waited {span(waited)}"
    return f"{stamp(seconds, is_utc)}  ({when})"


def _start_before(task: Task, now: float, is_utc: bool) -> str | None:
    """Return until when it must start; None: there is no limit, or it has started."""
    before = task.start_before
    if before is None or task.attempt is not None:
        return None
    then = f"; moves to {task.expired_to} then" if task.expired_to else ""
    when = f"in {span(before - now)}" if before > now else ago(now - before)
    return f"{stamp(before, is_utc)}  ({when}){then}"


def _planned(task: Task, now: float, is_utc: bool) -> str | None:
    """Return for when its schedule has planned it, also in the time zone of the schedule."""
    seconds, zone = seconds_of(task.fields.get("planned")), task.fields.get("timezone")
    if seconds is None:
        return None
    try:
        there = f", {task.planned:%H:%M} in {zone}" if zone and task.planned else ""
    except (ValueError, OverflowError, OSError):  # outside the calendar
        there = ""
    return f"{stamp(seconds, is_utc)}  ({ago(now - seconds)}{there})"


def _waited(task: Task) -> float | None:
    """Return how long it had been in line when it began; None if unknown or not the first attempt."""
    came = max((at for at in (task.created, task.eta) if at is not None), default=None)
    is_first = (task.attempt or 1) == 1 and task.requeued is None
    return (
        None
        if came is None or task.started is None or not is_first
        else max(task.started - came, 0.0)
    )


def _where(task: Task) -> str | None:
    if task.node is None:
        return None
    pid = f", pid {task.fields['pid']}" if "pid" in task.fields else ""
    return f"{task.node}{pid}"


def _signs(task: Task, signs: Signs) -> str | None:
    """Return the times of the last beat, progress and output."""
    is_gone = task.status == "started" and process.is_gone(task.pid or 0, task.fields)
    unheard = signs.listener if signs.listener and signs.listener.is_unheard else None
    told = {
        "listener": signs.beat,
        "progress": task.progress_at if task.status in HELD else None,
        "output": signs.printed,
    }
    heard = [f"{name} {ago(signs.now - at)}" for name, at in told.items() if at is not None]
    first = [f"its listener is {unheard.state}"] if unheard else []
    return ", ".join([*(["its process is gone"] if is_gone else []), *first, *heard]) or None


def _needs(task: Task) -> str | None:
    text = task.fields.get("needs")
    needs = parse_needs(text) if text else None
    if text is None or needs is None:
        return text and f"{text}  (malformed: no listener takes it)"
    words = [
        f"{name} {size(amount) if amount >= _LARGE else amount}"
        for name, amount in without_keys(dict(needs.resources)).items()
    ]
    words += [f"payload key {key}" for key in keys_among(needs.resources)]
    if needs.lock is not None:
        words.append(
            f"lock {needs.lock}"
            + (f", which {needs.limit} tasks may hold" if needs.limit > 1 else "")
        )
    return ", ".join(words)


def _lock(task: Task) -> str | None:
    held = task.fields.get("lock")
    return f"holds {held}" if held is not None and task.status in HELD else None


def _progress(task: Task, signs: Signs) -> str | None:
    text, now = progress_words(task), signs.now
    if text is None or task.progress_at is None:
        return text
    left = left_of(task, now, signs.listener)[1]
    words = "" if left is None else f"  {left}" if left == LATE else f"  {left} left"
    return f"{text}  ({span(now - task.progress_at)} ago){words}"


def _checkpoint(task: Task, signs: Signs) -> str | None:
    """Return the checkpoint of the next attempt and its age."""
    its, at = signs.checkpoint, seconds_of(signs.checkpoint.get("at"))
    if not its:
        return None
    number = its.get("attempt")
    whose = f", of attempt {number}" if number != str(task.attempt) else ""
    where = f"its directory is at {its['directory']}" if "directory" in its else ""
    if "value" not in its:
        return f"{where}{whose}"
    known = json_of(its["value"])
    text = (
        known
        if isinstance(known, str) and known == its.get("value")
        else json.dumps(known, ensure_ascii=False)
    )
    value = within(clean(text), max(terminal_width() - _BESIDE, _BESIDE))
    age = ago(None if at is None else signs.now - at)
    return "\n".join(filter(None, (f"{value}, {age}{whose}", where)))


def json_of(text: str | None) -> Any:
    """Return the value; as text if it is not JSON, or JSON cannot represent it."""
    try:
        value = None if text is None else json.loads(text)
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        return text
    return value


def _usual(signs: Signs) -> str | None:
    """Return how long such a task usually runs, for a task that reports no progress."""
    words = usual_of(signs.usual)
    return (
        None
        if words is None
        else f"{words.removeprefix('usual ')}: the range of half of the recent tasks of this queue"
    )
