"""The operating system: processes, signals, /proc, files, systemd, and waiting before the next try.

May import: text/ and what is below it. Begin with process.py.
"""
