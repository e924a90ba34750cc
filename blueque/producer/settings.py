"""The methods of a Queue that say how its tasks are run: pause, resume, and its settings in Redis."""

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
    """The part of a Queue that says how its tasks are run."""

    name: str
    _redis: Redis

    def pause(self, by: str | None = None, reason: str | None = None) -> bool:
        """Stop listeners from taking tasks of this queue; running tasks run on. False: it was
        paused already, for this reason or without another one.

        by, reason: who pauses it (this user and host if left out), and why. A pause that is there
            gets another reason, and the name of the person who gives it. Listeners of 1.0.0 do
            not know pauses. A queue may be paused before it has tasks; `blueque status` shows it
            from its first task or listener on.
        Source: docs/protocol/operator.md, "set_settings".
        """
        who = process.who_of(by)
        is_new = self._set(pausing(who, reason, time.time()), who)
        log.info("pause queue=%s by=%s", self.name, who)
        return is_new

    def resume(self, by: str | None = None) -> bool:
        """End a pause. False: it was not paused.

        by: as for `pause`. Source: docs/protocol/operator.md, "set_settings".
        """
        who = process.who_of(by)
        was_paused = self._set(NOT_PAUSED, who)
        log.info("resume queue=%s by=%s", self.name, who)
        return was_paused

    def get_settings(self) -> dict[str, Any]:
        """Return what the settings of this queue in Redis say of its tasks, by the names in
        blueque.toml: those that are set. A malformed one is left out.
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
        """Set what holds for the tasks of this queue that say nothing else, on all nodes. False:
        it is so already.

        settings: weight, retry, time_limit, stall_limit, memory_limit, grace, lead,
            retention.complete, retention.failed or retention.cancelled, each as in the table of the
            queue in blueque.toml; retry may be a `Retry`. None removes a setting. max_running: how many of
            its tasks may run at a time, on all nodes together. max_pending: how many
            tasks may be in line; then a call that adds more raises QueueFull. discard: "oldest", to
            cancel the oldest of them instead.
        by: who sets them (this user and host if left out).
        What a listener is told nearer to it goes first: by its options, the table of the queue in
        its blueque.toml, or its handler. Listeners know settings within a beat; those of 1.0.0 know
        none. Limits hold for attempts that start then; a retry policy is your consent to further
        attempts, of tasks that run already, too. Raises InvalidInput.
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
