"""`python -m blueque.spawned`: what a `--spawn` listener of the previous release starts for each task."""

from blueque.system import process
from blueque.task_process.fresh_interpreter import main

if __name__ == "__main__":
    process.leave_with(main)
