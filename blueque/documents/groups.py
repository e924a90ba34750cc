"""Groups, feeds and tags, for JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from blueque.documents.schema import to_object
from blueque.queries.feeds import numbers, parsed, state_of
from blueque.text.format import times

if TYPE_CHECKING:
    from blueque.queries.groups import GroupSeen
    from blueque.queries.tags import TagSeen


def of_groups(
    found: Iterable[GroupSeen], feeds: Iterable[Mapping[str, str]], now: float
) -> dict[str, Any]:
    """Return the content of `groups`."""
    items = [group_item(seen) for seen in found]
    return {**times(now=now), "items": items, "feeds": [feed_item(each, now) for each in feeds]}


def of_group(seen: GroupSeen, bad: Sequence[str], now: float) -> dict[str, Any]:
    """Return the content of `group`. bad: ids of its tasks that are not complete."""
    return {**times(now=now), "item": group_item(seen), "bad": list(bad)}


def group_item(seen: GroupSeen) -> dict[str, Any]:
    """Return the progress of a group."""
    numbers_of = {"tasks": seen.members, "complete": seen.complete, "bad": seen.bad}
    return to_object(
        "one group", seen.record, kind=seen.kind, open=seen.open, waiting=seen.waiting, **numbers_of
    )


def of_feeds(records: Iterable[Mapping[str, str]], now: float) -> dict[str, Any]:
    """Return the content of `feeds`."""
    return {**times(now=now), "items": [feed_item(record, now) for record in records]}


def of_tags(seen: Iterable[TagSeen], has_more: bool) -> dict[str, Any]:
    """Return the content of `tags`."""
    return {"items": [each._asdict() for each in seen], "has_more": has_more}


def feed_item(record: Mapping[str, str], now: float) -> dict[str, Any]:
    """Return a feed."""
    values = numbers(record)
    counts = {name: values.get(name, 0) for name in ("rows", "tasks", "skipped", "row")}
    return to_object("one feed", parsed(record), state=state_of(record)[0], **counts)
