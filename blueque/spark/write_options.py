"""The options of a write: where rows go, and how they become tasks."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, Literal, NamedTuple

from blueque.client import Client
from blueque.errors import InvalidInput, InvalidType
from blueque.model.client_settings import replicas_of
from blueque.model.conditions import KINDS, After, after, conditions_of
from blueque.model.encoding import require_due, require_group_name, require_queue_name
from blueque.model.group_terms import Terms, terms_for
from blueque.model.labels import bytes_left_for_parameters, require_context, require_tags
from blueque.model.lines import require_lock, require_resources
from blueque.model.retry import Retry
from blueque.model.units import DEFAULT_MAX_BYTES, max_bytes, parse_size, redis_url
from blueque.producer.keyed_groups import KEEP
from blueque.settings.contents import Config

PATIENCE = 5.0  # seconds, as for any client: nothing is lost by giving up

NO_KEY = (
    "a key is needed: name the columns whose values tell each row from all others and are the same whenever "
    "Spark computes the frame, such as an id or a path"
)


class Target(NamedTuple):
    """Where rows go. Spark copies it to every process that writes.

    group: which the tasks join, and in which keys count. None: keys count in the queue.
    keys, parameters: names of columns. No parameters: all columns without another use.
    is_value: the parameters are the value of one column, named as text instead of a list.
    is_json: the only column of parameters is JSON text. eta, priority: a value for all rows, or the
        name of a column.
    options: for all tasks, as for `Queue.enqueue`. keep: how long the group or the key counts;
        None: the default.
    links: the given ones of `after` and `broken`, for all tasks.
    hold: see `TaskGroup.open`. append: add keys to the group, even if it was closed.
    replicas: how many must confirm the tasks, within how many seconds, as configured where the
        write began.
    """

    queue: str
    url: str
    keys: tuple[str, ...]
    group: str | None = None
    parameters: tuple[str, ...] = ()
    is_json: bool = False
    eta: float | str | None = None
    priority: int | str = 0
    keep: float | str | None = None
    max_bytes: int = DEFAULT_MAX_BYTES
    options: Mapping[str, Any] = {}
    links: Mapping[str, Any] = {}
    is_value: bool = False
    hold: float | str | None = None
    append: bool = False
    replicas: tuple[int, float] = (0, 1.0)

    def connected(self, patience: float | None = None) -> closing[Client]:
        """Return a client whose connection is closed at the end of the block."""
        seconds = PATIENCE if patience is None else patience
        number, timeout = self.replicas
        config = Config(redis={"replicas_timeout": timeout})
        return closing(
            Client(
                self.url, patience=seconds, max_bytes=self.max_bytes, replicas=number, config=config
            )
        )

    @property
    def for_all(self) -> dict[str, Any]:
        """The options of all tasks, as a queue takes them."""
        return {**self.options, "priority": 0 if isinstance(self.priority, str) else self.priority}

    @property
    def constants(self) -> dict[str, Any]:
        """The options for all tasks, and how long the group or the key counts."""
        return self.for_all | ({} if self.keep is None else {"keep": self.keep})

    @property
    def bytes_left(self) -> int:
        """The most bytes of the parameters of a task. The context counts, too."""
        context = self.options.get("context")
        fields = {} if context is None else {"context": require_context(context)}
        return bytes_left_for_parameters(fields, self.max_bytes)

    @property
    def terms(self) -> Terms:
        """The arguments that open the group."""
        return terms_for(self.keep, KEEP, hold=self.hold, **self.links)


def parse(options: Mapping[str, str]) -> Target:
    """Return what the options of a write ask for, which Spark passes as text. Raises InvalidInput,
    which names the option.
    """
    given = {name.lower(): value for name, value in options.items()}
    _refuse_unknown(given)
    said = {name: _read(name, value) for name, value in given.items()}
    if "queue" not in said:
        raise InvalidInput("option 'queue' is missing: to which queue?")
    return target_of(said)


def target_of(options: Mapping[str, Any]) -> Target:
    """Return what the options of a write ask for. None means that an option was not given.

    key, params: names of columns; one name is a str. after: None, or made by `blueque.after`.
    Raises InvalidInput, InvalidType.
    """
    _refuse_unknown(options)
    said = {name: value for name, value in options.items() if value is not None}
    if "key" not in said:
        raise InvalidInput(NO_KEY)
    for name in ("json", "append"):
        if not isinstance(said.get(name, False), bool):
            raise InvalidType(f"option {name!r} is True or False, not {said[name]!r}")
    of_tasks = {
        name: _TO_COPY[name](value) if name in _TO_COPY else value
        for name, value in said.items()
        if name in _OF_TASKS
    }
    params = said.get("params", ())
    target = Target(
        said["queue"],
        said.get("url", redis_url()[0]),
        _listed(said["key"]),
        said.get("group"),
        _listed(params),
        said.get("json", False),
        said.get("eta"),
        said.get("priority", 0),
        said.get("keep"),
        _read("max_bytes", str(said.get("max_bytes", max_bytes()))),
        of_tasks,
        {name: value for name, value in said.items() if name in _LINKS},
        isinstance(params, str),
        said.get("hold"),
        said.get("append", False),
        replicas_of({}),
    )
    _require_possible(target)
    return target


def _require_possible(target: Target) -> None:
    """Refuse what a queue would refuse, without asking Redis. Raises InvalidInput, InvalidType."""
    if target.group is None and (target.hold is not None or target.append):
        name = "append" if target.append else "hold"
        raise InvalidInput(
            f"option {name!r} is for the tasks of a group: name it with option 'group'"
        )
    with target.connected() as client:
        client.get_queue(target.queue).enqueue_iter(
            (), keys=(), group=target.group, hold=target.hold, **target.constants, **target.links
        )


def _listed(names: str | tuple[str, ...]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names


def _refuse_unknown(given: Mapping[str, Any]) -> None:
    for name in given:
        if name == "path":
            raise InvalidInput(
                "a queue is not a path: name it with option 'queue', and say save() without one"
            )
        if name not in _READERS:
            raise InvalidInput(f"there is no option {name!r}: {_hint(name)}")


def _hint(name: str) -> str:
    from difflib import get_close_matches  # here: only for a mistake

    close = get_close_matches(name, _READERS, n=1)
    return f"did you mean {close[0]!r}?" if close else f"there are {', '.join(_READERS)}"


def _read(name: str, text: str) -> Any:
    try:
        return _READERS[name](text)
    except (InvalidInput, ValueError) as error:
        raise InvalidInput(f"option {name!r}: {error}") from error


def _name(text: str) -> str:
    if not text:
        raise InvalidInput("it is empty")
    return text


def _columns(text: str) -> str | tuple[str, ...]:
    """Return one or several names: `a, b`, or a JSON list if a name contains a comma."""
    is_list = text.startswith("[")
    names = json.loads(text) if is_list else [name.strip() for name in text.split(",")]
    if not all(isinstance(name, str) and name for name in names):
        raise InvalidInput(f"{text!r} is not a list of columns: write a, b")
    return names[0] if len(names) == 1 and not is_list else tuple(names)


def _yes_or_no(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise InvalidInput(f"it is true or false, not {text!r}")
    return text.lower() == "true"


def _eta(text: str) -> float | str:
    """Return Unix seconds if the text is such, or a time such as 2030-01-31T08:00:00Z. Otherwise
    return it as the name of a column.
    """
    if re.fullmatch(r"-?\d+(\.\d*)?", text):
        return require_due(float(text))
    from datetime import datetime  # here: usually it is a column, or left out

    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return _name(text)
    return require_due(moment)


def _priority(text: str) -> int | str:
    return int(text) if text.removeprefix("-").isdecimal() else _name(text)


def _resources(text: str) -> dict[str, int]:
    parts = [word.strip().partition("=") for word in text.split(",") if word.strip()]
    return require_resources({name: amount or "none" for name, _, amount in parts})


def _lock(text: str) -> tuple[str, int]:
    name, sign, limit = text.rpartition("=")
    return require_lock((name, int(limit)) if sign else text)


def _retry(text: str) -> Retry | Literal[False]:
    return False if text.lower() in ("false", "0") else Retry.from_text(text)


def _after(text: str) -> After:
    """Return conditions: ids, as in `a, b`; or JSON, `{"ok": ["a"], "any": ["group g"]}`."""
    if not text.startswith("{"):
        return after(ok=[name.strip() for name in text.split(",")])
    given = json.loads(text)
    if not given.keys() <= {*KINDS}:
        raise InvalidInput(f"there are {', '.join(KINDS)}, and not {', '.join(given)}")
    wanted = after(**given)
    conditions_of(wanted)
    return wanted


def _plain(context: object) -> Any:
    return json.loads(require_context(context))


# Of these Python takes any iterable or mapping, but Spark cannot copy each to its workers.
_TO_COPY: dict[str, Callable[[Any], Any]] = {
    "tags": require_tags,
    "resources": require_resources,
    "context": _plain,
}
_LINKS: dict[str, Callable[[str], Any]] = {"after": _after, "broken": _name}
_OF_TASKS: dict[str, Callable[[str], Any]] = {
    "resources": _resources,
    "lock": _lock,
    "retry": _retry,
    "time_limit": _name,
    "stall_limit": _name,
    "memory_limit": _name,
    "grace": _name,
    "lead": _name,
    "title": _name,
    "tags": str.split,
    "context": json.loads,
}
_READERS: dict[str, Callable[[str], Any]] = {
    "queue": require_queue_name,
    "url": _name,
    "key": _columns,
    "group": require_group_name,
    "params": _columns,
    "json": _yes_or_no,
    "eta": _eta,
    "priority": _priority,
    "keep": _name,
    "max_bytes": parse_size,
    "hold": _name,
    "append": _yes_or_no,
    **_OF_TASKS,
    **_LINKS,
}
