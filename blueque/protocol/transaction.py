"""The one way to change Redis: look and watch in one write, decide, change in another.

    WATCH key ...  read ...        -> decide(replies) ->        MULTI  command ...  EXEC

Every `decide` recognises what an earlier EXEC of the same call has done. So when the answer to an
EXEC is lost, the whole is run again and finds either its own success or the state from before:
nothing is done twice and nothing is guessed. A write that arrives after we gave up on it is refused
by Redis itself: by then its watched key has changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from blueque.connection.redis import (
    Ahead,
    Command,
    Connection,
    Look,
    Patience,
    Redis,
    exchange,
    name_refused,
    raise_refusal,
)
from blueque.errors import Contended, OutcomeUnknown, RedisAway, RedisRefused
from blueque.system.backoff import jitter

MAX_CONFLICTS = 100


class Answer(NamedTuple):
    """There is nothing to change; this is the outcome."""

    value: Any


class Change(NamedTuple):
    """The commands between MULTI and EXEC, and the outcome: a value, or a function of the list of
    their replies.
    """

    commands: Sequence[Command]
    outcome: Any = None


def transact(
    redis: Redis,
    name: str,
    look: Look,
    decide: Callable[..., Answer | Change],
    *,
    ahead: Look | None = None,
    again: Callable[[], Look] | None = None,
    meanwhile: Callable[[], object] | None = None,
    repeatable: bool = True,
) -> Any:
    """Run one guarded transaction and return its outcome.

    decide: takes one argument for each of the reads; raises to refuse.
    ahead: the look of the transaction that most likely follows on this connection; it travels with
        our EXEC.
    again: gives the look to take once an answer was lost, where it takes more to recognise one's
        own success.
    meanwhile: is called while Redis executes, each time that it does; it must neither raise nor use
        this connection.
    repeatable: False when `decide` cannot recognise its own success: a lost answer then raises
        OutcomeUnknown at once.
    Raises RedisAway when nothing was written, OutcomeUnknown when that cannot be known,
    RedisRefused, Contended.
    """
    patience = Patience(redis.patience)
    is_unknown = False
    conflicts = 0
    while conflicts < MAX_CONFLICTS:
        is_sent = False
        try:
            connection = redis.connection()
            verdict = _decide(
                connection, again() if is_unknown and again is not None else look, decide
            )
            if isinstance(verdict, Answer):
                return verdict.value
            is_sent = True
            replies = _execute(connection, verdict.commands, ahead, meanwhile)
        except RedisAway as error:
            redis.close()
            is_unknown = is_unknown or is_sent
            if is_sent and not repeatable:
                raise _unknown(name, look, error) from error
            if not patience.may_reconnect(error):
                patience.pause_or_raise(_unknown(name, look, error) if is_unknown else error)
            continue
        except RedisRefused as error:
            if patience.may_reconnect(error):
                continue
            if is_unknown:
                raise _unknown(name, look, error) from error
            raise
        if replies is not None:
            return verdict.outcome(replies) if callable(verdict.outcome) else verdict.outcome
        conflicts += 1
        time.sleep(jitter(0.001 * min(conflicts, 10)))
    contended = Contended(name, conflicts)
    raise _unknown(name, look, contended) if is_unknown else contended


def _unknown(name: str, look: Look, error: Exception) -> OutcomeUnknown:
    return OutcomeUnknown(f"{name}: {error}; it may or may not have been done", look.task)


def _decide(
    connection: Connection, look: Look, decide: Callable[..., Answer | Change]
) -> Answer | Change:
    verdict: Answer | Change | None
    kept, connection.ahead = connection.ahead, None
    if kept is not None and kept.look == look:
        try:
            raise_refusal(kept.replies)
            verdict = decide(*kept.replies[1:])
        except Exception:
            verdict = None
        if isinstance(verdict, Change):
            return verdict
        # No EXEC will tell whether an answer or a refusal from an old look still holds: look again.
    prove(connection)
    replies = exchange(connection, [("WATCH", *look.watch), *look.reads])
    try:
        raise_refusal(replies)
        verdict = decide(*replies[1:])
    except Exception:
        exchange(connection, [("UNWATCH",)])
        raise
    if isinstance(verdict, Answer):
        exchange(connection, [("UNWATCH",)])
    return verdict


def _execute(
    connection: Connection,
    commands: Sequence[Command],
    ahead: Look | None,
    meanwhile: Callable[[], object] | None,
) -> list[Any] | None:
    """Return the replies of the commands, or None when a watched key had changed."""
    block: list[Command] = [("MULTI",), *commands, ("EXEC",)]
    end = len(block)
    if ahead is not None:
        block += [("WATCH", *ahead.watch), *ahead.reads]
    replies = exchange(connection, block, meanwhile)
    # a right that was taken away: `prove` is to find that out from now on
    if isinstance(replies[0], RedisRefused):
        connection.is_proven = False
    raise_refusal(replies[:end])
    executed: list[Any] | None = replies[end - 1]
    if ahead is not None:
        connection.ahead = Ahead(ahead, replies[end:])
    if executed is not None:
        # Redis does not roll back: a command that fails inside EXEC (a key of the wrong type) must
        # not pass unseen.
        name_refused(commands, executed)
        raise_refusal(executed)
    return executed


def prove(connection: Connection) -> None:
    """Make sure once that we may use MULTI here: if it were refused, what follows it would be done
    unguarded.
    """
    if not connection.is_proven:
        raise_refusal(exchange(connection, [("MULTI",), ("EXEC",)]))
        connection.is_proven = True
