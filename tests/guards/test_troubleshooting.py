"""docs/troubleshooting.md has an entry for each warning, each reason and each exit code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from blueque import errors
from blueque.sentences.concern import URGENT

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/troubleshooting.md").read_text()
# What makes a warning or a reason, and at which place it has its code.
PLACES = {"Reason": 0, "Concern": 1, "Judgement": 0, "Check": 0}


def codes() -> set[str]:
    """Return the codes that stand in the source; those that are computed are among URGENT."""
    found = set(URGENT)
    for room in ("sentences", "audit"):
        for path in (ROOT / "blueque" / room).glob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                    place = PLACES.get(node.func.id)
                    if place is not None and isinstance(node.args[place], ast.Constant):
                        found.add(node.args[place].value)
    return found


def test_each_code_has_an_entry():
    found = codes()
    assert {"no_listener", "schedule_failing", "replica-behind", "blocked"} <= found
    assert found - set(re.findall(r"`([\w-]+)`", PAGE)) == set()


def test_each_refusal_of_redis_has_an_entry():
    refusals = {*errors.NOT_NOW, "NOAUTH", "WRONGPASS", "NOPERM", "OOM", "LOADING", "WRONGTYPE"}
    assert [code for code in refusals if f"`{code}`" not in PAGE] == []
