"""The process from which Spark forks its Python workers, having imported what each of them would:
they start in a tenth of the time.
"""

from __future__ import annotations

import pandas
import pyarrow.parquet
import pyspark.worker
from pyspark import daemon

from blueque.archives import reading
from blueque.spark import archiving, executors, writer
from spark import mishaps

__all__ = ["archiving", "executors", "mishaps", "pandas", "pyarrow", "pyspark", "reading", "writer"]

if __name__ == "__main__":
    daemon.manager()
