"""The roles of users in Redis: the rules of their rights, and which of them a user lacks.

roles.py has the rights. A right is tried after a MULTI without an EXEC: Redis says for each command
whether the user may run it, and runs none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from blueque.connection.redis import Command, Redis, raise_refusal
from blueque.errors import CLUSTER, RedisRefused
from blueque.model import keys
from blueque.protocol.roles import RIGHTS
from blueque.protocol.transaction import TO_REPLICAS, prove

SERVERS = ("7.0", "6.2")  # versions of Redis with other rules; 6.2 knows no keys that are only read
_PROVEN = {"multi", "exec"}  # by `prove`
# What a program does without, or needs in some places only: behind Sentinel, or for another database.
_OPTIONAL = {"auth", "client|tracking", "hello", "ping", "role", "select", "type"}
_FOR_REPLICAS = {"publish", "wait"}  # of a setting


class Rights(NamedTuple):
    """The rights of a role.

    commands: the least number of words of each, by its name, such as client|tracking.
    writes, reads: patterns of keys; those in `reads` are only read. channels: of PUBLISH.
    """

    commands: Mapping[str, int]
    writes: frozenset[str]
    reads: frozenset[str]
    channels: frozenset[str]


def rules(roles: Iterable[str], server: str = SERVERS[0]) -> list[str]:
    """Return the arguments of ACL SETUSER that give a user these roles and no other rights.

    Its passwords stay, and a new user has none.
    """
    several = [ROLES[role] for role in roles]
    commands, writes, reads, channels = (
        {name for part in parts for name in part} for parts in zip(*several, strict=True)
    )
    reading = "%R~" if server != "6.2" else "~"
    return [
        *(["clearselectors"] if server != "6.2" else []),
        *("resetkeys", "resetchannels", "-@all"),
        *(f"+{command}" for command in sorted(commands)),
        *(f"~{pattern}" for pattern in sorted(writes)),
        *(f"{reading}{pattern}" for pattern in sorted(reads - writes)),
        *(f"&{channel}" for channel in sorted(channels)),
    ]


def user_of(roles: Iterable[str]) -> str:
    """Return the name of a user with these roles."""
    return "-".join(["blueque", *roles])


def lacking(redis: Redis, role: str) -> list[str]:
    """Return the rules of a role that this user lacks, such as +hset or ~blueque_task_*.

    Nothing is executed; Redis records each refusal in its ACL LOG. Raises RedisRefused if the user
    may not use MULTI and EXEC, so that no more can be tried; or if Redis is a cluster.
    """
    rights = ROLES[role]
    tried = {
        **_tries_of(rights, _PROVEN),
        # It reads and writes: a user may also be limited to writing.
        **{f"~{key}": ("ZINCRBY", _any_of(key), "0", "") for key in sorted(rights.writes)},
        **{f"%R~{key}": ("HGET", _any_of(key), "f") for key in sorted(rights.reads)},
        **{f"&{channel}": ("PUBLISH", channel, "") for channel in rights.channels},
    }
    return [*_try(redis, tried)]


def require_rights(redis: Redis, role: str, queues: Iterable[str]) -> None:
    """Raise RedisRefused if this user may not run a command of a role, or if Redis is a cluster.

    queues: the user must have access to their keys.
    """
    needed = [keys.QUEUES, keys.task("0")]
    for queue in queues:
        needed += [keys.pending(queue), keys.listener(queue, "n")]
    tried: dict[str, Command] = {f"~{key}": ("EXISTS", key) for key in needed}
    tried[""] = ("EXISTS", *needed)  # which a cluster refuses
    optional = _OPTIONAL | _FOR_REPLICAS
    if redis.settings.replicas:
        optional, tried[f"&{TO_REPLICAS[1]}"] = _OPTIONAL, TO_REPLICAS
    refusals = _try(redis, {**_tries_of(ROLES[role], _PROVEN | optional), **tried})
    if refusals:
        missing = ", ".join(filter(None, refusals))
        first = next(iter(refusals.values()))
        raise RedisRefused(f"{first.answer}; this user lacks, as {role}: {missing}")


def _tries_of(rights: Rights, without: set[str]) -> dict[str, Command]:
    """Return a command with enough words for each rule: Redis counts them before the rights."""
    found: dict[str, Command] = {}
    for name, count in sorted(rights.commands.items()):
        words = name.upper().split("|")
        if name not in without:
            found[f"+{name}"] = (*words, *[keys.QUEUES] * (count - len(words)))
    return found


def _try(redis: Redis, tried: Mapping[str, Command]) -> dict[str, RedisRefused]:
    """Return by rule why commands lack a right. Raises RedisRefused if Redis is a cluster."""
    # Behind a MULTI, Valkey refuses a WATCH before it looks at the rights.
    before = {rule: command for rule, command in tried.items() if rule == "+watch"}
    behind = {rule: command for rule, command in tried.items() if rule not in before}
    connection = redis.connection()
    try:
        prove(connection)
        replies = connection.exchange([*before.values()]) if before else []
        # Once more, for the commands below: without it, Redis would run them.
        raise_refusal(connection.exchange([("MULTI",)]))
        replies += connection.exchange([*behind.values()])
    finally:
        connection.close()  # without an EXEC: Redis discards the commands
    refusals = {
        rule: reply
        for rule, reply in zip([*before, *behind], replies, strict=True)
        if isinstance(reply, RedisRefused)
    }
    for reply in refusals.values():
        if reply.code in CLUSTER:
            raise reply
    return {rule: reply for rule, reply in refusals.items() if _is_about(reply, rule)}


def _is_about(refusal: RedisRefused, rule: str) -> bool:
    """Return whether the missing right is that of this rule.

    Redis checks keys and channels only of a command that the user may run.
    """
    is_of_a_key = "access" in refusal.answer
    return refusal.code == "NOPERM" and is_of_a_key != rule.startswith("+")


def _any_of(pattern: str) -> str:
    """Return a key that matches a pattern."""
    return pattern.replace("*", "0")


def _read(text: str) -> dict[str, Rights]:
    found: dict[str, list[str]] = {}
    for line in text.replace("\n    ", " ").split("\n"):
        roles, _, rules = line.partition(": ")
        for role in roles.split():
            found.setdefault(role, []).extend(rules.split())
    return {role: _rights(rules) for role, rules in found.items()}


def _rights(rules: Iterable[str]) -> Rights:
    named = [rule[1:].split("/") for rule in rules if rule[0] == "+"]
    return Rights(
        {command: int(count) for command, count in named},
        frozenset(keys.PREFIX + rule[1:] for rule in rules if rule[0] == "~"),
        frozenset(keys.PREFIX + rule[3:] for rule in rules if rule[0] == "%"),
        frozenset(rule[1:] for rule in rules if rule[0] == "&"),
    )


ROLES = _read(RIGHTS.strip())
