"""The option --state: states of tasks by their names, or by common other names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from blueque.cli.options import Decorated

# Names in lists and in other programs.
ALIASES = {
    **dict.fromkeys(("run", "running", "active"), "started"),
    **dict.fromkeys(("done", "completed", "succeeded", "success"), "complete"),
    **dict.fromkeys(("fail", "error"), "failed"),
    **dict.fromkeys(("canc", "canceled", "revoked"), "cancelled"),
    **dict.fromkeys(("pend", "waiting", "queued"), "pending"),
    **dict.fromkeys(("sched", "delayed"), "scheduled"),
    "resv": "reserved",
    "deferred": "blocked",
}


class States(click.Choice):  # type: ignore[type-arg]  # generic in newer click only
    """Some of these states, separated by commas: a tuple of their names."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        return tuple(self._state(word.strip(), param, ctx) for word in value.split(","))

    def _state(self, word: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        known, name = [str(choice) for choice in self.choices], word.lower()
        name = ALIASES.get(name, name)
        if name not in known:
            others = [alias for alias, state in ALIASES.items() if state in known]
            close = get_close_matches(name, [*known, *others], n=1)
            meant = f"did you mean {close[0]}? The states are" if close else "the states are"
            self.fail(f"unknown state {word!r}: {meant} {', '.join(known)}", param, ctx)
        return name


def state_option(states: Sequence[str]) -> Callable[[Decorated], Decorated]:
    """Add --state, as the parameter `states`: the named ones of these states, or none."""
    return click.option(
        "--state",
        "states",
        multiple=True,
        type=States(states),
        callback=_flat,
        metavar="STATES",
        help="Only tasks in these states, separated by commas; see blueque help states.",
    )


def _flat(
    context: click.Context, parameter: click.Parameter, value: Sequence[Sequence[str]]
) -> tuple[str, ...]:
    return tuple(dict.fromkeys(state for states in value for state in states))
