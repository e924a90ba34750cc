"""Create tasks all or none: stage, commit_run, publish, finish_run, discard.

Tasks are staged in chunks, which no listener sees. The record of the run decides which count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from blueque.connection.packing import pack_words
from blueque.connection.redis import AnyLook, Command, Look, Redis, as_hash, pack
from blueque.errors import OldBatch, RunDropped, WrongRun
from blueque.model import keys
from blueque.model.lines import DEFAULT, line_of
from blueque.model.run import PUBLISHED, STAGED, Links, Record, parse
from blueque.protocol.bulk import NewTasks, hashes
from blueque.protocol.fields import flat, list_lines
from blueque.protocol.links import (
    blocking,
    closing_of,
    entering,
    joining,
    joins_of_run,
    look_at_group,
    rejoining,
)
from blueque.protocol.parents import Parents
from blueque.protocol.room import transact_in_line
from blueque.protocol.runs import RunFields, is_open
from blueque.protocol.submit import Options
from blueque.protocol.transaction import Answer, Change, Verdict, transact
from blueque.protocol.watches import with_bounds

KINDS = (*STAGED, "stream")


class Chunk:
    """New tasks that are staged together, packed, under a unique name. record: of their run."""

    def __init__(
        self, record: Record, name: str, tasks: NewTasks, now: float, options: Options
    ) -> None:
        queue, run, links = record["queue"], record["run"], Links.of(record)
        self.queue, self.run, self.created, self.name = queue, run, record["created"], name
        options = {**(options or {}), **links.fields()}
        key, of_run = keys.staged(name), keys.run(queue, run)
        self.look: Look[int, list[str | None]] = Look(
            (key, of_run), (("EXISTS", key), ("HMGET", of_run, *RunFields._fields))
        )
        self.commands: list[Command] = [
            *hashes(queue, tasks, now, {**options, "run": run}),
            pack(("RPUSH", key, now, *_entries(tasks, options))),
            ("ZADD", keys.staging(queue, run), now, name),
        ]


class Decision(NamedTuple):
    """The result of a commit.

    record: of the run. is_late: another call had decided before. is_behind: the batch before has to
        be finished first.
    others: further chunks that were staged, and can no longer be committed.
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
    """Put tasks into Redis where no listener sees them. False: the run is decided, and nothing was
    written.

    follower: the next chunk on this connection; its look is sent with our EXEC. meanwhile: see
        transact.
    """

    def decide(exists: int, reply: list[str | None]) -> Verdict[bool]:
        fields = RunFields._make(reply)
        is_wanted = (
            is_open(fields, chunk.queue, chunk.run, KINDS, chunk.created) or fields.kind == "stream"
        )
        if exists or not is_wanted:
            return Answer(bool(exists))
        return Change(chunk.commands, True)

    ahead = follower.look if follower is not None else None
    return transact(redis, "stage", chunk.look, decide, ahead=ahead, meanwhile=meanwhile)


