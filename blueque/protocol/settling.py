"""Tell tasks how those have ended for which they wait: settle, recheck, unblock."""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from blueque.connection.redis import AnyLook, Command, Look, Redis, as_hash
from blueque.errors import WrongQueue, WrongState
from blueque.model import inputs, keys
from blueque.model.conditions import (
    ANY,
    DROPPED,
    MAX_CONDITIONS,
    OK,
    are_met,
    is_marked,
    mark,
    unmet,
)
from blueque.model.encoding import count_of
from blueque.model.group import condition_on, gate_of, group_of, require_whole
from blueque.model.states import FINISHED
from blueque.protocol.children import (
    CANCEL,
    OPEN,
    cancel_children,
    child_look,
    let_go,
    let_one_go,
    revive,
)
from blueque.protocol.events import Event, record_event
from blueque.protocol.fields import TaskFields
from blueque.protocol.parents import (
    Parent,
    TaskParent,
    groups_among,
    standing_of,
    statuses_of,
    tasks_among,
    watched_of,
)
from blueque.protocol.transaction import Answer, Change, Verdict, transact

AT_ONCE = 100  # dependents that one `settle` tells; parents that one `recheck` reads
MOST_CONDITIONS = 10_000  # of all dependents of one `settle`: half a megabyte to read
FEW = MOST_CONDITIONS // MAX_CONDITIONS  # dependents whose conditions are never too many
MAX_COPIED = 4 * 1024 * 1024  # bytes of results in one transaction
MAX_REVIVED = 10  # tasks in one transaction: each is searched for in the list of cancelled ones
MAX_INPUTS = 64 * 1024 * 1024  # bytes of results that one task gets
LOOK_EVERY = 60.0  # seconds between two looks of `recheck` at a task, at least
LOOKS_PER_SECOND = 50  # at the blocked tasks of one queue, at most


class Settled(NamedTuple):
    """What one `settle` has done.

    told: how many dependents the task does not know any more. held: how many wait on, although it
        has ended. freed, cancelled, revived: how many of all these have another status now.
    is_over: there were no more to be told. ended: those that were cancelled, and for which others
        wait. to_recheck: the queue and the id of each that was revived.
    """

    told: int = 0
    held: int = 0
    freed: int = 0
    cancelled: int = 0
    revived: int = 0
    is_over: bool = True
    ended: tuple[str, ...] = ()
    to_recheck: tuple[tuple[str, str], ...] = ()


class _Child(NamedTuple):
    """A dependent as `settle` has read it."""

    task: str
    fields: TaskFields
    conditions: Mapping[str, str]


class _Ended(NamedTuple):
    """What the dependents are told of their parent. result: as `inputs` has it; None: not read."""

    parent: Parent
    status: str | None
    result: str | None = None


def settle(redis: Redis, task: str, now: float, skip: int | None = None) -> Settled:
    """Tell a hundred dependents of a task how it has ended, and let go of those that have nothing
    left to wait for.

    skip: look at those, too, that were told before that it has ended badly, but not at so many of
        them: entries of tasks that do not wait for it any more are dropped.
    """
    return tell_dependents(redis, "settle", TaskParent(task), now, skip)


def tell_dependents(
    redis: Redis, name: str, parent: Parent, now: float, skip: int | None
) -> Settled:
    """Do what `settle` does, for a task or a group. name: of the transaction."""
    settled: Settled | None = None
    while settled is None:
        view = _Range(name, parent, parent.status(redis.read(*parent.reads)), skip, AT_ONCE)
        (children,) = redis.read(view.command)
        if len(children) > FEW:
            read = _as_many_as_are_read(redis, children)
            if len(read) < len(children):
                children, view = read, view._replace(most=len(read))
        settled = _settle(redis, view, children, now, with_result=False)
    return settled


