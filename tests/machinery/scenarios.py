"""The scenarios that the explorer goes through: ours, and those in which 1.0.0 is known to fail."""

from __future__ import annotations

import functools
import json
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import actors
import group_actors
import legacy_actors
from failover_scenarios import FAILOVERS
from ground import Program, Scenario, by
from group_actors import WHOLE
from legacy_logic import LegacyQueue
from oracle import State
from schedule_scenarios import SCHEDULES
from stepper import Fault
from transactions import protocol
from world import ANOTHER, QUEUE, World, join, make_wait, put_in_line, start_one, take_one

from blueque.connection.redis import Redis
from blueque.model import keys
from blueque.model.group_terms import Terms
from blueque.model.ids import ids_of_group_keys
from blueque.model.new import spawned_id
from blueque.model.states import Place
from blueque.model.units import Keep
from blueque.producer.keyed_groups import open_keyed
from blueque.protocol.fields import IDENTITY

RETRY = '{"max":1,"backoff":0}'
LOCK = "lock:x=1"
LONG_AGO, NEXT_CENTURY, AFTER_IT = 2.0, 5e9, 6e9
LATER = '{"max":1,"backoff":3600}'
DEATH = frozenset({Fault.DIE_BEFORE, Fault.DIE_AFTER})
NETWORK = frozenset({Fault.LOSE, Fault.REFUSE, Fault.DELAY})
DOUBLE = frozenset({"duplicates"})


def reporting(world: World, redis: Redis) -> None:
    """Be a listener whose task has just ended: it began before anybody else moved."""
    task = world.given["task"]
    actors.report(world, redis, task, actors.execute(world, task))


def beginning(world: World, redis: Redis) -> None:
    """Be a listener that was killed when its task was about to end."""
    actors.execute(world, world.given["task"])


def starting(world: World, redis: Redis) -> None:
    """Be a listener that has just reserved its task."""
    actors.run(world, redis, world.given["task"])


# What there is at the beginning


def nothing(*nodes: str) -> Callable[[World], None]:
    return lambda world: join(world, *nodes)


def one_task(*nodes: str, **fields: Any) -> Callable[[World], None]:
    def setup(world: World) -> None:
        join(world, *nodes)
        put_in_line(world, "t-1", **fields)

    return setup


def popped(*nodes: str, **fields: str) -> Callable[[World], None]:
    def setup(world: World) -> None:
        one_task(*nodes, **fields)(world)
        protocol.pop(world.redis, QUEUE, nodes[0], world.given[nodes[0]])

    return setup


def reserved(*nodes: str, **fields: str) -> Callable[[World], None]:
    def setup(world: World) -> None:
        one_task(*nodes, **fields)(world)
        world.given["task"] = take_one(world, nodes[0])

    return setup


def started(*nodes: str, **fields: str) -> Callable[[World], None]:
    def setup(world: World) -> None:
        one_task(*nodes, **fields)(world)
        start_one(world, nodes[0])

    return setup


def lost(*nodes: str, **fields: str) -> Callable[[World], None]:
    def setup(world: World) -> None:
        started(*nodes, **fields)(world)
        actors.recover(world, world.redis, nodes[0])

    return setup


def _two_tasks(world: World) -> None:
    one_task("a_1")(world)
    put_in_line(world, "t-2", parameters="bad")


def _double_entry(world: World) -> None:
    one_task("a_1", "b_1")(world)
    world.redis.read(("LPUSH", keys.pending(QUEUE), "t-1"))


def _due(world: World) -> None:
    """One task that is due, and one that was deleted before."""
    join(world, "a_1")
    for task in ("t-1", "t-2"):
        protocol.schedule(world.redis, QUEUE, task, "ok", 1.0, time.time())
    world.redis.read(("DEL", keys.task("t-2")), ("ZREM", keys.tasks(QUEUE), "t-2"))


def _in_an_hour(world: World) -> None:
    join(world, "a_1")
    protocol.schedule(world.redis, QUEUE, "t-1", "ok", time.time() + 3600, time.time())


def _due_once(world: World) -> None:
    join(world, "a_1")
    protocol.schedule(world.redis, QUEUE, "t-1", "ok", 1.0, time.time())


def _legacy_reserved(world: World) -> None:
    """A task that a listener of 1.0.0 has reserved, and not started."""
    one_task("b_1")(world)
    LegacyQueue(world.redis, QUEUE).add_listener("old_1")
    LegacyQueue(world.redis, QUEUE).dequeue("old_1", time.time())


def _due_and_bad(world: World) -> None:
    """A task that is due, and will fail, and is then to wait for an hour."""
    join(world, "a_1")
    protocol.schedule(world.redis, QUEUE, "t-1", "bad", 1.0, time.time(), {"retry": LATER})


def _lost_twice(world: World) -> None:
    """A task whose first attempt is given up, and its second as well."""
    lost("a_1", "b_1")(world)
    first = world.given["task"]
    actors.requeue(world, world.redis, "t-1")
    start_one(world, "b_1")
    actors.recover(world, world.redis, "b_1")
    world.given["task"] = first


def _locked(world: World) -> None:
    """Two tasks with the same lock, of which nobody is told any more."""
    join(world, "a_1", "b_1")
    put_in_line(world, "t-1", "t-2", needs=LOCK)
    world.redis.read(("DEL", keys.wake(QUEUE)))


def _lock_kept(world: World) -> None:
    """A task in line holds a lock, as 1.0.0 has left it that ended an attempt of ours."""
    _locked(world)
    world.redis.read(("SADD", keys.lock("x"), "t-1"))


def _limited(world: World) -> None:
    """Two tasks in a queue of which only one may run."""
    join(world, "a_1", "b_1")
    put_in_line(world, "t-1", "t-2")
    protocol.set_settings(world.redis, QUEUE, {"max_running": "1"}, 1.0)
    world.redis.read(("DEL", keys.wake(QUEUE)))


def _locked_and_started(world: World) -> None:
    """A started task that holds a lock, for which another one waits."""
    started("a_1", "b_1", retry=RETRY, needs=LOCK)(world)
    put_in_line(world, "t-2", needs=LOCK)


def _limited_and_started(world: World) -> None:
    """A started task, and one that waits, in a queue of which only one may run."""
    join(world, "a_1", "b_1")
    protocol.set_settings(world.redis, QUEUE, {"max_running": "1"}, 1.0)
    put_in_line(world, "t-1", retry=RETRY)
    start_one(world, "a_1")
    put_in_line(world, "t-2")


def _two_lines(world: World) -> None:
    one_task("a_1", needs=LOCK)(world)
    put_in_line(world, "t-2")


def _three_lines(world: World) -> None:
    """Three tasks that wait in three lines."""
    _two_lines(world)
    put_in_line(world, "t-3", priority=5)


def _due_in_two_lines(world: World) -> None:
    join(world, "a_1")
    for task, options in (
        ("t-1", {"priority": 3, "needs": LOCK}),
        ("t-2", {}),
        ("t-3", {"priority": 3, "needs": LOCK}),
    ):
        protocol.schedule(world.redis, QUEUE, task, "ok", 1.0, time.time(), options)


def cancelled(*tasks: str) -> Callable[[World], None]:
    """Some tasks that were cancelled before they ran, the first of them first."""

    def setup(world: World) -> None:
        join(world, "a_1")
        put_in_line(world, *tasks)
        for task in tasks:
            protocol.cancel(world.redis, QUEUE, task, "ann", None, time.time())

    return setup


def parent(
    *nodes: str,
    stage: str,
    kind: str = "ok",
    children: tuple[str, ...] = ("c-1",),
    parameters: str = "ok",
    **options: Any,
) -> Callable[[World], None]:
    """A task that is pending, started, lost or cancelled, and others that wait for it."""

    def setup(world: World) -> None:
        join(world, *nodes)
        put_in_line(world, "t-1", parameters=parameters)
        for child in children:
            make_wait(world, world.redis, child, {"t-1": kind}, **options)
        if stage == "cancelled":
            protocol.cancel(world.redis, QUEUE, "t-1", "ann", None, time.time())
        elif stage != "pending":
            start_one(world, nodes[0])
        if stage == "lost":
            actors.recover(world, world.redis, nodes[0])

    return setup


