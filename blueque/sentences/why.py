"""Say in sentences why a task does not run: an `Inquiry` in, reasons out.

Nothing here talks to Redis. Processes of listeners on this host are looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from blueque.model import limits
from blueque.model.encoding import seconds_of
from blueque.model.limits import Limits
from blueque.model.lines import Needs, parse_needs
from blueque.model.queue_settings import DISCARDED
from blueque.model.run import PUBLISHED
from blueque.model.schedule import lock_of
from blueque.model.start_time import EXPIRED
from blueque.model.states import FINISHED, HELD, WAITING
from blueque.queries.listeners import LOOKS_AT_LINES, Node, has_time, is_process_gone, puts_in_line
from blueque.queries.listing import LATE, OVERDUE, entered
from blueque.queries.why_facts import FARTHEST, Inquiry
from blueque.sentences.pace import left_of, usual_of
from blueque.sentences.reason import MOST_NAMES, Reason
from blueque.sentences.why_blocked import blocked, broken_by
from blueque.system import process
from blueque.text import hints
from blueque.text.eta import roughly
from blueque.text.format import count, span, stamp
from blueque.text.redaction import reveal
from blueque.text.terminal import short_id, short_node
from blueque.text.what import is_named, what

if TYPE_CHECKING:
    from blueque.model.task import Task

_ALIKE = "of its priority and needs"  # the tasks of one line

_ENDED = {"complete": "completed", "failed": "failed", "cancelled": "was cancelled"}

LONG = 15.0  # seconds after which an idle listener should have taken a task

_TAKES = ("up", "unattended", "1.0.0")  # states of a listener that takes tasks


def headline(inquiry: Inquiry, name: str | None = None) -> str:
    """Return the state of the task, since when, and how many tasks are before it.

    name: what the task is.
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
    if task.status == "pending" and inquiry.before is not None:
        place = f", number {inquiry.before + 1} of {inquiry.length} {_ALIKE}"
    verb = "has been" if lasts else "is"
    return f"{which} {verb} {task.status}{lasts}{place}."


def reasons(inquiry: Inquiry, is_utc: bool = False) -> list[Reason]:
    """Return why it does not run, the strongest reason first; at least one."""
    return [*_reasons(inquiry, is_utc), *_start_before(inquiry, is_utc)]


def _start_before(inquiry: Inquiry, is_utc: bool) -> Iterator[Reason]:
    """Say until when a task must have started that waits for its first attempt."""
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
        sentence = f"It has not started before {when}: it {then} within a minute, by a scheduler or a listener."
    yield Reason("start_before", sentence)


def _reasons(inquiry: Inquiry, is_utc: bool) -> list[Reason]:
    status = inquiry.task.status
    if status in FINISHED:
        return [broken_by(inquiry) or _ended(inquiry.task)]
    if status in HELD:
        return list(_held(inquiry))
    if inquiry.staged is not None:
        return [_staged(inquiry)]
    if status == "scheduled":
        return [*_scheduled(inquiry, is_utc), *_pause(inquiry), *_listeners(inquiry)]
    if status == "blocked":
        return [*blocked(inquiry), *_pause(inquiry), *_listeners(inquiry)]
    if status != "pending":
        return [
            Reason("unknown", f"Its status {status!r} is unknown to Blueque.", "blueque doctor")
        ]
    popped = next((node for node in inquiry.nodes if inquiry.task.id in node.held), None)
    if popped is not None:
        return [_popped(popped)]
    found = [reason for look in _LOOKS for reason in look(inquiry)]
    before = [reason for reason in _before(inquiry) if not found or reason.code != "beside"]
    return [*_interrupted(inquiry), *found, *before, *([] if found else _turn(inquiry))]


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
        return Reason("ended", f"It was cancelled{_by(task.cancelled_by)}{why}.", command)
    error = task.fields.get("error", "").strip().partition("\n")[0]
    kind = (
        f" ({task.error_type})" if task.error_type and not error.startswith(task.error_type) else ""
    )
    return Reason("ended", f"It has failed{kind}: {error or 'no error was recorded'}", command)


