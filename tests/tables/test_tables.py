"""Snapshots of queues and what is read of them as tables: what is in them, and what foreign records
do to them.
"""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

from transactions import protocol  # noqa: E402

from blueque import Client, InvalidInput, InvalidType, SnapshotGone  # noqa: E402
from blueque.model import keys  # noqa: E402
from blueque.model.attempt_ref import AttemptRef  # noqa: E402
from blueque.model.columns import ARCHIVE_FIELDS, DEFAULT_FIELDS, to_microseconds  # noqa: E402
from blueque.model.snapshot import Slice  # noqa: E402
from blueque.model.states import STATUSES  # noqa: E402
from blueque.protocol.ends import End  # noqa: E402
from blueque.tables import arrow, hash_reader  # noqa: E402

NODE, TOKEN = "host_7", "token-1"


def rows(
    client: Client, pieces: Sequence[Slice], *arguments: Any, **options: Any
) -> list[dict[str, Any]]:
    return [
        row
        for piece in pieces
        for batch in client.read(piece, *arguments, **options)
        for row in batch.to_pylist()
    ]


def read(client: Client, statuses: Any, *arguments: Any, **options: Any) -> list[dict[str, Any]]:
    return rows(client, client.freeze("q", statuses).slices(), *arguments, **options)


def enqueue(redis, task: str, **options: Any) -> None:
    protocol.enqueue(redis, "q", task, f"p of {task}", 1.5, options)


def start(redis, task: str) -> None:
    enqueue(redis, task)
    protocol.pop(redis, "q", NODE, "i", "0")
    protocol.reserve(redis, AttemptRef("q", task, TOKEN, NODE), "i", 2.5)
    protocol.start(redis, AttemptRef("q", task, TOKEN, NODE), 99, 3.25)


def complete(redis, task: str) -> None:
    start(redis, task)
    protocol.end(redis, AttemptRef("q", task, TOKEN, NODE), End.complete("r"), 4.5)


@pytest.fixture
def listener(redis):
    protocol.register(redis, "q", NODE, "i", {"pid": 7}, 1.0)


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def test_a_finished_task_has_all_its_columns(client, redis, listener):
    complete(redis, "t1")

    assert read(client, "complete") == [
        {
            "task_id": "t1",
            "queue": "q",
            "status": "complete",
            "parameters": "p of t1",
            "result": "r",
            "error": None,
            "error_type": None,
            "node": NODE,
            "pid": 99,
            "attempts": 1,
            "priority": None,
            "key": None,
            "group": None,
            "created": at(1.5),
            "updated": at(4.5),
            "started": at(3.25),
            "finished": at(4.5),
            "eta": None,
            "listed_as": "complete",
        }
    ]


def test_every_status_has_its_tasks_and_pending_ones_those_of_all_lines(client, redis, listener):
    start(redis, "started")
    enqueue(redis, "reserved")
    protocol.pop(redis, "q", NODE, "i", "0")
    protocol.reserve(redis, AttemptRef("q", "reserved", TOKEN, NODE), "i", 2.5)
    for task, options in {
        "first": {},
        "second": {},
        "urgent": {"priority": 5},
        "gpu": {"needs": "gpu=1"},
    }.items():
        enqueue(redis, task, **options)
    protocol.schedule(redis, "q", "later", "p", 50.0, 1.0)
    protocol.schedule(redis, "q", "soon", "p", 40.0, 1.0)
    enqueue(redis, "cancelled")
    protocol.cancel(redis, "q", "cancelled", "ann", None, 2.0)

    found = [(row["listed_as"], row["status"], row["task_id"]) for row in read(client, STATUSES)]

    assert [row[0] for row in found] == [row[1] for row in found]
    by_status = {
        status: [task for its, _, task in found if its == status] for status, _, _ in found
    }
    assert sorted(by_status.pop("pending")) == ["first", "gpu", "second", "urgent"]
    assert by_status == {
        "scheduled": ["soon", "later"],
        "reserved": ["reserved"],
        "started": ["started"],
        "cancelled": ["cancelled"],
    }


def test_a_snapshot_holds_what_was_there_although_the_tasks_move_on(client, redis, listener):
    enqueue(redis, "t1")
    enqueue(redis, "t2")
    snapshot = client.freeze("q", ["pending", "started"])

    protocol.pop(redis, "q", NODE, "i", "0")
    protocol.reserve(redis, AttemptRef("q", "t1", TOKEN, NODE), "i", 2.5)
    enqueue(redis, "t3")

    found = rows(client, snapshot.slices(), ["task_id", "listed_as", "status"])
    assert [tuple(row.values()) for row in found] == [
        ("t1", "pending", "reserved"),
        ("t2", "pending", "pending"),
    ]


