"""Retention: delete finished tasks beyond the age or number that their queue keeps."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from blueque.connection.redis import Redis
from blueque.errors import RedisRefused
from blueque.model.states import Place
from blueque.model.units import Keep
from blueque.model.wrong_types import all_or_each
from blueque.producer.dependents import is_awaited
from blueque.protocol import pruning
from blueque.protocol.pruning import FinishedTask
from blueque.queries import finished as ended
from blueque.queries import groups

log = logging.getLogger("blueque")

PRUNED_AT_ONCE = 100  # tasks of one list; the time of WATCH grows with the square of the keys
COUNTED_AT_ONCE = 1000  # tasks that `count` looks at in one round trip
LISTS_AT_ONCE = 300  # lists that one step looks at; the next step goes on with the others
REFUSED_PAUSE = 60.0  # seconds before a queue is tried again after Redis refused a command
SHARE = 0.2  # the largest part of the time that deleting may take
LOG_EVERY = 60.0  # seconds between two lines of the log about the same list
AWAITED_AT_ONCE = 10  # tasks of one list that are asked for their dependents in one step
DEPENDENTS_AT_ONCE = 10  # hundreds of dependents of one task that one step looks at
ASK_AGAIN = 3600.0  # seconds after which tasks for which others waited are looked at again


class Retention:
    """Deletes finished tasks of some queues, except those that others wait for or that a group holds.

    rules: how long tasks are kept, by queue and by status.
    rest: seconds to wait before the next step if there is more to delete.
    """

    def __init__(self, redis: Redis, rules: Mapping[str, Mapping[str, Keep]]) -> None:
        self._redis = redis
        self._rules: dict[Place, Keep] = {}
        # How many tasks at the end of a list stay, and the last of them.
        self._passed: dict[Place, tuple[int, str | None]] = {}
        # The oldest id of a list, and the end of the first task that stays, or an earlier time.
        self._quiet: dict[Place, tuple[str, float]] = {}
        self._awaited = set[str]()  # tasks for which others wait
        self._ask_at = 0.0  # the monotonic time when they are asked again
        self._left_alone: dict[str, float] = {}  # by queue: the monotonic time until then
        self._was_empty = False  # the lists that the last step looked at
        self._next = 0  # the list with which the next step begins
        self.rest = 0.0
        self._unlogged: Counter[Place] = Counter()  # deleted tasks
        self._log_at: dict[Place, float] = {}
        self.deleted: Counter[Place] = Counter()  # tasks, by list
        self.serve(rules)

    def serve(self, rules: Mapping[str, Mapping[str, Keep]]) -> None:
        """Use these rules from the next step on."""
        self._rules = {
            Place(status, queue): keep
            for queue, by_status in rules.items()
            for status, keep in by_status.items()
            if keep != Keep()
        }
        for noted in (self._passed, self._quiet):
            for place in [*noted]:
                if place not in self._rules:
                    del noted[place]

    @property
    def is_asked_for(self) -> bool:
        return bool(self._rules)

    def step(self) -> bool:
        """Delete tasks, oldest first. Return whether there may be more.

        It takes one round trip when there is nothing to delete. A queue that Redis refuses is left
        alone for a minute. If the reason is not in its keys, as when Redis is out of memory, that
        goes for all queues of the step.
        """
        began, places = time.monotonic(), self._turn()
        try:
            is_more = self._step(places)
        except RedisRefused as error:
            is_more = False
            for queue in dict.fromkeys(place.queue for place in places):
                self._leave_alone(queue, error)
        self.rest = (time.monotonic() - began) * (1 / SHARE - 1)
        return is_more

    def delete_all(self) -> None:
        """Delete everything that the rules do not keep, list by list, without a pause."""
        for place in self._rules:
            while self._step([place]):
                pass

    def count(self) -> Counter[Place]:
        """Return how many tasks `delete_all` would delete, by list. Nothing is changed.

        It leaves out tasks that others wait for or waited for, and those that are held.
        """
        numbers: Counter[Place] = Counter()
        places = [*self._rules]
        for first in range(0, len(places), LISTS_AT_ONCE):
            some = places[first : first + LISTS_AT_ONCE]
            stock = ended.stock(self._redis, some)
            for place in some:
                numbers[place] += sum(self._counted(place, stock))
        return +numbers

    def _counted(self, place: Place, stock: ended.Stock) -> Iterator[int]:
        """Yield how many tasks of a list go, of oldest first."""
        passed, is_all_going = 0, stock.lengths[place] > 0 and place.queue not in stock.archiving
        while is_all_going:
            (tasks,) = ended.oldest(self._redis, {place: passed}, COUNTED_AT_ONCE).values()
            length = stock.lengths[place] - passed
            going = [task for task, _ in _going(self._rules[place], stock.now, length, tasks)]
            held = self._held(going, stock.now)
            yield sum(not task.has_dependents and task not in held for task in going)
            passed += len(tasks)
            is_whole = len(tasks) == COUNTED_AT_ONCE
            is_all_going = is_whole and len(going) + tasks.count(None) == len(tasks)

    def _turn(self) -> list[Place]:
        """Return the lists that this step handles."""
        now = time.monotonic()
        places = [place for place in self._rules if now >= self._left_alone.get(place.queue, 0.0)]
        first = self._next if self._next < len(places) else 0
        self._next = first + LISTS_AT_ONCE
        return places[first : self._next]

    def _step(self, places: Sequence[Place]) -> bool:
        if not places:
            return False

        def step(queues: Sequence[str]) -> bool:
            return self._step_of([place for place in places if place.queue in queues])

        queues = list(dict.fromkeys(place.queue for place in places))
        return any(all_or_each(queues, step, self._leave_alone))

    def _leave_alone(self, queue: str, error: RedisRefused) -> None:
        log.debug("prune queue=%s: %s", queue, error)
        self._left_alone[queue] = time.monotonic() + REFUSED_PAUSE

    def _step_of(self, places: Sequence[Place]) -> bool:
        if self._was_empty and not ended.is_any(self._redis, places):
            return False
        # The clock of Redis: a wrong clock of this host would delete everything.
        stock = ended.stock(self._redis, places)
        self._was_empty = not any(stock.lengths.values())
        busy = [
            place
            for place in places
            if place.queue not in stock.archiving and self._may_have_old(place, stock)
        ]
        oldest = ended.oldest(
            self._redis, {place: self._passed_now(place, stock) for place in busy}, PRUNED_AT_ONCE
        )
        left = [self._delete(place, oldest[place], stock) for place in busy]
        return any(left)

    def _may_have_old(self, place: Place, stock: ended.Stock) -> bool:
        keep, oldest, length = self._rules[place], stock.oldest[place], stock.lengths[place]
        stay = _stay(keep, length)
        if oldest is None or length <= keep.least or stay is None:
            return False
        noted, ended = self._quiet.get(place, ("", 0.0))
        return noted != oldest or ended + stay < stock.now or stay == 0.0

    def _passed_now(self, place: Place, stock: ended.Stock) -> int:
        """Return how many tasks to skip; 0 once another program has removed some of them."""
        passed, last = self._passed.get(place, (0, None))
        return passed if last == stock.oldest[place] else 0

    def _delete(
        self, place: Place, oldest: Sequence[FinishedTask | None], stock: ended.Stock
    ) -> bool:
        keep, passed = self._rules[place], self._passed_now(place, stock)
        oldest = self._few_awaited(oldest)
        due = dict(_going(keep, stock.now, stock.lengths[place] - passed, oldest))
        held = self._held(due, stock.now)
        floors = {
            task: floor
            for task, floor in due.items()
            if task not in held and not self._is_awaited(task, stock.now)
        }
        deleted = self._prune(place, floors)
        self.deleted[place] += deleted
        following = next((task for task in oldest if task is not None and task not in due), None)
        self._log(place, deleted, is_all=following is not None)
        if following is None and oldest and len(floors) == deleted:
            # An entry without such a task stays; the doctor removes it.
            passed += oldest.count(None) + len(due) - len(floors)
            self._passed[place] = passed, stock.oldest[place]
            return True
        if not floors:
            # Those that stay although they are old enough are looked at again, too.
            stay = _stay(keep, stock.lengths[place]) or 0.0
            again = stock.now - max(stay - ASK_AGAIN, 0.0)
            at = again if following is None else min(following.at, again)
            self._quiet[place] = (stock.oldest[place] or "", at)
        # Another program is deleting, too: leave it to that one, and start anew next time.
        self._passed.pop(place, None)
        return False

    def _held(self, tasks: Collection[FinishedTask], now: float) -> set[FinishedTask]:
        """Return the tasks that their group holds until they are collected."""
        held = groups.held(self._redis, {task.group for task in tasks if task.group}, now)
        return {task for task in tasks if task.group in held}

    def _few_awaited(self, oldest: Sequence[FinishedTask | None]) -> Sequence[FinishedTask | None]:
        """Return the first of these tasks, because checking for dependents takes a transaction for each."""
        now = time.monotonic()
        if now >= self._ask_at:
            self._awaited.clear()
            self._ask_at = now + ASK_AGAIN
        to_ask = [number for number, task in enumerate(oldest) if self._is_to_ask(task)]
        return oldest[: to_ask[AWAITED_AT_ONCE]] if len(to_ask) > AWAITED_AT_ONCE else oldest

    def _is_to_ask(self, task: FinishedTask | None) -> bool:
        return task is not None and task.has_dependents and task.task not in self._awaited

    def _is_awaited(self, task: FinishedTask, now: float) -> bool:
        """Return whether others wait for a task. If they no longer do, it can be deleted."""
        if self._is_to_ask(task) and is_awaited(self._redis, task.task, now, DEPENDENTS_AT_ONCE):
            self._awaited.add(task.task)
        return task.has_dependents and task.task in self._awaited

    def _prune(self, place: Place, floors: Mapping[FinishedTask, int]) -> int:
        """Delete tasks, oldest first, unless the list becomes too short. Return how many."""
        deleted = 0
        for floor in dict.fromkeys(floors.values()):
            tasks = [task for task, least in floors.items() if least == floor]
            gone = pruning.prune(self._redis, place.queue, place.kind, tasks, floor)
            deleted += gone
            if gone < len(tasks):  # the list has changed
                break
        return deleted

    def _log(self, place: Place, deleted: int, is_all: bool) -> None:
        """Log what was deleted: at once, then once a minute, and at the end."""
        self._unlogged[place] += deleted
        if self._unlogged[place] and (is_all or time.monotonic() >= self._log_at.get(place, 0.0)):
            log.info(
                "prune queue=%s status=%s tasks=%d: kept as long as they are to be",
                place.queue,
                place.kind,
                self._unlogged.pop(place),
            )
            self._log_at[place] = time.monotonic() + LOG_EVERY


def _stay(keep: Keep, length: int) -> float | None:
    """Return for how many seconds the tasks of a list of this length are kept at least; None: for ever."""
    stays = [] if keep.age is None else [keep.age]
    if keep.newest is not None and length > keep.newest:
        stays.append(keep.spared)
    return min(stays, default=None)


def _going(
    keep: Keep, now: float, length: int, oldest: Iterable[FinishedTask | None]
) -> Iterator[tuple[FinishedTask, int]]:
    """Yield the tasks to delete, each with the length below which the list must not fall.

    length: of the list. oldest: the tasks at its end.
    """
    for number, task in enumerate(oldest):
        if length - number <= keep.least:
            return
        if task is None:
            continue
        if keep.age is not None and task.at < now - keep.age:
            yield task, keep.least
        elif (
            keep.newest is not None
            and length - number > keep.newest
            and (not keep.spared or task.at < now - keep.spared)
        ):
            yield task, keep.newest
        else:  # the next tasks have ended later
            return
