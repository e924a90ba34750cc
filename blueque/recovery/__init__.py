"""Which listeners are dead, what is done with their tasks, and which finished tasks are deleted.

May import: listener/ and what is below it. Begin with judge.py. group_settling.py is about groups of
tasks.
"""
