"""A listener that lives while Redis goes back, as after a failover: the real code that tells ends
again and puts attempts back, over a spool that is the ledger of the run.
"""

from __future__ import annotations

import time
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import schedule_actors
from actors import drain_tied, execute, spawn
from group_actors import drive_group
from oracle import State
from transactions import protocol
from world import MAX_BYTES, QUEUE, World, insist

from blueque.connection.redis import Redis
from blueque.errors import NoSuchGroup, NotOwner, NotRegistered, RedisAway, Taken, WrongGroup
from blueque.listener.processor import Processor
from blueque.model import keys
from blueque.model.states import FINISHED, HELD
from blueque.model.task import Task
from blueque.model.units import Timing
from blueque.node import attempt_end
from blueque.node.adoption import Adoption
from blueque.node.attempt_end import AttemptEnd
from blueque.protocol.bulk import Batch, NewTasks
from blueque.protocol.feeding import Cursor, FeedChunk, FeedRef, Whole, Window
from blueque.queries.inspector import Inspector

PID = 11
ROUNDS = 3  # in which a listener works and beats
TRIES = 5  # of a call with keys


class Files:
    """What an attempt has left in the spool."""

    process = (PID, 0)

    def has_begun(self) -> bool:
        return True

    def has_cwd(self) -> bool:
        return False

    def has_left_files(self) -> bool:
        return False

    def used_before(self) -> None:
        return None

    def mark_reported(self, is_wanted: bool) -> None: ...

    path = "the spool"


class Watch(SimpleNamespace):
    def end(self, reason: str, error: str) -> None:
        self.reason = reason


class OneAdoption(Adoption):
    """Finds attempts that have all ended."""

    def _watch(self, task: Task, *_: object) -> Any:
        return self._slot.watch(task)

    def __init__(self, slot: Slot) -> None:
        self._slot = slot
        self._client, self._listener = slot.client, slot.listener
        self._inspector, self._spool = Inspector(slot.redis), cast(Any, slot)
        self._logged = set()


class Slot:
    """One listener, as long as it lives. It is its own spool, which has what has begun here."""

    def __init__(self, world: World, redis: Redis, node: str) -> None:
        self.world, self.redis, self.node = world, redis, node
        self.listener = world.listener(redis, node)
        self.ours = self.listener.of(QUEUE)
        self.client: Any = SimpleNamespace(
            get_processor=lambda task: Processor(redis, task, MAX_BYTES),
            get_task=lambda task: insist(lambda: Inspector(redis).task(task)),
        )
        nothing: Any = SimpleNamespace(
            of=lambda queue: SimpleNamespace(retry=None, cwd=None),
            settle=lambda task: None,
            note_member=lambda: None,
            find=lambda watch: world.ledger.records.get(watch.task.token or ""),
            finish=lambda *_: None,
            hand_over=lambda *_: None,
        )
        context: Any = SimpleNamespace(client=self.client, listener=self.listener, defaults=nothing)
        self._reporter = nothing
        self._end = AttemptEnd(context, nothing, nothing, self.client, nothing)
        self._adoption = OneAdoption(self)

    # What the spool knows

    def find(self, task: str, token: str | None) -> Files | None:
        return Files() if self.world.ledger.runners.get(token or "") == self.node else None

    def runs(self, *_: object) -> bool:
        return False

    def attempt_at(self, path: str) -> None:
        return None

    # What it does

    def live(self) -> None:
        """Take tasks and run them, and see at each beat to what Redis has lost."""
        for _ in range(ROUNDS):
            self.take_all()
            self.see_to_lost()

    def take_all(self) -> None:
        while True:
            try:
                task = self.listener.take()
            except NotRegistered:
                self.register()
            except RedisAway:
                continue
            else:
                if task is None:
                    return
                self.run(task)

    def register(self) -> None:
        insist(lambda: self.listener.register(Timing()))
        self.world.given[self.node] = self.ours.instance

    def run(self, task: Task) -> None:
        processor = Processor(self.redis, task, MAX_BYTES)
        try:
            insist(lambda: processor.start(PID))
        except (NotOwner, NotRegistered):
            self.world.ledger.refused.append(self.node)
            return
        self.go_on(processor.task)

    def go_on(self, task: Task) -> None:
        """Have a task that has started run, beat meanwhile, and report how it has ended."""
        record = execute(self.world, task)
        if "to be handed back" in self.world.ledger.notes:
            self.world.ledger.notes.remove("to be handed back")
            record |= {"status": "failed", "handed_back": True}
        watch = self.watch(task)
        if task.parameters == "spawn":
            spawn(self.world, self.redis, task, "a", "b")
        if "schedule" in task.fields:  # a listener sees to schedules, too
            schedule_actors.fire(self.world, self.redis)
        self.beat(watch)
        if watch.reason == "cancelled":
            record |= {"status": "cancelled"}
        self.report(watch)

    def beat(self, watch: Any) -> None:
        """Do what a supervisor does with what a beat tells."""
        standing = insist(lambda: self.listener.beat(watch.task.id))
        if attempt_end.has_been_forgotten(watch, self.ours.instance, standing._asdict()):
            put_back = insist(lambda: self.ours.reassert(watch.task, PID, watch.instance))
            watch.reason = None if put_back is not None else "superseded"
        elif standing.status is None:
            return
        elif (standing.token, standing.status) != (watch.task.token, "started"):
            watch.reason = "superseded"
            if standing.token == watch.task.token or standing.status not in (*HELD, *FINISHED):
                self.world.ledger.notes.append("ended for nothing")
        elif standing.cancel is not None:
            watch.reason = "cancelled"

    def watch(self, task: Task) -> Any:
        ended = self.world.ledger.records.get(task.token or "", {}).get("status")
        return Watch(
            task=task,
            processor=Processor(self.redis, task, MAX_BYTES),
            attempt=Files(),
            pid=PID,
            pidfd=None,
            instance=self.ours.instance,
            reason="cancelled" if ended == "cancelled" else None,
            asked_for=None,
            error=None,
        )

    def report(self, watch: Any) -> None:
        record = self.world.ledger.records[watch.task.token]
        if self._end.report(watch, self._reporter, insist):
            may_go_on = "retry" in watch.task.fields or "handed_back" in record
            goes_on = may_go_on and record["status"] == "failed"
            self.world.ledger.told[watch.task.token] = "" if goes_on else record["status"]
        elif self.world.redis.read(("EXISTS", keys.task(watch.task.id))) == [0]:
            self.world.ledger.notes.append("dropped")

    def see_to_lost(self) -> None:
        """Beat, tell ends again that Redis has lost, and put back what is in our list and should not
        be.
        """
        try:
            held = insist(self.listener.beat).held
            insist(lambda: self._adoption.put_back([one for one in held if one[0] == QUEUE]))
            for candidate in insist(self._adoption.of_our_lists):
                watch = insist(lambda candidate=candidate: self._adoption.take_over(candidate))  # type: ignore[misc]
                if watch is not None:
                    self.report(watch)
        except NotRegistered:
            self.register()


