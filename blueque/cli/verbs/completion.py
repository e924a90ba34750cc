"""`blueque completion`: print the script with which a shell completes; complete names from Redis."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from blueque.cli.options import COMPLETE, Invocation

TIMEOUT = 0.3  # seconds that a person who has pressed a key waits
MAX_WORDS = 50
SHELLS = ("bash", "zsh", "fish")

Find = Callable[[Any, str], Iterable[CompletionItem]]


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that lets a shell complete verbs, options, queues, ids, nodes and states.

    \b
    mkdir -p ~/.local/share/bash-completion/completions
    blueque completion bash >~/.local/share/bash-completion/completions/blueque
    blueque completion zsh >~/.zfunc/_blueque           # a directory of fpath
    blueque completion fish >~/.config/fish/completions/blueque.fish

    If Redis does not answer within 300 ms, no names from Redis are completed.
    """
    script = get_completion_class(shell)
    assert script is not None
    click.echo(script(context.find_root().command, {}, "blueque", COMPLETE).source())


def complete_from_redis(command: click.Command) -> None:
    """Complete the parameters of a command whose names in its help are QUEUE, ID and so on."""
    for parameter in command.params:
        words = re.findall("[A-Z]+", parameter.metavar or (parameter.name or "").upper())
        finds = [_FINDS[word] for word in words if word in _FINDS]
        if finds and not isinstance(parameter.type, click.Choice):
            parameter.shell_complete = _completing(finds[0])  # type: ignore[method-assign, assignment]
    if isinstance(command, click.Group):
        for subcommand in command.commands.values():
            complete_from_redis(subcommand)


def _completing(find: Find) -> Callable[[click.Context, str], list[CompletionItem]]:
    def complete(context: click.Context, incomplete: str) -> list[CompletionItem]:
        invocation = context.find_object(Invocation) or Invocation()
        found: list[CompletionItem] = []

        def ask() -> None:
            try:
                inspector = invocation.client().get_inspector()
                found[:] = [
                    item
                    for item in find(inspector, incomplete)
                    if item.value.startswith(incomplete)
                ]
            except BaseException:
                found.clear()

        asker = threading.Thread(target=ask, daemon=True)
        asker.start()
        asker.join(TIMEOUT)
        return [] if asker.is_alive() else found[:MAX_WORDS]

    return complete


def _queues(inspector: Any, incomplete: str) -> Iterable[CompletionItem]:
    return [CompletionItem(name) for name in inspector.queues()]


def _schedules(inspector: Any, incomplete: str) -> Iterable[CompletionItem]:
    return [CompletionItem(name) for name in inspector.schedules()]


def _ids(inspector: Any, incomplete: str) -> Iterable[CompletionItem]:
    """Return ids with queue and state. After fewer than four characters, and those that a producer
    has chosen: only unfinished tasks.
    """
    if found := inspector.find(incomplete) if len(incomplete) >= 4 else []:
        tasks = inspector.tasks(found)
    else:
        unfinished = ("started", "reserved", "pending", "blocked")
        tasks = inspector.listing(inspector.queues(), unfinished, MAX_WORDS).tasks
    return [CompletionItem(task.id, help=f"{task.queue}, {task.status}") for task in tasks]


def _nodes(inspector: Any, incomplete: str) -> Iterable[CompletionItem]:
    nodes = inspector.nodes()
    return [
        CompletionItem(name)
        for name in sorted({node.host for node in nodes} | {node.id for node in nodes})
    ]


_FINDS: dict[str, Find] = {
    "QUEUE": _queues,
    "PATTERN": _queues,
    "SCHEDULE": _schedules,
    "ID": _ids,
    "PARENT": _ids,
    "NODE": _nodes,
}
