"""Room in the spool: what a listener removes for the next attempt before it stops taking tasks."""

from __future__ import annotations

import logging
import time

from blueque.spool.spool import Spool

log = logging.getLogger("blueque")


def make_room(spool: Spool) -> str | None:
    """Remove the files of all attempts whose end Redis knows; return what is still missing, or None.

    Files that the next attempt may need are removed only if nothing else helps.
    """
    want: str | None = None
    for but_wanted in (True, False):
        try:
            removed = spool.prune(time.time(), but_wanted)
        except OSError as error:
            return f"spool {spool.root}: {error.strerror}"
        if removed:
            what = "" if but_wanted else ", checkpoints of tasks that are to run again among them"
            log.warning(
                "prune spool=%s attempts=%d: there was no room%s", spool.root, removed, what
            )
        want = spool.want_of_room()
        if want is None:
            break
    return want
