"""Write blueque/protocol/roles.py, the rights of each role in Redis, and deploy/redis/users.acl:
`.venv/bin/python docs/roles.py`.

A role may send what its functions of blueque.protocol send, as the pages of the protocol print it,
and what its modules of blueque.queries read.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "guards"))

from protocol_pages import key_rows, sent  # noqa: E402

from blueque.client import Client  # noqa: E402
from blueque.connection.redis import Redis  # noqa: E402
from blueque.model import keys  # noqa: E402
from blueque.protocol import permissions  # noqa: E402
from blueque.protocol.transaction import TO_REPLICAS  # noqa: E402
from blueque.system.embedded_redis import running_server  # noqa: E402

RIGHTS = ROOT / "blueque" / "protocol" / "roles.py"
USERS = ROOT / "deploy" / "redis" / "users.acl"
HEAD = '''"""The rights of each role in Redis; docs/roles.py writes this.

A line begins with the names of roles and continues in indented lines: all of them have these
rights. Each command is followed by its least number of words. The patterns of keys lack the prefix
that all keys have.
"""

RIGHTS = """
'''


class Role(NamedTuple):
    """functions: of blueque.protocol. modules: of blueque.queries."""

    functions: str
    modules: str


# Whoever ends a task tells the tasks and groups that wait for it.
_TELL = "settle settle_members finish_group settle_group"
_JUDGE = (
    "cancel deregister enqueue_due expire fence fire lose observe prune recheck recover wake"
    f" wake_waiting {_TELL}"
)
_READ_TO_JUDGE = (
    "beats dependencies due finished groups inspector queue_changes schedules unsettled_groups"
)
ROLES = {
    "producer": Role(
        "begin_feed close_graph close_group collect_group create delete_schedule end_feed"
        " enqueue_after enqueue_members extend_graph feed open_graph open_group reopen_group"
        f" set_schedule spawn trigger wake {_TELL}",
        "dependencies feeds group_ends groups line_order queue_ends queues schedules task_ends"
        " tasks",
    ),
    "listener": Role(
        "adopt align_line align_task beat checkpoint claim decline_stack end log note order pop"
        f" progress reassert register reserve restore start wait {_JUDGE}",
        f"line_order queues statistics {_READ_TO_JUDGE}",
    ),
    "scheduler": Role(_JUDGE, _READ_TO_JUDGE),
    "operator": Role(  # what a viewer has, besides
        "ask_stack bring_forward cancel cancel_group claim_batch close_group delete delete_schedule"
        " drop_group erase forget_feed forget_queue freeze interrupt leave_batch mark_batch order place prune"
        f" purge requeue set_schedule set_settings thaw trigger unblock wake wake_waiting {_TELL}",
        "",
    ),
    # what all have, besides
    "admin": Role("align_queue align_schedule", ""),
}
# What 1.0.0 sends; there will be no other.
LEGACY = (
    "del exec exists hgetall hset lindex lpush lrem multi rpoplpush sadd smembers srem unwatch watch"
    " zadd zincrby zrangebyscore zremrangebyscore"
)
LEGACY_KEYS = 9  # the first ones in the table of keys
ONLY_ADMIN = {"config|get"}  # it tells passwords
_BETWEEN_WORDS: dict[str, Any] = {"break_on_hyphens": False, "break_long_words": False}
ALL = f"{keys.PREFIX}*"
SUBCOMMANDS = {"client|tracking": 3, "config|get": 3}  # Redis 6.2 has them, and names none
OLD_FACTS = 5  # that Redis 6.2 tells of a command, besides its name and arity


class Needed(NamedTuple):
    """Names of commands; patterns of keys that are written, and of those that are only read."""

    commands: Set[str]
    writes: Set[str] = frozenset()
    reads: Set[str] = frozenset()

    def rights(self, words: Mapping[str, int]) -> list[str]:
        """Return these as they are written in roles.py."""
        commands = [f"+{command}/{words[command]}" for command in sorted(self.commands)]
        only_reads = {ALL} if ALL in self.reads else self.reads - self.writes
        patterns = [f"~{key}" for key in sorted(self.writes)]
        patterns += [f"%R~{key}" for key in sorted(only_reads)]
        channels = [f"&{TO_REPLICAS[1]}"] if TO_REPLICAS[0].lower() in self.commands else []
        return [*commands, *(pattern.replace(keys.PREFIX, "") for pattern in patterns), *channels]


def text(words: Mapping[str, int]) -> str:
    """Return the text of roles.py. words: how many each command of Redis has at least, its name included."""
    to_connect = _sent_by(words, "connection", "queries.steps")
    to_change = Needed(_sent_by(words, "protocol.transaction").commands)
    viewer = Needed(_sent_by(words, "metrics", "queries", "tables").commands, reads={ALL})
    found = {
        name: _joined(
            to_change,
            *map(_of_function, role.functions.split()),
            *(_sent_by(words, f"queries.{module}") for module in role.modules.split()),
        )
        for name, role in ROLES.items()
    }
    found["viewer"] = viewer
    found["operator"] = _joined(found["operator"], viewer)
    found["admin"] = Needed(_joined(*found.values(), _sent_by(words, "audit")).commands, {ALL})
    found["legacy"] = Needed(
        {*LEGACY.split()}, {pattern_of(key) for key in [*key_rows()][:LEGACY_KEYS]}
    )
    roles_of: dict[str, list[str]] = {}
    for name, needed in found.items():
        commands = needed.commands - (ONLY_ADMIN if name != "admin" else set())
        whole = needed._replace(commands=commands | to_connect.commands)
        for right in whole.rights(words):
            roles_of.setdefault(right, []).append(name)
    shared: dict[str, list[str]] = {}
    for right in sorted(roles_of, key=lambda right: -len(roles_of[right])):
        shared.setdefault(" ".join(roles_of[right]), []).append(right)
    lines = [f"{roles}: {' '.join(rights)}" for roles, rights in shared.items()]
    shown = [textwrap.fill(line, 100, subsequent_indent="    ", **_BETWEEN_WORDS) for line in lines]
    return "\n".join([HEAD.rstrip("\n"), *shown, '"""', ""])


def words_of_commands(redis: Redis) -> dict[str, int]:
    """Return of each command of a server how many words it has at least, its name included."""
    (replies,) = redis.read(("COMMAND",))
    found = {**SUBCOMMANDS}
    for name, arity, *rest in replies:
        found[name] = abs(arity)
        if len(rest) > OLD_FACTS:
            found |= {each[0]: abs(each[1]) for each in rest[-1]}
    return found


def containers(words: Mapping[str, int]) -> set[str]:
    """Return the commands that have others in them, as `client` has client|tracking."""
    return {name.partition("|")[0] for name in words if "|" in name}


def users() -> str:
    """Return users.acl: a user for each role, without a password."""
    return "".join(
        f"user {permissions.user_of([role])} off {' '.join(permissions.rules([role]))}\n"
        for role in permissions.ROLES
    )


def _joined(*several: Needed) -> Needed:
    return Needed(*(frozenset().union(*part) for part in zip(*several, strict=True)))


@functools.cache
def _of_function(name: str) -> Needed:
    """Return what a function needs, by its section."""
    found = sent(name)
    return Needed(
        {command.lower() for command, _, _ in found},
        {pattern_of(key) for _, key, is_written in found if key and is_written},
        {pattern_of(key) for _, key, is_written in found if key and not is_written},
    )


def _sent_by(words: Mapping[str, int], *rooms: str) -> Needed:
    """Return what the modules of these rooms need, by the commands and the keys that they name."""
    commands: set[str] = set()
    patterns: set[str] = set()
    for node in _nodes(*rooms):
        if isinstance(node, ast.Tuple | ast.List) and node.elts:
            commands |= {_literal(each) for each in ast.walk(node.elts[0])}
            commands.add("|".join(map(_literal, node.elts[:2])))
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "keys":
            patterns |= _patterns_of(node.attr)
    return Needed((commands & words.keys()) - containers(words), reads=patterns)


def _nodes(*rooms: str) -> Iterator[ast.AST]:
    """Yield the nodes of all modules of these rooms; a room may be one module."""
    for room in rooms:
        path = ROOT / "blueque" / room.replace(".", "/")
        for module in sorted(path.rglob("*.py")) or [path.with_suffix(".py")]:
            yield from ast.walk(ast.parse(module.read_text()))


def _literal(node: ast.AST) -> str:
    """Return a text in capitals, as commands are written, in small letters; else nothing."""
    is_one = isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isupper()
    return str(node.value).lower() if is_one else ""  # type: ignore[attr-defined]


def _patterns_of(name: str) -> set[str]:
    """Return the patterns of the keys that a name in model/keys.py stands for."""
    named = getattr(keys, name)
    if name.startswith("parse_"):
        return set()
    if inspect.isfunction(named):
        named = named(*["[]"] * len(inspect.signature(named).parameters))
    made = {named} if isinstance(named, str) else {*named}
    return {pattern_of(key) for key in made if isinstance(key, str) and re.match(r"blueque_.", key)}


def pattern_of(key: str) -> str:
    return re.sub(r"\[\w*\].*", "*", key)


def main() -> None:
    with running_server() as server:
        words = words_of_commands(Client(server.url).connections)
    RIGHTS.write_text(text(words))
    importlib.reload(sys.modules["blueque.protocol.roles"])
    importlib.reload(permissions)
    USERS.write_text(users())


if __name__ == "__main__":
    main()
