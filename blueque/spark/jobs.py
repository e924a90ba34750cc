"""Jobs of Spark that have failed, in one sentence: Spark tells of them with the tracebacks of several processes."""

from __future__ import annotations

import re

from blueque import errors
from blueque.errors import BluequeError, InvalidInput, InvalidType

_RAISED = re.compile(r"^blueque\.errors\.(\w+): (.+)$", re.MULTILINE)
_LAST = re.compile(r"^(?:\w+\.)*(\w*(?:Error|Exception|Interrupt|Exit)\b): (.+)$", re.MULTILINE)


def reason(error: BaseException) -> tuple[type[BluequeError] | None, str]:
    """Return why a job has failed: the class of our own error if it was one, and a sentence."""
    text = re.sub(r"\s*SQLSTATE: \w+", "", str(error))
    ours = _RAISED.findall(text)
    if ours:
        name, sentence = ours[-1]
        return getattr(errors, name, None), sentence
    others = _LAST.findall(text)
    if others:
        return None, f"{others[-1][0]}: {others[-1][1]}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return None, lines[0] if lines else type(error).__name__


def as_refusal(error: BaseException) -> InvalidInput | None:
    """Return the same error as if it had been raised here, if a job has failed because a value was refused."""
    kind, sentence = reason(error)
    if kind is None or not issubclass(kind, InvalidInput):
        return None
    return InvalidType(sentence) if issubclass(kind, InvalidType) else InvalidInput(sentence)
