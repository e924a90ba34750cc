"""Retention: delete finished tasks that are older, or more, than their queue keeps."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from blueque import protocol
from blueque.connection.redis import Redis
from blueque.errors import RedisRefused
from blueque.model.states import Place
from blueque.model.units import Keep
from blueque.protocol.pruning import Ended
from blueque.queries import finished as ended

log = logging.getLogger("blueque")

AT_ONCE = 100  # tasks of one list; the time of WATCH grows with the square of the keys
COUNTED_AT_ONCE = 1000  # tasks that `count` looks at in one round trip
LISTS_AT_ONCE = 300  # lists that one step looks at; the next step goes on with the others
REFUSED_PAUSE = 60.0  # seconds before a queue is tried again after Redis refused a command
SHARE = 0.2  # the largest part of the time that deleting may take
LOG_EVERY = 60.0  # seconds between two lines of the log about the same list


class Retention:
    """Deletes the finished tasks of some queues.

    rules: how long tasks stay, by queue and by status.
    rest: seconds to wait before the next step if there is more to delete.
    """

    def __init__(self, redis: Redis, rules: Mapping[str, Mapping[str, Keep]]) -> None:
        self._redis = redis
        self._rules: dict[Place, Keep] = {}
        # How many tasks at the end of a list stay, and the last of them.
        self._passed: dict[Place, tuple[int, str | None]] = {}
        # The oldest id of a list, and the end of the first task that stays.
        self._quiet: dict[Place, tuple[str, float]] = {}
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
        """Delete tasks, oldest first. Return whether there may be more. It takes one round trip
        when there is nothing to delete.
        """
        began = time.monotonic()
        is_more = self._step(self._turn())
        self.rest = (time.monotonic() - began) * (1 / SHARE - 1)
        return is_more

    def delete_all(self) -> None:
        """Delete everything that the rules do not keep, list by list, without a rest."""
        for place in self._rules:
            while self._step([place]):
                pass

    def count(self) -> Counter[Place]:
        """Return how many tasks `delete_all` would delete, by list. Nothing is changed."""
        numbers: Counter[Place] = Counter()
        for place, keep in self._rules.items():
            stock = ended.stock(self._redis, [place])
            passed = 0
            while place.queue not in stock.archiving:
                (tasks,) = ended.oldest(self._redis, {place: passed}, COUNTED_AT_ONCE).values()
                length = stock.lengths[place] - passed
                going = sum(1 for _ in _going(keep, stock.now, length, tasks))
                numbers[place] += going
                passed += len(tasks)
                is_all_going = going + tasks.count(None) == len(tasks)
                if len(tasks) < COUNTED_AT_ONCE or not is_all_going:
                    break
        return +numbers

    def _turn(self) -> list[Place]:
        """Return the lists that this step looks at."""
        now = time.monotonic()
        places = [place for place in self._rules if now >= self._left_alone.get(place.queue, 0.0)]
        first = self._next if self._next < len(places) else 0
        self._next = first + LISTS_AT_ONCE
        return places[first : self._next]

    def _step(self, places: Sequence[Place]) -> bool:
        if not places:
            return False
        try:
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
                self._redis, {place: self._passed_now(place, stock) for place in busy}, AT_ONCE
            )
            left = [self._delete(place, oldest[place], stock) for place in busy]
        except RedisRefused as error:
            return self._apart(places, error)
        return any(left)

    def _apart(self, places: Sequence[Place], error: RedisRefused) -> bool:
        """Do the step queue by queue, so that a queue with a key of a wrong type stops no other."""
        queues = list(dict.fromkeys(place.queue for place in places))
        if len(queues) > 1:
            left = [
                self._step([place for place in places if place.queue == queue]) for queue in queues
            ]
            return any(left)
        log.debug("prune queue=%s: %s", queues[0], error)
        self._left_alone[queues[0]] = time.monotonic() + REFUSED_PAUSE
        return False

    def _may_have_old(self, place: Place, stock: ended.Stock) -> bool:
        keep, oldest, length = self._rules[place], stock.oldest[place], stock.lengths[place]
        if oldest is None or length <= keep.least:
            return False
        stays = [] if keep.age is None else [keep.age]
        if keep.newest is not None and length > keep.newest:
            stays.append(keep.spared)
        noted, ended = self._quiet.get(place, ("", 0.0))
        return bool(stays) and (
            noted != oldest or ended + min(stays) < stock.now or min(stays) == 0.0
        )

    def _passed_now(self, place: Place, stock: ended.Stock) -> int:
        """Return how many tasks to pass over; 0 once another program has removed some of them."""
        passed, last = self._passed.get(place, (0, None))
        return passed if last == stock.oldest[place] else 0

    def _delete(self, place: Place, oldest: Sequence[Ended | None], stock: ended.Stock) -> bool:
        keep, passed = self._rules[place], self._passed_now(place, stock)
        floors = dict(_going(keep, stock.now, stock.lengths[place] - passed, oldest))
        going, deleted = list(floors), self._prune(place, floors)
        self.deleted[place] += deleted
        # An entry without such a task stays; the doctor removes it.
        passed += sum(task is None for task in oldest)
        following = next((task for task in oldest if task is not None and task not in going), None)
        self._log(place, deleted, is_all=following is not None)
        if following is None and oldest and len(going) == deleted:
            self._passed[place] = passed, stock.oldest[place]
            return True
        if following is not None and not going:
            self._quiet[place] = (stock.oldest[place] or "", following.at)
        # Another program is deleting, too: leave it to that one, and start anew next time.
        self._passed.pop(place, None)
        return False

    def _prune(self, place: Place, floors: Mapping[Ended, int]) -> int:
        """Delete tasks, oldest first, unless the list becomes too short. Return how many."""
        deleted = 0
        for floor in dict.fromkeys(floors.values()):
            tasks = [task for task, least in floors.items() if least == floor]
            gone = protocol.prune(self._redis, place.queue, place.kind, tasks, floor)
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


def _going(
    keep: Keep, now: float, length: int, oldest: Iterable[Ended | None]
) -> Iterator[tuple[Ended, int]]:
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
