"""Turns the plain text of a docstring into Markdown, for the reference of the API."""

from __future__ import annotations

import ast
import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe
from pymdownx.slugs import slugify

import blueque
from docs.site.build import place

logger = logging.getLogger("mkdocstrings.docstrings")
DOCS = Path(__file__).resolve().parents[1]
ENTRY = re.compile(r"(\*{0,2}\w+(?:, \*{0,2}\w+)*): (.*)")
# `one: text. another: text`, and what follows in the same line
NEXT = re.compile(r"(?<=\.)\s+(?=[a-z_]+(?:, [a-z_]+)*: |Raises |Source: )")
FIELD = re.compile(r"_Field\[(.+)\]\((.*)\)", re.S)
CODE = re.compile(r"(`[^`]*`)")
PAGE = re.compile(r'\bdocs/([\w/.-]+\.md)(?:, "([^"]+)")?')
ERRORS = sorted(name for name, module in blueque._MODULES.items() if module == "errors")
ERROR = re.compile(rf"\b({'|'.join(ERRORS)})\b")


class Docstrings(griffe.Extension):
    """Has mkdocstrings show the docstrings of Blueque as they are meant."""

    def on_attribute(self, *, attr: griffe.Attribute, **_: Any) -> None:
        """Show `name = _Field[T](meaning)` of a task as what it is: a T with a docstring."""
        field = FIELD.fullmatch(str(attr.value))
        if field is not None:
            attr.annotation, attr.value = f"{field[1]} | None", None
            attr.labels = {"property"}
            attr.docstring = griffe.Docstring(ast.literal_eval(field[2] or "''"), parent=attr)

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Name the attributes that have no docstring in one line of the class."""
        plain = [
            name
            for name, each in cls.members.items()
            if each.is_attribute and not each.docstring and name[0] != "_"
            if FIELD.fullmatch(str(each.value)) is None
        ]
        shown = [name for name in plain if name != "exit_code"]
        if shown and cls.docstring is not None:
            cls.docstring.value += f"\n\nAttributes: {', '.join(f'`{name}`' for name in shown)}."
        for name in plain:
            cls.del_member(name)

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)


def markdown(text: str) -> str:
    """Return a docstring as Markdown.

    Lines of the form `name: meaning`, and those that begin with Raises, become a list of definitions;
    the names of errors and of pages become links.
    """
    return "\n\n".join(shown for each in text.split("\n\n") for shown in paragraph(each))


def paragraph(text: str) -> Iterator[str]:
    lines = text.splitlines()
    if all(line.startswith("    ") for line in lines):
        yield "\n".join(["```python", *(line[4:] for line in lines), "```"])
        return
    if lines[0].startswith("- "):
        yield prose(text)
        return
    for part in parts(lines):
        entry = ENTRY.match(part)
        if entry is None:
            yield prose(part)
            continue
        name, meaning = entry.groups()
        is_word = name in ("Raises", "Source")
        shown = name if is_word else ", ".join(f"`{each}`" for each in name.split(", "))
        yield f"{shown}\n:   {prose(meaning)}"


def parts(lines: list[str]) -> Iterator[str]:
    """Yield each entry and each text between them, as one line."""
    kept: list[str] = []
    for line in NEXT.sub("\n", "\n".join(lines)).splitlines():
        is_entry = ENTRY.match(kept[0]) if kept else None
        line = re.sub("^Raises (?!:)", "Raises: ", line)
        begins = line[0] != " " if is_entry else ENTRY.match(line)
        if begins and kept and kept[-1][-1] in ".:)":
            yield " ".join(kept)
            kept = []
        kept.append(line.strip())
    yield " ".join(kept)


def prose(line: str) -> str:
    parts = CODE.split(line)
    parts[::2] = [plain(part) for part in parts[::2]]
    return "".join(parts)


def plain(text: str) -> str:
    text = re.sub(r"([<*])", r"\\\1", text)
    text = ERROR.sub(r"[\1][blueque.\1]", text)
    return PAGE.sub(link, text)


def link(page: re.Match[str]) -> str:
    """Return the link for `docs/PAGE.md` or `docs/PAGE.md, "Heading"`."""
    title, *headings = re.findall(r"^#+ (.+)", (DOCS / page[1]).read_text(), re.M)
    to = os.path.relpath(place(f"docs/{page[1]}"), "api")
    heading = (page[2] or "").strip("`")
    if not heading:
        return f"[{title}]({to})"
    if heading not in headings:
        logger.warning("no heading %r in %s", heading, page[0])
    return f"[{title}: {heading}]({to}#{slugify(case='lower')(heading, '-')})"
