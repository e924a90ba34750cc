"""An archiver of Spark and its Java are killed wherever they change the state of a batch: for `bin/soak`,
as the suite has one such kill in test_killed.py, and archivers without Spark killed everywhere.
"""

from __future__ import annotations

import os
import signal

import psutil
import pytest
from oracle import EVENTS
from running import ROOT, TEST_PATHS, Programs, until

import blueque.spark as bs
from blueque import archives
from blueque.model import keys
from spark.exact import judge
from spark.seeds import DAY, seed
from spark.standstill import Standstill
from spark.test_archive import MANY, START, WHILE_WORKERS_WRITE, half_written, ids_of

ARCHIVER = """
    import sys
    import blueque.spark as bs
    from blueque.spark import archiving
    from spark.conftest import FAST

    archiving.PIECE = {piece}
    spark = bs.session("archiver", "local[2]", **FAST)
    bs.archive(spark, "render", "archive", url={url!r})
"""
# Where it is killed: the bytes by which the write is known, which of these it is, whether Redis has
# executed it; and the state of the batch then.
POINTS = {
    "claimed": (b"claimed", 1, True, "claimed"),
    "while workers write": WHILE_WORKERS_WRITE,
    "before it is written": (b"written", 1, False, "claimed"),
    "when it is written": (b"written", 1, True, "written"),
    "before it is published": (b"published", 1, False, "written"),
    "when it is published": (b"published", 1, True, "published"),
    "before it deletes": (b"LREM", 1, False, "published"),
    "while it deletes": (b"LREM", 12, True, "published"),
    "before it is deleted": (b"deleted\r\n$", 41, False, "published"),
    "before it is done": (b"\r\nDEL\r\n", 1, False, "deleted"),
    "when it is done": (b"\r\nDEL\r\n", 1, True, None),
}


@pytest.mark.parametrize("point", POINTS)
def test_an_archive_that_is_killed_and_run_again_loses_and_doubles_nothing(
    spark, url, client, cli, tmp_path, point
):
    """The driver and its JVM are killed with SIGKILL; the next run goes on, with Spark or without."""
    having, write, is_executed, state = POINTS[point]
    ids = seed(url, "render", MANY, spread=DAY)
    way, directory = Standstill(url, having, write, is_executed=is_executed), tmp_path / "archive"
    with Programs(url, tmp_path) as programs:
        driver = programs.script(
            ARCHIVER.format(url=way.url, piece=MANY // 2),
            environ={"PYTHONPATH": os.pathsep.join([str(ROOT), *TEST_PATHS])},
        )
        until(lambda: way.is_reached.is_set() or not driver.is_running, START, point)
        assert driver.is_running, driver.log
        if point == "while workers write":
            until(lambda: half_written(directory), START)
        java = [
            process for process in psutil.Process(driver.pid).children() if process.name() == "java"
        ]
        assert len(java) == 1
        os.kill(driver.pid, signal.SIGKILL)
        java[0].kill()
        driver.wait()
        before = judge(cli, directory, ids)
        assert cli.hget(keys.archive("render"), "state") == state and before.lost == 0
        assert bool(half_written(directory)) == (point == "while workers write")
        if point == "while workers write":
            archives.archive("render", directory, client=client)
        else:
            bs.archive(spark, "render", directory, url=url)
    way.close()

    assert judge(cli, directory, ids) == (0, 0, 0)
    assert ids_of(bs.read_archive(spark, directory, latest=False)) == sorted(ids)
    left = cli.keys("*")  # the snapshot of the one that was killed expires
    left = [key for key in left if not key.startswith(EVENTS)]
    assert {*left} == {keys.QUEUES, *[key for key in left if "frozen" in key and cli.ttl(key) > 0]}
