"""What a program prints for a terminal, as HTML."""

from __future__ import annotations

import html
import re

from hypothesis import given
from hypothesis import strategies as st

from blueque.text.format import clean
from blueque.web import ansi

TAG = re.compile(r"</?(?:span|i)(?: class=\"[a-z0-9 ]+\")?>")


def test_colours_become_classes_and_end_with_the_reset():
    assert ansi.html("\x1b[31;1mred\x1b[0m plain") == '<span class="a1 b">red</span> plain'
    assert ansi.html("\x1b[4munder\x1b[24m plain") == '<span class="u">under</span> plain'
    assert ansi.html("\x1b[38;5;196mred\x1b[39m x") == '<span class="a1">red</span> x'
    assert ansi.html("\x1b[38;2;10;200;10mgreen") == '<span class="a2">green</span>'


def test_markup_and_other_sequences_are_only_text():
    assert ansi.html("<script>alert(1)</script>") == "&lt;script&gt;alert(1)&lt;/script&gt;"
    assert ansi.html("a\x1b[2Jb\x1b]8;;http://evil/\x07link\x1b]8;;\x07") == "ablink"
    assert ansi.html("\u202eevil") == "\\u202eevil"


def test_what_a_carriage_return_has_overwritten_is_left_out():
    assert ansi.html("10 %\r20 %\r30 %\n") == "30 %"


def test_a_long_line_is_cut_with_a_count():
    assert ansi.html("x" * 9000).endswith("<i> … 808 more characters</i>")


@given(st.text(alphabet=st.sampled_from("ab<&\"'\x1b[]0;1m38\x07\r\t\x00\x9b\u202e"), max_size=60))
def test_the_text_of_any_line_is_that_without_its_sequences(line):
    found = ansi.html(line)

    text = html.unescape(TAG.sub("", found))
    assert "<" not in TAG.sub("", found)
    assert text.replace("\t", "") == clean(ansi.plain(line).replace("\t", ""))
