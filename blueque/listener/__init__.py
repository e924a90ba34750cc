"""Listener and Processor: the part of a worker that talks to Redis; resources; waking other
listeners.

May import: backlog/ and what is below it. Begin with listener.py, which has a registration for
    each queue (registration.py: registering, adopting, handing back) and a reserver (reserver.py:
    popping and reserving), and with processor.py (start to complete).
"""
