"""Every change to Redis: one function for each section of the protocol pages.

May import: spool/ and what is below it. Begin with transaction.py, the executor, then submit.py and
reserving.py.

Producers and schedulers: submit.py; bulk.py for many tasks at once; runs.py for keyed runs,
    staging.py for staged runs; feeding.py for a backlog larger than Redis.
Listeners: membership.py, many_queues.py, reserving.py, attempts.py, logs_and_checkpoints.py.
Tasks that wait for others: dependencies.py, settling.py, groups.py, graphs.py; children.py and parents.py
    are what these share.
Tasks that a running task makes: spawning.py. Recurring tasks: schedules.py.
Waiting tasks: placement.py. Dead listeners: recover.py. Operators: operator.py. Audits: repair.py.
Deletion: pruning.py, queues.py. Snapshots and archives: snapshots.py, archiving.py.
Shared: transaction.py, watches.py (looks), fields.py, events.py, packing.py (templates of bytes);
    permissions.py checks the ACL.
"""

from blueque.protocol.archiving import (
    beat_batch,
    claim_batch,
    erase,
    finish_batch,
    leave_batch,
    mark_batch,
)
from blueque.protocol.attempts import (
    complete,
    complete_and_pop,
    confirm_cancel,
    fail,
    progress,
    release,
    retry,
    start,
)
from blueque.protocol.bulk import enqueue_many, schedule_many
from blueque.protocol.dependencies import add_conditions, drop_hold, enqueue_after, enqueue_each
from blueque.protocol.feeding import (
    beat_feed,
    feed,
    finish_feed,
    forget_feed,
    leave_feed,
    open_feed,
)
from blueque.protocol.graphs import close_graph, enqueue_graph, extend_graph, open_graph
from blueque.protocol.groups import (
    cancel_group,
    close_group,
    drop_group,
    finish_group,
    open_group,
    settle_group,
    settle_members,
)
from blueque.protocol.logs_and_checkpoints import checkpoint, log, note
from blueque.protocol.many_queues import beat_all, observe_all
from blueque.protocol.membership import (
    beat,
    claim,
    deregister,
    fence,
    forget,
    observe,
    register,
    strike,
)
from blueque.protocol.occurrences import backfill, fire, trigger, undoom
from blueque.protocol.operator import ask_stack, cancel, decline_stack, interrupt, order, requeue
from blueque.protocol.placement import (
    bring_forward,
    call,
    drop_line,
    expire,
    free,
    move,
    pause,
    put_first,
    resume,
    set_max_concurrency,
    set_priority,
    set_settings,
    wake_waiting,
)
from blueque.protocol.pruning import prune, purge
from blueque.protocol.queues import forget_queue
from blueque.protocol.recover import adopt, lose, reassert, recover, restore
from blueque.protocol.repair import (
    drop_hint,
    mend,
    note_end,
    note_line,
    put_back,
    realign,
    realign_schedule,
    recount,
)
from blueque.protocol.reserving import pop, reserve, reserve_and_start, wait, wake
from blueque.protocol.runs import (
    close_run,
    collect_run,
    drop_run,
    enqueue_run,
    open_run,
    prune_runs,
    reopen_run,
)
from blueque.protocol.schedules import (
    delete_schedule,
    pause_schedule,
    resume_schedule,
    set_schedule,
    skip_occurrences,
)
from blueque.protocol.settling import recheck, settle, unblock
from blueque.protocol.snapshots import freeze, thaw
from blueque.protocol.spawning import complete_then, link, spawn
from blueque.protocol.staging import commit_run, discard, finish_run, publish, stage
from blueque.protocol.submit import delete, enqueue, enqueue_due, schedule

__all__ = [
    "add_conditions",
    "adopt",
    "ask_stack",
    "backfill",
    "beat",
    "beat_all",
    "beat_batch",
    "beat_feed",
    "bring_forward",
    "call",
    "cancel",
    "cancel_group",
    "checkpoint",
    "claim",
    "claim_batch",
    "close_graph",
    "close_group",
    "close_run",
    "collect_run",
    "commit_run",
    "complete",
    "complete_and_pop",
    "complete_then",
    "confirm_cancel",
    "decline_stack",
    "delete",
    "delete_schedule",
    "deregister",
    "discard",
    "drop_group",
    "drop_hint",
    "drop_hold",
    "drop_line",
    "drop_run",
    "enqueue",
    "enqueue_after",
    "enqueue_due",
    "enqueue_each",
    "enqueue_graph",
    "enqueue_many",
    "enqueue_run",
    "erase",
    "expire",
    "extend_graph",
    "fail",
    "feed",
    "fence",
    "finish_batch",
    "finish_feed",
    "finish_group",
    "finish_run",
    "fire",
    "forget",
    "forget_feed",
    "forget_queue",
    "free",
    "freeze",
    "interrupt",
    "leave_batch",
    "leave_feed",
    "link",
    "log",
    "lose",
    "mark_batch",
    "mend",
    "move",
    "note",
    "note_end",
    "note_line",
    "observe",
    "observe_all",
    "open_feed",
    "open_graph",
    "open_group",
    "open_run",
    "order",
    "pause",
    "pause_schedule",
    "pop",
    "progress",
    "prune",
    "prune_runs",
    "publish",
    "purge",
    "put_back",
    "put_first",
    "realign",
    "realign_schedule",
    "reassert",
    "recheck",
    "recount",
    "recover",
    "register",
    "release",
    "reopen_run",
    "requeue",
    "reserve",
    "reserve_and_start",
    "restore",
    "resume",
    "resume_schedule",
    "retry",
    "schedule",
    "schedule_many",
    "set_max_concurrency",
    "set_priority",
    "set_schedule",
    "set_settings",
    "settle",
    "settle_group",
    "settle_members",
    "skip_occurrences",
    "spawn",
    "stage",
    "start",
    "strike",
    "thaw",
    "trigger",
    "unblock",
    "undoom",
    "wait",
    "wake",
    "wake_waiting",
]
