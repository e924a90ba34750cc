"""The injector of chaos: whom the faults strike and when, and the proof that the victim was at work."""

from __future__ import annotations

import contextlib
import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from chaos_ledger import Away, Ledger, Run, now
from chaos_node import Node, node_pid
from chaos_services import Watched
from chaos_stage import LEASE, Stage
from running import is_keeper, is_there, parent_of, until
from wire import Wire

ADOPTED_WITHIN = LEASE + 1.2  # seconds; a frozen one is not known to be dead before its lease
VICTIMS = 8  # listeners that were killed, of which one at least has an heir
SOON = 0.05  # seconds until it is tried again when there was no victim
OF_SENTINEL = ("replace_primary",)  # faults of a service behind Sentinel alone


class Victim(NamedTuple):
    """A listener, or a keeper, and a run that it sees to. pidfd: of the victim, which cannot become
    another process.
    """

    run: Run
    name: str
    pidfd: int

    def send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, number)

    def send_last(self, number: int) -> None:
        self.send(number)
        os.close(self.pidfd)

    def __str__(self) -> str:
        run = self.run
        return f"{self.name} task={run.task} attempt={run.attempt} node={run.node}"


class Injector:
    """Strikes now and then, by a seed; whatever it does it takes back after a while, which a busy
    machine makes longer.

    faults: by name; each is a method of a subclass, and returns what it has done, or None if there
        was no victim. log: gets a line for each thing that is done.
    """

    def __init__(self, stage: Stage, ledger: Ledger, seed: int, log: Callable[[str], None]) -> None:
        self._stage, self._ledger, self._log = stage, ledger, log
        self._random = random.Random(seed)
        is_watched = isinstance(stage.service, Watched)
        self.faults: dict[str, Callable[[], str | None]] = {
            name: getattr(self, name)
            for name in vars(type(self))
            if not name.startswith("_") and (is_watched or name not in OF_SENTINEL)
        }
        self.hits: Counter[str] = Counter()  # the victim was in the midst of work
        self.misses: Counter[str] = Counter()  # there was no such victim
        self.away: list[Away] = []
        self.adopted: list[float] = []  # after how many seconds a run had another listener
        # runs that went on for long without one, nothing else being wrong
        self.unadopted: list[str] = []
        self._undos: list[tuple[float, Callable[[], None]]] = []
        self._jobs: list[Callable[[], bool]] = []  # called until they are done
        self._deck: list[str] = []
        self._is_net_busy = False
        # the wires that wait for a transaction to cut, and where they are
        self._armed: tuple[str, list[Wire]] | None = None
        self._next = 0.0

    def step(self) -> None:
        """Strike if it is time to, and take back what is due."""
        for undo in [item for item in self._undos if item[0] <= now()]:
            self._undos.remove(undo)
            undo[1]()
        self.work()
        if now() >= self._next:
            self._next = now() + (self._random.uniform(0.3, 1.0) if self._strike() else SOON)

    def finish(self) -> None:
        """Take everything back."""
        while self._undos:
            self._undos.sort(key=lambda item: item[0])
            self._undos.pop(0)[1]()
        self._armed = None
        self._arm(self._stage.wires, False)
        until(self.work, what="the end of the last fault")

    def note_stall(self, since: float, until: float) -> None:
        """Note that the machine stood still."""
        self.away += [
            Away(node.name, "machine stood still", since, until) for node in self._stage.nodes
        ]
        self._log(f"the machine stood still for {until - since:.2f} s")

    @property
    def never(self) -> list[str]:
        """The faults that have never found a victim in the midst of work."""
        return [name for name in self.faults if not self.hits[name]]

    @property
    def never_adopted(self) -> list[str]:
        """What is wrong when not one run has had another listener; about every other one does in
        time.
        """
        victims = self.hits["kill_listener"] + self.hits["freeze_listener_beyond_lease"]
        return (
            [f"none of {victims} runs was adopted"]
            if victims >= VICTIMS and not self.adopted
            else []
        )

    def work(self) -> bool:
        """Call the jobs, each until it is done; tell whether all are."""
        self._jobs = [job for job in self._jobs if not job()]
        return not self._jobs

    def _strike(self) -> bool:
        """Try the faults in turn, each once before any is repeated, until one finds a victim."""
        if not self._deck:
            self._deck = self._random.sample(sorted(self.faults), len(self.faults))
            # Those of which only one can go on at a time; in a short run they would not all have
            # their turn.
            self._deck.sort(
                key=lambda name: (
                    not any(word in name for word in ("node_", "freeze_node", "master", "leave"))
                )
            )
        for name in list(self._deck):
            said = self.faults[name]()
            if said:
                self.hits[name] += 1
                self._deck.remove(name)
                self._log(f"{name} {said}")
                return True
            self.misses[name] += 1
        return False

    # Victims

    def running(self, node: Node | None = None) -> list[Run]:
        """Return the runs that certainly go on: the ledger has their start and no end, and their
        processes are there.
        """
        self._ledger.read()
        return [
            run
            for run in self._ledger.running
            if not run.ended
            and run.process
            and is_there(run.process)
            and (node is None or run.node == node.name)
        ]

    def _idle_node(self) -> tuple[Node, list[Run]] | None:
        """Return a node to which nothing is done and what runs there, if nothing is done to another:
        one shall remain.
        """
        if any(node.is_busy for node in self._stage.nodes):
            return None
        nodes = self._stage.nodes
        at_work = [
            (node, runs)
            for node in nodes
            if node.master is not None and (runs := self.running(node))
        ]
        return self._random.choice(at_work) if at_work else None

    def _listener(self) -> Victim | None:
        """Return a listener with a task."""
        if not self._stage.is_redis_well:
            return None
        runs = self.running()
        tasks = {run.task: self._stage.control.get_task(run.task) for run in runs}
        # Those that have longest to go at first: they shall outlive their listeners.
        for run in sorted(
            runs,
            key=lambda run: run.began + float(tasks[run.task].parameters.split()[1]),
            reverse=True,
        ):
            node, task = self._stage.node(run.node), tasks[run.task]
            pid = node.find(node_pid(task.node))
            if not pid or node.is_busy or (task.status, task.attempt) != ("started", run.attempt):
                continue
            with contextlib.suppress(OSError):
                victim = Victim(run, task.node or "", os.pidfd_open(pid))
                if is_there(pid) and is_there(run.process or 0):
                    return victim
                os.close(victim.pidfd)
        return None

    def _keeper(self) -> Victim | None:
        """Return a keeper with a task."""
        runs = self.running()
        for run in self._random.sample(runs, len(runs)):
            keeper = parent_of(run.process or 0)
            with contextlib.suppress(OSError):
                if not self._stage.node(run.node).is_busy and is_keeper(keeper):
                    return Victim(run, "keeper of", os.pidfd_open(keeper))
        return None

    # Afterwards

    def _later(
        self, low: float, high: float, undo: Callable[[], None], away: Iterable[Away] = ()
    ) -> float:
        """Take it back after a while. Somebody is away until it has been, however late that is."""

        def take_back() -> None:
            undo()
            end(away)

        seconds = self._random.uniform(low, high)
        self._undos.append((now() + seconds, take_back))
        return seconds

    def _unattended(self, victim: Victim, cause: str, since: float) -> Away:
        """Note for how long nobody attends to the run: until another has it, its end is known, or
        we are told.
        """
        away = Away(victim.run.node, cause, since)
        last = since  # when nobody did for certain: our next look may be late

        def is_over() -> bool:
            nonlocal last
            if not self._stage.is_redis_well:
                return False
            at, task = now(), self._stage.control.get_task(victim.run.task)
            is_same = (task.status, task.attempt) == ("started", victim.run.attempt)
            if is_same and task.node == victim.name:
                # if not, somebody has still to tell of its end
                if is_there(victim.run.process or 0):
                    last = min(at, away.until)
                return False
            took = last - since
            if is_same:
                self.adopted.append(now() - since)
            elif took > ADOPTED_WITHIN and not any(
                span.covers(victim.run.node, since, last) for span in self.away
            ):
                self.unadopted.append(
                    f"task {victim.run.task} went on for {took:.1f} s without a listener ({cause})"
                )
            end([away])
            self.away.append(away)
            return True

        self._jobs.append(is_over)
        return away

    def _are_away(self, cause: str, nodes: Iterable[Node]) -> list[Away]:
        """Note that nobody can attend to the nodes from now on. To be called before that is so, and
        ended after it.
        """
        spans = [Away(node.name, cause, now()) for node in nodes]
        self.away += spans
        return spans

    def _is_back(self, node: Node, away: Iterable[Away]) -> None:
        node.is_busy = False
        end(away)
        self._log(f"node={node.name} is back")

    def _start_again(self, node: Node, away: Iterable[Away]) -> None:
        """Start its blueque-listener. Nobody attends to it before that has come up, which takes a
        busy machine its time.
        """
        node.start()
        self._is_back(node, ())
        listener = node.listener

        def is_up() -> bool:
            if listener is not None and listener.is_running and not listener.log:
                return False
            end(away)
            return True

        self._jobs.append(is_up)

    def _arm(self, wires: list[Wire], is_so: bool) -> None:
        for wire in wires:
            wire.cuts_after = is_so


def end(away: Iterable[Away]) -> None:
    """Note that it is over, if that has not been noted before."""
    for span in away:
        span.until = min(span.until, now())