def _two_parents(world: World) -> None:
    """Two started tasks, and one that waits for both."""
    join(world, "a_1", "b_1")
    put_in_line(world, "t-1", "t-2")
    make_wait(world, world.redis, "c-1", {"t-1": "ok", "t-2": "ok"}, broken="cancel")
    for node, name in (("a_1", "first"), ("b_1", "second")):
        world.given[name] = start_one(world, node)


def _broken_by_the_lost(world: World) -> None:
    """A task that was cancelled because the one for which it waited was lost."""
    parent("a_1", stage="lost", broken="cancel")(world)
    actors.tell(world, world.redis, "t-1")


def _rolled_back(world: World) -> None:
    """A task that runs, and of which Redis has forgotten that it need not wait for another."""
    parent("a_1", stage="cancelled", kind="any")(world)
    actors.tell(world, world.redis, "t-1")
    task = start_one(world, "a_1")
    world.redis.read(
        ("DEL", keys.reserved(QUEUE, "a_1"), keys.started(QUEUE), keys.history("c-1")),
        ("HDEL", keys.task("c-1"), *IDENTITY, "attempt", "events"),
        ("HSET", keys.task("c-1"), "status", "blocked"),
        ("HSET", keys.conditions("c-1"), "t-1", "any"),
        ("ZADD", keys.blocked(QUEUE), 0, task.id),
    )


def _unknown_dependent(world: World) -> None:
    """A started task that does not know any more that another waits for it."""
    parent("a_1", stage="started")(world)
    world.redis.read(
        ("DEL", keys.dependents("t-1")),
        ("HDEL", keys.task("t-1"), "dependents"),
        ("ZADD", keys.blocked(QUEUE), 0, "c-1"),
    )


def group(
    *nodes: str,
    members: tuple[str, ...] = ("t-1", "t-2"),
    ended: tuple[str, ...] = (),
    kind: str = "ok",
    is_closed: bool = True,
    child: str = "c-1",
    **fields: str,
) -> Callable[[World], None]:
    """A group, of which each node has started one member, and a task that waits for it.

    ended: members that were cancelled before.
    """

    def setup(world: World) -> None:
        group_actors.open_group(world, *nodes, members=members, **fields)
        for task in ended:
            protocol.cancel(world.redis, QUEUE, task, "ann", None, time.time())
        if child:
            make_wait(world, world.redis, child, {WHOLE: kind})
        if is_closed:
            group_actors.close_group(world)
        group_actors.start_all(world, *nodes)

    return setup


def _group_opened(world: World) -> None:
    """An open group without members, and a listener."""
    group_actors.open_group(world, "a_1")


def _to_be_noted(world: World) -> None:
    """A closed group whose last member was cancelled, which nobody has noted."""
    group("a_1", members=("t-1",), child="")(world)
    world.redis.read(("DEL", keys.reserved(QUEUE, "a_1"), keys.started(QUEUE)))
    world.redis.read(("HSET", keys.task("t-1"), "status", "pending"))
    world.redis.read(("HDEL", keys.task("t-1"), *IDENTITY, "started"))
    protocol.cancel(world.redis, QUEUE, "t-1", "ann", None, time.time())


def spawned_before(name: str, **fields: str) -> Callable[[World], None]:
    """A task whose first attempt has made another one, which was cancelled; the second attempt
    runs.
    """

    def setup(world: World) -> None:
        started("a_1", "b_1", **fields)(world)
        actors.spawn(world, world.redis, world.given["task"], name)
        protocol.cancel(world.redis, QUEUE, spawned_id("t-1", name), "ann", None, time.time())
        actors.recover(world, world.redis, "a_1")
        actors.requeue(world, world.redis, "t-1")
        start_one(world, "b_1")

    return setup


def _two_started(world: World) -> None:
    join(world, "a_1", "b_1")
    put_in_line(world, "t-1", "t-2")
    group_actors.start_all(world, "a_1", "b_1")


def _three_wait(world: World) -> None:
    """A closed group whose last member has ended, for which three tasks wait."""
    group(members=("t-1",), kind="any")(world)
    for child in ("c-2", "c-3"):
        make_wait(world, world.redis, child, {WHOLE: "any"})
    protocol.cancel(world.redis, QUEUE, "t-1", "ann", None, time.time())


def _awaited_group(world: World) -> None:
    """A group that a call with keys has just opened, and a task that waits for all of it."""
    join(world, "a_1")
    open_keyed(world.redis, QUEUE, group_actors.GROUP, Terms())
    make_wait(world, world.redis, "c-1", {WHOLE: "ok"})


def _ended_group(world: World) -> None:
    """A group that a person has closed, and whose one member has run and was deleted."""
    join(world, "a_1")
    protocol.open_group(world.redis, group_actors.GROUP, group_actors.KEEP, time.time())
    group_actors.put_members_and_close(world, world.redis, "k1")
    group_actors.work_and_delete_members(world, world.redis, "a_1")


def _waiting_group(world: World) -> None:
    """The same, and all its members are to wait for a task that comes after them in line."""
    join(world, "a_1")
    put_in_line(world, "t-1", priority=-5)
    open_keyed(world.redis, QUEUE, group_actors.GROUP, Terms({"t-1": "ok"}))
    make_wait(world, world.redis, "c-1", {WHOLE: "ok"})


def _expired(world: World) -> None:
    """A group whose record has expired, and the rest not yet."""
    group(members=("t-1",), ended=("t-1",), child="")(world)
    world.redis.read(
        ("DEL", keys.group("g")), ("ZADD", keys.GROUPS, 0, "g"), ("HDEL", keys.task("t-1"), "group")
    )


def _unknown_to_its_group(world: World) -> None:
    """A closed group that does not know any more that a task waits for it."""
    group("a_1", members=("t-1",))(world)
    world.redis.read(("DEL", keys.awaiting("g")), ("ZADD", keys.blocked(QUEUE), 0, "c-1"))


def _struck(world: World) -> None:
    reserved("a_1", "b_1")(world)
    LegacyQueue(world.redis, QUEUE).remove_listener("a_1")


# What must be true besides


def one_wins(world: World, state: State) -> str | None:
    """A beat that was taken prevents the fence, and a fence the beat."""
    return (
        None
        if len(world.ledger.notes) == 1
        else f"of beat and fence, not one was done but: {world.ledger.notes}"
    )


def is_cancelled(world: World, state: State, task_id: str = "t-1") -> str | None:
    """What a person was told is so: cancelled, or to end without another start."""
    if not world.ledger.notes:
        return None
    told, attempt = world.ledger.notes
    task = state.tasks[task_id]
    if told == "cancelled" and task["status"] != "cancelled":
        return f"a person was told that it is cancelled, and it is {task['status']}"
    return (
        "it was to be cancelled, and was started again"
        if int(task.get("attempt", 0)) != (attempt or 0)
        else None
    )


def is_given_back(world: World, state: State) -> str | None:
    """What was interrupted before its listener looked was given back, and has run again."""
    notes, task = world.ledger.notes, state.tasks["t-1"]
    if "given back" in notes and (task["status"], task.get("attempt")) != ("complete", "2"):
        return f"it was given back, and is {task['status']} at attempt {task.get('attempt')}"
    return "its listener did not know that it was meant" if "not obeyed" in notes else None


def is_expired_or_run(world: World, state: State) -> str | None:
    """A task that must start by a time has started, or was cancelled and never ran."""
    task = state.tasks["t-1"]
    if task["status"] == "cancelled":
        return "it has expired though it had started" if "attempt" in task else None
    is_late = float(task["start_before"]) < LONG_AGO
    return f"it was too late, and is {task['status']}" if is_late else None


def may_start(world: World, state: State) -> str | None:
    """A listener that registered after the other was fenced keeps what it reserves."""
    return (
        f"a reservation was taken from {world.ledger.refused}, who live"
        if world.ledger.refused
        else None
    )


def keeps_its_task(world: World, state: State) -> str | None:
    """A listener that has woken up, and beaten, and seen that its task is still its own, reports
    its end.
    """
    return "; ".join(world.ledger.notes) or None


def is_new_once(world: World, state: State) -> str | None:
    """Of those who made the same task one has been told that it is new; nobody, if that one has
    died.
    """
    told = Counter(world.ledger.notes)
    if {"producer", "other"} <= {*world.alive} and told != dict.fromkeys(state.tasks, 1):
        return f"two tasks are new, and told as new were {told}"
    return next(
        (f"{task} was new {times} times" for task, times in told.items() if times > 1), None
    )


