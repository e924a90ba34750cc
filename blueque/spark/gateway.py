"""Gateway: what pyspark remembers of its Java process, and what of that holds in a process that was forked.

pyspark keeps one Java process for each Python process, for good, in attributes of its classes. A forked process inherits
them with the sockets; when both use them, each gets answers to what the other has asked.
"""

from __future__ import annotations

import os
import threading
from subprocess import Popen
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession, SQLContext

from blueque import process

_OWNER = "owner_of_blueque"                            # the attribute of a gateway that says which process may use it


def has_java() -> bool:
    """Tell whether pyspark remembers a Java process."""
    return SparkContext._gateway is not None


def claim() -> None:
    """Note that the gateway is this process's."""
    if SparkContext._gateway is not None:
        vars(SparkContext._gateway).setdefault(_OWNER, os.getpid())


def forget_inherited() -> bool:
    """Have pyspark forget a gateway that it has from the process from which this one was forked; tell whether it had one."""
    gateway = SparkContext._gateway
    if gateway is None or _is_ours(gateway):
        return False
    gateway._gateway_client.is_connected = False       # what still holds objects of it must not ask, nor discard them there
    java = _java(gateway)
    if java is not None and java.stdin is not None:
        java.stdin.close()                             # while anybody holds it, that Java does not end with its owner
    forget()
    return True


def forget() -> None:
    """Have pyspark forget its gateway, as if it had never had one."""
    SparkContext._lock = threading.RLock()             # a thread that is not here may have held it when we were forked
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    SQLContext._instantiatedContext = None
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
        os.environ.pop(name, None)


def java_process() -> Popen[bytes] | None:
    """Return the Java process that this process has started; None when there is none, or spark-submit has started it."""
    gateway = SparkContext._gateway
    return _java(gateway) if gateway is not None and _is_ours(gateway) else None


def ended_java() -> int | None:
    """Return the pid of our Java process if it has ended; None when it has not, or there is none."""
    java = java_process()
    return java.pid if java is not None and java.poll() is not None else None


def _is_ours(gateway: Any) -> bool:
    owner = vars(gateway).get(_OWNER)
    if owner is not None:
        return bool(owner == os.getpid())
    java = _java(gateway)
    # Of one that spark-submit has started nobody can tell who has connected to it.
    return java is None or process.parent(java.pid) == os.getpid()


def _java(gateway: Any) -> Popen[bytes] | None:
    return vars(gateway).get("proc")                   # not getattr: a gateway takes unknown names for Java's
