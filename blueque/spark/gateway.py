"""Gateway: what pyspark remembers of its Java process, and what of that holds in a process that was
forked.

pyspark keeps one Java process for each Python process, for good, in attributes of its classes. A
forked process inherits them with the sockets; when both use them, each gets answers to what the
other has asked.
"""

from __future__ import annotations

import os
import threading
from subprocess import Popen
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession, SQLContext

from blueque.system import process

_OWNER = "owner_of_blueque"  # the attribute of a gateway that says which process may use it


def has_java() -> bool:
    """Tell whether pyspark remembers a Java process."""
    return SparkContext._gateway is not None


def claim() -> None:
    """Note that the gateway is this process's."""
    if SparkContext._gateway is not None:
        vars(SparkContext._gateway).setdefault(_OWNER, os.getpid())


def forget_inherited() -> bool:
    """Have pyspark forget a gateway that it has from the process from which this one was forked;
    tell whether it had one.
    """
    gateway = SparkContext._gateway
    if gateway is None or _is_ours(gateway):
        return False
    _cut_off(gateway)
    java = _java(gateway)
    if java is not None and java.stdin is not None:
        java.stdin.close()  # while anybody holds it, that Java does not end with its owner
    forget()
    return True


def _cut_off(gateway: Any) -> None:
    """Have objects that are left of the other process's session ask nothing, and discard nothing
    there.
    """
    disconnect()
    client = gateway._gateway_client
    if hasattr(client, "java_parameters"):
        # of the clients in use one looks at this only, when it connects
        client.java_parameters.port = 0
    connection = _connection(client)
    if connection is not None and connection.socket is not None:
        # Not connection.close(): that would end the other process's connection, which this is as
        # well.
        connection.stream.close()
        connection.socket.close()
        connection.socket = connection.stream = None
    # so that it is kept: where it is collected, connections are shut down
    SparkContext._of_parent = gateway


def disconnect() -> None:
    """Have nobody ask Java any more, not even to discard there what is discarded here."""
    if SparkContext._gateway is not None:
        SparkContext._gateway._gateway_client.is_connected = False


def drop_connection() -> None:
    """Close the connection of this thread to Java. The next question opens another one."""
    if SparkContext._gateway is None:
        return
    connection = _connection(SparkContext._gateway._gateway_client)
    if connection is not None:
        connection.close()


def forget() -> None:
    """Have pyspark forget its gateway, as if it had never had one."""
    # a thread that is not here may have held it when we were forked
    SparkContext._lock = threading.RLock()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    SQLContext._instantiatedContext = None
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
        os.environ.pop(name, None)


def java_process() -> Popen[bytes] | None:
    """Return the Java process that this process has started; None when there is none, or
    spark-submit has started it.
    """
    gateway = SparkContext._gateway
    return _java(gateway) if gateway is not None and _is_ours(gateway) else None


def _is_ours(gateway: Any) -> bool:
    owner = vars(gateway).get(_OWNER)
    if owner is not None:
        return bool(owner == os.getpid())
    java = _java(gateway)
    # Of one that spark-submit has started nobody can tell who has connected to it.
    return java is None or process.parent(java.pid) == os.getpid()


def _connection(client: Any) -> Any:
    """Return the connection of this thread; None when it has none, as always without
    PYSPARK_PIN_THREAD.
    """
    return client.get_thread_connection() if hasattr(client, "get_thread_connection") else None


def _java(gateway: Any) -> Popen[bytes] | None:
    return vars(gateway).get("proc")  # not getattr: a gateway takes unknown names for Java's
