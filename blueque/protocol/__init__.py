"""Every change to Redis: one function for each section of the protocol pages.

May import: spool/ and what is below it. Begin with transaction.py, the executor, then submit.py and
reserving.py.

Producers and schedulers: submit.py; bulk.py for many tasks at once; runs.py for runs with
    keys; feeding.py for a backlog larger than Redis.
Listeners: membership.py, reserving.py, attempts.py, ends.py, logs_and_checkpoints.py.
Tasks that wait for others: dependencies.py, settling.py, groups.py, graphs.py; children.py and parents.py
    are what these share.
Tasks that a running task makes: spawning.py. Recurring tasks: schedules.py.
Waiting tasks: placement.py. Dead listeners: recover.py. Operators: operator.py. Audits: repair.py.
Deletion: pruning.py, queues.py. Snapshots and archives: snapshots.py, archiving.py.
Shared: transaction.py, watches.py (looks), fields.py, moves.py, events.py, packing.py (templates of bytes);
    permissions.py checks the ACL.
"""
