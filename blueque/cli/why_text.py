"""Why a task does not run, in sentences: the facts of an `Inquiry` in, reasons out. Nothing here
talks to Redis.

Of listeners of this host it looks whether their processes are there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from blueque.cli import printing
from blueque.cli.pace import usual_of
from blueque.cli.printing import count
from blueque.model.lines import Needs, parse_needs
from blueque.model.states import FINISHED, HELD
from blueque.queries.listeners import LOOKS_AT_LINES, Node, is_process_gone, puts_in_line
from blueque.queries.listing import LATE, OVERDUE, entered
from blueque.queries.why_facts import FARTHEST, Inquiry
from blueque.system import process
from blueque.text import hints

if TYPE_CHECKING:
    from blueque.model.task import Task

_ALIKE = "of its priority and needs"  # who stands in one line

MOST_NAMES = 3  # of tasks or listeners in one sentence
LONG = 15.0  # seconds after which an idle listener should have taken a task

_TAKES = ("up", "unattended", "1.0.0")  # states of a listener that takes tasks


class Reason(NamedTuple):
    """One thing that keeps a task from running, or says why it does not wait.

    code: the same for the same kind of reason. command: what a person may do about it.
    """

    code: str
    sentence: str
    command: str | None = None


def headline(its: Inquiry) -> str:
    """Return what the task is, since when, and how far from its turn."""
    task = its.task
    since = entered(task)
    lasts = (
        ""
        if since is None or task.status == "scheduled"
        else f" for {printing.span(max(its.now - since, 0.0))}"
    )
    place = ""
    if task.status == "pending" and its.before is not None:
        place = f", number {its.before + 1} of {its.length} {_ALIKE}"
    verb = "has been" if lasts else "is"
    return f"{printing.short_id(task.id)} in {task.queue} {verb} {task.status}{lasts}{place}."


def reasons(its: Inquiry, is_utc: bool = False) -> list[Reason]:
    """Return why it does not run, what weighs most first; never empty."""
    status = its.task.status
    if status in FINISHED:
        return [_ended(its.task)]
    if status in HELD:
        return list(_held(its))
    if its.staged is not None:
        return [_staged(its)]
    if status == "scheduled":
        return [*_scheduled(its, is_utc), *_pause(its), *_listeners(its)]
    if status != "pending":
        return [
            Reason(
                "unknown", f"Its status {status!r} is none that Blueque knows.", "blueque doctor"
            )
        ]
    popped = next((node for node in its.nodes if its.task.id in node.held), None)
    if popped is not None:
        return [_popped(popped)]
    found = [reason for look in _LOOKS for reason in look(its)]
    before = [reason for reason in _before(its) if not found or reason.code != "beside"]
    return [*found, *before] if found else [*before, *_turn(its)]


def _ended(task: Task) -> Reason:
    if task.status == "complete":
        return Reason("ended", "It has run, and is complete.", f"blueque show {task.id}")
    command = f"blueque requeue {task.id}"
    if task.status == "cancelled":
        why = f": {task.fields['cancel_reason']}" if task.fields.get("cancel_reason") else ""
        return Reason(
            "ended", f"It was cancelled by {task.cancelled_by or 'somebody'}{why}.", command
        )
    error = task.fields.get("error", "").strip().partition("\n")[0]
    kind = (
        f" ({task.error_type})" if task.error_type and not error.startswith(task.error_type) else ""
    )
    return Reason("ended", f"It has failed{kind}: {error or 'nobody knows why'}", command)


def _held(its: Inquiry) -> Iterator[Reason]:
    task, node = its.task, next((one for one in its.nodes if one.id == its.task.node), None)
    who = printing.short_node(task.node or "nobody")
    if task.status == "started":
        if process.is_gone(task.pid or 0, task.fields):
            yield _process_gone(task, node)
            return
        yield Reason(
            "running",
            f"It runs on {who} with pid {task.fields.get('pid')}, attempt {task.attempt}.",
            f"blueque show {task.id}",
        )
        usual = usual_of(its.usual)
        if usual is not None:
            sentence = f"It does not tell how far it is. {usual.capitalize()}: half of those of its queue of late."
            yield Reason("usual", sentence)
        if task.cancel is not None:
            asked = printing.span(its.now - task.cancel)
            yield Reason(
                "cancelling",
                f"{task.cancelled_by or 'Somebody'} asked {asked} ago to have it cancelled.",
            )
    else:
        yield Reason("reserved", f"{who} has reserved it, and is about to start it.")
    if (
        node is not None
        and node.state not in ("dead", "gone")
        and (is_process_gone(node) or node.is_late)
    ):
        yield _silent(its, node)
    elif node is not None and node.state == "draining":
        yield Reason("draining", "That listener takes nothing new: it ends this task, and leaves.")
    elif node is None or node.state not in (*_TAKES, "paused"):
        state = "not known any more" if node is None else node.state
        seen = (
            f", last seen {printing.span(node.seen)} ago"
            if node is not None and node.seen is not None
            else ""
        )
        sentence = f"That listener is {state}{seen}. If it is dead, others of its queue find that out and see to the task; "
        host = (task.node or "").rpartition("_")[0] or "its host"
        yield Reason("listener", f"{sentence}one on {host} with its spool adopts it.", _serve(its))


def _process_gone(task: Task, node: Node | None) -> Reason:
    """Say who reports the end of a task whose process has ended, and how to have that done."""
    what = f"It does not run any more: process {task.pid} is gone from this host. Its end is not recorded yet"
    if node is None or node.state in ("dead", "gone") or is_process_gone(node):
        sentence = f"{what}: a listener of {task.queue} here with its spool does that."
        return Reason("process_gone", sentence, hints.serve(task.queue or ""))
    sentence = f"{what}: its listener {printing.short_node(node.id)} does that at its next beat. If it stays so, restart"
    return Reason("process_gone", f"{sentence} that listener.", f"blueque show {task.id}")


def _silent(its: Inquiry, node: Node) -> Reason:
    """Say of a listener with a task, which others have not found dead yet, what speaks for it."""
    seen = f", last seen {printing.span(node.seen)} ago" if node.seen is not None else ""
    if is_process_gone(node):
        sentence = f"The process of that listener is gone from this host{seen}. The next listener of {node.queue} here with"
        more = "its spool adopts the task; others see to it when its lease is over."
        return Reason("listener", f"{sentence} {more}", _serve(its))
    sentence = f"That listener is silent{seen}, and may be dead. If so, one on {node.host} with its spool adopts the task"
    return Reason(
        "listener",
        f"{sentence}; others find that out, and see to it, when its lease is over.",
        _serve(its),
    )


def _staged(its: Inquiry) -> Reason:
    what, queue = f"It is staged for run {its.task.run}, which", its.task.queue or ""
    if its.staged == "committing":
        return Reason(
            "staged", f"{what} is decided, and being put in line.", hints.of_queue("gc", queue)
        )
    if its.staged == "open":
        return Reason(
            "staged",
            f"{what} is not decided: all of its tasks are put in line then, or none.",
            hints.of_queue("runs", queue),
        )
    return Reason(
        "staged",
        f"{what} was decided without it, or dropped: it never runs.",
        hints.of_queue("gc", queue),
    )


def _scheduled(its: Inquiry, is_utc: bool) -> Iterator[Reason]:
    task, eta = its.task, its.task.eta
    if its.wish is not None:
        yield Reason(
            "retry",
            f"It waits for its next attempt. The last one asked to run again later: {its.wish}",
        )
    elif task.last_error_type or task.failures:
        error = (
            task.fields.get("last_error", "").partition("\n")[0]
            or task.last_error_type
            or "it does not say"
        )
        yield Reason("retry", f"It waits for its next attempt. The last one failed: {error}")
    if eta is None:
        yield Reason("overdue", "It is scheduled, and nobody knows for when.", "blueque doctor")
    elif eta > its.now:
        yield Reason(
            "scheduled",
            f"It is scheduled for {printing.stamp(eta, is_utc)}, in {printing.span(eta - its.now)}:"
            " a scheduler or a listener of its queue puts it in line then.",
        )
    elif its.now - eta > (OVERDUE if puts_in_line(its.nodes) else LATE):
        yield Reason(
            "overdue",
            f"It is overdue by {printing.span(its.now - eta)}: no scheduler has put it in line, and no"
            " listener of its queue.",
            "blueque-scheduler",
        )
    else:
        yield Reason(
            "due",
            f"It is due since {printing.span(its.now - eta)}: a scheduler or listener puts it in line now.",
        )


def _popped(node: Node) -> Reason:
    who = printing.short_node(node.id)
    return Reason(
        "popped",
        f"{who} has taken it from its line and not reserved it yet; that listener is {node.state}. If it"
        " has died just then, others find that out and put the task back.",
    )


def _pause(its: Inquiry) -> Iterator[Reason]:
    if its.pause is None:
        return
    since = (
        ""
        if its.pause.since is None
        else f" for {printing.span(max(its.now - its.pause.since, 0.0))}"
    )
    why = f": {its.pause.reason}" if its.pause.reason else ""
    sentence = f"Queue {its.task.queue} {'has been' if since else 'is'} paused{since} by {its.pause.by or 'somebody'}{why}."
    yield Reason("paused", sentence, hints.of_queue("resume", its.task.queue or ""))


def _limit(its: Inquiry) -> Iterator[Reason]:
    if not its.room.is_full:
        return
    runs = _list_of(its, its.counted)
    verb = "runs" if its.room.taken == 1 else "run"
    sentence = f"Queue {its.task.queue} may run {count(its.room.limit or 0, 'task')} at a time, and {its.room.taken} {verb}"
    yield Reason("limit", f"{sentence}{runs}.", hints.of_queue("limit", its.task.queue or "", "N"))


def _lock(its: Inquiry) -> Iterator[Reason]:
    needs = its.needs
    if needs is None or needs.lock is None or len(its.holders) < needs.limit:
        return
    share = "" if needs.limit == 1 else f", which {needs.limit} may hold at a time,"
    yield Reason(
        "lock",
        f"Lock {needs.lock}{share} is held{_list_of(its, its.holders) or ' by others'}; it starts when"
        f" {'that' if len(its.holders) == 1 else 'one of these'} ends.",
    )


def _list_of(its: Inquiry, ids: Sequence[str]) -> str:
    """Return ` by A on N for 3 m, B on M for 1 h and 2 more`; empty: by nobody."""
    names = [_of_one(its, task_id) for task_id in sorted(ids)[:MOST_NAMES]]
    more = len(ids) - len(names)
    return f": {', '.join(names)}{f' and {more} more' if more > 0 else ''}" if names else ""


def _of_one(its: Inquiry, task_id: str) -> str:
    task = its.tasks.get(task_id)
    if task is None or task.status not in HELD:
        return f"{printing.short_id(task_id)}, which does not run any more"
    since = entered(task)
    lasts = "" if since is None else f" for {printing.span(max(its.now - since, 0.0))}"
    other = f" of queue {task.queue}" if task.queue != its.task.queue else ""
    return f"{printing.short_id(task_id)}{other} on {printing.short_node(task.node or '?')}{lasts}"


def _listeners(its: Inquiry) -> Iterator[Reason]:
    """Say if nobody is there, or nobody who could take it."""
    queue, takers = its.task.queue, _takers(its)
    paused = list(dict.fromkeys(node.host for node in its.nodes if node.state == "paused"))
    if not takers and paused:
        hosts = ", ".join(paused[:MOST_NAMES]) + (" and others" if len(paused) > MOST_NAMES else "")
        sentence = f"The listeners of {queue} on {hosts} are paused."
        yield Reason("no_listener", sentence, hints.resume_node(paused[0]))
    elif not takers:
        yield Reason("no_listener", f"No listener serves {queue}.{_last_seen(its)}", _serve(its))
    elif its.line != "0" and not [node for node in takers if node.state in LOOKS_AT_LINES]:
        what = "priorities" if its.needs == Needs() else "what a task needs"
        yield Reason(
            "no_listener",
            f"Only listeners of 1.0.0 serve {queue}, and these know nothing of {what}.",
            _serve(its),
        )


def _takers(its: Inquiry) -> list[Node]:
    return [node for node in its.nodes if node.state in _TAKES]


def _serve(its: Inquiry) -> str:
    """Return the command that starts a listener that could run the task."""
    return hints.serve(its.task.queue or "", its.needs.resources if its.needs is not None else ())


def _last_seen(its: Inquiry) -> str:
    seen = sorted((node.seen, node) for node in its.nodes if node.seen is not None)
    if not seen:
        return ""
    age, node = seen[0]
    others = (
        f" {count(len(its.nodes), 'listener')} of it take nothing:" if len(its.nodes) > 1 else ""
    )
    return f"{others} {printing.short_node(node.id)} is {node.state}, and was seen {printing.span(age)} ago."


def _resources(its: Inquiry) -> Iterator[Reason]:
    if its.needs is None:
        yield Reason(
            "senseless", "No listener understands what it needs.", f"blueque cancel {its.task.id}"
        )
        return
    nodes = [node for node in its.nodes if node.state in LOOKS_AT_LINES]
    if not its.needs.resources or not nodes:
        return
    wanted = hints.amounts(its.needs.resources)
    if not _able(its):
        most = {
            name: max(_has(node).get(name, 0) for node in nodes) for name, _ in its.needs.resources
        }
        best = hints.amounts([pair for pair in most.items() if pair[1]]) or "nothing of it"
        options = " ".join(
            f"--resource {name}={hints.amount(number)}" for name, number in its.needs.resources
        )
        sentence = (
            f"It needs {wanted}, and no listener of {its.task.queue} has that: the most is {best}."
        )
        yield Reason(
            "never_fits",
            f"{sentence} Start one on a node that has it, with {options}, or cancel the task.",
            f"blueque cancel {its.task.id}",
        )
        return
    names = {name for name, _ in its.needs.resources}
    used = [
        (node, task) for node, task in _running(its) if not names.isdisjoint(dict(_needs_of(task)))
    ]
    if used and not any(
        _is_room_in(pool, its, used) for pool in {node.pool for node in _able(its)}
    ):
        ids = [task.id for _, task in used]
        when = "that ends" if len(ids) == 1 else "enough of these have ended"
        sentence = f"It needs {wanted}, but too little is free: held by{_list_of(its, ids).removeprefix(':')}"
        yield Reason("no_room", f"{sentence}; it starts when {when}.")


def _running(its: Inquiry) -> list[tuple[Node, Task]]:
    """Return the tasks that the listeners on its nodes have, of whatever queue, each with its
    listener.
    """
    found = (
        (node, its.tasks.get(task_id))
        for node in (*its.nodes, *its.others)
        for task_id in node.held
    )
    return [(node, task) for node, task in found if task is not None and task.status in HELD]


def _is_room_in(
    pool: tuple[str, str, str], its: Inquiry, used: Sequence[tuple[Node, Task]]
) -> bool:
    """Tell whether a node has free what the task needs: all the listeners there share it."""
    totals = [_has(node) for node in _able(its) if node.pool == pool]
    for name, amount in its.needs.resources if its.needs is not None else ():
        taken = sum(dict(_needs_of(task)).get(name, 0) for node, task in used if node.pool == pool)
        if max(total.get(name, 0) for total in totals) - taken < amount:
            return False
    return True


def _able(its: Inquiry) -> list[Node]:
    """Return the listeners that take tasks and have what this one needs, free or not."""
    if its.line == "0":
        return [node for node in its.nodes if node.state in _TAKES]
    needs = its.needs.resources if its.needs is not None else ()
    return [
        node
        for node in its.nodes
        if node.state in LOOKS_AT_LINES
        and all(_has(node).get(name, 0) >= amount for name, amount in needs)
    ]


def _needs_of(task: Task) -> tuple[tuple[str, int], ...]:
    return (parse_needs(task.fields.get("needs", "")) or Needs()).resources


def _has(node: Node) -> dict[str, int]:
    return dict((parse_needs(node.resources or "") or Needs()).resources)


def _busy(its: Inquiry) -> Iterator[Reason]:
    able = _able(its)
    # A listener of several queues has one task of all of them together.
    has = {node.id: node.held[0] for node in (*its.others, *able) if node.held}
    if not able or any(node.id not in has for node in able):
        return
    which = "that have what it needs " if its.needs is not None and its.needs.resources else ""
    all_of = {1: "The only listener", 2: "Both listeners"}.get(
        len(able), f"All {len(able)} listeners"
    )
    busy = _list_of(its, [has[node.id] for node in able])
    verb, when = (
        ("has a task", "that ends") if len(able) == 1 else ("have a task", "one of these ends")
    )
    yield Reason(
        "busy", f"{all_of} of {its.task.queue} {which}{verb}{busy}; it can start when {when}."
    )


def _before(its: Inquiry) -> Iterator[Reason]:
    """Say who is first, for whatever reason they wait."""
    if its.before is None and its.length > FARTHEST:
        yield Reason(
            "behind",
            f"More than {FARTHEST} tasks {_ALIKE} are before it.",
            f"blueque first {its.task.id}",
        )
    elif its.before:
        are = "are" if its.before > 1 else "is"
        yield Reason(
            "behind",
            f"{count(its.before, 'task')} {_ALIKE} {are} before it.",
            f"blueque first {its.task.id}",
        )
    if its.higher:
        turn = (
            "has its turn first, if it can run"
            if its.higher == 1
            else "have their turn first, if they can run"
        )
        yield Reason(
            "outranked",
            f"{count(its.higher, 'task')} of higher priority {turn}.",
            f"blueque priority {its.task.id} N",
        )
    if its.beside:
        their = "its turn" if its.beside == 1 else "their turn"
        sentence = f"{count(its.beside, 'task')} of the same priority may have {their} before it: the oldest first."
        yield Reason("beside", sentence)


def _turn(its: Inquiry) -> Iterator[Reason]:
    if its.before is None and its.length <= FARTHEST:
        yield Reason(
            "missing",
            "It is pending, and not in its line: it is just on the move, or something is wrong.",
            "blueque doctor",
        )
    elif not its.before and not its.higher:
        since = entered(its.task)
        if since is not None and its.now - since > LONG:
            yield Reason(
                "next",
                "Nothing keeps it that its queue tells of. Its listeners may be busy with other queues.",
                "blueque status",
            )
        else:
            yield Reason("next", "Nothing keeps it: a listener takes it in a moment.")


_LOOKS: tuple[Callable[[Inquiry], Iterator[Reason]], ...] = (
    _pause,
    _limit,
    _listeners,
    _lock,
    _resources,
    _busy,
)
