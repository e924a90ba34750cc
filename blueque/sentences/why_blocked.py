"""Explain in sentences what a blocked task waits for, and what holds it up. Nothing here talks to Redis."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from blueque.model.group import MAKING, group_of, shown_state
from blueque.model.states import FINISHED, HELD, STATUSES
from blueque.queries.listeners import is_process_gone
from blueque.queries.listing import entered, in_order
from blueque.sentences.reason import MOST_NAMES, Reason
from blueque.text import hints
from blueque.text.format import clean, count, due, span
from blueque.text.terminal import short_id, short_node

if TYPE_CHECKING:
    from blueque.model.task import Task
    from blueque.queries.dependencies import Condition
    from blueque.queries.why_facts import Inquiry

RIPE = 60.0  # seconds after which a task that waits for nothing more should be in line

_AGAIN = "It stays cancelled until it is put in line again."


def blocked(inquiry: Inquiry) -> Iterator[Reason]:
    """Yield why it is blocked; first what a person can change."""
    conditions = inquiry.dependencies.conditions
    yield from _of_workflow(inquiry)
    yield from _broken(inquiry, [each for each in conditions if each.is_broken])
    yield from _broken_above(inquiry)
    yield from _gone(inquiry, [each for each in conditions if each.verdict == "-gone"])
    for each in conditions:
        if each.verdict == "-complete":
            sentence = f"It runs only if {_name(each.task)} fails, but that task is complete."
            yield Reason("unneeded", f"{sentence} A scheduler or a listener cancels it now.")
    waited = [each for each in conditions if each.verdict is None and not each.is_broken]
    for each in waited:
        if group_of(each.task.id) is not None:
            yield _group(inquiry, each.task)
    waited = [each for each in waited if group_of(each.task.id) is None]
    if waited:
        yield _waits(inquiry, waited)
    elif all(each.is_met for each in conditions) and not inquiry.dependencies.is_gated:
        yield _ripe(inquiry)


def broken_by(inquiry: Inquiry) -> Reason | None:
    """Return what helps a task cancelled because of another. None: nothing to do."""
    task, parent = inquiry.task, inquiry.tasks.get(inquiry.task.broken_by or "")
    if parent is None or (task.cancel_reason or "").endswith(" is complete"):
        return None
    above = inquiry.causes.get(task.id, [parent])
    cause, command = above[-1], how_to_mend([task, *above])
    if _has_ended_badly(cause):
        ended = how_it_ended(parent, inquiry.causes)
        sentence = f"It was cancelled because {_name(parent)}, which it waited for, {ended}."
        return Reason("ended", f"{sentence} {_AGAIN}", command)
    stands = f"That task is {cause.status or 'gone'} now."
    if cause.status not in (None, "complete") and group_of(cause.id) is not None:
        stands = f"Of that group, {members_of(cause)}."
    return Reason(
        "ended", f"It was cancelled because of {_name(cause)}. {stands} {_AGAIN}", command
    )


def how_to_mend(above: Sequence[Task]) -> str:
    """Return the command that helps if a task has failed or was cancelled, or tasks of a group.

    above: the task and the chain of causes of its cancellation, as `causes` finds them.
    """
    cause = above[-1]
    group = group_of(cause.id)
    if group is not None and _has_ended_badly(cause):
        return hints.of_group("requeue", group)
    ids = [task.id for task in reversed(above) if _has_ended_badly(task)]
    return f"blueque requeue {' '.join(ids)}"


def _has_ended_badly(task: Task) -> bool:
    return task.status in FINISHED and task.status != "complete"


def how_it_ended(task: Task, causes: Mapping[str, Sequence[Task]] | None = None) -> str:
    """Return `has failed: exit code 1`, `was cancelled by ada`, `is gone`.

    causes: see `Inquiry`.
    """
    why = why_it_ended(task)
    above = (causes or {}).get(task.id)
    if above:
        return f"was cancelled because {_name(above[-1])} {how_it_ended(above[-1])}"
    if task.status == "cancelled":
        return f"was cancelled{f' {why}' if why else ''}"
    if group_of(task.id) is not None and task.status is not None:
        verb = "has failed" if task.status == "failed" else f"is {task.status}"
        return f"{verb}: {members_of(task)}"
    if task.status == "failed":
        return f"has failed{f': {why}' if why else ''}"
    return "is gone" if task.status is None else f"is {task.status}"


def members_of(group: Task) -> str:
    """Return `812 of 1000 tasks have ended, 3 of them without success`, or `1 of 1 task has ended`."""
    members, left, bad = (int(group.fields[name]) for name in ("members", "open", "bad"))
    which = "but" if members == 1 else f"{bad} of them"
    well = f", {which} without success" if bad else ""
    verb = "has" if members == 1 else "have"
    return f"{members - left} of {count(members, 'task')} {verb} ended{well}"


def state_of_group(group: Task) -> str:
    """Return the state of an existing group, in the word of `blueque group ls`."""
    fields = group.fields
    return shown_state(fields["state"], "cancel" in fields, int(fields["open"]))


def why_it_ended(task: Task) -> str | None:
    """Return `exit code 1`, `SIGKILL`, `ValueError`, or `by ada` of a cancelled task."""
    if task.status == "cancelled":
        return f"by {task.cancelled_by}" if task.cancelled_by else None
    code = f"exit code {task.exit_code}" if task.exit_code is not None else None
    return task.signal or code or task.error_type


def _of_workflow(inquiry: Inquiry) -> Iterator[Reason]:
    """Yield that it waits for the producer of its workflow."""
    group = inquiry.task.fields.get("group", "")
    name, show = clean(group), f"blueque group show {shlex.quote(group)}"
    if inquiry.workflow == MAKING:
        sentence = f"Its workflow {name} is being made: none of its tasks runs until all are there."
        more = "If its producer has died, commit the same workflow again, or cancel this one."
        yield Reason("unfinished", f"{sentence} {more}", show)
    elif inquiry.dependencies.is_gated and inquiry.workflow is None:
        sentence = f"The record of its workflow {name} is gone, so it may not have been complete."
        yield Reason("unfinished", sentence, f"blueque cancel {inquiry.task.id}")
    elif inquiry.dependencies.is_gated:
        what = "A listener or a scheduler puts it in line, or cancels it if the workflow was cancelled."
        yield Reason("unfinished", f"Its workflow {name} takes no more tasks. {what}", show)


def _group(inquiry: Inquiry, group: Task) -> Reason:
    """Return the progress of a group that it waits for."""
    sentence = f"It waits for {group.id}: {members_of(group)}."
    if group.fields.get("state") != "open":
        return Reason("group", sentence, f"blueque graph {inquiry.task.id}")
    more = "The group is open, and ends only after it is closed."
    who = "Its producer closes it; if that has died, close it yourself."
    command = f"blueque group close {shlex.quote(group_of(group.id) or '')}"
    return Reason("group", f"{sentence} {more} {who}", command)


def _broken(inquiry: Inquiry, found: Sequence[Condition]) -> Iterator[Reason]:
    is_cancelled = inquiry.task.fields.get("broken") == "cancel"
    then = " A scheduler or a listener cancels it now." if is_cancelled else ""
    for each in found[:MOST_NAMES]:
        ended = how_it_ended(each.task, inquiry.causes)
        sentence = f"{_name(each.task)}, which it waits for, {ended}."
        above = [each.task, *inquiry.causes.get(each.task.id, [])]
        code = "group" if group_of(each.task.id) is not None else "broken"
        yield Reason(code, f"{sentence}{then}", how_to_mend(above))
    if len(found) > MOST_NAMES:
        sentence = f"{len(found) - MOST_NAMES:,} more that it waits for failed or were cancelled."
        yield Reason("broken", sentence, f"blueque graph {inquiry.task.id}")


def _broken_above(inquiry: Inquiry) -> Iterator[Reason]:
    """Yield what holds up the tasks that it waits for."""
    found = {task.id: (parent, task) for parent, tasks in inquiry.broken.items() for task in tasks}
    for parent, task in [*found.values()][:MOST_NAMES]:
        whose = f"which {short_id(parent)} waits for"
        above = [task, *inquiry.causes.get(task.id, [])]
        command = f"blueque graph {parent}" if above[-1].status is None else how_to_mend(above)
        sentence = f"{_name(task)}, {whose}, {how_it_ended(task, inquiry.causes)}."
        yield Reason("broken", sentence, command)
    if len(found) > MOST_NAMES:
        sentence = f"{len(found) - MOST_NAMES:,} more hold up tasks that it waits for."
        yield Reason("broken", sentence, f"blueque graph {inquiry.task.id}")


def _gone(inquiry: Inquiry, found: Sequence[Condition]) -> Iterator[Reason]:
    if not found:
        return
    names = ", ".join(_name(each.task) for each in found[:MOST_NAMES])
    more = f" and {len(found) - MOST_NAMES:,} more" if len(found) > MOST_NAMES else ""
    verb = "is gone" if len(found) == 1 else "are gone"
    how = "how that ended" if len(found) == 1 else "how these ended"
    sentence = f"{names}{more}, which it waits for, {verb}: it is not known {how}."
    drop = "".join(f" --from {shlex.quote(each.task.id)}" for each in found[:MOST_NAMES])
    yield Reason("parent_gone", sentence, f"blueque move {inquiry.task.id} --unblock{drop}")


def _waits(inquiry: Inquiry, waited: Sequence[Condition]) -> Reason:
    kinds = {each.task.id: each.kind for each in waited}
    known = [each.task for each in waited if each.task.status in STATUSES]
    parts = [_state(inquiry, task, kinds[task.id]) for task in in_order(known)[:MOST_NAMES]]
    more = [f"and {len(waited) - len(parts):,} more"] if len(waited) > len(parts) else []
    total = len(inquiry.dependencies.conditions)
    of = f"{len(waited):,} of {count(total, 'task')}: " if total > 1 else ""
    sentence = f"It waits for {of}{'; '.join([*parts, *more])}."
    abandoned = [task for task in in_order(known)[:MOST_NAMES] if _silence_of(inquiry, task)]
    command = f"why {abandoned[0].id}" if abandoned else f"graph {inquiry.task.id}"
    return Reason("blocked", sentence, f"blueque {command}")


def _state(inquiry: Inquiry, task: Task, kind: str) -> str:
    """Return `7c1f on gpu-3, running for 2 h`."""
    since, other = entered(task), task.queue != inquiry.task.queue
    lasts = "" if since is None else f" for {span(max(inquiry.now - since, 0.0))}"
    words = {
        "started": f" on {short_node(task.node or '?')}, running{lasts}",
        "scheduled": f", {'scheduled' if since is None else due(since, inquiry.now)}",
    }
    wish = ", which would have to fail" if kind == "not_ok" else ""
    where = f" of queue {task.queue}" if other else ""
    state = words.get(task.status or "", f", {task.status}{lasts}")
    return f"{_name(task)}{where}{_silence_of(inquiry, task) or state}{wish}"


def _silence_of(inquiry: Inquiry, task: Task) -> str:
    """Return `, started on gpu-3, whose listener is gone`; empty if its listener seems alive."""
    if task.status not in HELD:
        return ""
    node, state = inquiry.listeners.get(task.id), ""
    if node is None:
        state = "no longer known"
    elif node.state in ("dead", "gone"):
        state = node.state
    elif is_process_gone(node):
        state = "gone from this host"
    elif node.is_late or node.state == "silent":
        state = "silent"
    where = short_node(task.node or "?")
    return f", {task.status} on {where}, but that listener is {state}" if state else ""


def _ripe(inquiry: Inquiry) -> Reason:
    conditions = inquiry.dependencies.conditions
    if not conditions:
        sentence = "It is blocked, but the tasks that it waits for are not recorded."
        return Reason("missing", sentence, "blueque doctor")
    ends = [each.task.finished or each.task.updated or 0.0 for each in conditions]
    since = inquiry.now - max([*ends, inquiry.task.updated or 0.0])
    what = "All tasks that it waits for have ended as required"
    if since <= RIPE:
        return Reason("blocked", f"{what}: a listener or a scheduler puts it in line now.")
    sentence = f"{what}, {span(since)} ago, but it was not put in line: no scheduler runs."
    return Reason("ripe", sentence, "blueque-scheduler")


def _name(task: Task) -> str:
    return short_id(task.id)
