"""How long to wait before the next try: longer each time, with a random part."""

from __future__ import annotations

import os

LONGEST = 5.0  # seconds


def pause(failures: int) -> float:
    """Return the seconds to wait after this many failures: about 0.1, 0.2, 0.4 ..., at most 5."""
    return jitter(min(0.1 * 2.0 ** min(failures, 10), LONGEST))


def jitter(longest: float) -> float:
    """Return a random time between half of `longest` and all of it."""
    # Not the random module: it seeds itself in every forked child.
    return longest * (0.5 + os.urandom(1)[0] / 512)
