"""The archive: what goes into it and what stays, whoever dies, is slow, or comes second."""

from __future__ import annotations

import functools
import json
import os
import runpy
import signal
import threading
import time
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

import pyarrow
import pyarrow.parquet
from running import ROOT
from shelves import (
    DAY,
    LISTS,
    NOON,
    POINTS,
    QUEUE,
    Points,
    archived,
    fill,
    finished,
    in_child,
    kill_at,
    left,
    quick_lease,
    require_exact,
    run,
)
from transactions import protocol

from blueque import ArchiveRefused, Client, Inspector, InvalidInput, Taken, archives
from blueque.archives import batch_steps, claims, opening, parquet_files, picking, stores
from blueque.archives.layout import Output
from blueque.model import keys
from blueque.model.columns import ARCHIVE_FIELDS, DEFAULT_FIELDS
from blueque.model.new_task import NewTask
from blueque.protocol.archiving import BatchRef

ESCAPED = "queue=a%2Fb_c"


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    return tmp_path / "archive"


@pytest.fixture
def quick_disk(monkeypatch) -> None:
    """Who kills a process does not cut the power: what was written is there."""
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


def requeue(redis, task: str) -> None:
    """Have a failed or cancelled task run again, with what 1.0.0 or anybody does then."""
    protocol.requeue(redis, QUEUE, task, "again", NOON + 100 * DAY)


def test_finished_tasks_go_into_files_by_queue_and_day_and_out_of_redis(url, cli, shelf):
    ids = fill(cli, 40)
    cli.hset(
        keys.task("p"),
        mapping={"status": "pending", "queue": QUEUE, "parameters": "p", "created": "1"},
    )
    cli.lpush(keys.pending(QUEUE), "p")

    done = run(url, shelf)

    require_exact(cli, shelf, ids)
    assert left(cli) == {keys.QUEUES, keys.task("p"), keys.pending(QUEUE)}
    assert (done.written, done.deleted, len(done.batches), done.resumed) == (40, 40, 2, ())
    assert sorted(os.listdir(shelf / ESCAPED)) == ["day=2024-10-04", "day=2024-10-05"]


def test_a_row_of_the_archive_holds_all_of_a_task(url, cli, shelf):
    fill(cli, 1)
    cli.hset(keys.task("task-00000"), "foreign", "text")

    run(url, shelf)

    (row,) = archives.read(shelf).to_pylist()
    fields = finished(0)
    assert {
        name: row[name]
        for name in ("task_id", "queue", "status", "parameters", "result", "attempts", "day")
    } == {
        "task_id": "task-00000",
        "queue": QUEUE,
        "status": "complete",
        "parameters": "p0",
        "result": "r" * 50,
        "attempts": 1,
        "day": date(2024, 10, 4),
    }
    assert row["finished"] == datetime.fromtimestamp(NOON, UTC)
    assert json.loads(row["other"]) == {
        "token": fields["token"],
        "finished_by": fields["finished_by"],
        "foreign": "text",
    }
    assert [*row] == [*DEFAULT_FIELDS[:-1], "other", "day"]


def test_only_what_is_old_enough_is_archived(url, cli, shelf, monkeypatch):
    ids = fill(cli, 40)
    monkeypatch.setattr(Inspector, "now", lambda self: NOON + 2 * DAY)

    run(url, shelf, older_than="1d")

    require_exact(cli, shelf, ids[:20])
    assert cli.zcard(keys.tasks(QUEUE)) == 20


def test_what_has_no_time_is_archived_only_when_no_age_is_asked_for(url, cli, shelf):
    fill(cli, 8)
    cli.hdel(keys.task("task-00003"), "finished", "updated")
    cli.hset(keys.task("task-00004"), mapping={"finished": "soon", "updated": "-", "created": "x"})

    assert run(url, shelf, older_than=0).written == 6
    assert run(url, shelf).written == 2

    days = {row["task_id"]: row["day"] for row in archives.read(shelf).to_pylist()}
    assert len(days) == 8 and days["task-00004"] is None and days["task-00003"] == date(2024, 10, 4)
    require_exact(cli, shelf, days)


