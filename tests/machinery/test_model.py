"""A model of the queue in pure Python beside a real Redis: after any operation, in any order, both
say the same.

`PYTHONPATH=tests:tests/legacy python tests/machinery/test_model.py --examples 5000` goes on for
longer than the suite does; `soak(seconds)` is for bin/soak.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from collections.abc import Callable

from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test
from machine import own_clock
from rules import QueueMachine
from schedule_rules import ScheduleMachine

from blueque.system.embedded_redis import running_server

EXAMPLES = 150  # BLUEQUE_MODEL_EXAMPLES asks for another number
STEPS = 40

# How often what has to happen in 450 examples, or the test says nothing. It happens about twice as
# often in the poorest of runs.
FLOORS = {
    "end": 150,
    "end told twice": 30,
    "end of a revoked attempt": 50,
    "end of a lost attempt": 5,
    "enqueue": 600,
    "schedule": 250,
    "enqueue again: False": 15,
    "enqueue_due: some": 15,
    "hint at pending": 10,
    "hint at started": 5,
    "1.0.0 takes": 30,
    "cancel scheduled: cancelled": 8,
    "cancel pending: cancelled": 1,
    "cancel started: cancelling": 4,
    "cancel first: cancelling": 40,
    "cancel pending: WrongQueue": 1,
    "requeue: pending": 15,
    "requeue: WrongState": 12,
    "requeue again: pending": 4,
    "requeue_failed: some": 1,
    "delete: True": 12,
    "delete: WrongState": 3,
    "order: True": 40,
    "order: False": 5,
    "register: None": 600,
    "register: Taken": 20,
    "beat: some": 200,
    "beat: NotRegistered": 12,
    "wait: True": 20,
    "deregister: True": 5,
    "deregister: False": 4,
    "die with a task": 20,
    "wake up": 40,
    "pop: some": 120,
    "pop: NotRegistered": 2,
    "take: some": 400,
    "take: none": 24,
    "take: NotRegistered": 1,
    "start: None": 330,
    "start: NotOwner": 7,
    "progress: None": 20,
    "progress: NotOwner": 1,
    "complete: None": 7,
    "complete: NotOwner": 14,
    "fail: None": 8,
    "fail: NotOwner": 10,
    "report success: None": 12,
    "report success: NotOwner": 9,
    "report failure: NotOwner": 7,
    "report failure became failed": 25,
    "report failure became pending": 4,
    "report failure became scheduled": 3,
    "release became pending": 35,
    "release became cancelled": 5,
    "release: NotOwner": 12,
    "interrupt: None": 5,
    "expired: pending": 8,
    "a task that is late is put back": 8,
    "confirm_cancel became cancelled": 14,
    "confirm_cancel: NotOwner": 1,
    "fence: True": 140,
    "fence: False": 10,
    "deregister the dead: True": 50,
    "deregister the dead: False": 60,
    "recover: released": 18,
    "recover: started": 17,
    "recover: None": 34,
    "lose: failed": 6,
    "lose: pending": 5,
    "lose: None": 25,
    "lose own: failed": 15,
    "lose own: pending": 9,
    "adopt: some": 5,
    "adopt: None": 75,
    "restore: some": 9,
    "restore: None": 10,
    "reassert: some": 35,
    "claim: some": 2,
    "claim: None": 7,
    "reserve with lock": 250,
    "reserve with counted": 80,
    "reserve with resources": 120,
    "reserve in another line": 250,
    "a lock is taken": 120,
    "a queue is full": 12,
    "a queue is paused": 60,
    "a task is put back": 6,
    "what nobody holds is freed": 5,
    "another is called": 4,
    "an empty line is dropped": 1,
    "set_priority of one that is pending": 12,
    "set_priority of one that is scheduled": 10,
    "put_first: None": 15,
    "put_first: WrongState": 12,
    "move of one that is pending": 10,
    "move of one that is scheduled": 4,
    "pause: True": 100,
    "pause: False": 12,
    "resume: True": 90,
    "align_task: True": 60,
    "align_task: False": 8,
    "align_line: False": 50,
    "made to wait: blocked": 300,
    "awaited, and then: late": 8,
    "settle: released": 25,
    "settle: waiting": 50,
    "settle: cancelled": 50,
    "a result is copied": 20,
    "recheck: linked": 15,
    "recheck: blocked": 40,
    "unblock: pending": 8,
    "join a group: some": 60,
    "wait for a group: some": 60,
    "open_group with after: some": 25,
    "open_group with after: WrongGroup": 40,
    "reopen_group: True": 25,
    "reopen_group: WrongGroup": 25,
    "collect_group: True": 4,
    "settle_members: None": 30,
    "finish_group: some": 80,
    "settle_group: some": 80,
    "a member is gone": 4,
    "a group runs again": 20,
    "spawn: some": 25,
    "spawn: NotOwner": 10,
    "complete with new tasks: None": 15,
    "purge: some": 60,
    "prune: some": 8,
}


# The same for schedules, a quarter of what happens.
SCHEDULE_EXAMPLES = 60
SCHEDULE_FLOORS = {
    "set_schedule: some": 50,
    "fire: made": 30,
    "fire: skipped": 4,
    "fire: missed": 1,
    "fire: nothing": 8,
    "pause: True": 20,
    "resume: True": 15,
    "trigger: some": 40,
    "trigger: WrongSchedule": 10,
    "delete_schedule: True": 5,
    "complete: None": 5,
    "fail: None": 3,
}


def test_redis_and_the_model_of_it_say_the_same_whatever_is_done(url):
    examples = int(os.environ.get("BLUEQUE_MODEL_EXAMPLES", EXAMPLES))
    tally = run(url, examples)
    if examples >= EXAMPLES:
        assert shortages(tally, examples) == {}


def test_redis_and_the_model_of_schedules_say_the_same_whoever_fires(url):
    tally = run(url, SCHEDULE_EXAMPLES, machine=ScheduleMachine)
    assert {
        what: tally[what] for what, least in SCHEDULE_FLOORS.items() if tally[what] < least
    } == {}


def run(
    url: str,
    examples: int,
    is_random: bool = False,
    machine: Callable[[str, Counter[str]], RuleBasedStateMachine] = QueueMachine,
) -> Counter[str]:
    """Run so many examples on that Redis, which is emptied; return how often what has happened.

    is_random: other examples each time; otherwise always the same, and what fails, fails again.
    """
    tally: Counter[str] = Counter()
    wanted = settings(
        max_examples=examples,
        stateful_step_count=STEPS,
        deadline=None,
        derandomize=not is_random,
        database=None,
        print_blob=is_random,
        suppress_health_check=list(HealthCheck),  # it is slow on a busy machine, and that is all
    )
    with own_clock():
        run_state_machine_as_test(lambda: machine(url, tally), settings=wanted)
    return tally


def shortages(tally: Counter[str], examples: int) -> dict[str, int]:
    """Return what has not happened often enough for so many examples to say anything, and how often
    it has.

    What is so rare that these examples may well do without it is left to the many of `soak`.
    """
    # The histories differ from one version of hypothesis to another, and with them how often the
    # rarer things happen.
    least = {
        what: floor * examples // (450 if what == "end of a revoked attempt" else 4 * 450)
        for what, floor in FLOORS.items()
    }
    return {
        what: tally[what] for what, floor in least.items() if floor >= 4 and tally[what] < floor
    }


def soak(seconds: float, examples: int = 100) -> Counter[str]:
    """Run other examples each time, so many at once, until the time is over."""
    tally: Counter[str] = Counter()
    end, rounds = time.monotonic() + seconds, 0
    with running_server() as server:
        while time.monotonic() < end:
            tally += run(server.url, examples, is_random=True)
            tally += run(server.url, examples, is_random=True, machine=ScheduleMachine)
            rounds += 1
    assert shortages(tally, rounds * examples) == {}
    return tally


def main() -> None:
    parser = argparse.ArgumentParser(description="Run random examples and count what has happened.")
    parser.add_argument("--examples", type=int, default=1000)
    examples = parser.parse_args().examples
    with running_server() as server:
        tally = run(server.url, examples, is_random=True)
    for what in sorted(tally):
        print(f"{tally[what]:8} {what}")
    print(f"too seldom: {shortages(tally, examples) or 'nothing'}")


if __name__ == "__main__":
    main()
