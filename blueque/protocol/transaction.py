"""The executor: every change in Redis is one guarded transaction.

    WATCH key ...  read ...        -> decide(replies) ->        MULTI  command ...  EXEC

The look (WATCH and the reads) is one write, the change (MULTI ... EXEC) another. `decide` is a pure
function: it gets the replies and returns an `Answer` or a `Change`. If the caller knows which
transaction comes next on this connection, the look of that one is sent with our EXEC.

Every `decide` recognises what an earlier EXEC of the same call has done. When the reply to an EXEC
is lost, the transaction runs again and finds either its own success or the state from before. So
nothing is done twice and nothing is guessed. A write that arrives after we gave up on it is refused
by Redis itself, because its watched key has changed by then.

If replicas have to confirm changes, WAIT is sent with the EXEC. Too few replicas count as a lost
reply: the transaction runs again on a new connection, perhaps to another server. Even an answer
that changes nothing waits for replicas.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from blueque.connection.redis import (
    AnyLook,
    Command,
    Connection,
    Look,
    LookAhead,
    Patience,
    Redis,
    Replies,
    name_refused,
    pack,
    raise_refusal,
)
from blueque.errors import (
    NOT_NOW,
    Contended,
    NotReplicated,
    OutcomeUnknown,
    RedisAway,
    RedisRefused,
)
from blueque.model import keys
from blueque.system.backoff import jitter

MAX_CONFLICTS = 100
SLOW_TRY = 0.02  # seconds

# Changes that wait for no replica: a listener repeats them, or reports them to no caller. Changes
# that build on them wait for them as well, because WAIT covers everything before it.
REPEATED = frozenset(
    {"beat", "checkpoint", "deregister", "log", "note", "pop", "progress", "register", "reserve"}
)

_RECORDS = (
    *(name("") for name in (keys.events, keys.history, keys.recent, keys.totals)),
    keys.stats("", "")[:-1],
)
_MULTI, _EXEC = pack(("MULTI",)), pack(("EXEC",))
# WAIT is about what the same connection has written. Redis sends this to its replicas, and nothing
# changes; a write that leaves a key as it is, such as ZINCRBY by 0, is not sent.
TO_REPLICAS = ("PUBLISH", "blueque", "")

Result = TypeVar("Result")


class Answer(NamedTuple, Generic[Result]):
    """There is nothing to change; this is the result of the transaction."""

    value: Result


class Change(NamedTuple, Generic[Result]):
    """The commands between MULTI and EXEC, and the result of the transaction.

    result: a value, or a function that makes it of the list of the replies.
    """

    commands: Sequence[Command]
    result: Result | Callable[[list[Any]], Result]


Verdict: TypeAlias = Answer[Result] | Change[Result]


class _Replicas:
    """The replicas that must confirm a transaction.

    wait: the command that asks how many have.
    """

    def __init__(self, redis: Redis, name: str, task: str | None) -> None:
        seconds = redis.settings.replicas_timeout
        self._name, self._task = name, task
        self._number, self._patience = redis.settings.replicas, max(seconds, redis.patience)
        self.wait: Command = ("WAIT", self._number, round(seconds * 1000))

    def require(self, reply: Any) -> None:
        """Raise NotReplicated if too few have confirmed it. reply: to `wait`."""
        refusal = reply if isinstance(reply, RedisRefused) else None
        confirmed = 0 if refusal is not None else reply
        if confirmed < self._number:
            raise NotReplicated(
                self._name, self._task, confirmed, self._number, self._patience, refusal
            )


class Tries(Generic[*Replies]):
    """The look of a transaction, and whether an earlier try of the same call may have been executed."""

    def __init__(self, look: Look[*Replies]) -> None:
        self.look, self.may_be_done = look, False

    def again(self, is_unknown: bool) -> Look[*Replies]:
        self.may_be_done = is_unknown
        return self.look


def transact(
    redis: Redis,
    name: str,
    look: Look[*Replies],
    decide: Callable[[*Replies], Verdict[Result]],
    *,
    next_look: AnyLook | None = None,
    again: Callable[[bool], Look[*Replies]] | None = None,
    meanwhile: Callable[[], object] | None = None,
    repeatable: bool = True,
) -> Result:
    """Run one guarded transaction and return its result.

    decide: takes one argument for each of the reads; raises to refuse.
    next_look: of the transaction that comes next on this connection. If another comes first, it is
        given up.
    again: returns the look for every try after the first, if the first leaves out reads that only
        recognise an earlier success. It takes whether an EXEC may have been executed.
    meanwhile: called while Redis executes, once for each EXEC; must neither raise nor use this
        connection.
    repeatable: False when `decide` cannot recognise its own success: a lost reply then raises
        OutcomeUnknown at once.
    Raises RedisAway when nothing was written, OutcomeUnknown when that is unknown, NotReplicated,
        RedisRefused, Contended.
    """
    patience = Patience(redis.patience, redis.sleep)
    has_to_wait = redis.settings.replicas and name not in REPEATED
    replicas = _Replicas(redis, name, look.task) if has_to_wait else None
    is_unknown = False
    conflicts = tries = 0
    while conflicts < MAX_CONFLICTS:
        is_sent = False
        look = again(is_unknown) if tries and again is not None else look
        tries += 1
        try:
            connection = redis.connection()
            began = time.monotonic()
            verdict = _decide(connection, look, decide, replicas)
            if isinstance(verdict, Answer):
                return verdict.value
            is_sent = True
            replies = _execute(connection, verdict.commands, next_look, meanwhile, replicas)
        except RedisAway as error:
            redis.close()
            is_unknown = is_unknown or is_sent
            if _is_forbidden(error):
                raise
            if is_sent and not repeatable:
                raise _unknown(name, look, error) from error
            if not patience.may_reconnect(error):
                patience.pause_or_raise(_unknown(name, look, error) if is_unknown else error)
            continue
        except RedisRefused as error:
            if patience.may_reconnect(error):
                continue
            if error.code not in NOT_NOW:
                if is_unknown:
                    raise _unknown(name, look, error) from error
                raise
            redis.close()  # a new connection may lead to another server
            patience.pause_or_raise(_unknown(name, look, error) if is_unknown else error)
            continue
        if replies is not None:
            return verdict.result(replies) if callable(verdict.result) else verdict.result
        conflicts += 1
        # Slow tries collide more often, so pause before the next one.
        took = min(time.monotonic() - began, SLOW_TRY)
        redis.sleep(jitter(max(0.001 * min(conflicts, 10), took * min(conflicts, 50))))
    contended = Contended(name, conflicts)
    raise _unknown(name, look, contended) if is_unknown else contended


def _unknown(name: str, look: AnyLook, error: Exception) -> OutcomeUnknown:
    if isinstance(error, NotReplicated):
        return error
    return OutcomeUnknown(f"{name}: {error}; it may or may not have been done", look.task)


def _is_forbidden(error: RedisAway) -> bool:
    """Return whether this user may not ask for replicas, so that another try is useless."""
    refusal = error.refusal if isinstance(error, NotReplicated) else None
    return refusal is not None and refusal.code == "NOPERM"


def _decide(
    connection: Connection,
    look: Look[*Replies],
    decide: Callable[[*Replies], Verdict[Result]],
    replicas: _Replicas | None,
) -> Verdict[Result]:
    """Look and decide. An Answer or a refusal leaves nothing watched."""
    ahead, connection.look_ahead = connection.look_ahead, None
    if ahead is not None and ahead.look == look:
        change = _decide_ahead(ahead.replies, decide)
        if change is not None:
            return change
    prove(connection)
    given_up: list[Command] = [] if ahead is None else [("UNWATCH",)]
    replies = connection.exchange([*given_up, ("WATCH", *look.watch), *look.reads])
    try:
        raise_refusal(replies)
        verdict = decide(*replies[len(given_up) + 1 :])
    except Exception:
        connection.exchange([("UNWATCH",)])
        raise
    if isinstance(verdict, Answer):
        if replicas is None:
            connection.exchange([("UNWATCH",)])
        else:  # the answer may be our own success, or a new change by another program
            replies = connection.exchange([("UNWATCH",), TO_REPLICAS, replicas.wait])
            raise_refusal(replies[:2])
            replicas.require(replies[2])
    return verdict


def _decide_ahead(
    replies: list[Any], decide: Callable[[*Replies], Verdict[Result]]
) -> Change[Result] | None:
    """Return the change that follows from the replies to a look sent ahead; None: look again.

    An Answer or a refusal from an old look may be out of date, and no EXEC would show it.
    """
    try:
        raise_refusal(replies)
        verdict = decide(*replies[1:])
    except Exception:
        return None
    return verdict if isinstance(verdict, Change) else None


def _execute(
    connection: Connection,
    commands: Sequence[Command],
    next_look: AnyLook | None,
    meanwhile: Callable[[], object] | None,
    replicas: _Replicas | None,
) -> list[Any] | None:
    """Return the replies of the commands, or None when a watched key had changed."""
    block: list[Command] = [_MULTI, *commands, _EXEC]
    end = len(block)
    if replicas is not None:
        block.append(replicas.wait)
    ahead = len(block)
    if next_look is not None:
        block += [("WATCH", *next_look.watch), *next_look.reads]
    replies = connection.exchange(block, meanwhile)
    # The right to use MULTI was taken away: `prove` has to find that out from now on.
    if isinstance(replies[0], RedisRefused):
        connection.is_proven = False
    elif next_look is not None:  # it is watched even if our block was refused
        connection.look_ahead = LookAhead(next_look, replies[ahead:])
    raise_refusal(replies[:end])
    executed: list[Any] | None = replies[end - 1]
    if executed is not None:
        # Redis does not roll back: a command that fails inside EXEC (a key of the wrong type) must
        # not pass unseen.
        if RedisRefused in map(type, executed):
            name_refused(commands, executed)
            raise_refusal([reply for reply in executed if not _is_of_a_record(reply)])
        if replicas is not None:
            replicas.require(replies[end])
    return executed


def _is_of_a_record(reply: Any) -> bool:
    """Return whether the failed command only records something for people: no task stops for that."""
    return isinstance(reply, RedisRefused) and reply.command.partition(" ")[2].startswith(_RECORDS)


def prove(connection: Connection) -> None:
    """Check once for each connection that MULTI is allowed.

    If Redis refused MULTI, it would execute the commands behind it unguarded.
    """
    if not connection.is_proven:
        raise_refusal(connection.exchange([("MULTI",), ("EXEC",)]))
        connection.is_proven = True
