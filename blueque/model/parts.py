"""The parts of a long sequence: of a bounded size, or with the same key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")
K = TypeVar("K")


def in_parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield the items in parts of at most `size`, in order."""
    for first in range(0, len(items), size):
        yield items[first : first + size]


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Return the items by their keys, in order."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups
