"""A day on which each program and person has a user with the rights of its role: Redis refuses none of
their commands, but for what programs do without.
"""

from __future__ import annotations

import os
import signal
import time

import forked
import pytest
from handlers import ended, make_due, pid_of
from running import Programs, clean_environment, outcome, patched, until

from blueque import Client, RedisRefused, Retry
from blueque.protocol import permissions

WORK = """
    import time
    import blueque

    def work(task):
        print("working")
        task.progress(1, 2)
        task.checkpoint({"n": task.attempt})
        if task.parameters == "fail":
            raise ValueError("as wanted")
        if task.parameters == "long":
            time.sleep(600)
        if task.parameters == "twice" and task.attempt == 1:
            raise OSError("not yet")
        if task.parameters == "spawn":
            task.spawn("work", "fine", key="spawned")
            blueque.Client().get_queue("work").enqueue("fine", key="own")
            return blueque.Then("then", [blueque.New("work", "fine", key="next")])
        return "done"
"""
USERS = ("producer", "listener", "scheduler", "viewer", "operator")
DONE_WITHOUT = ("auth", "client", "hello", "ping", "publish", "role", "select", "type", "wait")


@pytest.fixture
def addresses(cli, url, rules_of):
    """The address of the user of each role."""
    for role in USERS:
        rules = permissions.rules([role], rules_of)
        if role in ("listener", "scheduler"):
            rules += [f"-{command}" for command in DONE_WITHOUT]
        cli.execute_command("ACL", "SETUSER", role, "reset", "on", ">pw", *rules)
    cli.acl_log_reset()
    yield {role: url.replace("//", f"//{role}:pw@") for role in USERS}
    cli.acl_deluser(*USERS)


@pytest.fixture
def say(addresses, tmp_path):
    """Run a command as the user of a role, and return what it prints."""

    def say(role, line, stdin=""):
        arguments = ["--redis-url", addresses[role], *line.split()]
        result = forked.run(arguments, clean_environment(), stdin, cwd=tmp_path)
        assert "NOPERM" not in result.stderr, result.stderr
        return result

    return say


def test_each_role_is_enough_for_a_day(programs: Programs, addresses, say, client, cli):
    programs.write(f'[listener]\ntask_redis = "{addresses["producer"]}"', "blueque.toml")
    programs.url = addresses["listener"]
    often = patched({"scheduler.scheduler.LOOK_AT_ALL": 0.1})
    times = ("--beat", "0.2", "--lease", "2", "--lost-after", "3")
    listener = programs.listener("work:work", *times, "--resource", "gpu=1", slots=2)
    scheduler = programs.scheduler(addresses["scheduler"], environ=often)
    scheduler.says("blueque-scheduler")

    with Client(addresses["producer"]) as producer:
        queue = producer.get_queue("work")
        first = queue.enqueue(
            "fine", key="a", priority=3, lock="l", tags=["t"], resources={"gpu": 1}
        )
        statuses = {
            first: "complete",
            queue.enqueue("fail", lock="l"): "failed",
            queue.enqueue("twice", retry=Retry(max=1, backoff=0)): "complete",
            queue.schedule("fine", time.time() + 0.5): "complete",
            queue.enqueue("fine", after=[first]): "complete",
            queue.enqueue("spawn"): "complete",
            queue.enqueue("fine", start_within=60): "complete",
        }
        assert {task: producer.wait(task, timeout=15).status for task in statuses} == statuses
        with producer.group("night") as group:
            assert queue.enqueue_many(["fine"] * 3, keys=["1", "2", "3"], group="night").new == 3
            queue.enqueue("fine", group="night")
            group.close()
        assert group.wait(timeout=15)
        with producer.workflow("flow") as flow:
            one = flow.add("work", "fine")
            flow.add("work", "fine", after=[one])
        queue.join(timeout=15)
        hourly = {"queue": "work", "every": "1h", "parameters": "fine", "overlap": "queue"}
        schedule = producer.set_schedule("often", **hourly)
        for count in (1, 2):  # the second one waits, or is skipped if the first one still waits
            make_due(cli, "often")
            until(lambda count=count: decided(schedule) == count, what="a task of the schedule")
        made = schedule.trigger()
        long = begin_long(producer).id
        failed = next(task for task, status in statuses.items() if status == "failed")
        for refused, task in ((queue.cancel, long), (queue.requeue, failed)):
            with pytest.raises(RedisRefused, match="NOPERM"):
                refused(task)
    assert outcome(client, made).status == "complete"
    cli.acl_log_reset()  # of what was refused on purpose

    assert (
        say("producer", "enqueue work --text --lines --group lines", "fine\nfine\n").returncode == 0
    )
    (programs.directory / "rows.jsonl").write_text('{"a": 1}\n{"a": 2}\n')
    assert say("producer", "feed rows.jsonl work --name f").returncode == 0
    for line in (
        *("status", "ls", "ls --state all --tag t", f"show {long}", f"why {long}", f"logs {first}"),
        *(f"history {first}", "history -q work", f"graph {first}", "stats", "failures", "timeline"),
        *("tags", "queue ls", "queue show work", "host ls", "schedule ls", "schedule show often"),
        *("group ls", "group show night", "metrics --once"),
        *("schedule history often", "ls --state pending", f"wait {first}", "queue show gone"),
    ):
        for role in ("viewer", "operator"):
            result = say(role, line)
            assert result.returncode == (3 if line == "queue show gone" else 0), result.stderr
    for line in (
        *(f"stack {long}", f"interrupt {long} --yes", "queue pause work", f"cancel {long} --yes"),
        *(f"requeue {failed}", f"move {failed} --first", f"move {failed} --priority 2"),
        *(
            "queue set work max-running=9 max-pending=99",
            "queue resume work",
            f"delete {first} --yes",
        ),
        *("schedule pause often", "schedule resume often", "schedule trigger often"),
        *("group requeue night --yes", "group cancel lines --yes", "export --state all"),
        *("schedule rm often", "delete -q work --state failed --yes", "group forget flow --yes"),
    ):
        result = say("operator", line)
        assert result.returncode == 0, (line, result.stderr)

    queue = client.get_queue("work")
    adopted = begin_long(client)
    os.kill(pid_of(adopted.node), signal.SIGKILL)
    listener.says(f"adopt task={adopted.id}")
    queue.cancel(adopted.id)
    assert ended(client, adopted.id).status == "cancelled"
    listener.ready(2)  # all of them are killed below
    lost = begin_long(client, retry=Retry(max=1))
    for pid in (listener.pid, *listener.slots(), lost.pid):
        os.kill(pid, signal.SIGKILL)
    scheduler.says("lose ")  # no listener is left to do it

    # Only admin may ask for CONFIG, which tells passwords. Programs ask for CLIENT TRACKING with HELLO.
    refused = {entry["object"].partition("|")[0] for entry in cli.acl_log()}
    assert refused <= {"config", "client", "hello"}, cli.acl_log()
    assert not listener.lines("NOPERM") + scheduler.lines("NOPERM")


def decided(schedule):
    """Return how many times of a schedule have come."""
    record = schedule.refresh().record
    return record.get("made", 0) + record.get("skipped", 0)


def begin_long(client, **options):
    """Return a task that runs until it is ended."""
    task = client.get_queue("work").enqueue("long", **options)
    return until(lambda: (found := client.get_task(task)).status == "started" and found)
