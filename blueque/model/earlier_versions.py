"""What versions before 2.0.0 have left behind and this one still understands: all of it is named here.

Nothing writes any of this. It is of use as long as such a version may have been at work before.
"""

from __future__ import annotations

from collections.abc import Mapping

from blueque.model import keys

# Runs made tasks with keys, beside groups: docs/protocol/groups.md, "Runs of earlier versions". They
# had chunks: tasks that were written out of sight, to put them in line together.
CHUNK_NAMES = {"staging": "zset", "manifest": "list"}  # the types of the keys that name chunks
_KINDS = ("run", "runs", "ledger", *CHUNK_NAMES, "staged", "bounded")
_BY_RUN = "run "  # begins `made_by` of a group that a run has opened

# Fields of the record of a schedule, which the next definition removes.
OF_SCHEDULE = ("pause_after_failures", "doomed", "forgiven", "backfilled")
PAUSED_BY = "blueque"  # who has paused a schedule whose tasks failed
SKIPPED = (
    "skipped",
    "person",
)  # kind and reason of an occurrence to come that a person did not want
NO_REPLACE = (
    '"replace" is gone; use "queue", with which the new task waits for the end of the one before, and'
    " end that one with: blueque cancel ID"
)
NO_PAUSE = (
    "it is gone, for no schedule is paused by itself: take it out; blueque status names a schedule "
    "whose last 3 tasks have failed, and a person pauses it"
)

# Fields of the record of a feed whose feeder gave signs of life there.
OF_FEEDER = ("crc", "beat", "beat_at", "beat_every", "lease")
_LEASE = 60  # seconds without a sign of life after which such a feeder counts as dead

# Of archives: the folder of files that were not published, and what files could lie by.
STAGING_FOLDER = "_staging"
BY_RUN = "run"


def run(queue: str, name: str) -> str:  # hash: the record of a run
    return f"{keys.PREFIX}run_{name}_{queue}"


def staged(chunk: str) -> str:  # list: a time, then the tasks: id, line, eta
    return f"{keys.PREFIX}staged_{chunk}"


def is_key(key: str) -> bool:
    """Tell whether a key is of a run, or the set of bounded queues."""
    kind = key.removeprefix(keys.PREFIX).partition("_")[0]
    return key.startswith(keys.PREFIX) and kind in _KINDS


def is_by_run(made_by: str | None) -> bool:
    """Tell whether a run has opened a group."""
    return made_by is not None and made_by.startswith(_BY_RUN)


def overlap_of(found: str) -> str:
    """Return what the `overlap` of a record means: `replace` cancelled the task before. It needs the
    same lock as `queue`.
    """
    return "queue" if found == "replace" else found


def outdated(schedule: Mapping[str, str]) -> str | None:
    """Return what the record of a schedule asks for and this version does otherwise; None: nothing."""
    what = []
    if schedule.get("overlap") == "replace":
        what.append('overlap = "replace" does what "queue" does')
    if "pause_after_failures" in schedule:
        what.append("pause_after_failures does nothing")
    return ", and ".join(what) or None


def has_beaten(feed: Mapping[str, str], now: float) -> bool:
    """Tell whether the record of a feed is that of such a feeder, which counts as alive."""
    try:
        return now - float(feed["beat_at"]) <= float(feed.get("lease", _LEASE))
    except (KeyError, ValueError):
        return False