def waits_for_its_time(world: World, state: State) -> str | None:
    """The next attempt does not start before it is due."""
    return (
        "it was started before it was due" if len(world.ledger.starts.get("t-1", [])) > 1 else None
    )


def stays_in_line(world: World, state: State) -> str | None:
    """When a pause has been answered, nothing is taken any more."""
    left = sum(len(line) for line in state.lines.values())
    said = world.ledger.notes
    return (
        f"{said[0]} were in line when it was paused, and {left} are"
        if said and said[0] != left
        else None
    )


def runs_only_ours(world: World, state: State) -> str | None:
    """A listener of 1.0.0 never gets a task that needs something."""
    needy = [
        task
        for task, its in state.tasks.items()
        if "needs" in its and "" in world.ledger.starts.get(task, ())
    ]
    return f"1.0.0 has run {needy}" if needy else None


def is_member_once(
    world: World, state: State, names: tuple[bytes, ...] = (b"k1", b"k2")
) -> str | None:
    """Each key has made one task, which has run once, and is a member, whatever became of it."""
    ran = world.ledger.starts
    if any(len(tokens) != 1 for tokens in ran.values()):
        return f"a key has made a task again: {ran}"
    there, members = {*state.tasks} | world.ledger.deleted, state.groups["g"].members
    if there - {*members} or len({*members}) != len(members):
        return f"the tasks {there} are there or were, and the members are {members}"
    wanted = {one.decode() for one in ids_of_group_keys(QUEUE, "g", [*names])}
    if {"producer", "other"} <= {*world.alive} and not world.ledger.notes and there != wanted:
        return f"of {len(names)} keys {there} have come"
    return None


def is_archived_once(world: World, state: State) -> str | None:
    """Each task is in the archive once in the same state, or still there; one that was put in line
    again has run.
    """
    rows = [row for rows in world.ledger.published.values() for row in rows]
    if len({*rows}) < len(rows):
        return f"the archive has {rows}"
    lost = {"t-1", "t-2"} - {row.task for row in rows} - state.tasks.keys()
    if world.ledger.consents["t-1"] and state.tasks.get("t-1", {}).get("status") != "complete":
        lost.add("t-1")
    if world.redis.read(("EXISTS", keys.archive(QUEUE)))[0]:
        return "a batch is not finished"
    return f"{sorted(lost)} are lost" if lost else None


def is_kept(world: World, state: State) -> str | None:
    """The task that was put in line again is there, and has run."""
    has_run = state.tasks.get("t-1", {}).get("status") == "complete"
    return (
        "a task that was put in line again is gone"
        if world.ledger.consents["t-1"] and not has_run
        else None
    )


def is_newest_kept(world: World, state: State) -> str | None:
    """Of those that have ended the last one is there, and none besides if somebody has pruned to
    the end.
    """
    there = sorted(state.tasks)
    is_right = there == ["t-3"] if set(world.alive) & {"r", "s"} else "t-3" in there
    return None if is_right else f"of three, of which one is to stay, {there} are there"


def is_purged_or_run(world: World, state: State) -> str | None:
    """A task that is gone has not run, and one that has run is there."""
    gone = sorted({*world.ledger.starts} - {*state.tasks})
    return f"{gone} have run, and are gone" if gone else None


def is_known(world: World, state: State) -> str | None:
    """A queue that has a task, or a listener that lives, is among all queues."""
    name, listeners = world.redis.read(
        ("ZSCORE", keys.QUEUES, QUEUE), ("SCARD", keys.listeners(QUEUE))
    )
    return (
        "the queue is in use, and nobody knows of it"
        if name is None and (state.tasks or listeners)
        else None
    )


def is_last_checkpoint(world: World, state: State) -> str | None:
    """What was recorded last is where the next attempt goes on; the first attempt says 1, and what
    comes after it 2.
    """
    (value,) = world.redis.read(("HGET", keys.checkpoint("t-1"), "value"))
    said = world.ledger.notes
    is_right = said == sorted(said) and (not said or value == said[-1])
    return None if is_right else f"the checkpoint is {value}, and recorded were {said}"


def has_each_note_once(world: World, state: State) -> str | None:
    """What a listener has recorded is in the history once, in that order, and counted."""
    history = [
        json.loads(text) for text in world.redis.read(("LRANGE", keys.history("t-1"), 0, -1))[0]
    ]
    noted = [event["text"] for event in history if event["event"] == "noted"]
    (count,) = world.redis.read(("HGET", keys.task("t-1"), "events"))
    is_right = noted == world.ledger.notes and int(count) == len(history)
    return None if is_right else f"{count} events, noted {noted}, told {world.ledger.notes}"


def is_woken(world: World, state: State) -> str | None:
    """What is in line, and what it waited for is free: somebody is told of it."""
    is_waiting = (
        any(state.lines.values()) and not any(state.rooms.values()) and not any(state.held.values())
    )
    return "there is work, and nobody is woken" if is_waiting and not state.is_awake else None


def all_is_woken(world: World, state: State) -> str | None:
    return is_woken(world, state) if set(world.alive) == {"a_1", "b_1"} else None


def begins_once(world: World, state: State) -> str | None:
    """No task that has waited for another has begun twice, whoever consents to it."""
    starts = world.ledger.starts
    wrong = {task: starts[task] for task in state.conditions if len(starts.get(task, ())) > 1}
    return f"of those that had to wait, some have begun twice: {wrong}" if wrong else None


def begins_or_is_broken(world: World, state: State) -> str | None:
    """And none is cancelled because of a task that is complete."""
    for task, its in state.tasks.items():
        culprit = its.get("broken_by", "")
        if its.get("status") == "cancelled" and state.end_of(culprit) == "complete":
            return f"task {task} is cancelled because of {culprit}, which is complete"
    return begins_once(world, state)


def has_run_once(world: World, state: State) -> str | None:
    """And each of them has begun."""
    waiting = sorted(state.conditions.keys() - world.ledger.starts.keys())
    return f"{waiting} have not begun" if waiting else begins_once(world, state)


def comes_after_its_group(world: World, state: State) -> str | None:
    """What waits for a group begins once, after both of its members, which begin once."""
    begun = [*world.ledger.starts]
    if len(begun) != 3 or begun[-1] != "c-1":
        return f"the task that waits for a group of two has begun as {begun}"
    return has_run_once(world, state)


def is_closed_again(world: World, state: State) -> str | None:
    """Who adds to a group closes it, or the same call made again does."""
    found = state.groups["g"].record["state"]
    if found != "ended":
        return f"the group is {found}"
    return is_member_once(world, state, (b"k2",))


def comes_between(world: World, state: State) -> str | None:
    """Both members begin once, after what they wait for, and before what waits for their group."""
    begun = [*world.ledger.starts]
    if len(begun) != 4 or (begun[0], begun[-1]) != ("t-1", "c-1"):
        return f"the two members of a group have begun as {begun}"
    return has_run_once(world, state)


def has_its_input(world: World, state: State) -> str | None:
    """What wants the result of another task has it."""
    result = state.tasks["t-1"].get("result")
    (copied,) = world.redis.read(("HGET", keys.inputs("c-1"), "t-1"))
    is_right = "c-1" not in state.tasks or result is None or copied == f"t{result}"
    return None if is_right else f"the result is {result}, and c-1 has got {copied}"


def is_broken(world: World, state: State) -> str | None:
    """What had to wait for a task that has failed is cancelled."""
    its = state.tasks.get("c-1", {"status": "cancelled"})
    return None if its["status"] == "cancelled" else f"c-1 is {its['status']}, not cancelled"


def is_told_right(world: World, state: State) -> str | None:
    """Who was told that a task did not wait any more has not let it go himself."""
    was_dropped = "+dropped" in state.conditions["c-1"].values()
    is_refused = world.ledger.notes == ["not blocked"]
    return "who has let it go was refused" if is_refused and was_dropped else None


def makes_each_once(world: World, state: State) -> str | None:
    """What a task makes is new once at most, and there if the task is complete."""
    told = Counter(note for note in world.ledger.notes if isinstance(note, str))
    if told.pop("stale", 0):
        return "an attempt that had lost its task has made others"
    twice = sorted(task for task, times in told.items() if times > 1)
    if twice:
        return f"{twice} were new more than once"
    return "; ".join(_missing(world, state)) or None


def _missing(world: World, state: State) -> list[str]:
    """Return what a complete task should have made with its end and has not."""
    its, made = state.tasks.get("t-1", {}), spawned_id("t-1", "next")
    is_there = made in state.tasks or made in world.ledger.deleted
    is_wanted = its.get("status") == "complete" and its.get("parameters") == "then"
    return [f"t-1 is complete, and {made} is missing"] if is_wanted and not is_there else []


