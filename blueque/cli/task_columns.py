"""The columns of a list of tasks: their text and their order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from blueque.cli import printing
from blueque.cli.printing import Column
from blueque.model.group import workflow_of
from blueque.model.queue_settings import DISCARDED
from blueque.model.start_time import EXPIRED
from blueque.model.states import FINISHED
from blueque.model.task import Task
from blueque.queries.listing import STATUSES, entered, run_time
from blueque.sentences.pace import left_of, progress_cell, progress_words
from blueque.text import hints, redaction
from blueque.text.eta import read_progress
from blueque.text.what import what

if TYPE_CHECKING:
    from blueque.queries.listeners import Node
    from blueque.sentences.start import Start
    from blueque.text.redaction import Hide

Rank = Callable[[Task, float], Any]


class TaskColumn(NamedTuple):
    """One column. cell: returns the text. rank: returns the value to sort by."""

    column: Column
    cell: Callable[[Task, float, bool], str]
    rank: Rank


def _text(value: object) -> str:
    return "-" if value is None else str(value)


def in_state(task: Task, now: float) -> float | None:
    """Return how long it has had its status; None if scheduled or unknown."""
    since = entered(task)
    return None if since is None or task.status == "scheduled" else now - since


def note(task: Task, now: float) -> str:
    """Return remarks about the task, the most important first."""
    return ", ".join([*_of_its_turn(task, now), *_of_its_end(task)])


def contents_for(names: Sequence[str]) -> list[str]:
    """Return the fields that `Inspector.with_contents` must read for these columns."""
    return [field for name in names for field in _CONTENTS.get(name, ())]


def chosen(names: Sequence[str], hide: Hide, nodes: Iterable[Node] = ()) -> list[TaskColumn]:
    """Return the columns of these names. NOTE has the progress if no column has it.

    hide: removes secrets from parameters. nodes: the listeners, for LEFT.
    """
    own = {"what": _what(hide), "parameters": _parameters(hide), "left": left(nodes)}
    if "progress" not in names:
        own["note"] = _NOTE_ALONE
    return [own.get(name, COLUMNS[name]) for name in names]


def _what(hide: Hide) -> TaskColumn:
    return TaskColumn(
        Column("WHAT", can_shrink=True, is_name=True),
        lambda task, now, is_utc: what(task, hide) or "-",
        lambda task, now: what(task, hide),
    )


def _parameters(hide: Hide) -> TaskColumn:
    def cell(task: Task, now: float, is_utc: bool) -> str:
        # a size instead of parameters that are too large stays as it is
        return _one_line(task.fields.get("parameters") and hide(task.fields["parameters"]))

    return TaskColumn(Column("PARAMETERS", can_shrink=True), cell, lambda task, now: None)


def left(nodes: Iterable[Node]) -> TaskColumn:
    """Return the column LEFT. nodes: the tasks of those that are not heard may no longer run."""
    listeners = {(node.queue, node.id): node for node in nodes}

    def of(task: Task, now: float) -> tuple[float | None, str | None]:
        return left_of(task, now, listeners.get((task.queue or "", task.node or "")))

    return TaskColumn(
        Column("LEFT", True, can_shrink=True),
        lambda task, now, is_utc: of(task, now)[1] or "-",
        lambda task, now: of(task, now)[0],
    )


def _error_text(task: Task) -> str | None:
    return task.error if task.status in FINISHED else task.last_error


def _one_line(text: str | None) -> str:
    return "-" if text is None else " ".join(text.split())


def _note_alone(task: Task, now: float) -> str:
    progress = progress_words(task) if task.status == "started" else None
    return ", ".join(words for words in (progress, note(task, now)) if words)


def error(task: Task) -> str:
    """Return why it failed, briefly: the type of the error, and the signal or the exit code."""
    reason = task.signal or (task.exit_code is not None and f"exit {task.exit_code}")
    return ", ".join(str(part) for part in (task.error_type, reason) if part)


def _of_its_turn(task: Task, now: float) -> list[str]:
    notes = []
    waits = task.status in ("pending", "scheduled", "blocked")
    if task.status == "blocked":
        notes.append(f"waits for {task.after or 0}")
    if task.status == "scheduled" and task.eta is not None:
        notes.append(f"{'retry ' if task.last_error_type else ''}{printing.due(task.eta, now)}")
    if waits and task.fields.get("priority"):
        notes.append(f"priority {task.fields['priority']}")
    if waits and task.fields.get("needs"):
        notes.append(f"needs {hints.words_of(task.fields['needs'])}")
    if task.status == "pending" and task.last_error_type:
        notes.append("to run again")
    if task.status == "started" and "cancel" in task.fields:
        notes.append("cancelling")
    if task.status == "cancelled" and task.cancel_reason in (EXPIRED, DISCARDED):
        notes.append(task.cancel_reason)
    elif "cancelled_by" in task.fields and task.status in ("started", "cancelled"):
        notes.append(f"{'asked ' if task.status == 'started' else ''}by {task.cancelled_by}")
    if task.broken_by is not None and task.status == "cancelled":
        notes.append(f"because of {name_of(task.broken_by)}")
    return notes


def _of_its_end(task: Task) -> list[str]:
    notes = []
    if task.status == "failed":
        notes += [words for words in (error(task),) if words]
    elif task.last_error_type and task.status != "complete":
        notes.append(f"after {task.last_error_type}")
    if task.status in FINISHED and task.started and task.finished:
        notes.append(f"ran {printing.span(task.finished - task.started)}")
    if (task.attempt or 0) > 1:
        notes.append(f"attempt {task.attempt}")
    return notes


def _time(name: str) -> TaskColumn:
    def cell(task: Task, now: float, is_utc: bool) -> str:
        return printing.stamp(getattr(task, name), is_utc)

    return TaskColumn(Column(name.upper()), cell, lambda task, now: getattr(task, name))


def _of(name: str, title: str, *, is_number: bool = False) -> TaskColumn:
    def rank(task: Task, now: float) -> Any:
        return getattr(task, name)

    def cell(task: Task, now: float, is_utc: bool) -> str:
        return _text(getattr(task, name))

    return TaskColumn(Column(title, is_number, can_shrink=not is_number), cell, rank)


COLUMNS: dict[str, TaskColumn] = {
    "id": TaskColumn(
        Column("ID", can_shrink=True),
        lambda task, now, is_utc: printing.short_id(task.id),
        lambda task, now: task.id,
    ),
    "what": _what(redaction.hider()),
    "queue": _of("queue", "QUEUE"),
    "state": TaskColumn(
        Column("STATE"),
        lambda task, now, is_utc: _text(task.status),
        lambda task, now: STATUSES.index(task.status or ""),
    ),
    "for": TaskColumn(
        Column("FOR", True),
        lambda task, now, is_utc: printing.span(in_state(task, now)),
        lambda task, now: in_state(task, now),
    ),
    "node": TaskColumn(
        Column("NODE", can_shrink=True, yields=True),
        lambda task, now, is_utc: printing.short_node(task.node or "-"),
        lambda task, now: task.node,
    ),
    "pid": _of("pid", "PID", is_number=True),
    "attempt": _of("attempt", "ATTEMPT", is_number=True),
    "priority": _of("priority", "PRIORITY", is_number=True),
    "ran": TaskColumn(
        Column("RAN", True),
        lambda task, now, is_utc: printing.span(run_time(task, now)),
        lambda task, now: run_time(task, now),
    ),
    "progress": TaskColumn(
        Column("PROGRESS", can_shrink=True),
        lambda task, now, is_utc: progress_cell(read_progress(task.fields.get("progress", ""))),
        lambda task, now: read_progress(task.fields.get("progress", "")).share,
    ),
    "left": left(()),
    "error": TaskColumn(
        Column("ERROR", can_shrink=True),
        lambda task, now, is_utc: error(task) or "-",
        lambda task, now: error(task) or None,
    ),
    "error_text": TaskColumn(
        Column("ERROR TEXT", can_shrink=True),
        lambda task, now, is_utc: _one_line(_error_text(task)),
        lambda task, now: None,
    ),
    "title": _of("title", "TITLE"),
    "key": _of("key", "KEY"),
    "producer": _of("producer", "PRODUCER"),
    "group": _of("group", "GROUP"),
    "parameters": _parameters(redaction.hider()),
    "result": TaskColumn(
        Column("RESULT", can_shrink=True),
        lambda task, now, is_utc: _one_line(task.fields.get("result")),
        lambda task, now: None,
    ),
    **{
        name: TaskColumn(  # `start.explained` fills them
            Column(name.upper(), name == "start", can_shrink=True),
            lambda task, now, is_utc: "-",
            lambda task, now: None,
        )
        for name in ("reason", "start")
    },
    **{name: _time(name) for name in ("created", "eta", "started", "finished", "updated")},
    "note": TaskColumn(
        Column("NOTE", can_shrink=True),
        lambda task, now, is_utc: note(task, now),
        lambda task, now: note(task, now),
    ),
}
_CONTENTS = {
    "what": ("what",),
    "parameters": ("parameters",),
    "result": ("result",),
    "error_text": ("error", "last_error"),
}
_NOTE_ALONE = COLUMNS["note"]._replace(cell=lambda task, now, is_utc: _note_alone(task, now))
USUAL = ("id", "what", "queue", "state", "for", "node", "note")
USUAL_OF_PENDING = ("id", "what", "queue", "for", "reason", "start", "note")


def name_of(parent: str) -> str:
    """Return a task or group that a condition names, as people know it."""
    workflow = workflow_of(parent)
    return printing.short_id(parent) if workflow is None else f"workflow {workflow}"


def explained(column: TaskColumn, found: Mapping[str, Start]) -> TaskColumn:
    """Return the column REASON or START with the findings; other columns unchanged."""
    title = column.column.title
    if title not in ("REASON", "START"):
        return column

    def cell(task: Task, now: float, is_utc: bool) -> str:
        start = found.get(task.id)
        if start is None:
            return "-"
        return start.words if title == "REASON" else start.about

    return column._replace(cell=cell)
