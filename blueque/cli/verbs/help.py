"""`blueque help`: explain a verb or a word."""

from __future__ import annotations

import click

from blueque.cli import failure, printing
from blueque.cli.failure import USAGE, Failure
from blueque.cli.options import Invocation, text_options
from blueque.cli.states import ALIASES

EXIT_CODES = {
    0: "success; for wait and run: the task is complete",
    failure.BUG: "unexpected error: a bug, please report it",
    failure.USAGE: "wrong usage, or an ID that matches several tasks",
    failure.MISSING: "no such task, group, queue or node",
    failure.NOT_COMPLETE: "the awaited task failed, was cancelled or lost (wait, run)",
    failure.REFUSED: "the task, group, queue or node is not in a state that allows it",
    failure.UNCONFIRMED: "not confirmed: no terminal to ask on, or the answer was not yes",
    failure.AWAY: "Redis does not answer, or cannot serve now",
    failure.ATTENTION: "something needs attention (status --check, doctor), or try again",
    failure.FORBIDDEN: "not allowed: password, ACL, read-only replica",
    failure.CONFIGURATION: "wrong configuration of the environment, the file or the server",
    failure.TIMED_OUT: "the timeout came first",
    failure.INTERRUPTED: "Ctrl-C",
    failure.PIPE: "the output was closed",
    143: "ended by SIGTERM; daemons then exit with 0",
}
STATES = {
    "blocked": "it waits for other tasks to end: blueque enqueue --after",
    "scheduled": "it will be put in line at a later time, its eta",
    "pending": "it is in line and waits for a listener",
    "reserved": "a listener has taken it and is about to start it",
    "started": "it runs",
    "complete": "it has succeeded",
    "failed": "it has failed for good, or was lost with its listener",
    "cancelled": "a person or a program has cancelled it",
}
# Of listeners, in `blueque host ls`.
LISTENERS = {
    "up": "it takes tasks",
    "draining": "it takes nothing new, and exits when its task has ended",
    "paused": "it takes nothing until blueque host resume; its task runs on",
    "silent": "no beat for its lease: it hangs, or its host is down or cut off from Redis",
    "unattended": "a program that uses Blueque as a library: it sends no beats",
    "1.0.0": "it is of version 1.0.0, which sends no beats",
    "dead": "another process has found it dead; tasks that it had not started are in line again",
    "gone": "it is no longer registered, and has left a task behind",
}
# What comes next, and what helps.
_MORE = {
    "blocked": "To see what it waits for: blueque graph ID, blueque why ID",
    "scheduled": "blueque-scheduler or a listener of its queue puts it in line. See: blueque ls --state scheduled",
    "pending": "To see why it waits: blueque why ID. To cancel it: blueque cancel ID",
    "reserved": "If its listener dies before the start, it is in line again.",
    "started": "To see its output: blueque logs -f ID. To end it: blueque cancel ID",
    "complete": "To see its result: blueque show ID",
    "failed": "To see why: blueque show ID, blueque logs ID. To run it again: blueque requeue ID",
    "cancelled": "To see by whom and why: blueque show ID. To run it again: blueque requeue ID",
    "silent": "If it stays silent, its tasks are lost. See: blueque host show HOST",
    "dead": "If its task still runs, a listener started there with the same spool adopts it.",
    "gone": "Start blueque-listener there with the same spool: it adopts the task. See: blueque doctor",
}
# Words that are shown but are not states.
WORDS = {
    "interrupting": "it is to end: its listener sends SIGTERM, and kills it after its grace. Then it runs again",
    "cancelling": "it is to end: its listener sends SIGTERM, and kills it after its grace. See: blueque show ID",
    "held": "it is blocked and cannot go on: it waits for a task that failed, was cancelled or is gone. See: blueque ls --state held",
    "lost": "an error type: its listener died and no other one adopted it; without a retry policy it failed. To run all again: "
    "blueque requeue -q QUEUE --error-type lost",
    "poison": "an error type: it was lost too often to run again. See: blueque show ID",
    "overdue": "its time has come, but it was not put in line: start blueque-scheduler",
}
# Things without a state.
THINGS = {
    "batch": "a group that a single call makes of the tasks of one queue, each with a key: blueque enqueue --lines --key-field "
    "--group, or enqueue_many. See: blueque group ls",
    "attempt": "one run of a task, numbered from 1; a retry is the next attempt. See: blueque history ID",
    "beat": "what a listener writes into Redis every 10 s, or --beat, to show that it lives",
    "feed": "files whose rows become tasks bit by bit: they may be larger than Redis. See: blueque feed --help",
    "group": "a named set of tasks of any queues, which other tasks can wait for. See: blueque group ls",
    "grace": "the time between SIGTERM and SIGKILL when a task is stopped: 30 s, or --grace",
    "handler": "the Python callable (--handler) or the program (--exec) that a listener runs for each task",
    "host": "a machine that listeners run on. See: blueque host ls",
    "key": "a name for the work of a task, chosen by the producer: a second task with the same key is not made. Keys "
    "count for each queue; in a call that makes many tasks in a group, for that queue and group",
    "lease": "the time without a beat after which a listener counts as silent: 60 s, or --lease",
    "line": "the pending tasks of a queue that have the same priority and the same needs, in the order in which listeners take "
    "them",
    "listener": "a process that takes one task at a time from its queues and supervises it: blueque-listener QUEUE",
    "node": "the id of a listener, of its host and its process: HOST_PID",
    "policy": "the rule by which a failed task runs again: --retry",
    "schedule": "a recurring task: a name, and a rule for the times of its tasks. See: blueque schedule ls",
    "slot": "a place for one task at a time; blueque-listener --slots N has N of them, each a listener of its own",
    "workflow": "a group of tasks that wait for each other, all made at once or not at all; only Python can make it. See: blueque "
    "group ls",
    "spool": "the directory where a listener keeps the files of its attempts, such as their output: --spool, BLUEQUE_SPOOL",
}
_TOPICS = {
    "exit-codes": {f"{code:3}": meaning for code, meaning in EXIT_CODES.items()},
    "states": STATES,
    "listeners": LISTENERS,
    "words": dict(sorted({**WORDS, **THINGS}.items())),
}


