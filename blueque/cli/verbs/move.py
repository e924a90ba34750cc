"""`blueque move`: change where and when waiting tasks have their turn."""

from __future__ import annotations

from collections.abc import Sequence

import click

from blueque.cli import printing
from blueque.cli.actions import Manner, give, named
from blueque.cli.options import Invocation, shared_options, yes_option
from blueque.cli.values import WholeRange
from blueque.model.lines import HIGHEST, LOWEST


@click.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID... | -")
@click.option(
    "--to", "queue", metavar="QUEUE", help="Move them to the end of their line in this queue."
)
@click.option(
    "--priority",
    type=WholeRange(LOWEST, HIGHEST),
    metavar="N",
    help="Give them this priority: -100 to 100; higher is first, the default is 0.",
)
@click.option("--first", "is_first", is_flag=True, help="Move them to the front of their line.")
@click.option("--now", "is_now", is_flag=True, help="Put scheduled tasks in line now.")
@click.option(
    "--unblock",
    "is_free",
    is_flag=True,
    help="Let blocked tasks run without waiting for other tasks.",
)
@click.option(
    "--from",
    "parents",
    multiple=True,
    metavar="PARENT",
    help="With --unblock: stop waiting only for this task or group; can be repeated.",
)
@yes_option
@shared_options
def move(
    invocation: Invocation,
    ids: Sequence[str],
    queue: str | None,
    priority: int | None,
    is_first: bool,
    is_now: bool,
    is_free: bool,
    parents: Sequence[str],
    is_sure: bool,
) -> int:
    """Move waiting tasks to another queue or priority, to the front, or into line.

    \b
    blueque move 7c1f --to video.fast
    blueque ls -q render --state pending --ids | blueque move - --priority -5
    blueque move 7c1f --first
    blueque move 7c1f --unblock --from 0a4e

    Give one of --to, --priority, --first, --now and --unblock. In another queue tasks keep their priority and needs,
    and the time of a scheduled task. With --priority each task becomes the last of that priority; listeners of 1.0.0
    take only tasks of priority 0. With --first, the first task that you name is the next one. --now puts scheduled
    tasks in line, including those that wait for a retry, and with them the other due tasks of the queue.

    --unblock lets a task run although another task has failed, is gone, or has not ended; the output of that task may
    be missing. For more than one task it asks first.
    """
    from blueque.faces.orders import ORDERS, Given  # here: --help does not need it

    wanted = {
        "move": queue is not None,
        "priority": priority is not None,
        "first": is_first,
        "now": is_now,
        "unblock": is_free,
    }
    if sum(wanted.values()) != 1 or (parents and not is_free):
        why = "--from goes with --unblock" if parents and not is_free else "give one of them"
        raise click.UsageError(f"--to, --priority, --first, --now, --unblock: {why}")
    [verb] = [name for name, is_wanted in wanted.items() if is_wanted]
    client = invocation.client()
    inspector = client.get_inspector()
    to = client.get_queue(queue).name if queue is not None else ""  # refuses what is no name
    is_new = bool(to) and to not in inspector.queues()
    chosen = named(inspector, ids)
    if is_first:
        chosen = chosen._replace(tasks=chosen.tasks[::-1])
    given = Given(invocation.by, value=to or str(priority), parents=parents)
    outcomes, code = give(client, ORDERS[verb], chosen, given, Manner(is_sure, invocation.as_json))
    if is_new and any(outcome.refusal is None for outcome in outcomes):
        printing.talk(f"{to} is a new queue: no listener serves it yet.")
    return code
