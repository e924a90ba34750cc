"""What an audit says of runs of earlier versions: it leaves the tasks alone that they hold back."""

from __future__ import annotations

import pytest

from blueque.audit.audit import audit, repair
from blueque.model import earlier_versions, keys

Q = "video"
STAGED_RUN = {"run": "r", "queue": Q, "kind": "staged", "state": "open", "keep": 7776000}
STAGED_TASKS = ("aeb1c1c8-f8b2-4082-bf31-856b8020dd09", "b2232d8a-4b2c-4baa-82c0-79851a21747e")


@pytest.fixture
def staged(cli):
    """A run whose tasks an earlier version has written out of sight."""
    made = {"status": "pending", "queue": Q, "parameters": "1", "parameters_encoding": "json"}
    for task in STAGED_TASKS:
        cli.hset(keys.task(task), mapping={**made, "created": 1.5, "updated": 1.5, "run": "r"})
    cli.rpush(
        earlier_versions.staged("c"), 1.5, STAGED_TASKS[0], f"{STAGED_TASKS[1]}  1795975031.5"
    )
    cli.zadd("blueque_staging_r_video", {"c": 1.5})
    cli.hset(earlier_versions.run(Q, "r"), mapping={**STAGED_RUN, "created": 1.5})
    cli.zadd("blueque_runs_video", {"r": 1.5})
    cli.zadd(keys.QUEUES, {Q: 0})


@pytest.mark.parametrize("is_committed", [False, True])
def test_repairs_leave_the_staged_tasks_of_an_earlier_version_alone(
    client, cli, state, staged, is_committed
):
    if is_committed:
        cli.delete("blueque_staging_r_video")
        cli.rpush("blueque_manifest_r_video", "c")
    before = state()

    (finding,) = found = audit(client.connections)
    assert not any(repair(client.connections, each, 9.0) for each in found)
    assert state() == before
    assert (finding.code, finding.fix) == ("leftover", None)
    assert "end the run, or discard it, with the version of Blueque that has made it" in (
        finding.sentence
    )


def test_staged_tasks_that_no_run_knows_are_named_and_left_alone(client, cli, state, staged):
    cli.delete("blueque_staging_r_video")
    before = state()

    (finding,) = audit(client.connections)
    assert not repair(client.connections, finding, 9.0)
    assert state() == before
    assert (finding.code, finding.key) == ("leftover", earlier_versions.staged("c"))
