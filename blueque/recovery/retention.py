"""Retention: deletes finished tasks that have been kept long enough, or of which there are too
many, some at a time.
"""

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

AT_ONCE = 100  # of one list: WATCH gets slow with the square of their number
COUNTED_AT_ONCE = 1000  # tasks that `count` looks at in one round trip
LISTS_AT_ONCE = 300  # that one step looks at; of more, others have their turn next time
REFUSED_PAUSE = 60.0  # seconds for which a queue that Redis refuses to serve is left alone
SHARE = 0.2  # of our time at most, where there is a lot to delete
SAY_EVERY = 60.0  # seconds between two lines of the log about the same list


class Retention:
    """Deletes the finished tasks of some queues.

    rules: how long tasks stay, by queue and by status.
    rest: for how many seconds to leave Redis alone after a step that has left some.
    """

    def __init__(self, redis: Redis, rules: Mapping[str, Mapping[str, Keep]]) -> None:
        self._redis = redis
        self._rules: dict[Place, Keep] = {}
        # How many at the end of a list are not to be deleted, and the last of them.
        self._passed: dict[Place, tuple[int, str | None]] = {}
        # the oldest id, and when the first that stays has ended
        self._quiet: dict[Place, tuple[str, float]] = {}
        self._left_alone: dict[str, float] = {}  # queue -> until when, on the monotonic clock
        self._next = 0  # the list with which the next step begins
        self.rest = 0.0
        self._unsaid: Counter[Place] = Counter()  # how many of these nobody has read of
        self._say_at: dict[Place, float] = {}
        self.deleted: Counter[Place] = Counter()  # how many, of each list
        self.serve(rules)

    def serve(self, rules: Mapping[str, Mapping[str, Keep]]) -> None:
        """Go by these rules from the next step on."""
        every = {
            Place(status, queue): keep
            for queue, its in rules.items()
            for status, keep in its.items()
        }
        self._rules = {place: keep for place, keep in every.items() if keep != Keep()}
        self._passed = {
            place: known for place, known in self._passed.items() if place in self._rules
        }
        self._quiet = {place: known for place, known in self._quiet.items() if place in self._rules}

    @property
    def is_asked_for(self) -> bool:
        return bool(self._rules)

    def step(self) -> bool:
        """Delete what is to go, oldest first; return whether there may be more. One round trip
        while there is nothing.
        """
        began = time.monotonic()
        is_more = self._step(self._turn())
        self.rest = (time.monotonic() - began) * (1 / SHARE - 1)
        return is_more

    def delete_all(self) -> None:
        """Delete all that is to go, one list after the other, without a rest."""
        for place in self._rules:
            while self._step([place]):
                pass

    def count(self) -> Counter[Place]:
        """Return how many tasks are to go, of each list that has some; look at each of them, and
        change nothing.
        """
        found: Counter[Place] = Counter()
        for place, keep in self._rules.items():
            stock = ended.stock(self._redis, [place])
            passed = 0
            while place.queue not in stock.archiving:
                (some,) = ended.oldest(self._redis, {place: passed}, COUNTED_AT_ONCE).values()
                going = sum(1 for _ in _going(keep, stock.now, stock.lengths[place] - passed, some))
                found[place] += going
                passed += len(some)
                if len(some) < COUNTED_AT_ONCE or going + sum(one is None for one in some) < len(
                    some
                ):
                    break
        return +found

    def _turn(self) -> list[Place]:
        """Return the lists that a step is about."""
        now = time.monotonic()
        places = [place for place in self._rules if now >= self._left_alone.get(place.queue, 0.0)]
        first = self._next if self._next < len(places) else 0
        self._next = first + LISTS_AT_ONCE
        return places[first : self._next]

    def _step(self, places: Sequence[Place]) -> bool:
        if not places:
            return False
        try:
            # One clock for all: a wrong one here would delete everything.
            stock = ended.stock(self._redis, places)
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
        """Serve queues one by one: what is wrong with one is not to keep the others from being
        served.
        """
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
        known, ended = self._quiet.get(place, ("", 0.0))
        return bool(stays) and (
            known != oldest or ended + min(stays) < stock.now or min(stays) == 0.0
        )

    def _passed_now(self, place: Place, stock: ended.Stock) -> int:
        """Return how many to pass over: none once somebody has taken some of them away, else others
        would be.
        """
        passed, last = self._passed.get(place, (0, None))
        return passed if last == stock.oldest[place] else 0

    def _delete(self, place: Place, oldest: Sequence[Ended | None], stock: ended.Stock) -> bool:
        keep, passed = self._rules[place], self._passed_now(place, stock)
        floors = dict(_going(keep, stock.now, stock.lengths[place] - passed, oldest))
        going, deleted = list(floors), self._prune(place, floors)
        self.deleted[place] += deleted
        # no task that has ended so; the doctor sees to it
        passed += sum(one is None for one in oldest)
        following = next((one for one in oldest if one is not None and one not in going), None)
        self._say(place, deleted, is_all=following is not None)
        if following is None and oldest and len(going) == deleted:
            self._passed[place] = passed, stock.oldest[place]
            return True
        if following is not None and not going:
            self._quiet[place] = (stock.oldest[place] or "", following.at)
        # Somebody may have seen to them by the next time. Who has found others deleting leaves it
        # to them.
        self._passed.pop(place, None)
        return False

    def _prune(self, place: Place, floors: Mapping[Ended, int]) -> int:
        """Delete tasks, the oldest first, each as long as the list does not become too short;
        return how many.
        """
        deleted = 0
        for floor in dict.fromkeys(floors.values()):
            some = [one for one, its in floors.items() if its == floor]
            gone = protocol.prune(self._redis, place.queue, place.kind, some, floor)
            deleted += gone
            if gone < len(some):  # what is counted may now be another
                break
        return deleted

    def _say(self, place: Place, deleted: int, is_all: bool) -> None:
        """Log what was deleted: at once, then now and then, and when it is all."""
        self._unsaid[place] += deleted
        if self._unsaid[place] and (is_all or time.monotonic() >= self._say_at.get(place, 0.0)):
            log.info(
                "prune queue=%s status=%s tasks=%d: kept as long as they are to be",
                place.queue,
                place.kind,
                self._unsaid.pop(place),
            )
            self._say_at[place] = time.monotonic() + SAY_EVERY


def _going(
    keep: Keep, now: float, length: int, oldest: Iterable[Ended | None]
) -> Iterator[tuple[Ended, int]]:
    """Yield those that are to go, of the end of a list of this length, each with how short the list
    may become by it.
    """
    for place, one in enumerate(oldest):
        if length - place <= keep.least:
            return
        if one is None:
            continue
        if keep.age is not None and one.at < now - keep.age:
            yield one, keep.least
        elif (
            keep.newest is not None
            and length - place > keep.newest
            and (not keep.spared or one.at < now - keep.spared)
        ):
            yield one, keep.newest
        else:  # and those that come next have ended later
            return
