"""The one way to change Redis: look and watch in one write, decide, change in another.

    WATCH key ...  read ...        -> decide(replies) ->        MULTI  command ...  EXEC

Every `decide` recognises what an earlier EXEC of the same call has done. So when the answer to an EXEC is lost, the
whole is run again and finds either its own success or the state from before: nothing is done twice and nothing is
guessed. A write that arrives after we gave up on it is refused by Redis itself: by then its watched key has changed.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from blueque.connection import Ahead, Command, Connection, Patience, Redis, exchange, raise_refusal
from blueque.errors import Contended, OutcomeUnknown, RedisAway

MAX_CONFLICTS = 100


class Answer(NamedTuple):
    """There is nothing to change; this is the outcome."""

    value: Any


class Change(NamedTuple):
    """The commands between MULTI and EXEC, and the outcome: a value, or a function of the list of their replies."""

    commands: Sequence[Command]
    outcome: Any = None


class Look(NamedTuple):
    """What a transaction watches, and what it reads after that."""

    watch: Sequence[str]
    reads: Sequence[Command]


def transact(
    redis: Redis,
    name: str,
    look: Look,
    decide: Callable[..., Answer | Change],
    *,
    task: str | None = None,
    spare: tuple[str, Look] | None = None,
    repeatable: bool = True,
) -> Any:
    """Run one guarded transaction and return its outcome.

    decide: takes one argument for each of the reads; raises to refuse.
    task: the id that an OutcomeUnknown names.
    spare: the id of a task to come and its look, to be sent along with our EXEC.
    repeatable: False when `decide` cannot recognise its own success: a lost answer then raises OutcomeUnknown at once.
    Raises RedisAway when nothing was written, OutcomeUnknown when that cannot be known, RedisRefused, Contended.
    """
    patience = Patience(redis.patience)
    is_unknown = False
    conflicts = 0
    while conflicts < MAX_CONFLICTS:
        is_sent = False
        try:
            connection = redis.connection()
            verdict = _decide(connection, look, decide)
            if isinstance(verdict, Answer):
                return verdict.value
            is_sent = True
            replies = _execute(connection, verdict.commands, spare)
        except RedisAway as error:
            redis.close()
            is_unknown = is_unknown or is_sent
            unknown = OutcomeUnknown(f"{name}: {error}; it may or may not have been done", task)
            if is_sent and not repeatable:
                raise unknown from error
            patience.pause_or_raise(unknown if is_unknown else error)
            continue
        if replies is not None:
            return verdict.outcome(replies) if callable(verdict.outcome) else verdict.outcome
        conflicts += 1
        time.sleep(random.uniform(0, 0.001 * min(conflicts, 10)))
    raise Contended(name, conflicts)


def _decide(connection: Connection, look: Look, decide: Callable[..., Answer | Change]) -> Answer | Change:
    ahead, connection.ahead = connection.ahead, None
    if ahead is not None and ahead.watch == tuple(look.watch):
        replies = ahead.replies
    else:
        replies = exchange(connection, [("WATCH", *look.watch), *look.reads])[1:]
    try:
        raise_refusal(replies)
        verdict = decide(*replies)
    except Exception:
        exchange(connection, [("UNWATCH",)])
        raise
    if isinstance(verdict, Answer):
        exchange(connection, [("UNWATCH",)])
    return verdict


def _execute(connection: Connection, commands: Sequence[Command], spare: tuple[str, Look] | None) -> list[Any] | None:
    """Return the replies of the commands, or None when a watched key had changed."""
    block: list[Command] = [("MULTI",), *commands, ("EXEC",)]
    end = len(block)
    if spare is not None:
        block += [("WATCH", *spare[1].watch), *spare[1].reads]
    replies = exchange(connection, block)
    raise_refusal(replies[:end])
    executed: list[Any] | None = replies[end - 1]
    if executed is not None:
        # Redis does not roll back: a command that fails inside EXEC (a key of the wrong type) must not pass unseen.
        raise_refusal(executed)
    if spare is not None:
        task_id, look = spare
        connection.ahead = Ahead(task_id, tuple(look.watch), replies[end + 1 :])
    return executed

