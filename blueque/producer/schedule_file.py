"""The recurring tasks of blueque.toml: compare them with those in Redis, and write them there."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from blueque.connection.redis import Redis
from blueque.errors import InvalidInput, RedisRefused
from blueque.model.schedule import Definition, differing, digest_of
from blueque.producer.schedules import define
from blueque.protocol.schedules import Define, delete_schedule, require_origin, set_schedule
from blueque.queries import schedules
from blueque.queries.schedules import ScheduleSeen
from blueque.settings.checker import refused_schedule
from blueque.settings.contents import Config
from blueque.system import process
from blueque.text.hints import prune_schedules

if TYPE_CHECKING:
    from blueque.producer.queue import Queue

log = logging.getLogger("blueque")

ORIGIN = "file"


class Change(NamedTuple):
    """The change to one schedule.

    what: `new`, `changed`, `same`, or `left`: it came from the file and is no longer in it.
    definition: None if it is `left`. fields: those that differ.
    """

    name: str
    what: str
    definition: Definition | None
    fields: Sequence[str] = ()


def definitions(config: Config, get_queue: Callable[[str], Queue]) -> dict[str, Definition]:
    """Return what the file defines, by name. Raises ConfigRefused."""
    found = {}
    for name, table in config.schedules.items():
        try:
            found[name] = define(get_queue(table.queue), name, table.parameters, **table.options)
        except InvalidInput as error:
            raise refused_schedule(config.path or "", name, error) from error
    return found


def changes(
    path: str, wanted: Mapping[str, Definition], there: Sequence[ScheduleSeen], now: float
) -> list[Change]:
    """Return the change to each schedule of the file, in its order, then those that are left.

    path: of the file. there: those in Redis. now: the clock of Redis.
    Raises WrongSchedule for one that was made by hand; ConfigRefused for a new one whose end is past.
    """
    records = {seen.name: seen.fields for seen in there}
    found = [_change(path, name, wanted[name], records.get(name, {}), now) for name in wanted]
    gone = [
        name
        for name, fields in records.items()
        if fields.get("origin") == ORIGIN and name not in wanted
    ]
    return found + [Change(name, "left", None) for name in sorted(gone)]


def apply(
    redis: Redis, steps: Sequence[Change], prunes: bool = False, by: str | None = None
) -> list[tuple[str, str]]:
    """Write the schedules of the file to Redis. Return the name of each, and what was done.

    That is `new`, `changed`, `same`, `left` or `removed`.
    prunes: remove those that are left. by: who does it. Default: this user and host.
    """
    done, who = [], process.who_of(by)
    for name, what, definition, _ in steps:
        if definition is not None:
            what = set_schedule(redis, name, Define(definition, ORIGIN), who)
        elif prunes:
            delete_schedule(redis, name, who)
            what = "removed"
        log.log(
            logging.DEBUG if what == "same" else logging.INFO,
            "set_schedule schedule=%s origin=%s result=%s",
            name,
            ORIGIN,
            what,
        )
        done.append((name, what))
    return done


class SchedulesOfFile(NamedTuple):
    """All recurring tasks of a file, for a program that applies them by itself.

    path: of the file. wanted: what `definitions` returned.
    """

    path: str
    wanted: Mapping[str, Definition]

    def apply(self, redis: Redis) -> None:
        """Write them to Redis and remove none. A refusal is logged, and nothing is applied.

        Raises RedisAway, RedisRefused.
        """
        now = schedules.clock_of(redis)
        try:
            steps = changes(self.path, self.wanted, schedules.load_all(redis), now)
            done = apply(redis, steps)
        except (InvalidInput, RedisRefused) as error:
            if isinstance(error, RedisRefused) and not error.concerns_keys:
                raise
            log.error("the schedules of %s are not applied: %s", self.path, error)
            return
        left = [name for name, what in done if what == "left"]
        log.info("applied the schedules of %s: %s", self.path, _counted(done) or "it has none")
        if left:
            log.warning(
                "from an earlier file and not in %s: %s; to remove them: %s",
                self.path,
                ", ".join(left),
                prune_schedules(os.path.abspath(self.path)),
            )


def _counted(done: Sequence[tuple[str, str]]) -> str:
    numbers = Counter(what for _, what in done)
    return ", ".join(f"{number} {what}" for what, number in numbers.items())


def _change(
    path: str, name: str, definition: Definition, record: Mapping[str, str], now: float
) -> Change:
    wanted = definition.as_stored(name, record).fields()
    if not record:
        if definition.rule.next_after(now) is None:
            error = InvalidInput("until: it is past, so a new schedule would make no task")
            raise refused_schedule(path, name, error)
        return Change(name, "new", definition)
    require_origin(name, record, ORIGIN)
    fields = differing(record, wanted)
    is_same = record.get("digest") == digest_of(wanted)
    # The zone of this host may know another time for the same rule.
    following = definition.rule.next_after(float(record.get("last", "0")))
    if is_same and record.get("planned") != (None if following is None else str(following)):
        is_same, fields = False, ["planned"]
    return Change(name, "same" if is_same else "changed", definition, fields)
