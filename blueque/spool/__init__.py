"""The files of one attempt on its node: output, progress, checkpoint, and the record of its end.

May import: settings/ and what is below it. Begin with spool.py, then attempt.py.
"""
