"""Listener and Processor: the part of a worker that talks to Redis; resources; waking listeners.

May import: backlog/ and what is below it. Begin with listener.py. It has a registration for each
queue (registration.py: registering, adopting, handing back) and a reserver (reserver.py: popping
and reserving). processor.py goes from start to complete.
"""
