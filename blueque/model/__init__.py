"""Pure values: tasks, lines, limits, policies, attempts; and the names of the keys.

May import: errors and version. Begin with keys.py, then task.py and states.py.
"""
