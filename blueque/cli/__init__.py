"""The commands: arguments become calls, and what comes back becomes text or JSON. Nothing here changes Redis by itself.

main.py is the program `blueque`; its verbs are in status.py, tasks.py (ls, and show with facts.py), doctor.py, enqueue.py,
cancel.py, requeue.py and waiting.py (priority, first and move; these three with actions.py), why.py, queues.py (pause,
resume and limit) and node.py. listener.py and scheduler.py are the daemons. They share
options.py (options, and the values people write), show.py (text and JSON), consent.py (the question before what cannot be
undone), exits.py (from an error to a sentence and an exit code) and failure.py (the table of exit codes).
"""
