"""What a task, a line, a limit, a policy or an attempt is: pure values, and the names of the keys.

May import: errors and version. Begin with keys.py, then task.py and states.py.
"""
