"""Explain in sentences why a task does not run: takes an `Inquiry`, returns reasons.

Nothing here talks to Redis. It checks the processes of listeners on this host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from blueque.model.queue_settings import DISCARDED
from blueque.model.start_time import EXPIRED
from blueque.model.states import FINISHED, HELD, WAITING
from blueque.queries.listeners import puts_in_line, with_dead
from blueque.queries.listing import LATE, OVERDUE, entered
from blueque.queries.why_facts import Inquiry
from blueque.sentences.reason import Reason, by
from blueque.sentences.why_blocked import blocked, broken_by
from blueque.sentences.why_listeners import busy, listeners, resources, time_left
from blueque.sentences.why_running import asked_when, held
from blueque.sentences.why_waiting import ALIKE, ahead_of_it, limit, lock, pause, turn, was_popped
from blueque.text.format import span, stamp
from blueque.text.terminal import short_id

if TYPE_CHECKING:
    from blueque.model.task import Task

_ENDED = {"complete": "completed", "failed": "failed", "cancelled": "was cancelled"}


def headline(inquiry: Inquiry, name: str | None = None) -> str:
    """Return the state of the task, since when, and whether it is the first of its line.

    name: of the task.
    """
    task = inquiry.task
    which = f"{short_id(task.id)}{f' ({name})' if name else ''} in {task.queue}"
    since = entered(task)
    lasts = (
        ""
        if since is None or task.status == "scheduled"
        else f" for {span(max(inquiry.now - since, 0.0))}"
    )
    if lasts and task.status in _ENDED:
        return f"{which} {_ENDED[task.status]}{lasts.replace(' for', '')} ago."
    place = ""
    if task.status == "pending" and inquiry.before == 0 and inquiry.length > 1:
        place = f", the first of {inquiry.length:,} {ALIKE}"
    verb = "has been" if lasts else "is"
    return f"{which} {verb} {'running' if task.status == 'started' else task.status}{lasts}{place}."


def reasons(inquiry: Inquiry, is_utc: bool = False) -> list[Reason]:
    """Return why it does not run, the strongest reason first; at least one."""
    return [*_reasons(inquiry, is_utc), *_start_before(inquiry, is_utc)]


def _start_before(inquiry: Inquiry, is_utc: bool) -> Iterator[Reason]:
    """Return until when a task that waits for its first attempt must start."""
    task = inquiry.task
    if (
        task.status not in ("blocked", *WAITING)
        or task.attempt is not None
        or task.start_before is None
    ):
        return
    left = task.start_before - inquiry.now
    when = stamp(task.start_before, is_utc)
    then = f"moves to {task.expired_to}" if task.expired_to else "is cancelled"
    if left > 0:
        sentence = f"It {then} if it has not started before {when}, in {span(left)}."
    else:
        sentence = f"It has not started before {when}: it {then} within a minute."
    yield Reason("start_before", sentence)


def _reasons(inquiry: Inquiry, is_utc: bool) -> list[Reason]:
    status = inquiry.task.status
    if status in FINISHED:
        return [broken_by(inquiry) or _ended(inquiry.task)]
    if status in HELD:
        return list(held(inquiry))
    if status == "blocked":
        return [*blocked(inquiry), *pause(inquiry), *listeners(inquiry)]
    inquiry = inquiry._replace(nodes=with_dead(inquiry.nodes))
    if status == "scheduled":
        return [*_scheduled(inquiry, is_utc), *pause(inquiry), *listeners(inquiry)]
    if status != "pending":
        return [
            Reason("unknown", f"Its status {status!r} is unknown to Blueque.", "blueque doctor")
        ]
    popped = next((node for node in inquiry.nodes if inquiry.task.id in node.held), None)
    if popped is not None:
        return [was_popped(popped)]
    found = [reason for look in _LOOKS for reason in look(inquiry)]
    before = [reason for reason in ahead_of_it(inquiry) if not found or reason.code != "beside"]
    return [*_interrupted(inquiry), *found, *before, *([] if found else turn(inquiry))]


def _ended(task: Task) -> Reason:
    if task.status == "complete":
        return Reason("ended", "It has run and is complete.", f"blueque show {task.id}")
    command = f"blueque requeue {task.id}"
    if task.status == "cancelled" and task.cancel_reason == EXPIRED:
        return Reason("expired", "It expired: it had not started in time.", command)
    if task.status == "cancelled" and task.cancel_reason == DISCARDED:
        return Reason("ended", "It was discarded: its queue was full of newer tasks.", command)
    if task.status == "cancelled":
        why = f": {task.fields['cancel_reason']}" if task.fields.get("cancel_reason") else ""
        return Reason("ended", f"It was cancelled{by(task.cancelled_by)}{why}.", command)
    error = task.fields.get("error", "").strip().partition("\n")[0]
    kind = (
        f" ({task.error_type})" if task.error_type and not error.startswith(task.error_type) else ""
    )
    return Reason("ended", f"It has failed{kind}: {error or 'no error was recorded'}", command)


def _interrupted(inquiry: Inquiry) -> Iterator[Reason]:
    """Return that its last attempt ended because a person interrupted it."""
    order = inquiry.task.fields.get("interrupt")
    if order is not None and order == inquiry.task.fields.get("finished_by"):
        sentence = f"It was interrupted {asked_when(inquiry)}. It runs again; this does not count as a failure."
        yield Reason("interrupted", sentence)


def _scheduled(inquiry: Inquiry, is_utc: bool) -> Iterator[Reason]:
    task, eta = inquiry.task, inquiry.task.eta
    if inquiry.wish is not None:
        yield Reason(
            "retry",
            f"It waits for its next attempt. The last one asked to run again later: {inquiry.wish}",
        )
    elif task.last_error_type or task.failures:
        error = (
            task.fields.get("last_error", "").partition("\n")[0]
            or task.last_error_type
            or "no error was recorded"
        )
        yield Reason("retry", f"It waits for its next attempt. The last one failed: {error}")
    if eta is None:
        yield Reason("overdue", "It is scheduled, but its time is not recorded.", "blueque doctor")
    elif eta > inquiry.now:
        yield Reason(
            "scheduled",
            f"It is scheduled for {stamp(eta, is_utc)}, in {span(eta - inquiry.now)}:"
            " a scheduler or a listener of its queue puts it in line then.",
        )
    elif inquiry.now - eta > (OVERDUE if puts_in_line(inquiry.nodes) else LATE):
        yield Reason(
            "overdue",
            f"It is overdue by {span(inquiry.now - eta)}: no scheduler has put it in line, and no listener of its queue.",
            "blueque-scheduler",
        )
    else:
        yield Reason(
            "due",
            f"It has been due for {span(inquiry.now - eta)}: a scheduler or a listener puts it in line now.",
        )


_LOOKS: tuple[Callable[[Inquiry], Iterator[Reason]], ...] = (
    pause,
    limit,
    listeners,
    lock,
    resources,
    time_left,
    busy,
)
