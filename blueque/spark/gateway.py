"""The Java process that pyspark keeps, and how a forked process gets rid of it.

pyspark keeps one Java process for each Python process in attributes of its classes. A forked
process inherits them with the sockets; if both use them, each gets replies to requests of the
other.
"""

from __future__ import annotations

import os
import threading
from subprocess import Popen
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession, SQLContext

from blueque.system import process

_OWNER = (
    "owner_of_blueque"  # the attribute of a gateway with the pid of the process that may use it
)


def has_java() -> bool:
    """Return whether pyspark has a Java process."""
    return SparkContext._gateway is not None


def claim() -> None:
    """Note that the gateway belongs to this process."""
    if SparkContext._gateway is not None:
        vars(SparkContext._gateway).setdefault(_OWNER, os.getpid())


def forget_inherited() -> bool:
    """Make pyspark forget a gateway that belongs to the parent process; return whether it had one."""
    gateway = SparkContext._gateway
    if gateway is None or _is_ours(gateway):
        return False
    _cut_off(gateway)
    java = _java(gateway)
    if java is not None and java.stdin is not None:
        java.stdin.close()  # while it is open here, that Java does not end with its owner
    forget()
    return True


def _cut_off(gateway: Any) -> None:
    """Stop leftover objects of the parent's session from asking or discarding anything there."""
    disconnect()
    client = gateway._gateway_client
    if hasattr(client, "java_parameters"):
        # one of the clients reads this only when it connects
        client.java_parameters.port = 0
    connection = _connection(client)
    if connection is not None and connection.socket is not None:
        # Not connection.close(): that would end the connection of the other process, too.
        connection.stream.close()
        connection.socket.close()
        connection.socket = connection.stream = None
    # keeps it: when it is collected, connections are shut down
    SparkContext._of_parent = gateway


def disconnect() -> None:
    """Stop all requests to Java, also those that discard objects there."""
    if SparkContext._gateway is not None:
        SparkContext._gateway._gateway_client.is_connected = False


def drop_connection() -> None:
    """Close the connection of this thread to Java. The next request opens another one."""
    if SparkContext._gateway is None:
        return
    connection = _connection(SparkContext._gateway._gateway_client)
    if connection is not None:
        connection.close()


def forget() -> None:
    """Make pyspark forget its gateway."""
    # a thread of the parent may have held it at the fork
    SparkContext._lock = threading.RLock()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    SQLContext._instantiatedContext = None
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
        os.environ.pop(name, None)


def java_process() -> Popen[bytes] | None:
    """Return the Java process that this process started. None: none, or spark-submit started it."""
    gateway = SparkContext._gateway
    return _java(gateway) if gateway is not None and _is_ours(gateway) else None


def _is_ours(gateway: Any) -> bool:
    owner = vars(gateway).get(_OWNER)
    if owner is not None:
        return bool(owner == os.getpid())
    java = _java(gateway)
    # spark-submit has started it: any process may have connected to it.
    return java is None or process.parent(java.pid) == os.getpid()


def _connection(client: Any) -> Any:
    """Return the connection of this thread. None: none, as always without PYSPARK_PIN_THREAD."""
    return client.get_thread_connection() if hasattr(client, "get_thread_connection") else None


def _java(gateway: Any) -> Popen[bytes] | None:
    return vars(gateway).get("proc")  # not getattr: a gateway takes unknown names as names of Java
