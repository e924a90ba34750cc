"""`blueque completion`: what a shell completes. click's own scripts ask the program, and it answers
here.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable
from typing import Any

import click
from click.shell_completion import (
    CompletionItem,
    ShellComplete,
    get_completion_class,
    split_arg_string,
)

from blueque.cli.options import Invocation

VARIABLE = "_BLUEQUE_COMPLETE"  # which the scripts set; its value says what they want
PATIENCE = 0.3  # seconds: nobody waits longer for a key that was pressed
MOST = 50
SHELLS = ("bash", "zsh", "fish")

Look = Callable[[Any, str], Iterable[CompletionItem]]


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script that has a shell complete verbs, options, queues, ids, nodes and states.

    \b
    mkdir -p ~/.local/share/bash-completion/completions
    blueque completion bash >~/.local/share/bash-completion/completions/blueque
    blueque completion zsh >~/.zfunc/_blueque           # a directory of fpath
    blueque completion fish >~/.config/fish/completions/blueque.fish

    A Redis that does not answer within 300 ms completes nothing.
    """
    script = get_completion_class(shell)
    if script is not None:
        # Not its own source(), which starts a bash to ask for its version.
        click.echo(ShellComplete.source(script(click.Group(), {}, "blueque", VARIABLE)))


def answer(program: click.Group, instruction: str) -> int:
    """Print what the script has asked for, and return the exit code. Whatever goes wrong is nothing
    to complete.
    """
    shell = instruction.partition("_")[0]
    known = get_completion_class(shell)
    if known is None:
        return 1
    try:
        words = split_arg_string(os.environ.get("COMP_WORDS", ""))
        with click.Context(program) as context:
            for command in filter(None, (program.get_command(context, word) for word in words[1:])):
                _prepare(command)
        text = known(program, {"obj": Invocation()}, "blueque", VARIABLE).complete()
        click.echo(text, nl=bool(text))
    except Exception:
        return 1
    return 0


def _prepare(command: click.Command) -> None:
    """Have the parameters of a command completed by what is in Redis, as their names in its help
    say.
    """
    for parameter in command.params:
        words = re.findall("[A-Z]+", parameter.metavar or (parameter.name or "").upper())
        looks = [_LOOKS[word] for word in words if word in _LOOKS]
        if looks and not isinstance(parameter.type, click.Choice):
            parameter.shell_complete = _completing(looks[0])  # type: ignore[method-assign, assignment]
    if isinstance(command, click.Group):
        for one in command.commands.values():
            _prepare(one)


def _completing(look: Look) -> Callable[[click.Context, str], list[CompletionItem]]:
    def complete(context: click.Context, incomplete: str) -> list[CompletionItem]:
        invocation = context.find_object(Invocation) or Invocation()
        found: list[CompletionItem] = []

        def ask() -> None:
            try:
                inspector = invocation.client().get_inspector()
                # it has begun; what follows is read whole, or not at all
                found.append(CompletionItem(""))
                found[:] = [
                    item
                    for item in look(inspector, incomplete)
                    if item.value.startswith(incomplete)
                ]
            except BaseException:
                found.clear()

        asker = threading.Thread(target=ask, daemon=True)
        asker.start()
        asker.join(PATIENCE)
        return [] if asker.is_alive() else found[:MOST]

    return complete


def _queues(inspector: Any, incomplete: str) -> Iterable[CompletionItem]:
    return [CompletionItem(name) for name in inspector.queues()]


def _ids(inspector: Any, incomplete: str) -> Iterable[CompletionItem]:
    """Return ids with queue and state: of all tasks that begin so, or, of less than four
    characters, of those that run.
    """
    if len(incomplete) >= 4:
        tasks = inspector.tasks(inspector.find(incomplete))
    else:
        tasks = inspector.listing(
            inspector.queues(), ("started", "reserved", "pending"), MOST
        ).tasks
    return [CompletionItem(task.id, help=f"{task.queue}, {task.status}") for task in tasks]


def _nodes(inspector: Any, incomplete: str) -> Iterable[CompletionItem]:
    nodes = inspector.nodes()
    return [
        CompletionItem(name)
        for name in sorted({node.host for node in nodes} | {node.id for node in nodes})
    ]


_LOOKS: dict[str, Look] = {"QUEUE": _queues, "PATTERN": _queues, "ID": _ids, "NODE": _nodes}
