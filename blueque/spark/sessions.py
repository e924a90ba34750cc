"""Spark sessions for any process, also a forked one, whose workers find Blueque."""

from __future__ import annotations

import logging
import os
from typing import Any

from pyspark.sql import SparkSession

from blueque.errors import SparkEnded
from blueque.spark import environment, gateway
from blueque.system import process

log = logging.getLogger("blueque")

QUIET = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def session(app: str = "blueque", master: str | None = None, **conf: Any) -> SparkSession:
    """Return the Spark session of this process, and start one if there is none.

    It logs little, has no web page, and uses UTC. A process that was forked from one with a session
    gets its own session and Java process. Workers run this Python, unless PYSPARK_PYTHON names
    another, and import Blueque from the same place.
    app: its name, for people.
    master: as in Spark. Default: as Spark is configured, else all cores of this machine.
    conf: options of Spark, as `**{"spark.driver.memory": "2g"}` or `spark_driver_memory="2g"`. They
        override ours.
    Raises NotInstalled; SparkEnded when the Java process of an earlier session in this process is
        gone; InvalidInput.
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
    logger = logging.getLogger("py4j")  # at INFO it logs everything that it closes
    logger.setLevel(logger.level or logging.WARNING)
    found = builder.getOrCreate()
    gateway.claim()
    return found
