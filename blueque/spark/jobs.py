"""Says in one sentence why a job of Spark has failed. Spark itself prints the tracebacks of several
processes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from blueque import errors
from blueque.errors import BluequeError, InvalidInput, JobFailed

E = TypeVar("E", bound=BluequeError)

MAX_REASON = 300  # characters; the cause has all of it

_FACTS = "facts: "  # the mark before the attributes of an error of Blueque
_RAISED = re.compile(rf"^blueque\.errors\.(\w+): (.+)(?:\n{_FACTS}(\{{.*\}})$)?", re.MULTILINE)
_TRACEBACK = re.compile(
    r"^Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)", re.MULTILINE
)
_LAST = re.compile(r"^((?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit)\b: .+)$", re.MULTILINE)
# What Java prints before the message.
_CALL = re.compile(r"^An error occurred while calling \S+\n: ")
_STAGE = re.compile(r"^Job aborted due to stage failure: .* most recent failure: Lost task [^:]*: ")
_CLASS = re.compile(r"^(?:\w+[.$])+\w+: ")


@contextmanager
def failing(
    queue: str | None,
    run: str | None,
    fate: str,
    as_it_was: tuple[type[BluequeError], ...] = (InvalidInput,),
) -> Iterator[None]:
    """Raise an error of Blueque for a job that fails in the block: the error that stopped it, if it
    is of these types, or JobFailed.
    """
    try:
        yield
    except BluequeError:  # some are OSErrors, too
        raise
    except (PySparkException, Py4JError, OSError) as error:
        # an OSError: Java has died
        own = raised(error)
        if own is None:
            raise JobFailed(queue, run, reason(error), fate) from error
        if isinstance(own, as_it_was):
            raise own from error
        own.__cause__ = error
        raise JobFailed(queue, run, str(own), fate) from own


def told(error: E) -> E:
    """Return the error with a note, from which `raised` restores its attributes where only text
    arrives.
    """
    facts = {name: value for name, value in vars(error).items() if not name.startswith("_")}
    if facts and not hasattr(error, "__notes__"):
        error.add_note(_FACTS + json.dumps(facts, default=str))
    return error


@contextmanager
def telling() -> Iterator[None]:
    """Add that note to the errors that are raised in the block, or by the decorated function."""
    try:
        yield
    except BluequeError as error:
        told(error)
        raise


def raised(error: BaseException) -> BluequeError | None:
    """Return the error of Blueque that has stopped a job, as if it had been raised here. None: it
    was another error.
    """
    found = _RAISED.findall(_text(error))
    kind: Any = getattr(errors, found[-1][0], None) if found else None
    if not (isinstance(kind, type) and issubclass(kind, BluequeError)):
        return None
    _, sentence, facts = found[-1]
    # its attributes are needed
    while not facts and "__init__" in vars(kind):
        kind = kind.__bases__[0]
    own: BluequeError = kind.__new__(kind)
    own.args = (sentence,)
    vars(own).update(json.loads(facts or "{}"))
    return own


def reason(error: BaseException) -> str:
    """Return in a sentence why a job has failed."""
    text = _text(error)
    ours = _RAISED.findall(text)
    others = _TRACEBACK.findall(text) or _LAST.findall(text)
    if ours:
        sentence = ours[-1][1]
    elif others:
        sentence = _CLASS.sub(lambda name: re.split(r"[.$]", name[0])[-1], others[-1])
    else:
        lines = [line.strip() for line in _CALL.sub("", text).splitlines() if line.strip()]
        sentence = (
            _without_classes(_STAGE.sub("", _without_classes(lines[0])))
            if lines
            else type(error).__name__
        )
    return sentence if len(sentence) <= MAX_REASON else sentence[:MAX_REASON] + "..."


def _without_classes(sentence: str) -> str:
    while (shorter := _CLASS.sub("", sentence)) != sentence:
        sentence = shorter
    return sentence


def _text(error: BaseException) -> str:
    return re.sub(r"\s*SQLSTATE: \w+", "", str(error))
