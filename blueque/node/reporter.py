"""Reporter: sends to Redis about once a second what a running task reports: progress, notes,
output, checkpoint.

If an attempt has not completed its task, its checkpoint is sent before its end is recorded.
Progress and output that Redis does not accept stay in the spool.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable

from blueque.client import Client
from blueque.errors import BluequeError, RedisAway
from blueque.listener.processor import Processor
from blueque.model.task import Task
from blueque.model.units import LOG_LIMIT
from blueque.node.checkpoint_sync import CheckpointSync
from blueque.node.unreadable import log_failure
from blueque.spool.attempt import Attempt
from blueque.spool.log_tail import Tail
from blueque.spool.progress_file import Told

log = logging.getLogger("blueque")

PACE = 1.0  # seconds between two looks
AFTER_TROUBLE = 5.0
LINES_AT_ONCE = 500  # lines in a transaction
AT_ONCE_AGAIN = 0.5  # seconds: a failure so soon was a connection that had been idle for long

# As tqdm and those who draw like it: `encoding:  45%|####5     | 45/100 [00:10<00:12,  4.51it/s]`;
# without a total `45rows [00:10, 4.5rows/s]`.
_NUMBER = r"[\d.]+[kMGTPE]?"
# Each pattern is anchored where it can begin: a row may hold thousands of spaces, and the listener
# must beat in time.
_SHARE = re.compile(r"(?:^|(?<= ))\d+%\|")
_OF_ALL = re.compile(rf"\| *({_NUMBER})/({_NUMBER}) \[")
_COUNT = re.compile(rf"(?:^|: +)({_NUMBER}) ?([A-Za-z]*) \[\d\d[\d:]*, ")


class Reporter:
    """Reports one attempt.

    client: with its own connection, because that of the listener may be waiting.
    """

    def __init__(self, client: Client, attempt: Attempt, log_limit: int = LOG_LIMIT) -> None:
        self._client, self._attempt, self._log_limit = client, attempt, log_limit
        self._logged: set[str] = set()  # what has gone wrong, as the log has it
        self._tail: Tail | None = None
        self._told: Told | None = None  # of progress, as of the last look: by the handler,
        self._wrote: float | None = None  # by a program,
        self._bar = ""  # by a bar, the outermost if there are several
        self._signs: tuple[str | int, ...] = ()  # all of them, and how many have ended
        self._ended = 0
        self._last_words = ""
        self._processor: Processor | None = None  # of our own connection
        self._checkpoint: CheckpointSync | None = None
        self._progress = self._published = ""
        self._noted = 0  # notes that Redis has
        self.next_step = time.monotonic() + PACE  # a short task costs nothing more

    def step(self, task: Task) -> object:
        """Send what is new if that is due. Return a value that changes when a progress bar moves."""
        if time.monotonic() >= self.next_step:
            is_sent = self._read_and_send(task, is_over=False)
            self.next_step = time.monotonic() + (PACE if is_sent else AFTER_TROUBLE)
        return self._signs

    def finish(self, task: Task, last_words: str = "") -> None:
        """Send the rest of an ended attempt, if Redis accepts it now; if not, call again.

        last_words: a line of ours, after what the task has printed.
        """
        if not last_words and self._tail is None and not self._attempt.has_left_files():
            return
        self._last_words, began = last_words, time.monotonic()
        if not self._read_and_send(task, is_over=True) and time.monotonic() - began < AT_ONCE_AGAIN:
            self._read_and_send(task, is_over=True)

    def hand_over(self, processor: Processor) -> None:
        """Send the checkpoint for the next attempt.

        processor: its connection waits longer than that of the other reports.
        Raises RedisAway and the like; then call it again before the end of this attempt is recorded.
        """
        try:
            self._get_checkpoint().finish(processor)
        except BluequeError:
            raise
        except Exception:  # of the files: its end matters more
            log_failure(self._attempt, "checkpoint")

    def _get_checkpoint(self) -> CheckpointSync:
        if self._checkpoint is None:
            self._checkpoint = CheckpointSync(self._attempt, self._client.max_bytes)
        return self._checkpoint

    def _get_processor(self, task: Task) -> Processor:
        # Another task: the attempt has been put back, or adopted.
        if self._processor is None or self._processor.task is not task:
            self._processor = self._client.get_processor(task)
        return self._processor

    def _read_and_send(self, task: Task, is_over: bool) -> bool:
        """Return whether Redis has it all."""
        is_sent = True
        actions: dict[str, Callable[[], None]] = {
            "output": lambda: self._read(is_over),
            "lines": lambda: self._send_lines(task, is_over),
            "progress": lambda: self._send_progress(task),
            "notes": lambda: self._send_notes(task, is_over),
        }
        if not is_over:
            actions["checkpoint"] = lambda: self._get_checkpoint().step(self._get_processor(task))
        for kind, action in actions.items():
            try:
                action()
            except (BluequeError, OSError) as error:  # of the disk, too: its end matters more
                is_sent = False
                if str(error) not in self._logged:  # once in an attempt, which may take days
                    self._logged.add(str(error))
                    log.info("log task=%s: %s", task.id, error)
                if isinstance(error, RedisAway):
                    break
            except Exception:  # the task may have left anything there
                log_failure(self._attempt, kind)
                is_sent = False
        return is_sent

    def _read(self, is_over: bool) -> None:
        told, wrote = self._attempt.told(), self._attempt.wrote_progress()
        if told is not None and told != self._told:
            self._progress = str(told)
        elif wrote is not None and wrote != self._wrote:
            line = self._attempt.read_progress()
            self._progress = line or self._progress
            # else a shell has emptied it, and is about to write
            wrote = wrote if line else self._wrote
        self._told, self._wrote = told, wrote
        if self._tail is None:
            self._tail = Tail(self._attempt.path, self._log_limit)
        self._tail.look(time.time(), is_over)
        if is_over and self._last_words:
            self._tail.say(time.time(), self._last_words)
        self._read_bars(self._tail)

    def _read_bars(self, tail: Tail) -> None:
        drawn = [*filter(None, map(progress_of, tail.drawn()))]
        ended = [*filter(None, map(progress_of, tail.ended()))]
        self._ended += len(ended)
        self._signs = (*drawn, self._ended)
        # the last bar counts until there is another
        self._bar = next(iter([*drawn, *reversed(ended)]), self._bar)

    def _send_lines(self, task: Task, is_over: bool) -> None:
        if self._tail is None:
            return
        lines = self._tail.news()
        for first in range(0, len(lines), LINES_AT_ONCE):
            some = lines[first : first + LINES_AT_ONCE]
            self._get_processor(task).log(some, is_over and some[-1] is lines[-1])
            self._tail.done(some[-1].number)
        if is_over and not lines and self._tail.has_read:
            self._get_processor(task).log([], is_over=True)

    def _send_progress(self, task: Task) -> None:
        progress = self._progress or self._bar
        if progress and progress != self._published:
            self._get_processor(task).progress(progress)
            self._published = progress

    def _send_notes(self, task: Task, is_over: bool) -> None:
        for text, at in self._attempt.read_notes(is_over)[self._noted :]:
            self._get_processor(task).note(self._noted + 1, text, at or time.time())
            self._noted += 1


def progress_of(bar: str) -> str:
    """Return the progress in a progress bar; empty: the text is not a bar."""
    row = bar.lstrip()
    if (share := _SHARE.search(row)) is not None and (
        numbers := _OF_ALL.search(row, share.end())
    ) is not None:
        return f"{numbers[1]}/{numbers[2]} {row[: share.start()].rstrip(' ').removesuffix(':')}".strip()
    if (count := _COUNT.search(row)) is not None:
        return " ".join(word for word in (count[1], count[2], row[: count.start()]) if word)
    return ""
