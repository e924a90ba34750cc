"""Processor: what becomes of an attempt when its end is told, by a program of one's own or from an
exit record.
"""

from __future__ import annotations

import time

import pytest

from blueque import InvalidType, New, NotOwner, Retry

AT_ONCE = Retry(max=2, backoff=0)


class CodecError(ValueError):
    """An error of the user's own."""


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


def test_a_failure_without_a_policy_is_the_end(client, start):
    processor, task_id = start()
    processor.fail(CodecError("no such codec"))
    task = client.get_task(task_id)
    assert known(task, "status", "error", "failures") == ("failed", "no such codec", None)
    assert task.error_type == f"{__name__}.CodecError"


@pytest.mark.parametrize(
    ("retry", "status"),
    [
        (Retry(on=[CodecError]), "scheduled"),
        (Retry(on=["ValueError"]), "scheduled"),
        (Retry(on=["CodecError"]), "scheduled"),
        (Retry(on=["KeyError"]), "failed"),
        (Retry(), "scheduled"),
        (Retry(max=0), "failed"),
        (Retry(exit_codes=[7]), "failed"),
    ],
)
def test_an_exception_is_held_against_the_policy_by_its_class_and_those_it_inherits_from(
    client, start, retry, status
):
    processor, task_id = start(retry=retry)
    processor.fail(CodecError("no such codec"))
    task = client.get_task(task_id)
    assert task.status == status
    if status == "scheduled":
        assert known(task, "last_error", "last_error_type", "failures", "error") == (
            "no such codec",
            f"{__name__}.CodecError",
            1,
            None,
        )


def test_text_is_no_exception_and_is_retried_by_a_policy_for_every_failure_only(client, start):
    for retry, status in ((Retry(), "scheduled"), (Retry(on=["ValueError"]), "failed")):
        processor, task_id = start(retry=retry)
        processor.fail("ValueError")
        assert client.get_task(task_id).status == status


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


def test_each_further_wait_is_longer_by_the_factor(client, start, cli):
    processor, task_id = start(retry=Retry(max=3, backoff=100, factor=3, jitter=0))
    cli.hset(f"blueque_task_{task_id}", "failures", 2)
    processor = client.get_processor(client.get_task(task_id))
    before = time.time()
    processor.report(failed())
    task = client.get_task(task_id)
    assert before + 900 <= task.eta <= time.time() + 900 and task.failures == 3


def test_the_last_failure_that_is_allowed_is_the_end_and_says_what_the_one_before_was(
    client, start, listener
):
    processor, task_id = start(retry=AT_ONCE)
    for number in range(2):
        processor.report(failed(error=f"failure {number}"))
        processor = client.get_processor(listener.listen())
        processor.start(77)
    processor.report(failed(error="the last", error_type="signal", signal="SIGKILL"))
    task = client.get_task(task_id)
    assert known(task, "status", "attempt", "failures", "error", "signal") == (
        "failed",
        3,
        2,
        "the last",
        "SIGKILL",
    )
    assert task.last_error == "failure 1"


def test_what_a_handler_raises_that_does_not_help_is_not_retried(client, start):
    processor, task_id = start(retry=Retry())
    processor.report(failed(error_type="Fail", retry="never"))
    assert known(client.get_task(task_id), "status", "error_type", "failures") == (
        "failed",
        "Fail",
        None,
    )


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
    assert (postponed.event, postponed.facts["reason"], postponed.facts["eta"]) == (
        "postponed",
        "not yet",
        task.eta,
    )
    assert before + 50 <= task.eta <= time.time() + 50


@pytest.mark.parametrize(
    ("record", "retry", "status"),
    [
        (failed(exit_code=7), Retry(exit_codes=[7]), "scheduled"),
        (failed(exit_code=8), Retry(exit_codes=[7]), "failed"),
        (failed(exit_code=-1), Retry(exit_codes=[255]), "scheduled"),
        (failed(error_type="signal"), Retry(on=["signal"]), "scheduled"),
        (failed(error_type="time_limit"), Retry(on=["signal"]), "failed"),
    ],
)
def test_exit_codes_and_error_types_are_held_against_the_policy(
    client, start, record, retry, status
):
    processor, task_id = start(retry=retry)
    processor.report(record)
    assert client.get_task(task_id).status == status


