"""What a dead listener leaves behind is taken care of: recover, lose, adopt, restore; and what
Redis has lost: reassert.

Each handles one task, is safe to repeat, and may be done by anybody at the same time as by others.
"""

from __future__ import annotations

from collections.abc import Mapping

from blueque.connection.redis import Command, Look, Redis, as_hash
from blueque.errors import NotRegistered
from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.model.encoding import DIGITS, count_of
from blueque.model.lines import line_of
from blueque.model.retry import Retry
from blueque.model.states import LOST
from blueque.protocol.events import FIELDS, after, count, event, past_of
from blueque.protocol.fields import (
    IDENTITY,
    OUTCOME,
    Facts,
    flat,
    hold_room,
    let_go_of_room,
    record_cancelled,
    stand,
)
from blueque.protocol.transaction import Answer, Change, transact


def recover(
    redis: Redis,
    queue: str,
    task: str,
    node: str,
    instance: str | None,
    now: float,
    dead_claimant: str | None = None,
) -> str | None:
    """See to one entry in the list of a dead listener; return what was done: released, dropped, or
    None: it was gone.

    Work that had not started is the next in line again. A started task is left as it is, and
    `started` is returned; so is one that a listener of 1.0.0 has claimed, and runs or is about to:
    `claimed`.
    instance: of its registration, which says dead; None for a listener that nobody remembers.
    dead_claimant: a listener of 1.0.0 that the caller knows to be dead, so that its claim is void.
    """
    reserved = keys.reserved(queue, node)

    def decide(
        known: list[str | None], is_member: int, place: int | None, snapshot: list[str | None]
    ) -> Answer | Change:
        if place is None or not _is_dead(known, is_member, instance):
            return Answer(None)
        status, its_node, its_queue, claimant, pid_start, priority, needs, lock, counted, *past = (
            snapshot
        )
        # Without pid_start it was the claimant that started it.
        is_claimed = claimant not in (None, dead_claimant) and (
            status == "reserved" or pid_start is None
        )
        if status in ("reserved", "started") and its_node == node and is_claimed:
            return Answer("claimed")
        if status == "started" and its_node == node:
            return Answer("started")
        drop: Command = ("LREM", reserved, 1, task)
        is_waiting = status == "pending" or (status == "reserved" and its_node == node)
        if not is_waiting or its_queue != queue:
            return Change([drop], "dropped")
        return Change(
            [
                drop,
                *let_go_of_room(queue, task, lock, counted),
                ("HDEL", keys.task(task), *IDENTITY),
                ("HSET", keys.task(task), "status", "pending", "queued", now, "updated", now),
                *stand(queue, line_of(priority, needs), task, is_first=True),
                ("ZADD", keys.wake(queue), 0, 0),
                *event(redis, queue, task, "recovered", node, past, now),
            ],
            "released",
        )

    look = Look(
        [keys.listener(queue, node), keys.listeners(queue), reserved, keys.task(task)],
        [
            ("HMGET", keys.listener(queue, node), "instance", "state"),
            ("SISMEMBER", keys.listeners(queue), node),
            ("LPOS", reserved, task),
            (
                "HMGET",
                keys.task(task),
                "status",
                "node",
                "queue",
                "reclaimed_node",
                "pid_start",
                "priority",
                "needs",
                "lock",
                "counted",
                *FIELDS,
            ),
        ],
        task,
    )
    done: str | None = transact(redis, "recover", look, decide)
    return done


