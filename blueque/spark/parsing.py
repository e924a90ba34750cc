"""Parses the results of tasks, which are JSON, in the JVM."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blueque.errors import InvalidInput

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


def parsed(frame: DataFrame, schema: StructType | str | None) -> DataFrame:
    """Return the frame with the column `result` parsed as JSON of this schema. None: as it is.

    A result that does not fit is null. Raises InvalidInput if there is no such column.
    """
    if schema is None:
        return frame
    if "result" not in frame.columns:
        raise InvalidInput("schema is that of the column 'result': name it in fields")
    from pyspark.sql import functions as F  # here: only parsed frames need it

    return frame.withColumn("result", F.from_json("result", schema))
