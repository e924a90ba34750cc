"""What a listener holds its tasks to, where they say nothing themselves, and how it is judged."""

from __future__ import annotations

from typing import NamedTuple

from blueque.limits import Limits
from blueque.retry import Retry
from blueque.settings import Timing


class Defaults(NamedTuple):
    """The choices of whoever started the listener."""

    timing: Timing = Timing()
    limits: Limits = Limits()
    retry: Retry | None = None
