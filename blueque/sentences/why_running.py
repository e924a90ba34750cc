"""Say in sentences where a task runs, or why it may run no more."""

from __future__ import annotations

from collections.abc import Iterator

from blueque.queries.listeners import Node, Stuck, is_process_gone
from blueque.queries.why_facts import Inquiry
from blueque.sentences.pace import usual_of
from blueque.sentences.reason import Reason, by
from blueque.sentences.stuck import words_of
from blueque.sentences.why_listeners import TAKES, serve
from blueque.system import process
from blueque.text.format import span
from blueque.text.terminal import short_node


def held(inquiry: Inquiry) -> Iterator[Reason]:
    task, node = (
        inquiry.task,
        next((one for one in inquiry.nodes if one.id == inquiry.task.node), None),
    )
    if task.status == "started" and process.is_gone(task.pid or 0, task.fields):
        yield _process_gone(inquiry, node)
        return
    yield from _running_reasons(inquiry)
    stuck = None if node is None else Stuck.parse(node.stuck)
    if stuck is not None and stuck.task == task.id:
        yield Reason("stuck", f"It is {words_of(stuck, inquiry.now)}.")
    if (
        node is not None
        and node.state not in ("dead", "gone")
        and (is_process_gone(node) or node.is_late)
    ):
        yield _silent(inquiry, node)
    elif node is not None and node.state == "draining":
        yield Reason(
            "draining", "That listener takes nothing new: it finishes this task and exits."
        )
    elif node is None or node.state not in (*TAKES, "paused"):
        state = "no longer known" if node is None else node.state
        seen = (
            f", last seen {span(node.seen)} ago"
            if node is not None and node.seen is not None
            else ""
        )
        sentence = f"That listener is {state}{seen}. If it is dead, another listener of its queue notices and handles the task; "
        host = (task.node or "").rpartition("_")[0] or "its host"
        yield Reason(
            "listener", f"{sentence}a listener on {host} with its spool adopts it.", serve(inquiry)
        )


def _running_reasons(inquiry: Inquiry) -> Iterator[Reason]:
    task = inquiry.task
    who = short_node(task.node or "an unknown listener")
    if task.status != "started":
        yield Reason("reserved", f"{who} has reserved it and is about to start it.")
        return
    yield Reason(
        "running",
        f"It runs on {who} with pid {task.fields.get('pid')}, attempt {task.attempt}.",
        f"blueque show {task.id}",
    )
    usual = usual_of(inquiry.usual)
    if usual is not None:
        sentence = f"It reports no progress. {usual.capitalize()}: the range of half of the recent tasks of its queue."
        yield Reason("usual", sentence)
    if task.cancel is not None:
        asked = span(inquiry.now - task.cancel)
        sentence = f"It is being cancelled: asked for {asked} ago{by(task.cancelled_by)}."
        yield Reason("cancelling", sentence)
    elif task.is_interrupted:
        yield Reason("interrupting", f"It is being interrupted: asked for {asked_when(inquiry)}.")


def asked_when(inquiry: Inquiry) -> str:
    """Return when, by whom and why the task was interrupted."""
    task = inquiry.task
    since = span(inquiry.now - (task.interrupted_at or inquiry.now))
    reason = f": {task.interrupt_reason}" if task.interrupt_reason else ""
    return f"{since} ago{by(task.interrupted_by)}{reason}"


def _process_gone(inquiry: Inquiry, node: Node | None) -> Reason:
    """Say which listener will report the end of a task whose process has ended."""
    task = inquiry.task
    what = (
        f"It no longer runs: process {task.pid} is gone from this host. Its end is not recorded yet"
    )
    if node is None or node.state in ("dead", "gone") or is_process_gone(node):
        sentence = f"{what}: start a listener of {task.queue} here, with its spool, to record it."
        return Reason("process_gone", sentence, serve(inquiry))
    sentence = f"{what}: its listener {short_node(node.id)} records it at its next beat. If it does not, restart"
    return Reason("process_gone", f"{sentence} that listener.", f"blueque show {task.id}")


def _silent(inquiry: Inquiry, node: Node) -> Reason:
    """Say why a listener with a task may be dead, though no other process has found it dead yet."""
    seen = f", last seen {span(node.seen)} ago" if node.seen is not None else ""
    if is_process_gone(node):
        sentence = f"The process of that listener is gone from this host{seen}. The next listener of {node.queue} here, with"
        more = "its spool, adopts the task; other hosts handle it when its lease is over."
        return Reason("listener", f"{sentence} {more}", serve(inquiry))
    sentence = f"That listener is silent{seen} and may be dead. If so, a listener on {node.host} with its spool adopts the task"
    return Reason(
        "listener",
        f"{sentence}; other hosts handle the task when the lease is over.",
        serve(inquiry),
    )
