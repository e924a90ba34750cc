"""docs/architecture.md names the rooms and modules that exist, and CONTRIBUTING.md the tests."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "blueque"
TESTS = {path.name for path in (ROOT / "tests").rglob("*.py")}  # wherever they lie
PAGE = (ROOT / "docs/architecture.md").read_text()


def test_the_table_of_rooms_names_every_room_and_no_other():
    table = PAGE.partition("\n## Rooms\n")[2].partition("\n## ")[0]
    named = [
        name
        for row in re.findall(r"^\| (`.*?) \|", table, re.M)
        for name in re.findall(r"`(\w+)/?`", row)
    ]

    rooms = [path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()]
    modules = [path.stem for path in PACKAGE.glob("[!_]*.py")]
    assert sorted(named) == sorted(rooms + modules)


def test_every_module_that_is_named_exists():
    named = set(re.findall(r"\b(?:\w+/)*\w+\.(?:py|toml)\b", re.sub(r"\]\([^)]*\)", "", PAGE))) - {
        "blueque.toml"
    }

    assert len(named) > 30
    found = {name for name in named if (PACKAGE / name).exists() or (ROOT / name).exists()}
    assert named - found - TESTS == set()


def test_the_docstring_of_each_room_names_modules_that_exist():
    missing = []
    for path in sorted(PACKAGE.rglob("__init__.py")):
        for name in _named_in(path):
            if not any((room / name).exists() for room in (path.parent, path.parent.parent)):
                missing.append((path.parent.name, name))

    assert missing == []


def test_the_docstring_of_protocol_names_all_its_modules():
    room = PACKAGE / "protocol"

    modules = {path.name for path in room.glob("[!_]*.py")}
    assert modules - _named_in(room / "__init__.py") == set()


def test_every_test_that_contributors_are_sent_to_exists():
    page = (ROOT / "CONTRIBUTING.md").read_text()
    named = re.findall(r"`(\w+\.py)\b", page)
    paths = re.findall(r"\btests/[\w/.]*\w", page)

    assert len(named) > 15
    assert set(named) - TESTS == set()
    assert [path for path in paths if not (ROOT / path).exists()] == []


def _named_in(path: Path) -> set[str]:
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    return set(re.findall(r"\b(?:\w+/)*\w+\.py\b", docstring))
