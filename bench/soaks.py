"""The part of the page about long runs of chaos, from what bin/soak has measured. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.report import table

KINDS = {"plain": "one server", "tls-sentinel": "a primary, two replicas and Sentinels, with TLS"}
UNITS = {"memory": ("memory, MiB", 1 << 20), "bytes": ("KiB", 1 << 10)}
HEAD = """\
## What is left after hours of faults?

`bin/soak 2h --chaos` kills, freezes and cuts off listeners, keepers, tasks, hosts, a scheduler, the network and Redis, one every
second or two, while tasks run, wait, fail, repeat and are cancelled; `bin/soak 2h --tls-sentinel` replaces the primary as well.
Lost is a task that was accepted and has not ended, doubled one that has started twice without consent. Beside all this, a
listener of two slots, a scheduler and a page that nobody ends live through every outage, with six short tasks each second,
which are deleted after a few seconds. What they use is the median of the first, a middle and the last tenth of the samples,
and of several processes that of the largest; growth is the slope of the line of least squares through the second half."""


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
    tables = [table(["", *(KINDS[kind] for kind in known)], facts)]
    for kind in known:
        tables += [f"In use, with {KINDS[kind]}:", _used(runs[kind])]
        told = [f"- {sentence}" for sentence in runs[kind]["wrong"]]
        tables += [part for part in ("\n".join(told), runs[kind].get("remark")) if part]
    return "\n\n".join([HEAD, *tables])


def _used(run: Mapping[str, Any]) -> str:
    lines = []
    for whose, what, *values in run["rows"]:
        name, unit = UNITS.get(what, (what, 1))
        digits = 1 if unit > 1 else 0
        *ends, slope = (value / unit for value in values)
        figures = [f"{value:,.{digits}f}" for value in ends]
        lines.append([f"{whose}: {name}", *figures, f"{slope:+,.{digits + 1}f}"])
    return table(["", "first", "middle", "last", "growth by 1,000 tasks"], lines)
