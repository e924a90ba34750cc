"""Records which functions of the package a process and its forks call, for `mistakes.py`: pytest and
each program that a test starts.

The first call of a function in a test is a line of CALLS: the number of the test, and `file:function`.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import sys
import threading
from types import CodeType, FrameType

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PACKAGE = os.path.join(ROOT, "blueque", "")
NUMBER = os.path.join(ROOT, "number_of_test")  # four bytes, which all of them have in memory
CALLS = os.path.join(ROOT, "calls")

_seen: dict[int, CodeType] = {}
_test = 0


def _trace(frame: FrameType, event: str, argument: object) -> None:
    global _test
    if _shared[0] != _test:
        _test = _shared[0]
        _seen.clear()
    code = frame.f_code
    if id(code) in _seen:
        return
    _seen[id(code)] = code
    if code.co_filename.startswith(PACKAGE):
        with contextlib.suppress(OSError):
            file = os.open(CALLS, os.O_WRONLY | os.O_APPEND)
            os.write(file, f"{_test} {_name(code)}\n".encode())
            os.close(file)


def _name(code: CodeType) -> str:
    """Return the outermost function around some code, with its file."""
    names = [name for name in code.co_qualname.split(".") if name[0] != "<"]
    is_method = len(names) > 1 and names[0].strip("_")[:1].isupper()
    file = code.co_filename.removeprefix(f"{ROOT}/")
    return f"{file}:{''.join(names[is_method : is_method + 1])}"


def set_test(number: int) -> None:
    """Count what is called from now on, here and in other processes, for this test."""
    _shared[0] = number


with open(NUMBER, "r+b") as _file:
    _shared = memoryview(mmap.mmap(_file.fileno(), 4)).cast("I")
os.register_at_fork(after_in_child=_seen.clear)
threading.settrace(_trace)
sys.settrace(_trace)
