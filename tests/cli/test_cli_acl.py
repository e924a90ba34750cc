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
def address(cli, url):
    """Make a user with a role, by the line that the command prints, and return its address."""

    def address(*arguments):
        printed = run(*arguments, "--user", "ada").stdout
        cli.execute_command(*printed.split())
        cli.execute_command("ACL", "SETUSER", "ada", "on", ">pw")
        return url.replace("//", "//ada:pw@")

    yield address
    cli.acl_deluser("ada")


def test_the_roles_are_those_that_have_rights():
    assert {*acl.ROLES} == permissions.ROLES.keys()


def test_a_new_user_is_off_and_has_no_password_and_one_that_there_is_keeps_its_own(address, cli):
    cli.execute_command(*run("viewer", "--user", "bob").stdout.split())
    assert "off" in cli.acl_getuser("bob")["flags"] and not cli.acl_getuser("bob")["passwords"]
    cli.acl_deluser("bob")

    address("producer")
    before = cli.acl_getuser("ada")["passwords"]
    cli.execute_command(*run("viewer", "--user", "ada").stdout.split())

    user = cli.acl_getuser("ada")
    assert user["passwords"] == before and "on" in user["flags"]
    assert "+lpush" not in user["commands"]


def test_a_user_with_a_role_lacks_nothing_of_it_and_others_are_named(address, state, client):
    client.get_queue("video").enqueue("in")
    before, url = state(), address("producer")

    assert run("check", "producer", url=url).stdout == "ROLE      LACKS\nproducer  nothing\n"
    lacking = run("check", "listener", url=url)
    every = run("check", url=url)

    assert lacking.returncode == FORBIDDEN and "+bzpopmin" in lacking.stdout
    assert "~blueque_reserved_tasks_*" in lacking.stdout
    assert every.returncode == 0 and len(every.stdout.splitlines()) == 1 + len(acl.ROLES)
    assert " more\n" in every.stdout
    assert state() == before


def test_a_user_with_several_roles_has_the_rights_of_all(address):
    url = address("operator", "producer")

    assert [run("check", role, url=url).returncode for role in ("operator", "producer")] == [0, 0]
    assert run("check", "admin", url=url).returncode == FORBIDDEN


def test_a_key_that_may_only_be_read_is_missed_where_it_is_written(address, cli):
    url = address("listener")
    cli.execute_command("ACL", "SETUSER", "ada", "resetkeys", "%R~*")

    found = run("check", "listener", url=url)

    assert "~blueque_task_*" in found.stdout and "+" not in found.stdout
    assert "%R~" not in found.stdout


def test_an_older_redis_gets_no_rule_that_it_does_not_know():
    assert "%R~" in run("viewer").stdout
    assert "%R~" not in run("viewer", "--redis", "6.2").stdout
    assert " ~blueque_*\n" in run("viewer", "--redis", "6.2").stdout


@pytest.mark.parametrize(
    "words", [["nobody"], ["viewer", "check"], ["viewer", "--user", "a b"], []]
)
def test_what_is_no_role_is_refused(words):
    found = run(*words)

    assert found.returncode == USAGE and found.stdout == ""


def test_a_user_who_may_not_use_transactions_is_told_so_and_nothing_is_run(address, cli, state):
    url = address("listener")
    cli.execute_command("ACL", "SETUSER", "ada", "-multi")

    found = run("check", url=url)

    assert found.returncode == FORBIDDEN and "multi" in found.stderr
    assert state() == {}
