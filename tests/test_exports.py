"""What `import blueque` offers: all of it, nothing else, explained, and cheap."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import blueque
from blueque import errors

HEAVY = ["redis", "pyspark", "click"]


def test_all_is_sorted_and_is_what_the_package_shows():
    shown = {
        name for name, value in vars(blueque).items() if not name.startswith("_") and not isinstance(value, ModuleType)
    }

    assert sorted(blueque.__all__) == blueque.__all__
    assert {*blueque.__all__} == shown | {"__version__"}


def public_things() -> Iterator[tuple[str, Any]]:
    """Yield the exports that are classes and functions, and the methods of those classes, with their names."""
    for name in blueque.__all__:
        export = getattr(blueque, name)
        if inspect.isclass(export) or inspect.isfunction(export):
            yield name, export
        for member, value in vars(export).items() if inspect.isclass(export) else ():
            if isinstance(value, classmethod | staticmethod):
                value = value.__func__
            if inspect.isfunction(value) and not member.startswith("_"):
                yield f"{name}.{member}", value


def says_itself(thing: Any) -> bool:
    """Tell whether a function needs no docstring: one line that returns a value, under a name that says which."""
    if not inspect.isfunction(thing):
        return False
    (function,) = ast.parse(inspect.cleandoc(f"\n{inspect.getsource(thing)}")).body
    return isinstance(function, ast.FunctionDef) and len(function.body) == 1 and isinstance(function.body[0], ast.Return)


@pytest.mark.parametrize(("name", "thing"), [pytest.param(name, thing, id=name) for name, thing in public_things()])
def test_every_public_class_and_method_is_explained(name, thing):
    """Properties may go without: their name says what they are."""
    # An exception's own docstring, not the one that it inherits.
    own = thing.__doc__ if inspect.isfunction(thing) else vars(thing).get("__doc__")

    assert own or says_itself(thing), f"{name} has no docstring"
    assert not own or re.match(r"[A-Z]", own), f"{name}: the docstring begins with a sentence"


def drawn_tree() -> dict[str, tuple[str, str]]:
    """Return what the docstring of errors.py draws: class -> (the one it hangs from, builtin in parentheses)."""
    drawn: dict[str, tuple[str, str]] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"    ((?:[|`]-- |\|   |    )*)([A-Z]\w+)(?: \((\w+)\))?", line)
        if match:
            depth = len(match[1]) // 4
            path = [*path[:depth], match[2]]
            drawn[match[2]] = (path[depth - 1] if depth else "Exception", match[3] or "")
    return drawn


def test_the_tree_of_errors_is_as_drawn_and_exported():
    defined = {
        name: (error.__bases__[0].__name__, "".join(base.__name__ for base in error.__bases__[1:]))
        for name, error in vars(errors).items()
        if inspect.isclass(error) and error.__module__ == errors.__name__
    }

    assert drawn_tree() == defined
    assert {*defined} <= {*blueque.__all__}


@pytest.mark.parametrize("package", HEAVY)
def test_importing_blueque_does_not_load(package):
    code = f"import sys, blueque; sys.exit({package!r} in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], timeout=30).returncode == 0
