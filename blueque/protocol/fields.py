"""What transactions share: the owner of a task, the fields of an attempt, lines and room."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from blueque.connection.redis import Command
from blueque.errors import NotOwner
from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.model.lines import DEFAULT, line_of, needs_of, priority_of
from blueque.model.states import LOST, Whereabouts

Facts = Mapping[str, str | int | float] | None

# The end of an attempt. Each new end removes these first, so that nothing of an earlier one stays.
OUTCOME = (
    "result",
    "result_encoding",
    "error",
    "error_type",
    "traceback",
    "exit_code",
    "signal",
    "memory_peak",
    "cpu_seconds",
    "leaked",
    "lost_node",
    "last_seen",
    "finished",
)
# Where and since when an attempt runs. A task that is put in line again has none of these.
IDENTITY = (
    "node",
    "token",
    "pid",
    "pid_start",
    "boot",
    "ns",
    "started",
    "reclaimed_node",
    "files",
    "progress",
    "progress_at",
    "progress_first",
    "lock",
    "counted",
    "devices",
    "stack",
)


class TaskFields(NamedTuple):
    """The short fields of a task, as transactions read them."""

    status: str | None
    queue: str | None
    node: str | None
    token: str | None
    pid: str | None
    finished_by: str | None
    error_type: str | None
    cancel: str | None
    retry: str | None
    interruptions: str | None
    files: str | None
    priority: str | None
    needs: str | None
    lock: str | None
    counted: str | None
    attempt: str | None
    events: str | None
    started: str | None
    dependents: str | None
    group: str | None
    reclaimed_node: str | None
    pid_start: str | None
    interrupt: str | None
    interrupted_at: str | None
    requeued: str | None
    stack: str | None
    eta: str | None
    created: str | None
    updated: str | None
    start_before: str | None
    expired_to: str | None
    broken: str | None
    broken_by: str | None
    inputs: str | None
    keep: str | None
    enqueued_by: str | None
    tags: str | None

    @classmethod
    def of(cls, fields: Mapping[str, str]) -> TaskFields:
        """Return these fields among all fields of a task."""
        return cls._make(map(fields.get, cls._fields))

    @property
    def queue_name(self) -> str:
        """The name of its queue, or "" if the hash has lost it."""
        return self.queue or ""

    @property
    def line(self) -> str:
        return line_of(self.priority, self.needs)

    @property
    def whereabouts(self) -> Whereabouts:
        """The fields that determine where the task must be."""
        return Whereabouts.of(self)


def require_owner(
    attempt: AttemptRef, fields: TaskFields, *statuses: str, or_lost: bool = False
) -> None:
    """Raise NotOwner unless the task has one of these statuses and the attempt owns it.

    or_lost: also accept a task that was declared lost and has not run again since.
    """
    _, task, token, node = attempt
    if fields.status is None:
        raise NotOwner(task, None, "it does not exist")
    is_lost = (
        or_lost and fields.status == "failed" and fields.error_type in LOST and token is not None
    )
    if fields.status not in statuses and not is_lost:
        raise NotOwner(task, fields.status, f"it is {fields.status}, not {statuses[0]}")
    if fields.token != token or (fields.node != node and not is_lost):
        raise NotOwner(task, fields.status, f"it belongs to {fields.node}")


def put_in_line(queue: str, line: str, task: str, is_first: bool = False) -> list[Command]:
    """Return the commands that put a task in its line and list the line."""
    return [
        ("RPUSH" if is_first else "LPUSH", keys.line(queue, line), task),
        *list_lines(queue, line),
    ]


def join_lines(queue: str, joining: Mapping[str, Sequence[str]]) -> list[Command]:
    """Return the commands that put many tasks in their lines. joining: the tasks of each line."""
    return join_lines_of_queues({(queue, line): tasks for line, tasks in joining.items()})


def join_lines_of_queues(joining: Mapping[tuple[str, str], Sequence[str]]) -> list[Command]:
    """Return the same for several queues. joining: the tasks of each queue and line."""
    commands: list[Command] = [
        ("LPUSH", keys.line(queue, line), *tasks) for (queue, line), tasks in joining.items()
    ]
    return [*commands, *_list_lines(joining)]


def list_lines(queue: str, *lines: str) -> list[Command]:
    """Return the commands that list lines which have tasks; the default line is never listed."""
    return _list_lines([(queue, line) for line in lines])


def _list_lines(lines: Iterable[tuple[str, str]]) -> list[Command]:
    listed = [(queue, line) for queue, line in lines if line != DEFAULT]
    commands: list[Command] = [
        ("ZADD", keys.lines(queue), priority_of(line), line) for queue, line in listed
    ]
    for queue, line in listed:
        needs = needs_of(line)
        if needs is not None and needs.lock is not None:
            commands += [("SADD", keys.waiting(needs.lock), f"{line}_{queue}")]
    return commands


def enter_tags(tags: Mapping[str, object]) -> list[Command]:
    """Return the commands that enter new tasks in the index of tags. tags: the field of each task."""
    tagged: dict[str, list[str]] = {}
    for task, text in tags.items():
        for tag in str(text or "").split():
            tagged.setdefault(tag, []).append(task)
    return [
        ("ZADD", keys.TAGS, *[w for task in tasks for w in (0, keys.tag_entry(tag, task))])
        for tag, tasks in tagged.items()
    ]


def remove_tags(tags: Mapping[str, str | None]) -> list[Command]:
    """Return the commands that remove tasks from the index of tags. tags: the field of each task."""
    entries = {task: (text or "").split() for task, text in tags.items()}
    return [
        ("ZREM", keys.TAGS, *[keys.tag_entry(tag, task) for tag in named])
        for task, named in entries.items()
        if named
    ]


def text_of(facts: Facts, name: str) -> str | None:
    value = (facts or {}).get(name)
    return None if value is None else str(value)


def flat(fields: Facts) -> list[str | int | float]:
    """Return names and values in turn."""
    return [item for field in (fields or {}).items() for item in field]