def lose(
    redis: Redis,
    attempt: AttemptRef,
    instance: str | None,
    error: str,
    default: Retry | None,
    now: float,
    facts: Facts = None,
    is_ours: bool = False,
) -> str | None:
    """Give up a started attempt whose process is gone and has left no word.

    Returns what became of the task: pending when its policy allows another attempt; failed, error
    type `lost` or, after too many, `poison`; cancelled when somebody wanted that; None: the attempt
    had ended, or is another's by now.
    instance: of the registration of `node`, which says dead, or alive if `is_ours`; None: nobody
        remembers it.
    default: the policy of a task that has none of its own.
    """
    queue, task, token, node = attempt
    state = "alive" if is_ours else "dead"

    def decide(
        known: list[str | None], is_member: int, snapshot: list[str | None]
    ) -> Answer | Change:
        (
            status,
            its_token,
            its_node,
            pid,
            policy,
            interruptions,
            cancel,
            files,
            priority,
            needs,
            *room,
        ) = snapshot[:12]
        past = snapshot[12:]
        if (status, its_token, its_node) != ("started", token, node):
            return Answer(None)
        if not _is_dead(known, is_member, instance, state):
            return Answer(None)
        began = past[2]
        commands: list[Command] = [
            ("LREM", keys.reserved(queue, node), 1, task),
            ("SREM", keys.started(queue), keys.started_member(node, pid or "", task)),
            *let_go_of_room(queue, task, *room),
        ]
        if cancel is not None:
            commands += record_cancelled(queue, task, None, now, facts)
            commands += event(redis, queue, task, "cancelled", node, past, now, {"began": began})
            return Change(commands, "cancelled")
        retry = Retry.of(policy, default)
        count = count_of(interruptions)
        if retry is not None and retry.allows_interruption(count):
            commands += [
                ("HDEL", keys.task(task), *IDENTITY, *OUTCOME),
                (
                    "HSET",
                    keys.task(task),
                    "status",
                    "pending",
                    "queued",
                    now,
                    "interruptions",
                    count + 1,
                    "last_error",
                    error,
                    "last_error_type",
                    "lost",
                    *flat({"last_files": files} if files else {}),
                    *flat(facts),
                    "updated",
                    now,
                ),
                *stand(queue, line_of(priority, needs), task, is_first=True),
                ("ZADD", keys.wake(queue), 0, 0),
                *event(
                    redis,
                    queue,
                    task,
                    "lost",
                    node,
                    past,
                    now,
                    {"began": began, "error": error, "error_type": "lost"},
                ),
            ]
            return Change(commands, "pending")
        kind = "lost" if retry is None else "poison"
        commands += [
            ("HDEL", keys.task(task), *OUTCOME),
            (
                "HSET",
                keys.task(task),
                "status",
                "failed",
                "error",
                error,
                "error_type",
                kind,
                "interruptions",
                count + 1,
                *flat(facts),
                "updated",
                now,
            ),
            ("LPUSH", keys.failed(queue), task),
            *event(
                redis,
                queue,
                task,
                "failed",
                node,
                past,
                now,
                {"began": began, "error": error, "error_type": kind},
            ),
        ]
        return Change(commands, "failed")

    look = Look(
        [keys.listener(queue, node), keys.listeners(queue), keys.task(task)],
        [
            ("HMGET", keys.listener(queue, node), "instance", "state"),
            ("SISMEMBER", keys.listeners(queue), node),
            (
                "HMGET",
                keys.task(task),
                "status",
                "token",
                "node",
                "pid",
                "retry",
                "interruptions",
                "cancel",
                "files",
                "priority",
                "needs",
                "lock",
                "counted",
                *FIELDS,
            ),
        ],
        task,
    )
    done: str | None = transact(redis, "lose", look, decide)
    return done


def adopt(
    redis: Redis, attempt: AttemptRef, node: str, instance: str, now: float
) -> dict[str, str] | None:
    """Take over a started attempt from a listener that is dead; return the fields of the task, or
    None: another was first.

    attempt: as the caller has seen it, with the listener that it knows to be dead.
    node, instance: of the listener that takes over.
    Raises NotRegistered.
    """
    queue, task, token, old = attempt

    def decide(known: list[str | None], reply: list[str]) -> Answer | Change:
        if known != [instance, "alive"]:
            raise NotRegistered(node, queue)
        fields = as_hash(reply)
        if (fields.get("status"), fields.get("token")) != ("started", token):
            return Answer(None)
        if fields.get("node") == node != old:
            return Answer(fields)
        if fields.get("node") != old:
            return Answer(None)
        pid = fields.get("pid", "")
        return Change(
            [
                ("LREM", keys.reserved(queue, old), 0, task),
                ("LPUSH", keys.reserved(queue, node), task),
                ("SREM", keys.started(queue), keys.started_member(old, pid, task)),
                ("SADD", keys.started(queue), keys.started_member(node, pid, task)),
                ("HSET", keys.task(task), "node", node, "updated", now),
                *event(redis, queue, task, "adopted", node, past_of(fields), now),
            ],
            fields | {"node": node, "updated": str(now)} | after(past_of(fields)),
        )

    look = Look(
        [keys.listener(queue, node), keys.task(task)],
        [("HMGET", keys.listener(queue, node), "instance", "state"), ("HGETALL", keys.task(task))],
        task,
    )
    adopted: dict[str, str] | None = transact(redis, "adopt", look, decide)
    return adopted


