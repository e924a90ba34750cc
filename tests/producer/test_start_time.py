"""Tasks that must start by a time: what the options write, and what they refuse."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from blueque import InvalidInput, InvalidType
from blueque.model import keys


def fields(client, task_id):
    task = client.get_task(task_id)
    return task.start_before, task.expired_to


def index(redis):
    (found,) = redis.read(("ZRANGE", keys.EXPIRING, 0, -1, "WITHSCORES"))
    return dict(zip(found[::2], map(float, found[1::2]), strict=True))


def test_start_before_is_a_time_or_a_datetime(client, queue):
    at = datetime(2100, 1, 1, tzinfo=UTC)

    assert fields(client, queue.enqueue("in", start_before=at))[0] == at.timestamp()
    assert fields(client, queue.enqueue("in", start_before=4e9))[0] == 4e9


@pytest.mark.parametrize("keyed", [{}, {"keys": lambda row: row[0]}])
def test_each_of_many_scheduled_tasks_has_a_time_of_its_own(client, queue, redis, keyed):
    now = time.time()
    rows = [("a", now - 5), ("b", now + 1000), ("c", now + 2000)]

    (ids,) = queue.schedule_iter(rows, etas=lambda row: row[1], start_within="1m", **keyed)

    found = [fields(client, task)[0] for task in ids]
    assert found[0] == pytest.approx(now + 60, abs=20)
    assert found[1:] == [pytest.approx(now + 1060), pytest.approx(now + 2060)]
    assert index(redis) == dict(zip(ids, found, strict=True))


def test_each_of_many_scheduled_tasks_that_wait_has_a_time_of_its_own(client, queue, redis):
    eta, parent = time.time() + 1000, queue.enqueue("in")

    (ids,) = queue.schedule_iter(["a"], eta, after=parent, start_within=60)

    assert fields(client, ids[0]) == (pytest.approx(eta + 60), None)


def test_a_task_of_many_that_could_never_start_is_named(queue, redis):
    now = time.time()
    with pytest.raises(InvalidInput, match="at position 1: start_before is not later than the eta"):
        queue.schedule_many(["a", "b"], etas=iter([now + 10, now + 99]), start_before=now + 50)

    assert index(redis) == {}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"start_within": 5, "start_before": 4e9}, "not both"),
        ({"expired_to": "late"}, "expired_to needs"),
        ({"expired_to": "video", "start_within": 5}, "the queue of the task itself"),
        ({"start_within": 0}, "more than 0 s"),
        ({"start_within": "soon"}, "is not a duration"),
        ({"start_before": 5.0}, "start_before is past"),
        ({"start_before": datetime(2100, 1, 1)}, "no time zone"),
    ],
)
def test_what_makes_no_sense_is_refused(queue, redis, options, why):
    with pytest.raises(InvalidInput, match=why):
        queue.enqueue("in", **options)
    with pytest.raises(InvalidInput, match=why):
        queue.enqueue_many(["in"], **options)

    assert redis.read(("KEYS", "*"))[0] == []


def test_a_time_that_is_not_later_than_the_eta_and_a_type_are_refused(queue):
    with pytest.raises(InvalidInput, match="not later than the eta"):
        queue.schedule("in", time.time() + 100, start_before=time.time() + 50)
    with pytest.raises(InvalidType, match="start_within is seconds"):
        queue.enqueue("in", start_within=True)
