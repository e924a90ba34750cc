"""The commands: they turn arguments into calls, and results into text or JSON. Nothing here changes
Redis by itself.

May import: spark/ and what is below it. Begin with main.py: it is the program `blueque` and names
the module of each verb.

verbs/ has one module for each verb. listener.py and scheduler.py are the daemons. They share
options.py (options, and the values people write), printing.py (text and JSON), sentences/facts.py
and task_columns.py (what is shown of a task), consent.py (the question before what cannot be
undone), exits.py (from an error to a sentence and an exit code) and failure.py (the table of exit codes).
"""
