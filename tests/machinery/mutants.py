"""Guards of the protocol, each broken on purpose: the explorer has to notice.

`PYTHONPATH=tests:tests/legacy python tests/machinery/mutants.py` tries them all.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any, NamedTuple
from unittest import mock

from explore import open_explorer
from scenarios import SCENARIOS

from blueque.protocol.submit import _form


class Mutant(NamedTuple):
    """One change of the text of one function, and the space of schedules in which it shows."""

    name: str
    module: str  # of blueque.protocol, or of blueque for a method
    function: str  # or Class.method
    before: str
    after: str
    scenario: str = ""
    bounds: tuple[int, int] = (0, 0)


MINE = "(attempt, fields,"
ANYBODYS = "(attempt._replace(token=fields.token, node=fields.node or ''), fields,"

MUTANTS = [
    # submit
    Mutant(
        "enqueue does not look whether the id is new",
        "submit",
        "enqueue",
        "if _is_taken(exists, *marks):",
        "if False:",
        "producer",
        (0, 1),
    ),
    Mutant(
        "enqueue does not look for the task that its first try has made of a drawn id",
        "submit",
        "_looks",
        "absence(task) if is_drawn else look",
        "look",
        "producer",
        (0, 1),
    ),
    Mutant(
        "enqueue_due moves what is not scheduled",
        "submit",
        "enqueue_due",
        ' if fields_of[task][:2] == ("scheduled", queue)',
        "",
        "two schedulers",
        (1, 0),
    ),
    Mutant(
        "enqueue_due does not look at the time again",
        "submit",
        "enqueue_due",
        " and float(score) <= now",
        "",
        "retry and schedulers",
        (2, 0),
    ),
    # runs
    Mutant(
        "enqueue_run does not watch the ledgers",
        "protocol.runs",
        "RunBatch._looking",
        "Look((record, *ledgers),",
        "Look((record, record),",
        "two who put the same",
        (2, 0),
    ),
    Mutant(
        "enqueue_run does not look at the ledgers",
        "protocol.runs",
        "RunBatch.are_listed",
        "return list(replies[0])",
        "return [0] * len(replies[0])",
        "put, and deleted meanwhile",
        (2, 0),
    ),
    Mutant(
        "enqueue_run enters nothing in the ledgers",
        "protocol.runs",
        "RunBatch._entered",
        "if octets:",
        "if False:",
        "put, and deleted meanwhile",
        (2, 0),
    ),
    Mutant(
        "enqueue_run does not look whether the run is open",
        "runs",
        "_enqueue_run",
        'if not is_open(fields, batch.queue, batch.run, ("keyed",), batch.created):',
        "if False:",
        "put, and closed meanwhile",
        (1, 0),
    ),
    Mutant(
        "close_run does not watch the ledgers",
        "runs",
        "close_run",
        "(key, *ledgers), [",
        "(key,), [",
        "put, and closed meanwhile",
        (1, 0),
    ),
    Mutant(
        "close_run leaves the run open",
        "runs",
        "close_run",
        '"state": "committed",',
        '"state": "open",',
        "put, and closed meanwhile",
        (1, 0),
    ),
    Mutant(
        "drop_run does not look at what is staged",
        "runs",
        "drop_run",
        "if not texts or staged or",
        "if not texts or",
        "stage or clear up",
        (3, 0),
    ),
    Mutant(
        "stage does not watch the record",
        "protocol.staging",
        "Chunk.__init__",
        "(key, of_run), (",
        "(key, key), (",
        "stage or clear up",
        (2, 0),
    ),
    Mutant(
        "stage does not recognise its success",
        "staging",
        "stage",
        "if exists or not is_wanted:",
        "if not is_wanted:",
        "commit, patiently",
        (0, 1),
    ),
    Mutant(
        "commit_run does not look whether all is staged",
        "staging",
        "commit_run",
        "if gone:",
        "if False:",
        "commit or discard",
        (2, 0),
    ),
    Mutant(
        "commit_run does not watch what is staged",
        "staging",
        "commit_run",
        "(key, staging), [",
        "(key,), [",
        "commit or discard",
        (2, 0),
    ),
    Mutant(
        "commit_run does not watch the record",
        "staging",
        "commit_run",
        "(key, staging), [",
        "(staging,), [",
        "commit, or nothing",
        (2, 0),
    ),
    Mutant(
        "commit_run decides again",
        "staging",
        "commit_run",
        "if batch == last or not is_free:",
        "if batch == last:",
        "two who commit",
        (2, 0),
    ),
    Mutant(
        "commit_run takes an old batch",
        "staging",
        "_require_batch",
        "if batch is not None and batch < last:",
        "if False:",
        "stream and its zombie",
        (1, 0),
    ),
    Mutant(
        "commit_run takes a batch again",
        "staging",
        "commit_run",
        "if batch == last or not is_free:",
        "if not is_free:",
        "stream and its zombie",
        (1, 0),
    ),
    Mutant(
        "commit_run leaves what it takes among the staged",
        "staging",
        "commit_run",
        '("ZREM", staging, *names), ',
        "",
        "commit or discard",
        (1, 0),
    ),
    Mutant(
        "publish is not guarded",
        "staging",
        "_content",
        "Look((keys.staged(chunk),),",
        'Look((keys.staged(""),),',
        "two who commit",
        (2, 0),
    ),
    Mutant(
        "publish leaves the chunk", "staging", "publish", '("UNLINK", key),', "", "commit", (0, 1)
    ),
    Mutant(
        "discard does not look whether it is decided",
        "staging",
        "discard",
        "if score is None or (",
        "if False or (",
        "commit or discard",
        (1, 0),
    ),
    Mutant(
        "discard watches neither what is staged nor the record",
        "staging",
        "_membership",
        "Look((staging, key, record),",
        "Look((key, key),",
        "commit or discard",
        (2, 0),
    ),
    # archiving
    Mutant(
        "a batch is marked by one who has lost it",
        "archiving",
        "mark_batch",
        "_require(ref, record)",
        "pass",
        "two archivers",
        (2, 0),
    ),
    Mutant(
        "erase does not compare",
        "archiving",
        "erase",
        " if _is_as_written(queue, row, fields)",
        "",
        "archive or run again",
        (2, 0),
    ),
    Mutant(
        "erase does not watch the tasks",
        "archiving",
        "_contents",
        "[record, *hashes],\n",
        "[record, record],\n",
        "archive or run again",
        (2, 0),
    ),
    Mutant(
        "erase leaves the entry",
        "archiving",
        "erase",
        '("LREM", key(queue), -1, row.task)',
        '("EXISTS", row.task)',
        "archive",
        (0, 1),
    ),
    # pruning
    Mutant(
        "prune does not look whether they are as they were",
        "pruning",
        "prune",
        "if fields[:2] == (status, queue)\n            and ended_at(fields.finished, fields.updated) == ended.at",
        "if True",
        "prune or run again",
        (1, 0),
    ),
    Mutant(
        "prune does not watch the tasks",
        "pruning",
        "prune",
        "[record, *hashes],\n",
        "[record],\n",
        "prune or run again",
        (1, 0),
    ),
    Mutant(
        "prune leaves fewer than are to stay",
        "pruning",
        "prune",
        "del same[max(length - floor, 0) :]",
        "pass",
        "two who prune",
        (1, 0),
    ),
    Mutant(
        "purge does not look whether they wait",
        "pruning",
        "purge",
        " and _waits(fields, place)",
        "",
        "purge",
        (1, 0),
    ),
    Mutant(
        "purge does not look at the line of 1.0.0",
        "pruning",
        "_waits",
        "return place is not None",
        "return True",
        "purge beside 1.0.0",
        (1, 0),
    ),
    Mutant(
        "purge does not watch the line of 1.0.0",
        "pruning",
        "purge",
        "[line, *hashes], [",
        "hashes, [",
        "purge beside 1.0.0",
        (2, 0),
    ),
    Mutant(
        "forget_queue does not look what there is",
        "queues",
        "forget_queue",
        "Answer(in_use) if in_use else ",
        "",
        "forgotten",
        (1, 0),
    ),
    Mutant(
        "forget_queue watches nothing of it",
        "queues",
        "forget_queue",
        "Look(watch,",
        "Look([keys.archive(queue)],",
        "forgotten",
        (1, 0),
    ),
    Mutant(
        "forget_queue does not count listeners",
        "queues",
        "forget_queue",
        '"listeners": ("SCARD", keys.listeners(queue)),\n        "nodes": ("ZCARD", keys.nodes(queue)),',
        "",
        "forgotten, and a listener comes",
        (1, 0),
    ),
    Mutant(
        "bring_forward does not watch the task",
        "placement",
        "bring_forward",
        'look = fields_of(task, ("status", "queue", "eta"))',
        'look = fields_of(task, ("status", "queue", "eta"))._replace(watch=[keys.wake(queue)])',
        "brought forward, and purged",
        (1, 0),
    ),
    # output
    Mutant(
        "checkpoint by anybody",
        "logs_and_checkpoints",
        "checkpoint",
        "(attempt, AttemptFields._make(reply),",
        "(attempt._replace(token=reply[1], node=reply[2] or ''), AttemptFields._make(reply),",
        "checkpoint of a lost attempt",
        (1, 0),
    ),
    Mutant(
        "checkpoint does not watch the task",
        "logs_and_checkpoints",
        "checkpoint",
        "(*owner.watch, key), (",
        "(key,), (",
        "checkpoint, and deleted",
        (1, 0),
    ),
    Mutant(
        "checkpoint does not watch its key",
        "logs_and_checkpoints",
        "checkpoint",
        "(*owner.watch, key), (",
        "owner.watch, (",
        "checkpoints",
        (0, 1),
    ),
    # run
    Mutant(
        "pop does not look at the registration",
        "reserving",
        "pop",
        'if registered != [instance, "alive"]:',
        "if False:",
        "wrongly fenced",
        (1, 1),
    ),
    Mutant(
        "pop is repeated when its answer was lost",
        "reserving",
        "pop",
        ", repeatable=False",
        "",
        "patient listener",
        (0, 1),
    ),
    Mutant(
        "reserve does not look at the status",
        "reserving",
        "_reserve",
        'status != "pending" or ',
        "",
        "double entry",
        (2, 0),
    ),
    Mutant(
        "reserve does not recognise its success",
        "reserving",
        "_reserve",
        'if status == "reserved" and fields.get("token") == token:',
        "if False:",
        "one fault",
        (0, 1),
    ),
    Mutant(
        "reserve_and_start does not recognise its success",
        "reserving",
        "reserve_and_start",
        '== ["started", token, node, str(pid)]:',
        "== []:",
        "in a row",
        (0, 1),
    ),
    Mutant(
        "reserve_and_start does not look whether the task has changed",
        "reserving",
        "reserve_and_start",
        "or found != fields",
        "",
        "in a row, cancelled",
        (2, 0),
    ),
    Mutant("start by anybody", "attempts", "start", MINE, ANYBODYS, "wrongly fenced", (2, 0)),
    Mutant(
        "start does not recognise its success",
        "attempts",
        "start",
        'if fields[:4] == ("started", token, node, str(pid)):',
        "if False:",
        "one fault",
        (0, 1),
    ),
    Mutant(
        "complete_and_pop by anybody",
        "attempts",
        "complete_and_pop",
        MINE,
        ANYBODYS,
        "in a row, wrongly lost",
        (2, 0),
    ),
    Mutant(
        "complete_and_pop does not recognise its success",
        "attempts",
        "complete_and_pop",
        'if fields.status == "complete" and fields.finished_by == token:',
        "if False:",
        "in a row, patient listener",
        (0, 1),
    ),
    Mutant(
        "complete_and_pop does not look at a pause",
        "attempts",
        "complete_and_pop",
        "settings != [None, None]",
        "settings[1] is not None",
        "in a row, paused",
        (3, 0),
    ),
    Mutant(
        "complete_and_pop takes a lost answer for an empty line",
        "listener.listener",
        "Listener.note_popped",
        "self._is_unsure = popped is None",
        "self._is_unsure = False",
        "in a row, patient listener",
        (0, 1),
    ),
    Mutant("complete by anybody", "attempts", "complete", MINE, ANYBODYS, "wrongly lost", (2, 0)),
    Mutant(
        "complete does not recognise its success",
        "attempts",
        "complete",
        'if fields.status == "complete" and fields.finished_by == token:',
        "if False:",
        "one fault",
        (0, 1),
    ),
    Mutant(
        "fail does not recognise its success",
        "attempts",
        "fail",
        'if fields.status == "failed" and fields.finished_by == token:',
        "if False:",
        "one fault",
        (0, 1),
    ),
    Mutant(
        "retry does not recognise its success",
        "attempts",
        "retry",
        "if token is not None and fields.finished_by == token:",
        "if False:",
        "retry",
        (0, 1),
    ),
    Mutant("release by anybody", "attempts", "release", MINE, ANYBODYS, "handed back", (1, 0)),
    Mutant(
        "the end leaves the entry of the listener",
        "attempts",
        "_take_out",
        '("LREM", keys.reserved(queue, node), 1, task)',
        '("EXISTS", task)',
        "one fault",
        (0, 1),
    ),
    Mutant(
        "the end leaves the entry of a lost task",
        "attempts",
        "_take_out",
        '("LREM", keys.failed(queue), 1, task), *count',
        "*count",
        "late result",
        (0, 1),
    ),
    # run: locks, limits and lines
    Mutant(
        "reserve does not watch the lock",
        "reserving",
        "_reserve_look",
        "watch += [keys.lock(room.lock)]",
        "pass",
        "lock",
        (2, 0),
    ),
    Mutant(
        "reserve does not watch the counts",
        "reserving",
        "_reserve_look",
        "watch += [keys.counted(queue), keys.started(queue)]",
        "pass",
        "limit",
        (2, 0),
    ),
    Mutant(
        "reserve does not take the lock",
        "reserving",
        "_reservation",
        'commands += [("SADD", keys.lock(room.lock), task)]',
        "pass",
        "lock",
        (0, 1),
    ),
    Mutant(
        "reserve does not count",
        "reserving",
        "_reservation",
        'commands += [("SADD", keys.counted(queue), task)]',
        "pass",
        "limit",
        (0, 1),
    ),
    Mutant(
        "reserve does not look who holds the lock",
        "reserving",
        "_lacking",
        "counts[0] >= needs.limit",
        "False",
        "lock",
        (2, 0),
    ),
    Mutant(
        "reserve does not look how many run",
        "reserving",
        "_lacking",
        "max(counts[-2:]) >= int(limit[:20])",
        "False",
        "limit",
        (2, 0),
    ),
    Mutant(
        "reserve puts back, and tells nobody of the line",
        "reserving",
        "_reserve",
        "*put_in_line(queue, line, task, is_first=True)]",
        '("RPUSH", keys.line(queue, line), task)]',
        "lock",
        (2, 0),
    ),
    Mutant(
        "pop does not look whether the queue is paused",
        "reserving",
        "pop",
        "if paused is not None:",
        "if False:",
        "pause",
        (3, 0),
    ),
    Mutant(
        "retry in the default line",
        "attempts",
        "retry",
        "*put_in_line(queue, fields.line, task),",
        '*put_in_line(queue, "0", task),',
        "lock and retry",
        (0, 1),
    ),
    Mutant(
        "release in the default line",
        "attempts",
        "release",
        "*put_in_line(queue, fields.line, task, is_first=True),",
        '*put_in_line(queue, "0", task, is_first=True),',
        "lock handed back",
        (1, 0),
    ),
    Mutant(
        "an end keeps what the attempt held",
        "attempts",
        "_take_out",
        "return commands + release_room(queue, task, fields.lock, fields.counted)",
        "return commands",
        "lock",
        (0, 1),
    ),
    Mutant(
        "an end keeps the lock",
        "fields",
        "release_room",
        'commands += [("SREM", keys.lock(lock), task)]',
        "pass",
        "lock",
        (0, 1),
    ),
    Mutant(
        "an end keeps the place",
        "fields",
        "release_room",
        'commands += [("SREM", keys.counted(queue), task)]',
        "pass",
        "limit",
        (0, 1),
    ),
    Mutant(
        "an end that frees a lock wakes nobody",
        "fields",
        "release_room",
        'return [*commands, ("ZADD", keys.wake(queue), 0, 0)] if commands else []',
        "return commands",
        "limit, and who waits for it",
        (2, 0),
    ),
    Mutant(
        "nobody is told of a line",
        "fields",
        "put_in_line",
        "        *list_lines(queue, line),\n",
        "",
        "three lines",
        (0, 1),
    ),
    Mutant(
        "nobody is told who waits for a lock",
        "fields",
        "list_lines",
        'commands += [("SADD", keys.waiting(needs.lock), f"{line}_{queue}")]',
        "pass",
        "lock",
        (0, 1),
    ),
    # lines, elsewhere
    Mutant(
        "enqueue_due mixes the lines",
        "submit",
        "_promote",
        "line_of(fields.priority, fields.needs)",
        '"0"',
        "due in two lines",
        (0, 1),
    ),
    Mutant(
        "enqueue_due tells nobody of the lines",
        "submit",
        "_promote",
        "commands += list_lines(queue, *by_line)",
        "pass",
        "due in two lines",
        (0, 1),
    ),
    Mutant(
        "recover in the default line",
        "recover",
        "recover",
        "line_of(fields.priority, fields.needs)",
        '"0"',
        "lock, reserved",
        (1, 0),
    ),
    Mutant(
        "recover keeps the lock",
        "recover",
        "recover",
        "*release_room(queue, task, fields.lock, fields.counted),",
        "",
        "lock, reserved",
        (1, 0),
    ),
    Mutant(
        "lose in the default line",
        "recover",
        "_lost",
        "line_of(fields.priority, fields.needs)",
        '"0"',
        "lock of a lost attempt",
        (1, 0),
    ),
    Mutant(
        "lose keeps the lock",
        "recover",
        "lose",
        "*release_room(queue, task, fields.lock, fields.counted),",
        "",
        "lock, started",
        (1, 0),
    ),
    Mutant(
        "lose keeps the place",
        "recover",
        "lose",
        "*release_room(queue, task, fields.lock, fields.counted),",
        "",
        "place of a lost attempt",
        (1, 0),
    ),
    Mutant(
        "restore does not take the lock again",
        "recover",
        "restore",
        "*take_room(queue, task, fields),",
        "",
        "lock, taken back",
        (0, 1),
    ),
    Mutant(
        "requeue in the default line",
        "operator",
        "requeue",
        "line_of(fields.priority, fields.needs)",
        '"0"',
        "lock, late result",
        (1, 0),
    ),
    Mutant(
        "cancel looks for it in the default line",
        "operator",
        "_taken_out",
        "keys.line(queue, line_of(fields.priority, fields.needs))",
        "keys.pending(queue)",
        "cancel in another line",
        (0, 1),
    ),
    Mutant(
        "cancel keeps the lock",
        "operator",
        "cancel",
        "*release_room(queue, task, fields.lock, fields.counted),",
        "",
        "lock, cancelled before",
        (2, 0),
    ),
    # waiting
    Mutant(
        "set_priority leaves it in its old line as well",
        "placement",
        "set_priority",
        '("LREM", keys.line(queue, fields.line), 0, task),',
        "",
        "priority",
        (0, 1),
    ),
    Mutant(
        "set_priority puts it in its old line",
        "placement",
        "set_priority",
        "line_of(str(priority), fields.needs), task",
        "fields.line, task",
        "priority",
        (0, 1),
    ),
    Mutant(
        "put_first leaves it where it was as well",
        "placement",
        "put_first",
        '("LREM", keys.line(queue, fields.line), 0, task),',
        "",
        "first",
        (2, 0),
    ),
    Mutant(
        "put_first of what a listener has popped",
        "placement",
        "put_first",
        "if not waiting.is_in_line:",
        "if False:",
        "first",
        (2, 0),
    ),
    Mutant(
        "move leaves it in its old line as well",
        "placement",
        "move",
        '("LREM", keys.line(queue, fields.line), 0, task),',
        "",
        "moved",
        (0, 1),
    ),
    Mutant(
        "move leaves it in the index of its old queue",
        "placement",
        "move",
        '("ZREM", keys.tasks(queue), task),',
        "",
        "moved",
        (0, 1),
    ),
    Mutant(
        "move of what a listener has popped",
        "placement",
        "move",
        'if fields.status == "pending" and not waiting.is_in_line:',
        "if False:",
        "moved",
        (2, 0),
    ),
    Mutant(
        "set_priority of what a listener of 1.0.0 has popped",
        "placement",
        "_try_in_line",
        'place is not None and fields.status == "pending"',
        'fields.status == "pending"',
        "priority beside 1.0.0",
        (2, 0),
    ),
    Mutant(
        "what waits is changed without watching the line",
        "placement",
        "_try_in_line",
        "Look([keys.task(task), key],",
        "Look([keys.task(task)],",
        "priority beside 1.0.0",
        (2, 0),
    ),
    Mutant(
        "free does not look whether it is held",
        "placement",
        "free",
        'if status in HELD and held == (lock or "1"):',
        "if False:",
        "freed by mistake",
        (2, 0),
    ),
    Mutant(
        "free does not watch the task",
        "placement",
        "free",
        "[keys.task(task), key], [",
        '["nothing"], [',
        "freed by mistake",
        (2, 0),
    ),
    Mutant(
        "drop_line does not look whether somebody stands in it",
        "placement",
        "drop_line",
        "if exists or line == DEFAULT:",
        "if line == DEFAULT:",
        "line that is emptied",
        (2, 0),
    ),
    Mutant(
        "drop_line does not watch the line",
        "placement",
        "drop_line",
        "Look([key], ",
        'Look(["nothing"], ',
        "line that is emptied",
        (2, 0),
    ),
    Mutant(
        "drop_line leaves it among those that wait for the lock",
        "placement",
        "drop_line",
        'commands += [("SREM", keys.waiting(needs.lock), f"{line}_{queue}")]',
        "pass",
        "lock",
        (0, 1),
    ),
    Mutant(
        "pop does not watch whether the queue is paused",
        "watches",
        "turn",
        "(key, settings, lines),",
        "(key, lines),",
        "pause",
        (3, 0),
    ),
    # The listener, which must not forget what it has reserved
    Mutant(
        "a listener forgets its task over a line that is to be dropped",
        "listener.listener",
        "Listener._do_for_others",
        "return False",
        "raise",
        "three lines",
        (0, 1),
    ),
    # membership
    Mutant(
        "a beat by anybody",
        "membership",
        "beat",
        'if registered[:2] != (instance, "alive"):',
        "if False:",
        "beat and fence",
        (1, 0),
    ),
    Mutant(
        "fence does not look at the beat",
        "membership",
        "fence",
        'if registered != [instance, "alive", beat]:',
        'if registered[:2] != [instance, "alive"]:',
        "beat and fence",
        (1, 0),
    ),
    Mutant(
        "fence does not say that another has struck the listener off",
        "membership",
        "fence",
        '[] if is_member else ["struck", 1]',
        "[]",
        "struck off by 1.0.0",
        (2, 0),
    ),
    # recover
    Mutant(
        "recover does not look whether the listener is dead",
        "recover",
        "recover",
        " or not _is_as_judged(registration, is_member, instance)",
        "",
        "recoverer and next life",
        (2, 0),
    ),
    Mutant(
        "recover takes what 1.0.0 has claimed",
        "recover",
        "_is_claimed",
        "if fields.reclaimed_node in (None, dead_claimant):",
        "if True:",
        "struck off by 1.0.0",
        (1, 0),
    ),
    Mutant(
        "recover forgets the line",
        "recover",
        "recover",
        "*put_in_line(queue, line_of(fields.priority, fields.needs), task, is_first=True),",
        "",
        "wrongly fenced",
        (1, 0),
    ),
    Mutant(
        "recover takes what 1.0.0 has claimed and runs",
        "recover",
        "_is_claimed",
        " or fields.pid_start is None",
        "",
        "claimed by 1.0.0",
        (2, 0),
    ),
    Mutant(
        "lose does not look whether the listener is dead",
        "recover",
        "lose",
        " or not is_judged",
        "",
        "woken",
        (2, 0),
    ),
    Mutant(
        "lose does not look whether it is to be cancelled",
        "recover",
        "lose",
        "if fields.cancel is not None:",
        "if False:",
        "cancel and end",
        (1, 0),
    ),
    Mutant(
        "lose keeps the token of what it puts in line",
        "recover",
        "_lost",
        '("HDEL", key, *IDENTITY, *OUTCOME)',
        '("HDEL", key, *OUTCOME)',
        "zombie beside 1.0.0",
        (2, 0),
    ),
    Mutant(
        "adopt from whatever node",
        "recover",
        "adopt",
        'if fields.get("node") != old:',
        "if False:",
        "two adopters",
        (2, 0),
    ),
    Mutant(
        "restore of whatever attempt",
        "recover",
        "restore",
        'if fields.get("token") != token:',
        "if False:",
        "superseded",
        (1, 0),
    ),
    # control
    Mutant(
        "cancel leaves the entry in line",
        "operator",
        "_taken_out",
        '("LREM", keys.line(queue, line_of(fields.priority, fields.needs)), 0, task)',
        '("EXISTS", task)',
        "cancel in line",
        (0, 1),
    ),
    Mutant(
        "requeue of a task that has not failed",
        "operator",
        "requeue",
        'if fields.status not in ("failed", "cancelled"):',
        "if False:",
        "late result",
        (2, 0),
    ),
    Mutant(
        "requeue does not recognise its success",
        "operator",
        "requeue",
        "if fields.requeued == mark:",
        "if False:",
        "late result",
        (0, 1),
    ),
    # transaction and looks
    Mutant(
        "nothing is watched",
        "transaction",
        "_decide",
        '[("WATCH", *look.watch), *look.reads]',
        '[("WATCH", "nothing"), *look.reads]',
        "double entry",
        (2, 0),
    ),
    Mutant(
        "enqueue does not watch the task",
        "watches",
        "absence",
        "Look((key,)",
        'Look(("nothing",)',
        "producer loses answers",
        (1, 1),
    ),
    Mutant(
        "enqueue_many does not watch the tasks with keys",
        "watches",
        "absence_of_all",
        "[keys.task(task.decode()) for task in tasks],",
        '["nothing"],',
        "two producers of the same keys",
        (2, 0),
    ),
    Mutant(
        "start and the ends do not watch the task",
        "watches",
        "ownership",
        "fields_of(task, AttemptFields._fields)",
        'fields_of(task, AttemptFields._fields)._replace(watch=["nothing"])',
        "wrongly fenced",
        (2, 0),
    ),
]

# What nobody can see who does not know which task has to come next, or who should be called: the
# model does.
IN_THE_MODEL = [
    Mutant(
        "pop takes of the default line whatever there is",
        "reserving",
        "pop",
        "if line is None and (others or max_concurrency is not None):",
        "if False:",
    ),
    Mutant(
        "set_priority puts in line what is scheduled",
        "placement",
        "set_priority",
        "if waiting.is_in_line:",
        "if True:",
    ),
    Mutant(
        "set_max_concurrency sets none",
        "placement",
        "set_max_concurrency",
        "if most is not None:",
        "if False:",
    ),
    Mutant(
        "reassert does not take the lock again",
        "recover",
        "reassert",
        "*take_room(queue, task, ours),",
        "",
    ),
    Mutant(
        "nobody frees what nobody holds",
        "listener.stale_holders",
        "StaleHolders._free",
        'if task.status not in ("reserved", "started")',
        "if False",
    ),
    Mutant(
        "a listener is called that cannot help",
        "listener.peer_wakeup",
        "PeerWakeup.call",
        "if meets(has, needs)",
        "if True",
    ),
    Mutant(
        "the marker is not passed on to who could do the rest",
        "listener.listener",
        "Listener._choose",
        "self._pass_marker_on(popped.left > 0 or any(head.length for head in heads))",
        "None",
    ),
]

EQUIVALENT = {
    "reserve does not look at the registration": (
        "a fenced listener can then still reserve what it had popped before. The entry is in its list, so recover takes it "
        "back, or leaves it to whoever adopts it if it has started; forget waits until the list is empty."
    ),
    "an end is accepted from a former node": (
        "the token is still compared, so it is the end of the same attempt, which both of its owners read in the same spool."
    ),
    "stage does not look whether the run is open": (
        "what is staged when it is decided cannot be committed any more. Whoever comes too late discards it, and if he "
        "dies, blueque gc does."
    ),
    "claim_batch takes over from anybody": (
        "who is put out learns it at his next transaction and has done no harm, as if he were dead. Refusing only keeps two "
        "live archivers from putting each other out."
    ),
    "mark_batch goes back a state": (
        "only the one who has the batch marks it, and he goes forward: a call that is repeated finds its own state."
    ),
    "recover keeps the token": (
        "what it puts in line was only reserved. Nobody has run it, and start looks at the status and the node as well."
    ),
    "lose does not look at the token": (
        "it looks at the instance of the listener. That one is dead, and cannot start the task again; a new life has a new "
        "one."
    ),
    "register over a live instance": (
        "the instance is itself the fence: who is replaced can take nothing more, and what it runs is still its own. "
        "Refusing only keeps two live listeners from putting each other out."
    ),
}


def mutated(mutant: Mutant) -> Callable[..., Any]:
    """Return the function with its text changed. The text has to be there once: else the mutant
    says nothing.
    """
    module, original = _original(mutant)
    source = textwrap.dedent(inspect.getsource(original))
    found = source.count(mutant.before)
    assert found == 1, (
        f"{mutant.name}: {mutant.before!r} is {found} times in {mutant.function}: mend the mutant"
    )
    names = dict(vars(module))
    exec(source.replace(mutant.before, mutant.after), names)
    changed: Callable[..., Any] = names[mutant.function.rpartition(".")[2]]
    return changed


@contextmanager
def applied(mutant: Mutant) -> Iterator[None]:
    """Have the function be the mutant wherever it is used."""
    (where, original), changed = _original(mutant), mutated(mutant)
    its_class, _, method = mutant.function.rpartition(".")
    with ExitStack() as stack:
        if its_class:
            stack.enter_context(mock.patch.object(getattr(where, its_class), method, changed))
        for module in [
            module for name, module in sys.modules.items() if name.partition(".")[0] == "blueque"
        ]:
            for name, value in list(vars(module).items()):
                if value is original:
                    stack.enter_context(mock.patch.object(module, name, changed))
        # Nor may commands that were packed without the change be sent, or the other way round.
        _form.cache_clear()
        stack.callback(_form.cache_clear)
        yield


def _original(mutant: Mutant) -> tuple[ModuleType, Callable[..., Any]]:
    # Not `from blueque.protocol import recover`: that is the function of this name.
    its_class, _, name = mutant.function.rpartition(".")
    module = importlib.import_module(f"blueque.{'' if its_class else 'protocol.'}{mutant.module}")
    return module, getattr(getattr(module, its_class) if its_class else module, name)


def main() -> int:
    survivors = 0
    with open_explorer() as explore:
        for mutant in MUTANTS:
            with applied(mutant):
                found = explore(SCENARIOS[mutant.scenario], mutant.bounds, seconds=20)
            print(
                f"{mutant.name} @ {mutant.scenario}: {str(found).partition(chr(10))[0]}", flush=True
            )
            survivors += found.wrong is None
    return survivors


if __name__ == "__main__":
    sys.exit(main())
