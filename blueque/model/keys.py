"""Every key that Blueque uses in Redis: name, type, content. No other module spells key names.

Each page of the protocol describes its keys in a section "Keys".
"""

from __future__ import annotations

PREFIX = "blueque_"

QUEUES = "blueque_queues"  # zset: queue name, scored by its number of listeners


def task(task_id: str) -> str:  # hash: see task.FIELDS
    return f"blueque_task_{task_id}"


def log(task_id: str) -> str:  # stream that expires: the last lines that the task has printed
    return f"blueque_log_{task_id}"


def log_head(task_id: str) -> str:  # stream that expires: the first lines of its last attempt
    return f"blueque_head_{task_id}"


def packing(task_id: str) -> str:  # stream: the copy of either, within one transaction
    return f"blueque_packing_{task_id}"


def history(task_id: str) -> str:  # list: the first of its events, as JSON, oldest first
    return f"blueque_history_{task_id}"


def recent(task_id: str) -> str:  # list: the last of its events, if there were more
    return f"blueque_recent_{task_id}"


def belongings(task_id: str) -> tuple[str, ...]:
    """Return every key that belongs to one task alone and is deleted with it.

    Not included: `key_kept`, which outlasts the task, and the entries of the task in keys of the queue.
    """
    return (
        task(task_id),
        log(task_id),
        log_head(task_id),
        checkpoint(task_id),
        history(task_id),
        recent(task_id),
        conditions(task_id),
        dependents(task_id),
        inputs(task_id),
        spawned(task_id),
    )


# hash: where the next attempt goes on, as saved by the last one
def checkpoint(task_id: str) -> str:
    return f"blueque_checkpoint_{task_id}"


# hash: the id of each parent to its condition, see conditions.py
def conditions(task_id: str) -> str:
    return f"blueque_after_{task_id}"


# zset: ids of the tasks that wait for it, scored by `created`; `+inf`: they wait on after its end
def dependents(task_id: str) -> str:
    return f"blueque_dependents_{task_id}"


# hash: the id of each parent to `t` or `j` (JSON) and its result
def inputs(task_id: str) -> str:
    return f"blueque_inputs_{task_id}"


# set: ids of the tasks that its attempts have made, 16 bytes each
def spawned(task_id: str) -> str:
    return f"blueque_spawned_{task_id}"


# zset: ids of tasks that have ended, or run again, since their dependents were told; scored by when
UNSETTLED_TASKS = "blueque_unsettled_tasks"
UNSETTLED_MEMBERS = "blueque_unsettled_members"  # zset: the same of members of groups

GROUPS = "blueque_groups"  # zset: names of groups, scored by when a scheduler looks at each next


def group(name: str) -> str:  # hash: the record of a group
    return f"blueque_group_{name}"


def members(group_name: str) -> str:  # zset: ids of its tasks, scored by when they joined
    return f"blueque_joined_{group_name}"


def open_members(group_name: str) -> str:  # set: ids of members that are not known to have ended
    return f"blueque_open_{group_name}"


def bad_members(group_name: str) -> str:  # set: ids of members that have ended and are not complete
    return f"blueque_bad_{group_name}"


def awaiting(group_name: str) -> str:  # zset: as `dependents`, of a group
    return f"blueque_awaiting_{group_name}"


# zset: ids of the tasks of all queues that must start by a time, scored by it; see `expire`
EXPIRING = "blueque_expiring"

# zset: names of schedules, scored by when something comes of each next; `+inf`: nothing does
SCHEDULES = "blueque_schedules"


def schedule(name: str) -> str:  # hash: the record of a schedule
    return f"blueque_schedule_{name}"


def occurrences(schedule_name: str) -> str:  # list: what came of its times, as JSON, newest first
    return f"blueque_occurrences_{schedule_name}"


# zset: `[tag] [task]` for each tag of each task, all with the score 0, so they are sorted as text
TAGS = "blueque_tags"


def tag_entry(tag: str, task_id: str) -> str:
    return f"{tag} {task_id}"


def parse_tag_entry(entry: str) -> tuple[str, str]:
    """Return (tag, task id)."""
    tag, _, task_id = entry.rpartition(" ")
    return tag, task_id


def events(queue: str) -> str:  # stream: the last events of all its tasks
    return f"blueque_events_{queue}"


# hash that expires: numbers and durations of each event on a day
def stats(queue: str, day: str) -> str:
    return f"blueque_stats_{day}_{queue}"


def totals(queue: str) -> str:  # hash: the same since the queue exists
    return f"blueque_totals_{queue}"


