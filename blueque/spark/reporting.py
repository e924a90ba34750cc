"""A report about finished tasks: one self-contained HTML file."""

from __future__ import annotations

import os
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from blueque.archives import opening
from blueque.errors import InvalidInput
from blueque.report.page import page
from blueque.spark.archiving import read_archive
from blueque.spark.summaries import summarise


def report(
    spark: SparkSession,
    source: str | os.PathLike[str] | DataFrame,
    path: str | os.PathLike[str],
    title: str = "",
) -> Path:
    """Write a report about an archive or a table of tasks, and return its path.

    source: the directory of an archive, or what `read` or `read_archive` returned. Other processes
        may archive meanwhile.
    path: of an HTML file, which is replaced. It contains names of queues and hosts, and messages of
        errors; neither parameters nor results.
    Raises ArchiveRefused; InvalidInput if the directory of the file or a column of the table is missing.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise InvalidInput(f"there is no directory {str(target.parent)!r} for {target.name!r}")
    if isinstance(source, (str, os.PathLike)):
        place = opening.open_(source)
        df = read_archive(spark, place.root)
        summary = summarise(df, title or "Tasks", f"archive {place.root}", time.time(), keep=False)
    else:
        summary = summarise(source, title or "Tasks", "a table of tasks", time.time())
    whole = target.with_name(f".{target.name}.{os.getpid()}")
    whole.write_text(page(summary), encoding="utf-8")
    return whole.replace(target)
