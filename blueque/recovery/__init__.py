"""Finds dead listeners, recovers their tasks, and deletes old finished tasks.

May import: listener/ and what is below it. Begin with judge.py. group_settling.py is about groups
of tasks.
"""
