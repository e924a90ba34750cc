"""The scheduler: does in every queue what is due and does not belong to a listener.

Any number may run: each change is guarded, so the first one wins and the others find nothing to do.

May import: node/ and what is below it. Begin with scheduler.py: its step names the duties.
judging.py and unsettled_ends.py are two of them. refused.py keeps a queue that Redis does not serve
from stopping the others. program.py runs it: signals, systemd, outages.
"""

from blueque.scheduler.scheduler import Scheduler

__all__ = ["Scheduler"]
