"""Every command that a message, a template, a page or an example names is in the tree of commands,
and has the options that are named with it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from blueque.cli import listener, scheduler
from blueque.cli.main import blueque
from blueque.cli.options import Invocation

ROOT = Path(__file__).parents[2]
PLACES = ("blueque", "docs", "examples", "deploy", "bench", "README.md", "CONTRIBUTING.md")
TEXTS = {".md", ".html", ".js", ".toml", ".yaml", ".service", ".timer", ".sbatch", ".json", ".sh"}
PROGRAMS = {
    "blueque": blueque,
    "blueque-listener": listener.command,
    "blueque-scheduler": scheduler.command,
}
HOLE = "\x00"  # in the place of a value that is not known before the program runs
PROGRAM = re.compile(r"(?<![\w./@{:-])(blueque(?:-listener|-scheduler)?) +(?=[a-z-])")
END = re.compile(r"[`|;&<>()\[\]#\n]|[.,:](?= |$)| \\$")  # behind the words of a command
WORD = re.compile(r"[a-z][a-z-]*")
OPTION = re.compile(r"(?<![^\s])(--?[A-Za-z][\w-]*)")
# Words behind the name of the program that are no verbs.
PROSE = {"cookie", "for", "from", "import", "program", "reason", "talk", "that"}


class Named(NamedTuple):
    """A command as some text names it, with the place of that text."""

    place: str
    program: str
    words: str


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the texts of a file that may name commands, with the numbers of their lines."""
    if path.suffix != ".py":
        yield 1, path.read_text()
        return
    tree = ast.parse(path.read_text())
    inside = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in node.values
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield (
                node.lineno,
                "".join(
                    str(part.value) if isinstance(part, ast.Constant) else HOLE
                    for part in node.values
                ),
            )
        elif isinstance(node, ast.Constant) and id(node) not in inside:
            yield node.lineno, str(node.value)


def named_in(path: Path) -> Iterator[Named]:
    for first, text in texts(path):
        for found in PROGRAM.finditer(text):
            words = END.split(text[found.end() :].replace("\\\n", " "), maxsplit=1)[0]
            line = first + text.count("\n", 0, found.start())
            yield Named(f"{path.relative_to(ROOT)}:{line}", found[1], words)


def files() -> Iterator[Path]:
    for place in PLACES:
        path = ROOT / place
        for each in [path] if path.is_file() else sorted(path.rglob("*")):
            if each.is_file() and each.suffix in {*TEXTS, ".py"}:
                yield each


def mistake_in(named: Named) -> str | None:
    """Return what is wrong with a command; None: nothing."""
    command: click.Command = PROGRAMS[named.program]
    context = click.Context(
        command, info_name=named.program, obj=Invocation(), **command.context_settings
    )
    words = named.words.partition(" --exec")[0].split()  # behind it is another program
    while isinstance(command, click.Group) and words and WORD.fullmatch(words[0]):
        below = command.get_command(context, words[0])
        if below is None:
            return f"no verb {words[0]}"
        command, context = below, click.Context(below, context, info_name=words.pop(0))
    params = command.get_params(context)
    if isinstance(command, click.Group) and (below := command.get_command(context, "ls")):
        params += below.params  # alone it is its ls
    known = {name for each in params for name in [*each.opts, *each.secondary_opts]}
    unquoted = re.sub(r"'[^']*'|\"[^\"]*\"|--sort \S+", HOLE, " ".join(words))
    unknown = [name for name in OPTION.findall(unquoted) if name not in known]
    return f"no option {unknown[0]}" if unknown else None


@pytest.mark.parametrize(
    ("words", "mistake"),
    [
        ("purge render", "no verb purge"),
        ("queue limit render 3", "no verb limit"),
        ("ls -q render --gone", "no option --gone"),
        ("ls --sort -ran", None),
        ("host -q render", None),
        ("logs --all \x00", None),
        ('enqueue render \'{"a": "--b"}\'', None),
    ],
)
def test_what_is_wrong_with_a_command(words, mistake):
    assert mistake_in(Named("", "blueque", words)) == mistake


def test_commands_are_found_in_strings_templates_and_pages(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    (tmp_path / "a.py").write_text('x = f"See: blueque show {task} " "--json, or not."')
    (tmp_path / "a.md").write_text("Type `blueque ls -q a`.\n\n    blueque purge \\\n      --all\n")

    found = [each for name in ("a.py", "a.md") for each in named_in(tmp_path / name)]

    assert [(each.place, each.words.split()) for each in found] == [
        ("a.py:1", ["show", HOLE, "--json"]),
        ("a.md:1", ["ls", "-q", "a"]),
        ("a.md:3", ["purge", "--all"]),
    ]


def test_every_command_that_is_named_exists():
    named = [each for path in files() for each in named_in(path)]
    wrong = {
        f"{each.place}: {each.program} {each.words}": mistake
        for each in named
        if each.words.split()[:1] and each.words.split()[0] not in PROSE
        if (mistake := mistake_in(each))
    }
    assert len(named) > 500
    assert not wrong, "\n".join(f"{words}: {mistake}" for words, mistake in wrong.items())


def test_every_option_that_the_readme_and_the_guide_name_alone_exists():
    def walk(command: click.Command) -> Iterator[click.Command]:
        yield command
        if isinstance(command, click.Group):
            context = click.Context(command, obj=Invocation())
            for name in command.list_commands(context):
                below = command.get_command(context, name)
                assert below is not None
                yield from walk(below)

    known = {
        option
        for program in PROGRAMS.values()
        for command in walk(program)
        for each in command.get_params(click.Context(command, obj=Invocation()))
        for option in [*each.opts, *each.secondary_opts]
    }
    pages = [ROOT / "README.md", *(ROOT / "docs" / "guide").glob("*.md")]
    named = {option for page in pages for option in re.findall(r"`(--[\w-]+)`", page.read_text())}
    assert named and named <= known, sorted(named - known)
