"""Render templates: whole pages, and the parts of a page that change while it is open.

A part is a block whose name begins with `part_`; the element that contains it has the rest of the
name as its id.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from blueque.report.page import environment
from blueque.web.visit import Page, Visit

_PART = "part_"
# What changes by itself while nothing happens: ages, which the browser counts from a moment that stays,
# durations, and the places in pictures.
_AGE = re.compile(r'<time[^>]*data-at="(\d+)[^>]*>[^<]*</time>')
_DURATION = re.compile(r'\d[\d.,]* (?:s|m|h|d)\b|="\d+(?:\.\d+)?%"')


class Pages:
    """The templates of the page."""

    def __init__(self) -> None:
        self._environment = environment("blueque.web")

    def page(self, page: Page, visit: Visit) -> str:
        """Return the whole page."""
        return self._environment.get_template(page.template).render(self._context(page, visit))

    def parts(self, page: Page, visit: Visit) -> dict[str, str]:
        """Return the content of each part by its id."""
        template = self._environment.get_template(page.template)
        context = template.new_context(self._context(page, visit))
        return {
            name.removeprefix(_PART): "".join(block(context))
            for name, block in template.blocks.items()
            if name.startswith(_PART)
        }

    def _context(self, page: Page, visit: Visit) -> dict[str, Any]:
        shared: Mapping[str, Any] = {"visit": visit, "url": visit.url}
        macros = self._environment.get_template("ui.html").make_module({**shared})
        return {**shared, "ui": macros, "is_live": True, **page.context}


def fingerprint(html: str) -> str:
    """Return the content of a part without ages and durations."""
    return _DURATION.sub("", _AGE.sub(r"\1", html))
