"""One thing that needs attention, and what all of these share."""

from __future__ import annotations

from typing import NamedTuple

MOST = 3  # concerns of one kind that get a line each
# The codes of concerns for which work stands still or is lost; the others can wait.
URGENT = {
    "no_listener",
    "silent",
    "dead",
    "gone",
    "lost",
    "poison",
    "never_fits",
    "limit",
    "overdue",
    "failing",
    "stuck",
    "persistence",
    "memory",
    "role",
    "replicas",
    "aof-last-write-status",
    "rdb-last-bgsave-status",
}
STUCK = {"no_listener", "never_fits", "limit"}  # those for which tasks wait too long


class Concern(NamedTuple):
    """A thing that needs attention.

    about: the name of a queue, group or schedule, or Redis, or listeners. code: the kind. command:
        a command that tells more or helps.
    """

    about: str
    code: str
    sentence: str
    command: str | None = None
