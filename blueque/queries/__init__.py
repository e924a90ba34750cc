"""Every read of Redis that changes nothing.

May import: protocol/ and what is below it. Begin with inspector.py.
"""