def _as_many_as_are_read(redis: Redis, children: Sequence[str]) -> list[str]:
    """Return the first of the dependents, as many as have no more conditions than one look reads."""
    counts = redis.read(*[("HGET", keys.task(child), "after") for child in children])
    sums = itertools.accumulate(count_of(count) for count in counts)
    read = [child for child, total in zip(children, sums, strict=True) if total <= MOST_CONDITIONS]
    return read or list(children[:1])


class _Range(NamedTuple):
    """Which dependents are to be told, by what the parent was when it was read first. most: how
    many at once.
    """

    name: str
    parent: Parent
    status: str | None
    skip: int | None
    most: int

    @property
    def command(self) -> Command:
        # Those at the end were told before that it has ended badly. They are told again only if
        # that was not its last word.
        is_whole = self.skip is not None or self.status in ("complete", None)
        last, skip = "+inf" if is_whole else "(+inf", self.skip or 0
        return ("ZRANGEBYSCORE", self.parent.dependents, "-inf", last, "LIMIT", skip, self.most)


def _settle(
    redis: Redis, view: _Range, children: Sequence[str], now: float, with_result: bool
) -> Settled | None:
    """Return what was done; None: the dependents have changed since they were read."""
    parent, first = view.parent, len(view.parent.reads)

    def decide(*replies: Any) -> Verdict[Settled | str]:
        standing, (again, size, *read) = replies[:first], replies[first:]
        status = parent.status(standing)
        if status is not None and status not in FINISHED:
            commands = parent.when_it_runs()
            return Change(commands, Settled()) if commands else Answer(Settled())
        if status != view.status or again != children:
            return Answer("changed")
        packed = inputs.pack(*read.pop(0)) if with_result else None
        known = [
            _Child(child, TaskFields._make(fields), as_hash(conditions))
            for child, fields, conditions in zip(
                children, read[: len(children)], read[len(children) :], strict=True
            )
        ]
        wants_result = status == "complete" and any(map(_wants_result, known))
        if parent.has_result and packed is None and wants_result:
            return Answer("result")
        ended = _Ended(parent, status, packed)
        fitting = _as_many_as_fit(known, ended)
        commands, settled = _tell(redis, ended, fitting, now)
        is_over = len(known) < view.most and len(fitting) == len(known)
        # Those that were skipped may have to be told.
        is_last = is_over and not view.skip
        commands += parent.when_told(standing, size - settled.told, is_last, now)
        return Change(commands, settled._replace(is_over=is_over)) if commands else Answer(settled)

    done = transact(redis, view.name, _settle_look(view, children, with_result), decide)
    if done == "result":
        return _settle(redis, view, children, now, with_result=True)
    return done if isinstance(done, Settled) else None


def _settle_look(view: _Range, children: Sequence[str], with_result: bool) -> AnyLook:
    parent = view.parent
    reads: list[Command] = [*parent.reads, view.command, ("ZCARD", parent.dependents)]
    if with_result:
        reads += [("HMGET", keys.task(parent.name), "result", "result_encoding")]
    looks = [child_look(child) for child in children]
    watch = [*parent.watch, parent.dependents]
    for watched in zip(*[look.watch for look in looks], strict=True):
        watch += watched
    for kind in zip(*[look.reads for look in looks], strict=True):
        reads += kind
    return Look(watch, reads, parent.name)


def _wants_result(child: _Child) -> bool:
    return (child.fields.status in OPEN) and child.fields.inputs is not None


