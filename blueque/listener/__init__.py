"""Listener and Processor: the part of a worker that talks to Redis; resources; waking other
listeners.

May import: backlog/ and what is below it. Begin with listener.py, which stands on reserver.py
    (popping and reserving), owner.py (adopting and handing back) and member.py (registering and
    beating), and with processor.py (start to complete).
"""
