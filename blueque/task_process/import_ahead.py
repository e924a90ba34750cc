"""Import early what a running program may need later.

An upgrade replaces the files of the package while listeners and tasks run for days. A module that
they import afterwards is missing, or of another version. So listeners, their master, the scheduler
and task processes import at their start all that they may need;
tests/guards/test_replaced_package.py removes the package while they run.
"""

# ruff: noqa: F401

from __future__ import annotations

import functools
import sys
from contextlib import suppress

from blueque.model.client_settings import payloads_of


def import_for_daemon(redis_url: str) -> None:
    """Import what a scheduler, or a listener with its master and task processes, may need later.

    redis_url: a connection with TLS, or with options of redis-py, needs more.
    """
    # Of the standard library too: an upgrade may replace Python.
    import ctypes
    import difflib
    import fcntl
    import hashlib
    import io
    import pathlib
    import pickle
    import pwd
    import shutil
    import tarfile
    import tomllib
    import traceback
    import zlib
    import zoneinfo

    import cronsim
    import psutil

    import blueque.connection.sentinel
    import blueque.model.payloads
    import blueque.producer.bulk
    import blueque.spool.refused_value
    from blueque.connection.addresses import address_of

    _import_for_client()
    address = address_of(redis_url)
    if address.tls is not None:
        import blueque.connection.tls
    elif not address.is_plain:
        import redis


def import_for_handler() -> None:
    """Import what an imported handler may need later, where the process is no fork of a listener.

    The methods of Client import modules for 200 ms and 5 MB; so only if the handler has imported
    Client or New. A failed import does not fail the task, which may not need the module.
    """
    if not sys.modules.keys().isdisjoint(("blueque.client", "blueque.model.new")):
        with suppress(ImportError):
            _import_for_client()


def import_for_payloads() -> None:
    """Import the modules that encrypt payloads, if encryption is on: 20 ms."""
    if payloads_of({}) is not None:
        import blueque.model.payloads

        with suppress(ImportError):
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM


def import_for_coroutines() -> None:
    """Import what runs a handler that is a coroutine function."""
    import blueque.task_process.coroutine


@functools.cache
def _import_for_client() -> None:
    """Import what the methods of Client import when they are called.

    Once: each `import` reads its module, and a forked task process copies each page of memory in
        which it reads a Python object.

    Doctor and the feeder of a backlog are left out: they are large, and a program that runs them
    has imported them long before its end.
    """
    import blueque.client
    import blueque.listener.listener
    import blueque.listener.listeners
    import blueque.listener.processor
    import blueque.model.snapshot
    import blueque.producer.fanout
    import blueque.producer.groups
    import blueque.producer.queue
    import blueque.producer.schedules
    import blueque.producer.workflow
    import blueque.protocol.feeding
    import blueque.protocol.permissions
    import blueque.protocol.queues
    import blueque.protocol.snapshots
    import blueque.queries.failures
    import blueque.queries.feeds
    import blueque.queries.history
    import blueque.queries.inspector
    import blueque.queries.queue_changes
    import blueque.queries.queue_ends
    import blueque.queries.search
    import blueque.queries.task_ends
    import blueque.queries.task_graph
    import blueque.queries.task_log
    import blueque.queries.timeline
    import blueque.recovery.judge
    import blueque.recovery.purge
    import blueque.recovery.retention
    import blueque.settings.file
    import blueque.tables.hash_reader
    import blueque.tables.snapshot_reader
    import blueque.task_process.registered
    import blueque.task_process.spawning
