"""In which line of a TOML text each key stands."""

from __future__ import annotations

import tomllib

import pytest

from blueque.config.toml_lines import lines_of_keys

TEXT = '''# a comment = 1
plain = 1                                 # [not.a.table]
"quoted.name".'dotted' = """several
lines = 1
[and] "quotes" \\""" of them"""
inline = { one = 1, two.three = "}", "four" = [1, { five = 2 }] }
several = [
  "]", # six = 6
  [[7]], { eight = 8, nine = { ten = '#' } },
  \'\'\'
eleven = 1\'\'\',
]
date = 1979-05-27T07:32:00+01:00
number = -1.5e3

  [table."with.dots"]
  key = 1
  dotted.key = 2
[[array.of_tables]]
key = true
[[array.of_tables]]
[ spaced . out ]
last="# no comment"'''


def test_every_key_and_table_is_in_its_line():
    assert {".".join(path): line for path, line in lines_of_keys(TEXT).items()} == {
        "plain": 2,
        "quoted.name": 3,
        "quoted.name.dotted": 3,
        "inline": 6,
        "inline.one": 6,
        "inline.two": 6,
        "inline.two.three": 6,
        "inline.four": 6,
        "inline.four.five": 6,
        "several": 7,
        "several.eight": 9,
        "several.nine": 9,
        "several.nine.ten": 9,
        "date": 13,
        "number": 14,
        "table": 16,
        "table.with.dots": 16,
        "table.with.dots.key": 17,
        "table.with.dots.dotted": 18,
        "table.with.dots.dotted.key": 18,
        "array": 19,
        "array.of_tables": 19,
        "array.of_tables.key": 20,
        "spaced": 22,
        "spaced.out": 22,
        "spaced.out.last": 23,
    }


def test_what_is_scanned_is_what_the_standard_library_reads():
    def paths(value, path=()):
        if isinstance(value, dict):
            for key, inner in value.items():
                yield (*path, key)
                yield from paths(inner, (*path, key))
        elif isinstance(value, list):
            for inner in value:
                yield from paths(inner, path)

    assert set(paths(tomllib.loads(TEXT))) == set(lines_of_keys(TEXT))


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", {}),
        ("\n\n", {}),
        ("# only a comment", {}),
        ("a=1", {("a",): 1}),
        ("\r\na = 1\r\nb = 2", {("a",): 2, ("b",): 3}),
        ('"" = 1', {("",): 1}),
        ('"\\u00e9" = 1', {("é",): 1}),
        ("a = \"\"\"\n\n\"\"\"\nb = '''x''''\n", {("a",): 1, ("b",): 4}),
        ('a = ""\nb = 1', {("a",): 1, ("b",): 2}),
        ("1.2 = 3", {("1",): 1, ("1", "2"): 1}),
        ("a = { }\nb = []\nc = [ { } , ]", {("a",): 1, ("b",): 2, ("c",): 3}),
    ],
)
def test_texts_of_every_kind_are_scanned(text, lines):
    tomllib.loads(text)
    assert lines_of_keys(text) == lines
