"""Compaction: few files of many, each row once for who reads the archive, at every moment and
whoever dies.
"""

from __future__ import annotations

import functools
import os
import signal
import threading
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
from pyarrow import parquet as pq
from shelves import NOON, QUEUE, Points, archived, fill, in_child, kill_at, require_exact, run

from blueque import ArchiveRefused, InvalidInput, archives
from blueque.archives import compaction, durable, layout, parquet, picking, reading, steps
from blueque.archives.partitions import Output, partition
from blueque.model import keys
from blueque.tables import arrow

CALLS = [
    (compaction, "merge"),
    (compaction, "commit"),
    (compaction, "_apply"),
    (compaction, "_clear"),
    (compaction, "_count"),
    (durable, "sync"),
    (durable, "move"),
    (durable, "remove"),
    (durable, "write_json"),
    (os, "unlink"),
    (os, "rename"),
]
POINTS_OF_A_COMPACTION = 94
EVERY = (
    range(POINTS_OF_A_COMPACTION)
    if os.environ.get("BLUEQUE_SOAK")
    else range(1, POINTS_OF_A_COMPACTION, 3)
)


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    """An archive of 2 days with 5 files each, and 100 rows."""
    place = layout.create(tmp_path / "archive")
    for day in range(2):
        for number in range(5):
            ids = [f"{day}-{number}-{row}" for row in range(10)]
            folder = str(tmp_path / "archive" / partition("queue", QUEUE))
            files = parquet.Files(Output(place, folder, f"{day}{number}-"))
            files.write(rows(ids, NOON + 86400 * day))
            files.close()
    assert len([*place.files()]) == 10
    return tmp_path / "archive"


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch) -> None:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


def rows(ids: list[str], at: float) -> pa.RecordBatch:
    columns = {name: [None] * len(ids) for name in picking.FILE_FIELDS} | {
        "task_id": ids,
        "status": ["complete"] * len(ids),
        "finished": [round(at * 1e6)] * len(ids),
        "parameters": [f"p of {task}" for task in ids],
    }
    return pa.RecordBatch.from_pydict(columns, schema=arrow.schema(picking.FILE_FIELDS))


def files(shelf: Path) -> list[str]:
    return [os.path.basename(file.path) for file in layout.open_(shelf).files()]


ALL = Counter(
    f"{day}-{number}-{row}" for day in range(2) for number in range(5) for row in range(10)
)


def test_the_files_of_a_day_become_one_with_all_their_rows(shelf):
    before = archives.read(shelf, latest=False).sort_by("task_id")

    done = archives.compact(shelf, min_files=5)

    assert done == (10, 2, 100)
    assert archives.read(shelf, latest=False).sort_by("task_id") == before
    assert len(files(shelf)) == 2 and all(name.startswith("compacted-") for name in files(shelf))
    assert os.listdir(shelf / "_compact") == ["lock"]


def test_days_with_few_files_and_large_files_are_left_alone(shelf):
    name = files(shelf)

    assert archives.compact(shelf, min_files=6) == (0, 0, 0)
    assert archives.compact(shelf, min_files=2, target=100) == (0, 0, 0)
    assert files(shelf) == name


def test_a_file_does_not_become_much_larger_than_the_target(shelf):
    size = max(os.path.getsize(file.path) for file in layout.open_(shelf).files())

    done = archives.compact(shelf, min_files=2, target=2 * size + 10)

    assert done == (8, 4, 80) and archived(shelf) == ALL


def test_compacting_twice_does_nothing_the_second_time(shelf):
    archives.compact(shelf, min_files=2)
    assert archives.compact(shelf, min_files=2) == (0, 0, 0)


def test_progress_counts_the_files(shelf):
    seen = []
    archives.compact(shelf, min_files=2, tell=lambda done, total: seen.append((done, total)))
    assert seen == [(5, 10), (10, 10)]


@pytest.mark.parametrize("at", EVERY)
def test_killed_at_any_point_each_row_is_there_once_at_once_and_when_it_was_run_again(at, shelf):
    def die() -> None:
        with Points(kill_at(at), calls=CALLS):
            archives.compact(shelf, min_files=2)

    assert in_child(die) == signal.SIGKILL
    assert archived(shelf) == ALL
    archives.compact(shelf, min_files=2)

    assert archived(shelf) == ALL
    assert len(files(shelf)) == 2 and os.listdir(shelf / "_compact") == ["lock"]


@pytest.mark.parametrize("at", EVERY)
def test_who_reads_at_any_point_sees_each_row_once(at, shelf):
    seen = []

    def look(number: int) -> None:
        if number == at:
            seen.append(archived(shelf))

    with Points(look, calls=CALLS):
        archives.compact(shelf, min_files=2)

    assert seen == [ALL]


def test_the_points_are_all_there_are(shelf):
    with Points(lambda number: None, calls=CALLS) as points:
        archives.compact(shelf, min_files=2)

    assert len(points.names) == POINTS_OF_A_COMPACTION, points.names
    assert {name.split()[1] for name in points.names} == {name for _, name in CALLS}