def test_the_slices_of_a_snapshot_make_it_up_whatever_their_size(client, redis):
    queue = client.get_queue("q")
    made = [str(task) for batch in queue.enqueue_iter(range(2500)) for task in batch]
    snapshot = client.freeze("q", "pending")
    ids = ["task_id"]

    assert snapshot.rows == 2500
    for pieces in (
        snapshot.slices(),
        snapshot.slices(size=700),
        snapshot.slices(count=3),
        snapshot.slices(size=1)[:5],
    ):
        found = [row["task_id"] for row in rows(client, pickle.loads(pickle.dumps(pieces)), ids)]
        assert found == made[: len(found)] and len(found) in (2500, 5)
    assert len(snapshot.slices(count=3)) == 3


def test_slices_of_ids_that_are_no_copy_make_it_up_as_well(client, redis, cli):
    for number in range(30):
        cli.hset(keys.task(f"t{number:02}"), mapping={"status": "started", "queue": "q"})
        cli.sadd(keys.started("q"), keys.started_member(NODE, 5, f"t{number:02}"))

    pieces = client.freeze("q", "started").slices(size=7)

    assert [row["task_id"] for row in rows(client, pieces)] == [
        f"t{number:02}" for number in range(30)
    ]


def test_several_queues_are_frozen_at_one_instant(client, redis):
    client.get_queue("a").enqueue("1")
    client.get_queue("b").enqueue("2")

    snapshot = client.freeze(["b", "a"], "pending")

    assert [row["parameters"] for row in rows(client, snapshot.slices())] == ["2", "1"]


def test_tasks_of_1_0_0_have_nulls_where_they_have_no_fields(client, cli):
    cli.hset(
        keys.task("old"),
        mapping={
            "status": "complete",
            "queue": "q",
            "parameters": "p",
            "result": "r",
            "node": NODE,
            "pid": "5",
            "created": "1.5",
            "updated": "2.5",
        },
    )
    cli.lpush(keys.complete("q"), "old")

    (row,) = read(client, "complete")

    assert (row["created"], row["updated"], row["pid"]) == (at(1.5), at(2.5), 5)
    assert {row[name] for name in ("started", "finished", "attempts", "eta", "key", "group")} == {
        None
    }


@pytest.fixture
def foreign(cli, redis, listener) -> None:
    """Among tasks as they should be: no hash, another type, another program's hash, odd values."""
    complete(redis, "good")
    cli.set(keys.task("text"), "no hash")
    cli.hset(
        keys.task("odd"),
        mapping={
            "status": "complete",
            "queue": "q",
            "parameters": b"\xff\xfea",
            "created": "abc",
            "updated": "1e300",
            "started": "nan",
            "finished": "",
            "pid": "99999999999999999999",
            "attempt": "4294967296",
            "priority": "5.5",
        },
    )
    cli.hset(keys.task("other"), "what", "is this")
    cli.hset(keys.task("good"), "100 %s", '"a"\n%d')
    cli.lpush(keys.complete("q"), "gone", "text", "odd", "other", b"\xff id")


def test_foreign_records_make_nulls_and_break_nothing(client, foreign):
    good, odd = read(client, "complete")

    assert good["task_id"] == "good" and good["finished"] == at(4.5)
    assert odd["task_id"] == "odd" and odd["parameters"] == "\\xff\\xfea"
    numbers = ("created", "updated", "started", "finished", "pid", "attempts", "priority")
    assert {odd[name] for name in numbers} == {None}


def test_entries_without_a_task_are_kept_if_that_is_asked_for(client, foreign):
    found = read(client, "complete", missing="null")

    assert [row["task_id"] for row in found] == ["good", "gone", "text", "odd", "other", "\\xff id"]
    assert [row["status"] for row in found] == ["complete", None, None, "complete", None, None]
    assert {row["listed_as"] for row in found} == {"complete"}


