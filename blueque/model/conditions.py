"""What a task waits for: conditions on other tasks, and whether they are met.

A condition is `ok` (the other task is complete), `any` (it has ended), or `not_ok` (it has failed
or was cancelled). Once decided, a mark replaces it: `+[status]` if it is met, `-[status]` if it
never can be. A mark does not change again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from blueque.errors import InvalidInput, InvalidType
from blueque.model.group import InGroup, condition_on, group_of, is_gate
from blueque.model.states import FINISHED

OK, ANY, NOT_OK = "ok", "any", "not_ok"
KINDS = (OK, ANY, NOT_OK)
GONE = "gone"  # the status of a task that is not in Redis any more
DROPPED = "+dropped"  # the mark of a condition that a person has dropped
MAX_CONDITIONS = 1000
MOST_PARENTS = 100  # of all tasks that one transaction makes
_AS_WRITTEN = "after=blueque.after(ok=ids, any=ids)"

Ids: TypeAlias = "str | InGroup | Iterable[str | InGroup]"


class After(NamedTuple):
    """Conditions for `Queue.enqueue(..., after=)`, made by `after`. All of them must be met."""

    ok: tuple[str, ...] = ()
    any: tuple[str, ...] = ()
    not_ok: tuple[str, ...] = ()


def after(*, ok: Ids = (), any: Ids = (), not_ok: Ids = ()) -> After:
    """Return the conditions of a task, which joins the line when all of them are met.

    ok: ids of tasks that must complete.
    any: ids of tasks that must end in any way.
    not_ok: ids of tasks that must fail or be cancelled.
    Raises InvalidInput, InvalidType.
    """
    return After(names_of(ok), names_of(any), names_of(not_ok))


def names_of(given: Ids) -> tuple[str, ...]:
    """Return the names of these tasks and groups in conditions. Raises InvalidInput, InvalidType."""
    if isinstance(given, bytes | bytearray) or not isinstance(given, Iterable | InGroup):
        raise InvalidType(f"after: ids of tasks are expected, not {type(given).__name__}")
    if isinstance(given, Mapping | After):
        kind = type(given).__name__
        raise InvalidType(f"after: ids of tasks are expected, not {kind}: write {_AS_WRITTEN}")
    named = (given,) if isinstance(given, str | InGroup) else tuple(given)
    ids = tuple(
        condition_on(each.as_group().name) if isinstance(each, InGroup) else each for each in named
    )
    for task in ids:
        if isinstance(task, After):
            how = f"name all conditions in one: {_AS_WRITTEN}"
            raise InvalidType(f"after: a task id is a str, not a blueque.after(...); {how}")
        if not isinstance(task, str):
            raise InvalidType(f"after: a task id is a str, not {type(task).__name__}")
        if not task:
            raise InvalidInput("after: the id of a task is empty")
    return ids


def conditions_of(given: After | Ids | None) -> dict[str, str]:
    """Return the condition on each task. Plain ids: each must complete.

    Raises InvalidInput if one task has two conditions; InvalidType.
    """
    if given is None:
        return {}
    wanted = given if isinstance(given, After) else after(ok=given)
    found: dict[str, str] = {}
    for kind, ids in zip(KINDS, wanted, strict=True):
        for task in ids:
            if found.setdefault(task, kind) != kind:
                raise InvalidInput(
                    f"after: task {task} is to be both {found[task]} and {kind}; name it once"
                )
    return found


def mark(kind: str, status: str | None) -> str | None:
    """Return the mark of a condition on a task with this status; None: it is not decided yet.

    status: of the other task; None: it is gone. A failed task may still complete, so its failure
        does not decide `ok`.
    """
    if status is None:
        return f"+{GONE}" if kind == ANY else f"-{GONE}"
    if status == "complete":
        return "-complete" if kind == NOT_OK else "+complete"
    if status in FINISHED and kind != OK:
        return f"+{status}"
    return None


def is_marked(condition: str) -> bool:
    """Return whether a condition is decided."""
    return condition[:1] in ("+", "-")


def are_met(conditions: Mapping[str, str]) -> bool:
    """Return whether all conditions are met."""
    return all(condition.startswith("+") for condition in conditions.values())


def count_named(names: Iterable[str]) -> int:
    """Return how many tasks and groups a producer has named. Gates do not count."""
    return len({name for name in names if not is_gate(group_of(name) or "")})


def require_few(named: int) -> None:
    """Refuse a task that would wait for more than 1,000 others. Raises InvalidInput."""
    if named > MAX_CONDITIONS:
        why = f"a task can wait for {MAX_CONDITIONS:,} others, not for {named:,}"
        raise InvalidInput(f"{why}; it can wait for a group of them")


def unmet(conditions: Mapping[str, str]) -> list[str]:
    """Return the ids of the tasks on which a condition is not decided."""
    return [task for task, condition in conditions.items() if not is_marked(condition)]
