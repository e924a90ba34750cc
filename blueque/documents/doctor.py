"""The findings of the doctor, for JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from blueque.documents.schema import to_object
from blueque.text.format import times
from blueque.version import __version__

if TYPE_CHECKING:
    from blueque.audit.audit import Report
    from blueque.audit.observation import Finding
    from blueque.audit.server_check import Check


def of_doctor(
    checks: Iterable[Check],
    report: Report,
    fixed: Iterable[Finding],
    address: tuple[str, str],
    now: float,
) -> dict[str, Any]:
    """Return the content of `doctor`. address: of Redis, without a password, and its source."""
    url, origin = address
    return {
        "version": __version__,
        "redis": {"url": url, "origin": origin},
        **times(now=now),
        "checks": [check._asdict() for check in checks],
        "queues": report.queues,
        "tasks": report.tasks,
        "findings": [_item(finding) for finding in report.findings],
        "fixed": [_item(finding) for finding in fixed],
    }


def level_of(finding: Finding) -> str:
    """Return the level of a finding."""
    return "warn" if finding.is_warning else "fail"


def _item(finding: Finding) -> dict[str, Any]:
    return to_object("one finding", finding, level=level_of(finding))
