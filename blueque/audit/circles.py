"""Which tasks wait for each other, directly or through others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence


def circles(waits: Mapping[str, Sequence[str]]) -> Iterator[list[str]]:
    """Yield each circle: a largest group of tasks that all wait for each other.

    waits: the tasks that each task waits for. It is walked once, without recursion, because a chain
        may have 100,000 tasks. This is Gabow's path-based search for strongly connected components.
    """
    numbers: dict[str, int] = {}  # in the order of the walk
    ended = set[str]()
    for start in waits:
        if start not in numbers:
            yield from _walk(waits, start, numbers, ended)


def _walk(
    waits: Mapping[str, Sequence[str]], start: str, numbers: dict[str, int], ended: set[str]
) -> Iterator[list[str]]:
    numbers[start] = len(numbers)
    path = [(start, iter(waits.get(start, ())))]
    open_, roots = [start], [start]  # tasks of groups that are not known whole; the first of each
    while path:
        task, others = path[-1]
        other = next(others, None)
        if other is None:
            path.pop()
            if roots[-1] == task:
                roots.pop()
                group = [open_.pop()]
                while group[-1] != task:
                    group.append(open_.pop())
                ended.update(group)
                if len(group) > 1 or task in waits.get(task, ()):
                    yield group
        elif other not in numbers:
            numbers[other] = len(numbers)
            path.append((other, iter(waits.get(other, ()))))
            open_.append(other)
            roots.append(other)
        elif other not in ended:  # it leads back to the path
            while numbers[roots[-1]] > numbers[other]:
                roots.pop()
