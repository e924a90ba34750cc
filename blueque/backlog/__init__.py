"""Feeding a backlog of files that is larger than Redis into a queue.

May import: producer/ and what is below it. Begin with job.py; the public function is
    `blueque.feed`, in feeder.py.
"""
