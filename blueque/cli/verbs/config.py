"""`blueque config`: show the values in effect, and where each comes from."""

from __future__ import annotations

import json
from pathlib import Path

import click

from blueque.cli import printing
from blueque.cli.effective import Setting, effective
from blueque.cli.effective_of_queue import of_queue
from blueque.cli.failure import MISSING, REFUSED, USAGE, Failure
from blueque.cli.options import Invocation, debug_option, json_option, shared_options
from blueque.cli.printing import Column
from blueque.text.hints import amount

_COLUMNS = [Column("NAME"), Column("VALUE", can_shrink=True), Column("FROM", can_shrink=True)]
_SIZES = (
    "max_bytes",
    "listener.spool_limit",
    "listener.log_limit",
    "listener.memory_limit",
    "memory_limit",
)
_NONE = "-"  # no limit, no value


queue_option = click.option(
    "-q", "--queue", metavar="QUEUE", help="What holds for the tasks of this queue."
)


@click.group(invoke_without_command=True, subcommand_metavar="[VERB [ARGS]...]")
@queue_option
@json_option
@shared_options
@click.pass_context
def config(
    context: click.Context, invocation: Invocation, queue: str | None, as_json: bool
) -> None:
    """Show the values in effect, and where each comes from: an option, the environment, the file, or the default.

    \b
    blueque config
    blueque config --config staging.toml --json
    blueque config -q video.encode

    The values under listener. are those that blueque-listener would use if you started it here without options. Passwords
    are not shown. docs/configuration.md explains every value.

    With -q: what runs the tasks of a queue, and what holds for those of them that say nothing themselves. If modules are
    named, they are imported, and FROM names the handler whose decorator says a value. FROM is Redis for what `blueque
    queue set` has set; if Redis does not answer, that is left out, and a remark says so.
    """
    if context.invoked_subcommand is None:
        _print(invocation, queue, as_json)


@config.command("show", short_help="The same as blueque config alone.")
@queue_option
@json_option
@shared_options
def show_values(invocation: Invocation, queue: str | None, as_json: bool) -> None:
    """Show the values in effect, and where each comes from, as `blueque config` alone does.

    \b
    blueque config show --json
    """
    _print(invocation, queue, as_json)


def _print(invocation: Invocation, queue: str | None, as_json: bool) -> None:
    found = list(effective(invocation) if queue is None else of_queue(invocation, queue))
    if as_json:
        printing.print_json(
            "config",
            file=invocation.config.path,
            queue=queue,
            items=[{**setting._asdict(), "line": None} for setting in found],
        )
        return
    rows = [[setting.name, _shown(setting), _origin(setting)] for setting in found]
    printing.print_table(_COLUMNS, rows)


@config.command()
@json_option
@shared_options
def path(invocation: Invocation, as_json: bool) -> None:
    """Print which file is read; the exit code is 3 if there is none."""
    found = invocation.config.path
    if as_json:
        printing.print_json("config_path", path=found)
    if found is None:
        raise Failure(
            MISSING,
            "no blueque.toml is read",
            "Write one: blueque config init. Where it may lie: --config FILE,"
            " BLUEQUE_CONFIG, ./, ~/.config/blueque/, /etc/blueque/.",
        )
    if not as_json:
        click.echo(printing.clean(found))


@config.command(short_help="Write a file with every value.")
@click.argument("file", metavar="[FILE]", default="blueque.toml")
@debug_option
def init(file: str) -> None:
    """Write a file with every value and its meaning, commented out. It overwrites nothing.

    \b
    blueque config init /etc/blueque/blueque.toml
    """
    example = Path(__file__).parents[1].joinpath("example.toml").read_text()
    try:
        with open(file, "x", encoding="utf-8") as new:
            new.write(example)
    except FileExistsError as error:
        advice = "Nothing was written. Give another name, or move the file away."
        raise Failure(REFUSED, f"{file} already exists", advice) from error
    except OSError as error:
        raise Failure(USAGE, f"cannot write {file}: {error.strerror}") from error
    click.echo(printing.clean(file))


def _shown(setting: Setting) -> str:
    value = setting.value
    if setting.name in _SIZES and isinstance(value, int):
        return amount(value)
    if value is None or value is False or value in ({}, []):
        return _NONE if value is not False else "false"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _origin(setting: Setting) -> str:
    kind = "" if setting.origin in ("file", "option") else setting.origin.replace("redis", "Redis")
    return " ".join(part for part in (kind, setting.place) if part)
