"""What makes `format("blueque")` known to every Spark session: Spark imports modules of such a name by itself.

It does so at the first use of any source of data that is written in Python, and a failure here would break all of them. So
nothing is imported here but what Spark has imported already; the rest is imported in the methods.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource


class DefaultSource(DataSource):
    """The queues of a Redis, as Spark sees them."""

    @classmethod
    def name(cls) -> str:
        return "blueque"
