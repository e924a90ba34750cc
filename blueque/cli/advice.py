"""What a person means who types a word that the program does not know."""

from __future__ import annotations

from collections.abc import Iterable

import click

# Names in other programs, of the verbs of a group: the first that the group has is meant.
_SUBVERBS: dict[str, tuple[str, ...]] = {
    "list": ("ls",),
    **dict.fromkeys(("edit", "change", "update", "set"), ("set", "add --replace")),
    **dict.fromkeys(("delete", "remove", "rm"), ("rm", "forget")),
    **dict.fromkeys(("create", "new"), ("add",)),
    **dict.fromkeys(("describe", "info", "get"), ("show",)),
    **dict.fromkeys(("retry", "rerun"), ("requeue",)),
    "preview": ("add --dry-run",),
    "check": ("apply --dry-run",),
    "backfill": ("trigger --since",),
}
_OF_GROUPS = ("--run", "--runs", "--batch", "--workflow")
_OPTIONS = {
    **dict.fromkeys(("--count", "--size"), "blueque queue ls, or blueque status, counts tasks"),
    **dict.fromkeys(("--result", "--results"), "blueque show ID and blueque export have results"),
}


def like(typed: str, known: Iterable[str]) -> str:
    """Return a question with the most similar known word; empty if there is none."""
    from difflib import get_close_matches  # here: all else does without

    close = get_close_matches(typed, list(known), n=1)
    return f" Did you mean {close[0]}?" if close else ""


def of_subverb(typed: str, known: Iterable[str]) -> str:
    """Return a question with the verb of a group that is meant; empty if there is none."""
    verbs = list(known)
    for meant in _SUBVERBS.get(typed.lower(), ()):
        if meant.partition(" ")[0] in verbs:
            return f" Did you mean {meant}?"
    return like(typed, verbs)


def of_option(typed: str, context: click.Context | None) -> str:
    """Return what is meant by an unknown option; empty if that is not clear."""
    if typed in _OPTIONS:
        return _OPTIONS[typed]
    if context is None:
        return ""
    if typed in _OF_GROUPS and any("--group" in param.opts for param in context.command.params):
        return "a group is named with --group NAME"
    state = _state(typed.lstrip("-"), context.command)
    return f"did you mean --state {state}?" if state else ""


def of_words(extra: str, context: click.Context) -> str:
    """Return what to write in place of words that a command does not take."""
    word, command = extra.partition(" ")[0], context.command
    if state := _state(word, command):
        return f"{word} is a state: --state {state}"
    arguments = [param for param in command.params if isinstance(param, click.Argument)]
    taken = " ".join(argument.make_metavar(context) for argument in arguments)
    options = {name for param in command.params for name in param.opts}
    advice = ["A queue is given with -q."] if "-q" in options else []
    if taken or not advice:
        are = "argument is" if len(arguments) == 1 else "arguments are"
        advice.append(f"The {are} {taken}." if taken else "There are no arguments.")
    if "JSON" in taken:
        advice.append("Write what has spaces, or quotes as JSON has them, in '...'")
    if any(argument.name == "pattern" for argument in arguments):
        advice.append("Several queues are one pattern in quotes: 'video.*'")
    return " ".join(advice)


def _state(word: str, command: click.Command) -> str | None:
    """Return the state of that name, if the command has an option for it."""
    from blueque.cli.states import ALIASES  # here: --help does without

    choices: list[str] = []
    for param in command.params:
        if "--state" in param.opts:
            choices = [str(choice) for choice in getattr(param.type, "choices", ())]
    name = ALIASES.get(word.lower(), word.lower())
    return name if name in choices else None