def _held(inquiry: Inquiry) -> Iterator[Reason]:
    task, node = (
        inquiry.task,
        next((one for one in inquiry.nodes if one.id == inquiry.task.node), None),
    )
    if task.status == "started" and process.is_gone(task.pid or 0, task.fields):
        yield _process_gone(inquiry, node)
        return
    yield from _running_reasons(inquiry)
    if (
        node is not None
        and node.state not in ("dead", "gone")
        and (is_process_gone(node) or node.is_late)
    ):
        yield _silent(inquiry, node)
    elif node is not None and node.state == "draining":
        yield Reason(
            "draining", "That listener takes nothing new: it finishes this task and exits."
        )
    elif node is None or node.state not in (*_TAKES, "paused"):
        state = "no longer known" if node is None else node.state
        seen = (
            f", last seen {span(node.seen)} ago"
            if node is not None and node.seen is not None
            else ""
        )
        sentence = f"That listener is {state}{seen}. If it is dead, another listener of its queue notices and handles the task; "
        host = (task.node or "").rpartition("_")[0] or "its host"
        yield Reason(
            "listener", f"{sentence}a listener on {host} with its spool adopts it.", _serve(inquiry)
        )


def _running_reasons(inquiry: Inquiry) -> Iterator[Reason]:
    task = inquiry.task
    who = short_node(task.node or "an unknown listener")
    if task.status != "started":
        yield Reason("reserved", f"{who} has reserved it and is about to start it.")
        return
    yield Reason(
        "running",
        f"It runs on {who} with pid {task.fields.get('pid')}, attempt {task.attempt}.",
        f"blueque show {task.id}",
    )
    usual = usual_of(inquiry.usual)
    if usual is not None:
        sentence = f"It reports no progress. {usual.capitalize()}: the range of half of the recent tasks of its queue."
        yield Reason("usual", sentence)
    if task.cancel is not None:
        asked = span(inquiry.now - task.cancel)
        sentence = f"It is being cancelled: asked for {asked} ago{_by(task.cancelled_by)}."
        yield Reason("cancelling", sentence)
    elif task.is_interrupted:
        yield Reason("interrupting", f"It is being interrupted: asked for {_asked(inquiry)}.")


def _asked(inquiry: Inquiry) -> str:
    """Return when, by whom and why the task was interrupted."""
    task = inquiry.task
    since = span(inquiry.now - (task.interrupted_at or inquiry.now))
    reason = f": {task.interrupt_reason}" if task.interrupt_reason else ""
    return f"{since} ago{_by(task.interrupted_by)}{reason}"


def _interrupted(inquiry: Inquiry) -> Iterator[Reason]:
    """Say that its last attempt was ended because a person has interrupted it."""
    order = inquiry.task.fields.get("interrupt")
    if order is not None and order == inquiry.task.fields.get("finished_by"):
        sentence = f"It was interrupted {_asked(inquiry)}. It runs again, at no cost."
        yield Reason("interrupted", sentence)


def _process_gone(inquiry: Inquiry, node: Node | None) -> Reason:
    """Say which listener will report the end of a task whose process has ended."""
    task = inquiry.task
    what = (
        f"It no longer runs: process {task.pid} is gone from this host. Its end is not recorded yet"
    )
    if node is None or node.state in ("dead", "gone") or is_process_gone(node):
        sentence = f"{what}: start a listener of {task.queue} here, with its spool, to record it."
        return Reason("process_gone", sentence, _serve(inquiry))
    sentence = f"{what}: its listener {short_node(node.id)} records it at its next beat. If it does not, restart"
    return Reason("process_gone", f"{sentence} that listener.", f"blueque show {task.id}")


