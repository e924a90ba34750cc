"""The classes of Spark in a file as Java has them in memory: a Java that maps it starts Spark in half
the time.

`python -m spark.shared_classes` in tests/ makes it; bin/test does so once. Java leaves it aside if it
was made by another Java or from other jars.
"""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

HOME = Path(sys.prefix) / "spark-home"  # the file is for jars at these paths only
FILE = Path(sys.prefix) / "spark-classes.jsa"
# What makes Spark start in half the time. Good for a minute, and slow for an hour. Its classes are
# not verified again.
QUICK = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote -Xlog:disable"
)
USE = f"{QUICK} -XX:SharedArchiveFile={FILE}"


def make_home() -> None:
    """Make the home of Spark that the tests have: what pyspark has installed, but for a zip file of
    itself.

    Spark puts that first in the path of Python workers, and it has no compiled modules in it: they
    import pyspark in a fifth of a second from where it is installed.
    """
    spec = find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    HOME.mkdir(exist_ok=True)
    for name in ("bin", "jars"):
        with suppress(FileExistsError):
            (HOME / name).symlink_to(Path(spec.origin).parent / name)


def main() -> None:
    """Run queries of the kinds that the tests have, and have their Java write the file at its end."""
    import blueque.spark as bs  # here: whoever wants the paths needs no pyspark
    from spark.conftest import FAST, JAVA_OPTIONS

    make_home()
    os.environ["SPARK_HOME"] = str(HOME)
    FILE.unlink(missing_ok=True)
    new = FILE.with_suffix(".new")  # with half of a file Java does not start
    options = f"{QUICK} -XX:ArchiveClassesAtExit={new}"
    spark = bs.session("classes", "local[2]", **FAST | {JAVA_OPTIONS: options})
    with tempfile.TemporaryDirectory() as directory:
        rows = spark.range(0, 100, 1, 2).selectExpr("id", "string(id) as name", "id % 3 as part")
        rows.write.partitionBy("part").parquet(f"{directory}/rows")
        read = spark.read.parquet(f"{directory}/rows").join(rows, "id").repartition(2, "id")
        read.createOrReplaceTempView("rows")
        spark.sql("select count(*), max(id) from rows group by id % 5 order by 1").collect()
        rows.foreachPartition(list)
        stream = spark.readStream.schema(rows.schema).parquet(f"{directory}/rows").writeStream
        stream = stream.option("checkpointLocation", f"{directory}/stream")
        counted = stream.trigger(availableNow=True).foreachBatch(lambda some, number: some.count())
        counted.start().awaitTermination()
        java = spark.sparkContext._gateway.proc
        spark.stop()
        java.stdin.close()
        if java.wait() == 0:
            new.replace(FILE)


if __name__ == "__main__":
    main()
