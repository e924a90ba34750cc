"""`blueque workflow`: what it shows and changes."""

from __future__ import annotations

import json
import time

import pytest

from blueque.model import keys
from blueque.recovery.settling import settle_groups_step

IN_PROCESS = True


@pytest.fixture
def night(client, queue):
    """A group with an open and a cancelled member, for which a task waits."""
    group = client.group("night").open()
    queue.enqueue("a", group=group)
    bad = queue.enqueue("b", group=group)
    queue.enqueue("c", after=group)
    queue.cancel(bad)
    settle(client)
    return bad


def settle(client):
    while settle_groups_step(client._redis, time.time()):
        pass


def test_the_list_and_one_workflow_say_how_far_it_is(run, night, client):
    client.group("day").open()

    listed = run("workflow", "ls").stdout.splitlines()
    shown = run("workflow", "show", "night").stdout.splitlines()

    header = "WORKFLOW STATE AGE TASKS COMPLETE BAD OPEN WAITING"
    assert listed[0].split() == shown[0].split() == header.split()
    assert [line.split()[0] for line in listed[1:]] == ["day", "night"], "the newest first"
    assert shown[1].split()[:2] == ["night", "open"]
    assert shown[1].split()[-5:] == ["2", "0", "1", "1", "1"]
    assert shown[-1] == f"not complete: {night}"


def test_without_workflows_the_list_says_so(run):
    assert "no workflows" in run("workflow", "ls").stderr


def test_a_workflow_is_closed_cancelled_and_forgotten(run, night, client, cli):
    assert run("workflow", "close", "night").stdout == "night  closed\n"
    refused = run("workflow", "cancel", "night")
    assert refused.returncode == 6
    assert "1 task of workflow night would be cancelled" in refused.stderr

    cancelled = run("workflow", "cancel", "night", "--reason", "late", "--yes")
    assert cancelled.stdout == "night  to be cancelled\n"
    assert run("workflow", "ls").stdout.splitlines()[1].split()[1] == "cancelling"
    settle(client)
    assert cli.llen(keys.cancelled("video")) == 2

    refused = run("workflow", "rm", "night")
    assert (refused.returncode, "tasks wait for it" in refused.stderr) == (5, True)
    for task in cli.zrange(keys.awaiting("night"), 0, -1):
        client.get_queue("video").cancel(task)
    cli.delete(keys.awaiting("night"))
    assert run("workflow", "rm", "night").stdout == "night  forgotten\n"


def test_the_bad_tasks_of_a_workflow_run_again(run, night, client):
    refused = run("workflow", "requeue", "night")
    assert (refused.returncode, "would run again" in refused.stderr) == (6, True)

    result = run("workflow", "requeue", "night", "--yes", "--json")

    assert json.loads(result.stdout)["requeued"] == [night]
    assert client.get_task(night).status == "pending"


@pytest.mark.parametrize("verb", ["show", "close", "cancel", "requeue", "rm"])
def test_a_workflow_that_does_not_exist_is_missing(run, verb):
    result = run("workflow", verb, "nigth")

    assert result.returncode == 3
    assert "no workflow 'nigth'" in result.stderr
