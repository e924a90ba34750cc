"""The second part of the demo, a data pipeline: Spark finds the work, listeners do it, Spark reads
the results.

It is a separate program, `python -m blueque.demo.pipeline URL DIRECTORY REPORT`, written as a user
would write it.
"""

from __future__ import annotations

import sys
import sysconfig
import time
from pathlib import Path
from typing import TYPE_CHECKING

import blueque.spark as bs
from blueque.client import Client
from blueque.demo.handler import PIPELINE_QUEUE as QUEUE
from blueque.demo.programs import Progress, WentWrong
from blueque.errors import BluequeError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GROUP = "first-night"
TOP = 5
# Bad data: packages, and the errors of their tasks.
BROKEN = {"gone": "FileNotFoundError", "no_python": "SyntaxError", "no_path": "TypeError"}
SHOWN = 41  # characters of a message

PACKAGES = """
    SELECT package, concat(:stdlib, '/', package) AS path, count(*) AS files, sum(length) AS bytes
    FROM (SELECT element_at(split(path, '/'), :depth + 1) AS package, length FROM files)
    WHERE package <> 'site-packages' GROUP BY package ORDER BY bytes DESC
"""
LARGEST = """
    SELECT key AS package, cast(get_json_object(result, '$.lines') AS bigint) AS lines,
        round(unix_micros(finished) / 1e6 - unix_micros(started) / 1e6, 2) AS seconds
    FROM {tasks} WHERE status = 'complete' ORDER BY lines DESC LIMIT :top
"""


def main(url: str, directory: Path, report: Path) -> int:
    """Run the pipeline on the Redis at `url`, archive into `directory`, and write `report`."""
    began = time.monotonic()
    say("Spark starts, which takes ten seconds or more")
    spark = bs.session(
        app="blueque-demo", spark_sql_shuffle_partitions=2, spark_driver_memory="512m"
    )
    packages = (
        find_packages(spark)
        .unionByName(broken_packages(spark, directory), allowMissingColumns=True)
        .cache()
    )
    totals = packages.selectExpr("count(*) AS packages", "sum(files) AS files").first()
    say(
        f"Spark {spark.version} has found {totals.files:,} files in {totals.packages - len(BROKEN)} packages"
    )
    say(f"{len(BROKEN)} rows more are bad data, to see them fail: {', '.join(BROKEN)}")
    fill(packages, url)
    wait_until_done(Client(url), totals.packages)
    tasks = bs.read(spark, QUEUE, status=("complete", "failed"), url=url)
    show(spark, tasks)
    archive(spark, totals.packages, url, directory / "archive")
    bs.report(spark, str(directory / "archive"), str(report), title="The demo of Blueque")
    spark.stop()
    say("report, to be opened in a browser:")
    say(f"  {report}")
    say(f"all of it took {time.monotonic() - began:.0f} s")
    return 0


def find_packages(spark: SparkSession) -> DataFrame:
    """Return name, path, files and bytes of each package of the standard library, largest first."""
    stdlib = sysconfig.get_paths()["stdlib"]
    # The content of the files is a column, too, but is not read here.
    files = (
        spark.read.format("binaryFile")
        .option("recursiveFileLookup", True)
        .option("pathGlobFilter", "*.py")
        .load(stdlib)
    )
    files.select("path", "length").coalesce(2).createOrReplaceTempView("files")
    return spark.sql(PACKAGES, {"stdlib": stdlib, "depth": stdlib.count("/") + 1})


def broken_packages(spark: SparkSession, directory: Path) -> DataFrame:
    """Return bad rows: a path that does not exist, a file that is not Python, and no path at all."""
    no_python = directory / "no_python.py"
    no_python.write_text("this is no Python\n")
    paths = [str(directory / "absent.py"), str(no_python), None]
    return spark.createDataFrame([*zip(BROKEN, paths, strict=True)], "package string, path string")


def fill(packages: DataFrame, url: str) -> None:
    """Put the packages in line, twice: no task may be made twice."""
    for again in ("", ", once more"):
        done = bs.enqueue(
            packages, QUEUE, key="package", params=["package", "path"], group=GROUP, url=url
        )
        say(
            f"bs.enqueue(key=..., group={GROUP!r}){again}: {done.new} new tasks, {done.tasks} in all"
        )
        if done.tasks != packages.count() or (again and done.new):
            raise WentWrong(f"{packages.count()} packages, and {done}")


def wait_until_done(client: Client, count: int) -> None:
    """Watch the listeners at work."""
    inspector, progress, done = client.get_inspector(), Progress(count), 0
    while done < count:
        time.sleep(0.2)
        done = sum(
            line.counts.complete + line.counts.failed
            for line in inspector.overview().lines
            if line.queue == QUEUE
        )
        progress.show(done)
    progress.leave()


def show(spark: SparkSession, tasks: DataFrame) -> None:
    print(f"\n  {'package':<22}{'lines':>10}{'seconds':>9}    as Spark reads them", flush=True)
    for row in spark.sql(LARGEST, {"top": TOP}, tasks=tasks).collect():
        print(f"  {row.package[:22]:<22}{row.lines:>10,}{row.seconds:>9.2f}")
    found = [(row.error_type, row.n, row.error) for row in bs.failures(tasks).collect()]
    print(f"\n  {'failed with':<22}{'tasks':>10}    by bs.failures, with the newest message")
    for kind, count, error in found:
        print(f"  {kind:<22}{count:>10}    {shortened(error)}")
    print(flush=True)
    if {kind: count for kind, count, _ in found} != dict.fromkeys(BROKEN.values(), 1):
        raise WentWrong(f"{', '.join(BROKEN)} alone should have failed")


def shortened(error: str) -> str:
    """Return the message without its type, shortened."""
    said = error.partition(": ")[2]
    return said if len(said) <= SHOWN else said[: SHOWN - 3] + "..."


def archive(spark: SparkSession, count: int, url: str, directory: Path) -> None:
    """Move all tasks from Redis to Parquet files."""
    done = bs.archive(spark, QUEUE, str(directory), older_than=0, url=url)
    kept = bs.read_archive(spark, str(directory)).count()
    say(
        f"bs.archive: {done.written} tasks are in Parquet now, {done.deleted} of them are gone from Redis"
    )
    if not done.written == done.deleted == kept == count:
        raise WentWrong(f"{count} tasks, {kept} in the archive, and {done}")


def say(what: str) -> None:
    print(f"  {what}", flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])))
    except (BluequeError, WentWrong) as error:
        print(f"  {error}", flush=True)
        sys.exit(1)
