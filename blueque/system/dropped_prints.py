"""Drop what a user's module prints at its import, if standard error cannot take it."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator

STDERR = 2


@contextlib.contextmanager
def dropping_prints() -> Iterator[None]:
    """Have `sys.stderr` drop what standard error cannot take at once, for imports of a user's modules.

    A buffered stream would raise BlockingIOError, because `Writer` has made the descriptor
    non-blocking.
    """
    plain = sys.stderr
    if plain is None:
        yield
        return
    encoding, raw = getattr(plain, "encoding", None), io.FileIO(STDERR, "w", closefd=False)
    sys.stderr = unbuffered = io.TextIOWrapper(
        raw, encoding, "backslashreplace", write_through=True
    )
    try:
        yield
    finally:
        if sys.stderr is unbuffered:  # else the import has replaced it
            sys.stderr = plain
