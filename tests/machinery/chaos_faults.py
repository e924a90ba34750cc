"""The injector of chaos: which faults there are, whom they strike, and the proof that the victim
was at work.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from chaos_ledger import CRASHED, Away, Ledger, Run, now
from chaos_node import QUEUE, Node, node_pid
from chaos_services import Watched, start_again
from chaos_stage import LEASE, LOST_AFTER, Stage
from running import is_keeper, is_there, parent_of, until
from sentinels import freeze, thaw
from wire import Wire

from blueque.model import keys
from blueque.system.embedded_redis import Server

ADOPTED_WITHIN = LEASE + 1.2  # seconds; a frozen one is not known to be dead before its lease
VICTIMS = 8  # listeners that were killed, of which one at least has an heir
SOON = 0.05  # seconds until it is tried again when there was no victim


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

    log: gets a line for each thing that is done.
    """

    def __init__(self, stage: Stage, ledger: Ledger, seed: int, log: Callable[[str], None]) -> None:
        self._stage, self._ledger, self._log = stage, ledger, log
        self._random = random.Random(seed)
        is_watched = isinstance(stage.service, Watched)
        self.faults = FAULTS | (FAULTS_OF_SENTINEL if is_watched else {})
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
            said = self.faults[name](self)
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

    # Afterwards

    def _later(
        self, low: float, high: float, undo: Callable[[], None], away: Iterable[Away] = ()
    ) -> float:
        """Take it back after a while. Somebody is away until it has been, however late that is."""

        def take_back() -> None:
            undo()
            _end(away)

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
            _end([away])
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
        _end(away)
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
            _end(away)
            return True

        self._jobs.append(is_up)

    # What can be done to processes

    def kill_listener(self) -> str | None:
        victim = self._listener()
        if victim is None:
            return None
        since = now()
        victim.send_last(signal.SIGKILL)
        self._unattended(victim, "listener killed, adopted late", since)
        return str(victim)

    def kill_task(self) -> str | None:
        runs = self.running()
        if not runs:
            return None
        run, since = self._random.choice(runs), now()
        with contextlib.suppress(ProcessLookupError):
            os.kill(run.process or 0, signal.SIGKILL)
            run.killed = (since, now())
            return f"task={run.task} attempt={run.attempt} pid={run.pid} node={run.node}"
        return None

    def _freeze_listener(self, low: float, high: float) -> str | None:
        victim = self._listener()
        if victim is None:
            return None
        since = now()
        victim.send(signal.SIGSTOP)

        def thaw() -> None:
            victim.send_last(signal.SIGCONT)
            _end([away])  # it attends to the run again, unless another does
            self._log(f"thawed {victim.name}")
            if seconds <= LEASE < away.until - since:  # nobody was meant to notice
                self.away.append(away)

        seconds = self._later(low, high, thaw)
        if seconds > LEASE:
            away = self._unattended(victim, "listener frozen, adopted late", since)
        else:
            away = Away(victim.run.node, "listener frozen", since)
        return f"{victim} for {seconds:.2f} s"

    def freeze_listener_briefly(self) -> str | None:
        return self._freeze_listener(0.1, LEASE * 0.6)

    def freeze_listener_beyond_lease(self) -> str | None:
        return self._freeze_listener(LEASE * 1.5, LOST_AFTER + 1.0)

    def _keeper(self) -> Victim | None:
        """Return a keeper with a task."""
        runs = self.running()
        for run in self._random.sample(runs, len(runs)):
            keeper = parent_of(run.process or 0)
            with contextlib.suppress(OSError):
                if not self._stage.node(run.node).is_busy and is_keeper(keeper):
                    return Victim(run, "keeper of", os.pidfd_open(keeper))
        return None

    def kill_keeper(self) -> str | None:
        victim = self._keeper()
        if victim is None:
            return None
        victim.send_last(signal.SIGKILL)
        return str(victim)

    def stop_keeper(self) -> str | None:
        victim = self._keeper()
        if victim is None:
            return None
        victim.send(signal.SIGSTOP)
        seconds = self._later(0.1, LOST_AFTER, lambda: victim.send_last(signal.SIGCONT))
        return f"{victim} for {seconds:.2f} s"

    # What can be done to a node

    def _strike_node(
        self,
        cause: str,
        do: Callable[[Node], object],
        undo: Callable[[Node, list[Away]], object],
        low: float,
        high: float,
    ) -> str | None:
        """Do something to a node with tasks. undo: takes it back, and ends the times."""
        found = self._idle_node()
        if found is None:
            return None
        node, runs = found
        node.is_busy = True
        away = self._are_away(cause, [node])
        do(node)
        seconds = self._later(low, high, lambda: undo(node, away))
        return f"node={node.name} tasks={len(runs)} for {seconds:.2f} s"

    def kill_master(self) -> str | None:
        return self._end_master(signal.SIGKILL)

    def leave_and_start_again(self) -> str | None:
        return self._end_master(signal.SIGTERM)

    def _end_master(self, number: int) -> str | None:
        def end(node: Node) -> None:
            if node.master is not None and node.listener is not None:
                os.kill(node.master, number)
                node.listener.wait()

        return self._strike_node("no master", end, self._start_again, 0.0, 1.0)

    def _crash_node(self, low: float, high: float) -> str | None:
        return self._strike_node(CRASHED, Node.crash, self._start_again, low, high)

    def crash_node_briefly(self) -> str | None:
        return self._crash_node(0.1, LOST_AFTER / 2)

    def crash_node_beyond_lost_after(self) -> str | None:
        return self._crash_node(LOST_AFTER + 0.3, LOST_AFTER + 1.3)

    def freeze_node(self) -> str | None:
        def freeze(node: Node) -> None:
            node.signal_all(signal.SIGSTOP)

        def thaw(node: Node, away: list[Away]) -> None:
            node.signal_all(signal.SIGCONT)
            self._is_back(node, away)

        return self._strike_node("node frozen", freeze, thaw, LEASE, LOST_AFTER + 1.0)

    def cut_off_node_beyond_lost_after(self) -> str | None:
        if self._is_net_busy:
            return None
        do = self._random.choice([Wire.cut, Wire.stall])

        def cut_off(node: Node) -> None:
            self._is_net_busy = True
            for wire in node.wires:
                do(wire)

        def heal(node: Node, away: list[Away]) -> None:
            self._heal(node.wires)
            self._is_back(node, away)

        return self._strike_node("node cut off", cut_off, heal, LOST_AFTER + 0.3, LOST_AFTER + 1.3)

    # What can be done to the rest

    def kill_scheduler(self) -> str | None:
        stage, scheduler = self._stage, self._stage.scheduler
        if scheduler is None or not scheduler.is_running or not stage.is_redis_well:
            return None
        (waiting,) = stage.control.connections.read(("ZCARD", keys.scheduled(QUEUE)))
        if not waiting:
            return None
        stage.scheduler = None
        scheduler.stop(signal.SIGKILL)
        self._later(0.0, 1.0, stage.start_scheduler)
        return f"with {waiting} tasks scheduled"

    # What can be done to Redis

    def _strike_redis(
        self,
        do: Callable[[Server], object],
        undo: Callable[[Server], object],
        low: float,
        high: float,
    ) -> str | None:
        stage, runs = self._stage, self.running()
        if not stage.is_redis_well or not runs:
            return None
        stage.is_redis_well = False
        away = self._are_away("redis away", stage.nodes)
        server = stage.service.primary()
        do(server)

        def take_back() -> None:
            undo(server)
            stage.is_redis_well = True
            self._log("redis is back")

        seconds = self._later(low, high, take_back, away)
        return f"with {len(runs)} tasks running, for {seconds:.2f} s"

    def kill_redis(self) -> str | None:
        return self._strike_redis(Server.kill, start_again, 0.0, 1.2)

    def freeze_redis(self) -> str | None:
        return self._strike_redis(freeze, thaw, 0.2, LOST_AFTER)

    def replace_primary(self) -> str | None:
        """Have a person replace the primary, which refuses writes until Sentinel has named another."""
        stage, runs = self._stage, self.running()
        service = stage.service
        if not isinstance(service, Watched) or not stage.is_redis_well or not runs:
            return None
        before = service.refuse_writes()
        if before is None:
            return None
        stage.is_redis_well = False
        away = self._are_away("redis away", stage.nodes)
        began = now()

        def is_replaced() -> bool:
            if not service.replace(before):
                return False
            # Else it reads from the old one, which may be behind, until it asks Sentinel again.
            stage.control.connections.close()
            stage.is_redis_well = True
            _end(away)
            self._log(f"replaced the primary in {now() - began:.2f} s")
            return True

        self._jobs.append(is_replaced)
        return f"with {len(runs)} tasks running"

    def kill_clients(self) -> str | None:
        runs = self.running()
        if not self._stage.is_redis_well or not runs:
            return None
        (count,) = self._stage.control.connections.read(
            ("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        )
        return f"{count} connections with {len(runs)} tasks running" if count else None

    # What can be done to the network

    def _wires(self) -> tuple[str, list[Wire]] | None:
        """Return the wires of one node or all, if tasks run there that use them."""
        if self._is_net_busy:
            return None
        nodes = [
            node
            for node in self._stage.nodes
            if any(wire.connections for wire in node.wires) and self.running(node)
        ]
        if not nodes:
            return None
        if self._random.random() < 0.4:
            return "all", self._stage.wires
        node = self._random.choice(nodes)
        return f"node={node.name}", node.wires

    def _disturb(self, low: float, high: float, do: Callable[[Wire], None]) -> str | None:
        found = self._wires()
        if found is None:
            return None
        where, wires = found
        self._is_net_busy = True
        away = self._are_away(
            "network disturbed", [node for node in self._stage.nodes if node.wires[0] in wires]
        )
        for wire in wires:
            do(wire)
        seconds = self._later(low, high, lambda: self._heal(wires), away)
        return f"{where} for {seconds:.2f} s"

    def _heal(self, wires: list[Wire]) -> None:
        for wire in wires:
            wire.heal()
        self._is_net_busy = False
        self._log("healed the network")

    def delay_network(self) -> str | None:
        delay = self._random.uniform(0.005, 0.1)
        return self._disturb(0.5, 2.0, lambda wire: setattr(wire, "delay", delay))

    def cut_network(self) -> str | None:
        return self._disturb(0.05, 1.5, Wire.cut)

    def stall_network(self) -> str | None:
        return self._disturb(0.2, 2.0, Wire.stall)

    def cut_after_exec(self) -> str | None:
        """Lose the answer to one transaction that was executed: ask for that, and tell of it once
        one has come by.

        Waiting for it here would make all that is to be taken back late.
        """
        if self._armed is None:
            self._armed = self._wires() if self._stage.is_redis_well else None
            self._arm(self._armed[1] if self._armed is not None else [], True)
            return None
        where, wires = self._armed
        if all(wire.cuts_after for wire in wires):
            return None
        self._armed = None
        self._arm(wires, False)
        return where

    def _arm(self, wires: list[Wire], is_so: bool) -> None:
        for wire in wires:
            wire.cuts_after = is_so


def _end(away: Iterable[Away]) -> None:
    """Note that it is over, if that has not been noted before."""
    for span in away:
        span.until = min(span.until, now())


FAULTS: dict[str, Callable[[Injector], str | None]] = {
    call.__name__: call
    for call in (
        Injector.kill_listener,
        Injector.kill_task,
        Injector.kill_keeper,
        Injector.stop_keeper,
        Injector.freeze_listener_briefly,
        Injector.freeze_listener_beyond_lease,
        Injector.kill_master,
        Injector.leave_and_start_again,
        Injector.crash_node_briefly,
        Injector.crash_node_beyond_lost_after,
        Injector.freeze_node,
        Injector.kill_scheduler,
        Injector.kill_redis,
        Injector.freeze_redis,
        Injector.kill_clients,
        Injector.delay_network,
        Injector.cut_network,
        Injector.stall_network,
        Injector.cut_after_exec,
        Injector.cut_off_node_beyond_lost_after,
    )
}
FAULTS_OF_SENTINEL = {"replace_primary": Injector.replace_primary}
