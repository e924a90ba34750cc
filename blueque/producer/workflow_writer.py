"""Writes a workflow to Redis in parts; none of its tasks runs before all are there."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from blueque.connection.redis import Redis
from blueque.errors import (
    Contended,
    InvalidInput,
    NoSuchGroup,
    NoSuchTask,
    OutcomeUnknown,
    RedisAway,
    RedisRefused,
    WrongGroup,
)
from blueque.model import trace
from blueque.model.conditions import OK, count_named, require_few
from blueque.model.group import MAKING, condition_on, gate_of
from blueque.model.new_task import NewTask
from blueque.model.parts import in_parts
from blueque.producer.sealing import store
from blueque.protocol.dependencies import AT_ONCE, LINKS_AT_ONCE
from blueque.protocol.graphs import (
    MOST_BYTES,
    MOST_TASKS,
    Graph,
    close_graph,
    extend_graph,
    open_graph,
    require_sound,
    was_cancelled,
)
from blueque.protocol.groups import finish_group, settle_group
from blueque.queries import groups
from blueque.queries.tasks import first_existing, first_missing, state_of

CHECKED = 1000  # ids in one round trip
LET_GO = 10  # times a hundred tasks that the producer lets go itself


class WorkflowWriter:
    """Writes a workflow, or continues what another process has written of it.

    tasks: each after all those that it waits for. keep: as for open_group.
    """

    def __init__(self, redis: Redis, group: str, keep: int, tasks: Sequence[NewTask]) -> None:
        self._redis, self._group = redis, group
        self._gate = condition_on(gate_of(group))
        self._own = {new.task for new in tasks}
        gated = [self._gated(new) for new in tasks]
        named = dict.fromkeys(name for new in tasks for name in new.conditions)
        self._outer = [name for name in named if name not in self._own]
        stored, payloads = [store(redis, new) for new in gated], redis.settings.payloads
        # What is encrypted differs each time, so the digest is that of the plain tasks. Without a secret
        # in it, parameters could be guessed.
        file = None if payloads is None or stored == gated else payloads.file
        secret = b"" if file is None else file.first().octets
        self._graph = Graph(group, keep, digest(gated, secret), stored)
        require_sound(self._graph)
        for new in gated:
            _require_room(new)

    def commit(self, is_again: bool = False) -> bool:
        """Write all tasks, or continue where this or another process stopped.

        Return False if another group has this name, or this one has all of its tasks.
        is_again: an earlier call may have written all of them and lost the answer.
        Raises OutcomeUnknown if it stops halfway: nothing runs until it is called again. WrongGroup
            if it was cancelled before all tasks were there, and perhaps removed since.
        """
        state = state_of(self._redis, self._group)
        if state is None:
            self._require_others()
        if not open_graph(self._redis, self._graph, time.time()):
            return False
        is_new = state in (None, MAKING)
        try:
            self._make_all(is_new)
            if is_new:
                self._let_go()
        except (RedisAway, RedisRefused, Contended) as error:
            if not is_new:
                raise
            sentence = f"workflow {self._group!r} is not complete; commit it again: {error}"
            raise OutcomeUnknown(sentence) from error
        return is_new or is_again

    def _gated(self, new: NewTask) -> NewTask:
        """Return a task that does not run before its workflow is complete."""
        if any(kind == OK and parent in self._own for parent, kind in new.conditions.items()):
            return new  # that one does not
        return new._replace(conditions={**new.conditions, self._gate: OK})

    def _require_others(self) -> None:
        """Refuse a workflow that could not be made, because tasks outside of it are not there."""
        for some in in_parts(self._outer, CHECKED):
            missing = first_missing(self._redis, some)
            if missing is not None:
                raise missing
        for some in in_parts([new.task for new in self._graph.tasks], CHECKED):
            if first_existing(self._redis, some) is not None:
                raise WrongGroup(
                    self._group, "tasks of an earlier workflow with this name are in Redis"
                )

    def _make_all(self, is_new: bool) -> None:
        try:
            # A failover may have lost what was there.
            while is_new and not self._is_complete():
                pass
        except (NoSuchTask, NoSuchGroup) as error:
            if self._was_cancelled(error):
                raise was_cancelled(self._group) from error
            raise

    def _was_cancelled(self, error: NoSuchTask | NoSuchGroup) -> bool:
        """Return whether the error means that the workflow was cancelled, and perhaps removed since."""
        seen = groups.load(self._redis, self._group)
        if seen is None:
            return True
        lacks_gate = isinstance(error, NoSuchGroup) and error.group == gate_of(self._group)
        return not seen.is_whole and (lacks_gate or "cancel" in seen.record)

    def _is_complete(self) -> bool:
        """Create all missing tasks. Return whether all exist; a failover may have lost some."""
        made, size = 0, len(self._graph.tasks)
        while made < size:
            tasks = _first_of(self._graph.tasks, made)
            made = extend_graph(self._redis, self._graph, made, tasks, time.time())
        return close_graph(self._redis, self._graph, time.time()) >= size

    def _let_go(self) -> None:
        """Release the first tasks at once; listeners and schedulers release the others."""
        gate = gate_of(self._group)
        with suppress(RedisAway, RedisRefused, Contended):
            if finish_group(self._redis, gate, time.time()) != "ended":
                return
            for _ in range(LET_GO):
                if settle_group(self._redis, gate, time.time()).is_over:
                    return


def in_order(parents: Mapping[str, Sequence[str]]) -> tuple[list[str], list[str]]:
    """Return all tasks, each after those that it waits for, and a circle of tasks, if there is one.

    parents: of each task; others have none.
    """
    order: dict[str, None] = {}
    for first in parents:
        path = [] if first in order else [(first, iter(parents[first]))]
        entered = {first}
        while path:
            task, left = path[-1]
            parent = next(left, None)
            if parent is None:
                path.pop()
                entered.discard(task)
                order[task] = None
            elif parent in entered:
                names = [each for each, _ in path]
                return [*order], names[names.index(parent) :]
            elif parent in parents and parent not in order:
                path.append((parent, iter(parents[parent])))
                entered.add(parent)
    return [*order], []


def digest(tasks: Sequence[NewTask], secret: bytes = b"") -> str:
    """Return a text that identifies these tasks in this order, in any process with the same secret."""
    found = hashlib.sha256(secret)
    for task, queue, parameters, options, conditions, eta in tasks:
        named = dict(options)
        named.pop("producer", None)  # of a process, as is the trace
        if "context" in named:
            named["context"] = trace.without(str(named["context"]))
        fields = sorted(item for item in named.items() if item != ("context", ""))
        waits = sorted(conditions.items())
        row = json.dumps([queue, task, parameters, fields, waits, eta])
        found.update(row.encode() + b"\n")
    return found.hexdigest()[:32]


def _require_room(new: NewTask) -> None:
    named = count_named(new.conditions)
    require_few(named)
    size = len(new.parameters.encode())
    if size > MOST_BYTES:
        why = f"the parameters of one task take {size:,} bytes; a workflow takes {MOST_BYTES:,} at once"
        raise InvalidInput(why)


def _first_of(tasks: Sequence[NewTask], first: int) -> Sequence[NewTask]:
    """Return as many tasks, from this one on, as one transaction takes."""
    own, others = set[str](), set[str]()
    links = size = 0
    for place, new in enumerate(tasks[first : first + MOST_TASKS], first):
        outer = {name for name in new.conditions if name not in own}
        links, size = links + len(new.conditions), size + len(new.parameters.encode())
        is_full = links > LINKS_AT_ONCE or size > MOST_BYTES or len(others | outer) > AT_ONCE
        if is_full and place > first:  # one comes alone, however many it waits for
            return tasks[first:place]
        own.add(new.task)
        others |= outer
    return tasks[first : first + MOST_TASKS]
