"""Sentences for people: what needs attention, why a task waits, the facts of a task.

The command line and the page show the same. May import its subjects: model, text, queries, audit;
nothing here talks to Redis. Begin with `attention.py` and `why.py`.
"""
