"""Keyed runs: each task is created once, however often the run is tried again.

open_run, reopen_run, enqueue_run, close_run, collect_run, drop_run, prune_runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from blueque.connection.redis import AnyLook, Command, Look, Redis, as_hash, pack
from blueque.errors import RunDropped, WrongGroup, WrongRun
from blueque.model import keys
from blueque.model.group import Links
from blueque.model.ids import octets_of, shards_of
from blueque.model.run import LATE, Record, parse, require_names, require_same
from blueque.protocol.bulk import Batch, NewTasks
from blueque.protocol.fields import flat
from blueque.protocol.links import (
    NewLinks,
    blocking,
    closing_of,
    entering,
    joining,
    joins_of_run,
    look_at_group,
    made_by,
    parents_of,
    reopening_of,
)
from blueque.protocol.packing import pack_with
from blueque.protocol.submit import Options
from blueque.protocol.transaction import Answer, Change, Verdict, transact
from blueque.protocol.watches import exist_all


class RunFields(NamedTuple):
    """The fields of the record of a run that say which run it is, and whether it is open."""

    run: str | None
    queue: str | None
    kind: str | None
    state: str | None
    created: str | None

    @classmethod
    def of(cls, record: Mapping[str, str]) -> RunFields:
        return cls._make(map(record.get, cls._fields))


class RunTerms(NamedTuple):
    """What is fixed when a run is opened.

    keep: see close_run. shards: in how many its tasks are divided.
    links: of all its tasks; none: those that it was opened with first.
    hold: for how many seconds at most its tasks are not pruned; None: as usual.
    """

    keep: int
    shards: int
    links: Links = Links()  # it does not change
    hold: int | None = None


class RunBatch(Batch):
    """New tasks of a keyed run, packed for one transaction. Each id occurs once. record: of the
    run.
    """

    def __init__(self, record: Record, tasks: NewTasks, now: float, options: Options) -> None:
        queue, run, shards = record["queue"], record["run"], record["shards"]
        self.run, self.created, self.links = run, record["created"], Links.of(record)
        self._parents, self._made = parents_of(self.links), now
        self._moved = pack(("ZADD", keys.runs(queue), now, run))
        octets = octets_of(tasks.ids)
        self._octets = octets
        self._shards: dict[int, Sequence[int]] = {0: range(len(octets))}
        if shards > 1:
            self._shards = {}
            for number, shard in enumerate(shards_of(tasks.ids, shards)):
                self._shards.setdefault(shard, []).append(number)  # type: ignore[attr-defined]
        linked = self.links.fields()
        super().__init__(queue, tasks, now, {**(options or {}), **linked, "run": run})
        self.commands += self._entered()
        self.look = self._looking(exist_all(tasks.ids))

    def look_at_each(self) -> AnyLook:
        """Return the look that tells which tasks exist, and in which groups, for when some exist
        that are not in the ledger.
        """
        names = [keys.task(task.decode()) for task in self.tasks.ids]
        look = self._looking(*[("EXISTS", name) for name in names])
        if self.links.group is None:
            return look
        groups: list[Command] = [("HGET", name, "group") for name in names]
        return look._replace(watch=(*look.watch, *names), reads=[*look.reads, *groups])

    def commands_for(self, chosen: Sequence[int]) -> list[Command]:
        """Return the commands that create the tasks with these numbers, with what they are linked
        to.
        """
        commands = super().commands_for(chosen)
        if not self.links:
            return commands
        ids = self.ids_of(chosen)
        return [
            *commands,
            *blocking(self.links, self.queue, ids, self._made),
            *joining(self.links, ids, self._made),
        ]

    def ids_of(self, chosen: Sequence[int]) -> list[str]:
        """Return the ids of the tasks with these numbers."""
        return [self.tasks.ids[number].decode() for number in chosen]

    def are_listed(self, replies: Sequence[Any]) -> list[int]:
        """Return for each task whether it is in its ledger, from the replies after the record."""
        if len(self._shards) == 1:
            return list(replies[0])
        listed = [0] * len(self._octets)
        for numbers, answers in zip(self._shards.values(), replies, strict=False):
            for number, answer in zip(numbers, answers, strict=True):
                listed[number] = answer
        return listed

    def exist(self, replies: Sequence[Any]) -> Sequence[int] | None:
        """Return for each task whether it has a hash, from the same replies.

        Empty: no task has one. None: some tasks have one, but the replies do not say which.
        """
        count = len(self._octets)
        asked = replies[len(self._shards) + len(self._parents.reads) :]
        exist, groups = asked[:count], asked[count:]
        if not any(exist):
            return ()
        if len(exist) < count or (self.links.group is not None and not groups):
            return None
        for number, (is_there, group) in enumerate(zip(exist, groups, strict=False)):
            if is_there and group != self.links.group:
                (task,) = self.ids_of([number])
                why = f"task {task} of this run is in Redis, and not in the group"
                raise WrongGroup(str(self.links.group), why)
        return exist

    def links_to_parents(self, replies: Sequence[Any], new: Sequence[int]) -> list[Command]:
        """Return the commands by which the parents of new tasks know of them.

        Raises NoSuchGroup, WrongGroup for a group that does not take them.
        """
        first = len(self._shards)
        linked = replies[first : first + len(self._parents.reads)]
        self._parents.require_open(linked, joins_of_run(self.links))
        return entering(self.links, self._parents, linked, self.ids_of(new), self._made)

    def rejoining(self, there: Sequence[int]) -> list[Command]:
        """Return the commands that have the group look at tasks that were there before."""
        if self.links.group is None or not there:
            return []
        ids = self.ids_of(there)
        scores = [word for task in ids for word in (self._made, task)]
        return [
            ("SADD", keys.open_members(self.links.group), *ids),
            ("ZADD", keys.UNSETTLED_MEMBERS, *scores),
        ]

    def commands_to_make(self, new: Sequence[int], unlisted: Sequence[int]) -> list[Command]:
        """Return the commands that create the `new` tasks, and enter the `unlisted` ones in their
        ledgers.
        """
        if len(new) == len(self._octets):
            return self.commands
        return [*(self.commands_for(new) if new else ()), *self._entered(set(unlisted))]

    def _entered(self, chosen: set[int] | None = None) -> list[Command]:
        """Return the commands that enter the tasks with these numbers, or all, in their ledgers."""
        commands: list[Command] = []
        for shard, numbers in self._shards.items():
            octets = [
                self._octets[number] for number in numbers if chosen is None or number in chosen
            ]
            if octets:
                commands.append(pack_with(("SADD", self._ledger(shard)), octets))
        return [*commands, self._moved]

    def _looking(self, *exist: Command) -> AnyLook:
        record = keys.run(self.queue, self.run)
        ledgers = [self._ledger(shard) for shard in self._shards]
        reads: list[Command] = [("HMGET", record, *RunFields._fields)]
        for ledger, numbers in zip(ledgers, self._shards.values(), strict=True):
            reads.append(
                pack_with(("SMISMEMBER", ledger), [self._octets[number] for number in numbers])
            )
        parents = self._parents
        return Look((record, *ledgers, *parents.watch), [*reads, *parents.reads, *exist])

    def _ledger(self, shard: int) -> str:
        return keys.ledger(self.queue, self.run, shard)


def open_run(
    redis: Redis, queue: str, run: str, terms: RunTerms, now: float, created: float | None = None
) -> Record:
    """Create the record of a run if there is none, note the time, and return the record.

    With links, it opens the group, too, if there is none.
    created: of the run, for a program that takes part in a run which another has opened. Raises
        RunDropped when that run is gone, even if a new one has its name: the ledgers are gone, too.
    Raises WrongRun when it was opened with other links; NoSuchTask, NoSuchGroup, WrongGroup
    for links of a new run.
    """
    key, links = keys.run(queue, run), terms.links
    kind = "keyed_linked" if links else "keyed"
    new: Record = {"run": run, "queue": queue, "kind": kind, "state": "open"}
    new |= {"keep": terms.keep, "created": now, "shards": terms.shards}
    new |= links.record() | ({} if terms.hold is None else {"hold": now + terms.hold})
    linked = NewLinks(links, made_by(queue, run), terms.hold or 0)

    def decide(reply: Sequence[str], *replies: Any) -> Verdict[Record]:
        if reply:
            texts = as_hash(reply)
            require_same(texts, queue, run)
            record = parse(texts)
            _require_links(record, links)
            if created not in (None, record.get("created")):
                raise RunDropped(run, queue)
            if record.get("state") != "open":
                return Answer(record)
            # The new time says that the run is not abandoned.
            return Change([("ZADD", keys.runs(queue), now, run)], record)
        if created is not None:
            raise RunDropped(run, queue)
        return Change(
            [
                ("HSET", key, *flat(new)),
                ("ZADD", keys.runs(queue), now, run),
                ("ZINCRBY", keys.QUEUES, 0, queue),
                *linked.commands(replies, now),
            ],
            new,
        )

    look: AnyLook = Look((key, *linked.watch), [("HGETALL", key), *linked.reads])
    return transact(redis, "open_run", look, decide)


def _require_links(record: Record, wanted: Links) -> None:
    """Refuse a run that was opened with other links. Those of a run that is committed do not
    matter, but for the group: others wait for it.
    """
    known = Links.of(record)
    if wanted and known.group != wanted.group:
        has = "without a group" if known.group is None else f"with the group {known.group!r}"
        raise WrongRun(record["run"], record["queue"], f"it was opened {has}")
    if wanted and record.get("state") == "open" and known != wanted:
        why = "it was opened with another `after` or `broken`; drop it, or choose another name"
        raise WrongRun(record["run"], record["queue"], why)


def reopen_run(redis: Redis, opened: Record, now: float, hold: int | None = None) -> Record:
    """Open a committed keyed run again, so that it takes new keys, with the group that it has
    opened; return its record.

    opened: the record as it was when it was opened. hold: see RunTerms; from now on.
    Raises RunDropped; WrongRun when its keys are forgotten; NoSuchGroup, WrongGroup
    when its group takes no tasks.
    """
    queue, run, shards = opened["queue"], opened["run"], opened["shards"]
    key, links = keys.run(queue, run), Links.of(opened)
    watched, reads = look_at_group(links, "state", "made_by", "cancel")
    ledgers = [keys.ledger(queue, run, shard) for shard in range(shards)]

    def decide(reply: Sequence[str], *replies: Any) -> Verdict[Record]:
        texts, counts, of_group = as_hash(reply), replies[:shards], replies[shards:]
        record = parse(texts)
        if is_open(RunFields.of(texts), queue, run, opened["created"]):
            return Answer(record)
        if sum(counts) != record.get("tasks"):
            raise WrongRun(run, queue, "it was committed long ago, and its keys are forgotten")
        again: Record = {"state": "open"} | ({} if hold is None else {"hold": now + hold})
        return Change(
            [
                ("HSET", key, *flat(again)),
                *([] if hold is None else [("HDEL", key, "collected")]),
                *[("PERSIST", each) for each in (key, *ledgers)],
                ("ZADD", keys.runs(queue), now, run),
                *reopening_of(links, queue, run, of_group, now),
            ],
            record | again,
        )

    scards: list[Command] = [("SCARD", ledger) for ledger in ledgers]
    look: AnyLook = Look((key, *ledgers, *watched), [("HGETALL", key), *scards, *reads])
    return transact(redis, "reopen_run", look, decide)


def enqueue_run(redis: Redis, batch: RunBatch) -> list[bool]:
    """Create the tasks of a keyed run that are not in its ledger, and tell which; empty if the run
    is committed.
    """
    perhaps: set[int] = set()
    created = _enqueue_run(redis, batch, batch.look, perhaps)
    if created is None:
        created = _enqueue_run(redis, batch, batch.look_at_each(), perhaps)
    return created or []


def _enqueue_run(
    redis: Redis, batch: RunBatch, look: AnyLook, perhaps: set[int]
) -> list[bool] | None:
    """Return which tasks this call created; None: some exist, and only a look at each tells which.

    perhaps: the numbers of tasks in an EXEC whose reply was lost: if they are in the ledger, this
        call created them.
    """
    count = len(batch.tasks.ids)
    tried: set[int] = set()  # in the EXEC that was sent last

    def decide(reply: list[str | None], *replies: Any) -> Verdict[list[bool] | None]:
        fields = RunFields._make(reply)
        if not is_open(fields, batch.queue, batch.run, batch.created):
            return Answer([])
        listed, exist = batch.are_listed(replies), batch.exist(replies)
        unlisted = [number for number, is_in in enumerate(listed) if not is_in]
        if not unlisted:
            return Answer([number in perhaps for number in range(count)])
        if exist is None:
            return Answer(None)
        new = [number for number in unlisted if not exist[number]] if exist else unlisted
        linking = batch.links_to_parents(replies, new) if batch.links else []
        there = set(unlisted).difference(new)
        tried.clear()
        tried.update(new)
        ours = perhaps | tried
        commands = [
            *batch.commands_to_make(new, unlisted),
            *linking,
            *batch.rejoining(sorted(there)),
        ]
        made = [number in ours for number in range(count)]
        return Change(commands, made)

    def again(is_unknown: bool) -> AnyLook:
        if is_unknown:
            perhaps.update(tried)
        return look

    return transact(redis, "enqueue_run", look, decide, again=again)


def close_run(
    redis: Redis,
    opened: Record,
    rows: int,
    mark: str,
    now: float,
    is_more: bool = False,
    least: int = 0,
) -> Record:
    """Commit a keyed run, and return its record; `decided_by` says which call committed it. Its
    ledgers expire.

    opened: the record as it was when it was opened. rows: how many there were. mark: random, the
        same for every try. is_more: these rows come to those of the record.
    least: how many tasks the run must have made.
    Raises RunDropped, also if it has made fewer. The group of the run is closed with it.
    """
    queue, run, shards = opened["queue"], opened["run"], opened["shards"]
    key, links = keys.run(queue, run), Links.of(opened)
    watched, reads = look_at_group(links, "state", "made_by")
    ledgers = [keys.ledger(queue, run, shard) for shard in range(shards)]

    def decide(reply: Sequence[str], *replies: Any) -> Verdict[Record]:
        texts, counts, of_group = as_hash(reply), replies[:shards], replies[shards:]
        record = parse(texts)
        if not is_open(RunFields.of(texts), queue, run, opened["created"]):
            return Answer(record)
        tasks = sum(counts)
        if tasks < least:
            raise RunDropped(run, queue, tasks=least - tasks)
        decided: Record = {
            "state": "committed",
            "rows": rows + (record.get("rows", 0) if is_more else 0),
            "tasks": tasks,
            "decided_by": mark,
            "finished": now,
        }
        late = min(record["keep"], LATE)
        return Change(
            [
                ("HSET", key, *flat(decided)),
                *[("EXPIRE", ledger, late) for ledger in ledgers],
                ("EXPIRE", key, record["keep"]),
                *closing_of(links, queue, run, of_group, now),
            ],
            record | decided,
        )

    scards: list[Command] = [("SCARD", ledger) for ledger in ledgers]
    look: AnyLook = Look((key, *ledgers, *watched), [("HGETALL", key), *scards, *reads])
    return transact(redis, "close_run", look, decide)


def collect_run(redis: Redis, queue: str, run: str, now: float) -> bool:
    """Note that the results of a run were collected: its tasks are pruned as usual from now on.

    False: that was noted before, or they are not held. Raises RunDropped, WrongRun.
    """
    key = keys.run(queue, run)

    def decide(reply: list[str | None]) -> Verdict[bool]:
        *fields, hold, collected = reply
        is_open(RunFields._make(fields), queue, run, None)
        if hold is None or collected is not None:
            return Answer(False)
        return Change([("HSET", key, "collected", now)], True)

    look: Look[list[str | None]] = Look(
        [key], [("HMGET", key, *RunFields._fields, "hold", "collected")]
    )
    return transact(redis, "collect_run", look, decide)


def drop_run(redis: Redis, queue: str, run: str, moved: float | None = None) -> bool:
    """Remove the record of a run. Its tasks stay. False: there is no such run, or it was worked on
    after `moved`.

    moved: when the run was last worked on, as far as the caller knows.
    """
    key, index = keys.run(queue, run), keys.runs(queue)

    def decide(reply: Sequence[str], score: str | None) -> Verdict[bool]:
        texts = as_hash(reply)
        if not texts or (moved is not None and float(score or 0.0) > moved):
            return Answer(False)
        require_names(texts, queue, run)
        shards = range(int(texts.get("shards", 0)))  # a run of an earlier version may have none
        ledgers = [keys.ledger(queue, run, shard) for shard in shards]
        commands: list[Command] = [("DEL", key), ("ZREM", index, run)]
        if ledgers:
            commands.insert(1, ("UNLINK", *ledgers))
        return Change(commands, True)

    look: Look[Sequence[str], str | None] = Look(
        (key, index), [("HGETALL", key), ("ZSCORE", index, run)]
    )
    return transact(redis, "drop_run", look, decide)


def prune_runs(redis: Redis, queue: str) -> int:
    """Remove runs that have expired from the index, of ten picked at random. Return how many."""
    (names,) = redis.read(("ZRANDMEMBER", keys.runs(queue), 10))
    if not names:
        return 0
    watch = [keys.run(queue, name) for name in names]

    def decide(*exist: int) -> Verdict[int]:
        gone = [name for name, is_there in zip(names, exist, strict=True) if not is_there]
        return Change([("ZREM", keys.runs(queue), *gone)], len(gone)) if gone else Answer(0)

    look: Look[*tuple[int, ...]] = Look(watch, [("EXISTS", key) for key in watch])
    return transact(redis, "prune_runs", look, decide)


def is_open(fields: RunFields, queue: str, run: str, created: float | None) -> bool:
    """Tell whether the run is still open. Raises RunDropped, WrongRun.

    created: of the run; None: any run with this name.
    """
    if fields.run is None:
        raise RunDropped(run, queue)
    require_same(fields._asdict(), queue, run)
    if created is not None and fields.created != str(created):
        raise RunDropped(run, queue)
    return fields.state == "open"