def commit_run(
    redis: Redis,
    opened: Record,
    names: Sequence[str],
    batch: int | None,
    mark: str,
    now: float,
    query: str | None = None,
) -> Decision:
    """Decide that these chunks are the run, or the batch of a stream, unless that is decided.

    opened: the record as it was when it was opened. names: in the order in which their tasks are to
        run. batch: None for a run that is not a stream. mark: random, the same for every try.
    query: the id of the query; all batches of a stream are of one query.
    Raises RunDropped when a chunk is no longer staged, or the record is gone; OldBatch; WrongRun
    for another query; NoSuchGroup, GroupClosed, GroupCancelled for a group that takes no tasks;
    QueueFull, by which the chunks stay staged.
    """
    queue, run, links = opened["queue"], opened["run"], Links.of(opened)
    key, staging = keys.run(queue, run), keys.staging(queue, run)
    joins = joins_of_run(links)
    joined = Parents((), joins)
    others: list[str] = []
    tasks = _tasks_of(redis, queue, names)
    at_once = {queue: tasks} if names and not links.conditions else {}

    def decide(reply: Sequence[str], staged: Sequence[str], *replies: Any) -> Verdict[Decision]:
        texts = as_hash(reply)
        kinds = STAGED if batch is None else ("stream",)
        is_free = is_open(RunFields.of(texts), queue, run, kinds, opened["created"])
        record = parse(texts)
        last = record.get("batch", -1)
        _require_batch(record, query, batch, last)
        if batch == last or not is_free:
            is_ours = record.get("decided_by") == mark
            is_behind = batch is not None and batch > last
            return Answer(Decision(record, not is_ours, is_behind, others if is_ours else ()))
        gone = set(names) - set(staged)
        if gone:
            raise RunDropped(run, queue, len(gone))
        joined.require_open(replies, joins)
        # Programs that know nothing of links would publish what is `committing`.
        state = "publishing" if links else "committing"
        decided: Record = {"state": state, "tasks": 0, "decided_by": mark, "decided": now}
        of_stream = {"batch": batch, "query": query}
        decided |= {name: value for name, value in of_stream.items() if value is not None}
        commands: list[Command] = [("HSET", key, *flat(decided))]
        if names:
            commands += [("ZREM", staging, *names), ("RPUSH", keys.manifest(queue, run), *names)]
        chosen = set(names)
        others[:] = [name for name in staged if name not in chosen]
        decision = Decision(record | decided, False, others=others)
        return Change(commands, decision, joins=at_once)

    look: AnyLook = Look(
        (key, staging, *joined.watch), [("HGETALL", key), ("ZRANGE", staging, 0, -1), *joined.reads]
    )
    return transact_in_line(redis, "commit_run", with_bounds(look), decide)


def _tasks_of(redis: Redis, queue: str, names: Sequence[str]) -> int:
    """Return how many tasks the chunks of a bounded queue have; 1 for any other."""
    (is_bounded,) = redis.read(("SISMEMBER", keys.BOUNDED, queue))
    if not (is_bounded and names):
        return 1
    lengths = redis.read(*[("LLEN", keys.staged(name)) for name in names])
    return sum(lengths) - sum(length > 0 for length in lengths)  # each begins with a time


def _require_batch(record: Record, query: str | None, batch: int | None, last: int) -> None:
    """Refuse a batch of another query, or one before the last."""
    run, queue = record["run"], record["queue"]
    if query is not None and record.get("query", query) != query:
        why = "its batches are of another query; one with a new checkpoint needs a new name"
        raise WrongRun(run, queue, why)
    if batch is not None and batch < last:
        raise OldBatch(run, queue, batch, last)


def publish(
    redis: Redis,
    queue: str,
    run: str,
    chunk: str,
    now: float,
    follower: str | None = None,
    links: Links = Links(),  # noqa: B008  # it does not change
) -> int:
    """Put the tasks of a committed chunk in line, or among the scheduled or the blocked ones. Return
    how many; 0: that was done before.

    follower: the next chunk on this connection; its look is sent with our EXEC. links: of the run.
    """
    key, parents = keys.staged(chunk), Parents(links.conditions)
    asked = len(parents.reads)

    def decide(content: Sequence[str], *replies: Any) -> Verdict[int]:
        if not content:
            return Answer(0)
        created, *entries = content
        tasks, lines, later = _sorted(entries)
        if links.conditions:
            lines, later = {}, []
        state = replies[asked][0] if links.group is not None else None
        joined = links if state is not None else links._replace(group=None)
        commands: list[Command] = [("ZINCRBY", keys.QUEUES, 0, queue)]
        commands += [
            pack_words(("LPUSH", keys.line(queue, line)), {"": some})
            for line, some in lines.items()
        ]
        commands += list_lines(queue, *lines)
        if later:
            commands += [("ZADD", keys.scheduled(queue), *later)]
        commands += [pack_words(("ZADD", keys.tasks(queue)), {"": tasks}, (created,))]
        if lines:
            commands += [("ZADD", keys.wake(queue), 0, 0)]
        commands += [
            ("UNLINK", key),
            ("LREM", keys.manifest(queue, run), 1, chunk),
            ("HINCRBY", keys.run(queue, run), "tasks", len(tasks)),
            *blocking(links, queue, tasks, now),
            *joining(joined, tasks),
            *entering(links, parents, replies[:asked], tasks, now),
            *rejoining(joined, state, now),
        ]
        return Change(commands, len(tasks))

    ahead = _content(follower, parents, links) if follower is not None else None
    return transact(redis, "publish", _content(chunk, parents, links), decide, ahead=ahead)


