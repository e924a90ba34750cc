"""`blueque dev`: everything that you need on a laptop, in one command.

May import the programs and the page. Begin with `session.py`.
"""
