"""What Spark asks of the data source `blueque`: the class that it finds is in discovery/pyspark_blueque.

These run in Python processes that Spark starts beside its driver, so nothing here shares anything with your program.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader
    from pyspark.sql.types import StructType


def schema(options: Mapping[str, str]) -> StructType:
    """Return the columns of what is read."""
    from blueque.spark.reader import make_schema  # here: who writes needs none of it

    return make_schema(options)


def reader(schema: StructType, options: Mapping[str, str]) -> DataSourceReader:
    """Return what reads them. Raises InvalidInput before Redis is asked."""
    from blueque.spark.reader import make_reader  # here: who writes needs none of it

    return make_reader(schema, options)
