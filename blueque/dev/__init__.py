"""`blueque dev`: everything that one needs on a laptop, in one command.

May import the programs and the page. Begin with `session.py`.
"""
