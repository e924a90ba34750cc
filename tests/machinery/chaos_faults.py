"""The faults of chaos: each strikes if it finds somebody in the midst of work."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable

from chaos_injector import Injector, end
from chaos_ledger import CRASHED, Away, now
from chaos_node import QUEUE, Node
from chaos_services import Watched, start_again
from chaos_stage import LEASE, LOST_AFTER
from sentinels import freeze, thaw
from wire import Wire

from blueque.model import keys
from blueque.system.embedded_redis import Server


class Faults(Injector):
    """All that is not private is a fault."""

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
            end([away])  # it attends to the run again, unless another does
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
        def end_it(node: Node) -> None:
            if node.master is not None and node.listener is not None:
                os.kill(node.master, number)
                node.listener.wait()

        return self._strike_node("no master", end_it, self._start_again, 0.0, 1.0)

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
            end(away)
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
