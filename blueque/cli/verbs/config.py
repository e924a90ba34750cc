"""`blueque config`: show the values in effect, and where each comes from."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from blueque.cli import printing
from blueque.cli.linux_only import require_linux
from blueque.cli.options import Invocation, shared_options
from blueque.cli.printing import Column

if TYPE_CHECKING:
    from blueque.settings.resolver import Found

_COLUMNS = [Column("NAME"), Column("VALUE", can_shrink=True), Column("FROM", can_shrink=True)]


@click.command()
@click.option("-q", "--queue", metavar="QUEUE", help="Show handler and defaults of this queue.")
@click.option("--example", is_flag=True, help="Print a file with every setting, commented out.")
@shared_options
def config(invocation: Invocation, queue: str | None, example: bool) -> None:
    """Show the values in effect, and where each comes from: an option, the environment, the file, or the default.

    \b
    blueque config
    blueque config --config staging.toml --json
    blueque config -q video.encode
    blueque config --example > blueque.toml

    The values under listener. are those that blueque-listener would use if you started it here without options. Passwords
    are not shown. docs/configuration.md explains every value.

    With -q it shows the handler of a queue and the defaults of its tasks. FROM may then also be the handler whose
    decorator sets the value, or Redis, for values of `blueque queue set`.
    """
    if example:
        from blueque.settings import example as generated

        click.echo(generated.text(), nl=False)
        return
    require_linux()  # it says what a listener here would do
    from blueque.cli.effective import effective, of_queue  # here: --help does not need it

    found = list(effective(invocation) if queue is None else of_queue(invocation, queue))
    file = invocation.config.path
    if invocation.as_json:
        items = [
            {"name": one.key, "value": one.value, "origin": one.origin, "place": one.place}
            for one in found
        ]
        printing.print_json("config", file=file, queue=queue, items=items)
        return
    rows = [[one.key, _shown(one.value), _origin(one)] for one in found]
    printing.print_table(_COLUMNS, rows)
    if file is None:
        printing.talk(
            "No blueque.toml in ./, ~/.config/blueque/ or /etc/blueque/. Name one with --config FILE or "
            "BLUEQUE_CONFIG, or write one: blueque config --example > blueque.toml"
        )


def _shown(value: object) -> str:
    if value in (None, (), [], {}, ""):
        return "-"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _origin(found: Found) -> str:
    kind = "" if found.origin in ("file", "option") else found.origin.replace("redis", "Redis")
    return " ".join(part for part in (kind, found.place) if part)
