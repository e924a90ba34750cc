"""Sentences for people about what was read: what needs attention, why a task waits, the facts of a
task. The command line and the page show the same.

May import what it speaks of: model, text, queries, audit; nothing here talks to Redis. Begin with
`attention.py` and `why.py`.
"""
