"""Resources: the GPUs, memory and so on of a node, which its listeners give to the tasks there.

Each resource is a file in `[spool]/resources/`, and each unit is a byte position in it; the file
may be shorter. A task holds a unit while one of its processes holds the lock on that byte. The lock
belongs to an open file, which the listener passes to the task process. The kernel ends it when the
last process has closed the file or died, so no unit stays taken by mistake.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import stat
import time
from collections.abc import Iterator, Mapping

from blueque.errors import SpoolRefused
from blueque.model.lines import write_needs
from blueque.system import range_locks
from blueque.text.hints import amount as amount_text

log = logging.getLogger("blueque")

GPU = "gpu"  # a resource that CUDA knows, too
_VISIBLE = "CUDA_VISIBLE_DEVICES"
MOST_NUMBERED = 1024  # a resource of more units, as memory is, has none with numbers
_TRIES = 50  # to be the only one who claims, a millisecond each
_AGREED_WITHIN = 2.0  # seconds; one that says otherwise may be about to leave


class Claim:
    """Units of resources that are ours until the last copy of each of its descriptors is closed.

    amounts: how much of each. numbers: which ones, of the resources that are numbered.
    """

    def __init__(
        self, amounts: Mapping[str, int], numbers: Mapping[str, list[int]], descriptors: list[int]
    ) -> None:
        self.amounts, self.numbers = dict(amounts), dict(numbers)
        self._descriptors = descriptors

    def filenos(self) -> list[int]:
        """Return the descriptors; a process that gets copies of all holds the claim, too."""
        return list(self._descriptors)

    def devices(self) -> str:
        """Return the numbers as text for people, such as `gpu=0,1`; empty: there are none."""
        return " ".join(
            f"{name}={','.join(map(str, numbers))}"
            for name, numbers in sorted(self.numbers.items())
        )

    def granted(self) -> dict[str, list[int] | int]:
        """Return the numbers of each resource, or the amount where it has none."""
        return {name: self.numbers.get(name, amount) for name, amount in self.amounts.items()}

    def close(self) -> None:
        """Close our copies of the descriptors."""
        descriptors, self._descriptors = self._descriptors, []
        for descriptor in descriptors:
            os.close(descriptor)


def environment(
    totals: Mapping[str, int],
    granted: Mapping[str, list[int] | int],
    environ: Mapping[str, str] = os.environ,
) -> dict[str, str]:
    """Return the variables that tell a task what it was given, on a node with these totals.

    CUDA_VISIBLE_DEVICES names only the GPUs of this task, or none. If the listener itself has the
    variable, unit 0 is the first GPU named there.
    """
    found = {}
    for name, given in granted.items():
        text = ",".join(map(str, given)) if isinstance(given, list) else str(given)
        found[f"BLUEQUE_RESOURCE_{name.upper().replace('.', '_').replace('-', '_')}"] = text
    if 0 < totals.get(GPU, 0) <= MOST_NUMBERED:
        given = granted.get(GPU, [])
        devices = visible_devices(environ)
        numbers = given if isinstance(given, list) else []
        found[_VISIBLE] = ",".join(
            devices[number] if devices else str(number) for number in numbers
        )
    return found


def visible_devices(environ: Mapping[str, str] = os.environ) -> list[str] | None:
    """Return which GPUs CUDA lets us see, as it names them; None: all."""
    text = environ.get(_VISIBLE)
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


class Pool:
    """The resources of a node, as one listener knows them.

    directory: in the spool, shared by all listeners of the node. totals: how much there is of each
        resource.
    """

    def __init__(self, directory: str, totals: Mapping[str, int]) -> None:
        self.totals = dict(totals)
        self._directory = directory
        self._declared: list[int] = []  # descriptors, each with a lock as long as we take tasks

    def open(self) -> None:
        """Create the directory if needed, and check that the file system supports our locks.

        Raises SpoolRefused.
        """
        devices = visible_devices()
        if devices is not None and self.totals.get(GPU, 0) > len(devices):
            raise SpoolRefused(
                f"--resource gpu={self.totals[GPU]}, but CUDA_VISIBLE_DEVICES names {len(devices)}"
            )
        try:
            os.makedirs(self._directory, mode=0o700, exist_ok=True)
            status = os.lstat(self._directory)
            if (
                not stat.S_ISDIR(status.st_mode)
                or status.st_uid != os.geteuid()
                or status.st_mode & 0o022
            ):
                raise SpoolRefused(
                    f"{self._directory} must be a directory of this user that no other user can write to"
                )
            can_lock = self._can_lock()
        except OSError as error:
            raise SpoolRefused(
                f"resources in {self._directory}: {error.strerror}; choose another --spool"
            ) from error
        if not can_lock:
            raise SpoolRefused(
                f"the file system of {self._directory} has no locks of open files (fcntl F_OFD_SETLK), which --resource "
                f"needs: choose a --spool on a local disk"
            )

    def declare(self) -> None:
        """Publish our totals to the other listeners of the node, until `withdraw` or our death.

        Raises SpoolRefused when another active listener publishes another total: one of the two
            would give out units that the node does not have.
        """
        deadline = time.monotonic() + _AGREED_WITHIN
        try:
            for name, total in self.totals.items():
                self._declared.append(self._open(f"_total_{name}"))
                while (other := _agree(self._declared[-1], total)) != total:
                    if time.monotonic() > deadline:
                        if other is None:  # its writer was stopped in the middle
                            break
                        raise SpoolRefused(
                            f"--resource {name}={amount_text(total)}, but another listener of this node has "
                            f"{name}={amount_text(other)}: use the same number, or stop that listener first"
                        )
                    time.sleep(0.005)
        except BaseException as error:
            self.withdraw()
            if isinstance(error, OSError):
                raise SpoolRefused(f"resources in {self._directory}: {error.strerror}") from error
            raise

    def withdraw(self) -> None:
        """Stop publishing our totals, because we take no more tasks.

        In a forked child: close the copies; the parent continues to publish.
        """
        declared, self._declared = self._declared, []
        for descriptor in declared:
            os.close(descriptor)

    def claim(self, wanted: Mapping[str, int]) -> Claim | None:
        """Take that much of each resource, all or nothing, without waiting. None: not enough is free."""
        amounts = {name: amount for name, amount in wanted.items() if amount}
        if not self.has(amounts):
            return None
        try:
            return self._claim(amounts)
        except OSError as error:  # no more files may be open, or the directory has been removed
            log.error("cannot claim %s: %s", write_needs(amounts), error)
            if isinstance(error, FileNotFoundError) and os.path.isdir(
                os.path.dirname(self._directory)
            ):
                os.makedirs(self._directory, mode=0o700, exist_ok=True)  # for the next try
            return None

    def has(self, wanted: Mapping[str, int]) -> bool:
        """Return whether the node has that much of each resource, free or not."""
        return all(amount <= self.totals.get(name, 0) for name, amount in wanted.items())

    def free(self) -> dict[str, int]:
        """Return how much of each resource is free. Raises OSError."""
        found = {}
        for name, total in self.totals.items():
            descriptor = self._open(name)
            try:
                free = range_locks.free(descriptor, 0, total)
                found[name] = sum(end - start for start, end in free)
            finally:
                os.close(descriptor)
        return found

    def _claim(self, amounts: dict[str, int]) -> Claim | None:
        taken: dict[str, list[range_locks.Range]] = {}
        with contextlib.ExitStack() as undo, self._alone():
            descriptors = []
            for name, amount in sorted(amounts.items()):
                descriptor = self._open(name)
                undo.callback(os.close, descriptor)
                descriptors.append(descriptor)
                ranges = range_locks.take(descriptor, self.totals[name], amount)
                if ranges is None:
                    return None
                taken[name] = ranges
            undo.pop_all()
        numbers = {
            name: [*range_locks.units(ranges)]
            for name, ranges in taken.items()
            if self.totals[name] <= MOST_NUMBERED
        }
        return Claim(amounts, numbers, descriptors)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the lock of all claims: a claim may take units for a moment that it then gives back.

        After a long wait, as for a stopped process, continue without it: no unit is given out twice.
        """
        descriptor = self._open("_claiming")  # no resource has such a name
        try:
            for _ in range(_TRIES):
                if range_locks.lock(descriptor, 0, 1):
                    break
                time.sleep(0.001)
            yield
        finally:
            os.close(descriptor)

    def _can_lock(self) -> bool:
        """Return whether another open file sees a lock of ours."""
        ours, other = self._open("_trying"), self._open("_trying")
        at = 1 + os.getpid()  # others may try at the same time
        try:
            has_locked = range_locks.lock(ours, at, at + 1)
            return has_locked and range_locks.conflict(other, at, at + 1) == (at, at + 1)
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
                return False
            raise
        finally:
            os.close(ours)
            os.close(other)

    def _open(self, name: str) -> int:
        # A new open file each time: to it belong the locks.
        return os.open(
            f"{self._directory}/{name}",
            os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC,
            0o600,
        )


def _agree(descriptor: int, total: int) -> int | None:
    """Return the total on which the holders of the file agree, ours if we hold it alone. None:
    another process is writing it.

    Only a process that holds the file alone may write. All holders share a lock; the writer turns
    its exclusive lock into a shared one without releasing it in between.
    """
    if range_locks.lock(descriptor, 0, 1):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(total).encode(), 0)
        range_locks.lock(descriptor, 0, 1, fcntl.F_RDLCK)
        return total
    if not range_locks.lock(descriptor, 0, 1, fcntl.F_RDLCK):
        return None
    text = os.pread(descriptor, 32, 0)
    if text != str(total).encode():
        range_locks.unlock(descriptor)
    return int(text) if text.isdigit() else None
