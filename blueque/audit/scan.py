"""The scan of an audit: reads everything that Blueque has in Redis, in pieces.

SCAN is allowed only here: a key that nothing refers to cannot be found otherwise. A scan is for a
person or a test that asks for an audit, never for a daemon.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from blueque.audit import hash_fields
from blueque.audit.observation import Keys, LineSeen, ListenerSeen, Observation, Pair, QueueSeen
from blueque.audit.reads import BATCH, read_all, read_flat, read_groups
from blueque.connection.redis import Command, Redis, as_fields
from blueque.model import keys
from blueque.model.lines import needs_of
from blueque.model.queue_settings import NAMES, malformed
from blueque.model.states import TYPES, Place

_NAMES = {
    "listeners": keys.listeners,
    "nodes": keys.nodes,
    "lines": keys.lines,
    "settings": keys.settings,
    "feeds": keys.feeds,
}
_OF_A_QUEUE = {
    **{
        kind: TYPES[kind]
        for kind in TYPES
        if kind not in ("reserved", "orders", "line", "lock", "waiting", "tags", "unsettled")
    },
    "listeners": "set",
    "nodes": "zset",
    "lines": "zset",
    "settings": "hash",
    "feeds": "zset",
}
_FEEDS = tuple(name("", "")[:-1] for name in (keys.feed, keys.fed))
_HASHES = (*_FEEDS, keys.archive(""))  # an audit looks at their type only
_OF_A_TASK = {
    keys.log(""): "stream",
    keys.log_head(""): "stream",
    keys.history(""): "list",
    keys.recent(""): "list",
    keys.checkpoint(""): "hash",
    keys.conditions(""): "hash",
    keys.dependents(""): "zset",
    keys.inputs(""): "hash",
    keys.spawned(""): "set",
}
_NUMBERS = {keys.events(""): "stream", keys.stats("", "")[:-1]: "hash", keys.totals(""): "hash"}
_OF_ALL = {  # the queues
    keys.QUEUES: "zset",
    keys.UNSETTLED_TASKS: "zset",
    keys.UNSETTLED_MEMBERS: "zset",
    keys.GROUPS: "zset",
    keys.SCHEDULES: "zset",
    keys.TAGS: "zset",
    keys.EXPIRING: "zset",
}
_OF_A_GROUP = {
    keys.group(""): "hash",
    keys.members(""): "zset",
    keys.open_members(""): "set",
    keys.bad_members(""): "set",
    keys.awaiting(""): "zset",
}
_OF_A_SCHEDULE = {keys.schedule(""): "hash", keys.occurrences(""): "list"}
_READ_ELSEWHERE = ("lines", "settings", "feeds")
_BEFORE_TASKS = ("wake", "settings")  # a queue may be paused before its first task
_OF_A_LISTENER = {keys.reserved: "list", keys.listener: "hash", keys.orders: "zset"}


class Scan(NamedTuple):
    """The result of a scan, with the ids of all tasks that have a hash or an entry.

    hashes: how many of them have a hash.
    """

    observed: Observation
    tasks: list[str]
    hashes: int


def scan(redis: Redis) -> Scan:
    """Read everything. What moves meanwhile may be seen at two places or at none."""
    observed = Observation()
    found = Keys(dict(_keys(redis)), observed)
    tasks = found.of(keys.task(""), "hash")
    queues = _queues(redis, observed, found)
    for queue in queues:
        _read_queue(redis, observed, found, queue)
    _read_lines(redis, observed, found, queues)
    for lock in found.of(keys.lock(""), "set"):
        observed.note(Place("lock", "", line=lock), read_all(redis, keys.lock(lock), "set"))
    if found.is_of(keys.TAGS, "zset"):
        observed.note(Place("tags", ""), read_all(redis, keys.TAGS, "zset"))
    _check_kept(redis, observed, found)
    _check_belongings(observed, found)
    _read_schedules(redis, observed, found)
    for prefix in _HASHES:
        found.of(prefix, "hash")
    found.of(keys.feeder("", "")[:-1], "string")
    _check_snapshots(found)
    observed.malformed += hash_fields.judge(redis, found)
    _find_owners(redis, observed, found, queues)
    _read_listeners(redis, observed, found)
    others = observed.entries.keys() - set(tasks)
    orphans = [task for task in others if keys.task(task) not in observed.bad_keys]
    return Scan(observed, tasks + orphans, len(tasks))


def _keys(redis: Redis) -> Iterator[tuple[str, str]]:
    """Yield every key of Blueque and its type."""
    cursor = "0"
    while True:
        ((cursor, some),) = redis.read(("SCAN", cursor, "MATCH", f"{keys.PREFIX}*", "COUNT", BATCH))
        types = redis.read(*[("TYPE", key) for key in some])
        yield from ((key, kind) for key, kind in zip(some, types, strict=True) if kind != "none")
        if cursor == "0":
            return


def _queues(redis: Redis, observed: Observation, found: Keys) -> list[str]:
    """Record each queue that is listed or has a key of its own, and return their names."""
    used = set[str]()
    if found.is_of(keys.QUEUES, "zset"):
        used.update(read_all(redis, keys.QUEUES, "zset"))
    unused = set[str]()
    for kind, wanted in _OF_A_QUEUE.items():
        prefix = _key(kind, "")
        names = unused if kind in _BEFORE_TASKS else used
        names.update(found.of(prefix, wanted))
    lines = map(keys.parse_line, found.starting(f"{keys.PREFIX}line_"))
    used.update(line[0] for line in lines if line is not None)
    queues = sorted(used | unused)
    groups: list[list[Command]] = [
        [
            ("ZSCORE", keys.QUEUES, queue),
            ("SCARD", keys.listeners(queue)),
            ("HMGET", keys.settings(queue), "paused", *NAMES),
            ("LLEN", keys.pending(queue)),
        ]
        for queue in queues
    ]
    for queue, replies in zip(queues, read_groups(redis, groups), strict=True):
        score, members, (paused, *others), length = replies
        score = None if score is None else float(score)
        fields = as_fields(NAMES, others)
        most, wrong = fields.get("max_running"), malformed(fields)
        observed.queues[queue] = QueueSeen(
            queue in used, score, members, most, paused, length, wrong
        )
    return queues


def _read_queue(redis: Redis, observed: Observation, found: Keys, queue: str) -> None:
    for kind, wanted in _OF_A_QUEUE.items():
        key = _key(kind, queue)
        if not found.is_of(key, wanted, queue) or kind in _READ_ELSEWHERE:
            continue
        texts = read_all(redis, key, wanted)
        if kind in ("listeners", "nodes"):
            observed.nodes |= dict.fromkeys((queue, node) for node in texts)
        else:
            observed.note(Place(kind, queue), texts)


def _read_lines(redis: Redis, observed: Observation, found: Keys, queues: list[str]) -> None:
    """Record the lines of all queues, their tasks, and how they are listed."""
    lines: dict[Pair, None] = {}
    for key in found.starting(f"{keys.PREFIX}line_"):
        line = keys.parse_line(key)
        if line is not None and found.is_of(key, "list", line[0]):
            lines[line] = None
            place = Place("line", line[0], line=line[1])
            observed.note(place, read_all(redis, key, "list"))
    for queue in queues:
        if found.types.get(keys.lines(queue)) == "zset":
            names = read_all(redis, keys.lines(queue), "zset")
            lines |= dict.fromkeys((queue, name) for name in names)
    for lock in found.of(keys.waiting(""), "set"):
        members = read_all(redis, keys.waiting(lock), "set")
        lines |= dict.fromkeys(observed.note_waiting(lock, members))
    groups = [_line_reads(queue, name) for queue, name in lines]
    for line, replies in zip(lines, read_groups(redis, groups), strict=True):
        length, first, score, *is_waiting = replies
        score = None if score is None else float(score)
        observed.lines[line] = LineSeen(length, first, score, any(is_waiting))


def _line_reads(queue: str, name: str) -> list[Command]:
    key, needs = keys.line(queue, name), needs_of(name)
    reads: list[Command] = [("LLEN", key), ("LINDEX", key, -1), ("ZSCORE", keys.lines(queue), name)]
    if needs is not None and needs.lock is not None:
        reads.append(("SISMEMBER", keys.waiting(needs.lock), f"{name}_{queue}"))
    return reads


def _check_kept(redis: Redis, observed: Observation, found: Keys) -> None:
    """Check the keys that outlive their tasks for a while: each must expire."""
    kept = [keys.key_kept(task) for task in found.of(keys.key_kept(""), "string")]
    for key, seconds in zip(kept, read_flat(redis, [("TTL", key) for key in kept]), strict=True):
        if seconds == -1:
            sentence = f"{key} never expires: delete it, or no new task with that key can be made."
            observed.reject("kept", key, sentence, "string")


def _check_belongings(observed: Observation, found: Keys) -> None:
    """Check the keys that belong to a task, and those that count events."""
    for prefix, kind in _OF_A_TASK.items():
        for task in found.of(prefix, kind):
            if keys.task(task) not in found.types:
                sentence = f"{prefix}{task} belongs to a task that is gone."
                about = {"task": task, "fix": "align_task"}
                observed.reject("left_behind", f"{prefix}{task}", sentence, kind, **about)
    for prefix, kind in {**_NUMBERS, **_OF_A_GROUP}.items():
        found.of(prefix, kind)
    observed.groups = found.of(keys.group(""), "hash")
    for key, kind in _OF_ALL.items():
        found.is_of(key, kind)


def _check_snapshots(found: Keys) -> None:
    prefix = keys.snapshot("")
    for key in found.starting(prefix):
        is_copy = "_" in key.removeprefix(prefix)
        if not is_copy or found.types[key] != "zset":
            found.is_of(key, "list" if is_copy else "string")


def _read_schedules(redis: Redis, observed: Observation, found: Keys) -> None:
    """Record the schedules, and the lists of occurrences that belong to none."""
    names, lists = (found.of(prefix, kind) for prefix, kind in _OF_A_SCHEDULE.items())
    for name in lists:
        if keys.schedule(name) not in found.types:
            key = keys.occurrences(name)
            sentence = f"{key} belongs to a schedule that is gone."
            observed.reject("left_behind", key, sentence, name, fix="align_schedule")
    if found.types.get(keys.SCHEDULES) == "zset":
        names += read_all(redis, keys.SCHEDULES, "zset")
    observed.schedules = list(dict.fromkeys(names))


def _find_owners(redis: Redis, observed: Observation, found: Keys, queues: list[str]) -> None:
    """Record queue and listener of each key of a listener. A key without an owner is bad."""
    owners: dict[str, list[Pair]] = {}
    for pair in observed.nodes:
        for name in _OF_A_LISTENER:
            owners.setdefault(name(*pair), []).append(pair)
    others = (
        keys.task(""),
        keys.lock(""),
        keys.waiting(""),
        keys.key_kept(""),
        keys.snapshot(""),
        keys.feeder("", "")[:-1],
        *_HASHES,
        *_OF_A_TASK,
        *_NUMBERS,
        *_OF_A_GROUP,
        *_OF_A_SCHEDULE,
        *[_key(kind, "") for kind in _OF_A_QUEUE],
    )
    for key in found.types:
        if key in _OF_ALL or key.startswith(others):
            continue
        if keys.parse_line(key) is not None:
            continue
        pairs = owners.get(key) or _possible_owners(redis, found, key, queues)
        if len(pairs) == 1:
            observed.nodes[pairs[0]] = None
        else:
            may_be = " or ".join(queue for queue, _ in pairs)
            why = f"may be of {may_be}" if pairs else "is not a key that Blueque uses"
            observed.reject("unknown_key", key, f"the key {key} {why}.", found.types[key])


def _possible_owners(redis: Redis, found: Keys, key: str, queues: list[str]) -> list[Pair]:
    """Return each queue and listener that a key may belong to.

    Its name does not show where the queue ends, because both names may contain a `_`.
    """
    pairs = [
        (queue, key.removeprefix(name(queue, "")))
        for name in _OF_A_LISTENER
        for queue in queues
        if key.startswith(name(queue, ""))
    ]
    if len(pairs) > 1 and found.types[key] == "list":
        # The hashes of its tasks name the queue.
        (held,) = redis.read(("LRANGE", key, 0, 9))
        named = set(read_flat(redis, [("HGET", keys.task(task), "queue") for task in held]))
        pairs = [pair for pair in pairs if pair[0] in named] or pairs
    return pairs


def _read_listeners(redis: Redis, observed: Observation, found: Keys) -> None:
    groups: list[list[Command]] = []
    for queue, node in observed.nodes:
        for name, kind in _OF_A_LISTENER.items():
            found.is_of(name(queue, node), kind, queue)
        key = keys.listener(queue, node)
        groups.append(
            [
                ("HLEN", key),
                ("HMGET", key, "state", "instance", "resources"),
                ("SISMEMBER", keys.listeners(queue), node),
                ("ZSCORE", keys.nodes(queue), node),
                ("ZRANGE", keys.orders(queue, node), 0, -1),
                ("LRANGE", keys.reserved(queue, node), 0, -1),
            ]
        )
    for pair, replies in zip(observed.nodes, read_groups(redis, groups), strict=True):
        fields, (state, instance, resources), is_member, beat_at, orders, held = replies
        observed.listeners[pair] = ListenerSeen(
            (state or "?") if fields else None,
            instance,
            bool(is_member),
            beat_at is not None,
            bool(orders),
            len(held),
            resources or "",
        )
        observed.note(Place("orders", *pair), orders)
        observed.note(Place("reserved", *pair), held)


def _key(kind: str, queue: str) -> str:
    return _NAMES[kind](queue) if kind in _NAMES else Place(kind, queue).key
