"""What another program could write into the keys of Blueque: garbage for each key and each field.

Families of keys and their fields come from the pages of the protocol, so new ones are in it by themselves.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hypothesis import strategies
from protocol_pages import TEXT, chapter, headings, key_rows

from blueque.connection.redis import Command
from blueque.model.encoding import due, integer, number
from blueque.model.states import TYPES as PLACES
from blueque.model.states import Place

TYPES = ("string", "list", "set", "sorted set", "hash", "stream")
WORDS = """
nan inf -inf -1 0 1e308 -1e308 １２ 1.5 1_000 0x10 ² 1e-320 253402300800 4000000000
null true [] {} "x" { {"max":1e400} {"max":[1]} {"age":"x"} {"newest":NaN} {"a":1,"a":2} "\\ud800"
{"event":5,"at":"soon"} {"event":"failed","at":1e400} {"planned":1,"at":{},"what":7}
reserved blocked pending started complete failed cancelled scheduled open closed making ended drain
lock:x=99999999999999999999 gpu=1,gpu=2 0, 0,gpu Mars/Olympus <script>alert(1)</script>
../../etc/passwd / .. . /etc/passwd a/../b ~root %2e%2e%2fx
"""
PHRASES = (
    *("a b c", "host_x 99999999999999999999 t", "-- --help", "* * * * *", "61 * * * *", " 7 "),
    *("", " ", "\0", "a\r\nb", "\udcff\udcfe", "\u202e\u2028\x85", "\x1b]0;owned\x07\x1b[2J"),
    *("x" * 70_000, "[" * 100_000, '{"a":' * 5000, f"1{'0' * 400}", "9" * 5000),
)
VALUES = (*WORDS.split(), *PHRASES)
FIELDS = r"^\| (`[a-z][\w.]*`(?:, `[\w.]+`)*) \| (.*) \|$"
SCORES = ("0", "-1", "inf", "-inf", "1e308", "1e-320", "4000000000", "253402300800")


class Family(NamedTuple):
    """A family of keys: its template, its possible types, its fields and what they have."""

    template: str
    types: tuple[str, ...]
    fields: Mapping[str, str]

    def has(self, key: str) -> bool:
        pattern = "".join(
            ".*" if part.startswith("[") else re.escape(part)
            for part in re.split(r"(\[\w+\])", self.template)
        )
        return re.fullmatch(pattern, key, flags=re.S) is not None

    def named(self, text: str) -> str:
        """Return a key of the family in which this text stands for each name."""
        return re.sub(r"\[\w+\]", lambda _: text, self.template)


def _types(row: str) -> tuple[str, ...]:
    said = re.split(r"[:,;]", row.split("|")[2].strip())[0]
    return tuple(kind for kind in said.split(" or ") if kind in TYPES)


def _fields(row: str) -> dict[str, str]:
    """Return what the pages say of the content of each field of a hash. Its row has a link to them."""
    anchors = re.findall(r"\([^)#]*#([\w-]+)\)", row)[:1] if _types(row) == ("hash",) else []
    titles = [title for title in headings(TEXT) if title.lower().replace(" ", "-") in anchors]
    found: dict[str, str] = {}
    for names, content in re.findall(FIELDS, "".join(map(chapter, titles)), flags=re.M):
        several = re.findall(r"[\w.]+", names)
        # "time when it was cancelled, who did that, and why" is about the first of them.
        is_of_all = re.match(r"(integer|time)\b", content) is None
        found |= dict.fromkeys(several if is_of_all else several[:1], content)
        found |= {name: found.get(name, "") for name in several}
    return found


FAMILIES = {key: Family(key, _types(row), _fields(row)) for key, (_, row) in key_rows().items()}


def family_of(key: str) -> str | None:
    """Return the template of a key: the one that says most of it."""
    fitting = [family.template for family in FAMILIES.values() if family.has(key)]
    return max(fitting, key=lambda template: len(re.sub(r"\[\w+\]", "", template)), default=None)


# Those that hold ids of tasks, but for hints that may be stale.
INDEXES = {
    family_of(Place(kind, "q", "n", line="5").key)
    for kind in PLACES
    if kind not in ("unsettled", "waiting")
}


class Garbage(NamedTuple):
    """One damage.

    place: which of the keys of the family, and of the members in it. what: one of `WHAT`.
    field: of a hash. text: what is written.
    """

    family: str
    place: int
    what: str
    field: str
    text: str

    @property
    def kind(self) -> str:
        return FAMILIES[self.family].types[0]

    def key(self, keys: Sequence[str]) -> str:
        """Return the key that is damaged, or made. keys: those of the family."""
        if self.what == "named":
            return FAMILIES[self.family].named(self.text[:200])
        return keys[self.place % len(keys)]

    def commands(self, keys: Sequence[str], members: Sequence[str]) -> list[Command]:
        """Return the commands that do it. members: those in the key."""
        key = self.key(keys)
        if self.what == "type":
            others = [other for other in TYPES if other not in FAMILIES[self.family].types]
            other = others[self.place % len(others)]
            return [("DEL", key), written(other, key, self.field, self.text)]
        if self.what == "deleted":
            return [("DEL", key)]
        if self.what == "named":
            return [("COPY", keys[self.place % len(keys)], key)]
        if self.what == "score" and members:
            score = SCORES[self.place % len(SCORES)]
            return [("ZADD", key, score, members[self.place % len(members)])]
        return [written(self.kind, key, self.field, self.text)]

    def must_be_named(self) -> bool:
        """Tell whether doctor has to name it: a key of a wrong type, or text that can be no number."""
        if self.what != "value":
            return self.what == "type"
        said = FAMILIES[self.family].fields.get(self.field, "")
        kind = re.match(r"(integer|number|time|seconds)s?\b", said)
        if kind is None or (not self.text and "empty" in said):
            return False
        try:
            (integer if kind[1] == "integer" else due if self.field == "eta" else number)(self.text)
        except ValueError:
            return True
        return False

    def is_of_an_index(self) -> bool:
        """Tell whether it is an entry in a place where the ids of tasks are."""
        return self.what == "value" and self.family in INDEXES


WHAT = ("type", "deleted", "value", "score", "named")


def written(kind: str, key: str, field: str, text: str) -> Command:
    """Return a command that adds this text to a key of a type."""
    return {
        "string": ("SET", key, text, "KEEPTTL"),
        "list": ("RPUSH", key, text),
        "set": ("SADD", key, text),
        "sorted set": ("ZADD", key, 0, text),
        "hash": ("HSET", key, field, text),
        "stream": ("XADD", key, "*", field, text),
    }[kind]


def names_of(family: Family, fields: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return the fields of a family, as the pages name them and as they are in Redis."""
    return tuple(dict.fromkeys([*family.fields, *fields.get(family.template, ())])) or ("x",)


def garbage(fields: Mapping[str, Sequence[str]]) -> strategies.SearchStrategy[Garbage]:
    """Return a strategy for damages. fields: of each family, those that are in Redis."""

    def of(template: str) -> strategies.SearchStrategy[Garbage]:
        family = FAMILIES[template]
        often = 6 if family.types[0] == "hash" else 2
        what = [*["value"] * often, "type", "deleted", "named"]
        what += ["score"] if "sorted set" in family.types else []
        return strategies.builds(
            Garbage,
            strategies.just(template),
            strategies.integers(0, 60),
            strategies.sampled_from(what),
            strategies.sampled_from(names_of(family, fields)),
            strategies.sampled_from(VALUES),
        )

    # A hash with many fields comes as often as it has tens of them.
    weighted = [name for name in FAMILIES for _ in range(1 + len(FAMILIES[name].fields) // 10)]
    return strategies.sampled_from(weighted).flatmap(of)


def sweep(
    fields: Mapping[str, Sequence[str]], keys: Mapping[str, Sequence[str]], turn: int
) -> list[list[Garbage]]:
    """Return damages to every field of every hash, and each kind of damage to every family: some at a
    time, at most one to a key.

    fields, keys: of each family. turn: with which of the values to begin.
    """
    values: list[dict[str, Garbage]] = []
    others: list[dict[str, Garbage]] = []
    for start, family in enumerate(FAMILIES.values(), turn):
        names = names_of(family, fields)
        wanted = [("value", name) for name in names] + [(what, names[0]) for what in WHAT]
        for n, (what, name) in enumerate(wanted):
            text = VALUES[(start + n) % len(VALUES)]
            one = Garbage(family.template, n, what, name, text)
            key, parts = one.key(keys[family.template]), values if what == "value" else others
            part = next((part for part in parts if key not in part), None)
            if part is None:
                parts.append(part := {})
            part[key] = one
    return [[*part.values()] for part in values + others]
