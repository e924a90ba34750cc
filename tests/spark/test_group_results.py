"""Results of a group out of Redis and an archive: without Spark, as its workers read them."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from blueque import archives
from blueque.model.units import Timing
from blueque.spark import group_results as results
from blueque.tables import hash_reader

Q = "video"
NAMES = [f"k{number}" for number in range(6)]
FIELDS = ("key", "status", "result", "attempts")


@pytest.fixture
def ran(client, queue):
    """A group of six tasks, of which four have ended, and others around it."""
    queue.enqueue_many(NAMES, keys=NAMES, group="n1")
    queue.enqueue("other")
    listener = client.get_listener(Q)
    listener.register(Timing())
    for number in range(4):
        processor = client.get_processor(listener.take())
        processor.start(77)
        processor.complete(number)
    listener.leave()


@pytest.fixture
def wish(url, tmp_path):
    since = time.strftime("%Y-%m-%d", time.gmtime())
    return results.Wish(url, "n1", FIELDS, str(tmp_path / "shelf"), since)


def read(wish):
    found = [row for batch in results.rows(wish, (0, 9)) for row in batch.to_pylist()]
    return sorted([*row.values()] for row in found)


WHOLE = [[f"k{number}", "complete", str(number), 1] for number in range(4)]
WHOLE += [["k4", "pending", None, None], ["k5", "pending", None, None]]


@pytest.mark.parametrize("archived", [0, 2, 4])
def test_each_task_comes_once_wherever_it_is(client, ran, wish, archived):
    if archived:
        archives.archive(Q, wish.archive, client=client, limit=archived)

    assert read(wish) == WHOLE


@pytest.mark.parametrize("is_late", [False, True])
def test_what_is_archived_during_the_query_comes_once(client, ran, wish, monkeypatch, is_late):
    archives.archive(Q, wish.archive, client=client, limit=1)
    from_redis = hash_reader.read

    def read_and_archive(*given):
        if not is_late:
            archives.archive(Q, wish.archive, client=client)
        yield from from_redis(*given)
        if is_late:
            archives.archive(Q, wish.archive, client=client)

    # not in the module itself: the archiver reads with it, too
    monkeypatch.setattr(results, "hash_reader", SimpleNamespace(read=read_and_archive))
    assert read(wish) == WHOLE


def test_a_task_that_was_deleted_is_a_row_with_its_id_only(client, queue, ran, wish, cli):
    first, second = cli.zrange("blueque_joined_n1", 0, 1)
    archives.archive(Q, wish.archive, client=client, limit=1)
    queue.delete_task(client.get_task(second))

    rows = [
        row
        for batch in results.rows(wish._replace(fields=("task_id", "status", "key")), (0, 9))
        for row in batch.to_pylist()
    ]

    by_id = {row["task_id"]: (row["status"], row["key"]) for row in rows}
    assert len(rows) == 6
    assert (by_id[first], by_id[second]) == (("complete", "k0"), (None, None))
