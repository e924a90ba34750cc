"""The context of a task and what its schedule has planned, from the call that makes it to its handler
or program.
"""

from __future__ import annotations

import json

import pytest
from running import outcome

WORK = """
import os, subprocess

def work(task):
    names = "$BLUEQUE_CONTEXT $BLUEQUE_SCHEDULE $BLUEQUE_PLANNED"
    printed = subprocess.run(f"echo {names}", shell=True, capture_output=True, text=True)
    planned = task.planned and task.planned.isoformat()
    return [task.context, task.title, task.tags, planned, printed.stdout.strip()]
"""


@pytest.mark.parametrize("options", [[], ["--reuse", "9"]])
def test_a_handler_has_the_labels_of_its_own_task(programs, client, queue, options):
    programs.listener("work:work", *options, queue=queue.name)

    rule = {"cron": "30 2 * * *", "timezone": "Asia/Kolkata"}
    labels = {"title": "A", "tags": ["b", "c"], "context": {"trace": "ä"}}
    nightly = client.set_schedule("nightly", queue=queue.name, **rule, **labels)
    first = outcome(client, nightly.trigger())
    second = outcome(client, queue.enqueue(2))

    planned = first.planned.isoformat()
    assert planned.endswith("+05:30")
    printed = f'{{"trace":"ä"}} nightly {planned}'
    assert first.result == [{"trace": "ä"}, "A", ["b", "c"], planned, printed]
    assert second.result == [None, None, None, None, ""]


def test_a_program_has_the_context_in_a_variable(programs, client, queue):
    programs.listener("--exec", "sh", "-c", 'printf %s "$BLUEQUE_CONTEXT"', queue=queue.name)

    task = outcome(client, queue.enqueue("in", context={"trace": "4bf9", "n": "a b"}))
    assert json.loads(task.result) == {"trace": "4bf9", "n": "a b"}
