"""Sessions of Spark that can be had in any process, forked ones too, and that find Blueque in their workers."""

from __future__ import annotations

import logging
import os
import shutil
import site
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from blueque.errors import InvalidInput, NoJava, SparkEnded
from blueque.spark import gateway

log = logging.getLogger("blueque")

_PACKAGE = Path(__file__).parent.parent
_DISCOVERY = Path(__file__).parent / "discovery"       # in a checkout only; what is in it is elsewhere once it is installed
QUIET = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
RUNS_ALREADY = {"PYSPARK_GATEWAY_PORT", "SPARK_REMOTE"}        # variables of one whose Java somebody else has started
LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def session(app: str = "blueque", master: str | None = None, **conf: Any) -> SparkSession:
    """Return the Spark session of this process, and start one if there is none.

    It is quiet, has no web page, and counts time in UTC. In a process that was forked from one with a session it is
    another one, with a Java process of its own. Its workers run this Python, unless PYSPARK_PYTHON says otherwise, and find
    Blueque where it was found here.

    app: its name, for people. master: as in Spark; if left out, what Spark is configured for, else all of this machine.
    conf: options of Spark, `**{"spark.driver.memory": "2g"}` or `spark_driver_memory="2g"`; they go before ours.
    Raises NoJava; SparkEnded when the Java process of an earlier session in this process is gone; InvalidInput.
    """
    options = {_option(name): _value(name, value) for name, value in conf.items()}
    if gateway.forget_inherited():
        log.warning("this process was forked from one with a Spark session: it gets a session of its own")
    ended = gateway.ended_java()
    if ended is not None:
        raise SparkEnded(ended)
    master = master or options.pop("spark.master", None) or _default_master()
    is_local = master is not None and master.startswith("local")
    if not gateway.has_java():
        _prepare_environment(is_local)
    builder = SparkSession.builder.appName(app)
    if master is not None:
        builder = builder.master(master)
    for name, value in {**QUIET, **(LOOPBACK if is_local else {}), **options}.items():
        builder = builder.config(name, value)
    # At INFO, the level of a listener, py4j tells of every connection that it closes.
    for name in ("py4j", "py4j.java_gateway", "py4j.clientserver"):
        logging.getLogger(name).setLevel(max(logging.getLogger(name).level, logging.WARNING))
    found = builder.getOrCreate()
    gateway.claim()
    return found


def _option(name: str) -> str:
    if name.startswith("spark_"):
        return name.replace("_", ".")
    if not name.startswith("spark."):
        raise InvalidInput(f"{name!r} is no option of Spark: their names begin with spark.")
    return name


def _value(name: str, value: object) -> str:
    if value is None:
        raise InvalidInput(f"option {name} of Spark is None: leave it out")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _default_master() -> str | None:
    """Return all of this machine, or None where somebody else has the say: spark-submit, Connect, what Spark is told."""
    if RUNS_ALREADY & os.environ.keys() or "--master" in os.environ.get("PYSPARK_SUBMIT_ARGS", ""):
        return None
    homes = [os.environ.get("SPARK_CONF_DIR", ""), os.path.join(os.environ.get("SPARK_HOME", ""), "conf")]
    if any(os.path.exists(os.path.join(home, "spark-defaults.conf")) for home in homes if os.path.isabs(home)):
        return None
    return os.environ.get("MASTER") or "local[*]"


def _prepare_environment(is_local: bool, environ: Any = os.environ) -> None:
    """Set what the Java process and its workers go by; it must be there before the Java process starts."""
    if not RUNS_ALREADY & environ.keys():
        find_java(environ)
    environ.setdefault("PYSPARK_PYTHON", sys.executable)       # else it is whatever python3 is in PATH
    environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if is_local:
        environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")      # else it warns of host names that lead to the loopback
    known = [path for path in environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    missing = [path for path in import_paths() if path not in known]
    if missing:
        environ["PYTHONPATH"] = os.pathsep.join([*missing, *known])


def import_paths() -> list[str]:
    """Return the directories in which workers find Blueque, but for those in which every Python looks."""
    if _DISCOVERY.is_dir():
        return [str(_PACKAGE.parent), str(_DISCOVERY)]
    usual = {*site.getsitepackages(), site.getusersitepackages()}
    return [] if str(_PACKAGE.parent) in usual else [str(_PACKAGE.parent)]


def find_java(environ: Mapping[str, str] = os.environ) -> str:
    """Return the path of the Java that Spark would run. Raises NoJava."""
    home = environ.get("JAVA_HOME")
    found = shutil.which(os.path.join(home, "bin", "java") if home else "java", path=environ.get("PATH"))
    if found is None:
        raise NoJava(f"in JAVA_HOME, {home}" if home else "here")
    return found
