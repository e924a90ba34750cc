"""Which tasks a person wants: by key, group, tag, schedule, error, text and time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from blueque.model.ids import id_of_key, require_key
from blueque.model.states import FINISHED
from blueque.queries.listing import entered
from blueque.queries.search import Choice

if TYPE_CHECKING:
    from blueque.model.task import Task
    from blueque.queries.inspector import Inspector


class Selection(NamedTuple):
    """Which tasks to select. Several values of one name select the tasks that have any of them.

    since, until: whether it is an age, and the seconds: an age, or Unix time.
    """

    key: Sequence[str] = ()
    error_type: Sequence[str] = ()
    text: str | None = None
    since: tuple[bool, float] | None = None
    until: tuple[bool, float] | None = None
    schedule: Sequence[str] = ()
    tags: Sequence[str] = ()
    group: Sequence[str] = ()

    @property
    def is_named(self) -> bool:
        """Whether it selects by more than the time of the present state."""
        return any(self[:3]) or bool(self.schedule or self.tags or self.group)

    @property
    def is_any(self) -> bool:
        """Whether any option was given."""
        times = (self.since, self.until)
        return self.is_named or times != (None, None)

    def wants(self, task: Task, now: float) -> bool:
        """Return whether a task is selected, as far as the fields in `listing.SHOWN` show."""
        fields = task.fields
        return (
            (not self.key or fields.get("key") in self.key)
            and (not self.group or fields.get("group") in self.group)
            and {*self.tags} <= {*(task.tags or ())}
            and (not self.schedule or fields.get("schedule") in self.schedule)
            and (not self.error_type or _error_type(task) in self.error_type)
            and self._is_in_time(task, now)
        )

    def inside(self, task: Task) -> bool:
        """Return whether a text of the task has the wanted words."""
        words = (self.text or "").casefold()
        return any(words in task.fields.get(name, "").casefold() for name in _TEXTS)

    def choice(
        self, queues: Sequence[str], inspector: Inspector, say: Callable[[str], None]
    ) -> Choice:
        """Return what to search for in these queues. Keys, tags and groups give the ids of their tasks.

        say: gets a sentence if not all of them can be found.
        """
        inside = None if self.text is None else self.inside
        if self.group:
            members, has_more = inspector.group_members(self.group)
            if has_more:
                say("Of each group, only the first 100,000 tasks were searched.")
            return Choice(self.wants, inside=inside, ids=members, is_indexed=True)
        if self.tags:
            ids, has_more = inspector.tagged(self.tags)
            if has_more:
                say("Of each tag, only the first 10,000 tasks were searched.")
            return Choice(self.wants, inside=inside, ids=ids, is_indexed=True)
        ids = [id_of_key(queue, require_key(key)) for queue in queues for key in self.key]
        return Choice(self.wants, inside=inside, ids=ids)

    def _is_in_time(self, task: Task, now: float) -> bool:
        if self.since is None and self.until is None:
            return True
        moment = (task.created if task.status == "scheduled" else entered(task)) or 0.0
        first, last = _moment(self.since, now), _moment(self.until, now)
        return (first is None or moment >= first) and (last is None or moment <= last)


_TEXTS = ("title", "key", "parameters", "error", "last_error", "progress")


def _error_type(task: Task) -> str | None:
    """Return the type of its error; for a task that will run again, of its last error."""
    if task.error_type is not None or task.status in FINISHED:
        return task.error_type
    return task.last_error_type


def _moment(given: tuple[bool, float] | None, now: float) -> float | None:
    if given is None:
        return None
    is_age, seconds = given
    return now - seconds if is_age else seconds
