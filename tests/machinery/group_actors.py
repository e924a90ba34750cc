"""What the actors of the explorer do with groups of tasks, workflows, and tasks that make others."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any
from unittest import mock

from actors import drain_tied, execute, report, settle_groups, spawn, tell, work
from transactions import protocol
from world import QUEUE, World, insist, join, make_wait, start_one

from blueque.connection.redis import Redis
from blueque.errors import HasDependents, NoSuchGroup, WrongGroup, WrongState
from blueque.model import keys
from blueque.model.group import MAKING, Links, condition_on, gate_of
from blueque.model.group_terms import Terms
from blueque.model.ids import ids_of_group_keys
from blueque.model.new import New, spawned_id
from blueque.model.new_task import NewTask
from blueque.producer import workflow_writer
from blueque.producer.keyed_groups import open_keyed
from blueque.protocol.bulk import NewTasks
from blueque.protocol.members import MemberBatch
from blueque.queries import half_made

GROUP = "g"
WHOLE = condition_on(GROUP)  # what waits for the group waits for this
KEEP = 3600
WORKFLOW = ("w-1", "w-2", "w-3")
GATE = condition_on(gate_of(GROUP))


# Beginnings


def open_group(world: World, *nodes: str, members: tuple[str, ...] = (), **fields: str) -> None:
    """Have listeners, and an open group of tasks that are in line."""
    join(world, *nodes)
    protocol.open_group(world.redis, GROUP, KEEP, time.time())
    for task in members:
        make_wait(world, world.redis, task, {}, group=GROUP, **fields)


def close_group(world: World) -> None:
    """Close the group, and have its score be one of a group at which nobody need look."""
    protocol.close_group(world.redis, GROUP, time.time())
    settle_groups(world, world.redis)


def start_all(world: World, *nodes: str) -> None:
    """Have each of the nodes start the next task, under its own name."""
    for node in nodes:
        world.given[node + "'s"] = start_one(world, node)


# Members and groups


def report_and_settle(
    world: World, redis: Redis, node: str, *spawned: str, after: str = WHOLE, group: str = ""
) -> None:
    """Be a listener whose task, which may be a member, has just ended; spawned: keys of tasks that
    it has made before. after: for what these wait; or group: what they join.
    """
    task = world.given[node + "'s"]
    record = execute(world, task)
    if spawned:
        options = {"group": group} if group else {"after": after}
        spawn(world, redis, task, *spawned, **options)
    report(world, redis, task, record)
    tell(world, redis, task.id)
    settle_groups(world, redis)


def report_with(world: World, redis: Redis, node: str, key: str, after: str) -> None:
    """Be a listener whose task ends with a new one, which waits for another."""
    task = world.given[node + "'s"]
    record = execute(world, task)
    record["then"] = [New(QUEUE, "ok", key=key, after=after).record(task.id)]
    world.note_wait(record["then"][0].task, {after: "ok"})
    report(world, redis, task, record)


def delete_member(world: World, redis: Redis, task: str) -> None:
    """Be a person who has no use for a member. It is fine if it has not ended, or nobody has noted
    that.
    """
    try:
        insist(lambda: protocol.delete(redis, QUEUE, task))
    except (WrongState, HasDependents):
        return
    world.ledger.deleted.add(task)


def enter(world: World, redis: Redis, task: str) -> None:
    """Be a producer of one more member. It is fine if the group takes none any more."""
    try:
        insist(lambda: make_wait(world, redis, task, {}, group=GROUP))
    except WrongGroup:
        world.ledger.notes.append(f"{task} came too late")
    else:
        world.ledger.accepted.add(task)


def enter_and_close(world: World, redis: Redis, *tasks: str) -> None:
    """Be the producer of the last members."""
    for task in tasks:
        enter(world, redis, task)
    insist(lambda: protocol.close_group(redis, GROUP, time.time()))
    settle_groups(world, redis)


def drive_group(world: World, redis: Redis) -> None:
    """Be a call with keys, which opens the group, makes its members and closes it."""
    opened = insist(lambda: open_keyed(redis, QUEUE, GROUP, Terms()))
    for key in (b"k1", b"k2"):
        tasks = NewTasks((), [(b"ok", False)], keys=[key])
        insist(lambda tasks=tasks: opened.put(redis, tasks, {}))  # type: ignore[misc]
    insist(lambda: opened.close(redis, 2))


def put_members(world: World, redis: Redis, *names: str) -> None:
    """Make tasks of the group under keys that others use, too."""
    for name in names:
        ids = ids_of_group_keys(QUEUE, GROUP, [name.encode()])
        tasks = NewTasks(ids, [(b"ok", False)], keys=[name.encode()])
        batch = MemberBatch(QUEUE, Links(GROUP), tasks, time.time(), {})
        try:
            insist(lambda batch=batch: protocol.enqueue_members(redis, batch))  # type: ignore[misc]
        except (WrongGroup, NoSuchGroup):
            world.ledger.notes.append(f"{name} came too late")


def put_members_and_close(world: World, redis: Redis, *names: str) -> None:
    """The same, and say that these are all."""
    put_members(world, redis, *names)
    insist(lambda: protocol.close_group(redis, GROUP, time.time()))


def append_members(world: World, redis: Redis, *names: str) -> None:
    """Open the group again if it was closed, add keys to it, and close it."""
    opened = insist(lambda: open_keyed(redis, QUEUE, GROUP, Terms(), append=True))
    put_members(world, redis, *names)
    insist(lambda: opened.close(redis, 0))


def finish_appending(world: World) -> None:
    """Add the same keys again after the first call has died."""
    append_members(world, world.redis, "k1", "k2")
    drain_tied(world)


def work_and_delete_members(world: World, redis: Redis, node: str) -> None:
    """Be a listener whose tasks are deleted as soon as their group has noted their end."""
    work(world, redis, node)
    insist(lambda: settle_groups(world, redis))
    for task in insist(lambda: redis.read(("LRANGE", keys.complete(QUEUE), 0, -1))[0]):
        world.ledger.deleted.add(task)
        try:
            insist(lambda task=task: protocol.delete(redis, QUEUE, task))  # type: ignore[misc]
        except (WrongState, HasDependents):
            world.ledger.deleted.discard(task)


def finish_group(world: World) -> None:
    """Make the same call again after the first has died."""
    drive_group(world, world.redis)
    drain_tied(world)


def open_and_enter(world: World, redis: Redis) -> None:
    """Be the producer of a group with a name that was used before."""
    insist(lambda: protocol.open_group(redis, GROUP, KEEP, time.time()))
    enter_and_close(world, redis, "t-2")


def cancel_group(world: World, redis: Redis) -> None:
    """Be a person who wants nothing more of the group, and a scheduler that sees to it."""
    insist(lambda: protocol.cancel_group(redis, GROUP, "ann", None, time.time()))
    world.ledger.notes.append("cancelled")
    settle_groups(world, redis)


def drop_group(world: World, redis: Redis) -> None:
    """Be a person who has no use for the record any more."""
    try:
        insist(lambda: protocol.drop_group(redis, GROUP))
    except WrongGroup:
        return
    world.ledger.notes.append("dropped")


def commit_workflow(world: World, redis: Redis) -> None:
    """Be a producer of a workflow of three tasks that takes two transactions. It is fine if another
    one has cancelled it.
    """
    options = {"group": GROUP}
    tasks = [
        NewTask("w-1", QUEUE, "ok", options, {}),
        NewTask("w-2", QUEUE, "ok", options, {"w-1": "any"}),
        NewTask("w-3", QUEUE, "ok", options, {"w-1": "ok"}),
    ]
    for task, kinds in (("w-1", {}), ("w-2", {"w-1": "any"}), ("w-3", {"w-1": "ok"})):
        world.note_wait(task, {**kinds, GATE: "any"})
    workflow = workflow_writer.WorkflowWriter(redis, GROUP, KEEP, tasks)
    try:
        world.ledger.notes.append(("committed", insist(workflow.commit)))
    except WrongGroup:
        world.ledger.notes.append("refused")


def half_a_workflow(world: World) -> None:
    """A workflow of which the first of two parts is there."""
    real, calls = workflow_writer.extend_graph, iter((True, False))

    def once(*arguments: Any) -> int:
        if not next(calls):
            raise KeyboardInterrupt
        return real(*arguments)

    with mock.patch.object(workflow_writer, "extend_graph", once), suppress(KeyboardInterrupt):
        commit_workflow(world, world.redis)


def give_up(world: World, redis: Redis) -> None:
    """Be a person who cancels what stayed unfinished."""
    for found in insist(lambda: half_made.workflows(redis, 0.0)):
        world.ledger.notes.append(("given up", insist(lambda found=found: cancel(redis, found))))  # type: ignore[misc]
    settle_groups(world, redis)


def cancel(redis: Redis, found: half_made.Unfinished) -> bool:
    now = time.time()
    return protocol.cancel_group(redis, found.group, "ann", None, now, found.updated)


def finish_later(world: World) -> None:
    """Be those who come when all is over: first others, and then one that commits the same again.
    Nothing may have begun in an unfinished workflow.
    """
    drain_tied(world)
    (state,) = world.redis.read(("HGET", keys.group(GROUP), "state"))
    if state in (None, MAKING):
        world.ledger.early += [task for task in WORKFLOW if world.ledger.starts.get(task)]
    commit_workflow(world, world.redis)
    # A minute later: who has died in between may have put off the look at a cancelled group.
    (names,) = world.redis.read(("ZRANGE", keys.GROUPS, 0, -1))
    world.redis.read(*[("ZADD", keys.GROUPS, 0, name) for name in names])
    drain_tied(world)


# What a running task does


def spawn_and_report(world: World, redis: Redis) -> None:
    """Be a listener whose task, which it has started some time ago, makes others and then ends."""
    task = world.given["task"]
    record = execute(world, task)
    spawn(world, redis, task, "a", "b")
    report(world, redis, task, record)


def delete_spawned(world: World, redis: Redis, *names: str) -> None:
    """Be one that deletes tasks which a running one has made, once they have ended."""
    for task in [spawned_id("t-1", name) for name in names]:
        insist(lambda task=task: protocol.delete(redis, QUEUE, task))  # type: ignore[misc]
        world.ledger.notes.append(("dropped", task))
