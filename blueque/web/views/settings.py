"""The page on which a viewer chooses a time zone and colours."""

from __future__ import annotations

from zoneinfo import available_timezones

from blueque.web.visit import Page, Visit


def settings(visit: Visit) -> Page:
    """Return the page with what a viewer may choose."""
    return Page("settings.html", {"zones": sorted(available_timezones()), "is_live": False})
