"""blueque.spark: Blueque for programs that use PySpark. `import blueque.spark as bs`.

Importing it neither imports pyspark nor starts Java; the first use of a name imports its module. No
module here has the name of a public function, which it would hide.

May import: archives/ and what is below it. Begin with sessions.py. The rows of a frame go to Redis
through enqueueing, write_options, layout, frames and writer; then through producer/keyed_groups,
protocol/members and protocol/bulk.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import sys
from typing import TYPE_CHECKING, Any

from blueque.errors import NotInstalled

if TYPE_CHECKING:
    from blueque.spark.analytics import failures, histogram, stats
    from blueque.spark.archiving import archive, read_archive
    from blueque.spark.enqueueing import Enqueued, enqueue
    from blueque.spark.group_results import results
    from blueque.spark.reader import read
    from blueque.spark.reporting import report
    from blueque.spark.sessions import session
    from blueque.spark.submission import submit
    from blueque.spark.tasks import task

__all__ = [
    "Enqueued",
    "archive",
    "enqueue",
    "failures",
    "histogram",
    "read",
    "read_archive",
    "report",
    "results",
    "session",
    "stats",
    "submit",
    "task",
]

OLDEST_PYSPARK = "3.5"  # as in pyproject.toml

# Where each name is: the same as above, which is for mypy.
_MODULES = {
    "Enqueued": "enqueueing",
    "archive": "archiving",
    "enqueue": "enqueueing",
    "failures": "analytics",
    "histogram": "analytics",
    "read": "reader",
    "read_archive": "archiving",
    "report": "reporting",
    "results": "group_results",
    "session": "sessions",
    "stats": "analytics",
    "submit": "submission",
    "task": "tasks",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        found = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        if package not in ("pyspark", "py4j", "pyarrow", "pandas", "jinja2", "markupsafe"):
            raise
        version = _version(package) if package == "pyspark" else None
        if version is not None and _numbers(version) < _numbers(OLDEST_PYSPARK):
            raise NotInstalled(
                f"blueque.spark.{name}", package, "spark", OLDEST_PYSPARK, version
            ) from error
        if not isinstance(error, ModuleNotFoundError):
            raise
        raise NotInstalled(f"blueque.spark.{name}", package, "spark") from error
    globals()[name] = found
    return found


def _version(package: str) -> str | None:
    """Return the version of an installed package; None if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        # the package of a cluster, without metadata
        return getattr(sys.modules.get(package), "__version__", None)


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)[:2]]


def __dir__() -> list[str]:
    return __all__
