"""The methods of a Queue for how its tasks are run: pause, resume, and its settings in Redis."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from blueque.connection.redis import Redis
from blueque.model.queue_settings import (
    BOUNDS,
    NOT_PAUSED,
    malformed,
    pausing,
    read_setting,
    read_settings,
    write_setting,
)
from blueque.protocol import queues
from blueque.system import process

log = logging.getLogger("blueque")


class Settings:
    """The part of a Queue for how its tasks are run."""

    name: str
    _redis: Redis

    def pause(self, by: str | None = None, reason: str | None = None) -> bool:
        """Keep listeners from taking tasks of this queue; running tasks continue.

        Return False if it was paused already and the reason did not change.
        by, reason: who pauses it (default: this user and host), and why. On a paused queue, a new
            reason replaces both.
        Listeners of 1.0.0 ignore pauses. A queue may be paused before it has tasks; `blueque
        status` shows it once it has a task or listener.
        Source: docs/protocol/operator.md, "set_settings".
        """
        who = process.who_of(by)
        is_new = self._set(pausing(who, reason, time.time()), who)
        log.info("pause queue=%s by=%s", self.name, who)
        return is_new

    def resume(self, by: str | None = None) -> bool:
        """End a pause. Return False if it was not paused.

        by: as for `pause`.
        Source: docs/protocol/operator.md, "set_settings".
        """
        who = process.who_of(by)
        was_paused = self._set(NOT_PAUSED, who)
        log.info("resume queue=%s by=%s", self.name, who)
        return was_paused

    def get_settings(self) -> dict[str, Any]:
        """Return the settings of this queue in Redis, by their names in blueque.toml.

        Settings that are not set, or malformed, are left out.
        """
        from blueque.queries.inspector import Inspector  # here: few producers ask

        (fields,) = Inspector(self._redis).settings([self.name]).values()
        settings, right = read_settings(fields), fields.keys() - malformed(fields).keys()
        found = {"weight": settings.weight, "retry": settings.retry}
        given = {name: value for name, value in found.items() if value is not None}
        keeps = {f"retention.{status}": keep for status, keep in settings.retention.items()}
        bounds = {name: read_setting(name, fields[name]) for name in BOUNDS if name in right}
        return {**given, **settings.limits, **keeps, **bounds}

    def set_settings(self, settings: Mapping[str, Any], by: str | None = None) -> bool:
        """Set defaults for the tasks of this queue on all nodes. Return False if nothing changes.

        settings: weight, retry, time_limit, stall_limit, memory_limit, grace, lead,
            retention.complete, retention.failed or retention.cancelled, each as in the table of the
            queue in blueque.toml; retry may be a `Retry`. max_running: how many of its tasks may
            run at a time, on all nodes together. max_pending: how many may be in line before adding
            more raises QueueFull; discard="oldest" cancels the oldest instead. None removes a setting.
        by: who sets them. Default: this user and host.
        Options of the listener, the table of the queue in its blueque.toml, and its handler take
        precedence. Listeners apply new settings within a beat; those of 1.0.0 ignore them. Limits
        apply to attempts that start afterwards. A retry policy means that a task may run again
        after it has started, also a task that runs already.
        Raises InvalidInput.
        Source: docs/protocol/operator.md, "set_settings".
        """
        from blueque.settings.file import check_setting, require_setting  # here: as above

        wanted: dict[str, str | None] = {}
        for name, value in settings.items():
            require_setting(name)
            checked = None if value is None else check_setting(name, value)
            wanted[name] = None if value is None else write_setting(name, checked)
        if not wanted:
            return False
        who = process.who_of(by)
        is_new = self._set(wanted, who)
        log.info("set_settings queue=%s by=%s: %s", self.name, who, wanted)
        return is_new

    def _set(self, wanted: Mapping[str, str | None], by: str) -> bool:
        self._redis.unbounded_until.pop(self.name, None)
        return queues.set_settings(self._redis, self.name, wanted, time.time(), by)
