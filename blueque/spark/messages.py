"""How a task of Spark reports to the commit of the data source, and for whom it stages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import psutil
from pyspark.sql.datasource import WriterCommitMessage

from blueque.producer.staged_run import owner_of
from blueque.spark.writer import Report


@dataclass
class Message(WriterCommitMessage):
    """A report, as Spark carries it."""

    report: Report


def reports_of(messages: Iterable[WriterCommitMessage | None]) -> list[Report]:
    return [message.report for message in messages if isinstance(message, Message)]


def driver(job: str = "") -> str:
    """Return the owner of what is staged: Spark's driver, whose Java process started this one.
    Empty: there is none.
    """
    java = next((parent for parent in psutil.Process().parents() if parent.name() == "java"), None)
    return "" if java is None else owner_of(java.pid, job)
