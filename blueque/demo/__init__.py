"""`bin/demo`: `blueque dev` and a pipeline at work on a Redis of their own.

May import everything. Begin with main.py.
"""