@pytest.mark.parametrize(
    ("own", "status"), [(None, "pending"), (False, "failed"), (Retry(max=0), "failed")]
)
def test_the_default_is_for_tasks_that_have_no_policy_of_their_own(client, start, own, status):
    processor, task_id = start(retry=own)
    processor.report(failed(), AT_ONCE)
    assert client.get_task(task_id).status == status


def test_a_success_is_recorded_with_what_it_took(client, start):
    processor, task_id = start(retry=AT_ONCE)
    processor.report(
        {
            "status": "complete",
            "result": "[1]",
            "result_encoding": "json",
            "finished": 5.5,
            "memory_peak": 5,
            "cpu_seconds": 0.5,
            "leaked": 1,
            "exit_code": 0,
        }
    )
    task = client.get_task(task_id)
    assert known(
        task, "status", "result", "finished", "memory_peak", "cpu_seconds", "leaked", "failures"
    ) == ("complete", [1], 5.5, 5, 0.5, 1, None)


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


@pytest.mark.parametrize(
    "end",
    [
        lambda processor: processor.release(),
        lambda processor: processor.report(failed()),
        lambda processor: processor.confirm_cancel(failed(memory_peak=5)),
    ],
)
def test_a_task_that_somebody_wants_cancelled_is_not_run_again(client, queue, start, end):
    processor, task_id = start(retry=AT_ONCE)
    assert queue.cancel(task_id, by="ann") == "cancelling"
    end(processor)
    assert known(client.get_task(task_id), "status", "cancelled_by") == ("cancelled", "ann")


def test_from_its_start_on_the_task_of_a_processor_has_its_pid_and_its_start(client, start):
    processor, task_id = start()
    stored = client.get_task(task_id)
    assert known(processor.task, "status", "pid", "started") == ("started", 77, stored.started)


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


@pytest.mark.parametrize(
    "end",
    [
        lambda processor, _: processor.complete("done"),
        lambda processor, _: processor.fail("why"),
        lambda processor, _: processor.report(failed(retry_after=60)),
        lambda processor, _: processor.release(),
        lambda processor, _: processor.confirm_cancel(failed()),
        lambda processor, listener: processor.lose("nobody knows", listener.of("video").instance),
    ],
    ids=["complete", "fail", "retry", "release", "confirm_cancel", "lose"],
)
def test_however_an_attempt_ends_the_queues_that_wait_for_its_lock_are_woken(
    client, start, listener, cli, end
):
    processor, _ = start(lock="customer")
    client.get_queue("others").enqueue("next", lock="customer")
    others = client.get_listener("others")
    assert others.listen(timeout=0) is None and cli.smembers("blueque_waiting_customer")
    cli.delete("blueque_wake_others")

    end(processor, listener)

    assert cli.exists("blueque_wake_others")


@pytest.mark.parametrize(
    ("retry", "became"), [(None, "failed"), (AT_ONCE, "pending")], ids=["none", "policy"]
)
def test_who_gives_an_attempt_up_is_told_what_becomes_of_its_task(start, listener, retry, became):
    processor, _ = start(retry=retry)

    assert processor.lose("nobody knows", listener.of("video").instance) == became


@pytest.mark.parametrize("is_awaited", [True, False])
@pytest.mark.parametrize(
    "end",
    [
        lambda processor: processor.complete("done"),
        lambda processor: processor.fail("why"),
        lambda processor: processor.confirm_cancel(failed()),
    ],
    ids=["complete", "fail", "confirm_cancel"],
)
def test_an_end_says_whether_other_tasks_wait_for_it(client, start, end, is_awaited):
    processor, task_id = start()
    if is_awaited:
        client.get_queue("others").enqueue("next", after=task_id)

    end(processor)

    assert processor.is_awaited is is_awaited
