"""Queue, and what creates many tasks at once: bulk, keyed runs and staged runs.

May import: tables/ and what is below it. Begin with queue.py.
"""
