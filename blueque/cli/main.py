"""The program `blueque`. Its verbs are loaded when they are used: its help, read most, costs next to nothing."""

from __future__ import annotations

import importlib
from difflib import get_close_matches

import click

from blueque.cli.exits import run
from blueque.cli.options import Invocation, pass_invocation, shared_options, version_option
from blueque.errors import RedisAway

# name: (module, its command)
_VERBS = {
    "status": ("blueque.cli.status", "status"),
    "ls": ("blueque.cli.tasks", "ls"),
    "show": ("blueque.cli.tasks", "show_task"),
    "why": ("blueque.cli.why", "why"),
    "logs": ("blueque.cli.logs", "logs"),
    "doctor": ("blueque.cli.doctor", "doctor"),
    "enqueue": ("blueque.cli.enqueue", "enqueue"),
    "feed": ("blueque.cli.feed", "feed"),
    "feeds": ("blueque.cli.feeds", "feeds"),
    "cancel": ("blueque.cli.cancel", "cancel"),
    "requeue": ("blueque.cli.requeue", "requeue"),
    "priority": ("blueque.cli.waiting", "priority"),
    "first": ("blueque.cli.waiting", "first"),
    "move": ("blueque.cli.waiting", "move"),
    "pause": ("blueque.cli.queues", "pause"),
    "resume": ("blueque.cli.queues", "resume"),
    "limit": ("blueque.cli.queues", "limit"),
    "runs": ("blueque.cli.runs", "runs"),
    "gc": ("blueque.cli.runs", "gc"),
    "node": ("blueque.cli.node", "node"),
    "archive": ("blueque.cli.archive", "archive"),
    "progress": ("blueque.cli.telling", "progress"),
}
# What the help says, in so few lines that it fits a terminal.
_HELP = [
    ("status, ls, node", "Everything on one screen; list tasks; drain nodes."),
    ("show, why, logs", "All about a task; why it waits; what it prints."),
    ("doctor, runs, gc", "Check everything; show runs, and clear up after them."),
    ("enqueue, feed, feeds", "Put tasks in a queue; feed it from files; how far."),
    ("cancel, requeue", "Have tasks never run, or end; put them in line again."),
    ("priority, first, move", "Have waiting tasks run sooner, later, or elsewhere."),
    ("pause, resume, limit", "Have nothing, or only so many tasks, of a queue run."),
    ("archive, progress", "Move ended tasks into files; in a task: how far."),
]


class _Verbs(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _VERBS:
            return None
        module, name = _VERBS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in _VERBS and not args[0].startswith("-"):
            close = get_close_matches(args[0], _VERBS, n=1)
            ctx.fail(f"there is no verb {args[0]!r}." + (f" Did you mean {close[0]}?" if close else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl(_HELP)


@click.group(cls=_Verbs, invoke_without_command=True, subcommand_metavar="[VERB [ARGS]...]")
@shared_options
@version_option
@pass_invocation
@click.pass_context
def blueque(context: click.Context, invocation: Invocation) -> None:
    """A queue for tasks that run from minutes to days, on plain Redis.
    Alone it prints the status. More about a verb: blueque VERB --help

    \b
    blueque enqueue video.encode '{"input": "a.mov"}'
    """
    if context.invoked_subcommand is not None:
        return
    from blueque.cli.status import print_status  # here: --help does without

    try:
        print_status(invocation, as_json=False)
    except RedisAway as error:
        click.echo(f"{error} (from {invocation.address()[1]})\n", err=True)
        click.echo(context.get_help())


def main() -> None:
    """Run the blueque program."""
    run(blueque, "blueque")


if __name__ == "__main__":
    main()
