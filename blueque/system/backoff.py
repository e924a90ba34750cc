"""How long to wait before trying again: longer each time, and never quite as long as somebody else
does.
"""

from __future__ import annotations

import os

LONGEST = 5.0  # seconds


def pause(failures: int) -> float:
    """Return seconds to wait after so many failures: about 0.1, 0.2, 0.4 ... and 5 at most."""
    return jitter(min(0.1 * 2.0 ** min(failures, 10), LONGEST))


def jitter(longest: float) -> float:
    """Return a random time between half of `longest` and all of it."""
    # Not the random module: it seeds itself anew in every forked child, whether the child wants it
    # or not.
    return longest * (0.5 + os.urandom(1)[0] / 512)
