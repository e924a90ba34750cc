"""Malformed fields: numbers, policies and states that a program cannot read.

Texts are not judged, nor are the entries of a history, a log or a stream, which only people read.
docs/protocol/audit.md, "Invariants", has the same in words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from blueque.audit.observation import Finding, Keys, TaskSeen
from blueque.audit.reads import read_groups
from blueque.connection.redis import Command, Redis, as_fields, as_hash
from blueque.model import group, keys, schedule, task
from blueque.model.encoding import due, from_json, integer, number
from blueque.model.record import Types
from blueque.model.retry import Retry
from blueque.queries import feeds

_SUMS = ("_seconds", "_squares")  # end the names of statistics that are no integers


def _policy(text: str) -> None:
    if text not in ("", "null"):
        Retry.from_text(text)


def _state(*known: str) -> Callable[[str], None]:
    def read(text: str) -> None:
        if text not in known:
            raise ValueError(text)

    return read


def _object(text: str) -> None:
    if not isinstance(from_json(text), dict):
        raise ValueError(text)


def _duration(text: str) -> None:
    if text:
        number(text)


def _numbers(fields: Mapping[str, Any]) -> dict[str, Callable[[str], Any]]:
    return {name: read for name, read in fields.items() if read in _KINDS}


# What each kind is called in a sentence.
_KINDS: Mapping[Any, str] = {
    integer: "integer",
    number: "number",
    due: "time",
    _duration: "number",
    _policy: "retry policy",
    _object: "JSON object",
}
OF_TASKS: Types = {**_numbers(task.FIELDS), "retry": _policy}
_OF_A_RULE = (*schedule.OF_RULE, *schedule.POLICIES, "planned", "at", "last")  # see schedules.py
_PROCESS: Types = dict.fromkeys(("pid", "pid_start"), integer)
# By what the keys begin with.
_OF_HASHES: Mapping[str, Types] = {
    keys.listener("", "")[:-1]: {
        **_PROCESS,
        **dict.fromkeys(("beat", "struck"), integer),
        **dict.fromkeys(("beat_at", "beat_every", "lease", "lost_after"), number),
        **dict.fromkeys(("ends_at", "time_limit"), _duration),
        "retry": _policy,
    },
    keys.group(""): {
        **_numbers(group.FIELDS),
        "state": _state("open", "closed", "ended", group.MAKING),
        "after": _object,
    },
    keys.schedule(""): {
        name: read for name, read in _numbers(schedule.FIELDS).items() if name not in _OF_A_RULE
    },
    keys.feed("", "")[:-1]: {**_PROCESS, **feeds.TYPES, "state": _state("open", "finished")},
    keys.checkpoint(""): {"attempt": integer, "at": number, "created": number},
    keys.archive(""): {
        **_PROCESS,
        **dict.fromkeys(("rows", "deleted"), integer),
        **dict.fromkeys(("since", "beat_at"), number),
    },
}
_STATISTICS = (keys.stats("", "")[:-1], keys.totals(""))


def judge_task(task_id: str, seen: TaskSeen) -> Iterator[Finding]:
    """Yield the malformed fields of a task."""
    for name, text in seen.judged.items():
        if not _is_readable(OF_TASKS[name], text):
            found = _find(keys.task(task_id), name, text, OF_TASKS[name])
            yield found._replace(task=task_id, queue=seen.queue)


def judge(redis: Redis, found: Keys) -> Iterator[Finding]:
    """Yield the malformed fields of all other hashes, without their texts, and of statistics."""
    for prefix, types in _OF_HASHES.items():
        names = [key for key in found.starting(prefix) if found.types[key] == "hash"]
        groups: list[list[Command]] = [[("HMGET", key, *types)] for key in names]
        for key, (values,) in zip(names, read_groups(redis, groups), strict=True):
            yield from _judge(key, as_fields([*types], values), types)
    for prefix in _STATISTICS:
        names = [key for key in found.starting(prefix) if found.types[key] == "hash"]
        replies = read_groups(redis, [[("HGETALL", key)] for key in names])
        for key, (reply,) in zip(names, replies, strict=True):
            fields = as_hash(reply)
            types = {name: number if name.endswith(_SUMS) else integer for name in fields}
            yield from _judge(key, fields, types)


def _judge(key: str, fields: Mapping[str, str], types: Types) -> Iterator[Finding]:
    for name, text in fields.items():
        if not _is_readable(types[name], text):
            yield _find(key, name, text, types[name])


def _is_readable(read: Callable[[str], Any], text: str) -> bool:
    try:
        read(text)
    except (ValueError, TypeError):
        return False
    return True


def _find(key: str, name: str, text: str, read: Callable[[str], Any]) -> Finding:
    what = _KINDS.get(read, "state that Blueque knows")
    sentence = f"{key} has the {name} {text[:60]!r}, which is no {what}."
    advice = "Set it with HSET, or remove it with HDEL."
    return Finding("malformed", key, None, None, f"{sentence} {advice}", None, text=name)
