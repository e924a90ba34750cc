"""Guards of the protocol, each broken on purpose: the explorer has to notice. `python tests/mutants.py` tries them all."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any, NamedTuple
from unittest import mock

from explore import open_explorer
from scenarios import SCENARIOS


class Mutant(NamedTuple):
    """One change of the text of one function, and the space of schedules in which it shows."""

    name: str
    module: str                                        # of blueque.protocol
    function: str
    before: str
    after: str
    scenario: str
    bounds: tuple[int, int]


MINE = "task, snapshot, token, node"
ANYBODYS = "task, snapshot, snapshot[1], snapshot[2] or ''"

MUTANTS = [
    # submit
    Mutant("enqueue does not look whether the id is new", "submit", "enqueue", "if exists:", "if False:", "producer",
           (0, 1)),
    Mutant("enqueue_due moves what is not scheduled", "submit", "enqueue_due", 'if known[task][0] == "scheduled"]', "]",
           "two schedulers", (1, 0)),
    Mutant("enqueue_due does not look at the time again", "submit", "enqueue_due", " and float(score) <= now", "",
           "retry and schedulers", (2, 0)),
    # run
    Mutant("pop does not look at the registration", "run", "pop", 'if known != [instance, "alive"]:', "if False:",
           "wrongly fenced", (1, 1)),
    Mutant("pop is repeated when its answer was lost", "run", "pop", ", repeatable=False", "", "patient listener", (0, 1)),
    Mutant("reserve does not look at the status", "run", "_reserve", 'status != "pending" or ', "", "double entry", (2, 0)),
    Mutant("reserve does not recognise its success", "run", "_reserve",
           'if status == "reserved" and fields.get("token") == token:', "if False:", "one fault", (0, 1)),
    Mutant("start by anybody", "run", "start", MINE, ANYBODYS, "wrongly fenced", (2, 0)),
    Mutant("start does not recognise its success", "run", "start",
           'if snapshot[:4] == ["started", token, node, str(pid)]:', "if False:", "one fault", (0, 1)),
    Mutant("complete by anybody", "run", "complete", MINE, ANYBODYS, "wrongly lost", (2, 0)),
    Mutant("complete does not recognise its success", "run", "complete",
           'if status == "complete" and finished_by == token:', "if False:", "one fault", (0, 1)),
    Mutant("fail does not recognise its success", "run", "fail", 'if status == "failed" and finished_by == token:',
           "if False:", "one fault", (0, 1)),
    Mutant("retry does not recognise its success", "run", "retry", "if token is not None and finished_by == token:",
           "if False:", "retry", (0, 1)),
    Mutant("release by anybody", "run", "release", MINE, ANYBODYS, "handed back", (1, 0)),
    Mutant("the end leaves the entry of the listener", "run", "_let_go",
           '("LREM", keys.reserved(queue, its.node), 1, task)', '("EXISTS", task)', "one fault", (0, 1)),
    Mutant("the end leaves the entry of a lost task", "run", "_let_go", 'return [("LREM", keys.failed(queue), 1, task)]',
           "return []", "late result", (0, 1)),
    # membership
    Mutant("a beat by anybody", "membership", "beat", "_require(instance_and_state, instance, node, queue)", "pass",
           "beat and fence", (1, 0)),
    Mutant("fence does not look at the beat", "membership", "fence", 'if known != [instance, "alive", beat]:',
           'if known[:2] != [instance, "alive"]:', "beat and fence", (1, 0)),
    Mutant("fence does not say that another has struck the listener off", "membership", "fence",
           '[] if is_member else ["struck", 1]', "[]", "struck off by 1.0.0", (2, 0)),
    # recover
    Mutant("recover does not look whether the listener is dead", "recover", "recover",
           " or not _is_dead(known, is_member, instance)", "", "recoverer and next life", (2, 0)),
    Mutant("recover takes what 1.0.0 has claimed", "recover", "recover", "claimant not in (None, dead_claimant)", "False",
           "struck off by 1.0.0", (1, 0)),
    Mutant("recover forgets the line", "recover", "recover", "*stand(queue, line_of(priority, needs), task, is_first=True),",
           "", "wrongly fenced", (1, 0)),
    Mutant("recover takes what 1.0.0 has claimed and runs", "recover", "recover", " or pid_start is None)", ")",
           "claimed by 1.0.0", (2, 0)),
    Mutant("lose does not look whether the listener is dead", "recover", "lose",
           "if not _is_dead(known, is_member, instance, state):", "if False:", "woken", (2, 0)),
    Mutant("lose does not look whether it is to be cancelled", "recover", "lose", "if cancel is not None:", "if False:",
           "cancel and end", (1, 0)),
    Mutant("lose keeps the token of what it puts in line", "recover", "lose",
           '("HDEL", keys.task(task), *IDENTITY, *OUTCOME)', '("HDEL", keys.task(task), *OUTCOME)',
           "zombie beside 1.0.0", (2, 0)),
    Mutant("adopt from whatever node", "recover", "adopt", 'if fields.get("node") != old:', "if False:",
           "two adopters", (2, 0)),
    Mutant("restore of whatever attempt", "recover", "restore", 'if fields.get("token") != token:', "if False:",
           "superseded", (1, 0)),
    # control
    Mutant("cancel leaves the entry in line", "control", "cancel",
           '("LREM", keys.line(queue, line_of(priority, needs)), 0, task)', '("EXISTS", task)', "cancel in line", (0, 1)),
    Mutant("requeue of a task that has not failed", "control", "requeue", 'if status not in ("failed", "cancelled"):',
           "if False:", "late result", (2, 0)),
    Mutant("requeue does not recognise its success", "control", "requeue", "if its_mark == mark:", "if False:",
           "late result", (0, 1)),
    # transaction and looks
    Mutant("nothing is watched", "transaction", "_decide", '[("WATCH", *look.watch), *look.reads]',
           '[("WATCH", "nothing"), *look.reads]', "double entry", (2, 0)),
    Mutant("enqueue does not watch the task", "looks", "absence", "Look((keys.task(task),)", 'Look(("nothing",)',
           "producer loses answers", (1, 1)),
    Mutant("start and the ends do not watch the task", "looks", "ownership", "Look((key,)", 'Look(("nothing",)',
           "wrongly fenced", (2, 0)),
]

EQUIVALENT = {
    "reserve does not look at the registration": (
        "a fenced listener can then still reserve what it had popped before. The entry is in its list, so recover takes it "
        "back, or leaves it to whoever adopts it if it has started; forget waits until the list is empty."
    ),
    "an end is accepted from a former node": (
        "the token is still compared, so it is the end of the same attempt, which both of its owners read in the same spool."
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
    """Return the function with its text changed. The text has to be there once: else the mutant says nothing."""
    module, original = _original(mutant)
    source = inspect.getsource(original)
    found = source.count(mutant.before)
    assert found == 1, f"{mutant.name}: {mutant.before!r} is {found} times in {mutant.function}: mend the mutant"
    names = dict(vars(module))
    exec(source.replace(mutant.before, mutant.after), names)
    changed: Callable[..., Any] = names[mutant.function]
    return changed


@contextmanager
def applied(mutant: Mutant) -> Iterator[None]:
    """Have the function be the mutant wherever it is used."""
    (_, original), changed = _original(mutant), mutated(mutant)
    with ExitStack() as stack:
        for module in [module for name, module in sys.modules.items() if name.partition(".")[0] == "blueque"]:
            for name, value in list(vars(module).items()):
                if value is original:
                    stack.enter_context(mock.patch.object(module, name, changed))
        yield


def _original(mutant: Mutant) -> tuple[ModuleType, Callable[..., Any]]:
    # Not `from blueque.protocol import recover`: that is the function of this name.
    module = importlib.import_module(f"blueque.protocol.{mutant.module}")
    return module, getattr(module, mutant.function)


def main() -> int:
    survivors = 0
    with open_explorer() as explore:
        for mutant in MUTANTS:
            with applied(mutant):
                found = explore(SCENARIOS[mutant.scenario], mutant.bounds, seconds=20)
            print(f"{mutant.name} @ {mutant.scenario}: {str(found).partition(chr(10))[0]}", flush=True)
            survivors += found.wrong is None
    return survivors


if __name__ == "__main__":
    sys.exit(main())
