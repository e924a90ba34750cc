"""Why a task does not run, for `blueque why` and the page."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from blueque.sentences import why

if TYPE_CHECKING:
    from blueque.queries.inspector import Inspector
    from blueque.queries.why_facts import Inquiry
    from blueque.sentences.reason import Reason


def load(
    inspector: Inspector, task_id: str, has_handler: Callable[[str], bool], is_utc: bool = True
) -> tuple[Inquiry, list[Reason]]:
    """Return what keeps a task from running: the facts, and the reasons in words.

    has_handler: returns whether a file names what runs the tasks of a queue. Raises NoSuchTask.
    """
    facts = inspector.inquire(task_id)
    facts = facts._replace(has_handler=has_handler(facts.task.queue or ""))
    return facts, why.reasons(facts, is_utc)