def tasks(queue: str) -> str:  # zset: every task of the queue, scored by `created`
    return f"blueque_tasks_{queue}"


def pending(queue: str) -> str:  # list: task ids; added at the head, taken from the tail
    return f"blueque_pending_tasks_{queue}"


def line(queue: str, name: str) -> str:  # list: as pending, for one priority and need, see lines.py
    return pending(queue) if name == "0" else f"blueque_line_{name}_{queue}"


def lines(queue: str) -> str:  # zset: names of the lines besides pending, scored by priority
    return f"blueque_lines_{queue}"


def settings(queue: str) -> str:  # hash: whether it is paused, how many may run
    return f"blueque_queue_{queue}"


def counted(queue: str) -> str:  # set: ids of the tasks that count against max_running
    return f"blueque_counted_tasks_{queue}"


def lock(name: str) -> str:  # set: ids of the tasks whose attempts hold the lock
    return f"blueque_lock_{name}"


def waiting(lock_name: str) -> str:  # set: `[line]_[queue]` of each line whose tasks need the lock
    return f"blueque_waiting_{lock_name}"


def key_kept(task_id: str) -> str:  # string that expires: the key of a deleted task is still in use
    return f"blueque_key_{task_id}"


def snapshot(name: str) -> str:  # string that expires: when the snapshot was taken
    return f"blueque_frozen_{name}"


# list or zset that expires: a copy, as of that instant
def frozen(snapshot: str, part: str, queue: str) -> str:
    return f"blueque_frozen_{snapshot}_{part}_{queue}"


def archive(queue: str) -> str:  # hash: the batch that is on its way into an archive
    return f"blueque_archive_{queue}"


def scheduled(queue: str) -> str:  # zset: task ids, scored by `eta` in Unix seconds
    return f"blueque_scheduled_tasks_{queue}"


def blocked(queue: str) -> str:  # zset: task ids, scored by when `recheck` looks at each next
    return f"blueque_blocked_tasks_{queue}"


def reserved(queue: str, node: str) -> str:  # list: ids of the tasks held by that listener
    return f"blueque_reserved_tasks_{queue}_{node}"


def started(queue: str) -> str:  # set: "node pid task", see started_member
    return f"blueque_started_tasks_{queue}"


def complete(queue: str) -> str:  # list: ids of complete tasks, newest at the head
    return f"blueque_complete_tasks_{queue}"


def failed(queue: str) -> str:  # list: ids of failed tasks, newest at the head
    return f"blueque_failed_tasks_{queue}"


def cancelled(queue: str) -> str:  # list: ids of cancelled tasks, newest at the head
    return f"blueque_cancelled_tasks_{queue}"


def listeners(queue: str) -> str:  # set: node ids
    return f"blueque_listeners_{queue}"


def listener(queue: str, node: str) -> str:  # hash: the registration of one listener
    return f"blueque_listener_{queue}_{node}"


def nodes(queue: str) -> str:  # zset: node ids, scored by the time of their last beat
    return f"blueque_nodes_{queue}"


def wake(queue: str) -> str:  # zset: at most the member "0": wakes one idle listener
    return f"blueque_wake_{queue}"


# zset: at most the member "0": wakes the listener to read an order
def orders(queue: str, node: str) -> str:
    return f"blueque_orders_{queue}_{node}"


def feed(queue: str, name: str) -> str:  # hash: the record of a feed: its cursor and its feeder
    return f"blueque_feed_{name}_{queue}"


# hash: the files that are done, and their marks
def fed(queue: str, feed_name: str) -> str:
    return f"blueque_fed_{feed_name}_{queue}"


# string: there as long as a feeder is at work; expires
def feeder(queue: str, feed_name: str) -> str:
    return f"blueque_feeder_{feed_name}_{queue}"


def feeds(queue: str) -> str:  # zset: names of the feeds, scored by when each has finished
    return f"blueque_feeds_{queue}"


def started_member(node: str, pid: int | str, task_id: str) -> str:
    return f"{node} {pid} {task_id}"


def parse_started_member(member: str) -> tuple[str, int, str]:
    """Return (node, pid, task id), parsed from the right because a node id may hold spaces."""
    node, pid, task_id = member.rsplit(" ", 2)
    return node, int(pid), task_id


def parse_line(key: str) -> tuple[str, str] | None:
    """Return the queue and the name of a line from its key; None: not the key of a line.

    This excludes the default line, whose key is `pending`.
    """
    name, is_there, queue = key.removeprefix("blueque_line_").partition("_")
    return (queue, name) if key.startswith("blueque_line_") and name and is_there else None
