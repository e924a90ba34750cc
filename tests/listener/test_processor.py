"""Processor: what becomes of an attempt when its end is told, by a program of one's own or from an
exit record.
"""

from __future__ import annotations

import time

import pytest

from blueque import InvalidType, New, NotOwner, Retry

AT_ONCE = Retry(max=2, backoff=0)


@pytest.fixture
def listener(client):
    return client.get_listener("video")


@pytest.fixture
def start(client, queue, listener):
    """Return the processor of a task that has started, and its id."""

    def start(**options):
        task_id = queue.enqueue("in", **options)
        task = listener.listen()
        assert task.id == task_id
        processor = client.get_processor(task)
        processor.start(77)
        return processor, task_id

    return start


def failed(**facts):
    return {"status": "failed", "error": "why", **facts}


def known(task, *names):
    return tuple(getattr(task, name) for name in names)


def test_the_next_attempt_waits_for_its_backoff_and_is_nobodys_meanwhile(client, start, cli):
    processor, task_id = start(retry=Retry(max=3, backoff=100, jitter=0.1))
    before = time.time()
    processor.report(failed(error_type="ValueError", memory_peak=5, cpu_seconds=0.5, leaked=2))
    task = client.get_task(task_id)
    assert before + 90 <= task.eta <= time.time() + 110
    assert cli.zscore("blueque_scheduled_tasks_video", task_id) == task.eta
    assert known(task, "node", "token", "pid", "started", "finished") == (None,) * 5
    assert known(task, "memory_peak", "cpu_seconds", "leaked") == (5, 0.5, 2)
    assert "finished_by" in task.fields


@pytest.mark.parametrize("retry", [None, False, Retry(max=0)])
def test_a_wish_to_run_later_needs_no_policy_and_costs_no_failure(client, start, retry):
    processor, task_id = start(retry=retry)
    before = time.time()
    processor.report(failed(error="not yet", error_type="RetryLater", retry_after=50))
    task = client.get_task(task_id)
    assert known(task, "status", "last_error", "last_error_type", "failures") == (
        "scheduled",
        None,
        None,
        None,
    )
    *_, postponed = client.get_history(task_id).events
    assert (postponed.event, postponed.facts["reason"]) == ("postponed", "not yet")
    assert postponed.facts["eta"] == task.eta
    assert before + 50 <= task.eta <= time.time() + 50


def test_an_end_makes_the_tasks_of_its_record_once(client, start, cli):
    processor, task_id = start()
    new = New("parts", "text", key="a", priority=3).record(task_id)
    record = {"status": "complete", "result": "out", "then": [list(new)]}
    processor.report(record)
    client.get_processor(processor.task).report(record)  # as a listener does that adopts it

    assert known(client.get_task(task_id), "status", "result") == ("complete", "out")
    part = client.get_task(new.task)
    assert known(part, "status", "parameters", "priority") == ("pending", "text", 3)
    assert cli.lrange("blueque_line_3_parts", 0, -1) == [new.task]


@pytest.mark.parametrize(
    "record",
    [
        {"status": "complete"},
        {"status": "failed"},
        {"status": "complete", "result": 7.5j},
        failed(retry_after="soon"),
        {"status": "complete", "result": {"of": "another kind"}},
        failed(error=None),
        failed(retry_after=float("nan")),
        {"status": "complete", "result": "out", "then": [["t1", "parts"]]},
        {
            "status": "complete",
            "result": "out",
            "then": [New("parts", n, key=n).record("t1") for n in range(101)],
        },
    ],
)
def test_a_record_that_is_not_what_it_should_be_is_a_failure_and_not_an_exception(
    client, start, record
):
    processor, task_id = start(retry=AT_ONCE)
    processor.report(record)
    task = client.get_task(task_id)
    assert known(task, "status", "error_type") == ("failed", "result")
    assert task.error.startswith("the end of the task cannot be recorded: ")
    assert "InvalidInput(" not in task.error


@pytest.mark.parametrize(
    "end",
    [
        lambda processor: processor.report(failed()),
        lambda processor: processor.release(),
        lambda processor: processor.progress("50 %"),
        lambda processor: processor.confirm_cancel(failed()),
        lambda processor: processor.report({"status": "complete", "result": "late"}),
    ],
)
def test_an_attempt_that_has_been_replaced_changes_nothing_more(start, listener, state, end):
    processor, _ = start(retry=AT_ONCE)
    processor.lose("nobody knows", listener.of("video").instance)
    listener.listen()
    before = state()
    with pytest.raises(NotOwner):
        end(processor)
    assert state() == before


def test_a_pid_is_a_number(client, queue, listener):
    queue.enqueue("in")
    processor = client.get_processor(listener.listen())
    for pid in ("77", 77.0, True, None):
        with pytest.raises(InvalidType):
            processor.start(pid)


def test_an_end_that_is_recorded_is_no_failure_for_want_of_a_wake_up_call(client, start, cli):
    processor, task_id = start(lock="customer")
    cli.delete("blueque_waiting_customer")
    cli.set("blueque_waiting_customer", "of another program")

    processor.complete("done")

    assert client.get_task(task_id).status == "complete"
    assert not cli.exists("blueque_lock_customer")


def test_a_checkpoint_says_which_attempt_has_recorded_it(start, cli):
    processor, task_id = start()

    processor.checkpoint({"value": "7"})

    assert cli.hget(f"blueque_checkpoint_{task_id}", "attempt") == "1"
