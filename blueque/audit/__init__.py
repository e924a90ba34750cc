"""Invariants of the whole state, the scan that checks them, repair, and `blueque doctor`.

May import: recovery/ and what is below it. Begin with audit.py, then invariants.py.
"""
