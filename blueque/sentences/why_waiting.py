"""Explain in sentences what a pending task waits for besides listeners: its queue, its lock, its turn."""

from __future__ import annotations

from collections.abc import Iterator

from blueque.model.schedule import lock_of
from blueque.queries.listeners import Node
from blueque.queries.listing import entered
from blueque.queries.why_facts import FARTHEST, Inquiry
from blueque.sentences.holders import about, first_end, list_of
from blueque.sentences.reason import Reason, by
from blueque.text import hints
from blueque.text.eta import roughly
from blueque.text.format import count, span
from blueque.text.terminal import short_node

ALIKE = "with its priority and needs"  # the tasks of one line
LONG = 15.0  # seconds after which an idle listener should have taken a task


def was_popped(node: Node) -> Reason:
    who = short_node(node.id)
    return Reason(
        "popped",
        f"{who} has taken it from its line and has not started it yet; that listener is {node.state}. If it"
        " has died, another listener notices and puts the task back.",
    )


def pause(inquiry: Inquiry) -> Iterator[Reason]:
    if inquiry.pause is None:
        return
    since = (
        ""
        if inquiry.pause.since is None
        else f" for {span(max(inquiry.now - inquiry.pause.since, 0.0))}"
    )
    why = f": {inquiry.pause.reason}" if inquiry.pause.reason else ""
    sentence = f"Queue {inquiry.task.queue} {'has been' if since else 'is'} paused{since}{by(inquiry.pause.by)}{why}."
    yield Reason("paused", sentence, hints.of_queue("queue resume", inquiry.task.queue or ""))


def limit(inquiry: Inquiry) -> Iterator[Reason]:
    if not inquiry.room.is_full:
        return
    runs = list_of(inquiry, inquiry.counted)
    verb = "runs" if inquiry.room.taken == 1 else "run"
    most, taken = count(inquiry.room.limit or 0, "task"), inquiry.room.taken
    sentence = f"Queue {inquiry.task.queue} may run {most} at a time, and {taken} {verb}{runs}"
    free = first_end(inquiry, inquiry.counted)
    about = "" if free is None else f"; the first ends in ~{roughly(free)}"
    command = hints.of_queue("queue set", inquiry.task.queue or "", "max-running=N")
    yield Reason("limit", f"{sentence}{about}.", command, free)


def lock(inquiry: Inquiry) -> Iterator[Reason]:
    needs = inquiry.needs
    if needs is None or needs.lock is None or len(inquiry.holders) < needs.limit:
        return
    share = "" if needs.limit == 1 else f", which {needs.limit} may hold at a time,"
    held = list_of(inquiry, inquiry.holders)
    free = first_end(inquiry, inquiry.holders)
    which = "that" if len(inquiry.holders) == 1 else "one of these"
    then = f"it starts when {which} ends{about(free, len(inquiry.holders))}."
    name = inquiry.task.schedule
    if name is not None and needs.lock == lock_of(name):
        sentence = f"Tasks of schedule {name} run one at a time, and another one runs"
        yield Reason("lock", f"{sentence}{held}; {then}", hints.of_schedule("show", name), free)
    else:
        sentence = f"Lock {needs.lock}{share} is held{held or ' by others'}; {then}"
        yield Reason("lock", sentence, None, free)


def ahead_of_it(inquiry: Inquiry) -> Iterator[Reason]:
    """Yield which tasks are before it."""
    if inquiry.before is None and inquiry.length > FARTHEST:
        yield Reason(
            "behind",
            f"More than {FARTHEST:,} tasks {ALIKE} are before it.",
            f"blueque move {inquiry.task.id} --first",
        )
    elif inquiry.before:
        yield Reason(
            "behind",
            f"It is number {inquiry.before + 1:,} of {inquiry.length:,} {ALIKE}.",
            f"blueque move {inquiry.task.id} --first",
        )
    if inquiry.higher:
        turn = (
            "has its turn first, if it can run"
            if inquiry.higher == 1
            else "have their turn first, if they can run"
        )
        yield Reason(
            "outranked",
            f"{count(inquiry.higher, 'task')} of higher priority {turn}.",
            f"blueque move {inquiry.task.id} --priority N",
        )
    if inquiry.beside:
        their = "its turn" if inquiry.beside == 1 else "their turn"
        sentence = f"{count(inquiry.beside, 'task')} of the same priority may have {their} before it: the oldest first."
        yield Reason("beside", sentence)


def turn(inquiry: Inquiry) -> Iterator[Reason]:
    if inquiry.before is None and inquiry.length <= FARTHEST:
        yield Reason(
            "missing",
            "It is pending but not in its line: it is being moved, or something is wrong.",
            "blueque doctor",
        )
    elif not inquiry.before and not inquiry.higher:
        since = entered(inquiry.task)
        if since is not None and inquiry.now - since > LONG:
            yield Reason(
                "next",
                "Nothing in its queue holds it back. Its listeners may be busy with other queues.",
                "blueque status",
            )
        else:
            yield Reason("next", "Nothing holds it back: a listener will take it in a moment.")
