"""Wait: what new tasks wait for, from the options of `Queue.enqueue`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from blueque.errors import InvalidInput, InvalidType
from blueque.model.conditions import MOST_PARENTS, conditions_of, require_few
from blueque.model.group import Group, Links
from blueque.model.options import (
    GroupOptions,
    Options,
    require_after,
    require_broken,
    waiting_fields,
)


class Wait(NamedTuple):
    """What new tasks wait for, and the group that they join; false if there is neither.

    conditions: on each parent, by its id. broken: what to do with a task whose conditions cannot be
        met. has_results: whether it gets the results of its parents.
    """

    conditions: Mapping[str, str]
    broken: str
    has_results: bool
    group: str | None = None

    def __bool__(self) -> bool:
        return bool(self.conditions) or self.group is not None

    def fields(self) -> Options:
        """Return the fields of such a task."""
        fields = waiting_fields(self.conditions, self.broken, self.has_results)
        return fields if self.group is None else {**fields, "group": self.group}

    def links(self) -> Links:
        """Return the same for the members of a group."""
        return Links(self.group, self.conditions, self.broken if self.conditions else "hold")

    def joined(self, more: Mapping[str, str]) -> Wait:
        """Return the same with more conditions, for one of many tasks. Raises InvalidInput."""
        for task, kind in more.items():
            if self.conditions.get(task, kind) != kind:
                raise InvalidInput(
                    f"task {task} is to be both {self.conditions[task]} and {kind}; name it once"
                )
        wait = self._replace(conditions={**self.conditions, **more}).of_many()
        wait.fields()  # refuses results of groups
        return wait

    def of_many(self) -> Wait:
        """Return the same, if many tasks can have these conditions. Raises InvalidInput."""
        if len(self.conditions) > MOST_PARENTS:
            raise InvalidInput(
                f"many tasks can wait for {MOST_PARENTS} others each, not for {len(self.conditions)}: "
                "have one task wait for all of these, and the many wait for that one"
            )
        return self


NOTHING = Wait({}, "hold", False)


def wait_for(options: GroupOptions, has_each: bool = False) -> Wait:
    """Return what a task with these options waits for, and its group.

    has_each: each of many tasks also has parents of its own.
    Raises InvalidInput, InvalidType.
    """
    after, group = options.get("after"), options.get("group")
    broken, results = options.get("broken", "hold"), options.get("results", False)
    if after is None and group is None and broken == "hold" and not (results or has_each):
        return NOTHING  # as most tasks: a producer may call this for each of a million
    require_broken(broken)
    require_after(has_each or after is not None, broken, bool(results))
    conditions = conditions_of(after)
    require_few(len(conditions))
    named = Group(group) if isinstance(group, str) else group
    if named is not None and not isinstance(named, Group):
        raise InvalidType(f"group is a name or a blueque.Group, not {type(group).__name__}")
    wait = Wait(conditions, broken, bool(results), None if named is None else named.name)
    if not has_each:
        wait.fields()  # refuses results of groups, before anything is read
    return wait
