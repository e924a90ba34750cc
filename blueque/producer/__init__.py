"""Queue, TaskGroup, Workflow and Schedule: they create tasks, one or many at once.

May import: tables/ and what is below it. Begin with queue.py: one task. The other methods of Queue
are in bulk.py (many tasks), orders.py (changes of a task) and settings.py (pauses, settings).
groups.py, workflow.py and schedules.py have the other classes.
"""
