"""Write things for people: durations, sizes, hints, estimates, redacted parameters.

May import: model/. Begin with format.py.
"""
