"""`blueque help`: about a verb, or a word."""

from __future__ import annotations

import click

from blueque.cli import failure, show
from blueque.cli.failure import USAGE, Failure
from blueque.cli.options import Invocation, pass_invocation, shared_options

EXIT_CODES = {
    0: "done; of wait and run: the task is complete",
    failure.BUG: "unexpected error: a bug, please report it",
    failure.USAGE: "wrong usage, or a beginning that fits several ids",
    failure.MISSING: "no such task, queue or node",
    failure.NOT_COMPLETE: "the awaited task failed, was cancelled or lost (wait, run)",
    failure.REFUSED: "the task, queue or node is not in a state that allows it",
    failure.UNCONFIRMED: "it needs a yes, and there is no terminal to ask on, or it was a no",
    failure.AWAY: "Redis does not answer, or cannot serve now",
    failure.ATTENTION: "works, but somebody should look (status --check, doctor)",
    failure.FORBIDDEN: "not allowed: password, ACL, read-only replica",
    failure.CONFIGURATION: "environment, file or server set up wrongly",
    failure.TIMED_OUT: "what was waited for has not come in time",
    failure.INTERRUPTED: "Ctrl-C",
    failure.PIPE: "nobody reads the output any more",
    143: "ended by SIGTERM; a daemon that was told to leave ends with 0",
}
STATES = {
    "scheduled": "it is to be put in line at a time to come, its eta",
    "pending": "it stands in line, and waits for a listener",
    "reserved": "a listener has it, and is about to start it",
    "started": "it runs",
    "complete": "it has ended well",
    "failed": "it has ended badly, or was lost with its listener; nobody runs it again",
    "cancelled": "somebody did not want it any more",
}
_TOPICS = {"exit-codes": {f"{code:3}": meaning for code, meaning in EXIT_CODES.items()}, "states": STATES}


@click.command("help", short_help="Explain a verb, all verbs, exit codes, or the states of a task.")
@click.argument("words", nargs=-1, metavar="[VERB | verbs | exit-codes | states]")
@shared_options
@pass_invocation
@click.pass_context
def help_verb(context: click.Context, invocation: Invocation, words: tuple[str, ...]) -> None:
    """Explain a verb, all verbs in a line each, the exit codes, or the states of a task.

    \b
    blueque help verbs
    blueque help exit-codes
    blueque help node drain
    """
    outer = context.parent or context
    topic = _verbs(outer) if words == ("verbs",) else _TOPICS.get(" ".join(words))
    if topic is not None:
        width = max(map(len, topic))
        for name, meaning in topic.items():
            click.echo(f"{name:<{width}}  {meaning}")
        return
    click.echo(_of_verb(outer, outer.command, words))


def _verbs(outer: click.Context) -> dict[str, str]:
    """Return what each verb does, in a line."""
    group = outer.command
    found: dict[str, str] = {}
    if isinstance(group, click.Group):
        for name in group.list_commands(outer):
            command = group.get_command(outer, name)
            if command is not None:
                found[name] = command.get_short_help_str(limit=66)
    return found


def _of_verb(context: click.Context, command: click.Command, words: tuple[str, ...]) -> str:
    """Return the help of a verb, or of one of its own."""
    for word in words:
        found = command.get_command(context, word) if isinstance(command, click.Group) else None
        if found is None:
            what = show.clean(" ".join(words))
            raise Failure(USAGE, f"there is no verb {what!r}, and no such word", "See: blueque help help")
        command = found
        context = click.Context(command, parent=context, info_name=word)
    return command.get_help(context)