def _silent(inquiry: Inquiry, node: Node) -> Reason:
    """Say why a listener with a task may be dead, though no other process has found it dead yet."""
    seen = f", last seen {span(node.seen)} ago" if node.seen is not None else ""
    if is_process_gone(node):
        sentence = f"The process of that listener is gone from this host{seen}. The next listener of {node.queue} here, with"
        more = "its spool, adopts the task; other hosts handle it when its lease is over."
        return Reason("listener", f"{sentence} {more}", _serve(inquiry))
    sentence = f"That listener is silent{seen} and may be dead. If so, a listener on {node.host} with its spool adopts the task"
    return Reason(
        "listener",
        f"{sentence}; other hosts handle the task when the lease is over.",
        _serve(inquiry),
    )


def _staged(inquiry: Inquiry) -> Reason:
    what, queue = f"It is staged for run {inquiry.task.run}, which", inquiry.task.queue or ""
    if inquiry.staged in PUBLISHED:
        return Reason(
            "staged",
            f"{what} is decided: its tasks are being put in line.",
            hints.of_queue("gc", queue),
        )
    if inquiry.staged == "open":
        return Reason(
            "staged",
            f"{what} is not decided yet: then all of its tasks are put in line, or none.",
            hints.of_queue("runs", queue),
        )
    return Reason(
        "staged",
        f"{what} was decided without it, or was dropped: it never runs.",
        hints.of_queue("gc", queue),
    )


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
            f"It is overdue by {span(inquiry.now - eta)}: no scheduler has put it in line, and no"
            " listener of its queue.",
            "blueque-scheduler",
        )
    else:
        yield Reason(
            "due",
            f"It has been due for {span(inquiry.now - eta)}: a scheduler or a listener puts it in line now.",
        )


def _popped(node: Node) -> Reason:
    who = short_node(node.id)
    return Reason(
        "popped",
        f"{who} has taken it from its line and has not started it yet; that listener is {node.state}. If it"
        " has died, another listener notices and puts the task back.",
    )


def _pause(inquiry: Inquiry) -> Iterator[Reason]:
    if inquiry.pause is None:
        return
    since = (
        ""
        if inquiry.pause.since is None
        else f" for {span(max(inquiry.now - inquiry.pause.since, 0.0))}"
    )
    why = f": {inquiry.pause.reason}" if inquiry.pause.reason else ""
    sentence = f"Queue {inquiry.task.queue} {'has been' if since else 'is'} paused{since}{_by(inquiry.pause.by)}{why}."
    yield Reason("paused", sentence, hints.of_queue("resume", inquiry.task.queue or ""))


def _limit(inquiry: Inquiry) -> Iterator[Reason]:
    if not inquiry.room.is_full:
        return
    runs = _list_of(inquiry, inquiry.counted)
    verb = "runs" if inquiry.room.taken == 1 else "run"
    most, taken = count(inquiry.room.limit or 0, "task"), inquiry.room.taken
    sentence = f"Queue {inquiry.task.queue} may run {most} at a time, and {taken} {verb}{runs}"
    free = first_end(inquiry, inquiry.counted)
    about = "" if free is None else f"; the first ends in ~{roughly(free)}"
    command = hints.of_queue("limit", inquiry.task.queue or "", "N")
    yield Reason("limit", f"{sentence}{about}.", command, free)


def _lock(inquiry: Inquiry) -> Iterator[Reason]:
    needs = inquiry.needs
    if needs is None or needs.lock is None or len(inquiry.holders) < needs.limit:
        return
    share = "" if needs.limit == 1 else f", which {needs.limit} may hold at a time,"
    held = _list_of(inquiry, inquiry.holders)
    free = first_end(inquiry, inquiry.holders)
    which = "that" if len(inquiry.holders) == 1 else "one of these"
    then = f"it starts when {which} ends{_about(free, len(inquiry.holders))}."
    name = inquiry.task.schedule
    if name is not None and needs.lock == lock_of(name):
        sentence = f"Tasks of schedule {name} run one at a time, and another one runs"
        yield Reason("lock", f"{sentence}{held}; {then}", hints.of_schedule("show", name), free)
    else:
        sentence = f"Lock {needs.lock}{share} is held{held or ' by others'}; {then}"
        yield Reason("lock", sentence, None, free)


