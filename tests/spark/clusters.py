"""Sessions as people have them: on one machine, on a cluster with processes of its own, over Connect;
and everything once in such a session.

`python -m spark.clusters MASTER` in tests/: MASTER is `local-cluster[2,1,1024]`, `connect`, ...
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import redis as redis_py
from pyspark.sql import functions as F
from running import ROOT, TEST_PATHS

import blueque.spark as bs
from blueque import JobFailed, TooLarge
from blueque.model import keys
from blueque.spark import environment
from blueque.system.embedded_redis import running_server
from spark import connect_server, mishaps
from spark.conftest import FAST, JAVA_OPTIONS, WARM
from spark.exact import leftovers
from spark.oldest import HAS_SOURCES
from spark.seeds import seed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECT = "connect"
# The package of Spark 3.5 has not the server of Connect: there it is one of the newest Spark.
HAS_SERVER = any((Path(pyspark.__file__).parent / "jars").glob("spark-connect_*"))
ROWS = 20_000  # in four partitions


def session(master: str) -> SparkSession:
    """Return a session whose workers find the modules of the tests."""
    mishaps.have_patience()
    path = [*TEST_PATHS, str(ROOT), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(path)
    if master != CONNECT:
        return bs.session("tests", master, **FAST, **WARM, **{"spark.speculation": "true"})
    from pyspark.sql import SparkSession  # here: the class of Connect, once its server is asked for

    server = "local[12]" if HAS_SERVER else connect_server.start()
    environment.prepare(os.environ, is_local=True)
    options = f"--driver-memory 512m --driver-java-options '{FAST[JAVA_OPTIONS]}' pyspark-shell"
    os.environ["PYSPARK_SUBMIT_ARGS"] = options
    found: SparkSession = SparkSession.builder.remote(server).getOrCreate()
    return found


def main(master: str) -> None:
    with running_server() as server, tempfile.TemporaryDirectory() as directory:
        cli = mishaps.patient(server.url)
        spark = session(master)
        check(spark, server.url, cli, Path(directory))
        print(f"pyspark {pyspark.__version__}, {master} {spark.version}: exact", flush=True)
        spark.stop()


def check(spark: SparkSession, url: str, cli: redis_py.Redis, directory: Path) -> None:
    """Write in each way, read and archive."""
    rows = spark.range(0, ROWS, 1, 4).withColumn("scene", F.format_string("scene-%05d", "id"))
    ways = {
        "keyed": {"key": "id", "group": "g"},
        "two columns": {"key": ["id", "scene"], "group": "g2", "params": "scene"},
        "keys": {"key": "scene"},
    }
    for queue, said in ways.items():
        done = [bs.enqueue(rows, queue, url=url, **said) for _ in range(2)]  # type: ignore[arg-type]
        assert [one.new for one in done] == [ROWS, 0], (queue, done)
        assert len(pending(cli, queue)) == ROWS, queue
    if HAS_SOURCES:
        rows.write.format("blueque").options(url=url, queue="format", key="id").mode(
            "append"
        ).save()
        assert len(pending(cli, "format")) == ROWS
    for said, kind in (
        ({"key": "id"}, TooLarge),
        ({"key": "id", "group": "g3", "check": False}, JobFailed),
    ):
        try:
            bs.enqueue(rows, "refused", url=url, max_bytes=10, **said)  # type: ignore[arg-type]
        except kind:
            continue
        raise AssertionError(f"{said}: it was not refused")
    assert leftovers(cli) == []
    seed(url, "keyed", 3000)
    tasks = bs.read(spark, ["keyed", "keys"], ["pending", "complete"], partitions=7, url=url)
    assert tasks.select("task_id").distinct().count() == tasks.count() == 2 * ROWS + 3000
    assert bs.archive(spark, "keyed", directory / "archive", url=url).deleted == 3000
    assert bs.read_archive(spark, directory / "archive").count() == 3000


def pending(cli: redis_py.Redis, queue: str) -> set[str]:
    ids = cli.lrange(keys.pending(queue), 0, -1)
    assert len({*ids}) == len(ids)
    return {*ids}


if __name__ == "__main__":
    main(sys.argv[1])
