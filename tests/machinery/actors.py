"""What the actors of the explorer do: the real client code, in the order in which the programs of
Blueque call it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from transactions import protocol
from world import ANOTHER, LAST, MAX_BYTES, QUEUE, World, insist, make_wait, to_this_actor

from blueque.connection.redis import Redis
from blueque.errors import (
    BatchFailed,
    HasDependents,
    NoSuchGroup,
    NoSuchTask,
    NotOwner,
    NotRegistered,
    RedisAway,
    Taken,
    WrongGroup,
    WrongState,
)
from blueque.listener.listener import Listener
from blueque.listener.processor import Processor
from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.model.columns import to_microseconds
from blueque.model.new import New
from blueque.model.queue_settings import NOT_PAUSED, pausing
from blueque.model.states import Entry, Place
from blueque.model.task import Task
from blueque.model.task_id import TaskId
from blueque.model.units import Keep, Timing
from blueque.protocol.archiving import BatchRef, Written
from blueque.protocol.pruning import FinishedTask, ended_at
from blueque.protocol.recover import Loss
from blueque.queries.inspector import Inspector
from blueque.recovery.group_settling import settle_groups_step
from blueque.recovery.judge import Recovery
from blueque.recovery.retention import Retention

LOOKS = 9  # at groups, until there is nothing to do for them
ROUNDS = 5  # of work, until all who wait for others have been told


def work(world: World, redis: Redis, node: str, *, is_sure: bool = True, most: int = 99) -> None:
    """Take tasks and run them until there is none, as a slot does; most: it looks for one so many
    times.
    """
    listener = world.listener(redis, node, is_sure)
    if listener.of(QUEUE).instance is None:
        insist(lambda: listener.register(Timing()))
    take_all(world, redis, listener, most)


def take_all(world: World, redis: Redis, listener: Listener, most: int = 99) -> None:
    for _ in range(most):
        try:
            task = listener.take()
        except NotRegistered:
            insist(lambda: listener.register(Timing()))
        except RedisAway:
            continue
        else:
            if task is None:
                return
            run(world, redis, task)


def run(world: World, redis: Redis, task: Task) -> None:
    """Start a reserved task, run it and report how it ended."""
    processor = Processor(redis, task, MAX_BYTES)
    pid = int(task.id.rpartition("-")[2], 16) % 1000 * 10 + (task.attempt or 0) + 10
    try:
        insist(lambda: processor.start(pid))
    except (NotOwner, NotRegistered):
        world.ledger.refused.append(task.node or "")
        return
    record = execute(world, task)
    if task.parameters == "spawn":
        spawn(world, redis, task, "a", "b")
    report(world, redis, task, record)


def spawn(world: World, redis: Redis, task: Task, *names: str, **options: Any) -> None:
    """Be a running task that makes others, and note which were new."""
    attempt = AttemptRef(QUEUE, task.id, task.token, task.node or "")
    new = [New(QUEUE, "ok", key=name, **options).record(task.id) for name in names]
    for one in new:
        world.note_wait(one.task, dict(one.conditions))
    try:
        are_new = insist(lambda: protocol.spawn(redis, attempt, new, time.time()))
    except (NotOwner, WrongGroup):
        return
    world.ledger.notes += [one.task for one, is_new in zip(new, are_new, strict=True) if is_new]
    if any(are_new):
        note_if_stale(world, task)


def note_if_stale(world: World, task: Task) -> None:
    """Note if an attempt that has just done something had lost its task. Nobody has moved since."""
    (now,) = world.redis.read(("HMGET", keys.task(task.id), "status", "token"))
    if now != ["started", task.token]:
        world.ledger.notes.append("stale")


def execute(world: World, task: Task) -> dict[str, Any]:
    """Be the task process: note that it ran, and return its exit record."""
    world.check_wait(task.id)
    mark = f"by {task.token}"
    record: dict[str, Any] = {"status": "complete", "result": mark}
    if task.parameters == "bad":
        record = {"status": "failed", "error": mark, "error_type": "ValueError"}
    elif task.parameters == "then":
        record["then"] = [New(QUEUE, "ok", key="next", after=task.id).record(task.id)]
        world.note_wait(record["then"][0].task, {task.id: "ok"})
    world.ledger.begin(task.id, task.token, task.node or "", record)
    return record


def report(world: World, redis: Redis, task: Task, record: dict[str, Any]) -> None:
    processor = Processor(redis, task, MAX_BYTES)
    status = "" if "retry" in task.fields and record["status"] == "failed" else record["status"]
    end(world, task, status, lambda: processor.report(record))


def end(world: World, task: Task, status: str, action: Callable[[], object]) -> None:
    """Record the end of an attempt, and note what its owner was told of it; status: empty if the
    task goes on.
    """
    try:
        insist(action)
    except NotOwner:
        return
    world.ledger.told[task.token or ""] = status


def produce(world: World, redis: Redis, count: int = 1, **options: Any) -> None:
    """Enqueue some tasks. A call that raised is not made again: its task may exist or not."""
    queue = world.queue(redis)
    for _ in range(count):
        try:
            world.ledger.accepted.add(queue.enqueue("ok", **options))
        except RedisAway:
            continue


def produce_many(world: World, redis: Redis, count: int = 3) -> None:
    """Enqueue some tasks two at a time. A batch that failed is not sent again: it may be there or
    not.
    """
    try:
        for ids in world.queue(redis).enqueue_iter(["ok"] * count, batch=2):
            world.ledger.accepted.update(ids)
    except BatchFailed:
        return


def produce_keyed(world: World, redis: Redis) -> None:
    """Enqueue two tasks under keys that others use, too, until they are there; note which were new."""
    ids = insist_on_batches(
        lambda: [*world.queue(redis).enqueue_iter(["ok", "ok"], keys=["a", "b"])]
    )
    for task in ids:
        world.ledger.accepted.add(task)
        if task.is_new:
            world.ledger.notes.append(task)


def insist_on_batches(call: Callable[[], list[list[TaskId]]]) -> list[TaskId]:
    while True:
        try:
            return [task for ids in call() for task in ids]
        except BatchFailed:
            continue


def archive(world: World, redis: Redis, name: str) -> None:
    """Be an archiver, who takes any other for dead; `staged` and `published` of the ledger are his
    file system.
    """
    open_batch = {"writer": ""}
    while open_batch["writer"] != name:
        over = open_batch["writer"] or None
        open_batch = insist(
            lambda over=over: protocol.claim_batch(
                redis, BatchRef(QUEUE, name, name), {}, {}, time.time(), over
            )
        )  # type: ignore[misc]
    try:
        carry_on(world, redis, name, open_batch)
    except Taken:
        pass


def carry_on(world: World, redis: Redis, name: str, open_batch: dict[str, str]) -> None:
    """Take a batch from wherever it is to its end."""
    ledger, batch, state = world.ledger, open_batch["batch"], open_batch["state"]

    def mark(state: str, **facts: str) -> None:
        insist(
            lambda: protocol.mark_batch(
                redis, BatchRef(QUEUE, batch, name), state, facts, time.time()
            )
        )

    if state == "claimed":
        ledger.staged[name] = insist(lambda: listed_as_cancelled(redis))
        mark("written", staging=name)
    if state in ("claimed", "written"):
        files = ledger.staged.pop(open_batch.get("staging", name), [])
        ledger.published.setdefault(batch, []).extend(files)
        mark("published")
    if state != "deleted":
        rows = ledger.published.get(batch, [])
        if rows:
            insist(lambda: protocol.erase(redis, BatchRef(QUEUE, batch, name), rows, time.time()))
        mark("deleted")
    mark("closed")


def listed_as_cancelled(redis: Redis) -> list[Written]:
    """Return what an archiver writes of the cancelled tasks."""
    ((ids),) = redis.read(("LRANGE", keys.cancelled(QUEUE), 0, -1))
    asked = [("HMGET", keys.task(task), "status", "updated") for task in ids]
    found = zip(ids, redis.read(*asked) if asked else [], strict=True)
    return [
        Written(task, its[0], to_microseconds(its[1]), None)
        for task, its in found
        if its[0] == "cancelled"
    ]


def drain_archive(world: World) -> None:
    """Be whoever comes next, and archives."""
    archive(world, world.redis, LAST)
    drain(world)


def prune(world: World, redis: Redis, keep: Keep) -> None:
    """Be a listener or a scheduler that deletes the cancelled tasks which need not be kept."""
    insist(Retention(redis, {QUEUE: {"cancelled": keep}}).delete_all)


def prune_one(world: World, redis: Redis, task_id: str, status: str = "cancelled") -> None:
    """Be one that deletes a task that has ended, as it is now."""
    (times,) = insist(lambda: redis.read(("HMGET", keys.task(task_id), "finished", "updated")))
    seen = FinishedTask(task_id, ended_at(*times) or 0.0)
    insist(lambda: protocol.prune(redis, QUEUE, status, [seen]))


def purge(world: World, redis: Redis, *tasks: str) -> None:
    """Be a person who wants nothing more of what was in line when it was looked at."""
    insist(lambda: protocol.purge(redis, QUEUE, tasks))


def bring_forward(world: World, redis: Redis, task_id: str) -> None:
    """Be a person who does not want to wait for the time of a task."""
    try:
        insist(lambda: protocol.bring_forward(redis, QUEUE, task_id, time.time()))
    except WrongState:
        world.ledger.notes.append("not waiting")


def forget(world: World, redis: Redis) -> None:
    """Be a person who has no use for the queue any more."""
    insist(lambda: protocol.forget_queue(redis, QUEUE, time.time()))


def save(world: World, redis: Redis, *values: str) -> None:
    """Be a listener whose task, which it has started, says where it could go on, and then fails."""
    task = world.given["task"]
    save_and_report(world, redis, task, values, execute(world, task))


def run_and_save(world: World, redis: Redis, node: str, *values: str) -> None:
    """Be a listener that looks for a task twice, and runs one that says where it could go on, and
    then fails.
    """
    listener = world.listener(redis, node)
    for _ in range(2):
        task = insist(listener.take)
        if task is not None:
            insist(lambda task=task: Processor(redis, task, MAX_BYTES).start(12))  # type: ignore[misc]
            save_and_report(world, redis, task, values, execute(world, task))


def note(world: World, redis: Redis, *texts: str) -> None:
    """Be a listener whose task, which it has started, notes something, and then fails."""
    task = world.given["task"]
    processor = Processor(redis, task, MAX_BYTES)
    record = execute(world, task)
    for number, text in enumerate(texts, 1):
        try:
            insist(lambda number=number, text=text: processor.note(number, text, time.time()))  # type: ignore[misc]
        except NotOwner:
            break
        world.ledger.notes.append(text)
    report(world, redis, task, record)


def save_and_report(
    world: World, redis: Redis, task: Task, values: Sequence[str], record: dict[str, Any]
) -> None:
    for value in values:
        try:
            insist(
                lambda value=value: Processor(redis, task, MAX_BYTES).checkpoint({"value": value})
            )  # type: ignore[misc]
        except NotOwner:
            break
        world.ledger.notes.append(value)
    report(world, redis, task, record)


def promote(world: World, redis: Redis) -> None:
    """Put due tasks in line, as a scheduler does, until nothing is due."""
    queue = world.queue(redis)
    insist(queue.enqueue_due_tasks)


def recover(
    world: World, redis: Redis, node: str, *, is_lost: bool = True, beat: str = "0"
) -> None:
    """Do what follows when a listener is taken for dead: fence it, see to its entries, forget it.

    is_lost: it has been silent for longer than lost_after. beat: as it was seen all the while.
    """
    inspector = Inspector(redis)
    instance = world.given[node]
    if not insist(lambda: protocol.fence(redis, QUEUE, node, instance, beat, 9.25)):
        return
    is_struck = "struck" in insist(lambda: inspector.registration(QUEUE, node))
    for place, task_id in enumerate(insist(lambda: inspector.reserved(QUEUE, node))):
        task = insist(lambda task_id=task_id: inspector.task(task_id))
        # A listener of 1.0.0 that has struck it off may be about to claim its newest entry.
        if not (
            is_struck
            and place == 0
            and task.status == "reserved"
            and "reclaimed_node" not in task.fields
        ):
            recover_entry(redis, task, node, instance, is_lost)
    insist(lambda: protocol.deregister(redis, QUEUE, node, instance, is_dead=True))


def strike(world: World, redis: Redis, node: str) -> None:
    """Do what follows when a listener of 1.0.0 is known to be dead."""
    inspector = Inspector(redis)
    if insist(lambda: protocol.fence(redis, QUEUE, node, None, None, 9.25)):
        for task_id in insist(lambda: inspector.reserved(QUEUE, node)):
            recover_entry(
                redis, insist(lambda task_id=task_id: inspector.task(task_id)), node, None, False
            )


def recover_entry(redis: Redis, task: Task, node: str, instance: str | None, is_lost: bool) -> None:
    done = insist(lambda: protocol.recover(redis, QUEUE, task.id, node, instance, time.time()))
    if done == "started" and is_lost:
        insist(
            lambda: protocol.lose(
                redis,
                AttemptRef(QUEUE, task.id, task.token, node),
                instance,
                Loss("lost"),
                None,
                time.time(),
            )
        )


def adopt(world: World, redis: Redis, node: str, old: str) -> None:
    """Be a listener on the host of one that has died: take over its started tasks, and report those
    that have ended.
    """
    listener = world.listener(redis, node)
    insist(lambda: protocol.fence(redis, QUEUE, old, world.given[old], "0", 9.25))
    for task_id in insist(lambda: Inspector(redis).reserved(QUEUE, old)):
        task = insist(lambda task_id=task_id: Inspector(redis).task(task_id))
        if task.status == "started" and task.node == old:
            adopted = insist(lambda task=task: listener.of(QUEUE).adopt(task))
            if adopted is not None and adopted.is_interrupted:
                give_back(world, redis, adopted)
            elif adopted is not None:
                report(world, redis, adopted, world.ledger.records[task.token or ""])


def come_back(world: World, redis: Redis, node: str) -> None:
    """Be the next life of a listener that is gone, under its node id: see to what the former one
    holds, then work.
    """
    listener = world.listener(redis, node)
    to_this_actor.gone = {world.given[node]}
    insist(lambda: listener.register(Timing()))
    for task in insist(listener.held):
        try:
            if task.status == "reserved":
                insist(lambda task=task: Processor(redis, task, MAX_BYTES).release())
            elif (
                task.token in world.ledger.records
                and insist(lambda task=task: listener.of(QUEUE).adopt(task)) is not None
            ):
                report(world, redis, task, world.ledger.records[task.token or ""])
        except (NotOwner, NotRegistered):
            continue
    take_all(world, redis, listener)


def beat(world: World, redis: Redis, node: str) -> None:
    """Beat once, and note whether that was taken."""
    listener = world.listener(redis, node)
    try:
        insist(listener.beat)
    except NotRegistered:
        return
    world.ledger.notes.append("beat")


def obey(world: World, redis: Redis, node: str) -> None:
    """Be a listener whose task runs: beat, end it if it is to be cancelled or was interrupted, and
    else wait until it has ended by itself.
    """
    task, listener = world.given["task"], world.listener(redis, node)
    record = execute(world, task)
    try:
        standing = insist(lambda: listener.beat(task.id))
    except NotRegistered:
        insist(lambda: listener.register(Timing()))
        standing = insist(lambda: listener.beat(task.id))
    if standing.token == task.token and standing.cancel is not None:
        end(world, task, "cancelled", lambda: Processor(redis, task, MAX_BYTES).confirm_cancel({}))
    elif standing.token == task.token and standing.interrupt == task.token:
        give_back(world, redis, task)
    else:
        if standing.token == task.token and standing.interrupt is not None:
            world.ledger.notes.append("not obeyed")
        report(world, redis, task, record)
        if (
            standing.token == task.token
            and standing.status == "started"
            and task.token not in world.ledger.told
        ):
            world.ledger.notes.append(
                "a task was taken from a listener that had shown that it lives"
            )


def give_back(world: World, redis: Redis, task: Task) -> None:
    """Hand back a task that was interrupted, and note that it may run again."""
    end(world, task, "", lambda: Processor(redis, task, MAX_BYTES).release())
    if world.ledger.told.get(task.token or "") == "":
        world.ledger.notes.append("given back")


def hand_back(world: World, redis: Redis, node: str) -> None:
    """Be a listener that is stopped: its task is ended and handed back."""
    task, listener = world.given["task"], world.listener(redis, node)
    world.ledger.begin(task.id, task.token, node, {})
    end(world, task, "", lambda: Processor(redis, task, MAX_BYTES).release())
    try:
        insist(listener.leave)
    except NotRegistered:
        return


def take_back(world: World, redis: Redis, node: str) -> None:
    """Be a listener that sees its task, which runs, given up: take it back, and report its end."""
    task, listener = world.given["task"], world.listener(redis, node)
    record = execute(world, task)
    insist(lambda: listener.register(Timing()))
    restored = insist(lambda: listener.of(QUEUE).restore(task, 11, time.time()))
    report(world, redis, restored or task, record)


def judge(world: World, redis: Redis) -> None:
    """Look after the listeners as slots and schedulers do, for as long as a lease takes."""
    recovery = Recovery(redis)
    for look in range(6):
        to_this_actor.now = look * Timing().lease / 5
        try:
            recovery.step([QUEUE])
        except RedisAway:
            continue


def requeue(world: World, redis: Redis, task_id: str) -> None:
    """Be a person who consents to another start."""
    mark = "f" * 32
    world.ledger.consents[task_id] += 1
    try:
        insist(lambda: protocol.requeue(redis, QUEUE, task_id, mark, time.time()))
    except WrongState:
        world.ledger.consents[task_id] -= 1


def delete(world: World, redis: Redis, task_id: str) -> None:
    """Be a person who has no use any more for a task that was given up."""
    world.ledger.deleted.add(task_id)
    try:
        insist(lambda: protocol.delete(redis, QUEUE, task_id))
    except HasDependents:
        world.ledger.deleted.discard(task_id)


def delete_complete(world: World, redis: Redis, is_pruned: bool = False) -> None:
    """Be a person, or retention, that deletes what is complete once its producer knows of it."""
    complete = insist(lambda: redis.read(("LRANGE", keys.complete(QUEUE), 0, -1)))[0]
    for task_id in world.ledger.accepted.intersection(complete):
        world.ledger.deleted.add(task_id)
        if is_pruned:
            prune_one(world, redis, task_id, "complete")
        else:
            delete(world, redis, task_id)


def cancel(world: World, redis: Redis, task_id: str) -> None:
    """Be a person who wants it cancelled."""
    try:
        told = insist(lambda: protocol.cancel(redis, QUEUE, task_id, "ann", None, time.time()))
    except WrongState:
        return
    world.ledger.notes += [told, Inspector(world.redis).task(task_id).attempt]


def interrupt(world: World, redis: Redis, task_id: str) -> None:
    """Be a person who needs the host of a task, and consents to another start."""
    world.ledger.consents[task_id] += 1
    now = time.time()
    try:
        insist(lambda: protocol.interrupt(redis, QUEUE, task_id, "ann", None, now))
    except WrongState:
        world.ledger.consents[task_id] -= 1
        return
    world.ledger.notes.append("interrupted")


def expire(world: World, redis: Redis, task_id: str, now: float) -> None:
    """Be a scheduler that has seen that the time of a task is over by then."""
    insist(lambda: protocol.expire(redis, QUEUE, task_id, now))


def change_waiting(world: World, redis: Redis, action: Callable[[], object]) -> None:
    """Be a person who wants a task that waits to wait otherwise. It is fine if it does not wait any
    more.
    """
    try:
        insist(action)
    except WrongState:
        return
    world.ledger.notes.append("changed")


def place(world: World, redis: Redis, task_id: str, **wish: Any) -> None:
    """wish: `to`, `priority` or `is_first`, or several of these."""
    change_waiting(world, redis, lambda: protocol.place(redis, QUEUE, task_id, time.time(), **wish))


def pause(world: World, redis: Redis) -> None:
    """Be a person who pauses the queue, and notes how many are in line when that is done."""
    insist(
        lambda: protocol.set_settings(
            redis, QUEUE, pausing("ann", "repairs", time.time()), time.time(), "ann"
        )
    )
    world.ledger.notes.append(Inspector(world.redis).pending(QUEUE))


def align_task(
    world: World, redis: Redis, task_id: str, place: Place, updated: str | None = None
) -> None:
    """Be a listener or a person that has seen, some time ago, that a task was wrong in a place, or
    missing there.

    updated: this field of a pending task when it was missing in its line.
    """
    entry = Entry(place, task_id)
    insist(lambda: protocol.align_task(redis, task_id, [entry], time.time(), updated))


# Tasks that wait for others


def produce_after(
    world: World, redis: Redis, task_id: str, kinds: dict[str, str], **options: Any
) -> None:
    """Be a producer of a task that waits for others. If one of them is gone, there is no such task."""
    try:
        insist(lambda: make_wait(world, redis, task_id, kinds, **options))
    except (NoSuchTask, NoSuchGroup):
        world.ledger.notes.append("no such task")
    else:
        world.ledger.accepted.add(task_id)


def tell(world: World, redis: Redis, *tasks: str) -> None:
    """Tell all who wait for these tasks how they have ended."""
    for task_id in tasks:
        is_over = False
        while not is_over:
            is_over = insist(
                lambda task_id=task_id: protocol.settle(redis, task_id, time.time())  # type: ignore[misc]
            ).is_over


def settle_groups(world: World, redis: Redis) -> None:
    """Be a listener or a scheduler that sees to groups, until there is nothing to do."""
    for _ in range(LOOKS):
        if not insist(lambda: settle_groups_step(redis, time.time())):
            return


def report_and_tell(world: World, redis: Redis, name: str = "task") -> None:
    """Be a listener whose task, which others wait for, has just ended: it began before anybody else
    moved.
    """
    task = world.given[name]
    report(world, redis, task, execute(world, task))
    tell(world, redis, task.id)


def put_back(world: World, redis: Redis, node: str) -> None:
    """Be a listener whose task runs, and of which Redis has lost that: put it back, and report."""
    task, record = world.given["task"], execute(world, world.given["task"])
    fields = {**task.fields, "pid": "11"}
    insist(
        lambda: protocol.reassert(
            redis, QUEUE, task.id, node, world.given[node], fields, time.time(), world.given[node]
        )
    )
    report(world, redis, task, record)


def look_again(world: World, redis: Redis, task_id: str) -> None:
    """Be a scheduler whose look at a task that waits for others is due."""
    insist(lambda: protocol.recheck(redis, QUEUE, task_id, time.time()))


def unblock(world: World, redis: Redis, task_id: str) -> None:
    """Be a person who does not want a task to wait any longer."""
    world.note_wait(task_id, {})
    try:
        insist(lambda: protocol.unblock(redis, QUEUE, task_id, time.time(), "ann"))
    except WrongState:
        world.ledger.notes.append("not blocked")


# When all is over


def drain_tied(world: World) -> None:
    """Be whoever comes next, and tells those who wait for others, until nothing more comes of it.

    Only what is due is rechecked.
    """
    drain_ties(world, time.time())


def drain_swept(world: World) -> None:
    """The same, a minute later: everything that waits is rechecked."""
    drain_ties(world, float("inf"))


def drain_ties(world: World, due: float) -> None:
    redis, blocked = world.redis, keys.blocked(QUEUE)
    for _ in range(ROUNDS):
        drain_all(world)
        tell(world, redis, *redis.read(("ZRANGE", keys.UNSETTLED_TASKS, 0, -1))[0])
        settle_groups(world, redis)
        (waiting,) = redis.read(("ZRANGEBYSCORE", blocked, "-inf", due))
        for task in waiting:
            protocol.recheck(redis, QUEUE, task, time.time())
        unsettled, lines = redis.read(
            ("EXISTS", keys.UNSETTLED_TASKS, keys.UNSETTLED_MEMBERS),
            ("EXISTS", keys.pending(QUEUE), keys.lines(QUEUE)),
        )
        if not unsettled and not lines:
            return


def drain_archived(world: World) -> None:
    """Be whoever comes next, and archives as well."""
    drain_tied(world)
    archive(world, world.redis, LAST)
    drain_tied(world)


def drain_all(world: World) -> None:
    """Be whoever comes next, when the queue is not paused any more and all that was moved is back."""
    protocol.set_settings(world.redis, QUEUE, NOT_PAUSED, time.time())
    moved = world.redis.read(("ZRANGE", keys.tasks(ANOTHER), 0, -1))[0]
    for task in moved:
        protocol.place(world.redis, ANOTHER, task, time.time(), to=QUEUE)
    for name in world.redis.read(("ZRANGE", keys.lines(ANOTHER), 0, -1))[0]:
        protocol.align_line(world.redis, ANOTHER, name)
    drain(world)


def drain(world: World) -> None:
    """Be whoever comes next: all others are dead by now. Recover what they left, and run all work
    to its end.
    """
    redis = world.redis
    inspector = Inspector(redis)
    for node in every_node(redis):
        known = inspector.registration(QUEUE, node)
        if known:
            protocol.fence(redis, QUEUE, node, known["instance"], known.get("beat"), 9.25)
        else:
            protocol.fence(redis, QUEUE, node, None, None, 9.25)
        for task_id in inspector.reserved(QUEUE, node):
            settle(world, task_id, node, known.get("instance"))
        if known:
            protocol.deregister(redis, QUEUE, node, known["instance"], is_dead=True)
    last = world.listener(redis, LAST)
    last.register(Timing())
    take_all(world, redis, last)
    while protocol.enqueue_due(redis, QUEUE, time.time() + 1e9) is not None:
        take_all(world, redis, last)
    last.leave()


def every_node(redis: Redis) -> set[str]:
    """Return the nodes of all listeners that a judge gets to know of."""
    nodes, listeners, started = redis.read(
        ("ZRANGE", keys.nodes(QUEUE), 0, -1),
        ("SMEMBERS", keys.listeners(QUEUE)),
        ("SMEMBERS", keys.started(QUEUE)),
    )
    return {*nodes, *listeners, *[keys.parse_started_member(member)[0] for member in started]}


def settle(world: World, task_id: str, node: str, instance: str | None) -> None:
    """See to one entry of a dead listener. What its process has left in its spool is reported; else
    it is lost.
    """
    redis = world.redis
    task = Inspector(redis).task(task_id)
    claimant = task.fields.get("reclaimed_node")
    done = protocol.recover(redis, QUEUE, task_id, node, instance, time.time(), claimant)
    if done == "started":
        protocol.lose(
            redis,
            AttemptRef(QUEUE, task_id, task.token, node),
            instance,
            Loss("lost"),
            None,
            time.time(),
        )
