"""The pages of the protocol, docs/protocol.md and docs/protocol/, as the tests read them."""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from blueque.model.states import STATUSES

DOCS = Path(__file__).parents[2] / "docs"
CORE = DOCS / "protocol.md"


def _read(path: Path) -> str:
    """Return a page; a remark above indented lines of a block stands behind each of them."""
    return re.sub(
        r"^( *)# (.*):\n((?:\1    .*\n)+)",
        lambda group: re.sub(r"^ {4}(.*)$", rf"\1 # {group[2]}", group[3], flags=re.M),
        path.read_text(),
        flags=re.M,
    )


PAGES = {path: _read(path) for path in [CORE, *sorted((DOCS / "protocol").glob("*.md"))]}
TEXT = "\n".join(PAGES.values())

# The commands that change a key.
WRITES = {
    "BZPOPMIN",
    "COPY",
    "DEL",
    "EXPIRE",
    "EXPIREAT",
    "HDEL",
    "HINCRBY",
    "HINCRBYFLOAT",
    "HSET",
    "HSETNX",
    "LPUSH",
    "LREM",
    "LTRIM",
    "PERSIST",
    "RPOPLPUSH",
    "RPUSH",
    "SADD",
    "SET",
    "SREM",
    "UNLINK",
    "XADD",
    "ZADD",
    "ZINCRBY",
    "ZREM",
    "ZREMRANGEBYSCORE",
}
# The placeholders that stand for keys.
KEYS = {
    "[LINE]": ("blueque_pending_tasks_[queue]", "blueque_line_[name]_[queue]"),
    "[NEW_LINE]": ("blueque_pending_tasks_[queue]", "blueque_line_[name]_[queue]"),
    "[HISTORY]": ("blueque_history_[task]", "blueque_recent_[task]"),
    "[COPY]...": ("blueque_frozen_[snapshot]_[part]_[queue]",),
}
PLAIN = "".join(map(chr, range(33, 127))).replace("%", "").replace(";", "")
PRINTED = ("EVENT", "NOTE", "TELL", "COUNT")  # lines that stand for others, and have arguments
PLACES = ("LEAVE", "ENTER")  # lines that stand for those of the statuses that they name
ENTRIES = ("last", "next")  # how a pending task enters its line


class Block(NamedTuple):
    """The lines of one change, and of the look that goes with it; no look: the commands stand for
    themselves.
    """

    look: int | None
    lines: list[str]


class Section(NamedTuple):
    """The transaction of one section: its looks, and its changes."""

    looks: list[list[str]]
    changes: list[Block]

    @property
    def lines(self) -> list[str]:
        return [
            line
            for lines in [*self.looks, *(change.lines for change in self.changes)]
            for line in lines
        ]


def chapters(title: str, text: str = TEXT) -> list[str]:
    """Return what stands under each heading with this title, of any level, up to the next of that
    level or above.
    """
    _, *parts = re.split(rf"^(##+) {re.escape(title)}\n", text, flags=re.M)
    found = zip(parts[::2], parts[1::2], strict=True)
    return [re.split(rf"^#{{1,{len(marks)}}} ", rest, flags=re.M)[0] for marks, rest in found]


def chapter(title: str) -> str:
    """Return all of them as one text."""
    return "\n".join(chapters(title))


@functools.cache
def sections(text: str = TEXT) -> dict[str, str]:
    """Return the text of the section of each transaction."""
    found = {}
    for part in chapters("Transactions", text):
        _, *parts = re.split(r"^### (.*)\n", part, flags=re.M)
        found |= dict(zip(parts[::2], parts[1::2], strict=True))
    return found


def headings(text: str) -> set[str]:
    """Return all headings of a page, without those in code."""
    return set(
        re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), flags=re.M)
    )


def blocks(text: str, language: str = "") -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.M | re.S)


def first_column(text: str) -> list[str]:
    """Return the names in the first column of the tables in the text; a row may have several."""
    cells = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", text, flags=re.M)
    return [name for cell in cells for name in re.findall(r"\w+", cell)]


def definitions() -> dict[str, list[str]]:
    """Return the lines that each word in capitals stands for."""
    found: dict[str, list[str]] = {}
    for block in blocks(TEXT):
        if re.match(r"[A-Z_]+:\n", block):
            _, *parts = re.split(r"^([A-Z_]+):\n", block, flags=re.M)
            for name, lines in zip(parts[::2], parts[1::2], strict=True):
                assert name not in found, f"{name} is defined twice"
                found[name] = [line.strip() for line in lines.splitlines()]
    return found


DEFINITIONS = definitions()


def spelt_out(lines: Sequence[str]) -> list[str]:
    """Return the lines with words in capitals replaced by what they stand for, but for those of
    events.
    """
    found: list[str] = []
    for line in lines:
        word, *named = remark(line)[0].split(" ")
        if word in PLACES:
            found += spelt_out(of_statuses(word, named))
        elif word in DEFINITIONS and word not in PRINTED:
            _, _, when = remark(line)
            found += [
                f"{each} # {when}" if when and " # " not in each else each
                for each in spelt_out(DEFINITIONS[word])
            ]
        elif line:
            found.append(
                re.sub(
                    r" ([A-Z]+_[A-Z_]+)(?= |$)", lambda match: f" {DEFINITIONS[match[1]][0]}", line
                )
            )
    return found


