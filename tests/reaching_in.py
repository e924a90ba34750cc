"""Where tests reach into the package on purpose, each in one place: they break the EXEC of a
transaction, and give a listener a node id of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from blueque.listener.registration import Registration
from blueque.protocol import transaction

execute: Callable[..., Any] = transaction._execute


def execute_by(patch: pytest.MonkeyPatch, function: Callable[..., Any]) -> None:
    """Have the second half of each transaction be this function; `execute` is what it replaces."""
    patch.setattr(transaction, "_execute", function)


def name_listener(ours: Registration, node: str) -> None:
    """Have the listener be one of this process under another node id."""
    ours._node, ours._pid = node, os.getpid()