def test_a_limit_is_kept_and_the_oldest_go_first(url, cli, shelf):
    ids = fill(cli, 40)
    complete = [task for number, task in enumerate(ids) if number % 4 < 2]

    done = run(url, shelf, limit=12, batch=5, statuses="complete")

    assert done.written == 12
    require_exact(cli, shelf, complete[:12])
    assert cli.lrange(keys.complete(QUEUE), 0, -1) == complete[:11:-1]


def test_foreign_and_doubled_entries_stay_or_are_archived_once(url, cli, shelf):
    ids = fill(cli, 12)
    # 2 has failed
    cli.rpush(keys.complete(QUEUE), "gone", "task-00000", "task-00002", "of another queue", "text")
    cli.lpush(keys.complete(QUEUE), "task-00000", "task-00001")
    cli.hset(
        keys.task("of another queue"),
        mapping={"status": "complete", "queue": "other", "updated": "5"},
    )
    cli.set(keys.task("text"), "no hash")
    cli.hset(keys.task("runs"), mapping={**finished(0), "status": "started"})
    cli.lpush(keys.complete(QUEUE), "runs")

    done = run(url, shelf, batch=3)

    assert archived(shelf) == dict.fromkeys(ids, 1)
    assert cli.hget(keys.task("runs"), "status") == "started"
    assert (done.written, done.deleted) == (12, 12)
    assert cli.exists(keys.task("of another queue")) and cli.get(keys.task("text")) == "no hash"


def test_a_key_goes_on_counting_after_its_task_is_archived(url, client, cli, shelf):
    queue = client.get_queue(QUEUE)
    task = queue.enqueue("p", key="k", keep="2d")
    queue.cancel(task)

    run(url, shelf)

    assert archived(shelf) == {task: 1}
    assert 0 < cli.ttl(keys.key_kept(task)) <= 2 * DAY
    assert not queue.enqueue("p", key="k", keep="2d").is_new


def test_a_task_for_which_others_wait_stays_and_is_archived_when_they_do_not_any_more(
    url, cli, redis, shelf
):
    ids = fill(cli, 12)
    # Another task says the same word.
    cli.hset(keys.task("task-00000"), "progress_note", '"dependents":"1"')
    awaited = [task for number, task in enumerate(ids) if number % 4 > 1]  # failed and cancelled
    new = [NewTask(f"after {task}", "other", "p", {}, {task: "ok"}) for task in awaited]
    protocol.enqueue_after(redis, new, NOON)

    done = run(url, shelf, batch=5)

    assert (done.written, done.deleted) == (6, 6)
    assert sorted(archived(shelf)) == [task for task in ids if task not in awaited]
    assert all(cli.exists(keys.task(task)) for task in awaited)

    for child in new:
        protocol.unblock(redis, "other", child.task, NOON, "me")
    for task in awaited:
        protocol.settle(redis, task, NOON)
    run(url, shelf, batch=5)

    require_exact(cli, shelf, ids)


def test_a_task_for_which_another_waits_since_it_was_written_stays(
    url, cli, redis, shelf, monkeypatch
):
    ids = fill(cli, 4)
    publish = batch_steps.publish

    def enqueue_and_publish(directory, claim):
        new = [NewTask("child", "other", "p", {}, {ids[2]: "ok"})]
        protocol.enqueue_after(redis, new, NOON)
        publish(directory, claim)

    monkeypatch.setattr(batch_steps, "publish", enqueue_and_publish)
    done = run(url, shelf)

    assert (done.written, done.deleted) == (4, 3)
    assert cli.hget(keys.task(ids[2]), "status") == "failed"
    assert cli.zrange(keys.dependents(ids[2]), 0, -1) == ["child"]


def test_what_was_put_in_line_again_since_stays_and_is_archived_anew_when_it_ends(
    url, cli, redis, shelf, monkeypatch
):
    ids = fill(cli, 12)
    delete = batch_steps.delete

    def delete_late(*arguments):
        requeue(redis, "task-00002")
        monkeypatch.setattr(batch_steps, "delete", delete)
        return delete(*arguments)

    monkeypatch.setattr(batch_steps, "delete", delete_late)
    done = run(url, shelf)

    assert (done.written, done.deleted) == (12, 11)
    require_exact(cli, shelf, ids, staying=["task-00002"])
    assert cli.lrange(keys.pending(QUEUE), 0, -1) == ["task-00002"]
    protocol.cancel(redis, QUEUE, "task-00002", "ann", None, NOON + 200 * DAY)
    run(url, shelf)
    assert archived(shelf)["task-00002"] == 2
    (row,) = [row for row in archives.read(shelf).to_pylist() if row["task_id"] == "task-00002"]
    assert row["status"] == "cancelled"


