"""Elements of HTML and SVG; the only place where text is escaped for them.

A chart has no viewBox. Horizontal values are in percent, so that it fits any width. Vertical values
are in pixels, so that text and lines keep their size. Paths, which cannot use percent, are in a
stretched chart within it.
"""

from __future__ import annotations

import html
from collections.abc import Iterable

from markupsafe import Markup

from blueque.text.format import clean

WIDTH = 1000  # the width of a stretched chart, in its own units


def text(value: object, longest: int = 0) -> Markup:
    """Return a text escaped for an element or an attribute, and cut to `longest` characters."""
    shown = str(value)
    if longest and len(shown) > longest:
        shown = shown[: longest - 1] + "…"
    return Markup(_escaped(shown))


def tag(name: str, *content: str, **attributes: object) -> Markup:
    """Return an element. content: elements, and text, which is escaped. attributes: `_` is `-`,
    `class_` is class, and None is left out.
    """
    named = {
        key.strip("_").replace("_", "-"): value
        for key, value in attributes.items()
        if value is not None
    }
    said = "".join([f' {key}="{_escaped(str(value))}"' for key, value in named.items()])
    inner = "".join([one if isinstance(one, Markup) else _escaped(one) for one in content])
    return str.__new__(Markup, f"<{name}{said}>{inner}</{name}>")  # a log has thousands of these


def picture(says: str, height: float, *content: str, class_: str | None = None) -> Markup:
    """Return an SVG of full width, described for screen readers. With links, it is a group."""
    role = "group" if any("<a " in each for each in content) else "img"
    return tag(
        "svg",
        *content,
        class_=class_,
        role=role,
        aria_label=says,
        height=number(height),
        width="100%",
    )


def ornament(width: str, height: int, *content: str, class_: str | None = None) -> Markup:
    """Return an SVG beside a text that says the same."""
    return tag("svg", *content, class_=class_, width=width, height=height, aria_hidden="true")


def stretched(height: float, *content: str) -> Markup:
    """Return a chart within a chart, WIDTH units wide at any width."""
    return tag(
        "svg",
        *content,
        width="100%",
        height=number(height),
        viewBox=f"0 0 {WIDTH} {number(height)}",
        preserveAspectRatio="none",
    )


def path(points: Iterable[str], class_: str) -> Markup:
    return tag("path", d="".join(points), class_=class_)


def rect(
    x: float, y: float, width: float, height: float, class_: str | None, tip: str = ""
) -> Markup:
    """Return a rectangle; x and width are shares of the whole. tip: shown under a pointer."""
    return tag(
        "rect",
        *([tag("title", tip)] if tip else ()),
        x=percent(x),
        y=number(y),
        width=percent(width),
        height=number(height),
        class_=class_,
    )


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    return tag("line", x1=percent(x1), y1=number(y1), x2=percent(x2), y2=number(y2), class_=class_)


def label(x: float, y: float, said: str, class_: str, dx: int | None = None) -> Markup:
    return tag("text", said, x=percent(x), y=number(y), dx=dx, class_=f"tick {class_}".strip())


def percent(share: float) -> str:
    return f"{number(100 * share, 3)}%"


def number(value: float, places: int = 2) -> str:
    """Return a number without trailing zeros."""
    shown = f"{value:.{places}f}"
    if "." in shown:
        shown = shown.rstrip("0").rstrip(".")
    return "0" if shown == "-0" else shown


def _escaped(value: str) -> str:
    return html.escape(clean(value))
