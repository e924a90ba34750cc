"""The data source `mishap`: `blueque`, with mishaps. Spark 3.5 has no such sources."""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource

from blueque.spark import datasource
from spark import mishaps


class MishapSource(DataSource):
    """What writes as `blueque` does, until it is struck."""

    @classmethod
    def name(cls) -> str:
        return "mishap"

    def schema(self) -> Any:
        return datasource.schema(self.options)

    def writer(self, schema: Any, overwrite: bool) -> Any:
        writer = datasource.writer(schema, self.options, overwrite)
        writer._inner = mishaps.Struck(writer._inner)
        return writer