def test_several_queues_share_an_archive(url, client, cli, shelf):
    fill(cli, 4)
    other = client.get_queue("queue=1 %")
    other.cancel(other.enqueue("p"))
    archives.archive("queue=1 %", shelf, url=url)

    run(url, shelf)

    assert archives.read(shelf).num_rows == 5
    assert archives.read(shelf, queue="queue=1 %")["parameters"].to_pylist() == ["p"]
    assert archives.read(shelf, queue=QUEUE, days=("2024-10-04", date(2024, 10, 4))).num_rows == 4
    assert archives.read(shelf, days=("2024-10-05", "2024-10-06")).num_rows == 0


def test_any_reader_of_hive_partitions_reads_it(url, cli, shelf):
    import pyarrow.dataset as ds

    ids = fill(cli, 40)
    run(url, shelf)

    table = ds.dataset(str(shelf), partitioning="hive").to_table(
        columns=["task_id", "queue", "day"]
    )

    assert sorted(table["task_id"].to_pylist()) == ids
    assert {*table["queue"].to_pylist()} == {QUEUE} and {*table["day"].to_pylist()} == {
        "2024-10-04",
        "2024-10-05",
    }


def test_days_in_any_order_are_written_to_few_files_at_a_time(url, cli, shelf, monkeypatch):
    monkeypatch.setattr(parquet_files, "OPEN", 8)
    ids = fill(cli, 400)
    for number, task in enumerate(ids):
        ended = NOON + DAY * (number * 7 % 30)
        cli.hset(keys.task(task), mapping={"finished": str(ended), "updated": str(ended)})

    run(url, shelf, batch=1000)

    require_exact(cli, shelf, ids)
    days = [file.day for file in opening.open_(shelf).files()]
    # of those that are not written to for a while another is begun
    assert len({*days}) == 30 < len(days)
    table = archives.read(shelf, fields=["finished", "day"]).to_pylist()
    assert all(row["finished"].date() == row["day"] for row in table)


def test_tasks_are_deleted_in_the_order_of_their_list_though_days_alternate_in_it(
    url, cli, shelf, monkeypatch
):
    """From a list of 100,000 whose days alternate, Redis would take 273 us to remove a task."""
    monkeypatch.setattr(batch_steps, "IDS", 7)
    monkeypatch.setattr(batch_steps, "PASSED", 0)
    ids = fill(cli, 40)
    for number, task in enumerate(ids):
        ended = NOON + DAY * (number % 3) + number
        cli.hset(keys.task(task), mapping={"finished": str(ended), "updated": str(ended)})
    listed = [task for key in LISTS.values() for task in cli.lrange(key(QUEUE), 0, -1)[::-1]]
    erased, erase = [], protocol.erase

    def note(redis, ref, rows, *others):
        erased.extend(row.task for row in rows)
        return erase(redis, ref, rows, *others)

    monkeypatch.setattr(protocol, "erase", note)
    run(url, shelf, batch=1000)

    assert [file.day for file in opening.open_(shelf).files()] == [
        "2024-10-04",
        "2024-10-05",
        "2024-10-06",
    ]
    assert erased == listed
    require_exact(cli, shelf, ids)


def test_an_empty_queue_leaves_an_empty_archive(url, cli, shelf):
    assert run(url, shelf).batches == ()
    assert os.listdir(shelf) == ["_archive.json"] and not cli.keys("*archive*")


