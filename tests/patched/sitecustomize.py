"""Sets constants of modules, and the clock, in a program that a test starts with
`running.patched(...)`, as monkeypatch does in a test.
"""

from __future__ import annotations

import importlib.machinery
import json
import os
import sys
import time
from types import ModuleType
from typing import Any

PATCHED: dict[str, dict[str, Any]] = json.loads(os.environ.get("PATCHED_BY_TEST", "{}"))
AHEAD = float(os.environ.get("AHEAD_BY_TEST", "0"))  # seconds


class Finder:
    """Finds the modules that are to be patched, and has them patched as soon as they are there."""

    @staticmethod
    def find_spec(
        name: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        spec = importlib.machinery.PathFinder.find_spec(name, path) if name in PATCHED else None
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            for constant, value in PATCHED[name].items():
                assert hasattr(module, constant), f"{name} has no {constant}"
                setattr(module, constant, value)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, Finder)
if AHEAD:
    now = time.time
    time.time = lambda: now() + AHEAD
