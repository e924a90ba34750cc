"""Archives in stores: S3, as moto imitates it, and a file system such as Hadoop's, where a file is
seen while it is written. Dead or slow at any step, they lose and double nothing.
"""

from __future__ import annotations

import itertools
import logging
import os
import pickle
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import object_store
import process_state
import pytest

pytest.importorskip("pyarrow")

from pyarrow import fs
from shelves import LISTS, OF_ANY_STORE, QUEUE, Points, fill, quick_lease, require_nothing_left_over
from transactions import protocol

from blueque import ArchiveRefused, Client, archives
from blueque.archives import opening, stores
from blueque.model import keys

CALLS = [
    *[(protocol, name) for name in ("claim_batch", "mark_batch", "erase")],
    *[(stores.Store, name) for name in ("names", "below", "put", "create", "remove")],
    *OF_ANY_STORE,
]
EVERY = 1 if os.environ.get("BLUEQUE_SOAK") else 5  # all points in bin/soak


class Hadoop(fs.FileSystemHandler):
    """Files below a directory, without rename: others see a file from its first byte on."""

    def __init__(self, root: Path) -> None:
        self.root, self._local = root, fs.LocalFileSystem()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hadoop) and other.root == self.root

    __hash__ = None  # type: ignore[assignment]

    def _at(self, path: str) -> str:
        return f"{self.root}/{path}"

    def _info(self, info: Any) -> fs.FileInfo:
        return fs.FileInfo(info.path.removeprefix(f"{self.root}/"), info.type, size=info.size)

    def get_type_name(self) -> str:
        return "hadoop"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[fs.FileInfo]:
        return [self._info(self._local.get_file_info(self._at(path))) for path in paths]

    def get_file_info_selector(self, selector: Any) -> list[fs.FileInfo]:
        of = fs.FileSelector(self._at(selector.base_dir), True, selector.recursive)
        return [self._info(info) for info in self._local.get_file_info(of)]

    def create_dir(self, path: str, recursive: bool) -> None:
        self._local.create_dir(self._at(path), recursive=recursive)

    def delete_file(self, path: str) -> None:
        os.unlink(self._at(path))

    def open_input_stream(self, path: str) -> Any:
        return self._local.open_input_stream(self._at(path))

    def open_input_file(self, path: str) -> Any:
        return self._local.open_input_file(self._at(path))

    def open_output_stream(self, path: str, metadata: Any) -> Any:
        return self._local.open_output_stream(self._at(path))

    def _refuse(self, *_: Any) -> None:
        raise NotImplementedError

    delete_dir = delete_dir_contents = delete_root_dir_contents = move = copy_file = _refuse
    open_append_stream = _refuse  # type: ignore[assignment]


@pytest.fixture(scope="module", autouse=True)
def environment() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in object_store.CREDENTIALS.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(autouse=True)
def no_traces(environment: None) -> Iterator[None]:
    """As for all tests, but for what pyarrow keeps for S3, and the process that imitates it."""
    before = process_state.take()
    yield
    traces = process_state.differences(before, apart_from=("descriptors", "threads", "children"))
    assert not traces, "\n".join(["This test has left in its process:", *traces])


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with object_store.serving() as address:
        yield address


@pytest.fixture
def hadoop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    connect = stores.connect

    def connect_here(url: str) -> tuple[Any, str]:
        if not url.startswith("hadoop:"):
            return connect(url)
        return fs.PyFileSystem(Hadoop(tmp_path)), url.removeprefix("hadoop://")

    monkeypatch.setattr(stores, "connect", connect_here)
    return "hadoop://archive"


@pytest.fixture(params=["s3", "hadoop"])
def shelf(request: pytest.FixtureRequest) -> str:
    if request.param == "hadoop":
        return request.getfixturevalue("hadoop")
    return object_store.new_archive(request.getfixturevalue("s3"))


def run(url: str, shelf: str, **options: Any) -> archives.Archived:
    client = Client(url, patience=2.0)
    options = {"batch": 25, "unverified": True, **options}
    try:
        return archives.archive(QUEUE, shelf, client=client, **options)
    finally:
        client.close()


def archived(shelf: str) -> Counter[str]:
    table = archives.read(shelf, fields=["task_id"], latest=False, unverified=True)
    return Counter(table["task_id"].to_pylist())


def require_exact(cli: Any, shelf: str, ids: list[str]) -> None:
    """Require that each task is in the archive once and gone from Redis, and nothing is left."""
    assert archived(shelf) == Counter(ids)
    assert not [task for task in ids if cli.exists(keys.task(task))]
    assert not any(cli.llen(key(QUEUE)) for key in LISTS.values())
    assert not cli.exists(keys.archive(QUEUE))
    require_nothing_left_over(shelf)


def test_tasks_move_into_a_store_and_are_read_from_it(url, cli, shelf):
    ids = fill(cli, 40)

    done = run(url, shelf)

    assert (done.written, done.deleted, len(done.batches)) == (40, 40, 2)
    require_exact(cli, shelf, ids)
    days = ("2024-10-05", "2024-10-05")
    assert archives.read(shelf, queue=QUEUE, days=days, unverified=True).num_rows == 20
    place = pickle.loads(pickle.dumps(opening.open_(shelf, unverified=True)))
    assert {file.day for file in place.files()} == {"2024-10-04", "2024-10-05"}


class Died(BaseException):
    """What a process that is killed would not raise: from here on it does nothing any more."""