def first_end(inquiry: Inquiry, ids: Iterable[str]) -> float | None:
    """Return in how many seconds the first of these tasks ends; None: this is not known."""
    ends = [time_to_end(inquiry, task_id) for task_id in ids]
    return min((end for end in ends if end is not None), default=None)


def time_to_end(inquiry: Inquiry, task_id: str) -> float | None:
    """Return in how many seconds a task ends: by its progress, or as tasks of the queue usually do."""
    task = inquiry.tasks.get(task_id)
    if task is None or task.status != "started":
        return None
    left = left_of(task, inquiry.now)[0]
    if left is None and task.queue == inquiry.task.queue and task.started and inquiry.usual:
        middle = (inquiry.usual.low + inquiry.usual.high) / 2
        left = max(middle - (inquiry.now - task.started), 0.0)
    return left


def _about(free: float | None, count: int) -> str:
    if free is None:
        return ""
    return f", in ~{roughly(free)}" if count == 1 else f", the first in ~{roughly(free)}"


def _list_of(inquiry: Inquiry, ids: Sequence[str]) -> str:
    """Return `: A on N for 3 m, B on M for 1 h and 2 more`; empty if there are no ids."""
    names = [_of_one(inquiry, task_id) for task_id in sorted(ids)[:MOST_NAMES]]
    more = len(ids) - len(names)
    return f": {', '.join(names)}{f' and {more} more' if more > 0 else ''}" if names else ""


def _of_one(inquiry: Inquiry, task_id: str) -> str:
    task = inquiry.tasks.get(task_id)
    if task is None or task.status not in HELD:
        return f"{short_id(task_id)}, which no longer runs"
    since = entered(task)
    lasts = "" if since is None else f" for {span(max(inquiry.now - since, 0.0))}"
    other = f" of queue {task.queue}" if task.queue != inquiry.task.queue else ""
    name = f" ({what(task, reveal)})" if is_named(task) else ""
    return f"{short_id(task_id)}{name}{other} on {short_node(task.node or '?')}{lasts}"


def _listeners(inquiry: Inquiry) -> Iterator[Reason]:
    """Say if there is no listener, or none that could take it."""
    queue, takers = inquiry.task.queue, _takers(inquiry)
    paused = list(dict.fromkeys(node.host for node in inquiry.nodes if node.state == "paused"))
    if not takers and paused:
        hosts = ", ".join(paused[:MOST_NAMES]) + (" and others" if len(paused) > MOST_NAMES else "")
        sentence = f"The listeners of {queue} on {hosts} are paused."
        yield Reason("no_listener", sentence, hints.resume_node(paused[0]))
    elif not takers:
        yield Reason(
            "no_listener", f"No listener serves {queue}.{_last_seen(inquiry)}", _serve(inquiry)
        )
    elif inquiry.line != "0" and not [node for node in takers if node.state in LOOKS_AT_LINES]:
        what = "priorities" if inquiry.needs == Needs() else "what a task needs"
        yield Reason(
            "no_listener",
            f"Only listeners of 1.0.0 serve {queue}, and they do not know {what}.",
            _serve(inquiry),
        )


def _takers(inquiry: Inquiry) -> list[Node]:
    return [node for node in inquiry.nodes if node.state in _TAKES]


def _serve(inquiry: Inquiry) -> str:
    """Return the command that starts a listener that could run the task."""
    return hints.serve(
        inquiry.task.queue or "",
        inquiry.needs.resources if inquiry.needs is not None else (),
        inquiry.has_handler,
    )


def _last_seen(inquiry: Inquiry) -> str:
    seen = sorted((node.seen, node) for node in inquiry.nodes if node.seen is not None)
    if not seen:
        return ""
    age, node = seen[0]
    others = (
        f" {count(len(inquiry.nodes), 'listener')} take nothing:" if len(inquiry.nodes) > 1 else ""
    )
    return f"{others} {short_node(node.id)} is {node.state} and was last seen {span(age)} ago."


