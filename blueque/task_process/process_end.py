"""What an interpreter does at its end, done in a task process, which ends by `os._exit`: to take an
interpreter apart would write to, and so copy, each page of memory that a fork shares.

`wait` and `flush` belong to a task: its exit record is written after them. `finish` belongs to the
process.
"""

from __future__ import annotations

import _io  # its class is no ABC, which would note each class
import atexit
import gc
import os
import sys
from collections.abc import Iterable
from typing import Any, NamedTuple

TELL_AFTER = 10.0  # seconds of waiting after which the log of the task says for what


class Left(NamedTuple):
    """How many threads and processes a task had left for which an interpreter waits."""

    threads: int = 0
    processes: int = 0


NOTHING = Left()


def disown() -> None:
    """Leave to the process that forks, or has forked, what it has so far: objects, which no collection
    then touches, and exit functions.
    """
    atexit._clear()
    if (weakref := sys.modules.get("weakref")) is not None:
        for finalizer in [*weakref.finalize._registry]:
            finalizer.atexit = False
        weakref.finalize._registered_with_atexit = False
    # These do nothing to what is of another process.
    for module, function in (("logging", "shutdown"), ("multiprocessing.util", "_exit_function")):
        if (own := getattr(sys.modules.get(module), function, None)) is not None:
            atexit.register(own)
    gc.freeze()


def wait() -> Left:
    """Wait for the threads and the processes of multiprocessing that are no daemons. Return how many
    there were. After any, this process takes no other task: no thread pool works any more.
    """
    if "threading" not in sys.modules and "multiprocessing.process" not in sys.modules:
        return NOTHING
    try:
        left = Left(len(_threads()), len(_processes()))
    except AttributeError:  # the user has modules of these names
        return NOTHING
    if not any(left):
        return NOTHING
    import threading  # here: most tasks have none

    teller = threading.Timer(TELL_AFTER, _tell)
    teller.daemon = True
    try:
        teller.start()
        if left.threads:
            threading._shutdown()  # type: ignore[attr-defined]
        if _processes():
            sys.modules["multiprocessing.util"]._exit_function()
    except BaseException:  # such as the KeyboardInterrupt of a signal
        sys.excepthook(*sys.exc_info())
    finally:
        teller.cancel()
    return left


def _threads() -> list[Any]:
    threading = sys.modules.get("threading")  # else no thread has been started by it
    if threading is None:
        return []
    main = threading.main_thread()
    return [one for one in threading.enumerate() if not one.daemon and one is not main]


def _processes() -> list[Any]:
    module = sys.modules.get("multiprocessing.process")
    if module is None:
        return []
    own = (one for one in module.active_children() if one._parent_pid == os.getpid())
    return [one for one in own if not one.daemon]


def _tell() -> None:
    names = ", ".join(repr(one.name) for one in (*_threads(), *_processes()))
    print(
        f"-- blueque: the handler has ended; its process still waits for {names} --",
        file=sys.stderr,
        flush=True,
    )


def files() -> list[Any]:
    """Return the open files of this process, but not of what it has disowned; outer ones first."""
    return [item for item in _outer_first(_find()) if issubclass(type(item), _io._IOBase)]


def flush(inherited: Iterable[Any] = ()) -> bool:
    """Write out what files and handlers of `logging` hold back; return whether `finish` is needed.

    inherited: files that were opened before `disown`.
    """
    found = _find()
    if "logging" in sys.modules:
        for handler in getattr(sys.modules["logging"], "_handlerList", ()):
            _flush(handler())
    if found:
        for item in files():
            _flush(item)
    for item in inherited:
        _flush(item)
    _flush(sys.stdout)
    _flush(sys.stderr)
    return bool(found or atexit._ncallbacks())


def _flush(item: Any) -> None:
    try:
        item.flush()
    except Exception:  # the task has closed or removed it, or the disk is full
        pass


def _find() -> list[Any]:
    """Return the objects that have a finalizer, as all files have."""
    objects = gc.get_objects()
    finalized = []
    try:
        for kind in {*map(type, objects)}:  # a loop over all of them takes a millisecond
            if hasattr(kind, "__del__"):
                finalized.append(kind)
    except Exception:  # a metaclass does not let its classes be looked at
        return [item for item in objects if issubclass(type(item), _io._IOBase)]
    return [item for item in objects if type(item) in finalized] if finalized else []


def finish(inherited: Iterable[Any] = ()) -> None:
    """Call the exit functions and the finalizers of objects, as an interpreter does."""
    try:
        wait()  # for what a hook has started
        atexit._run_exitfuncs()
        for item in _outer_first(_find()):
            try:
                type(item).__del__(item)
            except Exception:
                sys.excepthook(*sys.exc_info())
        for item in (*inherited, sys.stdout, sys.stderr):
            _flush(item)
    except BaseException:
        sys.excepthook(*sys.exc_info())


def _outer_first(found: list[Any]) -> list[Any]:
    """Sort objects so that each comes before those to which it refers: it may yet write to them."""
    known, seen, ordered = {id(item): item for item in found}, set[int](), []
    stack = [(item, False) for item in found]
    while stack:
        item, is_done = stack.pop()
        if is_done:
            ordered.append(item)
        elif id(item) not in seen:
            seen.add(id(item))
            stack.append((item, True))
            referents = gc.get_referents(item)
            inner = gc.get_referents(
                *(one for one in referents if type(one) in (dict, list, tuple))
            )
            stack += [(known[id(one)], False) for one in referents + inner if id(one) in known]
    return ordered[::-1]