def makes_none_again(world: World, state: State) -> str | None:
    """What an attempt has made before is not made again, although it was deleted since."""
    dropped = [note[1] for note in world.ledger.notes if note[0] == "dropped"]
    again = sorted({*dropped} & {*state.tasks})
    return f"{again} were made again" if again else None


def members_are_over(world: World, state: State) -> str | None:
    """All members of a cancelled group have ended, and so has the group."""
    if "cancelled" not in world.ledger.notes:
        return None
    ends = {task: its["status"] for task, its in state.tasks.items() if "group" in its}
    is_over = state.groups[group_actors.GROUP].record["state"] == "ended"
    is_over = is_over and {*ends.values()} <= {"complete", "failed", "cancelled"}
    return None if is_over else f"the group was cancelled, and of its members {ends}"


def members_are_cancelled(world: World, state: State) -> str | None:
    """And none has run: that was done before anybody took them."""
    ran = sorted(task for task, its in state.tasks.items() if its["status"] == "complete")
    ran = [task for task in ran if task.startswith("t-") and "p" in world.alive]
    return f"the group was cancelled, and {ran} have run" if ran else members_are_over(world, state)


def nobody_came_too_late(world: World, state: State) -> str | None:
    """The group is open until its producer closes it."""
    late = [note for note in world.ledger.notes if "too late" in note]
    return "; ".join(late) or begins_once(world, state)


def waits_for_what_is_there(world: World, state: State) -> str | None:
    """A group for which a task waits is not dropped."""
    is_dropped = "dropped" in world.ledger.notes and "no such task" not in world.ledger.notes
    its = state.tasks.get("c-1", {})
    return (
        "its group was dropped, and c-1 waits on"
        if is_dropped and its.get("status") == "blocked"
        else None
    )


def is_heard_before_it_goes(world: World, state: State) -> str | None:
    """A member that was complete is not taken for a bad one because it is gone."""
    is_bad = "t-1" not in state.tasks and bool(state.groups[group_actors.GROUP].bad)
    return "a complete member that is gone counts as bad" if is_bad else None


def has_run_once_if_made(world: World, state: State) -> str | None:
    """What was made has begun once: both for which it waits are complete."""
    is_over = all(state.tasks[task]["status"] == "complete" for task in ("t-1", "t-2"))
    return has_run_once(world, state) if is_over else begins_once(world, state)


def is_whole_or_nothing(world: World, state: State) -> str | None:
    """All tasks of a workflow have run, or all that are there were cancelled before they began."""
    tasks = group_actors.WORKFLOW
    ends = {task: its["status"] for task, its in state.tasks.items() if task in tasks}
    begun = [task for task in tasks if world.ledger.starts.get(task)]
    if len(ends) == len(begun) == len(tasks) and {*ends.values()} == {"complete"}:
        return None
    is_told = ("committed", True) in world.ledger.notes
    gates = [name for name in state.groups if name != group_actors.GROUP]
    if is_told or begun or {*ends.values()} != {"cancelled"} or gates:
        return f"of a workflow {begun} began, the ends are {ends}, and {gates} and {world.ledger.notes} are left"
    return None


def _fencing(world: World, redis: Redis) -> None:
    if actors.insist(lambda: protocol.fence(redis, QUEUE, "a_1", world.given["a_1"], "0", 9.25)):
        world.ledger.notes.append("fence")


a, b = by(actors.work, "a_1"), by(actors.work, "b_1")
once_a, once_b = by(actors.work, "a_1", most=1), by(actors.work, "b_1", most=1)
losing, fencing = by(actors.recover, "a_1"), by(actors.recover, "a_1", is_lost=False)
canceller, promoter = by(actors.cancel, "t-1"), actors.promote
freer = by(actors.align_task, "t-1", Place("lock", "", line="x"))
interrupter = by(actors.interrupt, "t-1")
ours = functools.partial(Scenario, retry_safe=frozenset())
again = functools.partial(Scenario, retry_safe=frozenset({"t-1"}))
mixed = functools.partial(Scenario, tolerated=frozenset({"legacy"}))
old = by(legacy_actors.work, "old_1")
tied = functools.partial(Scenario, drain=actors.drain_tied)
teller = by(actors.tell, "t-1")
ending_a = by(group_actors.report_and_settle, "a_1")
ending_b = by(group_actors.report_and_settle, "b_1")
child_is_cancelled = functools.partial(is_cancelled, task_id="c-1")

