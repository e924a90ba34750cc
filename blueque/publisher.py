"""Publisher: tells Redis about once a second what a running task says, its progress and what it prints.

None of it matters to the task, nor to how its end is recorded: what Redis does not take stays in the spool.
"""

from __future__ import annotations

import logging
import re
import time

from blueque.attempt import Attempt
from blueque.client import Client
from blueque.errors import Contended, NotOwner, RedisAway, RedisRefused
from blueque.tail import Tail
from blueque.task import Task

log = logging.getLogger("blueque")

PACE = 1.0                                             # seconds between two looks
AFTER_TROUBLE = 5.0


# As tqdm and those who draw like it: `encoding:  45%|####5     | 45/100 [00:10<00:12,  4.51it/s]`.
_BAR = re.compile(r"\s*(?:(.*?):? +|)\d+%\|.*?\| *([\d.]+[kMG]?)/([\d.]+[kMG]?) \[.*")


class Publisher:
    """Tells of one attempt.

    client: with a connection of its own: that of the listener may be waiting for something.
    """

    def __init__(self, client: Client, attempt: Attempt) -> None:
        self._client, self._attempt = client, attempt
        self._tail: Tail | None = None
        self._progress = self._bar = ""
        self.next_step = time.monotonic() + PACE       # a short task costs nothing more

    def step(self, task: Task) -> str:
        """Do what is due: look, and tell what is new. Return what the task draws of its progress; empty if it draws none."""
        if time.monotonic() < self.next_step:
            return self._bar
        self.next_step = time.monotonic() + PACE
        try:
            self._look(is_over=False)
            self._tell(task)
        except (RedisAway, RedisRefused, Contended, NotOwner) as error:
            self.next_step = time.monotonic() + AFTER_TROUBLE
            log.info("log task=%s: %s", task.id, error)
        return self._bar

    def finish(self, task: Task) -> None:
        """Tell the rest of an attempt that has ended. Raises RedisAway: then call again."""
        self._look(is_over=True)
        try:
            self._tell(task)
        except (RedisRefused, Contended, NotOwner) as error:
            log.info("log task=%s: %s", task.id, error)

    def _look(self, is_over: bool) -> None:
        if self._tail is None:
            self._tail = Tail(self._attempt.path)
        self._tail.look(time.time(), is_over)
        self._bar = progress_of(self._tail.bar())

    def _tell(self, task: Task) -> None:
        assert self._tail is not None
        progress = self._attempt.read_progress() or self._bar
        if progress and progress != self._progress:
            self._client.get_processor(task).progress(progress)
            self._progress = progress
        if self._tail.has_news:
            lines = self._tail.news()
            self._client.get_processor(task).log(lines)
            self._tail.done(lines[-1].number)


def progress_of(bar: str) -> str:
    """Return what a bar that a task draws says of its progress; empty if it is none."""
    match = _BAR.fullmatch(bar)
    return "" if match is None else f"{match[2]}/{match[3]} {match[1] or ''}".strip()
