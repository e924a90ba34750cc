"""The program `blueque`. It loads each verb only when it is used, so its help is quick."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Iterable

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
    "Watch": {
        "status": "Show queues, running tasks, hosts, and what needs attention.",
        "web": "Show all of this in a browser.",
        "ls": "List tasks; by default those that run or are in line.",
        "show": "Show everything about a task.",
        "why": "Say why a task does not run, and what helps.",
        "graph": "Show for which tasks a task waits, and which wait for it.",
        "logs": "Show or follow what tasks print.",
        "history": "Show the events of a task, or follow those of queues.",
        "timeline": "Show what ran when on which host.",
        "stack": "Show where a running Python task is in its code.",
        "schedule": "Manage recurring tasks.",
        "node": "List, pause, resume and drain listeners and hosts.",
        "stats": "Show how many tasks ended how, and how long they took.",
        "failures": "Show what tasks fail with, how often, and the newest.",
        "metrics": "Serve Prometheus metrics.",
        "tags": "List the tags of tasks, with how many have each.",
    },
    "Put in": {
        "enqueue": "Put a task in a queue and print its id.",
        "run": "Put a task in a queue, show its output, and exit as it does.",
        "wait": "Wait until tasks have ended, and say how.",
        "feed": "Make a task of each row of files, in order and once.",
    },
    "Change": {
        "cancel": "Cancel tasks, whether they wait or run.",
        "interrupt": "Take running tasks off their listeners, to run again.",
        "requeue": "Put failed or cancelled tasks in line again.",
        "unblock": "Have blocked tasks no longer wait for others.",
        "delete": "Delete finished tasks for good.",
        "priority": "Change the priority of waiting tasks.",
        "first": "Make pending tasks the next of their line.",
        "move": "Move waiting tasks to another queue.",
        "pause": "Make listeners take nothing from a queue.",
        "resume": "Make listeners take tasks from a queue again.",
        "limit": "Set how many tasks of a queue may run at a time.",
        "queue": "List, pause, limit, set, purge and forget queues.",
        "group": "List, show, close, cancel, requeue and forget groups.",
    },
    "Keep": {
        "archive": "Move finished tasks from Redis into Parquet files.",
        "export": "Write tasks as JSON lines or as CSV.",
        "prune": "Delete finished tasks that have been kept long enough.",
        "gc": "Clean up after producers that stopped halfway.",
        "doctor": "Check Redis and everything that Blueque has in it.",
    },
    "Set up": {
        "dev": "Run a Redis, a scheduler, a listener and the page here.",
        "config": "Show every setting and the source of its value.",
        "init": "Write files for systemd, Docker, Kubernetes or Slurm.",
        "completion": "Print the completion script for bash, zsh or fish.",
        "help": "Explain a verb, a word, the exit codes or the states.",
    },
    "In a task": {
        "progress": "Report how far this task is.",
        "note": "Add a line to the history of this task.",
    },
}
_VERBS = {verb: summary for group in _GROUPS.values() for verb, summary in group.items()}

# Names in other programs; blueque-listener and blueque-scheduler are programs, not verbs.
_SYNONYMS = {
    **dict.fromkeys(("retry", "rerun", "restart"), "requeue"),
    **dict.fromkeys(("kill", "abort", "stop", "revoke", "term", "terminate"), "cancel"),
    **dict.fromkeys(("preempt", "evict"), "interrupt"),
    **dict.fromkeys(("list", "tasks", "ps", "jobs"), "ls"),
    **dict.fromkeys(("find", "search", "grep"), "ls --text"),
    **dict.fromkeys(("peek", "next"), "ls --state pending"),
    **dict.fromkeys(("dashboard", "ui", "serve", "flower"), "web"),
    **dict.fromkeys(("submit", "add", "push", "put", "send", "delay", "apply_async"), "enqueue"),
    **dict.fromkeys(("log", "tail", "output", "follow"), "logs"),
    **dict.fromkeys(("info", "describe", "inspect", "get", "task"), "show"),
    **dict.fromkeys(("result", "results"), "show ID, or blueque export --group NAME"),
    **dict.fromkeys(("rm", "remove", "forget"), "delete"),
    **dict.fromkeys(("top", "monitor"), "status --watch"),
    **dict.fromkeys(("nodes", "workers", "listeners", "hosts"), "node ls"),
    **dict.fromkeys(("gpus", "resources"), "node show NODE"),
    **dict.fromkeys(("drain", "quiet"), "node drain"),
    **dict.fromkeys(("queues", "lines", "count", "size"), "queue ls"),
    **dict.fromkeys(("purge", "clear"), "queue purge"),
    "clean": "prune",
    **dict.fromkeys(("stat", "statistics"), "stats"),
    **dict.fromkeys(("errors", "failed"), "failures"),
    **dict.fromkeys(("events", "watch"), "history"),
    **dict.fromkeys(("audit", "activity", "who"), "history -q '*' --on people"),
    **dict.fromkeys(("check", "health"), "doctor"),
    **dict.fromkeys(("dag", "tree", "dependencies", "deps"), "graph"),
    "unhold": "unblock",
    **dict.fromkeys(
        ("workflow", "workflows", "runs", "batch", "batches", "groups", "feeds"), "group ls"
    ),
    "exporter": "metrics",
    "settings": "config",
    **dict.fromkeys(("schedules", "recurring", "cron"), "schedule ls"),
    "scheduled": "ls --state scheduled",
    **dict.fromkeys(("listener", "listen", "worker", "work", "start"), "blueque-listener"),
    **dict.fromkeys(("scheduler", "beat"), "blueque-scheduler"),
}


def hint(typed: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown verb: its name here, or a similar one."""
    meant = _SYNONYMS.get(typed.lower())
    if meant is None:
        from blueque.cli.advice import like  # here: all else does without

        return like(typed, known)
    return f" Use: {meant}" if meant.startswith("blueque-") else f" Use: blueque {meant}"


class _Verbs(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _VERBS:
            return None
        module = importlib.import_module(f"blueque.cli.verbs.{cmd_name}")
        command: click.Command = getattr(module, cmd_name)
        if ctx.resilient_parsing:  # a shell asks what could come next
            from blueque.cli.verbs.completion import (
                complete_from_redis,
            )  # here: all else does without

            complete_from_redis(command)
        command.short_help = _VERBS[cmd_name]
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in _VERBS and not args[0].startswith("-"):
            ctx.fail(f"unknown verb {args[0]!r}.{hint(args[0], _VERBS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, _VERBS))
        for label, verbs in _GROUPS.items():
            with formatter.section(label):
                formatter.write_dl(
                    [(f"{verb:<{width}}", summary) for verb, summary in verbs.items()]
                )
        formatter.write_paragraph()
        formatter.write_text("More about a verb: blueque VERB --help")


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
    from blueque.cli.verbs.status import print_status  # here: --help does without

    print_status(invocation, as_json=False)


def main() -> None:
    """Run the blueque program."""
    gc.set_threshold(100_000)  # a verb ends before collecting garbage pays
    if asked := os.environ.get(COMPLETE):
        from click.shell_completion import shell_complete  # here: all else does without

        sys.exit(shell_complete(blueque, {"obj": Invocation()}, "blueque", COMPLETE, asked))
    run(blueque, "blueque")


if __name__ == "__main__":
    main()
