"""Sessions of Spark that can be had in any process, forked ones too, and that find Blueque in their
workers.
"""

from __future__ import annotations

import logging
import os
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from blueque.errors import SparkEnded
from blueque.spark import environment, gateway
from blueque.system import process

log = logging.getLogger("blueque")

QUIET = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
NO_COLUMNS = StructType([])
LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def session(app: str = "blueque", master: str | None = None, **conf: Any) -> SparkSession:
    """Return the Spark session of this process, and start one if there is none.

    It is quiet, has no web page, and counts time in UTC. In a process that was forked from one with
    a session it is another one, with a Java process of its own. Its workers run this Python, unless
    PYSPARK_PYTHON says otherwise, and find Blueque where it was found here.

    app: its name, for people. master: as in Spark; if left out, what Spark is configured for, else
        all of this machine.
    conf: options of Spark, `**{"spark.driver.memory": "2g"}` or `spark_driver_memory="2g"`; they go
        before ours.
    Raises NoJava; SparkEnded when the Java process of an earlier session in this process is gone;
    InvalidInput.
    """
    options = dict(environment.option(name, value) for name, value in conf.items())
    if gateway.forget_inherited():
        log.warning(
            "this process was forked from one with a Spark session: it gets a session of its own"
        )
    java = gateway.java_process()
    if java is not None and java.poll() is not None:
        raise SparkEnded(java.pid, process.describe(java.returncode))
    master = master or options.pop("spark.master", None) or environment.default_master()
    is_local = master is not None and master.startswith("local")
    if not gateway.has_java():
        environment.prepare(os.environ, is_local)
    builder = SparkSession.builder.appName(app)
    if master is not None:
        builder = builder.master(master)
    for name, value in {
        **QUIET,
        **environment.quiet_log(),
        **(LOOPBACK if is_local else {}),
        **options,
    }.items():
        builder = builder.config(name, value)
    logger = logging.getLogger("py4j")  # at INFO it tells of all that it closes
    logger.setLevel(logger.level or logging.WARNING)
    found = builder.getOrCreate()
    gateway.claim()
    return found


def activate(session: SparkSession) -> None:
    """Have this thread use the session: where it has none, Spark writes into no source that is
    written in Python.

    Its Java has a thread for each of ours, and only that in which the session was made has one by
    itself.
    """
    # does so, and is the cheapest call of the public ones that do
    session.createDataFrame([], NO_COLUMNS)
