"""`blueque acl`: the rights of a role, and what a user lacks."""

from __future__ import annotations

import os

import forked
import pytest

from blueque.cli.failure import FORBIDDEN, USAGE
from blueque.cli.verbs import acl
from blueque.protocol import permissions


def run(*arguments, url="redis://nowhere.invalid"):
    return forked.run(["--redis-url", url, "acl", *arguments], dict(os.environ))


@pytest.fixture
def give(cli, rules_of):
    """Give a user a role, by the line that the command prints."""

    def give(user, *roles):
        printed = run(*roles, "--user", user, "--redis", rules_of).stdout
        cli.execute_command(*printed.split())

    yield give
    cli.acl_deluser("ada", "bob")


@pytest.fixture
def address(give, cli, url):
    """Make a user with a role, and return its address."""

    def address(*roles):
        give("ada", *roles)
        cli.execute_command("ACL", "SETUSER", "ada", "on", ">pw")
        return url.replace("//", "//ada:pw@")

    return address


def test_the_roles_are_those_that_have_rights():
    assert {*acl.ROLES} == permissions.ROLES.keys()


def test_a_new_user_is_off_and_has_no_password_and_one_that_there_is_keeps_its_own(
    address, give, cli
):
    give("bob", "viewer")
    assert "off" in cli.acl_getuser("bob")["flags"] and not cli.acl_getuser("bob")["passwords"]

    address("producer")
    before = cli.acl_getuser("ada")["passwords"]
    give("ada", "viewer")

    user = cli.acl_getuser("ada")
    assert user["passwords"] == before and "on" in user["flags"]
    assert "+lpush" not in user["commands"]


def test_a_user_who_had_other_rights_has_none_of_them_left(address, give, cli, url, rules_of):
    address("viewer")
    wanted = cli.acl_getuser("ada")
    cli.execute_command("ACL", "SETUSER", "ada", "+@all", "~*", "&*")
    if rules_of != "6.2":
        cli.execute_command("ACL", "SETUSER", "ada", "(+@all ~*)")

    give("ada", "viewer")

    assert cli.acl_getuser("ada") == wanted


def test_a_user_with_a_role_lacks_nothing_of_it_and_others_are_named(address, state, client):
    client.get_queue("video").enqueue("in")
    before, url = state(), address("producer")

    assert run("check", "producer", url=url).stdout == "ROLE      LACKS\nproducer  nothing\n"
    lacking = run("check", "listener", url=url)
    every = run("check", url=url)

    assert lacking.returncode == FORBIDDEN and "+bzpopmin" in lacking.stdout
    assert "~blueque_stats_*" in lacking.stdout
    assert every.returncode == 0 and len(every.stdout.splitlines()) == 1 + len(acl.ROLES)
    assert " more\n" in every.stdout
    assert state() == before


def test_a_user_with_several_roles_has_the_rights_of_all(address):
    url = address("operator", "producer")

    assert [run("check", role, url=url).returncode for role in ("operator", "producer")] == [0, 0]
    assert run("check", "admin", url=url).returncode == FORBIDDEN


@pytest.mark.parametrize("allowed", ["%R~*", "%W~*", "~blueque_task_1*"])
def test_a_key_of_which_a_user_has_a_part_of_the_rights_is_missed(address, cli, rules_of, allowed):
    url = address("listener")
    # Redis 6.2 has rules for keys of the last kind only.
    rule = allowed if rules_of != "6.2" else "~blueque_task_1*"
    cli.execute_command("ACL", "SETUSER", "ada", "resetkeys", rule)

    found = run("check", "listener", url=url)

    assert " ~blueque_task_* " in found.stdout and "+" not in found.stdout
    assert ("%R~" in found.stdout) == (rule != "%R~*")


def test_an_older_redis_gets_no_rule_that_it_does_not_know():
    assert "%R~" in run("viewer").stdout
    assert "%R~" not in run("viewer", "--redis", "6.2").stdout
    assert " ~blueque_*\n" in run("viewer", "--redis", "6.2").stdout


@pytest.mark.parametrize(
    "words",
    [
        ["nobody"],
        ["viewer", "check"],
        ["viewer", "--user", "a b"],
        ["admin", "--user", "default"],
        ["check", "--user", "ada"],
        [],
    ],
)
def test_what_is_no_role_is_refused(words):
    found = run(*words)

    assert found.returncode == USAGE and found.stdout == ""


def test_a_user_who_may_not_use_transactions_is_told_so_and_nothing_is_run(address, cli, state):
    url = address("listener")
    cli.execute_command("ACL", "SETUSER", "ada", "-multi")

    found = run("check", url=url)

    assert found.returncode == FORBIDDEN and "multi" in found.stderr
    assert "acl check" not in found.stderr and "blueque acl ROLE" in found.stderr
    assert state() == {}
