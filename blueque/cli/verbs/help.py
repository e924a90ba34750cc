"""`blueque help`: about a verb, or a word."""

from __future__ import annotations

import click

from blueque.cli import failure, printing
from blueque.cli.failure import USAGE, Failure
from blueque.cli.options import Invocation, pass_invocation, shared_options
from blueque.cli.states import ALIASES

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
# Of listeners, in `blueque node ls`.
LISTENERS = {
    "up": "it takes tasks",
    "draining": "it takes nothing new, and leaves when its task has ended",
    "paused": "it takes nothing until blueque node resume; the task that it has goes on",
    "silent": "its beat has stood still for its lease: it hangs, its machine is away, or Redis is, from there",
    "unattended": "a program uses it as a library: it does not beat, and nobody can tell whether it lives",
    "1.0.0": "it is of that version, which tells nothing of itself",
    "dead": "others have found it so; what it had not started is in line again",
    "gone": "it is not registered any more, and has left a task behind",
}
# What else is said of one word: what comes next, and what helps.
_MORE = {
    "scheduled": "blueque-scheduler, or a listener of its queue, puts it in line then. See: blueque schedule ls",
    "pending": "Why it is not taken yet: blueque why ID. Never to run: blueque cancel ID",
    "reserved": "If its listener dies before the start, it is in line again.",
    "started": "It will be complete, failed or cancelled. See: blueque logs -f ID. To end it: blueque cancel ID",
    "complete": "Its result is in: blueque show ID",
    "failed": "Why: blueque show ID, blueque logs ID. To run it again: blueque requeue ID",
    "cancelled": "Who and why: blueque show ID. To run it again: blueque requeue ID",
    "silent": "What it runs is lost when that lasts: blueque node show HOST",
    "dead": "What it ran goes on, if its process lives: a listener started there with the same spool adopts it.",
    "gone": "Start blueque-listener there with the same spool: it adopts the task. See: blueque doctor",
}
# Words that are shown, and are no states.
WORDS = {
    "cancelling": "it runs, and somebody wants it cancelled: it has its grace to end. See: blueque show ID",
    "lost": "an error type: its listener died, and nobody was left who could end the attempt; it is failed, or runs again "
    "if its policy allows. To run all again: blueque requeue --failed QUEUE --error-type lost",
    "poison": "an error type: it was lost too often to be tried again. See: blueque show ID",
    "overdue": "it is scheduled, its time has come, and nobody has put it in line: start blueque-scheduler",
}
# Things that have no state.
THINGS = {
    "attempt": "one run of a task, numbered from 1; a retry is the next attempt. See: blueque history ID",
    "beat": "what a listener writes into Redis every 10 s, or --beat, to show that it lives",
    "feed": "a file or directory whose rows become tasks little by little, for more than Redis could hold",
    "grace": "the time between SIGTERM and SIGKILL for a task that is to end: 30 s, or --grace",
    "handler": "the Python callable (--run) or the program (--exec) that a listener runs for each task",
    "host": "a machine that listeners run on. See: blueque node ls",
    "key": "a name for the work of a task, given by who enqueues it: the same key in the same queue is the same task",
    "lease": "the time without a beat after which a listener counts as silent: 60 s, or --lease",
    "line": "the tasks of a queue that wait with the same priority and the same needs, the oldest first",
    "listener": "a process that takes one task at a time from its queues and watches over it: blueque-listener QUEUE",
    "node": "a listener as Redis knows it, by the name of its host and its process: HOST_PID",
    "policy": "when a task that failed is run again by itself: --retry",
    "run": "many tasks that are enqueued under one name, so that each of their keys makes one task in it: --run NAME",
    "slot": "a place for one task at a time; blueque-listener --slots N has N of them, each a listener of its own",
    "spool": "the directory where a listener keeps the files of its attempts, such as their output: --spool, BLUEQUE_SPOOL",
}
_TOPICS = {
    "exit-codes": {f"{code:3}": meaning for code, meaning in EXIT_CODES.items()},
    "states": STATES,
    "listeners": LISTENERS,
    "words": dict(sorted({**WORDS, **THINGS}.items())),
}


@click.command("help")
@click.argument(
    "words", nargs=-1, metavar="[VERB | verbs | exit-codes | states | listeners | words | WORD]"
)
@shared_options
@pass_invocation
@click.pass_context
def help_verb(context: click.Context, invocation: Invocation, words: tuple[str, ...]) -> None:
    """Explain a verb, all verbs in a line each, the exit codes, the states of tasks or listeners, or one word.

    \b
    blueque help verbs
    blueque help exit-codes
    blueque help words
    blueque help started
    blueque help node drain
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
    """Return what a word means, in a line each; of one that is none of ours, nothing."""
    if word in ALIASES and word not in {*STATES, *WORDS}:
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
    """Return what each verb does, in a line."""
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
    """Return what to say of words of which this one is no verb, nor is all of them a word that is
    explained.
    """
    from blueque.cli.main import hint, like  # here: that module is the program itself

    known = command.list_commands(context) if isinstance(command, click.Group) else []
    topics = ["verbs", *_TOPICS, *STATES, *LISTENERS, *WORDS, *THINGS]
    more = hint(word, [*known, *topics]) if word == words[0] else like(word, known)
    return f"there is no verb {printing.clean(' '.join(words))!r}, and no such word{more and f'.{more}'}"


def _of_verb(context: click.Context, command: click.Command, words: tuple[str, ...]) -> str:
    """Return the help of a verb, or of one of its own."""
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
