"""The commands: arguments become calls, and what comes back becomes text or JSON. Nothing here changes Redis by itself.

main.py is the program `blueque`, and says which module has which verb; show.py has facts.py beside it, ls.py and status.py
share task_columns.py and pace.py. listener.py and scheduler.py are the daemons, metrics.py the exporter. They share
options.py (options, and the values people write), show.py (text and JSON), consent.py (the question before what cannot be
undone), exits.py (from an error to a sentence and an exit code) and failure.py (the table of exit codes).
"""
