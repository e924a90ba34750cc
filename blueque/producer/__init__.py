"""Queue, and what creates many tasks at once: bulk, and runs with keys.

May import: tables/ and what is below it. Begin with queue.py: one task. The other methods of Queue
    are in bulk.py (many tasks), orders.py (changes of a task) and settings.py (pauses, settings).
"""
