"""All or nothing: tasks are staged in chunks, and one record decides. stage, commit_run, publish,
finish_run, discard.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from blueque.connection.redis import Command, Look, Redis, as_hash, pack
from blueque.errors import OldBatch, RunDropped, WrongRun
from blueque.model import keys
from blueque.model.lines import DEFAULT, line_of
from blueque.model.run import Record, parse
from blueque.protocol.bulk import NewTasks, hashes
from blueque.protocol.fields import make_known
from blueque.protocol.runs import IDENTITY, is_open
from blueque.protocol.submit import Options
from blueque.protocol.transaction import Answer, Change, transact

KINDS = ("staged", "stream")


class Chunk:
    """New tasks that are to be staged together, packed, under a name that nobody else has. record:
    of their run.
    """

    def __init__(
        self, record: Record, name: str, tasks: NewTasks, now: float, options: Options
    ) -> None:
        queue, run = record["queue"], record["run"]
        self.queue, self.run, self.created, self.name = queue, run, record["created"], name
        key, known = keys.staged(name), keys.run(queue, run)
        self.look = Look((key, known), (("EXISTS", key), ("HMGET", known, *IDENTITY)))
        self.commands: list[Command] = [
            *hashes(queue, tasks, now, {**(options or {}), "run": run}),
            pack(("RPUSH", key, now, *_entries(tasks, options))),
            ("ZADD", keys.staging(queue, run), now, name),
        ]


class Decision(NamedTuple):
    """What a commit has come to.

    record: of the run. is_late: somebody else had decided before. is_behind: the batch before is to
        be finished first.
    others: chunks that were staged besides, and can no longer be committed.
    """

    record: Record
    is_late: bool
    is_behind: bool = False
    others: Sequence[str] = ()


def stage(
    redis: Redis,
    chunk: Chunk,
    follower: Chunk | None = None,
    meanwhile: Callable[[], object] | None = None,
) -> bool:
    """Put tasks into Redis where nobody sees them. False: the run is decided, and nothing was
    written.

    follower: the chunk that comes next on this connection; its look travels with our EXEC.
        meanwhile: see transact.
    """

    def decide(exists: int, identity: Sequence[str | None]) -> Answer | Change:
        is_wanted = (
            is_open(identity, chunk.queue, chunk.run, KINDS, chunk.created)
            or identity[2] == "stream"
        )
        if exists or not is_wanted:
            return Answer(bool(exists))
        return Change(chunk.commands, True)

    ahead = follower.look if follower is not None else None
    return bool(transact(redis, "stage", chunk.look, decide, ahead=ahead, meanwhile=meanwhile))


def commit_run(
    redis: Redis,
    opened: Record,
    names: Sequence[str],
    batch: int | None,
    mark: str,
    now: float,
    query: str | None = None,
) -> Decision:
    """Decide that these chunks are what the run consists of, or the batch of a stream, unless that
    is decided.

    opened: the record as it was when it was opened. names: in the order in which their tasks are to
    run. batch: None if it is no stream. mark: a random text, the same for every try. query: whose
        batches these are: of a stream all are of one.
    Raises RunDropped when a chunk is no longer staged, or the record is gone; OldBatch; WrongRun
    for another query.
    """
    queue, run = opened["queue"], opened["run"]
    key, staging = keys.run(queue, run), keys.staging(queue, run)
    others: list[str] = []

    def decide(reply: Sequence[str], staged: Sequence[str]) -> Answer | Change:
        known = as_hash(reply)
        kind = "staged" if batch is None else "stream"
        is_free = is_open(
            [known.get(name) for name in IDENTITY], queue, run, (kind,), opened["created"]
        )
        record = parse(known)
        if query is not None and record.get("query", query) != query:
            raise WrongRun(
                run,
                queue,
                "its batches are of another query; one with a new checkpoint needs a new name",
            )
        last = record.get("batch", -1)
        if batch is not None and batch < last:
            raise OldBatch(run, queue, batch, last)
        if batch == last or not is_free:
            is_ours = record.get("decided_by") == mark
            is_behind = batch is not None and batch > last
            return Answer(Decision(record, not is_ours, is_behind, others if is_ours else ()))
        gone = set(names) - set(staged)
        if gone:
            raise RunDropped(run, queue, len(gone))
        decided: Record = {"state": "committing", "tasks": 0, "decided_by": mark, "decided": now}
        if batch is not None:
            decided["batch"] = batch
        if query is not None:
            decided["query"] = query
        commands: list[Command] = [
            ("HSET", key, *[word for field in decided.items() for word in field])
        ]
        if names:
            commands += [("ZREM", staging, *names), ("RPUSH", keys.manifest(queue, run), *names)]
        chosen = set(names)
        others[:] = [name for name in staged if name not in chosen]
        return Change(commands, Decision(record | decided, False, others=others))

    look = Look((key, staging), [("HGETALL", key), ("ZRANGE", staging, 0, -1)])
    decision: Decision = transact(redis, "commit_run", look, decide)
    return decision


def publish(redis: Redis, queue: str, run: str, chunk: str, follower: str | None = None) -> int:
    """Put the tasks of a chunk that is decided in line, or among the scheduled ones; return how
    many. 0: that was done.

    follower: the chunk that comes next on this connection; its look travels with our EXEC.
    """
    key = keys.staged(chunk)

    def decide(content: Sequence[str]) -> Answer | Change:
        if not content:
            return Answer(0)
        created, *entries = content
        tasks, lines, later = _sorted(entries)
        commands: list[Command] = [("ZINCRBY", keys.QUEUES, 0, queue)]
        commands += [("LPUSH", keys.line(queue, line), *some) for line, some in lines.items()]
        commands += make_known(queue, *lines)
        if later:
            commands += [("ZADD", keys.scheduled(queue), *later)]
        commands += [
            ("ZADD", keys.tasks(queue), *[word for task in tasks for word in (created, task)])
        ]
        if lines:
            commands += [("ZADD", keys.wake(queue), 0, 0)]
        commands += [
            ("UNLINK", key),
            ("LREM", keys.manifest(queue, run), 1, chunk),
            ("HINCRBY", keys.run(queue, run), "tasks", len(tasks)),
        ]
        return Change(commands, len(tasks))

    ahead = _content(follower) if follower is not None else None
    return int(transact(redis, "publish", _content(chunk), decide, ahead=ahead))


def finish_run(redis: Redis, queue: str, run: str, now: float) -> Record | None:
    """Declare that all of a decided run is published, and return its record; None: something is
    not.

    The record expires when it was kept long enough; that of a stream is open for the next batch
    instead.
    """
    key, manifest = keys.run(queue, run), keys.manifest(queue, run)

    def decide(reply: Sequence[str], unpublished: int) -> Answer | Change:
        known = as_hash(reply)
        is_open([known.get(name) for name in IDENTITY], queue, run, KINDS, None)
        record = parse(known)
        if record["state"] != "committing":
            return Answer(record)
        if unpublished:
            return Answer(None)
        is_stream = record["kind"] == "stream"
        done: Record = {
            "state": "open" if is_stream else "committed",
            "rows": record["tasks"],
            "finished": now,
        }
        commands: list[Command] = [
            ("HSET", key, *[word for field in done.items() for word in field])
        ]
        if not is_stream:
            commands += [("EXPIRE", key, record["keep"])]
        return Change(commands, record | done)

    look = Look((key, manifest), [("HGETALL", key), ("LLEN", manifest)])
    finished: Record | None = transact(redis, "finish_run", look, decide)
    return finished


def discard(
    redis: Redis,
    queue: str,
    run: str,
    chunk: str,
    follower: str | None = None,
    created: float | None = None,
) -> bool:
    """Delete the tasks of a chunk that is staged. False: it is not, or is decided.

    follower: the chunk that comes next on this connection; its look travels with our EXEC.
    created: of the record that is meant: what is staged for a later run of this name stays.
    """
    staging = keys.staging(queue, run)

    def decide(
        score: str | None, content: Sequence[str], its_created: str | None
    ) -> Answer | Change:
        if score is None or (None not in (created, its_created) and its_created != str(created)):
            return Answer(False)
        tasks, _, _ = _sorted(content[1:])
        commands: list[Command] = [("UNLINK", *map(keys.task, tasks))] if tasks else []
        return Change([*commands, ("UNLINK", keys.staged(chunk)), ("ZREM", staging, chunk)], True)

    ahead = _membership(queue, run, follower) if follower is not None else None
    return bool(transact(redis, "discard", _membership(queue, run, chunk), decide, ahead=ahead))


def _content(chunk: str) -> Look:
    return Look((keys.staged(chunk),), (("LRANGE", keys.staged(chunk), 0, -1),))


def _membership(queue: str, run: str, chunk: str) -> Look:
    staging, key, record = keys.staging(queue, run), keys.staged(chunk), keys.run(queue, run)
    reads = (("ZSCORE", staging, chunk), ("LRANGE", key, 0, -1), ("HGET", record, "created"))
    return Look((staging, key, record), reads)


def _entries(tasks: NewTasks, options: Options) -> Sequence[bytes]:
    """Return what publish has to know of each task: its id, its line unless it is the default one,
    and its eta.
    """
    priority, needs = (str((options or {}).get(name, "")) for name in ("priority", "needs"))
    if tasks.priorities is None and tasks.etas is None:
        line = line_of(priority, needs)
        return (
            tasks.ids
            if line == DEFAULT
            else [b"%b %b" % (task, line.encode()) for task in tasks.ids]
        )
    entries = []
    for number, task in enumerate(tasks.ids):
        eta = tasks.etas[number] if tasks.etas is not None else None
        line = line_of(
            priority if tasks.priorities is None else str(tasks.priorities[number]), needs
        )
        words = [line, str(eta)] if eta is not None else [line] if line != DEFAULT else []
        entries.append(b" ".join([task, *[word.encode() for word in words]]))
    return entries


def _sorted(entries: Sequence[str]) -> tuple[Sequence[str], dict[str, Sequence[str]], list[str]]:
    """Return all tasks of a chunk, those that are put in line by their line, and score and id of
    those for later.
    """
    if not any(" " in entry for entry in entries):
        return entries, {DEFAULT: entries} if entries else {}, []
    tasks: list[str] = []
    lines: dict[str, list[str]] = {}
    later: list[str] = []
    for entry in entries:
        task, *words = entry.split(" ")
        tasks.append(task)
        if len(words) > 1:
            later += [words[1], task]
        else:
            lines.setdefault(words[0] if words else DEFAULT, []).append(task)
    return tasks, {**lines}, later
