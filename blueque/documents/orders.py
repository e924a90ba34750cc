"""Queues and listeners that were given orders, for JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from blueque.documents.schema import to_object
from blueque.model.queue_settings import malformed, read_setting
from blueque.settings.of_tasks import IN_REDIS
from blueque.text.format import times

if TYPE_CHECKING:
    from blueque.listener.listeners import Told
    from blueque.queries.inspector import Inspector
    from blueque.queries.listeners import Node
    from blueque.settings.setting import Setting

_WHY_NOT = {
    "1.0.0": "listeners of 1.0.0 take no orders",
    "dead": "it is dead",
    "gone": "it is gone",
    "unattended": "a program that uses Blueque as a library reads no orders",
}
TELL_NOTHING = frozenset(_WHY_NOT)  # states of listeners that take no orders


def of_gates(inspector: Inspector, names: Sequence[str]) -> dict[str, Any]:
    """Return the content of `queue_pause` and `queue_resume`."""
    return {"items": [_gate(inspector, name) for name in names]}


def of_queue_show(inspector: Inspector, names: Sequence[str]) -> dict[str, Any]:
    """Return the content of `queue_show` and `queue_set`."""
    settings = inspector.settings(names)
    items = [
        {
            **_gate(inspector, name),
            "pending": inspector.pending(name),
            "settings": shown_settings(settings[name]),
        }
        for name in names
    ]
    return {"items": items}


def of_told(found: Told, wanted: str) -> dict[str, Any]:
    """Return the content of `host_drain`, `host_pause` and `host_resume`. wanted: the state after them."""
    told = [_listener(node, state_after(node, wanted), None) for node in found.told]
    return {"items": told + [_listener(node, None, why_not(node)) for node in found.not_told]}


def state_after(node: Node, wanted: str) -> str:
    """Return the state after an order; a listener that drains continues to drain."""
    return "draining" if node.state == "draining" else wanted


def why_not(node: Node) -> str:
    """Return why a listener did not get the order."""
    return _WHY_NOT.get(node.state, "it has exited")


def shown_settings(fields: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings in a hash by name, as in blueque.toml; a malformed one unchanged."""
    wrong = malformed(fields)
    return {
        row.key: wrong.get(row.key) or _written(row, fields[row.key])
        for row in IN_REDIS
        if row.key in fields
    }


def _written(setting: Setting, text: str) -> Any:
    value = read_setting(setting.key, text)
    return False if value is None else setting.kind.write(value)


def _gate(inspector: Inspector, name: str) -> dict[str, Any]:
    seen = inspector.queue_seen(name)
    paused, room = seen.settings.pause, seen.room
    return {
        "queue": name,
        "paused": paused is not None,
        **times(paused_at=paused.since if paused else None),
        "paused_by": paused.by if paused else None,
        "paused_reason": paused.reason if paused else None,
        "max_running": room.limit,
        "running": room.taken,
    }


def _listener(node: Node, status: str | None, refusal: str | None) -> dict[str, Any]:
    more = {"node": node.id, "status": status, "refusal": refusal}
    return to_object("one outcome of a listener", node, **more)
