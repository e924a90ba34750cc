"""Listener and Processor: the part of a worker that talks to Redis; resources; waking other
listeners.

May import: backlog/ and what is below it. Begin with listener.py (reserving) and processor.py
    (start to complete).
"""
