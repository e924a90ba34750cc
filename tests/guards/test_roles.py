"""The roles of users in Redis: their rights are what their functions send, and are enough for these
and for nothing else.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from protocol_pages import sent
from test_document import SAMPLES, Sample
from transactions import TRANSACTIONS

from blueque import Client
from blueque.connection.redis import Redis
from blueque.errors import BluequeError, RedisRefused
from blueque.protocol import permissions

ROOT = Path(__file__).parents[2]


def _load() -> Any:
    spec = importlib.util.spec_from_file_location("docs_roles", ROOT / "docs" / "roles.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


roles = _load()
FUNCTIONS = {name: role.functions.split() for name, role in roles.ROLES.items()}
FUNCTIONS |= {"admin": [*TRANSACTIONS], "viewer": []}
# What a role cannot do, whatever the state of Redis. Besides, each can do a part of what others do
# with the same commands and kinds of keys.
NEVER = {
    "viewer": {*TRANSACTIONS},
    "producer": {*TRANSACTIONS}
    - {*FUNCTIONS["producer"]}
    - {"align_queue", "align_schedule", "ask_stack", "cancel_group", "decline_stack"}
    - {"drop_group", "fire", "forget_feed", "wake_waiting"},
    "listener": {"claim_batch", "erase", "feed", "forget_queue", "freeze", "set_settings"},
    "scheduler": {"claim_batch", "erase", "feed", "forget_queue", "freeze", "log", "pop"}
    | {"progress", "set_settings", "spawn", "wait"},
    "operator": {"adopt", "beat", "claim", "fence", "lose", "pop", "register", "start", "wait"},
    "admin": set[str](),
}
# What Redis 6.2 does not keep from them, as there whoever may read a key may write it.
ON_6_2 = {
    "producer": {"order", "set_settings"},
    "listener": {"claim_batch", "erase", "set_settings"},
    "scheduler": {"claim_batch", "erase", "set_settings"},
    "operator": {"adopt", "beat", "start"},
}
TAKEN = [
    ("producer", "lpush"),
    ("producer", "zincrby"),
    ("listener", "rpoplpush"),
    ("listener", "xrevrange"),
    ("scheduler", "zrangebyscore"),
    ("operator", "copy"),
]
# Redis lets every user run these.
ALWAYS = {"auth", "hello", "quit", "reset"}


class Users:
    """A user of the server for each role, and its connections."""

    def __init__(self, cli: Any, url: str, rules_of: str) -> None:
        self._cli, self._where, self._rules_of = cli, url.partition("//")[2], rules_of
        self._clients: dict[str, Client] = {}

    def make(self, role: str, *more: str) -> None:
        """Make the user of a role, with more rules."""
        rules = permissions.rules([role], self._rules_of)
        self._cli.execute_command("ACL", "SETUSER", role, "reset", "on", ">pw", *rules, *more)
        self._clients[role] = Client(f"redis://{role}:pw@{self._where}", patience=0)

    def redis(self, role: str) -> Redis:
        """Return the connections of the user of a role."""
        if role not in self._clients:
            self.make(role)
        return self._clients[role].connections

    def never(self, role: str) -> set[str]:
        """Return the functions that a role cannot do, whatever the state of this Redis."""
        return NEVER[role] - (ON_6_2.get(role, set()) if self._rules_of == "6.2" else set())

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        self._cli.execute_command("ACL", "DELUSER", *permissions.ROLES)


@pytest.fixture
def users(cli: Any, url: str, rules_of: str) -> Iterator[Users]:
    users = Users(cli, url, rules_of)
    yield users
    users.close()


def outcome(call: Callable[[], object]) -> object:
    """Return what a call returns, the class of its error, or what Redis refuses it with."""
    try:
        return call()
    except RedisRefused as error:
        return error.code
    except BluequeError as error:
        return type(error)


def changes(cli: Any) -> int:
    """Return how many changes the server has made."""
    return int(cli.info("persistence")["rdb_changes_since_last_save"])


def mistakes(
    users: Users, redis: Redis, cli: Any, samples: Iterable[Sample], tried: Iterable[str]
) -> Iterator[str]:
    """Yield where a role may do less than it should, or more, for each of these roles."""
    for sample in samples:
        before = None
        for role in tried:
            if before is None:
                cli.flushall()
                sample.given(redis)
                redis.close()
                before = changes(cli)
            own = users.redis(role)
            found = outcome(lambda sample=sample, own=own: sample.call(own))  # type: ignore[misc]
            own.close()
            has_written = changes(cli) != before
            what = f"{role}, {sample.function}: {sample.case}: {found}"
            if sample.function in FUNCTIONS[role]:
                if found == "NOPERM" or found != (sample.refuses or sample.answers):
                    yield what
            elif has_written and (found == "NOPERM" or sample.function in users.never(role)):
                yield f"{what}, and something is written"
            before = None if has_written else before


def test_the_rights_of_each_role_are_what_its_functions_send_and_its_modules_read(redis):
    words = roles.words_of_commands(redis)

    assert roles.RIGHTS.read_text() == roles.text(words), "run .venv/bin/python docs/roles.py"
    assert roles.USERS.read_text() == roles.users(), "run .venv/bin/python docs/roles.py"


def test_every_function_belongs_to_a_role():
    named = [name for role in roles.ROLES.values() for name in role.functions.split()]

    assert set(named) == set(TRANSACTIONS), "see ROLES in docs/roles.py"


def test_a_role_may_run_its_functions_and_writes_nothing_where_it_is_refused(users, redis, cli):
    assert [*mistakes(users, redis, cli, SAMPLES, NEVER)] == []


@pytest.mark.parametrize(("role", "command"), TAKEN)
def test_a_command_that_a_role_lacks_is_missed(users, redis, cli, role, command):
    users.make(role, f"-{command}")
    own = [sample for sample in SAMPLES if sample.function in FUNCTIONS[role]]

    assert "NOPERM" in next(mistakes(users, redis, cli, own, [role]))


@pytest.mark.parametrize("role", permissions.ROLES)
def test_a_role_has_no_other_command(users, redis, role):
    connection, rights = users.redis(role).connection(), permissions.ROLES[role].commands
    words = roles.words_of_commands(redis)
    others = [name for name in words if name not in {*rights, *ALWAYS, *roles.containers(words)}]
    connection.exchange([("MULTI",)])  # and no EXEC: nothing is run

    tried = [
        (*name.upper().split("|"), *["blueque_queues"] * words[name])[: words[name]]
        for name in others
    ]
    replies = connection.exchange(tried)

    # SAVE is not allowed in a transaction, DEBUG not at all.
    replied = zip(others, map(str, replies), strict=True)
    assert [pair for pair in replied if not re.search("NOPERM|not allowed", pair[1])] == []
    assert len(others) > 140  # Redis 6.2 names no subcommands


@pytest.mark.parametrize("role", FUNCTIONS)
def test_a_role_has_each_command_of_its_functions_for_its_keys(users, role):
    connection, rights = users.redis(role).connection(), permissions.ROLES[role].commands
    tried = {
        (command, *[roles.pattern_of(key).replace("*", "0")] * (rights[command.lower()] - 1))
        for function in FUNCTIONS[role]
        for command, key, _ in sent(function)
        if key and command != "COPY"  # which has two
    }
    connection.exchange([("MULTI",)])

    refused = [str(reply) for reply in connection.exchange([*tried]) if "NOPERM" in str(reply)]

    assert refused == []
