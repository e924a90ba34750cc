"""What an interpreter does at its end, done in a task process, which ends by `os._exit`.

Finalising an interpreter would write to each page of memory that a fork shares, and so copy it.
`wait` and `flush` belong to a task: its exit record is written after them. `finish` belongs to the
process.
"""

from __future__ import annotations

import _io  # its class is no ABC, which would note each class
import atexit
import contextlib
import gc
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

_FINISHING = "the end is recorded; the process still calls exit functions and finalizers"
TELL_AFTER = 10.0  # seconds of waiting after which the log of the task says for what


class Left(NamedTuple):
    """How many threads and processes that an interpreter waits for were left by a task."""

    threads: int = 0
    processes: int = 0


NOTHING = Left()
# What keeps libraries from starting threads and processes, as the hook after a task may.
_IS_ENDING = (
    ("threading", "_SHUTTING_DOWN"),
    ("concurrent.futures.thread", "_shutdown"),
    ("concurrent.futures.process", "_global_shutdown"),
    ("multiprocessing.util", "_exiting"),
)


def disown() -> None:
    """Forget the exit functions and finalizers that exist so far, and hide all objects from the
    collector.

    Call it before or after the fork.
    """
    atexit._clear()
    if (weakref := sys.modules.get("weakref")) is not None:
        for finalizer in [*weakref.finalize._registry]:
            finalizer.atexit = False
        weakref.finalize._registered_with_atexit = False
    if (module := sys.modules.get("multiprocessing.process")) is not None:
        # As multiprocessing does in a child: else its exit function ends processes of the parent.
        getattr(module, "_children", set()).clear()
    for name, function in (("logging", "shutdown"), ("multiprocessing.util", "_exit_function")):
        if (own := getattr(sys.modules.get(name), function, None)) is not None:
            atexit.register(own)
    gc.freeze()


def wait() -> Left:
    """Wait for the non-daemon threads and multiprocessing processes. Return how many there were.

    If there were any, this process takes no other task, because thread pools no longer work.
    """
    if "threading" not in sys.modules and "multiprocessing.process" not in sys.modules:
        return NOTHING
    try:
        left = Left(len(_threads()), len(_processes()))
    except AttributeError:  # the user has modules of these names
        return NOTHING
    if not any(left):
        return NOTHING
    try:
        with _telling(_names):
            if left.threads:
                _end_threads(sys.modules["threading"])
            if _processes():
                sys.modules["multiprocessing.util"]._exit_function()
    except BaseException:  # such as the KeyboardInterrupt of a signal
        show_error()
    for name, flag in _IS_ENDING:
        if name in sys.modules:
            setattr(sys.modules[name], flag, False)
    return left


def _end_threads(threading: Any) -> None:
    # _shutdown works once. If it has, end the pools of a hook as it does.
    ends = [] if threading.main_thread().is_alive() else threading._threading_atexits
    threading._shutdown()
    for end in reversed(ends):
        end()
    while threads := _threads():
        threads[0].join()


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


def _names() -> str:
    names = ", ".join(repr(one.name) for one in (*_threads(), *_processes()))
    return f"the handler has ended; its process still waits for {names}"


@contextlib.contextmanager
def _telling(what: Callable[[], str]) -> Iterator[None]:
    """Write a line to the log of the task if the block takes long. what: returns the line."""

    def tell() -> None:
        print(f"-- blueque: {what()} --", file=sys.stderr, flush=True)

    teller = None
    try:
        import threading  # here: most tasks have none

        teller = threading.Timer(TELL_AFTER, tell)
        teller.daemon = True
        teller.start()
    except Exception:  # the user has a module of this name, or no thread can be started
        teller = None
    try:
        yield
    finally:
        if teller is not None:
            teller.cancel()


def show_error() -> None:
    """Print the exception that is being handled, unless the task has closed every way to do so."""
    with contextlib.suppress(BaseException):
        sys.excepthook(*sys.exc_info())


def files() -> list[Any]:
    """Return the open files of this process, without those that it has disowned; outer ones first."""
    return [item for item in _outer_first(_find()) if issubclass(type(item), _io._IOBase)]


def flush(inherited: Iterable[Any] = ()) -> bool:
    """Write out the buffers of files and of `logging` handlers; return whether `finish` is needed.

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
    finalized = set()
    try:
        for kind in {*map(type, objects)}:  # a loop over all of them takes a millisecond
            if hasattr(kind, "__del__"):
                finalized.add(id(kind))  # a metaclass may compare classes in its own way
    except Exception:  # a metaclass does not let its classes be looked at
        return [item for item in objects if issubclass(type(item), _io._IOBase)]
    return [item for item in objects if id(type(item)) in finalized] if finalized else []


def finish(inherited: Iterable[Any] = ()) -> None:
    """Call the exit functions and the finalizers of objects, as an interpreter does."""
    try:
        wait()  # for what a hook has started
        with _telling(lambda: _FINISHING):
            atexit._run_exitfuncs()
            for item in _outer_first(_find()):
                try:
                    type(item).__del__(item)
                except Exception:
                    show_error()
            for item in (*inherited, sys.stdout, sys.stderr):
                _flush(item)
    except BaseException:
        show_error()


def _outer_first(found: list[Any]) -> list[Any]:
    """Sort objects so that each comes before those that it refers to, because it may write to them."""
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
                *(one for one in referents if issubclass(type(one), dict | list | tuple))
            )
            stack += [(known[id(one)], False) for one in referents + inner if id(one) in known]
    return ordered[::-1]
