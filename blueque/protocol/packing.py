"""Commands in Redis' wire format that are packed once, with holes for what differs.

Packing each command of a transaction by itself takes longer than all the rest of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from blueque.connection.packing import packed_words

HOLE = "".join(("what", " differs"))  # a word of a template that differs; compared by identity


def template(words: Sequence[str | int | float | bytes]) -> bytes:
    """Return the words of a command, without their number, for the operator %.

    Each HOLE takes two values: a length and so many bytes.
    """
    return b"".join([b"$%d\r\n%b\r\n" if word is HOLE else fixed(word) for word in words])


def fixed(word: str | int | float | bytes) -> bytes:
    """Return a word of a template that is always the same."""
    return packed_words((word,)).replace(b"%", b"%%")


def pack_with(
    command: Sequence[str | int | float],
    words: Sequence[bytes],
    before: bytes = b"",
    score: str | None = None,
) -> bytes:
    """Return a command followed by many words of one length, in Redis' wire format.

    before: a prefix of each of the words. score: a word of its own before each of them.
    """
    between = b"\r\n$%d\r\n%b" % (len(before) + len(words[0]), before)
    if score is not None:
        between = b"\r\n$%d\r\n%b%b" % (len(score), score.encode(), between)
    count = len(command) + len(words) * (1 if score is None else 2)
    begin = packed_words(command).removesuffix(b"\r\n")
    return b"*%d\r\n%b%b%b\r\n" % (count, begin, between, between.join(words))
