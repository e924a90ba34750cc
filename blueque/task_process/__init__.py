"""What runs between the fork and the exit record: the handler, its RunningTask, its output.

May import: client and what is below it. Begin with main.py, then running_task.py.
"""
