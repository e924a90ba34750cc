"""A night with Spark, from rows to tasks to results: `python night.py 2026-11-21`.

Run it again after any failure: each step does only what is missing.
"""

import os
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import blueque.spark as bs
from blueque import Retry

DATA = os.environ.get("DATA", os.getcwd())  # a directory or URL that all Spark workers reach


def main(day: str) -> None:
    spark = bs.session(app=f"night of {day}")
    done = find_work(spark, day)
    print(f"{done.new} new tasks of {done.tasks}")
    ended = done.wait(timeout=12 * 3600)
    results(spark, done).write.mode("overwrite").parquet(f"{DATA}/rendered/day={day}")
    if ended.bad:
        sys.exit(f"{ended.bad} are not complete: blueque group show {done.group}")
    done.collected()  # the results are written: retention may delete the tasks
    tidy_up(spark, day)


def find_work(spark: SparkSession, day: str) -> bs.Enqueued:
    """Make a task of each scene of the day."""
    return bs.enqueue(
        spark.read.parquet(f"{DATA}/scenes").where(F.col("day") == day),
        "render",
        key="scene",
        params=["scene", "frames"],
        group=f"render-{day}",
        hold="until_collected",
        retry=Retry(max=3, backoff=60),
    )


def results(spark: SparkSession, done: bs.Enqueued) -> DataFrame:
    """Return a row for each task, in Redis or in the archive."""
    schema = "path string, frames long"
    found = bs.results(done, schema=schema, archive=f"{DATA}/archive", spark=spark)
    return found.select("key", "status", "result.*", "error", "started", "finished")


def tidy_up(spark: SparkSession, day: str, older_than: str = "1d") -> None:
    """Move finished tasks into Parquet files, and report what the nights took."""
    done = bs.archive(spark, "render", f"{DATA}/archive", older_than=older_than)
    print(f"{done.written} tasks archived")
    bs.report(spark, f"{DATA}/archive", f"report-{day}.html")


if __name__ == "__main__":
    main(sys.argv[1])
