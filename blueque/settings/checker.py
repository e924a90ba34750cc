"""Check a blueque.toml as a whole. An error names the file and the key."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any

from blueque.errors import ConfigRefused, InvalidInput
from blueque.model.encoding import require_queue_name, require_schedule_name
from blueque.model.recurrence import read_rule
from blueque.model.schedule import POLICIES, read_policies
from blueque.settings.contents import Config, ScheduleConfig, shown_path
from blueque.settings.of_schedules import RULE
from blueque.settings.table import NAMED, TABLES, rows
from blueque.settings.values import MEANT, hint_of, kind_of, read_queue_names, without_name

Path = tuple[str, ...]

Checks = Mapping[str, Callable[[Any], Any]]
_REUSE = ("reuse", "reuse_for")


class Checker:
    """Turns the values of a file into a Config. path: of the file, for errors."""

    def __init__(self, path: str) -> None:
        self._path = path

    def config(self, values: Mapping[str, Any]) -> Config:
        top = self._table((), values, {**_checks(""), **dict.fromkeys(list(TABLES)[1:], dict)})
        own = {
            table: self._table((table,), top.get(table, {}), _checks(table))
            for table in TABLES
            if table and table not in NAMED
        }
        listener = own["listener"]
        self._require_one_handler(("listener",), listener)
        self._check_times(listener)
        queues = {
            name: self._queue(name, table, listener)
            for name, table in top.get("queues", {}).items()
        }
        schedules = {
            name: self._schedule(name, table) for name, table in top.get("schedules", {}).items()
        }
        aliases = self._aliases(top.get("aliases", {}), queues)
        fanouts = {
            name: self._fanout(("fanouts", name), words, aliases)
            for name, words in top.get("fanouts", {}).items()
        }
        return Config(
            self._path,
            top.get("redis_url"),
            top.get("max_bytes"),
            MappingProxyType(listener),
            MappingProxyType(queues),
            MappingProxyType(own["retention"]),
            own["statistics"].get("keep"),
            tuple(own["show"].get("redact", ())),
            MappingProxyType(own["scheduler"]),
            MappingProxyType(schedules),
            MappingProxyType(aliases),
            MappingProxyType(fanouts),
            MappingProxyType(own["web"]),
            MappingProxyType(own["redis"]),
            MappingProxyType(own["payloads"]),
            MappingProxyType(dict(values)),
        )

    def _check_times(self, listener: Mapping[str, Any]) -> None:
        beat = listener.get("beat")
        for name in ("lease", "lost_after"):
            if beat is not None and name in listener and listener[name] < round(3 * beat, 9):
                raise self._refused(
                    ("listener", name),
                    f"it is {listener[name]:g} s: at least three beats of {beat:g} s are needed, {3 * beat:g} s",
                )

    def _queue(self, name: str, values: Any, listener: Mapping[str, Any]) -> Mapping[str, Any]:
        path = ("queues", name)
        self._checked(path, require_queue_name, name)
        checks = {key: check for key, check in _checks("queues").items() if "." not in key}
        own = self._table(path, values, {**checks, "retention": dict})
        self._require_one_handler(path, own)
        kept = self._table((*path, "retention"), own.pop("retention", {}), _checks("retention"))
        runs = own if own.keys() & {"handler", "exec"} else listener
        if "exec" in runs:
            for key in _REUSE:
                if own.get(key, 1) != 1:
                    reason = "a program always runs in its own process"
                    raise self._refused((*path, key), reason)
        return MappingProxyType(
            {**own, **{f"retention.{status}": keep for status, keep in kept.items()}}
        )

    def _aliases(self, values: Mapping[str, Any], queues: Collection[str]) -> dict[str, str]:
        for name, queue in values.items():
            path = ("aliases", name)
            self._checked(path, require_queue_name, name)
            self._checked(path, require_queue_name, queue)
            if queue in values:
                raise self._refused(path, f"{queue!r} is an alias itself: name the queue")
            if name in queues:
                what = f"[queues] has {name!r} too: a name is a queue or an alias"
                raise self._refused(path, what)
        return dict(values)

    def _fanout(self, path: Path, words: Any, aliases: Mapping[str, str]) -> tuple[str, ...]:
        names = [aliases.get(name, name) for name in self._checked(path, read_queue_names, words)]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise self._refused(path, f"queue {twice!r} is there twice")
        return tuple(names)

    def _schedule(self, name: str, values: Any) -> ScheduleConfig:
        path = ("schedules", name)
        self._checked(path, require_schedule_name, name)
        own = self._table(path, values, _checks("schedules"))
        queue = own.pop("queue", None)
        if queue is None:
            raise self._refused((*path, "queue"), "it is missing: which queue do the tasks go to?")
        try:
            read_rule(**{key: own[key] for key in RULE if key in own})
            read_policies(**{key: own[key] for key in POLICIES if key in own})
        except InvalidInput as error:
            raise self.of_schedule(name, error) from error
        return ScheduleConfig(queue, own.pop("parameters", None), MappingProxyType(own))

    def of_schedule(self, name: str, error: InvalidInput) -> ConfigRefused:
        """Return the error of a schedule whose message begins with the key."""
        key = re.split("[: ]", str(error), maxsplit=1)[0]
        if key in rows("schedules"):
            return self._refused(("schedules", name, key), without_name(key, str(error)))
        return self._refused(("schedules", name), str(error))

    def _require_one_handler(self, path: Path, values: Mapping[str, Any]) -> None:
        if "handler" in values and "exec" in values:
            reason = "handler is set as well: a task has one handler, so set one of the two"
            raise self._refused((*path, "exec"), reason)

    def _table(self, path: Path, values: Any, checks: Checks) -> dict[str, Any]:
        """Return the checked values of a table. A check that is `dict` is for a table."""
        if not isinstance(values, dict):
            raise self._refused(path, f"must be a table, not {kind_of(values)}")
        found = {}
        for key, value in values.items():
            if key not in checks:
                hint = hint_of(key, checks)
                if not hint.startswith(MEANT):
                    hint = _quoted(path, key, value) or hint
                raise self._refused((*path, key), f"unknown key{hint}")
            if checks[key] is not dict:
                found[key] = self._checked((*path, key), checks[key], value)
            elif isinstance(value, dict):
                found[key] = value
            else:
                raise self._refused((*path, key), f"must be a table, not {kind_of(value)}")
        return found

    def _checked(self, path: Path, check: Callable[[Any], Any], value: Any) -> Any:
        if isinstance(value, dict) and len(value) > 1:
            for key, part in value.items():  # to name the key that is wrong
                self._checked(path, check, {key: part})
        if isinstance(value, dict) and len(value) == 1:
            path = (*path, *value)
        try:
            return check(value)
        except (InvalidInput, OverflowError) as error:
            raise self._refused(path, str(error)) from error

    def _refused(self, path: Path, reason: str) -> ConfigRefused:
        return ConfigRefused(self._path, shown_path(path), reason)


def refused_schedule(path: str, name: str, error: InvalidInput) -> ConfigRefused:
    """Return the error for a faulty schedule of a file.

    error: its message begins with the wrong key, if it concerns one.
    """
    return Checker(path).of_schedule(name, error)


def _checks(table: str) -> dict[str, Callable[[Any], Any]]:
    return {row.key: row.kind.read for row in TABLES[table]}


def _quoted(path: Path, key: str, value: object) -> str:
    """Return the advice to quote a name with a dot; empty if that is not the mistake."""
    if len(path) != 2 or path[0] not in ("queues", "schedules") or not isinstance(value, dict):
        return ""
    return f'; a name with a dot is written in quotes: [{path[0]}."{path[1]}.{key}"]'
