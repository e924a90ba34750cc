"""How things are written for people: durations, sizes, hints, estimates, and what is hidden.

May import: model/. Begin with format.py.
"""
