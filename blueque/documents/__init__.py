"""The objects that `--json` prints, for the command line and for the page; fields.txt lists them.

Each function returns the fields of an object besides `blueque` and `kind`. May import: client and
what is below it. Begin with status.py.
"""