def dies(url: str, shelf: str, at: int) -> bool:
    """Archive, and die at a point. False: it has come to its end before."""

    def die(number: int) -> None:
        if number >= at:
            raise Died

    with Points(die, calls=CALLS) as points:
        try:
            run(url, shelf)
        except Died:
            return True
    assert {name.split()[1] for name in points.names} == {name for _, name in CALLS}
    return False


def test_dead_at_any_point_and_run_again_it_loses_and_doubles_nothing(url, cli, shelf):
    """It dies by an exception, after which nothing that it calls does anything: a fork would stop
    the threads with which pyarrow speaks to S3.
    """
    ids: list[str] = []
    step = EVERY if shelf.startswith("hadoop") else 5 * EVERY
    opening.create(shelf, unverified=True)
    with quick_lease():
        for deaths in itertools.count():
            more = fill(cli, 30, first=len(ids))
            ids += more
            if not dies(url, shelf, deaths * step):
                break
            seen = archived(shelf)
            assert max(seen.values(), default=1) == 1
            assert all(task in seen or cli.exists(keys.task(task)) for task in more)
            run(url, shelf)
            assert archived(shelf) == Counter(ids), deaths

    assert deaths * step > 50
    require_exact(cli, shelf, ids)


@pytest.mark.parametrize("at", range(2, 72, EVERY))
def test_one_that_is_slow_and_taken_for_dead_at_any_point_does_no_harm(at, url, cli, hadoop):
    ids = fill(cli, 30)
    is_there, may_go_on = threading.Event(), threading.Event()
    failures: list[BaseException] = []

    def stop(number: int) -> None:
        if number == at:
            is_there.set()
            may_go_on.wait(30)

    def be_slow() -> None:
        try:
            run(url, hadoop)
        except BaseException as error:
            failures.append(error)
        finally:
            is_there.set()

    slow = threading.Thread(target=be_slow, name="slow")
    with quick_lease(), Points(stop, of="slow", calls=CALLS) as points:
        slow.start()
        assert is_there.wait(30)
        run(url, hadoop)
        ids += fill(cli, 10, first=30)
        may_go_on.set()
        slow.join(30)
        assert not slow.is_alive() and not failures, (failures, points.names[at])
        for first in (40, 50):  # the last removes what the slow one has left
            ids += fill(cli, 10, first=first)
            run(url, hadoop)

    require_exact(cli, hadoop, ids)


def test_who_reads_at_any_point_misses_nothing_and_sees_nothing_twice(url, cli, hadoop):
    ids = fill(cli, 30)
    opening.create(hadoop, unverified=True)
    looks: list[int] = []
    busy = threading.Lock()

    def look(number: int) -> None:
        if busy.acquire(blocking=False):  # what the look itself calls is no point
            there = {task for task in ids if cli.exists(keys.task(task))}
            seen = archived(hadoop)
            busy.release()
            assert {*seen} | there == {*ids} and max(seen.values(), default=1) == 1
            looks.append(number)

    with Points(look, calls=CALLS):
        run(url, hadoop)
    assert len(looks) > 60


def test_files_that_are_not_listed_are_neither_read_nor_kept(url, cli, hadoop, tmp_path):
    """So the tests above can fail: without the lists, rows of a dead writer would count."""
    ids = fill(cli, 30)
    dead = tmp_path / "archive" / "queue=a%2Fb_c" / "day=2024-10-04"
    opening.create(hadoop, unverified=True)

    def die(number: int) -> None:
        if points.names[number:] == ["before put"]:  # all files are there, and their list is not
            raise Died

    with quick_lease():
        with pytest.raises(Died), Points(die, calls=CALLS) as points:
            run(url, hadoop)
        assert [*dead.glob("*.parquet")] and not archived(hadoop)
        (dead / "_mine.parquet").touch()
        run(url, hadoop)

    assert archived(hadoop) == Counter(ids)
    assert (dead / "_mine.parquet").exists()  # and it is no file of ours


def test_an_archive_may_be_by_group_too(url, cli, tmp_path, hadoop):
    import pyarrow.dataset as ds

    disk = str(tmp_path / "disk")
    for place in (disk, hadoop):
        ids = fill(cli, 40)
        for number, task in enumerate(ids[:30]):
            cli.hset(keys.task(task), "group", f"night {number % 3}")
        run(url, place, batch=100, by_group=True)

        of_group = archives.read(place, group="night 1", unverified=True)
        assert sorted(of_group["task_id"].to_pylist()) == ids[1:30:3]
        assert {*of_group["group"].to_pylist()} == {"night 1"}
        assert archives.read(place, unverified=True).num_rows == 40

    rows = ds.dataset(disk, partitioning="hive").to_table(["queue", "day", "group"]).to_pylist()
    assert Counter(row["group"] for row in rows) == {
        None: 10,
        **{f"night {n}": 10 for n in range(3)},
    }
    with pytest.raises(ArchiveRefused, match="is by group, and stays so"):
        run(url, disk, by_group=False)


@pytest.mark.parametrize("place", ["s3a://b/a", "abfss://b/a", "gs://b/a", "hdfs://b/a", "dbfs:/a"])
def test_a_store_that_was_not_tested_needs_a_word_and_says_so(url, place, monkeypatch, caplog):
    scheme = place.partition(":")[0]
    with pytest.raises(ArchiveRefused, match=f"Blueque was not tested on {scheme}:.*unverified"):
        archives.archive(QUEUE, place, url=url)

    opened = []
    monkeypatch.setattr(stores, "connect", lambda url: opened.append(url) or 1 / 0)
    with caplog.at_level(logging.WARNING), pytest.raises(ZeroDivisionError):
        archives.archive(QUEUE, place, url=url, unverified=True)
    assert opened == [place] and f"Blueque was not tested on {scheme}:" in caplog.text
