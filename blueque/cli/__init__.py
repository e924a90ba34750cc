"""The commands: arguments become calls, and what comes back becomes text or JSON. Nothing here changes Redis by itself.

main.py is the program `blueque` (overview.py, tasks.py and enqueue.py are its verbs), listener.py and scheduler.py are the
daemons. They share options.py (options, and the values people write), show.py (text and JSON), exits.py (from an error to
a sentence and an exit code) and failure.py (the table of exit codes).
"""