OURS = [
    # What producers and single listeners go through
    ours("one fault", _two_tasks, {"a_1": a}, [(0, 1)], (), is_thorough=True, untouched=["a_1"]),
    ours(
        "two faults",
        _two_tasks,
        {"a_1": a},
        [(0, 2)],
        faults=frozenset(Fault) - {Fault.DELAY},
        untouched=["a_1"],
    ),
    ours("patient listener", _two_tasks, {"a_1": a}, [(0, 1)], untouched=["a_1"], patient=["a_1"]),
    ours(
        "producer",
        nothing("a_1"),
        {"producer": by(actors.produce, 2), "a_1": a},
        [(1, 0), (0, 1)],
        untouched=["a_1"],
        longer=[(1, 1), (2, 2)],
    ),
    ours(
        "producer loses answers",
        nothing("a_1"),
        {"producer": by(actors.produce), "a_1": a},
        [(2, 1)],
        faulty=["producer"],
        faults=NETWORK,
        longer=[(2, 2)],
    ),
    ours(
        "producer loses answers, and its task is deleted",
        nothing("a_1"),
        {"producer": by(actors.produce), "a_1": a, "p": actors.delete_complete},
        [(1, 1)],
        faulty=["producer"],
        faults=NETWORK,
        tolerated=DOUBLE,
        untouched=["a_1", "p"],
        longer=[(2, 2)],
    ),
    ours(
        "producer of many",
        nothing("a_1"),
        {"producer": actors.produce_many, "a_1": a},
        [(1, 0), (0, 1)],
        untouched=["a_1"],
        longer=[(1, 1)],
    ),
    ours(
        "producer of many loses answers",
        nothing("a_1"),
        {"producer": actors.produce_many, "a_1": a},
        [(1, 1)],
        faulty=["producer"],
        faults=NETWORK,
        longer=[(2, 2)],
    ),
    ours(
        "two producers of the same keys",
        nothing("a_1"),
        {"producer": actors.produce_keyed, "other": actors.produce_keyed, "a_1": a},
        faulty=["producer"],
        check=is_new_once,
        patient=["producer", "other"],
        untouched=["a_1"],
        longer=[(2, 1)],
    ),
    # Tasks of a group by their keys: each once, whatever became of it meanwhile
    tied(
        "members put, and deleted meanwhile",
        _group_opened,
        {
            "producer": by(group_actors.put_members, "k1"),
            "other": by(group_actors.put_members, "k2", "k1"),
            "a_1": by(group_actors.work_and_delete_members, "a_1"),
        },
        faulty=["producer"],
        afterwards=is_member_once,
        patient=["producer", "other"],
        untouched=["a_1"],
    ),
    tied(
        "members put, and the group closed meanwhile",
        _group_opened,
        {
            "producer": by(group_actors.put_members, "k1", "k2"),
            "other": by(group_actors.put_members_and_close, "k1"),
            "a_1": by(group_actors.work_and_delete_members, "a_1"),
        },
        [(1, 0), (0, 1)],
        faulty=["producer"],
        afterwards=is_member_once,
        patient=["producer", "other"],
        untouched=["a_1"],
    ),
    tied(
        "call with keys that opens and closes its group",
        _awaited_group,
        {"driver": group_actors.drive_group, "a_1": by(actors.work, "a_1", most=2)},
        [(1, 0), (0, 1)],
        faulty=["driver"],
        drain=group_actors.finish_group,
        afterwards=comes_after_its_group,
    ),
    tied(
        "keys added to a group that has ended",
        _ended_group,
        {
            "producer": by(group_actors.append_members, "k1", "k2"),
            "other": by(group_actors.append_members, "k2"),
        },
        [(1, 0), (0, 1)],
        faulty=["producer"],
        drain=group_actors.finish_appending,
        afterwards=is_closed_again,
        patient=["producer", "other"],
    ),
    tied(
        "call with keys whose tasks wait for another one",
        _waiting_group,
        {"driver": group_actors.drive_group, "a_1": by(actors.work, "a_1", most=3)},
        [(1, 0), (0, 1)],
        faulty=["driver"],
        drain=group_actors.finish_group,
        afterwards=comes_between,
    ),
    ours(
        "archive",
        cancelled("t-1", "t-2"),
        {"one": by(actors.archive, "one")},
        [(0, 1)],
        afterwards=is_archived_once,
        drain=actors.drain_archive,
        is_thorough=True,
    ),
    ours(
        "two archivers",
        cancelled("t-1", "t-2"),
        {"one": by(actors.archive, "one"), "two": by(actors.archive, "two")},
        afterwards=is_archived_once,
        drain=actors.drain_archive,
        patient=["one", "two"],
    ),
    ours(
        "archive or run again",
        cancelled("t-1", "t-2"),
        {"one": by(actors.archive, "one"), "p": by(actors.requeue, "t-1")},
        [(2, 0), (1, 1)],
        afterwards=is_archived_once,
        drain=actors.drain_archive,
        faulty=["one"],
        patient=["one", "p"],
        longer=[(2, 1)],
    ),
    # Many that go at once
    ours(
        "prune or run again",
        cancelled("t-1", "t-2"),
        {"r": by(actors.prune, Keep(age=0.0)), "p": by(actors.requeue, "t-1")},
        [(2, 0), (1, 1)],
        afterwards=is_kept,
        faulty=["r"],
        patient=["r", "p"],
    ),
    ours(
        "two who prune",
        cancelled("t-1", "t-2", "t-3"),
        {"r": by(actors.prune, Keep(newest=1)), "s": by(actors.prune, Keep(newest=1))},
        afterwards=is_newest_kept,
        faulty=["r"],
    ),
    ours(
        "purge",
        _two_tasks,
        {"a_1": a, "p": by(actors.purge, "t-1", "t-2")},
        afterwards=is_purged_or_run,
        untouched=["a_1"],
    ),
    ours(
        "forgotten",
        lambda world: None,
        {"f": actors.forget, "producer": actors.produce},
        check=is_known,
        patient=["f", "producer"],
    ),
    ours(
        "forgotten, and a listener comes",
        lambda world: None,
        {"f": actors.forget, "b_1": b},
        check=is_known,
        patient=["f"],
    ),
    ours(
        "brought forward, and purged",
        _in_an_hour,
        {"p": by(actors.bring_forward, "t-1"), "q": by(actors.purge, "t-1"), "s": promoter},
        faulty=["p"],
        longer=[(2, 1)],
    ),
    ours(
        "two listeners",
        one_task("a_1", "b_1"),
        {"a_1": a, "b_1": b},
        faulty=["a_1"],
        untouched=["a_1", "b_1"],
        longer=[(2, 1)],
    ),
    ours(
        "double entry",
        _double_entry,
        {"a_1": a, "b_1": b},
        [(2, 0)],
        tolerated=DOUBLE,
        untouched=["a_1", "b_1"],
        longer=[(4, 1)],
    ),
    ours(
        "two schedulers",
        _due,
        {"s": promoter, "t": promoter, "a_1": a},
        [(1, 0), (0, 1)],
        faulty=["s"],
    ),
    # A listener that seems dead, and is
    *[
        ours(
            f"two recoverers, {name}",
            begin("a_1", "b_1"),
            {"r": losing, "s": losing, "b_1": b},
            [(1, 0), (0, 1)],
            faulty=["r"],
            untouched=["b_1"],
            longer=[(2, 2)],
        )
        for name, begin in (("popped", popped), ("reserved", reserved), ("started", started))
    ],
    ours(
        "recoverer and next life",
        reserved("a_1"),
        {"r": losing, "n": by(actors.come_back, "a_1")},
        [(2, 0)],
        check=may_start,
    ),
    ours(
        "two adopters",
        started("a_1", "c_1", "d_1"),
        {
            "c_1": by(actors.adopt, "c_1", "a_1"),
            "d_1": by(actors.adopt, "d_1", "a_1"),
            "a_1": beginning,
        },
        faulty=["c_1"],
        longer=[(2, 1)],
    ),
    ours(
        "judges",
        one_task("a_1"),
        {"a_1": a, "r": actors.judge, "s": actors.judge},
        [(1, 0)],
        longer=[(2, 0), (1, 1)],
    ),
    # A listener that seems dead, and is not
    ours(
        "wrongly fenced",
        one_task("a_1", "b_1"),
        {"a_1": a, "r": fencing, "b_1": b},
        faulty=["a_1"],
        untouched=["b_1"],
        longer=[(3, 0), (1, 1)],
    ),
    again(
        "wrongly lost",
        one_task("a_1", "b_1", retry=RETRY),
        {"a_1": a, "r": losing, "b_1": b},
        [(1, 0), (0, 1)],
        faulty=["r"],
        untouched=["b_1"],
        longer=[(2, 0), (1, 1), (3, 0)],
    ),
    again(
        "woken",
        started("a_1", "b_1", retry=RETRY),
        {"a_1": by(actors.obey, "a_1"), "r": losing, "b_1": b},
        [(1, 0), (0, 1)],
        faulty=["a_1"],
        check=keeps_its_task,
        untouched=["b_1"],
    ),
    ours(
        "same node id",
        one_task("a_1"),
        {"a_1": a, "n": by(actors.come_back, "a_1")},
        faulty=["a_1"],
    ),
    ours(
        "beat and fence",
        nothing("a_1"),
        {"a_1": by(actors.beat, "a_1"), "r": _fencing},
        [(3, 1)],
        faults=NETWORK,
        check=one_wins,
        longer=[(4, 2)],
    ),
    ours(
        "adoption",
        started("a_1", "c_1"),
        {"a_1": reporting, "c_1": by(actors.adopt, "c_1", "a_1"), "r": losing},
        [(1, 0), (0, 1)],
        longer=[(1, 1), (2, 1)],
    ),
    ours(
        "late result",
        lost("a_1", "b_1"),
        {"a_1": reporting, "p": by(actors.requeue, "t-1"), "b_1": b},
        untouched=["b_1"],
    ),
    again(
        "superseded",
        _lost_twice,
        {"a_1": by(actors.take_back, "a_1"), "p": by(actors.requeue, "t-1")},
        [(1, 0), (0, 1)],
        longer=[(3, 1)],
    ),
    # Where a task goes on
    ours(
        "checkpoints",
        started("a_1"),
        {"a_1": by(actors.save, "1", "2")},
        [(0, 1)],
        faults=NETWORK,
        afterwards=is_last_checkpoint,
        longer=[(0, 3)],
    ),
    ours(
        "checkpoint of a lost attempt",
        lost("a_1", "b_1"),
        {
            "a_1": by(actors.save, "1"),
            "p": by(actors.requeue, "t-1"),
            "b_1": by(actors.run_and_save, "b_1", "2"),
        },
        faults=NETWORK,
        faulty=["a_1"],
        check=is_last_checkpoint,
        longer=[(1, 1), (3, 1)],
    ),
    ours(
        "checkpoint, and deleted",
        lost("a_1"),
        {"a_1": by(actors.save, "1"), "p": by(actors.delete, "t-1")},
        faulty=["a_1"],
    ),
    # What a task notes
    ours(
        "notes",
        started("a_1"),
        {"a_1": by(actors.note, "n1", "n2")},
        [(0, 1)],
        faults=NETWORK,
        afterwards=has_each_note_once,
        longer=[(0, 3)],
    ),
    ours(
        "note, and deleted",
        lost("a_1"),
        {"a_1": by(actors.note, "n1"), "p": by(actors.delete, "t-1")},
        faulty=["a_1"],
    ),
    # Retry, release, cancel
    again(
        "retry",
        one_task("a_1", parameters="bad", retry=RETRY),
        {"a_1": a, "s": promoter},
        [(0, 1)],
        untouched=["a_1"],
        longer=[(1, 2)],
    ),
    again(
        "retry and schedulers",
        _due_and_bad,
        {"s": promoter, "t": promoter, "a_1": a},
        [(2, 0)],
        check=waits_for_its_time,
        untouched=["a_1"],
    ),
    again(
        "handed back",
        started("a_1", "b_1", retry=RETRY),
        {"a_1": by(actors.hand_back, "a_1"), "b_1": b, "r": losing},
        [(1, 0), (0, 1)],
        faulty=["a_1"],
        untouched=["b_1"],
    ),
    ours(
        "cancel in line",
        one_task("a_1"),
        {"p": canceller},
        [(0, 1)],
        afterwards=is_cancelled,
        longer=[(0, 3)],
    ),
    ours(
        "cancel",
        one_task("a_1"),
        {"a_1": a, "p": canceller},
        [(3, 0), (0, 1)],
        afterwards=is_cancelled,
        tolerated=DOUBLE,
        longer=[(2, 1)],
    ),
    again(
        "cancel and retry",
        one_task("a_1", parameters="bad", retry=RETRY),
        {"a_1": a, "p": canceller},
        [(3, 0), (0, 1)],
        afterwards=is_cancelled,
        tolerated=DOUBLE,
        untouched=["a_1"],
        longer=[(1, 1), (3, 1)],
    ),
    again(
        "cancel and hand back",
        started("a_1", "b_1", retry=RETRY),
        {"a_1": by(actors.hand_back, "a_1"), "p": canceller, "b_1": b},
        faulty=["a_1"],
        afterwards=is_cancelled,
        tolerated=DOUBLE,
        untouched=["b_1"],
    ),
    again(
        "cancel and end",
        started("a_1", "b_1", retry=RETRY),
        {"a_1": by(actors.obey, "a_1"), "p": canceller, "r": losing, "b_1": b},
        [(1, 0), (0, 1)],
        faulty=["p"],
        afterwards=is_cancelled,
        tolerated=DOUBLE,
        untouched=["b_1"],
        longer=[(2, 0), (1, 1)],
    ),
    ours(
        "expire",
        one_task("a_1", start_before=1.0),
        {"a_1": a, "s": by(actors.expire, "t-1", LONG_AGO)},
        afterwards=is_expired_or_run,
    ),
    again(
        "expire and retry",
        one_task("a_1", parameters="bad", retry=RETRY, start_before=NEXT_CENTURY),
        {"a_1": a, "s": by(actors.expire, "t-1", AFTER_IT)},
        afterwards=is_expired_or_run,
        untouched=["a_1"],
    ),
    ours(
        "interrupt",
        started("a_1", "b_1"),
        {"p": interrupter, "a_1": by(actors.obey, "a_1"), "r": losing, "b_1": b},
        [(1, 0), (0, 1)],
        faulty=["p"],
        afterwards=is_given_back,
        tolerated=DOUBLE,
        untouched=["b_1"],
        longer=[(2, 0), (1, 1)],
    ),
    ours(
        "interrupt and cancel",
        started("a_1", "b_1"),
        {"p": interrupter, "q": canceller, "a_1": by(actors.obey, "a_1"), "b_1": b},
        faulty=["p"],
        tolerated=DOUBLE,
        untouched=["b_1"],
        longer=[(3, 0), (1, 1)],
    ),
    # Locks and limits: never more than may hold them, and none is left behind
    ours(
        "lock",
        _locked,
        {"a_1": a, "b_1": b},
        [(1, 0), (0, 1)],
        faulty=["a_1"],
        untouched=["a_1", "b_1"],
        longer=[(2, 0), (3, 1), (1, 2)],
    ),
    ours(
        "lock, and who waits for it",
        _locked,
        {"a_1": once_a, "b_1": once_b},
        faults=NETWORK,
        check=all_is_woken,
    ),
    ours(
        "limit",
        _limited,
        {"a_1": a, "b_1": b},
        [(1, 0), (0, 1)],
        faulty=["a_1"],
        untouched=["a_1", "b_1"],
        longer=[(3, 1), (1, 2)],
    ),
    ours(
        "limit, and who waits for it",
        _limited,
        {"a_1": once_a, "b_1": once_b},
        [(2, 0)],
        check=all_is_woken,
    ),
    again(
        "lock of a lost attempt",
        _locked_and_started,
        {"a_1": reporting, "r": losing, "b_1": b},
        [(1, 0), (0, 1)],
        faulty=["r"],
        untouched=["b_1"],
        longer=[(2, 1), (3, 0)],
    ),
    again(
        "place of a lost attempt",
        _limited_and_started,
        {"a_1": reporting, "r": losing, "b_1": b},
        [(1, 0), (0, 1)],
        faulty=["r"],
        untouched=["b_1"],
        longer=[(2, 1), (3, 0)],
    ),
    *[
        ours(
            f"lock, {name}",
            begin("a_1", "b_1", needs=LOCK),
            {"r": losing, "b_1": b},
            [(1, 0), (0, 1)],
            faulty=["r"],
            untouched=["b_1"],
            longer=[(2, 2)],
        )
        for name, begin in (("popped", popped), ("reserved", reserved), ("started", started))
    ],
    again(
        "lock and retry",
        one_task("a_1", parameters="bad", retry=RETRY, needs=LOCK),
        {"a_1": a},
        [(0, 1)],
        untouched=["a_1"],
    ),
    again(
        "lock handed back",
        _locked_and_started,
        {"a_1": by(actors.hand_back, "a_1"), "b_1": b, "r": losing},
        [(1, 0), (0, 1)],
        faulty=["a_1"],
        untouched=["b_1"],
    ),
    ours(
        "lock, cancelled before",
        reserved("a_1", needs=LOCK),
        {"a_1": starting, "p": canceller},
        afterwards=is_cancelled,
        tolerated=DOUBLE,
        longer=[(2, 2)],
    ),
    ours(
        "lock, late result",
        lost("a_1", "b_1", needs=LOCK),
        {"a_1": reporting, "p": by(actors.requeue, "t-1"), "b_1": b},
        [(1, 0)],
        untouched=["b_1"],
        longer=[(3, 1)],
    ),
    ours(
        "lock, taken back",
        lost("a_1", "b_1", needs=LOCK),
        {"a_1": by(actors.take_back, "a_1")},
        [(0, 1)],
    ),
    ours("freed by mistake", _locked, {"a_1": once_a, "f": freer}, [(2, 0)]),
    ours(
        "freed late",
        _lock_kept,
        {"a_1": once_a, "f": freer, "g": freer},
        [(2, 0)],
        tolerated=frozenset({"kept"}),
    ),
    # Lines: who waits in which, and who is told of it
    ours("three lines", _three_lines, {"a_1": a}, [(0, 1)], untouched=["a_1"]),
    ours(
        "line that is emptied",
        one_task("a_1", priority=5),
        {"a_1": a, "producer": by(actors.produce, priority=5)},
        untouched=["a_1"],
    ),
    ours(
        "due in two lines",
        _due_in_two_lines,
        {"s": promoter, "t": promoter, "a_1": a},
        [(1, 0), (0, 1)],
        faulty=["s"],
    ),
    ours(
        "priority",
        one_task("a_1"),
        {"a_1": a, "p": by(actors.place, "t-1", priority=5)},
        untouched=["a_1"],
    ),
    ours(
        "first",
        _two_tasks,
        {"a_1": a, "p": by(actors.place, "t-2", is_first=True)},
        untouched=["a_1"],
    ),
    ours(
        "moved",
        one_task("a_1"),
        {"a_1": a, "p": by(actors.place, "t-1", to=ANOTHER)},
        drain=actors.drain_all,
        untouched=["a_1"],
    ),
    ours(
        "cancel in another line",
        one_task("a_1", priority=5, needs=LOCK),
        {"p": canceller},
        [(0, 1)],
        afterwards=is_cancelled,
        longer=[(0, 3)],
    ),
    ours(
        "lock, cancelled in line",
        one_task("a_1", needs=LOCK),
        {"a_1": a, "p": canceller},
        afterwards=is_cancelled,
        tolerated=DOUBLE,
    ),
    ours(
        "pause",
        _two_tasks,
        {"a_1": a, "p": actors.pause},
        [(3, 0), (0, 1)],
        check=stays_in_line,
        drain=actors.drain_all,
        longer=[(3, 1)],
    ),
    # Tasks that wait for others: each is let go once, and none is forgotten
    tied(
        "born as its parent completes",
        started("a_1"),
        {"a_1": actors.report_and_tell, "producer": by(actors.produce_after, "c-1", {"t-1": "ok"})},
    ),
    tied(
        "born as its parent completes, with its result",
        started("a_1"),
        {
            "a_1": actors.report_and_tell,
            "producer": by(actors.produce_after, "c-1", {"t-1": "ok"}, inputs=0),
        },
        [(1, 0), (0, 1)],
        afterwards=has_its_input,
    ),
    tied(
        "born as its parent fails",
        started("a_1", parameters="bad"),
        {
            "a_1": actors.report_and_tell,
            "producer": by(actors.produce_after, "c-1", {"t-1": "ok"}, broken="cancel"),
        },
        afterwards=is_broken,
    ),
    tied(
        "born as its parent is purged",
        one_task("a_1"),
        {"p": by(actors.purge, "t-1"), "producer": by(actors.produce_after, "c-1", {"t-1": "any"})},
        afterwards=is_purged_or_run,
    ),
    tied(
        "two who tell",
        parent(stage="cancelled", kind="any", children=("c-1", "c-2", "c-3")),
        {"s": teller, "r": teller},
        faulty=["s"],
        afterwards=has_run_once,
    ),
    tied(
        "two parents that end at once",
        _two_parents,
        {"a_1": by(actors.report_and_tell, "first"), "b_1": by(actors.report_and_tell, "second")},
        faulty=["a_1"],
        afterwards=begins_or_is_broken,
    ),
    tied(
        "complete after all",
        _broken_by_the_lost,
        {"a_1": actors.report_and_tell, "p": by(actors.requeue, "c-1")},
        afterwards=begins_once,
    ),
    tied(
        "held, and run again",
        parent("a_1", "b_1", stage="lost"),
        {"s": teller, "p": by(actors.requeue, "t-1"), "b_1": b},
        [(1, 0), (0, 1)],
        faulty=["s"],
        afterwards=has_run_once,
    ),
    tied(
        "told or cancelled",
        parent(stage="cancelled", kind="any"),
        {"s": teller, "p": by(actors.cancel, "c-1")},
        afterwards=child_is_cancelled,
    ),
    *[
        tied(
            f"told or {name}",
            parent(stage="cancelled", kind="any"),
            {"s": teller, "p": program},
            afterwards=check,
        )
        for name, program, check in (
            ("moved", by(actors.place, "c-1", to=ANOTHER), has_run_once),
            ("purged", by(actors.purge, "c-1"), is_purged_or_run),
            ("unblocked", by(actors.unblock, "c-1"), is_told_right),
            ("deleted with its parent", by(actors.delete, "t-1"), has_run_once),
            ("pruned with its parent", by(actors.prune_one, "t-1"), has_run_once),
        )
    ],
    tied(
        "looked at or unblocked",
        parent(stage="cancelled", kind="any"),
        {"r": by(actors.look_again, "c-1"), "p": by(actors.unblock, "c-1")},
        afterwards=is_told_right,
    ),
    tied(
        "told or archived with its parent",
        parent(stage="cancelled", kind="any"),
        {"s": teller, "one": by(actors.archive, "one")},
        drain=actors.drain_archived,
        faulty=["one"],
        patient=["one"],
    ),
    tied(
        "forgotten by Redis",
        _rolled_back,
        {"a_1": by(actors.put_back, "a_1"), "r": by(actors.look_again, "c-1")},
        faulty=["r"],
        tolerated=frozenset({"rolled back"}),
    ),
    tied(
        "unknown to its parent",
        _unknown_dependent,
        {"r": by(actors.look_again, "c-1"), "a_1": actors.report_and_tell},
        afterwards=begins_once,
    ),
    # Groups: each ends once, with its last member, and those who wait are told
    tied(
        "last two members end at once",
        group("a_1", "b_1"),
        {"a_1": ending_a, "b_1": ending_b},
        faulty=["a_1"],
        afterwards=begins_once,
    ),
    tied(
        "member runs again as its group ends",
        group("b_1", members=("t-2", "t-1"), ended=("t-1",), kind="any"),
        {"b_1": ending_b, "p": by(actors.requeue, "t-1")},
        faulty=["b_1"],
        afterwards=has_run_once,
    ),
    tied(
        "member runs again before its end is noted",
        _to_be_noted,
        {"s": actors.settle_groups, "p": by(actors.requeue, "t-1"), "a_1": a},
        [(1, 0), (0, 1)],
        faulty=["s"],
    ),
    tied(
        "closed as its members end",
        group("a_1", members=("t-1",), is_closed=False),
        {"a_1": ending_a, "producer": by(group_actors.enter_and_close, "t-2")},
        faulty=["a_1"],
        afterwards=nobody_came_too_late,
    ),
    tied(
        "born as its group ends",
        group("a_1", members=("t-1",), child=""),
        {"a_1": ending_a, "producer": by(actors.produce_after, "c-1", {WHOLE: "ok"})},
        afterwards=begins_once,
    ),
    tied(
        "member adds another one as the last one ends",
        group("a_1", "b_1"),
        {
            "a_1": by(group_actors.report_and_settle, "a_1", "a", group=group_actors.GROUP),
            "b_1": ending_b,
        },
        [(1, 0), (0, 1)],
        faulty=["a_1"],
        afterwards=begins_once,
    ),
    tied(
        "group cancelled as a member adds another one",
        group("a_1", members=("t-1",)),
        {
            "a_1": by(group_actors.report_and_settle, "a_1", "a", group=group_actors.GROUP),
            "p": group_actors.cancel_group,
        },
        [(1, 0), (0, 1)],
        faulty=["a_1"],
        afterwards=members_are_over,
    ),
    tied(
        "closed as its last member ends",
        group("a_1", members=("t-1",), is_closed=False),
        {"a_1": ending_a, "producer": group_actors.enter_and_close},
        faulty=["producer"],
        afterwards=begins_once,
    ),
    tied(
        "closed as a member joins",
        group(members=("t-1",), ended=("t-1",), kind="any", is_closed=False),
        {"one": group_actors.enter_and_close, "producer": by(group_actors.enter, "t-2")},
        faulty=["producer"],
        afterwards=begins_once,
    ),
    tied(
        "born as its group fails",
        group("a_1", members=("t-1",), child="", parameters="bad"),
        {
            "a_1": ending_a,
            "producer": by(actors.produce_after, "c-1", {WHOLE: "ok"}, broken="cancel"),
        },
        faulty=["a_1"],
        afterwards=is_broken,
    ),
    tied(
        "held by its group",
        group("a_1", members=("t-1",), parameters="bad"),
        {"a_1": ending_a},
        [(0, 1)],
    ),
    tied(
        "two who tell those who wait for a group",
        _three_wait,
        {"s": actors.settle_groups, "r": actors.settle_groups},
        faulty=["s"],
        afterwards=has_run_once,
    ),
    tied(
        "opened again as its remains are swept",
        _expired,
        {"s": actors.settle_groups, "producer": group_actors.open_and_enter},
    ),
    tied(
        "born as its group is dropped",
        group(members=("t-1",), ended=("t-1",), child=""),
        {"p": group_actors.drop_group, "producer": by(actors.produce_after, "c-1", {WHOLE: "ok"})},
        afterwards=waits_for_what_is_there,
    ),
    tied(
        "deleted as its group notes its end",
        group("a_1", members=("t-1",)),
        {"a_1": ending_a, "p": by(group_actors.delete_member, "t-1")},
        faulty=["a_1"],
        afterwards=is_heard_before_it_goes,
    ),
    tied(
        "unknown to its group",
        _unknown_to_its_group,
        {"r": by(actors.look_again, "c-1"), "a_1": ending_a},
        faulty=["r"],
        afterwards=begins_once,
    ),
    tied(
        "group cancelled as a member joins",
        group(members=("t-1",), is_closed=False),
        {"p": group_actors.cancel_group, "producer": by(group_actors.enter, "t-2")},
        faulty=["producer"],
        afterwards=members_are_cancelled,
    ),
    tied(
        "workflow made in parts",
        nothing("a_1"),
        {"producer": group_actors.commit_workflow, "s": actors.settle_groups},
        [(1, 0), (0, 1)],
        faulty=["producer"],
        drain=group_actors.finish_later,
        afterwards=is_whole_or_nothing,
    ),
    tied(
        "task of a workflow is cancelled before all are there",
        group_actors.half_a_workflow,
        {"p": by(actors.cancel, "w-1"), "producer": group_actors.commit_workflow},
        [(1, 0), (0, 1)],
        drain=group_actors.finish_later,
    ),
    tied(
        "workflow that one goes on with and another gives up",
        group_actors.half_a_workflow,
        {"producer": group_actors.commit_workflow, "p": group_actors.give_up},
        drain=group_actors.finish_later,
        afterwards=is_whole_or_nothing,
    ),
    # Tasks that a running task makes: each once, and only by an attempt that has its task
    tied(
        "stale attempt spawns",
        lost("a_1", "b_1", parameters="spawn"),
        {"a_1": group_actors.spawn_and_report, "p": by(actors.requeue, "t-1"), "b_1": b},
        [(1, 0), (0, 1)],
        faulty=["a_1"],
        afterwards=makes_each_once,
    ),
    tied(
        "lost as it spawns",
        started("a_1", "b_1", parameters="spawn", retry=RETRY),
        {"a_1": group_actors.spawn_and_report, "r": losing, "b_1": b},
        [(1, 0), (0, 1)],
        faulty=["a_1"],
        retry_safe=frozenset({"t-1"}),
        afterwards=makes_each_once,
    ),
    tied(
        "spawned before, and deleted since",
        spawned_before("a"),
        {"b_1": group_actors.spawn_and_report, "p": by(group_actors.delete_spawned, "a")},
        afterwards=makes_none_again,
    ),
    tied(
        "spawned before, deleted since, and made with the end",
        spawned_before("next", parameters="then"),
        {"b_1": reporting, "p": by(group_actors.delete_spawned, "next")},
        afterwards=makes_none_again,
    ),
    tied(
        "spawns as the other ends",
        _two_started,
        {"a_1": by(group_actors.report_and_settle, "a_1", "a", after="t-2"), "b_1": ending_b},
        faulty=["b_1"],
        afterwards=has_run_once_if_made,
    ),
    tied(
        "ends with a new task as the other ends",
        _two_started,
        {"a_1": by(group_actors.report_with, "a_1", "next", "t-2"), "b_1": ending_b},
        faulty=["b_1"],
        afterwards=has_run_once_if_made,
    ),
    tied(
        "ends with a new task",
        started("a_1", parameters="then"),
        {"a_1": reporting},
        [(0, 1)],
        untouched=["a_1"],
        afterwards=makes_each_once,
    ),
    tied(
        "lost as it ends with a new task",
        started("a_1", parameters="then"),
        {"a_1": reporting, "r": losing},
        [(1, 0), (0, 1)],
        faulty=["a_1"],
        afterwards=makes_each_once,
    ),
    tied(
        "ends with a new task, and is adopted",
        started("a_1", "b_1", parameters="then"),
        {"a_1": reporting, "b_1": by(actors.adopt, "b_1", "a_1")},
        afterwards=makes_each_once,
    ),
    tied(
        "ends with a new task, is lost and runs again",
        lost("a_1", "b_1", parameters="then"),
        {"a_1": reporting, "p": by(actors.requeue, "t-1"), "b_1": b},
        [(1, 0), (0, 1)],
        faulty=["a_1"],
        afterwards=makes_each_once,
    ),
    # Beside 1.0.0
    *[
        mixed(
            name,
            parent(stage="pending", **options),
            {"old_1": old, "r": by(actors.look_again, "c-1")},
            drain=actors.drain_swept,
            faulty=["r"],
            afterwards=has_run_once,
            longer=[(4, 1)],
        )
        for name, options in (
            ("parent beside 1.0.0", {}),
            ("parent beside 1.0.0, and its result", {"inputs": 0}),
        )
    ],
    mixed(
        "parent deleted by 1.0.0",
        parent("a_1", stage="lost", kind="any"),
        {"old_1": by(legacy_actors.delete_failed, "t-1"), "s": teller},
        drain=actors.drain_swept,
        faulty=["s"],
        afterwards=has_run_once,
        longer=[(4, 1)],
    ),
    mixed(
        "lines beside 1.0.0",
        _three_lines,
        {"a_1": a, "old_1": old},
        [(2, 0)],
        check=runs_only_ours,
        frail=["old_1"],
    ),
    mixed(
        "priority beside 1.0.0",
        one_task("a_1"),
        {"a_1": a, "old_1": old, "p": by(actors.place, "t-1", priority=5)},
        [(2, 0)],
        longer=[(3, 0)],
    ),
    mixed(
        "missed in line beside 1.0.0",
        one_task("a_1"),
        {"old_1": old, "p": by(actors.align_task, "t-1", Place("pending", QUEUE), "0.5")},
        [(2, 0)],
        longer=[(3, 0)],
    ),
    mixed(
        "interrupt beside 1.0.0",
        one_task("a_1"),
        {"a_1": a, "old_1": old, "p": interrupter},
        [(2, 0)],
        longer=[(3, 0)],
    ),
    mixed(
        "purge beside 1.0.0",
        one_task("a_1"),
        {"p": by(actors.purge, "t-1"), "old_1": old},
        [(2, 0), (1, 1)],
        afterwards=is_purged_or_run,
        frail=["old_1"],
        longer=[(4, 1)],
    ),
    mixed(
        "beside 1.0.0",
        one_task("a_1"),
        {"a_1": a, "old_1": old},
        [(4, 0)],
        frail=["old_1"],
        longer=[(4, 1)],
    ),
    mixed(
        "zombie beside 1.0.0",
        started("a_1", retry=RETRY),
        {"a_1": reporting, "r": losing, "old_1": old},
        [(2, 0)],
        retry_safe=frozenset({"t-1"}),
        longer=[(3, 0)],
    ),
    mixed(
        "reserved beside 1.0.0",
        reserved("a_1"),
        {"a_1": starting, "r": fencing, "old_1": old},
        [(2, 0)],
        longer=[(3, 0)],
    ),
    mixed(
        "claimed by 1.0.0",
        reserved("a_1"),
        {"r": losing, "old_1": by(legacy_actors.claim_orphans, "old_1")},
        [(2, 0)],
        dead=frozenset({"a_1"}),
        longer=[(4, 0)],
    ),
    mixed(
        "1.0.0 is dead",
        _legacy_reserved,
        {
            "r": by(actors.strike, "old_1"),
            "new_1": by(legacy_actors.claim_orphans, "new_1"),
            "b_1": b,
        },
        [(2, 0)],
        dead=frozenset({"old_1"}),
        untouched=["b_1"],
        longer=[(3, 0)],
    ),
    mixed(
        "two schedulers, one of 1.0.0",
        _due_once,
        {"s": promoter, "old": legacy_actors.promote, "a_1": a},
        [(2, 0)],
        untouched=["a_1"],
        longer=[(4, 0)],
    ),
    mixed(
        "struck off by 1.0.0",
        _struck,
        {"r": fencing, "old_1": by(legacy_actors.run_claimed, "old_1", "t-1"), "b_1": b},
        [(2, 0)],
        longer=[(3, 0)],
    ),
]


