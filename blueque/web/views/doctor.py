"""What the server says about itself, and what was left half made."""

from __future__ import annotations

from blueque.audit.doctor import Doctor
from blueque.web import fence
from blueque.web.visit import Page, Visit

FRESH = 10.0  # seconds for which the checks are used again


def doctor(visit: Visit) -> Page:
    """Return the checks that read no key of a task; `blueque doctor` looks at each."""
    reader = visit.reader
    connections = reader.client.connections
    checks = reader.shared("doctor", lambda: Doctor(connections, visit.site.serve).check(), FRESH)
    return Page("doctor.html", {"checks": fence.checks(checks, visit.site)})