def _resources(inquiry: Inquiry) -> Iterator[Reason]:
    if inquiry.needs is None:
        yield Reason(
            "senseless",
            "What it needs is malformed, so no listener can take it.",
            f"blueque cancel {inquiry.task.id}",
        )
        return
    nodes = [node for node in inquiry.nodes if node.state in LOOKS_AT_LINES]
    if not inquiry.needs.resources or not nodes:
        return
    wanted = hints.amounts(inquiry.needs.resources)
    if not able_listeners(inquiry):
        most = {
            name: max(_has(node).get(name, 0) for node in nodes)
            for name, _ in inquiry.needs.resources
        }
        best = hints.amounts([pair for pair in most.items() if pair[1]]) or "none"
        options = " ".join(
            f"--resource {name}={hints.amount(number)}" for name, number in inquiry.needs.resources
        )
        sentence = f"It needs {wanted}, and no listener of {inquiry.task.queue} has that much: the most is {best}."
        yield Reason(
            "never_fits",
            f"{sentence} Start one on a host that has it, with {options}, or cancel the task.",
            f"blueque cancel {inquiry.task.id}",
        )
        return
    names = {name for name, _ in inquiry.needs.resources}
    used = [
        (node, task)
        for node, task in _running(inquiry)
        if not names.isdisjoint(dict(_needs_of(task)))
    ]
    if used and not any(
        _is_room_in(pool, inquiry, used) for pool in {node.pool for node in able_listeners(inquiry)}
    ):
        ids = [task.id for _, task in used]
        free = first_end(inquiry, ids)
        when = "that ends" if len(ids) == 1 else "enough of these have ended"
        when += _about(free, len(ids))
        sentence = f"It needs {wanted}, but too little is free: held by{_list_of(inquiry, ids).removeprefix(':')}"
        yield Reason("no_room", f"{sentence}; it starts when {when}.", None, free)


def _running(inquiry: Inquiry) -> list[tuple[Node, Task]]:
    """Return the tasks of the listeners on its hosts, of any queue, each with its listener."""
    found = (
        (node, inquiry.tasks.get(task_id))
        for node in (*inquiry.nodes, *inquiry.others)
        for task_id in node.held
    )
    return [(node, task) for node, task in found if task is not None and task.status in HELD]


def _is_room_in(
    pool: tuple[str, str, str], inquiry: Inquiry, used: Sequence[tuple[Node, Task]]
) -> bool:
    """Tell whether a host has free what the task needs. All its listeners share the resources."""
    totals = [_has(node) for node in able_listeners(inquiry) if node.pool == pool]
    for name, amount in inquiry.needs.resources if inquiry.needs is not None else ():
        taken = sum(dict(_needs_of(task)).get(name, 0) for node, task in used if node.pool == pool)
        if max(total.get(name, 0) for total in totals) - taken < amount:
            return False
    return True


def able_listeners(inquiry: Inquiry) -> list[Node]:
    """Return the listeners that take tasks and have what this task needs, free or in use."""
    if inquiry.line == "0":
        return [node for node in inquiry.nodes if node.state in _TAKES]
    needs = inquiry.needs.resources if inquiry.needs is not None else ()
    return [
        node
        for node in inquiry.nodes
        if node.state in LOOKS_AT_LINES
        and all(_has(node).get(name, 0) >= amount for name, amount in needs)
    ]


def _needs_of(task: Task) -> tuple[tuple[str, int], ...]:
    return (parse_needs(task.fields.get("needs", "")) or Needs()).resources


def _has(node: Node) -> dict[str, int]:
    return dict((parse_needs(node.resources or "") or Needs()).resources)


