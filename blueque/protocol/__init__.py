"""Every change to Redis: one function for each section of the protocol pages.

May import: spool/ and what is below it. Begin with transaction.py, the executor, then create.py and
reserving.py.

New tasks: create.py, with bulk.py, which packs many; dependencies.py for tasks that wait
    for others; members.py for a group with keys; graphs.py for a workflow; spawning.py for those that a
    running task makes; feeding.py for a backlog larger than Redis.
Listeners: membership.py, reserving.py, attempts.py, ends.py, logs_and_checkpoints.py.
Tasks that wait for others: settling.py, rechecking.py; children.py and parents.py are what these share.
Groups: opening.py for their records, groups.py for their ends.
Recurring tasks: schedules.py, occurrences.py, schedule_record.py.
Waiting tasks: submit.py, placement.py, cancelling.py. Dead listeners: recover.py. Operators: operator.py.
Audits: alignment.py.
Deletion: pruning.py, queues.py; submit.py for one task. Snapshots and archives: snapshots.py, archiving.py.
Shared: transaction.py, watches.py (looks), fields.py, moves.py, events.py, packing.py (templates of bytes);
    permissions.py and roles.py are about users of Redis.
"""
