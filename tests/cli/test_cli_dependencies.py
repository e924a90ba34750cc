"""`blueque enqueue` of tasks that wait for others."""

from __future__ import annotations

import pytest

from blueque.model import keys


@pytest.fixture
def parents(queue):
    return [queue.enqueue(name) for name in ("first", "second", "third")]


def waiting(cli):
    return cli.zrange(keys.blocked("audio"), 0, -1)


def test_a_task_waits_for_the_tasks_that_are_named_also_by_the_beginning_of_their_ids(
    run, cli, parents
):
    first, second, third = parents
    arguments = ["--after", first[:8], "--after-any", second, "--after-not-ok", third]

    result = run("enqueue", "audio", "1", *arguments, "--broken", "cancel", "--results")

    assert (result.returncode, result.stderr) == (0, "")
    (task,) = waiting(cli)
    assert result.stdout == f"{task}\n"
    assert cli.hgetall(keys.conditions(task)) == {first: "ok", second: "any", third: "not_ok"}
    fields = cli.hgetall(keys.task(task))
    assert (fields["broken"], fields["inputs"]) == ("cancel", "0")
    assert fields["parents"].split() == parents


def test_a_task_may_wait_for_another_and_for_its_time(run, cli, parents):
    run("enqueue", "audio", "1", "--at", "4000000000", "--after", parents[0])

    (task,) = waiting(cli)
    assert cli.hget(keys.task(task), "eta") == "4000000000.0"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--after", "unknown"], 3, "no task 'unknown'"),
        (["--broken", "cancel"], 2, "--broken needs --after, --after-any or --after-not-ok"),
        (["--results"], 2, "--results needs --after, --after-any or --after-not-ok"),
        (
            ["--results", "--after", "group g"],
            2,
            "--results needs a task to wait for: a group has no",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(run, cli, arguments, code, says):
    result = run("enqueue", "audio", "1", *arguments)

    assert (result.returncode, cli.keys("*")) == (code, [])
    assert says in result.stderr


def test_tasks_with_keys_in_a_group_can_wait(run, cli, parents):
    options = ["--lines", "--key-field", "k", "--group", "r", "--after", parents[0]]

    result = run("enqueue", "audio", *options, stdin='{"k": 1}\n')

    assert (result.returncode, waiting(cli)) == (0, [result.stdout.strip()])