def _as_many_as_fit(children: Sequence[_Child], ended: _Ended) -> Sequence[_Child]:
    """Return as many of the dependents as one transaction tells."""
    most = 0 if ended.result is None else max(MAX_COPIED // (inputs.size_of(ended.result) + 1), 1)
    copies = revivals = 0
    for place, child in enumerate(children):
        copies += bool(most) and _wants_result(child)
        revivals += _is_revived(child, ended)
        if copies > most or revivals > MAX_REVIVED:
            return children[:place]
    return children


def _tell(
    redis: Redis, ended: _Ended, children: Sequence[_Child], now: float
) -> tuple[list[Command], Settled]:
    """Return the commands that tell dependents how their parent has ended, and what they do."""
    parent = ended.parent.name
    marks: list[tuple[_Child, str]] = []
    told: list[str] = []
    held: list[str] = []
    freed: dict[str, TaskFields] = {}
    cancelled: dict[str, TaskFields] = {}
    revived: dict[str, TaskFields] = {}
    for child in children:
        condition = child.conditions.get(parent)
        if condition is None or is_marked(condition) or child.fields.status not in OPEN:
            told.append(child.task)
            continue
        known = mark(condition, ended.status)
        if known is None:
            held.append(child.task)
        else:
            told.append(child.task)
            marks.append((child, known))
        if _is_freed(child, parent, known):
            freed[child.task] = child.fields
        elif _is_cancelled(child.fields, known):
            cancelled[child.task] = child.fields
        elif _is_revived(child, ended):
            revived[child.task] = child.fields
    commands = _note(ended, marks)
    commands += let_go(redis, freed, parent, now)
    commands += cancel_children(redis, cancelled, parent, ended.status, now)
    commands += revive(redis, revived, parent, now)
    dependents = ended.parent.dependents
    if told:
        commands += [("ZREM", dependents, *told)]
    if held:
        commands += [("ZADD", dependents, "XX", *[w for task in held for w in ("+inf", task)])]
    ended_too = [task for task, fields in cancelled.items() if fields.dependents is not None]
    counts = len(told), len(held), len(freed), len(cancelled), len(revived)
    again = tuple((fields.queue_name, task) for task, fields in revived.items())
    return commands, Settled(*counts, ended=tuple(ended_too), to_recheck=again)


def _note(ended: _Ended, marks: Sequence[tuple[_Child, str]]) -> list[Command]:
    """Return the commands that mark the conditions of dependents, and copy the result for them."""
    parent, result = ended.parent.name, ended.result
    commands: list[Command] = [
        ("HSET", keys.conditions(child.task), parent, known) for child, known in marks
    ]
    if result is None:
        return commands
    sizes: dict[str, int] = {}
    for child, known in marks:
        if known == "+complete" and _wants_result(child):
            size = count_of(child.fields.inputs) + inputs.size_of(result)
            copied, sizes[child.task] = result, size
            if size > MAX_INPUTS:
                copied, sizes[child.task] = inputs.LEFT, count_of(child.fields.inputs)
            commands += [("HSET", keys.inputs(child.task), parent, copied)]
    return commands + [("HSET", keys.task(task), "inputs", size) for task, size in sizes.items()]


def _is_freed(child: _Child, parent: str, known: str | None) -> bool:
    """Tell whether a dependent has nothing left to wait for. known: the mark of its condition."""
    return (
        child.fields.status == "blocked"
        and known is not None
        and are_met({**child.conditions, parent: known})
    )


def _is_revived(child: _Child, ended: _Ended) -> bool:
    """Tell whether a dependent that was cancelled because of its parent waits again."""
    parent = ended.parent.name
    is_waited_for = child.conditions.get(parent, "+") in (OK, ANY)
    return ended.status == "complete" and child.fields.broken_by == parent and is_waited_for


def _is_cancelled(fields: TaskFields, known: str | None) -> bool:
    """Tell whether a dependent is cancelled, because a condition cannot be met.

    known: the mark of the condition; None: the parent has ended in another way than wanted.
    """
    if fields.status != "blocked":
        return False
    is_met = known is not None and known.startswith("+")
    return known == "-complete" or (fields.broken == CANCEL and not is_met)


def recheck(redis: Redis, queue: str, task: str, now: float) -> str:
    """Compare the conditions of a blocked task with the tasks that they name. Return the status
    that it has then; `stale`: it is not blocked, and its entry in this queue was dropped.

    It decides about tasks that wait again, and finds what 1.0.0 or a person has done: `settle` does
    all else.
    """
    (reply,) = redis.read(("HGETALL", keys.conditions(task)))
    parents = unmet(as_hash(reply))
    if len(parents) > AT_ONCE:
        parents = random.sample(parents, AT_ONCE)

    def decide(reply: list[str | None], held: list[str], size: int, *replies: Any) -> Verdict[str]:
        fields, conditions = TaskFields._make(reply), as_hash(held)
        if (fields.status, fields.queue) != ("blocked", queue):
            return Change([("ZREM", keys.blocked(queue), task)], "stale")
        states = {
            parent: state
            for parent, state in _states(parents, replies).items()
            if parent in conditions and not is_marked(conditions[parent])
        }
        known = _marks(conditions, states, wants_results=fields.inputs is not None)
        after_all = {**conditions, **known}
        commands: list[Command] = [
            *[("HSET", keys.conditions(task), parent, found) for parent, found in known.items()],
            *_links(task, states, known, now),
        ]
        if after_all and are_met(after_all):
            freeing, status = let_one_go(redis, task, fields, "", now)
            return Change([*commands, *freeing], status)
        broken = _broken(fields, after_all, states)
        if broken is not None:
            ended = cancel_children(redis, {task: fields}, *broken, now)
            return Change([*commands, *ended], "cancelled")
        again = now + max(LOOK_EVERY, size / LOOKS_PER_SECOND)
        return Change([*commands, ("ZADD", keys.blocked(queue), again, task)], "blocked")

    return transact(redis, "recheck", _recheck_look(queue, task, parents), decide)


class _State(NamedTuple):
    """A parent as `recheck` has read it. score: of the task among its dependents.

    dependents: its field; a group needs none.
    """

    status: str | None
    dependents: str | None
    score: str | None


def _recheck_look(queue: str, task: str, parents: Sequence[str]) -> AnyLook:
    own, tasks, groups = child_look(task), tasks_among(parents), groups_among(parents)
    reads: list[Command] = [*own.reads, ("ZCARD", keys.blocked(queue))]
    reads += [("HMGET", keys.task(each), "status", "dependents") for each in tasks]
    reads += [("ZSCORE", keys.dependents(each), task) for each in tasks]
    reads += standing_of(groups)
    reads += [("ZSCORE", keys.awaiting(group), task) for group in groups]
    return Look([*own.watch, *map(keys.task, tasks), *watched_of(groups)], reads, task)


def _states(parents: Sequence[str], replies: Sequence[Any]) -> dict[str, _State]:
    """Return each parent as the replies say after the first three."""
    tasks, groups = tasks_among(parents), groups_among(parents)
    first, second = len(tasks), 2 * len(tasks)
    third = second + 3 * len(groups)
    states = {
        task: _State(fields[0], fields[1], score)
        for task, fields, score in zip(tasks, replies[:first], replies[first:second], strict=True)
    }
    statuses = statuses_of(groups, replies[second:third])
    rows = zip(statuses.items(), replies[third:], strict=True)
    return states | {name: _State(status, "1", score) for (name, status), score in rows}


def _marks(
    conditions: Mapping[str, str], states: Mapping[str, _State], wants_results: bool
) -> dict[str, str]:
    """Return the marks of those conditions that are decided. `settle` marks those of a task that
    gets the results: it copies them.
    """
    found = {parent: mark(conditions[parent], state.status) for parent, state in states.items()}
    return {
        parent: known
        for parent, known in found.items()
        if known is not None
        and not (wants_results and known == "+complete" and group_of(parent) is None)
    }


def _links(
    task: str, states: Mapping[str, _State], known: Mapping[str, str], now: float
) -> list[Command]:
    """Return the commands by which parents know that a task waits for them, and by which `settle`
    finds those that have more to tell. known: the parents for which it does not wait any more.
    """
    unlinked = [
        parent
        for parent, state in states.items()
        if parent not in known
        and state.status is not None
        and None in (state.dependents, state.score)
    ]
    unsettled = [
        parent
        for parent, state in states.items()
        if (parent in known and state.score is not None)
        or (parent in unlinked and state.status in FINISHED)
        or (parent not in known and state.status == "complete")
    ]
    return [
        *[("HSET", keys.task(each), "dependents", 1) for each in tasks_among(unlinked)],
        *[("ZADD", keys.dependents(each), "NX", now, task) for each in tasks_among(unlinked)],
        *[("ZADD", keys.awaiting(each), "NX", now, task) for each in groups_among(unlinked)],
        *[("ZADD", keys.UNSETTLED_TASKS, now, each) for each in tasks_among(unsettled)],
        *[("ZADD", keys.GROUPS, 0, each) for each in groups_among(unsettled)],
    ]


def _broken(
    fields: TaskFields, conditions: Mapping[str, str], states: Mapping[str, _State]
) -> tuple[str, str | None] | None:
    """Return the parent for which a blocked task is to be cancelled, and its status, if there is
    one.
    """
    for parent, condition in conditions.items():
        if condition == "-complete":
            return parent, "complete"
        if fields.broken != CANCEL:
            continue
        if condition.startswith("-"):
            return parent, None
        status = states[parent].status if parent in states else None
        if not is_marked(condition) and status in FINISHED and status != "complete":
            return parent, status
    return None


def unblock(
    redis: Redis, queue: str, task: str, now: float, by: str, parents: Collection[str] | None = None
) -> str:
    """Drop conditions of a blocked task, as a person wants it. Return the status that it has then.

    by: the person. parents: those on these tasks; None: all of them.
    Raises WrongState, WrongQueue; WrongGroup for a task of a workflow whose tasks are not all
    there, unless it still waits for the rest of them.
    """
    (group,) = redis.read(("HGET", keys.task(task), "group"))
    groups, own_gate = ([] if group is None else [group]), condition_on(gate_of(group or ""))

    def decide(
        reply: list[str | None], held: list[str], *records: list[str | None]
    ) -> Verdict[str | None]:
        fields, conditions = TaskFields._make(reply), as_hash(held)
        if fields.status is not None and fields.queue != queue:
            raise WrongQueue(task, queue)
        meant = {
            each: kind for each, kind in conditions.items() if parents is None or each in parents
        }
        if fields.status != "blocked":
            # Our own success, or that of another person.
            if fields.status is not None and DROPPED in meant.values():
                return Answer(fields.status)
            raise WrongState(task, fields.status, "unblock")
        if fields.group != group:
            return Answer(None)  # it was made anew meanwhile
        dropped = {each: DROPPED for each, kind in meant.items() if not kind.startswith("+")}
        left = {**conditions, **dropped}
        is_free = are_met(left)
        if not dropped and not is_free:
            return Answer("blocked")
        if left.get(own_gate, DROPPED).startswith("+"):
            for state, gate in records:
                require_whole(group or "", state, gate, dropped)
        commands = _dropping(task, dropped, now)
        if not is_free:
            event = Event("dropped", by, now, {"from": ", ".join(dropped)})
            home = fields.queue_name
            return Change([*commands, *record_event(redis, home, task, fields, event)], "blocked")
        freeing, status = let_one_go(redis, task, fields, by, now)
        return Change([*commands, *freeing], status)

    own = child_look(task)
    look: AnyLook = Look(
        [*own.watch, *map(keys.group, groups)],
        [*own.reads, *[("HMGET", keys.group(each), "state", "gate") for each in groups]],
        task,
    )
    done = transact(redis, "unblock", look, decide)
    return unblock(redis, queue, task, now, by, parents) if done is None else done


def _dropping(task: str, dropped: Mapping[str, str], now: float) -> list[Command]:
    tasks, groups = tasks_among(dropped), groups_among(dropped)
    return [
        *[("HSET", keys.conditions(task), parent, found) for parent, found in dropped.items()],
        ("HSET", keys.task(task), "updated", now),
        *[("ZREM", keys.dependents(each), task) for each in tasks],
        # If they have ended, `settle` sees whether others wait for them.
        *[("ZADD", keys.UNSETTLED_TASKS, now, each) for each in tasks],
        *[("ZREM", keys.awaiting(each), task) for each in groups],
        *[("ZADD", keys.GROUPS, 0, each) for each in groups],
    ]
