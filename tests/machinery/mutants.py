"""Guards of the protocol, each broken on purpose, as `mutants.txt` lists them: the explorer has to notice,
or a test.

`PYTHONPATH=tests:tests/legacy python tests/machinery/mutants.py` tries them all.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from unittest import mock

from explore import open_explorer
from scenarios import SCENARIOS
from transactions import protocol

from blueque.protocol.create import _form


class Mutant(NamedTuple):
    """One change of the text of one function, and the space of schedules in which it shows.

    module: of blueque.protocol, or of blueque for a method, or with a dot in it.
    function: or Class.method.
    scenario: of the explorer, or the id of a test that has to fail.
    """

    name: str
    module: str
    function: str
    before: str
    after: str
    scenario: str = ""
    bounds: tuple[int, int] = (0, 0)


def read_mutants() -> list[Mutant]:
    found = []
    for block in Path(__file__).with_suffix(".txt").read_text().rstrip("\n").split("\n\n"):
        lines = [line for line in block.split("\n") if not line.startswith("#")]
        if not lines:
            continue
        name, place, *text = lines
        before, after = (
            "\n".join(line[1:] for line in text if line[0] == sign) for sign in ("-", "+")
        )
        where, _, seen = place.partition(" @ ")
        module, _, function = where.partition(":")
        scenario, bounds = seen, (0, 0)
        if not seen.startswith("tests/"):
            scenario, switches, faults = seen.rsplit(" ", 2)
            bounds = int(switches), int(faults)
        found.append(Mutant(name, module, function, before, after, scenario, bounds))
    return found


_ALL = read_mutants()
MUTANTS = [mutant for mutant in _ALL if not mutant.scenario.startswith("tests/")]
# What nobody can see who does not know which task has to come next, or who should be called.
IN_TESTS = [mutant for mutant in _ALL if mutant.scenario.startswith("tests/")]

EQUIVALENT = {
    "requeue of a task that has not failed": (
        "the places that it leaves follow from its status, so the task moves whole, and its attempt is refused from then on. It "
        "is a consent to another start. A sample of the protocol pages sees the refusal."
    ),
    "fire does not watch the task that came last": (
        "it has ended, or runs again, a moment after the EXEC as well. What it has locked keeps the next one from starting."
    ),
    "settle_members does not watch the record": (
        "if the record expires meanwhile, the sets get entries again. The score 0 has finish_group remove them at once."
    ),
    "close_group and cancel_group do not watch the record": (
        "closed once more, a group ends once more, and those who wait for it were told. cancel in the record of a group that "
        "has ended does nothing, and goes when a member runs again."
    ),
    "the bad members of a group are not watched": (
        "how the group stood was true when it was read. What is met stays met, and what a late verdict has cancelled stays "
        "cancelled, as if it had been in time."
    ),
    "settle does not watch who waits for the task": (
        "whoever waits for it from now on writes into its hash as well, and that is watched."
    ),
    "requeue does not watch the conditions": (
        "they can only be met meanwhile, or be dropped. Then it waits without need, and recheck, which is due, lets it go."
    ),
    "reserve does not look at the registration": (
        "a fenced listener can then still reserve what it had popped before. The entry is in its list, so recover takes it "
        "back, or leaves it to whoever adopts it if it has started; forget waits until the list is empty."
    ),
    "an end is accepted from a former node": (
        "the token is still compared, so it is the end of the same attempt, which both of its owners read in the same spool."
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
    # A property is looked up in its class as such, with the function in it.
    source = textwrap.dedent(inspect.getsource(getattr(original, "fget", original)))
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
        package = [
            module for name, module in sys.modules.items() if name.partition(".")[0] == "blueque"
        ]
        for module in [*package, protocol]:
            for name, value in list(vars(module).items()):
                if value is original:
                    stack.enter_context(mock.patch.object(module, name, changed))
        # Nor may commands that were packed without the change be sent, or the other way round.
        _form.cache_clear()
        stack.callback(_form.cache_clear)
        yield


def _original(mutant: Mutant) -> tuple[ModuleType, Callable[..., Any]]:
    its_class, _, name = mutant.function.rpartition(".")
    room = "" if its_class or "." in mutant.module else "protocol."
    module = importlib.import_module(f"blueque.{room}{mutant.module}")
    return module, getattr(getattr(module, its_class) if its_class else module, name)


_FOR_ALL_TESTS = ExitStack()


def pytest_configure() -> None:
    """Have all tests of a run meet the mutant that the variable MUTANT names: `pytest -p mutants`."""
    for mutant in IN_TESTS:
        if mutant.name == os.environ.get("MUTANT"):
            _FOR_ALL_TESTS.enter_context(applied(mutant))


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
