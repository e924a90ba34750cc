"""`blueque dev`: a Redis, a scheduler, a listener and the page, in one command."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from blueque.cli import printing
from blueque.cli.failure import REFUSED, Failure
from blueque.cli.linux_only import require_linux
from blueque.cli.options import Invocation, text_options
from blueque.cli.values import Value, WholeRange
from blueque.cli.web_packages import missing
from blueque.errors import Taken
from blueque.model.units import require_module_name


@click.command()
@click.argument(
    "modules", nargs=-1, metavar="[MODULE]...", type=Value("module", require_module_name)
)
@click.option(
    "--slots",
    type=WholeRange(1, 1000),
    metavar="N",
    default=2,
    show_default=True,
    help="Number of tasks at a time.",
)
@text_options
def dev(invocation: Invocation, modules: Sequence[str], slots: int) -> int:
    """Run everything on a laptop: its own Redis, a scheduler, a listener for the handlers of each MODULE, and the
    page.

    \b
    blueque dev tasks

    The listener restarts when a file of a MODULE changes; running tasks run on. Ctrl-C waits for the running tasks; a
    second one stops them, and their retry policies apply. The data of Redis and the files of attempts stay in
    .blueque/ of this directory. For production: docs/running.md.
    """
    require_linux()
    from blueque.dev.session import Session, Wish  # here: --help does not need it

    wish = Wish(
        modules, bool(modules) or "modules" in invocation.config.listener, slots, _has_page()
    )
    if not wish.has_listener:
        printing.talk("No MODULE is named, so no task runs: blueque dev MODULE")
    try:
        return Session(Path.cwd(), wish, printing.talk).run()
    except Taken as error:
        raise Failure(
            REFUSED, str(error), "End that one first, or use another directory."
        ) from error


def _has_page() -> bool:
    absent = missing()
    if absent:
        printing.talk("The page needs more packages. In the clone of Blueque: pip install '.[web]'")
    return not absent
