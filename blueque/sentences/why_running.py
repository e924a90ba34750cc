"""Explain in sentences where a task runs, or why it may no longer run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from blueque.model.lines import parse_needs
from blueque.model.retry import Retry
from blueque.queries.listeners import Node, Stuck, is_process_gone, own_host
from blueque.queries.why_facts import Inquiry
from blueque.sentences.pace import may_run, usual_of
from blueque.sentences.reason import Reason, by
from blueque.sentences.stuck import words_of
from blueque.sentences.why_listeners import serve
from blueque.system import process
from blueque.text import hints
from blueque.text.format import span
from blueque.text.terminal import short_node

if TYPE_CHECKING:
    from blueque.model.task import Task


def held(inquiry: Inquiry) -> Iterator[Reason]:
    task, node = (
        inquiry.task,
        next((one for one in inquiry.nodes if one.id == inquiry.task.node), None),
    )
    if task.status == "started" and process.is_gone(task.pid or 0, task.fields):
        yield _process_gone(inquiry, node)
        return
    yield from _running_reasons(inquiry, node)
    stuck = None if node is None else Stuck.parse(node.stuck)
    if stuck is not None and stuck.task == task.id:
        yield Reason("stuck", f"Its listener {words_of(stuck, inquiry.now)}.")
    if node is None or is_process_gone(node) or node.is_late or node.is_unheard:
        yield _unheard(inquiry, node)
    elif node.state == "draining":
        yield Reason(
            "draining", "That listener takes nothing new: it finishes this task and exits."
        )


def _running_reasons(inquiry: Inquiry, node: Node | None) -> Iterator[Reason]:
    task = inquiry.task
    who = short_node(task.node or "an unknown listener")
    if task.status != "started":
        yield Reason("reserved", f"{who} has reserved it and is about to start it.")
        return
    is_heard = may_run(task, node)
    if is_heard:
        yield Reason(
            "running",
            f"It runs on {who} with pid {task.fields.get('pid')}, attempt {task.attempt}.",
            f"blueque show {task.id}",
        )
    usual = usual_of(inquiry.usual) if is_heard else None
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
    """Return which listener will report the end of a task whose process has ended."""
    task = inquiry.task
    what = (
        f"It no longer runs: process {task.pid} is gone from this host. Its end is not recorded yet"
    )
    if node is None or node.state in ("dead", "gone") or is_process_gone(node):
        sentence = f"{what}: start a listener of {task.queue} here, with its spool, to record it."
        sentence += f" Otherwise {_then(task, node)}." if node is not None else ""
        return Reason("process_gone", sentence, _adopt(inquiry, node))
    sentence = f"{what}: its listener {short_node(node.id)} records it at its next beat. If it does not, restart"
    return Reason("process_gone", f"{sentence} that listener.", f"blueque show {task.id}")


def _unheard(inquiry: Inquiry, node: Node | None) -> Reason:
    """Return why a listener with a task may be dead, and what happens to the task then."""
    task, host = inquiry.task, (inquiry.task.node or "").rpartition("_")[0] or "its host"
    state = "no longer known" if node is None else node.state if node.is_unheard else "silent"
    what = f"Its listener {short_node(task.node or '?')} is {state}"
    if node is not None and is_process_gone(node):
        what = f"The process of its listener {short_node(node.id)} is gone from this host"
    seen = f", last seen {span(node.seen)} ago" if node and node.seen is not None else ""
    sentence = f"{what}{seen}. If it does not come back, and no listener on {host} with its spool"
    return Reason(
        "listener", f"{sentence} adopts the task, {_then(task, node)}.", _adopt(inquiry, node)
    )


def _adopt(inquiry: Inquiry, node: Node | None) -> str:
    """Return the command that starts a listener with the spool, host and resources of this one."""
    if node is None:
        return serve(inquiry)
    needs = parse_needs(node.resources or "")
    has = needs.resources if needs is not None else ()
    command = hints.serve(inquiry.task.queue or "", has, inquiry.has_handler)
    return hints.with_spool(command, node.spool, own_host(node))


def _then(task: Task, node: Node | None) -> str:
    """Return what happens to a task whose listener stays away."""
    if task.status != "started":
        return "the task is put in line again when the lease of its listener is over"
    left, default = (None, None) if node is None else (node.lost_in, Retry.parse(node.retry))
    policy = Retry.of(task.fields.get("retry"), default)
    runs_again = policy is not None and policy.allows_interruption(task.interruptions or 0)
    again = f"it is put in line again as attempt {(task.attempt or 1) + 1}"
    then = again if runs_again and task.cancel is None else "the task counts as lost"
    if left == 0:
        return f"{then} as soon as another host or a scheduler looks"
    return (
        f"{then}{'' if left is None else f' in {span(left)}, if another host or a scheduler looks'}"
    )
