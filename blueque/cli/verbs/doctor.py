"""`blueque doctor`: check the server and everything that Blueque has in it, and repair it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from blueque.cli import printing
from blueque.cli.failure import ATTENTION
from blueque.cli.options import Invocation, shared_options
from blueque.cli.values import DURATION
from blueque.connection.address import hide_password
from blueque.documents.doctor import level_of, of_doctor
from blueque.errors import Contended, RedisRefused
from blueque.version import __version__

if TYPE_CHECKING:
    from blueque.audit.audit import Finding, Report
    from blueque.audit.doctor import Doctor
    from blueque.audit.server_check import Check

ROUNDS = 5  # one repair may make another one visible

# The mark before a line, and the state whose colour it has.
_MARKS = {
    "ok": ("ok", "complete"),
    "warn": ("warn", "reserved"),
    "fail": ("FAIL", "failed"),
    "unknown": ("?", ""),
}
_INDENT = 6
# What each repair does, or does about findings with some codes.
_REPAIRS = {
    "align_task": "remove that entry",
    "missing": "put it there",
    "untold": "have it told",
    "both": "remove that",
    "stump": "remove that",
    "left_behind": "remove that",
    "align_line": "list it as it should be",
    "empty_line": "forget it",
    "bad_line": "forget it",
    "align_queue": "make them agree",
    "score": "count again",
    "schedule_queue": "list it",
    "unknown_queue": "list it",
    "align_schedule": "make them agree",
    "recover": "put it in line again",
    "deregister": "forget it",
    "recheck": "look at its conditions again",
    "drop_stale": "remove that entry",
    "settle_members": "note how it stands",
    "finish_group": "look at it",
}


@click.command()
@click.option(
    "--fix", is_flag=True, help="Repair what can be repaired without starting anything twice."
)
@click.option(
    "--settle",
    type=DURATION,
    default="2s",
    show_default=True,
    help="How long a problem must last to be reported.",
)
@shared_options
def doctor(invocation: Invocation, fix: bool, settle: float) -> int:
    """Check Redis and all data of Blueque in it.

    \b
    blueque doctor
    blueque doctor --fix

    It reads every key with SCAN, as no other verb does: run it by hand, not all the time. The exit code is 75 if there is
    a failure or a warning.

    --fix also cancels a workflow whose producer stopped a day ago, before all of its tasks were there: it can never
    run.
    """
    from blueque.audit.doctor import Doctor  # here: --help does not need it

    the_doctor = Doctor(invocation.client().connections, invocation.serve)
    fixed = the_doctor.give_up_workflows(invocation.by) if fix else []
    checks = the_doctor.check(settle)
    report = the_doctor.audit(settle)
    checks += the_doctor.judge_keys(report.payload_keys)
    if fix:
        report = _repair(the_doctor, report, settle, fixed)
    for finding in report.findings:
        invocation.wrong_types.kinds.pop(finding.key, None)  # said once
    levels = [
        *(check.level for check in checks),
        *(level_of(finding) for finding in report.findings),
    ]
    if invocation.as_json:
        _print_json(invocation, checks, report, fixed)
    else:
        _print_text(invocation, checks, report, fixed, fix)
        click.echo(_summary(levels.count("fail"), levels.count("warn"), len(fixed)))
    return ATTENTION if {"fail", "warn"} & set(levels) else 0


def _repair(the_doctor: Doctor, report: Report, settle: float, fixed: list[Finding]) -> Report:
    """Repair what can be repaired; return the findings that are left."""
    for _ in range(ROUNDS):
        repaired = [
            finding
            for finding in report.findings
            if finding.fix and _is_repaired(the_doctor, finding)
        ]
        if not repaired:
            break
        fixed += repaired
        report = the_doctor.audit(settle)
    return report


def _is_repaired(the_doctor: Doctor, finding: Finding) -> bool:
    try:
        return the_doctor.repair(finding)
    except (RedisRefused, Contended) as error:  # of this one; the others may work
        printing.talk(f"{finding.fix} {finding.key}: {error}")
        return False


def _print_text(
    invocation: Invocation,
    checks: list[Check],
    report: Report,
    fixed: list[Finding],
    is_fixing: bool,
) -> None:
    url, origin = invocation.address()
    _print_line("ok", f"blueque {__version__} at {hide_password(url)} ({origin})")
    for check in checks:
        _print_line(check.level, check.sentence)
    counts = f"{printing.count(report.queues, 'queue')}, {printing.count(report.tasks, 'task')}"
    if not report.findings:
        _print_line("ok", f"{counts}: every task is in exactly one place.")
    for finding in fixed:
        _print_line("ok", f"fixed: {finding.sentence}")
    for finding in report.findings:
        would = _REPAIRS.get(finding.code) or _REPAIRS.get(finding.fix or "")
        advice = "" if is_fixing or finding.fix is None else f" --fix would {would}."
        _print_line(level_of(finding), finding.sentence + advice)


def _print_line(level: str, text: str) -> None:
    mark, state = _MARKS[level]
    lines = [printing.clean(text)]
    if printing.is_terminal():
        lines = printing.wrapped(lines[0], printing.terminal_width() - _INDENT)
    first, *others = lines
    click.echo(f"{printing.paint(mark.ljust(_INDENT), state)}{first}".rstrip())
    for other in others:
        click.echo(" " * _INDENT + other)


def _summary(failures: int, warnings: int, fixed: int) -> str:
    said = [
        printing.count(count, word)
        for count, word in ((failures, "failure"), (warnings, "warning"))
        if count
    ]
    return ", ".join([*said, *([f"{fixed} fixed"] if fixed else [])]) or "all is well"


def _print_json(
    invocation: Invocation, checks: list[Check], report: Report, fixed: list[Finding]
) -> None:
    url, origin = invocation.address()
    printing.print_json(
        "doctor", **of_doctor(checks, report, fixed, (hide_password(url), origin), time.time())
    )
