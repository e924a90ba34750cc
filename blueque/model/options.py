"""The options of a new task, each named once, and the fields that come from them.

Many tasks may share `TaskOptions`. `EnqueueOptions` are all options of `Queue.enqueue`, which
describes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypedDict, cast, get_args

from blueque.errors import InvalidInput, InvalidType
from blueque.model import labels, limits
from blueque.model.conditions import After, Ids
from blueque.model.group import Group, group_of
from blueque.model.lines import require_lock, require_priority, require_resources, write_needs
from blueque.model.retry import Retry
from blueque.model.start_time import Within

Options = dict[str, str | int | float]
Broken = Literal["hold", "cancel"]


class SharedOptions(TypedDict, total=False):
    """How a task runs, and what people see of it."""

    resources: Mapping[str, int | str] | None
    lock: str | tuple[str, int] | None
    retry: Retry | int | None
    time_limit: float | str | None
    stall_limit: float | str | None
    memory_limit: int | str | None
    grace: float | str | None
    lead: float | str | None
    title: str | None
    tags: Iterable[str] | None
    context: Mapping[str, Any] | None


class TaskOptions(SharedOptions, total=False):
    """These and its place in line."""

    priority: int


class WaitOptions(TypedDict, total=False):
    """What a task waits for."""

    after: After | Ids | None
    broken: Broken
    results: bool


class GroupOptions(WaitOptions, total=False):
    """What a task waits for, and the group that it joins."""

    group: Group | str | None


class StartOptions(TypedDict, total=False):
    """By when a task must have started."""

    start_within: Within
    start_before: float | datetime | None
    expired_to: str | None


class EtaOption(TypedDict, total=False):
    """When a task is due, as for `Queue.schedule`."""

    eta: float | datetime | None


class UnnamedOptions(TaskOptions, GroupOptions, StartOptions, total=False):
    """The options of `Queue.enqueue` without `id`."""

    key: str | int | None
    keep: float | str


class EnqueueOptions(UnnamedOptions, total=False):
    """The options of `Queue.enqueue`, which describes them."""

    id: str | None


class FanoutOptions(UnnamedOptions, EtaOption, total=False):
    """The options of `Fanout.enqueue`."""


class MemberOptions(TaskOptions, WaitOptions, EtaOption, total=False):
    """The options of `Workflow.add`."""


class SpawnOptions(TaskOptions, GroupOptions, EtaOption, total=False):
    """The options of a task that a running task creates."""


class Defaults(NamedTuple):
    """The defaults of a queue for its tasks. limits: as fields."""

    retry: Retry | Literal[False] | None = None
    limits: Mapping[str, int | float] = MappingProxyType({})
    resources: Mapping[str, int | str] | None = None


NO_DEFAULTS = Defaults()
# What options of other queues are called here.
_MEANT = {"workflow": "group", "depends_on": "after", "job_id": "id", "meta": "context"}


def task_fields(
    options: TaskOptions, its_trace: Mapping[str, str], defaults: Defaults = NO_DEFAULTS
) -> Options:
    """Return the fields of a task with these options.

    its_trace: of the caller, see `trace.of_caller`. Raises InvalidInput, InvalidType.
    """
    if not options and not its_trace and defaults.retry is None and defaults.resources is None:
        return {**defaults.limits}  # the usual case
    given = cast(dict[str, Any], options)
    its_limits = {name: given[name] for name in given.keys() & limits.NAMES}
    its_labels = {name: given[name] for name in given.keys() & labels.NAMES}
    fields: Options = {**defaults.limits}
    if its_limits:
        fields |= limits.fields(**its_limits)
    if its_labels or its_trace:
        fields |= labels.fields(**its_labels, trace=its_trace)
    retry, priority = options.get("retry"), options.get("priority", 0)
    policy = defaults.retry if retry is None else require_retry(retry)
    if policy is not None:
        # null: no retries, even if the listener has a policy
        fields["retry"] = policy.to_text() if policy else "null"
    if require_priority(priority):
        fields["priority"] = priority
    resources, lock = options.get("resources"), options.get("lock")
    wanted = defaults.resources if resources is None else resources
    if lock is None and wanted is None:  # the usual case
        return fields
    name, limit = (None, 1) if lock is None else require_lock(lock)
    needs = write_needs(require_resources(wanted or {}), name, limit)
    return {**fields, "needs": needs} if needs else fields


def waiting_fields(conditions: Mapping[str, str], broken: str, has_results: bool) -> Options:
    """Return the fields of a task with these conditions; without conditions, none.

    broken: hold or cancel. has_results: it gets the results of its parents. Raises InvalidInput if
        these are groups only.
    """
    fields: Options = {} if broken == "hold" else {"broken": broken}
    if has_results:
        parents = [parent for parent in conditions if group_of(parent) is None]
        if conditions and not parents:
            raise InvalidInput("results=True needs a task in after=: a group has no result")
        fields |= {"inputs": 0, "parents": " ".join(parents)}
    return fields if conditions else {}


def require_known(call: str, options: Iterable[str], known: type) -> None:
    """Refuse an unknown keyword argument. Raises TypeError.

    call: the name of what was called. known: the TypedDict of the options.
    """
    names = known.__annotations__
    for option in options:
        if option not in names:
            meant = f" Did you mean {_MEANT[option]}?" if _MEANT.get(option) in names else ""
            raise TypeError(
                f"{call}() got an unexpected keyword argument {option!r}; for tasks there are {', '.join(names)}.{meant}"
            )


def require_broken(broken: str) -> None:
    """Refuse an unknown value of `broken`. Raises InvalidInput."""
    if broken not in get_args(Broken):
        raise InvalidInput(f"broken is 'hold' or 'cancel', not {broken!r}")


def require_after(is_given: bool, broken: str, has_results: bool) -> None:
    """Refuse options about waiting for a task that waits for nothing. Raises InvalidInput."""
    for option, is_set in ((f"broken={broken!r}", broken != "hold"), ("results=True", has_results)):
        if is_set and not is_given:
            raise InvalidInput(f"{option} needs after=, the tasks to wait for")


def require_retry(retry: object) -> Retry | Literal[False] | None:
    """Return the policy; for a number a policy of so many retries. None: no policy; False, which 0
    means, too: the task never runs again.
    """
    if retry is None or isinstance(retry, Retry):
        return retry
    if isinstance(retry, int) and retry is not True:
        return Retry(max=retry) if retry else False
    raise InvalidType(
        f"retry is a blueque.Retry, a number of retries, or False for none, not {type(retry).__name__}"
    )