def finish_run(
    redis: Redis,
    queue: str,
    run: str,
    now: float,
    links: Links = Links(),  # noqa: B008  # it does not change
) -> Record | None:
    """Record that a decided run is published, and return its record; None: a chunk is not published
    yet.

    The record expires after its time; that of a stream is open for the next batch instead.
    links: of the run. Its group is closed with it.
    """
    key, manifest = keys.run(queue, run), keys.manifest(queue, run)
    watched, reads = look_at_group(links, "state", "made_by")

    def decide(reply: Sequence[str], unpublished: int, *replies: Any) -> Verdict[Record | None]:
        texts = as_hash(reply)
        is_open(RunFields.of(texts), queue, run, KINDS, None)
        record = parse(texts)
        if record["state"] not in PUBLISHED:
            return Answer(record)
        if unpublished:
            return Answer(None)
        is_stream = record["kind"] == "stream"
        done: Record = {
            "state": "open" if is_stream else "committed",
            "rows": record["tasks"],
            "finished": now,
        }
        commands: list[Command] = [("HSET", key, *flat(done))]
        if not is_stream:
            commands += [("EXPIRE", key, record["keep"])]
        commands += closing_of(links, queue, run, replies, now)
        return Change(commands, record | done)

    look: AnyLook = Look((key, manifest, *watched), [("HGETALL", key), ("LLEN", manifest), *reads])
    return transact(redis, "finish_run", look, decide)


def discard(
    redis: Redis,
    queue: str,
    run: str,
    chunk: str,
    follower: str | None = None,
    created: float | None = None,
) -> bool:
    """Delete the tasks of a staged chunk. False: it is not staged, or is committed.

    follower: the next chunk on this connection; its look is sent with our EXEC.
    created: of the run; chunks of a later run with its name stay.
    """
    staging = keys.staging(queue, run)

    def decide(score: str | None, content: Sequence[str], run_created: str | None) -> Verdict[bool]:
        if score is None or (None not in (created, run_created) and run_created != str(created)):
            return Answer(False)
        tasks, _, _ = _sorted(content[1:])
        commands: list[Command] = [("UNLINK", *map(keys.task, tasks))] if tasks else []
        return Change([*commands, ("UNLINK", keys.staged(chunk)), ("ZREM", staging, chunk)], True)

    ahead = _membership(queue, run, follower) if follower is not None else None
    return transact(redis, "discard", _membership(queue, run, chunk), decide, ahead=ahead)


def _content(chunk: str, parents: Parents, links: Links) -> AnyLook:
    key = keys.staged(chunk)
    watched, reads = look_at_group(links, "state")
    return Look((key, *parents.watch, *watched), [("LRANGE", key, 0, -1), *parents.reads, *reads])


def _membership(queue: str, run: str, chunk: str) -> Look[str | None, Sequence[str], str | None]:
    staging, key, record = keys.staging(queue, run), keys.staged(chunk), keys.run(queue, run)
    reads = (("ZSCORE", staging, chunk), ("LRANGE", key, 0, -1), ("HGET", record, "created"))
    return Look((staging, key, record), reads)


def _entries(tasks: NewTasks, options: Options) -> Sequence[bytes]:
    """Return what publish needs of each task: its id, its line unless that is the default one, and
    its eta.
    """
    priority, needs = (str((options or {}).get(name, "")) for name in ("priority", "needs"))
    if "after" in (options or {}):  # they are blocked
        return tasks.ids
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
    """Return all tasks of a chunk, the tasks that are put in line by line, and score and id of the
    scheduled ones.
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
