"""Suggestions for words that the program does not know."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher, get_close_matches

import click

from blueque.cli.synonyms import MEANT, OPTIONS, SAME_OPTIONS, VERBS

TIE = 0.14  # of the ratio of two words


def like(typed: str, known: Iterable[str]) -> str:
    """Return a question with the most similar known word; empty if there is none."""
    close = get_close_matches(typed, list(known), n=1)
    return f" Did you mean {close[0]}?" if close else ""


def of_verb(words: Sequence[str], context: click.Context, others: Iterable[str] = ()) -> str:
    """Return the command that was probably meant; empty if that is unclear.

    context: of the program, or of the noun before the words. others: more known words.
    """
    root = context.find_root()
    noun = "" if context is root else context.info_name or ""
    for number in (2, 1):
        phrase = " ".join([*([noun] if noun else []), *words[:number]]).lower()
        if len(words) >= number and phrase in MEANT:
            return f" Use: {MEANT[phrase]}"
    typed = words[0].lower()
    commands = _commands(root, noun)
    if meant := commands.get(typed):
        return f" Use: {_or(meant)}"
    near = _nearest(typed, [*commands, *others])
    lines = dict.fromkeys(line for word in near for line in commands.get(word, [word]))
    if not lines and noun and "show" in commands:
        name = shlex.quote(words[0])
        return f" If that is a name: {_or(commands['show'])} {name}"
    return f" Did you mean {_or([*lines])}?" if lines else ""


def _nearest(typed: str, known: Iterable[str]) -> list[str]:
    """Return the most similar word, and the next one if it is nearly as similar."""
    found = get_close_matches(typed, list(known), n=2)
    ratios = [SequenceMatcher(None, typed, word).ratio() for word in found]
    return [word for word, ratio in zip(found, ratios, strict=True) if ratio > ratios[0] - TIE]


def _commands(root: click.Context, noun: str) -> Mapping[str, Sequence[str]]:
    """Return the command lines by the word that a person may type for each."""
    group, found = root.command, dict[str, list[str]]()
    assert isinstance(group, click.Group)
    names = group.list_commands(root)
    for name in names if not noun else [noun]:
        command = group.get_command(root, name)
        for verb in command.list_commands(root) if isinstance(command, click.Group) else ():
            if noun or verb not in names:
                found.setdefault(verb, []).append(f"blueque {name} {verb}")
    if not noun:
        found |= {name: [f"blueque {name}"] for name in names}
    there = dict(found)
    for word, verbs in VERBS.items():
        if right := next((verb for verb in verbs if verb in there), None):
            found.setdefault(word, [*there[right]])
    meant = {} if noun else {word: [line] for word, line in MEANT.items() if " " not in word}
    return found | meant


def _or(lines: Sequence[str]) -> str:
    *others, last = lines
    return f"{', '.join(others)} or {last}" if others else last


def of_option(typed: str, context: click.Context | None) -> str:
    """Return the option that was probably meant; empty if that is unclear."""
    verb = context.info_name or "" if context is not None else ""
    if meant := OPTIONS.get(verb, {}).get(typed) or OPTIONS[""].get(typed):
        return meant
    if context is None:
        return ""
    right = SAME_OPTIONS.get(typed)
    if right and any(right in param.opts for param in context.command.params):
        return f"did you mean {right}?"
    state = _state(typed.lstrip("-"), context.command)
    return f"did you mean --state {state}?" if state else ""


def of_words(extra: str, context: click.Context) -> str:
    """Return what to write instead of words that a command does not take."""
    word, command = extra.partition(" ")[0], context.command
    if state := _state(word, command):
        return f"{word} is a state: --state {state}"
    arguments = [param for param in command.params if isinstance(param, click.Argument)]
    taken = " ".join(argument.make_metavar(context) for argument in arguments)
    options = {name for param in command.params for name in param.opts}
    advice = ["Name a queue with -q."] if "-q" in options else []
    if taken or not advice:
        advice.append(f"It takes {taken or 'no arguments'}.")
    if "JSON" in taken:
        advice.append("Put JSON, and words with spaces, in '...'")
    if any(argument.name == "pattern" for argument in arguments):
        advice.append("For several queues write a pattern in quotes: 'video.*'")
    return " ".join(advice)


def _state(word: str, command: click.Command) -> str | None:
    """Return the state of that name, if the command has an option for it."""
    from blueque.cli.states import ALIASES  # here: --help does not need it

    choices: list[str] = []
    for param in command.params:
        if "--state" in param.opts:
            choices = [str(choice) for choice in getattr(param.type, "choices", ())]
    name = ALIASES.get(word.lower(), word.lower())
    return name if name in choices else None