def restore(
    redis: Redis,
    attempt: AttemptRef,
    instance: str,
    pid: int,
    identity: Mapping[str, str | int],
    started: float,
    now: float,
) -> dict[str, str] | None:
    """Take back a task that was declared lost although its process is alive; return its fields.

    None: the attempt is not the newest any more, or the task has ended in another way. Raises
        NotRegistered.
    """
    queue, task, token, node = attempt

    def decide(known: list[str | None], reply: list[str]) -> Answer | Change:
        if known != [instance, "alive"]:
            raise NotRegistered(node, queue)
        fields = as_hash(reply)
        if fields.get("token") != token:
            return Answer(None)
        if fields.get("status") == "started" and fields.get("node") == node:
            return Answer(fields)
        if fields.get("status") != "failed" or fields.get("error_type") not in LOST:
            return Answer(None)
        news: dict[str, str | int | float] = {
            "status": "started",
            "node": node,
            "pid": pid,
            **identity,
            "started": started,
            "updated": now,
        }
        return Change(
            [
                ("LREM", keys.failed(queue), 1, task),
                ("LPUSH", keys.reserved(queue, node), task),
                ("SADD", keys.started(queue), keys.started_member(node, pid, task)),
                *hold_room(queue, task, fields),
                ("HDEL", keys.task(task), *OUTCOME),
                ("HSET", keys.task(task), *flat(news)),
                *event(redis, queue, task, "restored", node, past_of(fields), now),
                *count(redis, queue, "found", now),
            ],
            {name: text for name, text in fields.items() if name not in OUTCOME}
            | {name: str(value) for name, value in news.items()}
            | after(past_of(fields)),
        )

    look = Look(
        [keys.listener(queue, node), keys.task(task)],
        [("HMGET", keys.listener(queue, node), "instance", "state"), ("HGETALL", keys.task(task))],
        task,
    )
    restored: dict[str, str] | None = transact(redis, "restore", look, decide)
    return restored


def reassert(
    redis: Redis,
    queue: str,
    task: str,
    node: str,
    instance: str,
    ours: Mapping[str, str],
    now: float,
) -> dict[str, str] | None:
    """Put back a running attempt that Redis has lost, as after a failover; return the fields of the
    task.

    ours: the fields of the task as we know them, its pid and token among them.
    None: it is not for us to put back: another attempt has begun, the task has ended, or there is
        another one of that id.
    Raises NotRegistered.
    """
    attempt, token = int(ours.get("attempt", "0")), ours["token"]

    def decide(known: list[str | None], reply: list[str], place: int | None) -> Answer | Change:
        if known != [instance, "alive"]:
            raise NotRegistered(node, queue)
        fields = as_hash(reply)
        status, its_attempt = fields.get("status"), fields.get("attempt", "0")
        if status == "started" and fields.get("token") == token:
            return Answer(fields)
        is_older = (
            its_attempt.isdecimal() and len(its_attempt) < DIGITS and int(its_attempt) < attempt
        )
        is_ours = status == "reserved" and fields.get("token") == token
        if (
            status is not None
            and not is_ours
            and not (is_older and status in ("pending", "scheduled"))
        ):
            return Answer(None)
        # Deleted since, and made anew by its key: that is another task, and has a right to run.
        if status is not None and fields.get("created") != ours.get("created"):
            return Answer(None)
        # How many events there have been Redis knows, if it knows the task at all.
        told = {name: text for name, text in ours.items() if name != "events" or name not in fields}
        news = {**told, "status": "started", "node": node, "updated": str(now)}
        held: list[Command] = [("LPUSH", keys.reserved(queue, node), task)] if place is None else []
        known_best = fields or ours  # what Redis went back to may have stood in another line
        line = line_of(known_best.get("priority"), known_best.get("needs"))
        return Change(
            [
                ("LREM", keys.line(queue, line), 0, task),
                ("ZREM", keys.scheduled(queue), task),
                *held,
                ("SADD", keys.started(queue), keys.started_member(node, news["pid"], task)),
                *hold_room(queue, task, ours),
                ("HSET", keys.task(task), *flat(news)),
                ("ZADD", keys.tasks(queue), news.get("created", now), task),
                ("ZINCRBY", keys.QUEUES, 0, queue),
                *event(
                    redis,
                    queue,
                    task,
                    "reasserted",
                    node,
                    past_of({**news, **fields, "attempt": str(attempt)}),
                    now,
                ),
            ],
            {**fields, **news, **after(past_of({**news, **fields}))},
        )

    look = Look(
        [keys.listener(queue, node), keys.task(task), keys.reserved(queue, node)],
        [
            ("HMGET", keys.listener(queue, node), "instance", "state"),
            ("HGETALL", keys.task(task)),
            ("LPOS", keys.reserved(queue, node), task),
        ],
        task,
    )
    put_back: dict[str, str] | None = transact(redis, "reassert", look, decide)
    return put_back


def _is_dead(
    known: list[str | None], is_member: int, instance: str | None, state: str = "dead"
) -> bool:
    if instance is None:
        return known == [None, None] and not is_member
    return known == [instance, state]
