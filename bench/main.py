"""bin/bench: its arguments; runs the cases one after the other, keeps the numbers, and writes the
page.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

import psutil
import redis

from bench import against, report, soaks
from bench.cases import CASES
from bench.comparing import COMPARISONS
from bench.load import Quiet, machine
from bench.setting import FAILURES, Bench, Outcome, open_stage, reason, work_directory
from bench.systems import SYSTEMS, System
from bench.venvs import ROOT, InstallFailed, clean_environment, install, python_of
from blueque.system.process import become_subreaper
from blueque.version import __version__

PATIENCE = 60.0  # seconds that all runs together wait for others to be quiet
ROUNDS = 5
ABOUT = """\
Measure Blueque beside its peers, and write docs/benchmarks.md.

It prints what was promised and measured, too. A/A there is the same thing measured twice in
each round, the second time to the first, or else a round to the round before: a difference as
small as that shows nothing.

With --against COMMIT, measure this checkout (changes that are not committed and new files
included) and COMMIT, and print the processor time of a task by process, and the memory of a
slot. Both start anew in each of 15 rounds, each with a Redis of its own, and take turns in
blocks of a fraction of a second, so that other load slows both alike. The ratio is the median
of the ratios of the rounds; its 95 % interval is made of their order statistics. "Not slower"
means that the interval for all processes together includes 1.03 or less. Exit codes: 0 no case
is slower, 1 one is slower, 2 one could not be measured."""


def main() -> None:
    arguments = _arguments()
    signal.signal(signal.SIGTERM, _stop)  # so that whatever was started is ended
    become_subreaper()
    if arguments.against:
        with work_directory(arguments.directory):
            code = _compare(arguments)
        sys.exit(code)
    output = Path(arguments.output)
    pictures = output / "benchmarks"
    pictures.mkdir(parents=True, exist_ok=True)
    kept = pictures / "results.json"
    known: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {"cases": {}}
    if not arguments.write_only:
        with work_directory(arguments.directory):
            _run(arguments, known, kept)
    known.setdefault("facts", {})
    names = [case for case in CASES if case.name in known["cases"]]
    numbers = {case.name: report.current(case, known["cases"][case.name]) for case in names}
    long_runs = {
        kind: json.loads(path.read_text())
        for kind in soaks.KINDS
        if (path := pictures / f"soak-{kind}.json").exists()
    }
    text = report.page(
        known["facts"], known.get("versions", {}), names, numbers, soaks.part(long_runs)
    )
    (output / "benchmarks.md").write_text(text)
    (pictures / "promises.csv").write_text(report.promises_csv(names, numbers))
    _draw(report.drawings(names, numbers), pictures)
    if arguments.write_only:
        print("\n\n".join(report.whole(case, numbers[case.name]) for case in names) + "\n")
    print(report.targets(names, numbers))
    print(f"written: {output / 'benchmarks.md'}")


def _compare(arguments: argparse.Namespace) -> int:
    rounds = arguments.rounds or against.ROUNDS
    return against.compare(
        arguments.against, arguments.cases, rounds, arguments.scale, arguments.patience
    )


def _run(arguments: argparse.Namespace, known: dict[str, Any], kept: Path) -> None:
    began = time.monotonic()
    systems, versions, missing = _install(
        [one for one in SYSTEMS if one.key in ("blueque", *arguments.peers)]
    )
    with open_stage() as stage:
        bench = Bench(
            stage, systems, arguments.rounds or ROUNDS, arguments.scale, Quiet(arguments.patience)
        )
        bench.not_installed = missing
        known["facts"] = {
            **machine(),
            "Redis": stage.version(),
            "spool on": _file_system(stage.directory),
        }
        known["versions"] = versions
        for case in CASES:
            if case.name not in arguments.cases:
                continue
            print(f"{case.title} ({time.monotonic() - began:.0f} s)", flush=True)
            bench.quiet.seen = []
            bench.twice = frozenset(target.ours[0] for target in case.targets)
            try:
                outcome = case.run(bench)
            except FAILURES as error:
                outcome = Outcome(failed={"blueque": reason(error)})
            known["cases"][case.name] = _numbers(outcome, bench)
            _print(case, known["cases"][case.name])
            kept.write_text(_as_text(known))
    print(f"all of it took {time.monotonic() - began:.0f} s", flush=True)


def _numbers(outcome: Outcome, bench: Bench) -> report.Numbers:
    def exact(values: list[float]) -> list[float]:
        return [float(f"{value:.5g}") for value in values]

    def of_rows(rows: dict[str, dict[str, list[float]]]) -> dict[str, dict[str, list[float]]]:
        return {
            row: {metric: exact(values) for metric, values in its.items()}
            for row, its in rows.items()
        }

    return {
        "rounds": bench.rounds,
        "scale": bench.scale,
        "load": exact(bench.quiet.seen),
        "failed": outcome.failed,
        "rows": of_rows(outcome.rows),
        "again": of_rows(outcome.again),
        "samples": {row: exact(values) for row, values in outcome.samples.items()},
    }


def _as_text(known: dict[str, Any]) -> str:
    """Return it as JSON, a line for each row: a file that can be read, and compared with the one
    before.
    """
    text = json.dumps(known, indent=1)
    return re.sub(r"\[[^][{}]*\]", lambda found: " ".join(found[0].split()), text) + "\n"


def _print(case: Any, numbers: report.Numbers) -> None:
    print(report.rows_table(case, numbers), flush=True)
    for row, why in numbers["failed"].items():
        print(f"{row} is missing: {why}", flush=True)


def _install(systems: list[System]) -> tuple[list[System], dict[str, str], dict[str, str]]:
    """Return those that could be installed, the versions of all, and why the others are missing."""
    there: list[System] = []
    versions: dict[str, str] = {}
    missing: dict[str, str] = {}
    for system in systems:
        if system.key == "blueque":
            versions[system.name] = f"{__version__}, this checkout; redis-py {redis.__version__}"
            there.append(system)
            continue
        try:
            found = install(system.key, system.requirements)
        except InstallFailed as error:
            missing[system.key] = reason(error)
            continue
        versions[system.name] = (
            f"{found.get(system.package, '?')}, with redis-py {found.get('redis', '?')}"
        )
        there.append(system)
    return there, versions, missing


def _draw(drawings: list[report.Drawing], directory: Path) -> None:
    try:
        install("plot", ["matplotlib"])
        subprocess.run(
            [str(python_of("plot")), str(ROOT / "bench" / "plots.py"), str(directory)],
            input=json.dumps(drawings),
            env=clean_environment(),
            text=True,
            check=True,
            timeout=120,
        )
    except (InstallFailed, OSError, subprocess.SubprocessError) as error:
        print(f"no pictures: {error}", file=sys.stderr)


def _file_system(directory: Path) -> str:
    mounts = {mount.mountpoint: mount for mount in psutil.disk_partitions(all=True)}
    places = [str(place) for place in [directory, *directory.parents] if str(place) in mounts]
    if not places:
        return "?"
    mount = mounts[places[0]]
    if mount.fstype != "ext4":
        return mount.fstype
    has_journal = any(Path("/proc/fs/jbd2").glob(f"{Path(mount.device).name}-*"))
    return "ext4" if has_journal else "ext4 without a journal"


def _arguments() -> argparse.Namespace:
    as_written = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="bin/bench", description=ABOUT, formatter_class=as_written
    )
    cases = [case.name for case in CASES]
    peers = [system.key for system in SYSTEMS if system.key != "blueque"]
    compared = [case.name for case in COMPARISONS]
    parser.add_argument(
        "--against", metavar="COMMIT", help="compare this checkout with COMMIT; write no page"
    )
    parser.add_argument(
        "--directory",
        metavar="DIR",
        help="where spools, logs and the files of Redis are written; default: $TMPDIR",
    )
    parser.add_argument(
        "--cases",
        nargs="+",
        choices=sorted({*cases, *compared}),
        metavar="CASE",
        help=f"{', '.join(cases)}; with --against only {', '.join(compared)}",
    )
    parser.add_argument(
        "--peers", nargs="*", choices=peers, default=peers, metavar="PEER", help=", ".join(peers)
    )
    parser.add_argument(
        "--rounds", type=int, metavar="N", help=f"{ROUNDS}, or {against.ROUNDS} with --against"
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, help="sizes times this; 1 is what the page is made with"
    )
    parser.add_argument(
        "--patience",
        type=float,
        default=PATIENCE,
        help="seconds to wait for others to be quiet, in all",
    )
    parser.add_argument(
        "--output",
        default=str(ROOT / "docs"),
        help="where benchmarks.md and benchmarks/ are written",
    )
    parser.add_argument(
        "--write-only",
        action="store_true",
        help="measure nothing; write the page from the numbers kept, and print the tables of all cases",
    )
    arguments = parser.parse_args()
    known = compared if arguments.against else cases
    arguments.cases = arguments.cases or known
    if unknown := set(arguments.cases) - set(known):
        how = "--against" if arguments.against else "a run without --against"
        parser.error(f"{how} cannot measure {', '.join(sorted(unknown))}")
    return arguments


def _stop(number: int, frame: object) -> NoReturn:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
