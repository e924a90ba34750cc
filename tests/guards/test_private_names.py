"""Tests reach the package by its public names: how often they do not is counted, and only goes down."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
# How often tests name what is private. Lower it when you remove some.
MOST = 108
PRIVATE = re.compile(r"_[a-zA-Z]\w*")
OF_PYTHON = {"_replace", "_fields", "_make", "_asdict", "_exit"}


def private_names(file: Path) -> Iterator[str]:
    """Yield each place of a file that names something private of a module or of an object, except of
    `self`.
    """
    for node in ast.walk(ast.parse(file.read_text())):
        match node:
            case ast.ImportFrom(module=str(module)) if module.startswith("blueque"):
                names = [alias.name for alias in node.names]
            case ast.Attribute(value=ast.Name("self" | "cls")):
                continue
            case ast.Attribute(attr=name):
                names = [name]
            case ast.Call(func=ast.Attribute(attr="setattr")):
                texts = [text.value for text in node.args if isinstance(text, ast.Constant)]
                names = [str(text).rpartition(".")[2] for text in texts]
            case _:
                continue
        for name in names:
            if PRIVATE.fullmatch(name) and name not in OF_PYTHON:
                yield f"{file.relative_to(TESTS)}:{node.lineno} {name}"


def test_tests_name_few_things_that_are_private():
    found = [place for file in sorted(TESTS.rglob("*.py")) for place in private_names(file)]

    assert len(found) <= MOST, "\n".join(found)
