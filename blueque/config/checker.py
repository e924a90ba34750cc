"""Check a blueque.toml as a whole. An error names the file and the key."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any

from blueque.config.contents import Config, QueueConfig, ScheduleConfig
from blueque.config.tables import (
    CWD_KEYS,
    FINISHED,
    REUSE,
    RULE,
    listener_checks,
    log_checks,
    queue_checks,
    schedule_checks,
    top_checks,
    web_checks,
)
from blueque.config.values import (
    LIMITS,
    MEANT,
    hint_of,
    kind_of,
    read_days,
    read_keep,
    read_queue_names,
    read_texts,
    read_yes_or_no,
    without_name,
)
from blueque.errors import ConfigRefused, InvalidInput
from blueque.model.encoding import require_queue_name, require_schedule_name
from blueque.model.recurrence import read_rule
from blueque.model.schedule import POLICIES, read_policies
from blueque.model.units import HandlerName, Keep

Path = tuple[str, ...]


class Checker:
    """Turns the values of a file into a Config. path: of the file, for errors."""

    def __init__(self, path: str) -> None:
        self._path = path

    def config(self, values: Mapping[str, Any]) -> Config:
        own = self._table((), values, top_checks())
        scheduler = self._table(
            ("scheduler",),
            own.get("scheduler", {}),
            {**log_checks(), "apply_schedules": read_yes_or_no},
        )
        statistics = self._table(("statistics",), own.get("statistics", {}), {"keep": read_days})
        shown = self._table(("show",), own.get("show", {}), {"redact": read_texts})
        listener = self._table(("listener",), own.get("listener", {}), listener_checks())
        self._require_one_handler(("listener",), listener)
        self._check_together(listener)
        queues = {}
        for name, table in own.get("queues", {}).items():
            self._checked(("queues", name), require_queue_name, name)
            queues[name] = queue = self._queue(("queues", name), table)
            if "exec" in listener if queue.handler is None else queue.handler.exec is not None:
                self._refuse_reuse(
                    ("queues", name), queue.reused, "a program always runs in its own process"
                )
        schedules = {
            name: self._schedule(name, table) for name, table in own.get("schedules", {}).items()
        }
        aliases = self._aliases(own.get("aliases", {}), queues)
        return Config(
            self._path,
            own.get("redis_url"),
            own.get("max_bytes"),
            MappingProxyType(_with_limits(listener)),
            MappingProxyType(queues),
            self._retention(("retention",), own.get("retention", {})),
            statistics.get("keep"),
            tuple(shown.get("redact", ())),
            MappingProxyType(scheduler),
            MappingProxyType(schedules),
            MappingProxyType(aliases),
            MappingProxyType(
                {
                    name: self._fanout(("fanouts", name), words, aliases)
                    for name, words in own.get("fanouts", {}).items()
                }
            ),
            MappingProxyType(self._table(("web",), own.get("web", {}), web_checks())),
        )

    def _check_together(self, listener: Mapping[str, Any]) -> None:
        """Refuse what is right by itself, and makes no sense beside the rest of `[listener]`."""
        beat = listener.get("beat")
        for name in ("lease", "lost_after"):
            if beat is not None and name in listener and listener[name] < round(3 * beat, 9):
                raise self._refused(
                    ("listener", name),
                    f"it is {listener[name]:g} s: at least three beats of {beat:g} s are needed, {3 * beat:g} s",
                )

    def _queue(self, path: Path, values: Any) -> QueueConfig:
        own = _with_limits(self._table(path, values, queue_checks()))
        reused = {name: own.pop(name) for name in REUSE if name in own}
        cwd = {name: own.pop(name) for name in CWD_KEYS if name in own}
        self._require_one_handler(path, own)
        name = HandlerName(own.pop("handler", None), own.pop("exec", None))
        retention = self._retention((*path, "retention"), own.pop("retention", {}))
        return QueueConfig(
            **own,
            retention=retention,
            handler=name if any(name) else None,
            reused=MappingProxyType(reused),
            cwd=MappingProxyType(cwd),
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
        own = self._table(path, values, schedule_checks())
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
        """Return the error of a schedule whose sentence begins with the key."""
        key = re.split("[: ]", str(error), maxsplit=1)[0]
        if key in schedule_checks():
            return self._refused(("schedules", name, key), without_name(key, str(error)))
        return self._refused(("schedules", name), str(error))

    def _refuse_reuse(self, path: Path, values: Mapping[str, Any], reason: str) -> None:
        for name in REUSE:
            if values.get(name, 1) != 1:
                raise self._refused((*path, name), reason)

    def _require_one_handler(self, path: Path, values: Mapping[str, Any]) -> None:
        if "handler" in values and "exec" in values:
            reason = "handler is set as well: a task has one handler, so set one of the two"
            raise self._refused((*path, "exec"), reason)

    def _retention(self, path: Path, values: Any) -> Mapping[str, Keep]:
        return MappingProxyType(self._table(path, values, dict.fromkeys(FINISHED, read_keep)))

    def _table(
        self, path: Path, values: Any, checks: Mapping[str, Callable[[Any], Any]]
    ) -> dict[str, Any]:
        """Return the values of a table, each as its check makes it. A check that is `dict` is for a
        table.
        """
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
    """Return what to raise for a schedule of a file that is wrong as a whole.

    error: its sentence begins with the wrong key, if it is about one.
    """
    return Checker(path).of_schedule(name, error)


def shown_path(path: Path) -> str:
    """Return a path as it is written in TOML."""
    return ".".join(part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else f'"{part}"' for part in path)


def _with_limits(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with those that are limits in one dict of their own."""
    others = {name: value for name, value in values.items() if name not in LIMITS}
    return {
        **others,
        "limits": MappingProxyType({name: values[name] for name in LIMITS if name in values}),
    }


def _quoted(path: Path, key: str, value: object) -> str:
    """Return the advice to quote the name of a queue or a schedule that has a dot; empty if that is
    not the mistake.
    """
    if len(path) != 2 or path[0] not in ("queues", "schedules") or not isinstance(value, dict):
        return ""
    return f'; a name with a dot is written in quotes: [{path[0]}."{path[1]}.{key}"]'