def test_a_reader_that_knows_of_no_records_sees_rows_twice_for_a_moment(shelf):
    """So the tests above can fail, and the reader has to be ours."""
    seen = []

    def look(number: int) -> None:
        place = layout.open_(shelf)
        seen.append(parquet.count_rows(place, [file.path for file in place.files()]))

    with Points(look, calls=CALLS):
        archives.compact(shelf, min_files=2)

    assert max(seen) == 150 and seen[-1] == 100


def test_a_look_at_the_files_is_taken_again_if_a_compaction_has_come_in_between(shelf, monkeypatch):
    pending = compaction.pending

    def die() -> None:
        # the new file is there, and so are the old ones
        with Points(kill_at(2), calls=[(durable, "remove")]):
            archives.compact(shelf, min_files=2)

    def pending_then_compacted(directory):
        found = pending(directory)
        monkeypatch.setattr(compaction, "pending", pending)
        assert in_child(die) == signal.SIGKILL
        return found

    monkeypatch.setattr(compaction, "pending", pending_then_compacted)

    assert archived(shelf) == ALL


def test_a_file_that_is_gone_when_it_is_to_be_read_makes_it_look_again(shelf, monkeypatch):
    view = reading.view

    def view_then_compacted(*arguments):
        found = view(*arguments)
        monkeypatch.setattr(reading, "view", view)
        archives.compact(shelf, min_files=2)
        return found

    monkeypatch.setattr(reading, "view", view_then_compacted)

    assert archived(shelf) == ALL


def test_two_at_once_take_turns(shelf):
    is_there, may_go_on, second_is_done = threading.Event(), threading.Event(), threading.Event()
    results = []

    def stop(number: int) -> None:
        if number == 1 and threading.current_thread().name == "first":
            is_there.set()
            may_go_on.wait(30)

    def compact() -> None:
        results.append(archives.compact(shelf, min_files=2))
        if threading.current_thread().name == "second":
            second_is_done.set()

    first, second = (threading.Thread(target=compact, name=name) for name in ("first", "second"))
    with Points(stop, calls=[(compaction, "merge")]):
        first.start()
        assert is_there.wait(30)
        second.start()
        assert not second_is_done.wait(0.2)
        may_go_on.set()
        first.join(30)
        second.join(30)

    assert sorted(results) == [(0, 0, 0), (10, 2, 100)] and archived(shelf) == ALL


def test_the_files_of_a_batch_that_is_not_finished_are_left_alone(url, cli, tmp_path, monkeypatch):
    place = tmp_path / "archive"
    ids = fill(cli, 40)
    run(url, place, batch=10)
    more = fill(cli, 40, first=40)
    erased = steps.delete

    def compact_then_delete(*arguments):
        archives.compact(place, min_files=2)
        return erased(*arguments)

    monkeypatch.setattr(steps, "delete", compact_then_delete)
    run(url, place, batch=20)

    require_exact(cli, place, [*ids, *more])
    assert {file.day for file in layout.open_(place).files()} == {"2024-10-04", "2024-10-05"}


def test_an_interrupted_batch_is_finished_although_its_day_was_compacted(url, cli, tmp_path):
    place = tmp_path / "archive"
    ids = fill(cli, 20)
    run(url, place, batch=5)
    more = fill(cli, 10, first=40)

    def die() -> None:
        with Points(kill_at(0), calls=[(steps, "delete")]):
            run(url, place)

    assert in_child(die) == signal.SIGKILL
    assert cli.hget(keys.archive(QUEUE), "state") == "published"
    archives.compact(place, min_files=2)
    run(url, place)

    require_exact(cli, place, [*ids, *more])


def test_files_of_another_engine_are_read_and_merged(shelf):
    """Other order of columns, other units of time, a column that is missing."""
    folder = shelf / partition("queue", QUEUE) / "day=2024-10-04"
    table = pa.table(
        {
            "finished": pa.array([1_728_000_000_000_000_000], pa.timestamp("ns")),
            "task_id": ["x"],
            "attempts": pa.array([2], pa.int64()),
        }
    )
    pq.write_table(table, folder / "part-0.parquet", use_deprecated_int96_timestamps=True)
    wanted = Counter([*ALL, "x"])

    assert archived(shelf) == wanted
    archives.compact(shelf, min_files=2)
    assert archived(shelf) == wanted
    (row,) = [row for row in archives.read(shelf).to_pylist() if row["task_id"] == "x"]
    assert (row["attempts"], row["finished"].timestamp(), row["status"]) == (
        2,
        1_728_000_000.0,
        None,
    )


def test_a_file_that_is_none_of_ours_is_named_and_nothing_is_changed(shelf):
    folder = shelf / partition("queue", QUEUE) / "day=2024-10-04"
    pq.write_table(pa.table({"task_id": ["x"], "colour": ["red"]}), folder / "mine.parquet")

    with pytest.raises(ArchiveRefused, match=r"mine\.parquet: has a column 'colour'"):
        archives.compact(shelf, min_files=2)
    assert len(files(shelf)) == 11


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"min_files": 1}, InvalidInput),
        ({"target": 0}, InvalidInput),
        ({"directory": "nowhere"}, ArchiveRefused),
    ],
)
def test_what_makes_no_sense_is_refused(shelf, options, error):
    with pytest.raises(error):
        functools.partial(archives.compact, **{"directory": shelf, **options})()
