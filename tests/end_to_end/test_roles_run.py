"""A day on which each program and person has a user with the rights of its role: Redis refuses none of
their commands.
"""

from __future__ import annotations

import time

import forked
import pytest
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
            blueque.Client().get_queue("work").enqueue("fine", key="own")
            return blueque.Then("then", [blueque.New("work", "fine", key="next")])
        return "done"
"""
USERS = ("producer", "listener", "scheduler", "viewer", "operator")


@pytest.fixture
def addresses(cli, url, rules_of):
    """The address of the user of each role."""
    for role in USERS:
        rules = permissions.rules([role], rules_of)
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
    programs.listener("work:work", "--beat", "0.2", "--resource", "gpu=1", slots=2)
    programs.scheduler(addresses["scheduler"], environ=often).says("blueque-scheduler")

    with Client(addresses["producer"]) as producer:
        queue = producer.get_queue("work")
        first = queue.enqueue(
            "fine", key="a", priority=3, lock="l", tags=["t"], resources={"gpu": 1}
        )
        ended = {
            first: "complete",
            queue.enqueue("fail"): "failed",
            queue.enqueue("twice", retry=Retry(max=1, backoff=0)): "complete",
            queue.schedule("fine", time.time() + 0.5): "complete",
            queue.enqueue("fine", after=[first]): "complete",
            queue.enqueue("spawn"): "complete",
            queue.enqueue("fine", start_within=60): "complete",
        }
        assert {task: producer.wait(task, timeout=15).status for task in ended} == ended
        with producer.group("night") as group:
            assert queue.enqueue_many(["fine"] * 3, keys=["1", "2", "3"], group="night").new == 3
            queue.enqueue("fine", group="night")
            group.close()
        assert group.wait(timeout=15)
        with producer.workflow("flow") as flow:
            one = flow.add("work", "fine")
            flow.add("work", "fine", after=[one])
        queue.join(timeout=15)
        producer.set_schedule("often", queue="work", every="1h", parameters="fine")
        made = producer.get_schedule("often").trigger()
        long = queue.enqueue("long")
        until(lambda: client.get_task(long).status == "started")
        failed = next(task for task, status in ended.items() if status == "failed")
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

    refused = {entry["object"].partition("|")[0] for entry in cli.acl_log()}
    assert refused <= {"config"}, cli.acl_log()  # which tells passwords: only admin may ask
