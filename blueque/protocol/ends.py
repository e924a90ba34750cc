"""How an attempt ends: the kinds of ends, and the transaction that records one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from blueque.connection.redis import AnyLook, Command, Look, Redis
from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.model.new import MOST_AT_THE_END
from blueque.model.new_task import NewTask
from blueque.model.states import FINISHED
from blueque.protocol.events import Event, EventFacts, after, count, note_event, ran
from blueque.protocol.fields import (
    IDENTITY,
    OUTCOME,
    Facts,
    TaskFields,
    flat,
    require_owner,
    text_of,
)
from blueque.protocol.moves import enter, leave
from blueque.protocol.spawning import Spawning
from blueque.protocol.transaction import Answer, Change, Verdict, transact
from blueque.protocol.watches import fields_of

# What an end removes besides the outcome of an earlier one.
_REMOVED = {"pending": IDENTITY, "scheduled": IDENTITY, "cancelled": ("cancel",)}


class End(NamedTuple):
    """How an attempt ends, and what becomes of its task.

    event: as in docs/protocol.md, "Events". status: of the task from now on.
    facts: further fields of the task. event_facts: further facts of the event.
    eta: when a scheduled task is due. is_first: a pending task is the next of its line.
    finished: when the attempt ended, if that was earlier, because Redis was away.
    may_be_reserved: it may end before it has started.
    may_be_lost: it may end after it was declared lost, if the task has not run again since.
    is_lost: a judge gives it up; its owner may still record its real end.
    """

    event: str
    status: str
    facts: Facts = None
    event_facts: EventFacts | None = None
    eta: float | None = None
    is_first: bool = False
    finished: float | None = None
    may_be_reserved: bool = True
    may_be_lost: bool = True
    is_lost: bool = False
    has_checkpoint: bool = False
    then: Sequence[NewTask] = ()

    @classmethod
    def complete(
        cls,
        result: str,
        facts: Facts = None,
        finished: float | None = None,
        has_checkpoint: bool = False,
        then: Sequence[NewTask] = (),
    ) -> End:
        """The attempt has succeeded.

        facts: `result_encoding` first if the result has one.
        has_checkpoint: Redis may have a checkpoint, which is deleted.
        then: at most 100 tasks to make, as for `spawn`. Existing tasks stay as they are. A task
            that an attempt made with `spawn` is not made again. A parent that is not in Redis
            counts as gone.
        """
        return cls(
            "complete",
            "complete",
            {"result": result, **(facts or {})},
            finished=finished,
            may_be_reserved=False,
            has_checkpoint=has_checkpoint,
            then=then,
        )

    @classmethod
    def fail(cls, error: str, facts: Facts = None, finished: float | None = None) -> End:
        """The attempt has failed, and no other follows."""
        event_facts = {"error": error, "error_type": text_of(facts, "error_type")}
        return cls(
            "failed", "failed", {"error": error, **(facts or {})}, event_facts, finished=finished
        )

    @classmethod
    def retry(cls, eta: float | None, facts: Facts = None, wish: str | None = None) -> End:
        """Another attempt follows, unless the task is to be cancelled.

        eta: when it is due; None: at once.
        facts: such as failures and last_error.
        wish: why the handler asked to run again later; None: the attempt has failed.
        """
        event, event_facts = "postponed", {"reason": wish, "eta": eta}
        if wish is None:
            event, event_facts = "retried", {"error": text_of(facts, "last_error"), "eta": eta}
            event_facts["error_type"] = text_of(facts, "last_error_type")
        return cls(event, "pending" if eta is None else "scheduled", facts, event_facts, eta)

    @classmethod
    def release(cls, facts: Facts = None, reason: str | None = None) -> End:
        """The attempt is handed back: its task is next in line again, unless it is to be cancelled.

        facts: such as `needs`, if it needs more than before. reason: a word for the history of the task.
        """
        event_facts = {"reason": reason}
        return cls("released", "pending", facts, event_facts, is_first=True, may_be_lost=False)

    @classmethod
    def confirm_cancel(cls, facts: Facts = None) -> End:
        """The attempt was ended because its task was cancelled."""
        return cls("cancelled", "cancelled", facts, may_be_reserved=False)

    @classmethod
    def lose(
        cls, error: str, kind: str | None, interruptions: int, files: str | None, facts: Facts
    ) -> End:
        """The process of the attempt is gone without an exit record.

        kind: the error type of a task without a further attempt; None: another follows at once.
        interruptions: of the task, with this one. files: where the attempt has left its files.
        """
        event_facts: EventFacts = {"error": error, "error_type": kind or "lost"}
        counted = {"interruptions": interruptions}
        if kind is not None:
            fields = {"error": error, "error_type": kind, **counted, **(facts or {})}
            return cls("failed", "failed", fields, event_facts, is_lost=True)
        last = {"last_error": error, "last_error_type": "lost", **_last(files)}
        fields = {**counted, **last, **(facts or {})}
        return cls("lost", "pending", fields, event_facts, is_first=True, is_lost=True)

    def of(self, fields: TaskFields) -> End:
        """Return how an attempt ends. A task that is to be cancelled gets no further attempt."""
        if self.status in FINISHED or fields.cancel is None:
            return self
        return End.confirm_cancel(self.facts)


class Ended(NamedTuple):
    """The result for an attempt. status: of its task. is_awaited: others may wait for the task."""

    status: str
    is_awaited: bool


def end(redis: Redis, attempt: AttemptRef, how: End, now: float) -> Ended:
    """Record how an attempt ended: its task ends, too, or waits for the next attempt.

    An attempt that was declared lost still counts, unless the task has run again since.
    Raises NotOwner; InvalidInput for new tasks that are too many or too large.
    """
    task, token = attempt.task, attempt.token
    spawning = Spawning(task, how.then, MOST_AT_THE_END)

    def decide(reply: list[str | None], *replies: Any) -> Verdict[Ended]:
        fields = TaskFields._make(reply)
        if _has_ended_so(how, token, fields):
            return Answer(_ended(fields.status or "", fields.dependents is not None))
        statuses = ("started", "reserved") if how.may_be_reserved else ("started",)
        require_owner(attempt, fields, *statuses, or_lost=how.may_be_lost)
        ends_so = how.of(fields)
        commands, is_parent = spawning.of_ended(replies, now)
        return Change(
            [*ending(redis, attempt, fields, ends_so, now), *commands],
            _ended(ends_so.status, is_parent or fields.dependents is not None),
        )

    own = fields_of(task)
    look: AnyLook = Look((*own.watch, *spawning.watch), (*own.reads, *spawning.reads), task)
    return transact(redis, "end", look, decide)


def _has_ended_so(how: End, token: str | None, fields: TaskFields) -> bool:
    """Return whether an earlier try has recorded this end."""
    if fields.finished_by != token:
        return False
    return fields.status == how.status if how.status in FINISHED else token is not None


def _ended(status: str, has_dependents: bool) -> Ended:
    return Ended(status, has_dependents and status in FINISHED)


def ending(
    redis: Redis, attempt: AttemptRef, fields: TaskFields, how: End, now: float
) -> list[Command]:
    """Return the commands that record an end of the task with these fields."""
    queue, task, token, node = attempt
    key, finished, was = keys.task(task), how.finished or now, fields._replace(queue=queue)
    facts = {**_times(how, finished, now), **(how.facts or {})}
    by: Command = () if how.is_lost or token is None else ("finished_by", token)
    written: Command = ("status", how.status, *flat(facts), *by, "updated", now)
    took = ran(fields, finished) if how.event != "released" else None
    since = {"began": fields.started} if how.is_lost else {"took": took}
    event = Event(how.event, node, now, {**(how.event_facts or {}), **since})
    became = was._replace(status=how.status, needs=text_of(how.facts, "needs") or was.needs)
    return [
        *leave(task, was),
        *(count(redis, queue, "found", now) if fields.status == "failed" else []),
        ("HDEL", key, *OUTCOME, *_REMOVED.get(how.status, ())),
        ("HSET", key, *written, *flat(after(fields))),
        *enter(task, became, how.eta or 0, how.is_first),
        *([("DEL", keys.checkpoint(task))] if how.has_checkpoint else []),
        *note_event(redis, queue, task, fields, event),
    ]


def _times(how: End, finished: float, now: float) -> dict[str, float]:
    if how.status == "pending":
        return {"queued": now}
    if how.status == "scheduled":
        return {"eta": now if how.eta is None else how.eta}
    return {} if how.is_lost and how.status == "failed" else {"finished": finished}


def _last(files: str | None) -> dict[str, str]:
    return {"last_files": files} if files else {}