def _time(inquiry: Inquiry) -> Iterator[Reason]:
    """Say if each listener that could take it stops its tasks too soon."""
    able = able_listeners(inquiry)
    if not able or any(_has_time(inquiry, node) for node in able):
        return
    limit = max(_limit_on(node, inquiry.task) or 0.0 for node in able)
    left = max((seconds_of(node.ends_at) or 0.0) - inquiry.now for node in able)
    who = {1: "the only listener", 2: "both listeners"}.get(len(able), f"all {len(able)} listeners")
    verb = "stops its tasks" if len(able) == 1 else "stop their tasks"
    sentence = (
        f"It may run for {span(limit)}, and {who} of {inquiry.task.queue} {verb} in {span(left)}"
    )
    sentence += " (--max-runtime)." if len(able) == 1 else " at most (--max-runtime)."
    yield Reason("no_time", f"{sentence} A listener with more time takes it.", _serve(inquiry))


def _has_time(inquiry: Inquiry, node: Node) -> bool:
    limit = _limit_on(node, inquiry.task)
    return limit is None or has_time(node.ends_at, inquiry.now + limit)


def _limit_on(node: Node, task: Task) -> float | None:
    """Return how long the task may run there."""
    default = limits.of({"time_limit": node.time_limit or ""}, Limits())
    return limits.of(task.fields, default).time


def _busy(inquiry: Inquiry) -> Iterator[Reason]:
    able = [node for node in able_listeners(inquiry) if _has_time(inquiry, node)]
    # A listener of several queues runs one task at a time.
    has = {node.id: node.held[0] for node in (*inquiry.others, *able) if node.held}
    if not able or any(node.id not in has for node in able):
        return
    which = (
        "that have what it needs " if inquiry.needs is not None and inquiry.needs.resources else ""
    )
    all_of = {1: "The only listener", 2: "Both listeners"}.get(
        len(able), f"All {len(able)} listeners"
    )
    ids = [has[node.id] for node in able]
    busy, free = _list_of(inquiry, ids), first_end(inquiry, ids)
    verb, when = (
        ("has a task", "that ends") if len(able) == 1 else ("have a task", "one of these ends")
    )
    sentence = f"{all_of} of {inquiry.task.queue} {which}{verb}{busy}; it can start when {when}"
    yield Reason("busy", f"{sentence}{_about(free, len(able))}.", None, free)


def _before(inquiry: Inquiry) -> Iterator[Reason]:
    """Say which tasks are before it."""
    if inquiry.before is None and inquiry.length > FARTHEST:
        yield Reason(
            "behind",
            f"More than {FARTHEST} tasks {_ALIKE} are before it.",
            f"blueque first {inquiry.task.id}",
        )
    elif inquiry.before:
        are = "are" if inquiry.before > 1 else "is"
        yield Reason(
            "behind",
            f"{count(inquiry.before, 'task')} {_ALIKE} {are} before it.",
            f"blueque first {inquiry.task.id}",
        )
    if inquiry.higher:
        turn = (
            "has its turn first, if it can run"
            if inquiry.higher == 1
            else "have their turn first, if they can run"
        )
        yield Reason(
            "outranked",
            f"{count(inquiry.higher, 'task')} of higher priority {turn}.",
            f"blueque priority {inquiry.task.id} N",
        )
    if inquiry.beside:
        their = "its turn" if inquiry.beside == 1 else "their turn"
        sentence = f"{count(inquiry.beside, 'task')} of the same priority may have {their} before it: the oldest first."
        yield Reason("beside", sentence)


def _turn(inquiry: Inquiry) -> Iterator[Reason]:
    if inquiry.before is None and inquiry.length <= FARTHEST:
        yield Reason(
            "missing",
            "It is pending but not in its line: it is being moved, or something is wrong.",
            "blueque doctor",
        )
    elif not inquiry.before and not inquiry.higher:
        since = entered(inquiry.task)
        if since is not None and inquiry.now - since > LONG:
            yield Reason(
                "next",
                "Nothing in its queue holds it back. Its listeners may be busy with other queues.",
                "blueque status",
            )
        else:
            yield Reason("next", "Nothing holds it back: a listener will take it in a moment.")


_LOOKS: tuple[Callable[[Inquiry], Iterator[Reason]], ...] = (
    _pause,
    _limit,
    _listeners,
    _lock,
    _resources,
    _time,
    _busy,
)


def _by(name: str | None) -> str:
    return f" by {name}" if name else ""
