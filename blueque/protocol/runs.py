"""Runs, which make each of their tasks once, however often they are tried.

open_run, enqueue_run, close_run, drop_run, prune_runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from blueque.connection.redis import Command, Look, Redis, as_hash, pack
from blueque.errors import RunDropped, WrongRun
from blueque.model import keys
from blueque.model.ids import octets_of, shards_of
from blueque.model.run import Record, parse, require_same
from blueque.protocol.bulk import Batch, NewTasks, pack_with
from blueque.protocol.submit import Options
from blueque.protocol.transaction import Answer, Change, transact

IDENTITY = ("run", "queue", "kind", "state", "created")


class RunBatch(Batch):
    """New tasks of a keyed run, packed for one transaction. Each id is there once. record: of the
    run that is meant.
    """

    def __init__(self, record: Record, tasks: NewTasks, now: float, options: Options) -> None:
        queue, run, shards = record["queue"], record["run"], record["shards"]
        self.run, self.created = run, record["created"]
        self._moved = pack(("ZADD", keys.runs(queue), now, run))
        octets = octets_of(tasks.ids)
        self._octets = octets
        self._shards: dict[int, Sequence[int]] = {0: range(len(octets))}
        if shards > 1:
            self._shards = {}
            for number, shard in enumerate(shards_of(tasks.ids, shards)):
                self._shards.setdefault(shard, []).append(number)  # type: ignore[attr-defined]
        super().__init__(queue, tasks, now, {**(options or {}), "run": run})
        self.commands += self._entered()
        self.look = self._looking(pack_with(("EXISTS",), tasks.ids, keys.task("").encode()))

    def look_at_each(self) -> Look:
        """For when some of the tasks are there already, and are not in the ledger: which?"""
        return self._looking(*[("EXISTS", keys.task(task.decode())) for task in self.tasks.ids])

    def are_listed(self, replies: Sequence[Any]) -> list[int]:
        """Return for each task whether it is in its ledger, from what was answered behind the
        record.
        """
        if len(self._shards) == 1:
            return list(replies[0])
        listed = [0] * len(self._octets)
        for numbers, answers in zip(self._shards.values(), replies, strict=False):
            for number, answer in zip(numbers, answers, strict=True):
                listed[number] = answer
        return listed

    def exist(self, replies: Sequence[Any]) -> Sequence[int] | None:
        """Return likewise for each task whether it has a hash; nothing if none has; None if some
        have, who knows which.
        """
        found = replies[len(self._shards) :]
        if not any(found):
            return ()
        return found if len(found) == len(self._octets) else None

    def commands_to_make(self, new: Sequence[int], unlisted: Sequence[int]) -> list[Command]:
        """Return the commands that make some of the tasks, and enter some in their ledgers."""
        if len(new) == len(self._octets):
            return self.commands
        return [*(self.commands_for(new) if new else ()), *self._entered(set(unlisted))]

    def _entered(self, chosen: set[int] | None = None) -> list[Command]:
        """Return the commands that enter those with these numbers, or all, in their ledgers."""
        commands: list[Command] = []
        for shard, numbers in self._shards.items():
            some = [
                self._octets[number] for number in numbers if chosen is None or number in chosen
            ]
            if some:
                commands.append(pack_with(("SADD", self._ledger(shard)), some))
        return [*commands, self._moved]

    def _looking(self, *exist: Command) -> Look:
        record = keys.run(self.queue, self.run)
        ledgers = [self._ledger(shard) for shard in self._shards]
        reads: list[Command] = [("HMGET", record, *IDENTITY)]
        for ledger, numbers in zip(ledgers, self._shards.values(), strict=True):
            reads.append(
                pack_with(("SMISMEMBER", ledger), [self._octets[number] for number in numbers])
            )
        return Look((record, *ledgers), [*reads, *exist])

    def _ledger(self, shard: int) -> str:
        return keys.ledger(self.queue, self.run, shard)


def open_run(
    redis: Redis,
    queue: str,
    run: str,
    kind: str,
    shards: int | None,
    keep: int,
    now: float,
    created: float | None = None,
) -> Record:
    """Make the record of a run if there is none, note that somebody is at work on it, and return it
    as it is.

    kind: keyed, staged or stream. shards: of a keyed run, fixed when it is made. keep: see
        close_run, finish_run.
    created: of the record that is meant, by whoever takes part in a run that another has opened;
    raises RunDropped when it is gone, even if there is a new one under its name: what the old one
    knew, the new one does not.
    """
    key = keys.run(queue, run)
    made: Record = {
        "run": run,
        "queue": queue,
        "kind": kind,
        "state": "open",
        "keep": keep,
        "created": now,
    }
    if shards is not None:
        made["shards"] = shards

    def decide(reply: Sequence[str]) -> Answer | Change:
        if reply:
            known = as_hash(reply)
            require_same(known, queue, run, kind)
            record = parse(known)
            if created not in (None, record.get("created")):
                raise RunDropped(run, queue)
            # Else whoever clears up would take one that is tried again for one that broke off long
            # ago.
            if record.get("state") != "open":
                return Answer(record)
            return Change([("ZADD", keys.runs(queue), now, run)], record)
        if created is not None:
            raise RunDropped(run, queue)
        return Change(
            [
                ("HSET", key, *[word for field in made.items() for word in field]),
                ("ZADD", keys.runs(queue), now, run),
                ("ZINCRBY", keys.QUEUES, 0, queue),
            ],
            made,
        )

    record: Record = transact(redis, "open_run", Look((key,), [("HGETALL", key)]), decide)
    return record


def enqueue_run(
    redis: Redis,
    batch: RunBatch,
    follower: RunBatch | None = None,
    meanwhile: Callable[[], object] | None = None,
) -> list[bool]:
    """Make the tasks of a keyed run that are not in its ledger, and tell which; none if the run is
    committed.

    follower: the batch that comes next on this connection; its look travels with our EXEC.
        meanwhile: see transact.
    """
    ahead = follower.look if follower is not None else None
    perhaps: set[int] = set()
    made = _enqueue_run(redis, batch, batch.look, perhaps, ahead, meanwhile)
    if made is None:
        made = _enqueue_run(redis, batch, batch.look_at_each(), perhaps, ahead, meanwhile)
    return made or []


def _enqueue_run(
    redis: Redis,
    batch: RunBatch,
    look: Look,
    perhaps: set[int],
    ahead: Look | None,
    meanwhile: Callable[[], object] | None,
) -> list[bool] | None:
    """Return which are made; None: some exist, and it takes a look at each to know which.

    perhaps: the numbers of those that were in an EXEC whose answer was lost: if they are in the
        ledger, they are ours.
    """
    count = len(batch.tasks.ids)
    tried: set[int] = set()  # in the EXEC that was sent last

    def decide(identity: Sequence[str | None], *replies: Any) -> Answer | Change:
        if not is_open(identity, batch.queue, batch.run, ("keyed",), batch.created):
            return Answer([False] * count)
        listed, exist = batch.are_listed(replies), batch.exist(replies)
        unlisted = [number for number, is_in in enumerate(listed) if not is_in]
        if not unlisted:
            return Answer([number in perhaps for number in range(count)])
        if exist is None:
            return Answer(None)
        new = [number for number in unlisted if not exist[number]] if exist else unlisted
        tried.clear()
        tried.update(new)
        ours = perhaps | tried
        return Change(
            batch.commands_to_make(new, unlisted), [number in ours for number in range(count)]
        )

    def again() -> Look:
        perhaps.update(tried)
        return look

    made: list[bool] | None = transact(
        redis, "enqueue_run", look, decide, ahead=ahead, again=again, meanwhile=meanwhile
    )
    return made


def close_run(redis: Redis, opened: Record, rows: int, mark: str, now: float) -> Record:
    """Declare that all of a keyed run is there, forget its ledgers, and return its record;
    `decided_by` says whose doing.

    opened: the record as it was when it was opened. rows: how many there were. mark: a random text,
    the same for every try. Raises RunDropped.
    """
    queue, run, shards = opened["queue"], opened["run"], opened["shards"]
    key = keys.run(queue, run)
    ledgers = [keys.ledger(queue, run, shard) for shard in range(shards)]

    def decide(reply: Sequence[str], *counts: int) -> Answer | Change:
        known = as_hash(reply)
        record = parse(known)
        if not is_open(
            [known.get(name) for name in IDENTITY], queue, run, ("keyed",), opened["created"]
        ):
            return Answer(record)
        decided: Record = {
            "state": "committed",
            "rows": rows,
            "tasks": sum(counts),
            "decided_by": mark,
            "finished": now,
        }
        return Change(
            [
                ("HSET", key, *[word for field in decided.items() for word in field]),
                ("UNLINK", *ledgers),
                ("EXPIRE", key, record["keep"]),
            ],
            record | decided,
        )

    look = Look((key, *ledgers), [("HGETALL", key), *[("SCARD", ledger) for ledger in ledgers]])
    record: Record = transact(redis, "close_run", look, decide)
    return record


def drop_run(redis: Redis, queue: str, run: str, moved: float | None = None) -> bool:
    """Forget a run, of which nothing is staged. False: there is no such run, or something is
    staged. Tasks stay as they are.

    moved: when somebody was last at work on it, as far as the caller knows; False, too, if it was
        later.
    Raises WrongRun when it is decided, but not yet published.
    """
    key, staging = keys.run(queue, run), keys.staging(queue, run)

    def decide(reply: Sequence[str], staged: int, score: str | None) -> Answer | Change:
        known = as_hash(reply)
        if not known or staged or (moved is not None and float(score or 0.0) > moved):
            return Answer(False)
        require_same(known, queue, run, "keyed", "staged", "stream")
        if known["state"] == "committing":
            raise WrongRun(run, queue, "it is decided, and has to be finished")
        ledgers = [keys.ledger(queue, run, shard) for shard in range(int(known.get("shards", 0)))]
        return Change(
            [
                ("DEL", key),
                *([("UNLINK", *ledgers)] if ledgers else []),
                ("ZREM", keys.runs(queue), run),
            ],
            True,
        )

    index = keys.runs(queue)
    look = Look(
        (key, staging, index), [("HGETALL", key), ("EXISTS", staging), ("ZSCORE", index, run)]
    )
    return bool(transact(redis, "drop_run", look, decide))


def prune_runs(redis: Redis, queue: str) -> int:
    """Take some runs off the list of runs of which nothing is left, and return how many."""
    (some,) = redis.read(("ZRANDMEMBER", keys.runs(queue), 10))
    if not some:
        return 0
    watch = [key for name in some for key in (keys.run(queue, name), keys.staging(queue, name))]

    def decide(*exist: int) -> Answer | Change:
        gone = [
            name
            for name, *either in zip(some, exist[::2], exist[1::2], strict=True)
            if not any(either)
        ]
        return Change([("ZREM", keys.runs(queue), *gone)], len(gone)) if gone else Answer(0)

    return int(
        transact(redis, "prune_runs", Look(watch, [("EXISTS", key) for key in watch]), decide)
    )


def is_open(
    identity: Sequence[str | None],
    queue: str,
    run: str,
    kinds: Sequence[str],
    created: float | None,
) -> bool:
    """Tell whether the run is open still, by the fields in IDENTITY. Raises RunDropped, WrongRun.

    created: of the record that is meant; None: any that has this name.
    """
    known: Mapping[str, str | None] = dict(zip(IDENTITY, identity, strict=True))
    if known["run"] is None:
        raise RunDropped(run, queue)
    require_same(known, queue, run, *kinds)
    if created is not None and known["created"] != str(created):
        raise RunDropped(run, queue)
    return known["state"] == "open"
