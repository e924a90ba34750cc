"""One request for a page: its viewer, its parameters and its time zone; and how times and links are
written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlencode
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from markupsafe import Markup

from blueque.report import svg
from blueque.text.format import span

if TYPE_CHECKING:
    from blueque.web.access import Viewer
    from blueque.web.reader import Reader
    from blueque.web.site import Site

Query = Mapping[str, Sequence[str]]

MOST_NUMBER = 10**9
# Not in a path, which people copy.
ID = re.compile(r"(?<!/)[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
PAGES = (
    ("/", "Overview"),
    ("/queues", "Queues"),
    ("/tasks", "Tasks"),
    ("/nodes", "Hosts"),
    ("/failures", "Failures"),
    ("/schedule", "Schedule"),
    ("/groups", "Groups"),
    ("/statistics", "Statistics"),
)


class Page(NamedTuple):
    """The answer of a view: a template and what it shows."""

    template: str
    context: Mapping[str, Any]
    status: int = 200


@dataclass(frozen=True)
class Visit:
    """One request for a page.

    path: without the prefix. params: the named parts of the path. prefix: where the application is
        mounted. zone, theme: as the viewer has chosen. has_login: a cookie names the viewer, who
        can log out. login: the same for all requests of one login.
    """

    site: Site
    reader: Reader
    path: str
    viewer: Viewer
    now: float
    query: Query = field(default_factory=dict)
    prefix: str = ""
    zone: str = "UTC"
    theme: str = ""
    params: Mapping[str, str] = field(default_factory=dict)
    is_live: bool = False
    has_login: bool = False
    login: str = ""

    @property
    def may_act(self) -> bool:
        """Whether the viewer may change something."""
        return self.viewer.may_act and not self.site.is_read_only

    @property
    def pages(self) -> Sequence[tuple[str, str]]:
        """The pages of the navigation: path and word."""
        return PAGES

    def is_in(self, path: str) -> bool:
        """Return whether this page belongs to one of the navigation."""
        return self.path == path or (path != "/" and self.path.startswith(f"{path}/"))

    @property
    def path_and_query(self) -> str:
        """The address of this page below the prefix."""
        return self.here().removeprefix(self.prefix)

    def one(self, name: str, default: str = "") -> str:
        """Return the last value of a name in the query."""
        values = self.query.get(name)
        return values[-1] if values else default

    def number(self, name: str, default: int, least: int = 0, most: int = MOST_NUMBER) -> int:
        """Return a whole number of the query, within bounds; the default if it is none."""
        text = self.one(name).strip()
        is_number = text.isascii() and text.isdecimal() and len(text) < 10
        return min(max(int(text), least), most) if is_number else default

    def url(self, path: str, **query: Any) -> str:
        """Return the address of a page. query: values that are None or empty are left out."""
        pairs = [(name.rstrip("_"), each) for name, value in query.items() for each in _each(value)]
        # A name that another program has written may be no UTF-8.
        asked = urlencode(pairs, errors="surrogateescape")
        address = f"{self.prefix}{quote(path, errors='surrogateescape')}"
        return f"{address}?{asked}" if asked else address

    def here(self, **changed: Any) -> str:
        """Return the address of this page with other values in its query."""
        return self.url(self.path, **({**self.query} | changed))

    def task_url(self, task_id: str | None) -> str:
        return self.url(f"/tasks/{task_id}")

    def queue_url(self, queue: str | None) -> str:
        return self.url(f"/queues/{queue}")

    def at(self, seconds: float | None) -> datetime | None:
        """Return a time in the zone of the viewer; None if it is outside the calendar."""
        return at(seconds, self.zone)

    def moment(self, seconds: float | None) -> Markup:
        """Return a time: 13:28:03 today, 21 Nov 14:29 of other days, with the year if not this one."""
        there, today = self.at(seconds), self.at(self.now)
        if there is None or today is None or seconds is None:
            return Markup("–")
        if there.date() == today.date():
            shown = f"{there:%H:%M:%S}"
        elif there.year == today.year:
            shown = f"{there.day} {there:%b %H:%M}"
        else:
            shown = f"{there.day} {there:%b %Y %H:%M}"
        return svg.tag("time", shown, title=iso(seconds), datetime=iso(seconds))

    def age(self, seconds: float | None, suffix: str = " ago") -> Markup:
        """Return how long ago something was; the browser keeps counting."""
        if seconds is None:
            return Markup("–")
        shown = f"{span(max(self.now - seconds, 0.0))}{suffix}"
        return svg.tag(
            "time",
            shown,
            title=iso(seconds),
            datetime=iso(seconds),
            data_at=f"{seconds:.3f}",
            data_suffix=suffix or None,
        )

    def linked(self, text: str) -> Markup:
        """Return a text with a link for each task that it names by its id."""

        def link(found: re.Match[str]) -> str:
            return svg.tag("a", found[0][:8], href=self.task_url(found[0]))

        return Markup(ID.sub(link, svg.text(text)))

    def shortened(self, text: str) -> str:
        """Return a text with the first eight characters of each id."""
        return ID.sub(lambda found: found[0][:8], text)

    def lasts(self, seconds: float | None) -> Markup:
        """Return how long something has been going on."""
        return self.age(seconds, "")


def at(seconds: float | None, zone: str) -> datetime | None:
    """Return a time in a zone; None if it is outside the calendar."""
    try:
        return None if seconds is None else datetime.fromtimestamp(seconds, zone_of(zone))
    except (ValueError, OverflowError, OSError):
        return None


def iso(seconds: float | None) -> str | None:
    """Return a time in UTC: 2026-11-22T13:28:03Z."""
    when = at(seconds, "UTC")
    return None if when is None else f"{when:%Y-%m-%dT%H:%M:%SZ}"


@lru_cache(64)
def zone_of(name: str) -> tzinfo:
    """Return a time zone; UTC if there is none of this name."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return UTC


def is_zone(name: str) -> bool:
    """Return whether there is a time zone of this name."""
    return name == "UTC" or zone_of(name) is not UTC


def _each(value: Any) -> Sequence[Any]:
    if value is None or value == "":
        return ()
    return [value] if isinstance(value, str | int | float) else value
