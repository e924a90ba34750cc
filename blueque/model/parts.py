"""The parts of a long sequence: reads and changes are bounded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def in_parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield the items in parts of at most `size`, in order."""
    for first in range(0, len(items), size):
        yield items[first : first + size]
