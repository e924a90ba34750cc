"""Explain in one sentence why a Spark job failed. Spark itself prints the tracebacks of several
processes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from blueque import errors
from blueque.errors import BluequeError, InvalidInput, JobFailed

MAX_REASON = 300  # characters; the cause has all of it

_RAISED = re.compile(r"^blueque\.errors\.(\w+): (.+)", re.MULTILINE)
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
    group: str | None,
    fate: str,
    as_it_was: tuple[type[BluequeError], ...] = (InvalidInput,),
) -> Iterator[None]:
    """Raise an error of Blueque for a job that fails in the block. It is the error that stopped it
    if that has one of these types, else JobFailed.
    """
    try:
        yield
    except (BluequeError, PySparkException, Py4JError, OSError) as error:
        # an OSError: Java has died
        own = error if isinstance(error, BluequeError) else raised(error)
        if own is None:
            raise JobFailed(queue, group, reason(error), fate) from error
        if isinstance(own, as_it_was):
            raise own from own.__cause__
        raise JobFailed(queue, group, str(own), fate) from own


def raised(error: BaseException) -> BluequeError | None:
    """Return the error of Blueque that failed all tries of a Spark task, from its traceback as
    text. None: it was another error.
    """
    found = _RAISED.findall(_text(error))
    kind = getattr(errors, found[-1][0], None) if found else None
    if not (isinstance(kind, type) and issubclass(kind, BluequeError)):
        return None
    own = BluequeError(found[-1][1])
    with suppress(TypeError):  # it has attributes, which the text does not say
        own = kind(found[-1][1])
    own.__cause__ = error
    return own


def reason(error: BaseException) -> str:
    """Return a sentence about why a job failed."""
    text = _text(error)
    others = _TRACEBACK.findall(text) or _LAST.findall(text)
    if others:
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
