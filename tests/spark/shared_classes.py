"""An archive of the classes of Spark, with which Java starts in half the time.

The first run of the tests makes it beside what it does anyway. From then on each Java of the tests
maps it into its memory, in later runs, too. It is in the cache of pytest, as is the home of Spark:
Java uses the archive only for classes that are at the same paths as when it was made.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from running import ROOT, TEST_PATHS


def _directory() -> Path:
    """Return a directory for this Java and this Spark, and for no other."""
    java = os.path.realpath(shutil.which("java") or "")
    facts = (version("pyspark"), java, os.stat(java).st_mtime if java else 0)
    return ROOT / ".pytest_cache" / f"spark-{zlib.crc32(repr(facts).encode()):08x}"


DIRECTORY = _directory() if find_spec("pyspark") else ROOT
HOME = DIRECTORY / "home"
ARCHIVE = DIRECTORY / "classes.jsa"
# Java reads it when it starts. It is empty as long as there is no archive.
OPTIONS = DIRECTORY / "options"
PATIENCE = 120  # seconds for Java to write the archive


def make_home() -> Path:
    """Make a home of Spark without the zip file of pyspark, and the file of options."""
    spec = find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    HOME.mkdir(parents=True, exist_ok=True)
    OPTIONS.touch()
    for name in ("bin", "jars"):
        new = HOME / f"{name}.{os.getpid()}"
        new.symlink_to(Path(spec.origin).parent / name)
        new.rename(HOME / name)
    return HOME


@contextmanager
def being_made() -> Iterator[None]:
    """Have another process make the archive meanwhile, unless there is one or another worker does."""
    with open(DIRECTORY / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield
            return
        if ARCHIVE.exists():
            yield
            return
        paths = os.pathsep.join([*TEST_PATHS, str(ROOT)])
        maker = subprocess.Popen(
            [sys.executable, "-m", "spark.shared_classes"],
            env=os.environ | {"PYTHONPATH": paths},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )
        yield
        if maker.poll() is None:
            os.killpg(maker.pid, signal.SIGKILL)
        maker.wait()


def main() -> None:
    """Make the archive: run a few jobs, and have Java write at its end what classes it has loaded."""
    import blueque.spark as bs  # here: the tests without a session need no pyspark
    from blueque.spark import gateway
    from spark.conftest import FAST, JAVA_OPTIONS

    new, table = DIRECTORY / "new.jsa", DIRECTORY / "table"
    options = {**FAST, JAVA_OPTIONS: f"{FAST[JAVA_OPTIONS]} -XX:ArchiveClassesAtExit={new}"}
    new.unlink(missing_ok=True)  # of one that was killed
    spark = bs.session("classes", "local[2]", **options)
    java = gateway.java_process()
    assert java is not None and java.stdin is not None
    frame = spark.range(0, 1000, 1, 2).selectExpr("id", "format_string('scene-%05d', id) AS scene")
    frame.groupBy("scene").count().count()
    frame.write.mode("overwrite").parquet(str(table))
    spark.read.parquet(str(table)).orderBy("scene").collect()
    spark.stop()
    java.stdin.close()  # its end
    java.wait(PATIENCE)
    shutil.rmtree(table)
    new.rename(ARCHIVE)
    written = OPTIONS.with_suffix(".new")
    written.write_text(f"-XX:SharedArchiveFile={ARCHIVE}\n")
    written.rename(OPTIONS)


if __name__ == "__main__":
    main()