def test_what_no_column_holds_is_in_other(client, redis, foreign):
    good, odd = read(client, "complete", ARCHIVE_FIELDS)

    assert json.loads(good["other"]) == {
        "token": TOKEN,
        "finished_by": TOKEN,
        "events": "3",
        "100 %s": '"a"\n%d',
    }
    assert json.loads(odd["other"]) == {
        "parameters": b"\xff\xfea".decode("utf-8", "surrogateescape"),
        "created": "abc",
        "updated": "1e300",
        "started": "nan",
        "finished": "",
        "pid": "99999999999999999999",
        "attempt": "4294967296",
        "priority": "5.5",
    }


def test_only_the_columns_that_are_asked_for_come_and_in_that_order(client, redis, listener):
    complete(redis, "t1")
    fields = ["finished", "task_id", "other"]
    (batch,) = client.read(client.freeze("q", "complete").slices()[0], fields)

    assert batch.schema == hash_reader.schema(fields)
    assert batch.column_names == fields
    assert "parameters" in json.loads(batch.to_pylist()[0]["other"])
    assert hash_reader.schema().names == list(DEFAULT_FIELDS)


def test_large_tasks_come_few_at_a_time(client):
    client.get_queue("q").enqueue_many("x" * 400_000 for _ in range(280))

    sizes = [batch.num_rows for batch in client.read(client.freeze("q", "pending").slices()[0])]

    assert sizes == [100, 100, 20, 20, 20, 20]  # 8 MiB, once it is known what they take


def test_a_snapshot_that_is_gone_says_so_and_is_not_taken_for_an_empty_one(client, cli):
    client.get_queue("q").enqueue("p")
    snapshot = client.freeze("q", "pending")

    assert client.thaw(snapshot) and not client.thaw(snapshot)

    with pytest.raises(SnapshotGone, match=snapshot.parts[0].key):
        rows(client, snapshot.slices())
    assert not cli.keys("blueque_frozen*")


def test_everything_of_a_snapshot_expires(client, redis, listener, cli):
    start(redis, "t1")
    complete(redis, "t2")
    enqueue(redis, "t3")
    protocol.schedule(redis, "q", "t4", "p", 50.0, 1.0)

    client.freeze("q", STATUSES, keep=100)

    times = {key: cli.ttl(key) for key in cli.keys("blueque_frozen*")}
    assert len(times) == 4 and all(90 < time <= 100 for time in times.values())


def test_an_empty_queue_has_no_slices(client):
    snapshot = client.freeze("q", STATUSES)

    assert (snapshot.rows, snapshot.slices(), snapshot.slices(count=8)) == (0, [], [])


def test_reading_goes_on_when_redis_hangs_up(client, redis, cli):
    client.get_queue("q").enqueue_many(range(1000))
    found = []

    for batch in client.read(client.freeze("q", "pending").slices()[0], ["task_id"]):
        found += batch.column(0).to_pylist()
        cli.client_kill_filter(_type="normal", skipme=True)

    assert len(found) == len({*found}) == 1000


def test_its_own_connection_serves_others_between_two_batches(client):
    client.get_queue("q").enqueue_many(range(500))

    for _ in client.read(client.freeze("q", "pending").slices()[0], ["task_id"]):
        assert client.get_inspector().pending("q") == 500


def test_a_time_is_rounded_the_same_alone_and_among_many():
    """An archive deletes a task only if its time is that in the file to the microsecond."""
    draw = random.Random(7)
    texts = [str(draw.uniform(0, 4e9)) for _ in range(20_000)]
    texts += [f"{draw.randrange(4_000_000_000)}.{digits:06}5" for digits in range(0, 1_000_000, 97)]

    among_many = arrow.column("timestamp", texts).array.cast(pa.int64()).to_pylist()

    assert among_many == [to_microseconds(text) for text in texts]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda client: client.freeze([], "pending"), InvalidInput, "no queue"),
        (lambda client: client.freeze("q", "done"), InvalidInput, "'done'"),
        (lambda client: client.freeze("q", []), InvalidInput, "no status"),
        (lambda client: client.freeze("q", "pending", keep=0), InvalidInput, "keep"),
        (lambda client: client.read(None, ["id"]), InvalidInput, "'id'"),
        (lambda client: client.read(None, "task_id"), InvalidType, "names of columns"),
        (lambda client: client.read(None, ["key", "key"]), InvalidInput, "twice"),
        (lambda client: client.read(None, []), InvalidInput, "no column"),
        (lambda client: client.read(None, missing="keep"), InvalidInput, "missing"),
    ],
)
def test_what_makes_no_sense_is_refused(client, call, error, words):
    with pytest.raises(error, match=words):
        call(client)
