"""`bin/demo`: a listener, a scheduler and a pipeline at work on a Redis of their own.

May import everything. Begin with main.py.
"""

from blueque.demo.handler import measure

__all__ = ["measure"]