def test_who_reads_at_any_point_sees_each_task_in_one_place_or_in_both(url, cli, shelf):
    """Also while the archive comes to be: a place with nothing in it is an empty archive."""
    ids, looks = fill(cli, 30), 0
    shelf.mkdir()

    def look(number: int) -> None:
        nonlocal looks
        if not is_busy.locked():  # what the look itself calls is no point
            with is_busy:
                there = {task for task in ids if cli.exists(keys.task(task))}
                seen = archived(shelf)
            assert {*seen} | there == {*ids} and max(seen.values(), default=1) == 1
            looks += 1

    is_busy = threading.Lock()
    assert archived(shelf) == {} and archives.files(shelf) == []
    with Points(look):
        run(url, shelf)
    assert looks > 60 and archived(shelf) == dict.fromkeys(ids, 1)


def test_a_batch_of_which_redis_forgets_that_it_was_written_is_written_again(
    url, cli, shelf, monkeypatch
):
    """Redis has failed over, and the replica had not seen the last changes."""
    ids = fill(cli, 40)
    claimed: dict[str, str] = {}
    write_down, delete = batch_steps.write_down, batch_steps.delete

    def note(*arguments):
        claimed.update(cli.hgetall(keys.archive(QUEUE)))
        write_down(*arguments)

    monkeypatch.setattr(batch_steps, "write_down", note)
    monkeypatch.setattr(batch_steps, "delete", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(url, shelf, batch=1000)
    monkeypatch.setattr(batch_steps, "write_down", write_down)
    monkeypatch.setattr(batch_steps, "delete", delete)
    del claimed["writer"]
    cli.delete(keys.archive(QUEUE))
    cli.hset(keys.archive(QUEUE), mapping=claimed)
    assert archived(shelf) == dict.fromkeys(ids, 1)

    run(url, shelf)

    assert sorted(archives.read(shelf)["task_id"].to_pylist()) == ids
    assert not any(cli.exists(keys.task(task)) for task in ids)
    assert not cli.exists(keys.archive(QUEUE))


def test_a_damaged_mark_is_refused_where_there_are_files_and_mended_where_there_are_none(
    url, cli, shelf
):
    ids = fill(cli, 4)
    shelf.mkdir()
    mark = shelf / "_archive.json"
    mark.write_text('{"archive": "0123')
    run(url, shelf, limit=2, by_group=True)
    there = mark.read_text()

    for damaged in ("", '{"archive": "0123', "[]", "7", '{"archive": 7}', "\udcff"):
        mark.write_text(damaged, errors="surrogateescape")
        for action in (lambda: run(url, shelf), lambda: archives.read(shelf)):
            with pytest.raises(ArchiveRefused, match=r"its _archive.json is damaged. Put it back"):
                action()
    mark.unlink()
    run(url, shelf, by_group=True)

    assert json.loads(mark.read_text()) == json.loads(there)
    require_exact(cli, shelf, ids)


def test_a_path_that_is_not_utf_8_is_refused(url, tmp_path):
    with pytest.raises(ArchiveRefused, match=r"a\\udcff: has a name that is not UTF-8"):
        archives.archive(QUEUE, os.fsdecode(bytes(tmp_path) + b"/a\xff"), url=url)
    assert not [*tmp_path.iterdir()]


def test_who_lists_files_while_they_are_merged_sees_each_task(url, cli, shelf, monkeypatch):
    """A listing reads the names first, and then drops those that have gone meanwhile."""
    ids = fill(cli, 20)
    run(url, shelf, batch=5)
    below, merged = stores.Store.below, False

    def merge_and_list(store: stores.Store, folder: str) -> list[str]:
        nonlocal merged
        names = below(store, folder)
        if not merged:
            merged = True
            files = [Path(name) for name in names]
            rows = [pyarrow.parquet.read_table(file) for file in files]
            place = files[0].with_name("merged.parquet")
            pyarrow.parquet.write_table(pyarrow.concat_tables(rows), place)
            for file in files:
                file.unlink()
        return [name for name in names if os.path.exists(name)]

    monkeypatch.setattr(stores.Store, "below", merge_and_list)
    assert sorted(archives.read(shelf)["task_id"].to_pylist()) == ids and merged


def merge(shelf: Path) -> None:
    """Merge files as the example does."""
    runpy.run_path(str(ROOT / "examples" / "merge_archive.py"))["main"](str(shelf))


def test_files_are_not_merged_while_a_batch_is_open(url, cli, shelf, monkeypatch):
    monkeypatch.setenv("BLUEQUE_REDIS_URL", url)
    ids, delete = fill(cli, 40), batch_steps.delete
    run(url, shelf, batch=1, limit=39)
    monkeypatch.setattr(batch_steps, "delete", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(url, shelf)
    before = archives.files(shelf)

    with pytest.raises(AssertionError, match="a/b_c"):
        merge(shelf)
    assert archives.files(shelf) == before

    monkeypatch.setattr(batch_steps, "delete", delete)
    run(url, shelf)
    merge(shelf)
    assert len(archives.files(shelf)) == 2
    require_exact(cli, shelf, ids)


def test_merged_files_have_the_columns_of_all_of_them(url, cli, shelf, monkeypatch):
    monkeypatch.setenv("BLUEQUE_REDIS_URL", url)
    fill(cli, 20)
    run(url, shelf, batch=2)
    first = archives.files(shelf)[0]
    rows = pyarrow.parquet.read_table(first, partitioning=None)
    pyarrow.parquet.write_table(rows.drop_columns(["parameters"]), first)  # an older version's
    before = archives.read(shelf, fields=["task_id", "parameters"]).sort_by("task_id")

    merge(shelf)

    assert len(archives.files(shelf)) == 1
    after = archives.read(shelf, fields=["task_id", "parameters"]).sort_by("task_id")
    assert after == before and after["parameters"].null_count < 20


def test_files_may_be_merged_as_the_example_does_and_each_task_is_seen_once(
    url, cli, shelf, monkeypatch
):
    monkeypatch.setenv("BLUEQUE_REDIS_URL", url)
    ids, seen = fill(cli, 40), []

    def see(name: str) -> Callable[..., None]:
        real = getattr(os, name)

        def done(*arguments: str) -> None:
            real(*arguments)
            seen.append(sorted(archives.read(shelf)["task_id"].to_pylist()))

        return done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.rename", see("rename"))
        patch.setattr("os.remove", see("remove"))
        run(url, shelf, batch=2)
        merge(shelf)

    assert len(archives.files(shelf)) == 2 and archived(shelf) == dict.fromkeys(ids, 1)
    assert len(seen) > 20 and all(each == ids for each in seen)
    more = fill(cli, 10, first=40)
    run(url, shelf)
    assert archived(shelf) == dict.fromkeys([*ids, *more], 1)


# Killed, and slow

POINTS_OF_AN_ARCHIVE = 164
# All of them in bin/soak, some of them else: the order of the points changes little, and each kind
# has many.
EVERY = (
    range(POINTS_OF_AN_ARCHIVE)
    if os.environ.get("BLUEQUE_SOAK")
    else range(3, POINTS_OF_AN_ARCHIVE, 6)
)


def naive(url: str, directory: Path, between: Callable[[], object] = lambda: None) -> None:
    """Archive as anybody would: write what is listed, then delete what was written."""
    client = Client(url)
    pieces = client.freeze(QUEUE, [*LISTS]).slices()
    place = opening.create(directory)
    files = parquet_files.Files(Output(place, str(directory / ESCAPED), f"{os.urandom(4).hex()}-"))
    for piece in pieces:
        for batch in client.read(piece, ARCHIVE_FIELDS):
            files.write(picking.pick(batch, QUEUE, None, set()))
    files.close()
    between()
    for piece in pieces:
        for batch in client.read(piece, ["task_id", "listed_as"]):
            for task, status in zip(*[column.to_pylist() for column in batch.columns], strict=True):
                client.connections.read(
                    ("DEL", keys.task(task)), ("LREM", LISTS[status](QUEUE), 1, task)
                )


def test_a_naive_archive_loses_and_doubles(url, cli, redis, shelf):
    ids = fill(cli, 30)
    assert (
        in_child(lambda: naive(url, shelf, lambda: os.kill(os.getpid(), signal.SIGKILL)))
        == signal.SIGKILL
    )

    naive(url, shelf, lambda: requeue(redis, "task-00002"))

    assert archived(shelf) == dict.fromkeys(ids, 2)  # each is there twice
    assert cli.lrange(keys.pending(QUEUE), 0, -1) == ["task-00002"]
    assert not cli.exists(keys.task("task-00002"))  # and this one will never run


@pytest.mark.parametrize("at", EVERY)
def test_killed_at_any_point_and_run_again_it_loses_and_doubles_nothing(
    at, url, cli, shelf, quick_disk
):
    ids = fill(cli, 30)

    def die() -> None:
        with Points(kill_at(at)):
            run(url, shelf)

    assert in_child(die) == signal.SIGKILL
    run(url, shelf)

    require_exact(cli, shelf, ids)
    assert left(cli) == {keys.QUEUES}


def test_killed_again_and_again_it_comes_to_its_end(url, cli, shelf, quick_disk):
    ids = fill(cli, 60)

    def die(at: int) -> None:
        with Points(kill_at(at)):
            run(url, shelf)

    deaths = [in_child(functools.partial(die, at)) for at in range(11, 400, 13)]

    require_exact(cli, shelf, ids)
    assert deaths.count(signal.SIGKILL) > 5 and deaths[-1] == 0


@pytest.mark.parametrize("at", EVERY)
def test_one_that_is_slow_and_taken_for_dead_at_any_point_does_no_harm(
    at, url, cli, redis, shelf, quick_disk
):
    ids = fill(cli, 30)
    is_there, may_go_on = threading.Event(), threading.Event()
    failures: list[BaseException] = []

    def stop(number: int) -> None:
        if threading.current_thread().name == "slow" and number == at:
            is_there.set()
            may_go_on.wait(30)

    def be_slow() -> None:
        try:
            run(url, shelf)
        except BaseException as error:
            failures.append(error)
        finally:
            is_there.set()

    slow = threading.Thread(target=be_slow, name="slow")
    with quick_lease(), Points(stop, of="slow") as points:
        slow.start()
        assert is_there.wait(30)
        run(url, shelf)
        fill(cli, 10, first=30)
        may_go_on.set()
        slow.join(30)

    assert not slow.is_alive() and not failures, (failures, points.names[at])
    run(url, shelf)
    require_exact(cli, shelf, [*ids, *(f"task-{number:05}" for number in range(30, 40))])


def test_the_points_are_all_there_are(url, cli, shelf):
    fill(cli, 30)
    with Points(lambda number: None) as points:
        run(url, shelf)

    assert len(points.names) == POINTS_OF_AN_ARCHIVE, points.names
    assert {name.split()[1] for name in points.names} == {name for _, name in POINTS}


def test_a_second_one_waits_for_one_that_lives(url, cli, shelf, monkeypatch):
    monkeypatch.setattr(claims, "POLL", 0.01)
    ids = fill(cli, 30)
    waits: list[archives.ArchiveProgress] = []
    is_there, may_go_on = threading.Event(), threading.Event()

    def write(redis, work):
        is_there.set()
        may_go_on.wait(30)
        return archives.archiver.write(redis, work)

    def see(progress: archives.ArchiveProgress) -> None:
        if progress.stage == "wait":
            waits.append(progress)
            may_go_on.set()

    first = threading.Thread(target=run, args=(url, shelf), kwargs={"engine": write})
    first.start()
    assert is_there.wait(30)
    second = run(url, shelf, tell=see)
    first.join(30)

    require_exact(cli, shelf, ids)
    assert waits and waits[0].other is not None and waits[0].other["pid"] == str(os.getpid())
    assert second.resumed == ()


def test_one_that_failed_leaves_its_batch_to_the_next_at_once(url, cli, shelf):
    ids = fill(cli, 30)

    def write(redis, work) -> None:
        raise OSError(28, "No space left on device", work.output.folder)

    with pytest.raises(ArchiveRefused, match="No space left"):
        run(url, shelf, engine=write)
    assert cli.hget(keys.archive(QUEUE), "state") == "claimed" and not cli.hexists(
        keys.archive(QUEUE), "writer"
    )

    done = run(url, shelf)
    assert len(done.resumed) == 1
    require_exact(cli, shelf, ids)


def test_one_that_was_taken_for_dead_and_fails_blames_nobody_else(url, cli, redis, shelf, caplog):
    ids = fill(cli, 30)

    def write(redis, work):
        if caplog.records:  # of the second batch
            return archives.archiver.write(redis, work)
        (writer,) = cli.hmget(keys.archive(QUEUE), "writer")
        protocol.claim_batch(redis, BatchRef(QUEUE, "b", "another"), {}, {}, 9.0, over=writer)
        protocol.leave_batch(redis, BatchRef(QUEUE, work.batch, "another"))
        raise ArchiveRefused(
            work.output.folder,
            "is not there on node-7: driver and workers need the archive by the same path",
        )

    with caplog.at_level("WARNING", "blueque"):
        run(url, shelf, engine=write)

    assert "is another archiver's now" in caplog.text
    require_exact(cli, shelf, ids)


def test_one_that_fails_when_redis_is_away_says_why_it_failed(url, cli, shelf):
    fill(cli, 30)

    def write(redis, work) -> None:
        redis.close()
        cli.config_set("requirepass", "changed")
        raise ArchiveRefused(work.output.folder, "is full")

    try:
        with pytest.raises(ArchiveRefused, match="is full"):
            run(url, shelf, engine=write)
    finally:
        cli.execute_command("AUTH", "changed")
        cli.config_set("requirepass", "")


def tell_for_seconds(claim: claims.Claim, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        claim.require()


def test_one_that_was_taken_for_dead_notices_at_its_next_beat(redis, shelf, monkeypatch):
    monkeypatch.setattr(claims, "BEAT", 0.01)
    claim = claims.take(redis, opening.create(shelf), QUEUE, print)

    with claim.beating():
        claim.require()
        protocol.claim_batch(redis, BatchRef(QUEUE, "b", "another"), {}, {}, 9.0, over=claim.writer)
        with pytest.raises(Taken):
            tell_for_seconds(claim, 30)


# Refused


def test_a_batch_is_finished_in_its_own_archive_only(url, cli, shelf, tmp_path, monkeypatch):
    fill(cli, 5)
    monkeypatch.setattr(batch_steps, "publish", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(url, shelf)

    with pytest.raises(ArchiveRefused, match=f"is not finished in another archive, {shelf}"):
        run(url, tmp_path / "other")
    assert not (tmp_path / "other" / ESCAPED).exists()


def test_files_that_were_removed_are_missed_before_anything_is_deleted(
    url, cli, shelf, monkeypatch
):
    fill(cli, 5)
    monkeypatch.setattr(batch_steps, "delete", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(url, shelf)
    monkeypatch.undo()
    for file in opening.open_(shelf).files():
        os.unlink(file.path)

    with pytest.raises(ArchiveRefused, match="has 0 rows in its files, and 5 were written"):
        run(url, shelf)
    assert cli.exists(keys.task("task-00000"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"statuses": "pending"}, "'pending'"),
        ({"older_than": "soon"}, "soon"),
        ({"older_than": -1}, "older_than"),
        ({"limit": 0}, "limit"),
        ({"batch": 0}, "batch"),
    ],
)
def test_what_makes_no_sense_is_refused_and_makes_no_directory(url, shelf, options, words):
    with pytest.raises(InvalidInput, match=words):
        run(url, shelf, **options)
    assert not shelf.exists()


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("file", "is not a directory"),
        ("s3://key:secret@bucket/a", r"s3://bucket/a: holds a user or a key"),
        ("s3a://bucket/a", "s3a:"),
        ("dbfs:/x", "dbfs:"),
        ("abfss:x", "abfss:"),
        ("gs:/x", "gs:"),
        ("file:///x", "file:"),
        ("\0", "null"),
    ],
)
def test_a_place_that_cannot_be_an_archive_is_refused(url, tmp_path, monkeypatch, place, words):
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    with pytest.raises((ArchiveRefused, ValueError), match=words):
        archives.archive(QUEUE, place, url=url)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    for not_one in (tmp_path, tmp_path / "missing"):
        with pytest.raises(ArchiveRefused, match="not an archive"):
            archives.read(not_one)


def test_reading_refuses_columns_that_there_are_not(url, cli, shelf):
    run(url, shelf)
    for fields in (["listed_as"], ["nothing"], []):
        with pytest.raises(InvalidInput):
            archives.read(shelf, fields=fields)
    assert archives.read(shelf, fields=["day"]).num_rows == 0
