"""A plugin for pytest, which `mistakes.py` loads: which functions of the package each test calls.

It writes JSON to the file that the variable TOLD names: for each test a list of `file:function`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

ROOT = f"{Path(__file__).parents[2]}/"

_codes: set[Any] = set()


def _trace(frame: FrameType, event: str, argument: object) -> None:
    _codes.add(frame.f_code)


class Calls:
    """The functions of each test. Those of its fixtures are among them."""

    def __init__(self) -> None:
        self.of_tests: dict[str, list[str]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        _codes.clear()
        threading.settrace(_trace)
        sys.settrace(_trace)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
            self.of_tests[item.nodeid] = sorted({name for code in _codes if (name := _name(code))})

    def pytest_sessionfinish(self) -> None:
        Path(os.environ["TOLD"]).write_text(json.dumps(self.of_tests))


def _name(code: Any) -> str | None:
    """Return the outermost function of the package around some code, with its file."""
    if not code.co_filename.startswith(f"{ROOT}blueque/"):
        return None
    names = [name for name in code.co_qualname.split(".") if name[0] != "<"]
    is_method = len(names) > 1 and names[0].strip("_")[:1].isupper()
    return f"{code.co_filename.removeprefix(ROOT)}:{''.join(names[is_method : is_method + 1])}"


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Calls())