# The holes of 1.0.0


def _legacy(world: World, *nodes: str, tasks: int = 1, held: int = 0) -> None:
    queue = LegacyQueue(world.redis, QUEUE)
    for node in nodes:
        queue.add_listener(node)
    for number in range(tasks):
        queue.enqueue(f"t-{number + 1}", "ok", time.time())
    for _ in range(held):
        queue.dequeue("old_1", time.time())


def _legacy_started(world: World) -> None:
    _legacy(world, "old_1", held=1)
    LegacyQueue(world.redis, QUEUE).start("t-1", "old_1", 77, time.time())


def _hole(
    name: str,
    setup: Callable[[World], None],
    actor: str,
    program: Program,
    faults: frozenset[Fault],
) -> Scenario:
    return mixed(
        name,
        setup,
        {actor: program},
        [(0, 1)],
        longer=(),
        faults=faults,
        drain=legacy_actors.drain,
        dead=frozenset({"old_1"}),
    )


_new = by(legacy_actors.claim_orphans, "new_1")
HOLES = [
    _hole("pop without hash update", lambda world: _legacy(world, "old_1"), "old_1", old, DEATH),
    _hole(
        "two orphans of one listener",
        lambda world: _legacy(world, "old_1", "new_1", tasks=2, held=2),
        "new_1",
        _new,
        DEATH,
    ),
    _hole(
        "claim then die",
        lambda world: _legacy(world, "old_1", "new_1", held=1),
        "new_1",
        _new,
        DEATH,
    ),
    _hole(
        "finish twice",
        _legacy_started,
        "old_1",
        by(legacy_actors.end, "old_1", "t-1"),
        frozenset({Fault.LOSE}),
    ),
]

OURS += [*SCHEDULES, *FAILOVERS]
SCENARIOS = {scenario.name: scenario for scenario in [*OURS, *HOLES]}
