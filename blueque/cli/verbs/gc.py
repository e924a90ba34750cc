"""`blueque gc`: finish or remove what interrupted runs have left."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from blueque.cli import printing
from blueque.cli.consent import require_consent
from blueque.cli.failure import ATTENTION
from blueque.cli.named import queues_matching
from blueque.cli.options import (
    DURATION,
    Invocation,
    dry_run_option,
    json_option,
    pass_invocation,
    shared_options,
    yes_option,
)
from blueque.cli.printing import count
from blueque.errors import RunDropped, WrongRun

if TYPE_CHECKING:
    from blueque.producer.abandoned_runs import Leftover, Leftovers

_WEEK = 7 * 86400.0


@click.command()
@click.argument("names", nargs=-1, metavar="[QUEUE...]")
@click.option(
    "--older-than",
    type=DURATION,
    default=_WEEK,
    metavar="DURATION",
    help="Only runs that have not changed for so long; default 7d.",
)
@dry_run_option("Only show what would be done.")
@yes_option
@json_option
@shared_options
@pass_invocation
def gc(
    invocation: Invocation,
    names: Sequence[str],
    older_than: float,
    dry_run: bool,
    is_sure: bool,
    as_json: bool,
) -> int:
    """Clean up after runs that were interrupted and not begun again.

    \b
    blueque gc --dry-run
    blueque gc render --older-than 2d --yes

    The tasks of a decided run are put in line, if no program has done so for a minute. An undecided run is forgotten and
    its staged tasks are deleted; it asks first. A run that a program works on is left alone. The exit code is 75 if
    something could not be done, or a program works on the run again.
    """
    from blueque.producer.abandoned_runs import Leftovers  # here: --help does without

    client = invocation.client()
    abandoned = Leftovers(client.connections)
    found = abandoned.find(queues_matching(client.get_inspector().queues(), names), older_than)
    done: list[bool] = []
    if not dry_run:
        _ask(found, is_sure)
        done = [_end(abandoned, run) for run in found]
    pairs = list(zip(found, done or [False] * len(found), strict=True))
    if as_json:
        items = [_item(run) | ({} if dry_run else {"done": is_done}) for run, is_done in pairs]
        printing.print_json("gc", dry_run=dry_run, items=items)
    else:
        _print(pairs, dry_run)
    if not found:
        printing.talk("nothing to clean up")
    return 0 if dry_run or all(done) else ATTENTION


def _ask(found: Sequence[Leftover], is_sure: bool) -> None:
    undecided = [run for run in found if run.way != "finish"]
    if undecided:
        chunks = count(sum(len(run.chunks) for run in undecided), "staged chunk")
        facts = f"{count(len(undecided), 'undecided run')} with {chunks} would be forgotten"
        require_consent(is_sure, facts, "Forget them?", [_sentence(run) for run in found])


def _end(abandoned: Leftovers, run: Leftover) -> bool:
    try:
        return abandoned.end(run)
    except (RunDropped, WrongRun) as error:
        printing.talk(str(error))
        return False


def _print(pairs: Iterable[tuple[Leftover, bool]], dry_run: bool) -> None:
    for run, is_done in pairs:
        failed = "" if dry_run or is_done else "  not done: a program works on it"
        click.echo(printing.clean(_sentence(run)) + failed)


def _sentence(run: Leftover) -> str:
    what = {
        "finish": f"decided, {count(run.record['unpublished'], 'chunk')} to be put in line",
        "discard": f"{count(len(run.chunks), 'staged chunk')} that were not chosen",
        "drop": f"open, {count(len(run.chunks), 'staged chunk')}",
    }[run.way]
    return f"{run.run}  {run.queue}  {what}, for {printing.span(run.age)}"


def _item(run: Leftover) -> dict[str, Any]:
    return {
        "queue": run.queue,
        "run": run.run,
        "way": run.way,
        "chunks": len(run.chunks),
        "age_seconds": round(run.age, 3),
    }
