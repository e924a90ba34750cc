"""Packs many commands or words that differ in one text only, faster than `redis.pack`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from blueque.connection.redis import Command, as_bytes, pack


def pack_each(
    before: Command, beginning: str, texts: Iterable[str], after: Command = ()
) -> list[bytes]:
    """Return a command for each text, in Redis' wire format.

    Its words are `before`, then `beginning` and the text as one word, then `after`.
    """
    begun, end = as_bytes(beginning), b"\r\n" + packed_words(after)
    start = b"*%d\r\n%b" % (len(before) + 1 + len(after), packed_words(before))
    packed: list[bytes] = []
    for size, some in groupby(_encoded(texts), len):  # most ids are of one length
        head = start + b"$%d\r\n%b" % (len(begun) + size, begun)
        packed += [b"%b%b%b" % (head, text, end) for text in some]
    return packed


def pack_words(command: Command, texts: Mapping[str, Sequence[str]], before: Command = ()) -> bytes:
    """Return one command with further words: for each text, the words `before`, then the text after
    its prefix.

    texts: by the prefix of their words.
    """
    size = len(command) + sum(map(len, texts.values())) * (len(before) + 1)
    parts, start = [b"*%d\r\n%b" % (size, packed_words(command))], packed_words(before)
    for begun, those in texts.items():
        for size, some in groupby(_encoded(those), len):
            head = start + b"$%d\r\n%b" % (len(as_bytes(begun)) + size, as_bytes(begun))
            parts += [head, (b"\r\n" + head).join(some), b"\r\n"]
    return b"".join(parts)


def packed_words(words: Command) -> bytes:
    """Return words of a command, without their number."""
    return pack(words).partition(b"\r\n")[2] if words else b""


def _encoded(texts: Iterable[str]) -> Sequence[bytes]:
    several = [*texts]
    try:
        return [text.encode() for text in several]
    except UnicodeEncodeError:
        return [*map(as_bytes, several)]
