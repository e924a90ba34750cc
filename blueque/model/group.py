"""Groups of tasks: their names, records, and status for the tasks that wait for them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

from blueque.errors import InvalidInput, WrongGroup
from blueque.model import record
from blueque.model.encoding import GATE, from_json, integer, number, require_group_name, seconds_of

# The fields of a record. Type and meaning as in docs/protocol/groups.md, "Groups of tasks"; every
# value is text in Redis.
FIELDS: record.Types = {
    "group": str,
    "state": str,
    "made_by": str,
    "keep": integer,
    "after": str,
    "broken": str,
    "hold": number,
    "collected": number,
    "created": number,
    "closed": number,
    "ended": number,
    "expires": number,
    "cancel": number,
    "cancelled_by": str,
    "cancel_reason": str,
    "gate": str,
    "gate_of": str,
    "updated": number,
}
MAKING = "making"  # the state of a workflow whose tasks are not all there
_BATCH = "batch of "  # begins `made_by` of a group that a call with keys has opened
_CONDITION = "group "  # no id of a task has a space


@runtime_checkable
class InGroup(Protocol):
    """A group, or the result of a call that makes many tasks. It stands for its tasks in `after=`."""

    def as_group(self) -> Group:
        """Return the group of the tasks. Raises InvalidInput if they have none."""


def tracked(group: str | None) -> Group:
    """Return the group of the tasks that a call made. Raises InvalidInput if they have none."""
    if group is None:
        raise InvalidInput(
            "after: the tasks of that call are in no group, so nothing tells when all of them are complete: "
            "give that call group="
        )
    return Group(group)


class Group:
    """The name of a group of tasks, for `after=` and `group=`."""

    def __init__(self, name: str) -> None:
        self.name = require_group_name(name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    def as_group(self) -> Group:
        return self


class Links(NamedTuple):
    """The group and the conditions of tasks that are made together. False if they have none.

    group: the group that they join. conditions: on each parent, the same for all. broken: see `Wait`.
    """

    group: str | None = None
    conditions: Mapping[str, str] = {}
    broken: str = "hold"

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Links:
        """Return the links in the record of a group."""
        conditions = conditions_in(record.get("group", ""), record.get("after"))
        return cls(record.get("group"), conditions, record.get("broken", "hold"))

    def __bool__(self) -> bool:
        return self.group is not None or bool(self.conditions)

    def record(self) -> dict[str, str]:
        """Return the fields of the record."""
        fields = {} if self.group is None else {"group": self.group}
        if self.conditions:
            fields["after"] = json.dumps(dict(self.conditions), separators=(",", ":"))
            fields |= {} if self.broken == "hold" else {"broken": self.broken}
        return fields

    def fields(self) -> dict[str, str | int | float]:
        """Return the fields of each task."""
        fields: dict[str, str | int | float] = {}
        if self.group is not None:
            fields["group"] = self.group
        if self.conditions:
            fields |= {} if self.broken == "hold" else {"broken": self.broken}
            fields["after"] = len(self.conditions)
        return fields


def conditions_in(group: str, after: str | None) -> dict[str, str]:
    """Return the conditions in `after` of a group record. Raises WrongGroup if unreadable."""
    try:
        conditions = {} if after is None else from_json(after)
    except ValueError:
        conditions = None
    if not isinstance(conditions, dict):
        raise WrongGroup(group, "its record does not say what its members wait for: blueque doctor")
    return conditions


def batch_of(queue: str) -> str:
    """Return the `made_by` of a group that a call with keys for this queue opened.

    Each such call that finds the group open closes it at its end.
    """
    return f"{_BATCH}{queue}"


def is_held(hold: str | None, collected: str | None, now: float) -> bool:
    """Return whether these fields of the record of a group keep retention from its members."""
    return collected is None and (seconds_of(hold) or 0.0) > now


def parse(fields: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a record with their types, without malformed ones."""
    return record.parse(fields, FIELDS)


def condition_on(group: str) -> str:
    """Return the name of a group in the conditions of a task."""
    return f"{_CONDITION}{group}"


def group_of(parent: str) -> str | None:
    """Return the group that a condition names; None: it names a task."""
    return parent.removeprefix(_CONDITION) if parent.startswith(_CONDITION) else None


def gate_of(group: str) -> str:
    """Return the name of the gate of a workflow: its tasks wait for this group until all exist."""
    return f"{GATE}{group}"


def is_gate(group: str) -> bool:
    """Return whether a group is the gate of another one."""
    return group.startswith(GATE)


def workflow_of(parent: str) -> str | None:
    """Return the workflow whose gate a condition names; None: it names a task or another group."""
    group = group_of(parent) or ""
    return group.removeprefix(GATE) if is_gate(group) else None


def is_of_workflow(made_by: str | None) -> bool:
    """Return whether a workflow made the group, and not a call with keys, a program or a person."""
    return made_by is not None and not made_by.startswith(_BATCH)


def require_whole(group: str, state: str | None, gate: str | None, dropped: Iterable[str]) -> None:
    """Refuse to run a part of a workflow whose tasks are not all in Redis.

    state, gate: of its record. dropped: the conditions that the task would no longer wait for.
        Raises WrongGroup.
    """
    if gate is not None:
        why = "not all of its tasks are there, so none of them runs;"
        if state == MAKING:
            raise WrongGroup(group, f"{why} commit it again, or cancel it")
        then = "cancel it and remove it (blueque group cancel, forget), then commit it again"
        raise WrongGroup(group, f"{why} {then}")
    if state is None and any(is_gate(group_of(name) or "") for name in dropped):
        why = "its record is gone, and not all of its tasks may be there; delete them"
        raise WrongGroup(group, f"{why}, then commit it again")


def shown_state(state: str, is_cancelled: bool, open_members: int) -> str:
    """Return the state to show: open, closed, ended, making, cancelling or cancelled."""
    if is_cancelled and open_members:
        return "cancelling"
    return "cancelled" if is_cancelled and state == "ended" else state


def status_of(state: str | None, open_members: int, bad_members: int) -> str | None:
    """Return the status of a group for the tasks that wait for it: `open`, `complete` or `failed`;
    None: it is gone.

    open_members, bad_members: how many it has.
    """
    if state is None:
        return None
    if state != "ended" or open_members:
        return "open"
    return "failed" if bad_members else "complete"
