"""`blueque queue set` and `queue show`: what holds for the tasks of a queue on all nodes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import click

from blueque.cli import printing
from blueque.cli.failure import USAGE, Failure
from blueque.cli.options import Invocation, json_option, shared_options
from blueque.cli.printing import Column
from blueque.cli.queue_control import queues_there, queues_there_or_new, warn_of_1_0_0
from blueque.cli.setting_text import given_settings
from blueque.documents.orders import of_queue_show
from blueque.errors import InvalidInput
from blueque.settings.file import check_setting, require_setting

_COLUMNS = [Column("QUEUE", can_shrink=True), Column("NAME"), Column("VALUE", can_shrink=True)]


@click.command("set", short_help="Set what holds for the tasks of a queue on all nodes.")
@click.argument("pattern", metavar="QUEUE")
@click.argument("words", metavar="[NAME=VALUE]...", nargs=-1)
@click.option(
    "--unset", "removed", metavar="NAME", multiple=True, help="Remove this setting; repeatable."
)
@click.option("--by", metavar="NAME", help="Who sets it; default USER@HOST.")
@json_option
@shared_options
def set_settings(
    invocation: Invocation,
    pattern: str,
    words: Sequence[str],
    removed: Sequence[str],
    by: str | None,
    as_json: bool,
) -> None:
    """Set what holds for the tasks of a queue that say nothing else, on all nodes.

    \b
    blueque queue set video.encode time_limit=2h memory_limit=8GiB retry=3
    blueque queue set 'render.*' weight=5 retention.failed=never
    blueque queue set video.encode 'retry={"max": 3, "backoff": 60}' --unset time_limit

    max_pending=1000 bounds the queue: new tasks that do not fit are refused; with discard=oldest, the oldest make room.

    The other names are weight, retry, time_limit, stall_limit, memory_limit, grace, lead, retention.complete, retention.failed
    and retention.cancelled, and the values are those of [queues.X] in blueque.toml; false: no retry, no limit. What the
    task says goes first, then the options of a listener, [queues.X] of its blueque.toml, and its handler; what
    [listener] and [retention] say comes after the setting. `blueque config -q QUEUE` shows what holds here.

    Listeners know a setting within a beat, 10 s; those of 1.0.0 know none. Limits hold for attempts that start then. A
    retry policy also holds for tasks that run: it is your consent that they run again.
    """
    settings = given_settings(words)
    both = settings.keys() & {*removed}
    if both or not (settings or removed):
        what = f"{min(both)} is both set and removed" if both else "name a setting: time_limit=2h"
        raise click.UsageError(what)
    try:
        for name in (*settings, *removed):
            require_setting(name)
            if name in settings:
                check_setting(name, settings[name])
    except InvalidInput as error:
        raise Failure(USAGE, str(error)) from error
    client = invocation.client()
    inspector = client.get_inspector()
    names = (queues_there_or_new if settings else queues_there)(inspector, [pattern])
    for name in names:
        wanted = {**settings, **dict.fromkeys(removed)}
        is_new = client.get_queue(name).set_settings(wanted, by)
        if not as_json:
            click.echo(f"{printing.clean(name)}  {'set' if is_new else 'unchanged'}")
    warn_of_1_0_0(inspector, names)
    if as_json:
        printing.print_json("queue_set", **of_queue_show(inspector, names))


@click.command("show", short_help="Show pause, limit and settings of a queue.")
@click.argument("pattern", metavar="QUEUE")
@json_option
@shared_options
def show_queue(invocation: Invocation, pattern: str, as_json: bool) -> None:
    """Show pause, limit and settings of a queue, as they are in Redis.

    \b
    blueque queue show video.encode

    `blueque config -q QUEUE` shows what holds for the tasks of a listener here.
    """
    inspector = invocation.client().get_inspector()
    content = of_queue_show(inspector, queues_there(inspector, [pattern]))
    if as_json:
        printing.print_json("queue_show", **content)
        return
    rows = [
        [item["queue"], name, value] for item in content["items"] for name, value in _rows(item)
    ]
    printing.print_table(_COLUMNS, rows)


def _rows(item: dict[str, Any]) -> Iterator[tuple[str, str]]:
    why = f": {item['paused_reason']}" if item["paused_reason"] else ""
    yield "paused", f"by {item['paused_by'] or 'an unknown user'}{why}" if item["paused"] else "no"
    limit = item["max_concurrency"]
    yield "limit", f"{'none' if limit is None else limit}, {item['running']} running"
    yield "pending", str(item["pending"])
    for name, value in item["settings"].items():
        yield name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