def of_statuses(word: str, named: Sequence[str]) -> list[str]:
    """Return the lines of LEAVE or ENTER for tasks with one of these statuses. Behind a line stand
    the statuses to which it belongs; it has a condition only if there are others.

    named: the statuses, and perhaps one of ENTRIES.
    """
    wanted = {*named, *(() if {*named} & {*ENTRIES} else ENTRIES)}
    verb = "is" if word == "LEAVE" else "becomes"
    found = []
    for line in DEFINITIONS[word]:
        command, _, when = remark(line)
        words = {*re.findall(r"\w+", when)}
        statuses, entries = words & {*STATUSES}, words & {*ENTRIES}
        if statuses & wanted and (not entries or entries & wanted):
            if entries & {*named}:
                when, entries = when.partition(", as the ")[0], set()
            is_always = {*named} - {*ENTRIES} <= statuses and not entries
            found.append(command if is_always else f"{command} # if it {verb} {when}")
    return found


@functools.cache
def section(name: str) -> Section:
    looks: list[list[str]] = []
    changes: list[Block] = []
    for block in blocks(sections()[name]):
        lines = spelt_out(block.split("\n"))
        words = [line.split(" ")[0] for line in lines]
        at = words.index("MULTI") if "MULTI" in words else None
        if "WATCH" in words:
            looks.append(lines[:at])
        if at is not None:
            assert looks, f"{name}: a change without a look"
            changes.append(Block(len(looks) - 1, lines[at:]))
        elif "WATCH" not in words:
            changes.append(Block(None, lines))
    return Section(looks, changes)


def sentences(text: str) -> list[str]:
    """Return the sentences of a page: what stands in paragraphs and lists."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    text = re.sub(r"^[|#].*$", "", text, flags=re.M)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    found = []
    for part in re.split(r"\n\s*\n|\n(?= *- |\d+\. )", text):
        found += re.split(r"(?<=[.!?:])[)*]* +(?=[A-Z*`\[(\"])", " ".join(part.split()))
    return [sentence for sentence in found if sentence]


def remark(line: str) -> tuple[str, str, str]:
    """Return the command of a line, the look that it belongs to ("first", "second" or ""), and when
    it is sent: "if ...", "each ..." or "".
    """
    command, _, remark = line.partition(" # ")
    match = re.fullmatch(r"(?:(first|second) look(?:: )?)?(.*)", remark)
    assert match
    return command.rstrip(), match[1] or "", match[2]


def written(name: str) -> set[str]:
    """Return the keys that a transaction writes, as the pages spell them but for the words in
    brackets.
    """
    return {blank(key) for _, key, is_written in sent(name) if key and is_written}


def sent(name: str) -> set[tuple[str, str, bool]]:
    """Return each command that a transaction sends, with a key as the pages spell it and whether the
    command writes it. The key is empty for a command without one, or with a key of any kind.
    """
    found: set[tuple[str, str, bool]] = set()

    def note(lines: Sequence[str]) -> None:
        for line in lines:
            word, *rest = remark(line)[0].split(" ")
            if word in PRINTED:
                note(DEFINITIONS[word])
                continue
            named: list[tuple[str, int]] = []
            for place, text in enumerate(rest):
                named += [(key, place) for key in KEYS.get(text, ())]
                if match := re.match(r"blueque_\S+", text):
                    named.append((match[0].removesuffix("..."), place))
            for key, place in named or [("", 0)]:
                # COPY only reads the first.
                found.add((word, key, word in WRITES and (word, place) != ("COPY", 0)))

    note(section(name).lines)
    return found


def form(lines: Sequence[str]) -> str:
    """Return a regular expression for the commands of some lines, written as `flat` writes them."""
    forms = ""
    for line in lines:
        command, of_look, when = remark(line)
        words = shlex.split(command)
        if words[0] in PRINTED:
            forms += f"(?:{form(DEFINITIONS[words[0]])})?" if when else form(DEFINITIONS[words[0]])
        else:
            one = "".join(
                "(?: [^ ;]*)*" if word.endswith("...") else f" {_any_value(word)}" for word in words
            )
            forms += f"(?:{one};)" + (
                "*" if when.startswith("each") else "?" if when or of_look else ""
            )
    return forms


def _any_value(word: str) -> str:
    return "[^ ;]*".join(re.escape(quote(part, safe=PLAIN)) for part in re.split(r"\[\w+\]", word))


def flat(commands: Sequence[Sequence[str]]) -> str:
    """Return commands as one text, in which only spaces stand between words and only semicolons
    between commands.
    """
    return "".join(
        "".join(f" {quote(word, safe=PLAIN)}" for word in command) + ";" for command in commands
    )


def blank(key: str) -> str:
    return re.sub(r"\[\w+\]", "[]", key)


def key_rows() -> dict[str, tuple[Path, str]]:
    """Return for each key the page that describes it, and its row."""
    return {
        key: (path, row)
        for path, text in PAGES.items()
        for part in chapters("Keys", text)
        for row, key in re.findall(r"^(\| `([^`]+)` \|.*)$", part, flags=re.M)
    }
