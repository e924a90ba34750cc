"""The daemon on a node: the master, its slots, and the supervision of attempts.

May import: task_process/ and what is below it. Begin with main.py, then master.py, slot.py,
supervisor.py.
"""
