"""The record of a batch: whose it is, that it goes forward only, and that only what is the same is
erased.
"""

from __future__ import annotations

from typing import Any

import pytest
from transactions import protocol

from blueque import Taken
from blueque.model import keys
from blueque.protocol.archiving import MOST, BatchRef, Written

WRITTEN = Written("t1", "failed", 5_250_000, 2)
FIELDS = {"status": "failed", "queue": "q", "updated": "5.25", "attempt": "2", "error": "e"}


@pytest.fixture
def batch(redis, cli):
    claim(redis, "w")
    make(cli, "t1")


def claim(redis, writer: str, over: str | None = None, batch: str = "b1") -> dict[str, str]:
    return protocol.claim_batch(
        redis, BatchRef("q", batch, writer), {"pid": 7}, {"archive": "a"}, 9.0, over
    )


def make(cli, task: str, **fields: Any) -> None:
    cli.hset(keys.task(task), mapping={**FIELDS, **fields})
    cli.lpush(keys.failed("q"), task)
    cli.zadd(keys.tasks("q"), {task: 1.0})


def erase(redis, *rows: Written, writer: str = "w", batch: str = "b1") -> int:
    return protocol.erase(redis, BatchRef("q", batch, writer), rows or [WRITTEN], 9.0)


def test_a_queue_has_one_batch_at_a_time(redis):
    ours = claim(redis, "w")

    assert claim(redis, "v", batch="b2") == ours == claim(redis, "w")
    assert ours == {
        "batch": "b1",
        "queue": "q",
        "state": "claimed",
        "since": "9.0",
        "archive": "a",
        "writer": "w",
        "pid": "7",
        "beat_at": "9.0",
    }


def test_a_batch_is_taken_over_from_the_one_who_was_found_dead_and_from_nobody_else(redis):
    claim(redis, "w")

    assert claim(redis, "v", over="u")["writer"] == "w"
    assert claim(redis, "v", over="w")["writer"] == "v"
    assert claim(redis, "u", over="w")["writer"] == "v"
    assert claim(redis, "u", over="")["writer"] == "v"
    protocol.leave_batch(redis, BatchRef("q", "b1", "v"))
    assert claim(redis, "u", over="", batch="b2")["batch"] == "b1"


def test_who_has_lost_the_batch_can_change_nothing_of_it(redis, cli, state, batch):
    claim(redis, "v", over="w")
    before = state()

    for call in (
        lambda: protocol.mark_batch(redis, BatchRef("q", "b1", "w"), None, None, 10.0),
        lambda: protocol.mark_batch(redis, BatchRef("q", "b1", "w"), "closed", None, 10.0),
        lambda: protocol.mark_batch(redis, BatchRef("q", "b1", "w"), "written", {}, 10.0),
        lambda: erase(redis),
        lambda: erase(redis, writer="v", batch="b0"),
    ):
        with pytest.raises(Taken):
            call()
    protocol.leave_batch(redis, BatchRef("q", "b1", "w"))

    assert state() == before


def test_a_batch_goes_forward_only(redis, cli):
    claim(redis, "w")

    for state, then in [
        ("written", "written"),
        ("deleted", "deleted"),
        ("published", "deleted"),
        ("written", "deleted"),
    ]:
        protocol.mark_batch(redis, BatchRef("q", "b1", "w"), state, {"rows": 1}, 10.0)
        assert cli.hget(keys.archive("q"), "state") == then


def test_what_is_the_same_is_gone_with_everything_that_named_it(redis, cli, state, batch):
    assert erase(redis) == 1
    assert erase(redis) == 0

    assert {*state()} == {keys.archive("q")}
    assert cli.hget(keys.archive("q"), "deleted") == "1"
    assert protocol.mark_batch(redis, BatchRef("q", "b1", "w"), "deleted", {}, 10.0) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"status": "cancelled"},
        {"status": "pending"},
        {"updated": "5.250001"},
        {"updated": "soon"},
        {"attempt": "3"},
        {"attempt": "x"},
        {"queue": "other"},
    ],
)
def test_what_is_not_the_same_in_every_respect_stays(redis, cli, state, batch, change):
    cli.hset(keys.task("t1"), mapping=change)
    before = state()

    assert erase(redis) == 0
    assert state() == before


@pytest.mark.parametrize("gone", [["updated"], ["attempt"], ["updated", "attempt"], ["queue"]])
def test_a_field_that_is_missing_in_both_is_the_same(redis, cli, batch, gone):
    """1.0.0 numbers no attempts; a file has no queue, for it is in the name of the folder."""
    cli.hdel(keys.task("t1"), *gone)
    row = WRITTEN._replace(
        **{name: None for name in ("updated", "attempts") if name.removesuffix("s") in gone}
    )

    assert erase(redis, WRITTEN) == (gone == ["queue"])
    assert erase(redis, row) == (gone != ["queue"])


def test_of_many_those_that_are_the_same_are_erased(redis, cli, batch):
    names = [f"t{number}" for number in range(2, MOST)]
    for name in names:
        make(cli, name)
    cli.hset(keys.task("t5"), "updated", "6.0")

    assert erase(redis, *[WRITTEN._replace(task=name) for name in names]) == MOST - 3
    assert cli.lrange(keys.failed("q"), 0, -1) == ["t5", "t1"]


def test_a_task_that_changes_while_it_is_looked_at_stays(redis, cli, batch, overtaken):
    overtaken(lambda: cli.hset(keys.task("t1"), mapping={"status": "pending", "updated": "7"}))

    assert erase(redis) == 0
    assert cli.hget(keys.task("t1"), "status") == "pending"


def test_the_oldest_are_looked_for_at_the_tail(redis, cli, batch):
    """From the head, each of a long list would block the server for its whole length."""
    cli.lpush(keys.failed("q"), *[f"young-{number}" for number in range(50_000)])
    make(cli, "t1")  # its id is there twice: the younger one stays
    erase(redis)

    assert cli.lindex(keys.failed("q"), 0) == "t1" and cli.lindex(keys.failed("q"), -1) == "young-0"
