"""The observations of a judge about the listeners of one queue. All times are monotonic."""

from __future__ import annotations

from collections.abc import Mapping, Set

from blueque.model import units

LONGEST_PACE = 10.0  # seconds between two looks
LOOK_AT_STARTED = 60.0  # seconds between two looks for started tasks of unregistered listeners


class Observed:
    """One listener, as this judge has observed it."""

    def __init__(self, beat: float | None, since: float) -> None:
        self.beat, self.since = beat, since  # since: when the beat was first seen
        # Empty for a listener of 1.0.0; None: to be read.
        self.registration: dict[str, str] | None = None
        self.is_struck_by_us = False  # then no listener of 1.0.0 is about to claim its tasks

    @property
    def lease(self) -> float:
        # At least three beats, even if the registration says less: see docs/protocol.md.
        return max(
            number(self.registration, "lease", units.LEASE),
            3 * number(self.registration, "beat_every", 0.0),
        )

    @property
    def lost_after(self) -> float:
        return number(self.registration, "lost_after", units.LOST_AFTER)

    @property
    def longest_gap(self) -> float:
        """Seconds without a look after which the observation starts anew."""
        is_dead = bool(self.registration) and (self.registration or {}).get("state") == "dead"
        return (self.lost_after if is_dead else self.lease) / 4

    def may_be_judged_by_time(self) -> bool:
        """Return whether the listener beats. One used as a library does not, nor does 1.0.0."""
        return number(self.registration, "beat_every", 0.0) > 0

    def restart(self, now: float) -> None:
        """Start waiting for a whole lease again."""
        self.since = now


class ObservedQueue:
    """The listeners of one queue, as this judge has observed them."""

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.own_node = ""  # of the listener that judges, if one does
        self.listeners: dict[str, Observed] = {}
        self.members: Set[str] = frozenset()
        self._last_look: float | None = None  # None: it failed
        self.looked_at = 0.0  # when the last look was
        self._next_look_at_started = 0.0

    @property
    def pace(self) -> float:
        """Seconds from one look to the next."""
        if not self.listeners:
            return LOOK_AT_STARTED
        beating = [each for each in self.listeners.values() if each.may_be_judged_by_time()]
        return min([LONGEST_PACE, *(each.lease / 6 for each in beating)])

    def rest(self, now: float) -> float:
        """Return in how many seconds to look again."""
        # The pace is from look to look: recovering tasks takes time, and a late look is a gap.
        spent = 0.0 if self._last_look is None else now - self._last_look
        return max(self.pace - spent, self.pace / 2)

    def is_still_alone(self, members: Set[str], now: float) -> bool:
        """Return whether there is still no listener to check; this counts as a look."""
        alone = {self.own_node}
        # A listener that comes becomes a member.
        if not members == self.listeners.keys() == alone or self.looks_at_started(now):
            return False
        self._last_look = now
        return True

    def note_failure(self) -> None:
        """Record that a look has failed: each lease starts again."""
        self._last_look = None

    def note_beats(self, beats: Mapping[str, float], members: Set[str], now: float) -> None:
        """Record which listeners have a new beat.

        A listener that is in neither argument is kept until a look finds that it holds no task.
        """
        self.members = members
        for node in {*beats, *members}:
            observed = self.listeners.get(node)
            if observed is None:
                self.listeners[node] = Observed(beats.get(node), now)
            elif observed.beat != beats.get(node):
                observed.beat, observed.since = beats.get(node), now
                registration = observed.registration
                if registration is not None and registration.get("state") != "alive":
                    observed.registration = None  # it has registered again, or for the first time
        for node in self.listeners.keys() - beats.keys() - members:
            # It may have deregistered, or been recovered by another judge.
            self.listeners[node].registration = None

    def looks_at_started(self, now: float) -> bool:
        """Return whether it is time to look for listeners that only started tasks name."""
        return now >= self._next_look_at_started

    def note_started(self, nodes: set[str], now: float) -> None:
        for node in nodes:
            self.listeners.setdefault(node, Observed(None, now))
        self._next_look_at_started = now + LOOK_AT_STARTED

    def unread(self) -> list[tuple[str, str]]:
        """Return the queue and node of each listener whose registration must be read."""
        return [
            (self.queue, node)
            for node, observed in self.listeners.items()
            if observed.registration is None
        ]

    def note_look(self, now: float) -> None:
        """Record that a look has shown all this at `now`. A lease starts again after a gap."""
        before, self._last_look, self.looked_at = self._last_look, now, now
        for observed in self.listeners.values():
            # No look for too long, or the reply was late.
            if before is None or now - before > observed.longest_gap:
                observed.restart(now)


def number(registration: Mapping[str, str] | None, name: str, default: float) -> float:
    try:
        return float((registration or {}).get(name, default))
    except ValueError:
        return default