@click.command()
@click.argument(
    "words", nargs=-1, metavar="[VERB | verbs | exit-codes | states | listeners | words | WORD]"
)
@text_options
@click.pass_context
def help(context: click.Context, invocation: Invocation, words: tuple[str, ...]) -> None:
    """Explain a verb, list all verbs, exit codes or states, or explain one word.

    \b
    blueque help verbs
    blueque help started
    blueque help host drain
    """
    outer = context.parent or context
    topic = _verbs(outer) if words == ("verbs",) else _TOPICS.get(" ".join(words))
    if topic is not None:
        width = max(map(len, topic))
        for name, meaning in topic.items():
            printing.print_wrapped(meaning, f"{name:<{width}}  ")
        return
    if words and (meanings := _meanings(" ".join(words).lower())):
        for meaning in meanings:
            printing.print_wrapped(meaning)
        if not isinstance(outer.command, click.Group) or words[
            0
        ] not in outer.command.list_commands(outer):
            return
        click.echo()  # it is a verb, too
    click.echo(_of_verb(outer, outer.command, words))


def _meanings(word: str) -> list[str]:
    """Return the meanings of a word, one line each; [] if it is unknown."""
    if word in ALIASES and word not in {*STATES, *WORDS, *THINGS}:
        return [f"{word}: the state is called {ALIASES[word]}", *_meanings(ALIASES[word])]
    if word in THINGS:
        return [f"{word}: {THINGS[word]}"]
    found = [
        f"{word}, {of}: {meanings[word]}"
        for of, meanings in (
            ("of a task", STATES),
            ("of a listener", LISTENERS),
            ("of a task", WORDS),
        )
        if word in meanings
    ]
    if found and word in _MORE:
        found.append(_MORE[word])
    if not found and word.isdecimal() and int(word) in EXIT_CODES:
        found = [f"exit code {word}: {EXIT_CODES[int(word)]}"]
    return found


def _verbs(outer: click.Context) -> dict[str, str]:
    """Return a line for each verb."""
    group = outer.command
    found: dict[str, str] = {}
    if isinstance(group, click.Group):
        for name in group.list_commands(outer):
            command = group.get_command(outer, name)
            if command is not None:
                found[name] = command.get_short_help_str(limit=66)
    return found


def _unknown(
    context: click.Context, command: click.Command, words: tuple[str, ...], word: str
) -> str:
    """Return the message about words that are neither a verb nor a word that is explained."""
    from blueque.cli.advice import of_verb  # here: only for a mistake
    from blueque.cli.synonyms import MEANT

    more = ""
    if f"help {word}" in MEANT:
        more = f" Use: {MEANT[f'help {word}']}"
    elif isinstance(command, click.Group):
        topics = ["verbs", *_TOPICS, *STATES, *LISTENERS, *WORDS, *THINGS]
        more = of_verb([word], context, topics if word == words[0] else ())
    return f"unknown verb or word {printing.clean(' '.join(words))!r}{more and f'.{more}'}"


def _of_verb(context: click.Context, command: click.Command, words: tuple[str, ...]) -> str:
    """Return the help of a verb or of its subcommand."""
    for word in words:
        found = command.get_command(context, word) if isinstance(command, click.Group) else None
        if found is None:
            raise Failure(
                USAGE,
                _unknown(context, command, words, word),
                "See: blueque help verbs, blueque help words",
            )
        command = found
        context = click.Context(command, parent=context, info_name=word)
    return command.get_help(context)