def runs_on(world: World, state: State) -> str | None:
    """Return what is wrong with attempts that went on while Redis went back."""
    if "ended for nothing" in world.ledger.notes:
        return "an attempt was ended, and no other had begun"
    if "dropped" in world.ledger.notes:
        return "Redis had lost a task, and so its listener has dropped how that ended"
    return None


def live(world: World, redis: Redis, node: str) -> None:
    Slot(world, redis, node).live()


def go_on(world: World, redis: Redis, node: str) -> None:
    """Be a listener whose task has started."""
    slot = Slot(world, redis, node)
    slot.go_on(world.given["task"])
    slot.live()


def hand_back(world: World, redis: Redis, node: str) -> None:
    """Be a listener whose task gives itself back."""
    world.ledger.notes.append("to be handed back")
    go_on(world, redis, node)


def drive(world: World, redis: Redis) -> None:
    """Be a call with keys, which is made again if Redis has lost members, or that it was opened."""
    for _ in range(TRIES):
        with suppress(WrongGroup, NoSuchGroup):
            drive_group(world, redis)
            world.ledger.notes.append("closed")
            return


def feed(world: World, redis: Redis) -> None:
    """Be a feeder of two rows, who reads the record anew when the cursor is elsewhere; and whoever
    runs it again when Redis has lost that it feeds.
    """
    rows, is_over = -1, False
    while not is_over:
        try:
            rows, is_over = insist(lambda: feed_on(redis, rows))  # noqa: B023
        except Taken:
            rows = -1
    if world.redis.read(("EXISTS", keys.task("f-0"), keys.task("f-1"))) != [2]:
        world.ledger.notes.append("the feed has ended, and rows of it are lost")


def feed_on(redis: Redis, rows: int) -> tuple[int, bool]:
    """Do the next step when so many rows are fed; -1: that is to be read. Return how many are fed
    then, and whether the feed has ended.
    """
    ref, now = FeedRef(QUEUE, "f", "the feeder"), time.time()
    if rows < 0:
        return int(protocol.begin_feed(redis, ref, "i", "b", {}, None, now)["rows"]), False
    if rows == 2:
        is_over = protocol.end_feed(redis, ref, Whole(2, {"b": "m"}), now)
        return 2 if is_over else -1, is_over
    batch = Batch(QUEUE, NewTasks([b"f-%d" % rows], [(b"ok", False)]), now, {"feed": "f"})
    chunk = FeedChunk(rows, Cursor("b", "m", rows + 1, 0, rows + 1), batch)
    is_fed = protocol.feed(redis, ref, chunk, Window(9), now).verdict == "fed"
    return rows + 1 if is_fed else -1, False


# When all is over


def drain_after(world: World) -> None:
    """Be those who live: they see to what Redis has lost, and then whoever comes next."""
    for node in ("a_1", "b_1"):
        if node in world.given:
            Slot(world, world.redis, node).live()
    drain_tied(world)


def drain_fired(world: World) -> None:
    """The same, when the schedule has been looked at again."""
    schedule_actors.fire(world, world.redis)
    drain_after(world)


def drain_group(world: World) -> None:
    """The same, when the call was made again, which has made nothing new if nothing was lost."""
    drive(world, world.redis)
    drain_after(world)


def drain_fed(world: World) -> None:
    """The same, when the backlog was fed again."""
    feed(world, world.redis)
    drain_after(world)
