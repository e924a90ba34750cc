"""The server's facts, unfinished work, and the faults in any key."""

from __future__ import annotations

from itertools import groupby

from blueque.audit.doctor import Doctor
from blueque.web import own_queues
from blueque.web.visit import Page, Visit

FRESH = 10.0  # seconds for which the checks are used again
MOST = 20  # findings of one code on the page


def doctor(visit: Visit) -> Page:
    """Return the checks that read no key of a task, and the findings of the last scan of every key."""
    reader, site, scan = visit.reader, visit.site, visit.reader.scan.seen()
    connections = reader.client.connections
    checks = reader.shared("doctor", lambda: Doctor(connections, site.serve).check(), FRESH)
    found = scan.report.findings if scan and scan.report else []
    mine = [each for each in found if not site.queues or site.has(each.queue)]
    mine.sort(key=lambda each: (each.is_warning, each.code))
    context = {
        "checks": own_queues.checks(checks, site),
        "scan": scan,
        "findings": [(code, [*some]) for code, some in groupby(mine, lambda each: each.code)],
        "most": MOST,
    }
    return Page("doctor.html", context)
