"""The context of a task, from the call that enqueues it to its handler or program."""

from __future__ import annotations

import json

import pytest
from running import outcome

WORK = """
import os, subprocess

def work(task):
    printed = subprocess.run("echo $BLUEQUE_CONTEXT", shell=True, capture_output=True, text=True)
    return [task.context, task.title, task.tags, printed.stdout.strip()]
"""


@pytest.mark.parametrize("options", [[], ["--reuse", "9"]])
def test_a_handler_has_the_labels_of_its_own_task(programs, client, queue, options):
    programs.listener("work:work", *options, queue=queue.name)

    first = outcome(client, queue.enqueue(1, title="A", tags=["b", "c"], context={"trace": "ä"}))
    second = outcome(client, queue.enqueue(2))

    assert first.result == [{"trace": "ä"}, "A", ["b", "c"], '{"trace":"ä"}']
    assert second.result == [None, None, None, ""]


def test_a_program_has_the_context_in_a_variable(programs, client, queue):
    programs.listener("--exec", "sh", "-c", 'printf %s "$BLUEQUE_CONTEXT"', queue=queue.name)

    task = outcome(client, queue.enqueue("in", context={"trace": "4bf9", "n": "a b"}))
    assert json.loads(task.result) == {"trace": "4bf9", "n": "a b"}
