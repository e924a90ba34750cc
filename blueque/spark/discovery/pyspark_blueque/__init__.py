"""Makes `format("blueque")` known to every Spark session: Spark imports modules with such a name by
itself.

It does so at the first use of any data source that is written in Python, and a failure here would
break all of them. So nothing is imported here but what Spark has imported already; the methods
import the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """The queues of a Redis as a data source of Spark: tasks as rows, to read and to write, also as streams.

    docs/pipelines.md has the options; blueque/spark/datasource.py has the functions.
    """

    @classmethod
    def name(cls) -> str:
        return "blueque"

    def schema(self) -> StructType:
        from blueque.spark import datasource

        return datasource.schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        from blueque.spark import datasource

        return datasource.reader(schema, self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from blueque.spark import datasource

        return datasource.writer(schema, self.options, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from blueque.spark import datasource

        return datasource.stream_writer(schema, self.options, overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from blueque.spark import datasource

        return datasource.stream_reader(schema, self.options)
