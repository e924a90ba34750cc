"""The program `blueque`. It loads each verb only when it is used, so its help is quick."""

from __future__ import annotations

import gc
import importlib
import os
import sys

import click

from blueque.cli.exits import run
from blueque.cli.options import (
    COMPLETE,
    WITH_SHORT_HELP,
    Invocation,
    shared_options,
    version_option,
)

# The verbs in the order of the help, which loads none of them. Each is a function of its name in
# the module of its name in cli/verbs/.
_GROUPS = {
    "Each day": {
        "status": "Show queues, running tasks, hosts, and what needs attention.",
        "enqueue": "Put a task in a queue and print its id.",
        "run": "Put a task in a queue, show its output, and exit when it ends.",
        "wait": "Wait until tasks have ended, and show how they ended.",
        "ls": "List tasks; by default those that are running or in line.",
        "show": "Show everything about a task.",
        "logs": "Show or follow what tasks print.",
        "why": "Explain why a task does not run, and what to do.",
        "cancel": "Cancel waiting or running tasks.",
        "requeue": "Put failed or cancelled tasks in line again.",
        "web": "Serve a web page that shows all of this.",
        "dev": "Run Redis, a scheduler, a listener and the page for development.",
    },
    "More about tasks": {
        "history": "Show or follow the events of a task or of queues.",
        "graph": "Show which tasks a task waits for, and which wait for it.",
        "stack": "Show where a running Python task is in its code.",
        "interrupt": "Stop running tasks and put them first in line.",
        "delete": "Delete finished tasks, or the waiting tasks of a queue.",
        "move": "Move waiting tasks to another queue, priority or place.",
    },
    "Groups of verbs": {
        "task": "All verbs for tasks, under one name.",
        "queue": "List, show, set, pause, resume and forget queues.",
        "host": "List, show, pause, resume and drain hosts.",
        "schedule": "Manage recurring tasks.",
        "group": "List, show, close, cancel, requeue and forget groups.",
    },
    "Data": {
        "feed": "Enqueue a task for each row of files, in order and once.",
        "archive": "Move finished tasks from Redis into Parquet files.",
        "export": "Write tasks as JSON lines or as CSV.",
    },
    "Reports": {
        "stats": "Show how many tasks completed or failed, and how long they took.",
        "failures": "Show the errors of tasks, how often each occurs, and the newest.",
        "timeline": "Show which tasks ran when, and on which host.",
        "tags": "List the tags of tasks, and how many tasks have each.",
    },
    "Administration": {
        "doctor": "Check Redis and all data of Blueque in it, and repair it.",
        "config": "Show every setting and the source of its value.",
        "metrics": "Serve Prometheus metrics.",
        "init": "Write files for systemd, Docker, Kubernetes or Slurm.",
        "acl": "Print or check the permissions of Redis users.",
        "completion": "Print the completion script for bash, zsh or fish.",
        "help": "Explain a verb, a word, the exit codes or the states.",
    },
    "In a task": {
        "progress": "Report the progress of this task.",
        "note": "Add a line to the history of this task.",
    },
}
VERBS = {verb: summary for group in _GROUPS.values() for verb, summary in group.items()}


class _Verbs(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"blueque.cli.verbs.{cmd_name}")
        command: click.Command = getattr(module, cmd_name)
        if ctx.resilient_parsing:  # a shell asks what could come next
            from blueque.cli.verbs.completion import (
                complete_from_redis,
            )  # here: nothing else needs it

            complete_from_redis(command)
        command.short_help = VERBS[cmd_name]
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in VERBS and not args[0].startswith("-"):
            from blueque.cli.advice import of_verb  # here: only for a mistake

            ctx.fail(f"unknown verb {args[0]!r}.{of_verb(args, ctx)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, VERBS))
        for label, verbs in _GROUPS.items():
            with formatter.section(label):
                formatter.write_dl(
                    [(f"{verb:<{width}}", summary) for verb, summary in verbs.items()]
                )
        formatter.write_paragraph()
        formatter.write_text("ID is the beginning of an id; - reads ids from standard input.")
        formatter.write_text(
            "More about a verb: blueque VERB --help; about words: blueque help words"
        )


@click.group(
    cls=_Verbs,
    invoke_without_command=True,
    subcommand_metavar="[VERB [ARGS]...]",
    context_settings=WITH_SHORT_HELP,
)
@shared_options
@version_option
@click.pass_context
def blueque(context: click.Context, invocation: Invocation) -> None:
    """\b
    A queue for long tasks on plain Redis. Without a verb it shows the status.
    blueque enqueue video.encode '{"input": "a.mov"}'
    """
    if context.invoked_subcommand is not None:
        return
    from blueque.cli.verbs.status import print_status  # here: --help does not need it

    print_status(invocation, invocation.as_json)


def main() -> None:
    """Run the blueque program."""
    gc.set_threshold(100_000)  # a verb ends before collecting garbage pays
    if asked := os.environ.get(COMPLETE):
        from click.shell_completion import shell_complete  # here: nothing else needs it

        sys.exit(shell_complete(blueque, {"obj": Invocation()}, "blueque", COMPLETE, asked))
    run(blueque, "blueque")


if __name__ == "__main__":
    main()
