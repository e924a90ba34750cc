"""Write the tables of settings in docs/configuration.md: `.venv/bin/python docs/configuration.py`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from blueque.settings.example import to_toml
from blueque.settings.of_schedules import AS_ENQUEUE
from blueque.settings.of_tasks import IN_REDIS, QUEUE
from blueque.settings.setting import Setting
from blueque.settings.table import TABLES

PAGE = Path(__file__).with_suffix(".md")
_TABLES = re.compile(r"(<!-- settings: (\w*) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def page(text: str) -> str:
    """Return the text of the page with its tables as they are now."""
    return _TABLES.sub(lambda found: f"{found[1]}{table(found[2])}{found[4]}", text)


def table(name: str) -> str:
    """Return the settings of a table of blueque.toml as a table of Markdown. top: those above all."""
    rows = TABLES["" if name == "top" else name]
    others = [
        f"| {_key(row, name)} | {_default(row)} | {_text(row)} |" for row in _shown(rows, name)
    ]
    return "\n".join(["| key | default | meaning |", "|---|---|---|", *others]) + "\n"


def _shown(rows: tuple[Setting, ...], name: str) -> Iterator[Setting]:
    """Yield the settings that no other table has as well."""
    for row in rows:
        is_listeners = name != "listener" and row in TABLES["listener"]
        if not is_listeners and "." not in row.key and row.text != AS_ENQUEUE:
            yield row


def _key(row: Setting, name: str) -> str:
    marks = ""
    if name == "listener":
        marks = " Q" * (row in QUEUE) + " R" * (row in IN_REDIS)
    if name == "queues":
        marks = " R" * (row in IN_REDIS)
    return f"`{row.key}`{marks}"


def _default(row: Setting) -> str:
    return row.get_default_text().replace("|", "\\|")


def _text(row: Setting) -> str:
    is_clear = row.default is not None or row.example is None
    example = "" if is_clear else f" `{to_toml(row.example)}`"
    return f"{row.text}{example}".replace("|", "\\|")


if __name__ == "__main__":
    written = page(PAGE.read_text())
    if sys.argv[1:] == ["--print"]:
        sys.stdout.write(written)
    else:
        PAGE.write_text(written)
