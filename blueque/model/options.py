"""The fields of a new task that come from its options: retry, priority, resources, lock, limits,
labels, and what it does if it waits for others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypedDict, get_args

from blueque.errors import InvalidInput, InvalidType
from blueque.model.group import group_of
from blueque.model.lines import require_lock, require_priority, require_resources, write_needs
from blueque.model.retry import Retry

Options = dict[str, str | int | float]
Broken = Literal["hold", "cancel"]


class Common(TypedDict, total=False):
    """The options of a task that many tasks may share, as for `Queue.enqueue`."""

    priority: int
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


def option_fields(
    policy: Retry | Literal[False] | None,
    limits: Mapping[str, int | float],
    priority: int,
    resources: Mapping[str, int | str] | None,
    lock: str | tuple[str, int] | None,
    labels: Mapping[str, str],
) -> Options:
    """Return the fields of a task with these options, as `Queue.enqueue` takes them.

    policy: see `require_retry`. limits: see `limits.fields`. labels: see `labels.fields`.
    Raises InvalidInput, InvalidType.
    """
    options: Options = {**limits, **labels}
    if policy is not None:
        # null: no retries, even if the listener has a policy
        options["retry"] = policy.to_text() if policy else "null"
    if require_priority(priority):
        options["priority"] = priority
    if lock is None and resources is None:  # the usual case
        return options
    name, limit = (None, 1) if lock is None else require_lock(lock)
    needs = write_needs(require_resources(resources or {}), name, limit)
    return {**options, "needs": needs} if needs else options


def waiting_fields(conditions: Mapping[str, str], broken: str, has_results: bool) -> Options:
    """Return the fields of a task with these conditions; without any: none.

    broken: hold or cancel. has_results: it is given the results of its parents. Raises InvalidInput
        if these are groups only.
    """
    fields: Options = {} if broken == "hold" else {"broken": broken}
    if has_results:
        parents = [parent for parent in conditions if group_of(parent) is None]
        if conditions and not parents:
            raise InvalidInput("results=True needs a task in after=: a group has no result")
        fields |= {"inputs": 0, "parents": " ".join(parents)}
    return fields if conditions else {}


def require_known(call: str, options: Iterable[str], known: type) -> None:
    """Refuse a keyword argument that is none of the options of tasks. Raises TypeError.

    call: the name of what was called. known: the TypedDict of the options.
    """
    names = known.__annotations__
    for option in options:
        if option not in names:
            raise TypeError(
                f"{call}() got an unexpected keyword argument {option!r}; "
                f"for tasks there are {', '.join(names)}"
            )


def require_broken(broken: str) -> None:
    """Refuse another value of `broken` than those that there are. Raises InvalidInput."""
    if broken not in get_args(Broken):
        raise InvalidInput(f"broken is 'hold' or 'cancel', not {broken!r}")


def require_after(is_given: bool, broken: str, has_results: bool) -> None:
    """Refuse options that say how a task waits, unless it is said for what it waits. Raises
    InvalidInput.
    """
    for option, is_set in ((f"broken={broken!r}", broken != "hold"), ("results=True", has_results)):
        if is_set and not is_given:
            raise InvalidInput(f"{option} needs after=, the tasks to wait for")


def require_retry(retry: object) -> Retry | Literal[False] | None:
    """Return the policy; for a number a policy of so many retries. None: no policy; False: no
    retries.
    """
    if retry is None or retry is False or isinstance(retry, Retry):
        return retry
    if isinstance(retry, int) and retry is not True:
        return Retry(max=retry)
    raise InvalidType(
        f"retry is a blueque.Retry, a number of retries, or False for none, not {type(retry).__name__}"
    )
