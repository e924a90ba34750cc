"""The part of the page about long runs of chaos, from what bin/soak has measured. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from bench.report import WIDTH, table

KINDS = {"plain": "one server", "tls-sentinel": "a primary, two replicas and Sentinels, with TLS"}
HEAD = """\
## What is left after hours of faults?

`bin/soak 2h --chaos` causes a fault every second or two. It kills, freezes or cuts off listeners, keepers, tasks, hosts, a
scheduler, the network and Redis. Meanwhile tasks run, wait, fail, repeat and are cancelled. `bin/soak 2h --tls-sentinel` also
replaces the primary. A task is *lost* if it was accepted and has not ended, and *doubled* if it started twice without consent.

A listener of two slots, a scheduler and a page live through every fault, with six short tasks a second. The table shows their
memory at the beginning, in the middle and at the end: the median of a tenth of the samples, and of several processes the largest.
`benchmarks/soak-*.json` also have descriptors, files, keys in Redis, and the growth per 1,000 tasks."""


def part(runs: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the part. runs: the results of chaos, by the kind of Redis; empty: no part."""
    known = [kind for kind in KINDS if kind in runs]
    if not known:
        return ""
    facts = [
        ["minutes", *(f"{runs[kind]['minutes']:g}" for kind in known)],
        ["Redis", *(str(runs[kind]["redis"]) for kind in known)],
        ["faults", *(f"{sum(runs[kind]['faults'].values()):,}" for kind in known)],
        *(
            [what, *(f"{runs[kind][what]:,}" for kind in known)]
            for what in ("tasks", "starts", "lost", "doubled")
        ),
    ]
    rows = [
        [f"{whose}: memory, MiB", *(_memory(runs[kind], whose) for kind in known)]
        for whose, what, *_ in runs[known[0]]["rows"]
        if what == "memory"
    ]
    parts = [table(["", *(KINDS[kind] for kind in known)], [*facts, *rows])]
    for kind in known:
        wrong, remark = runs[kind]["wrong"], runs[kind].get("remark")
        if wrong:
            lines = f" (`soak-{kind}.json` has the lines)" if remark else ""
            parts.append(f"**What went wrong with {KINDS[kind]}**{lines}:")
            parts.append(
                textwrap.fill(remark, WIDTH) if remark else "\n".join(f"- {line}" for line in wrong)
            )
    return "\n\n".join([HEAD, *parts])


def _memory(run: Mapping[str, Any], whose: str) -> str:
    values = next(row[2:5] for row in run["rows"] if row[:2] == [whose, "memory"])
    return ", ".join(f"{value / (1 << 20):.1f}" for value in values)
