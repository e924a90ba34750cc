"""blueque.testing.run_task: a handler in the process of the test."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading

import pytest

import blueque
from blueque import Fail, HandBack, InvalidInput, New, Retry, RetryLater, Then
from blueque.task_process import registered
from blueque.testing import Progress, run_task


def test_a_handler_gets_its_parameters_and_returns_its_result_as_redis_would_give_them():
    seen = []

    def handler(task):
        seen.append((task.parameters, task.queue, task.attempt, task.status))
        return {"size": (1, 2)}

    ended = run_task(handler, ("a", 1), queue="video")
    assert seen == [(["a", 1], "video", 1, "started")]
    assert (ended.outcome, ended.result, ended.queue) == ("complete", {"size": [1, 2]}, "video")
    assert (ended.error, ended.exception, ended.retry_in) == (None, None, None)


def test_notes_are_those_that_the_history_of_the_task_would_have():
    def handler(task):
        return [task.note(f"step\n{number}") for number in range(21)]

    ended = run_task(handler)
    assert ended.notes == tuple(f"step {number}" for number in range(20))
    assert ended.result == [True] * 20 + [False]


def test_what_is_no_text_is_noted_as_its_text():
    assert run_task(lambda task: task.note(["a", 1])).notes == ("['a', 1]",)


def test_each_progress_is_noted_as_it_is_shown():
    def handler(task):
        task.progress(0.25, "copying")
        with task.stage("mux", 2, of=2):
            task.progress(1, 2, "frames")
        for _ in task.track([1], unit="files"):
            pass

    told = run_task(handler).progress
    assert told[0] == Progress(0.25, None, "", "copying")
    assert [str(each) for each in told[-2:]] == ["0/1 files", "1/1 files"]
    assert any("mux" in each.text for each in told)


def test_a_checkpoint_is_what_the_next_attempt_goes_on_from():
    def handler(task):
        if task.attempt == 1:
            task.checkpoint({"page": 7})
            (task.checkpoint_dir / "deep").mkdir()
            (task.checkpoint_dir / "deep" / "part").write_bytes(b"x")
            raise OSError("the disk is full")
        return [task.checkpointed, (task.checkpoint_dir / "deep" / "part").read_text()]

    first = run_task(handler, retry=Retry(backoff=8, jitter=0))
    assert (first.outcome, first.retry_in, first.failures) == ("retried", 8.0, 1)
    assert (first.checkpoint, first.files) == ({"page": 7}, {"deep/part": b"x"})
    second = run_task(handler, before=first)
    assert (second.result, second.attempt, second.id) == ([{"page": 7}, "x"], 2, first.id)
    assert run_task(
        handler, fields={"attempt": "3"}, checkpoint=1, files={"deep/part": b"y"}
    ).result == [1, "y"]


def test_should_stop_is_true_when_the_test_says_so_and_leaves_no_signal_handler():
    def handler(task):
        reads = 0
        while not task.should_stop:
            reads += 1
        raise HandBack(f"after {reads}")

    before = signal.getsignal(signal.SIGTERM)
    ended = run_task(handler, stop_after=3)
    assert (ended.outcome, ended.error) == ("released", "after 3")
    assert signal.getsignal(signal.SIGTERM) == before
    assert run_task(lambda task: task.should_stop).result is False


def hand_back(task):
    raise HandBack


def test_a_hand_back_without_a_request_is_a_failure():
    assert run_task(hand_back).outcome == "failed"
    assert run_task(hand_back, stop_after=0).outcome == "released"


def wait_for_ever(task):
    threading.Event().wait()


def test_a_time_limit_ends_a_handler():
    ended = run_task(wait_for_ever, time_limit=0.05)
    assert (ended.outcome, ended.error_type) == ("failed", "time_limit")
    assert ended.error.startswith("time_limit of 0.05 s exceeded after")
    with pytest.raises(AssertionError, match="not complete but failed: time_limit of"):
        _ = ended.result
    assert run_task(wait_for_ever, time_limit=0.05, retry=1).outcome == "retried"


def test_a_handler_that_catches_everything_has_exceeded_its_limit_all_the_same():
    def handler(task):
        try:
            wait_for_ever(task)
        except BaseException:
            return "as if nothing had happened"

    assert run_task(handler, time_limit=0.05).error_type == "time_limit"


def test_a_stall_limit_ends_a_handler_that_shows_no_progress():
    calls = []

    def handler(task):
        for number in range(3):
            task.progress(number, 3)
            calls.append(number)
        wait_for_ever(task)

    assert run_task(handler, stall_limit=0.05).error_type == "stall_limit"
    assert calls == [0, 1, 2]


def test_before_a_limit_the_task_is_asked_to_stop():
    def handler(task):
        while not task.should_stop:
            pass
        raise HandBack

    assert run_task(handler, time_limit=60, lead=60).outcome == "released"


def test_in_another_thread_a_limit_is_noted_at_the_end():
    ended = []
    gone = threading.Event()

    def handler(task):
        gone.wait(0.05)

    thread = threading.Thread(target=lambda: ended.append(run_task(handler, time_limit=0.01)))
    thread.start()
    thread.join()
    assert ended[0].error_type == "time_limit"


def test_the_alarm_of_a_test_runner_goes_on():
    rung = threading.Event()
    before = signal.signal(signal.SIGALRM, lambda *_: rung.set())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        run_task(lambda task: None, time_limit=60)
        assert rung.wait(10)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def fail(error):
    def handler(task):
        raise error

    return handler


@pytest.mark.parametrize(
    ("error", "outcome", "error_type"),
    [
        (ValueError("no"), "retried", "ValueError"),
        (Fail("no"), "failed", "Fail"),
        (RetryLater(60), "retried", "RetryLater"),
        (SystemExit(3), "retried", "exit"),
        (SystemExit(0), "complete", None),
    ],
)
def test_the_outcome_is_that_of_a_listener(error, outcome, error_type):
    ended = run_task(fail(error), retry=Retry(on=["ValueError", "exit"]))
    assert (ended.outcome, ended.error_type) == (outcome, error_type)
    assert ended.exception is error
    assert ended.failures == (
        1 if outcome == "retried" and not isinstance(error, RetryLater) else 0
    )
    if outcome != "complete":
        with pytest.raises(type(error)):
            _ = ended.result


def test_ctrl_c_and_the_skip_of_a_test_go_through():
    with pytest.raises(KeyboardInterrupt):
        run_task(fail(KeyboardInterrupt()))
    with pytest.raises(pytest.skip.Exception):
        run_task(fail(pytest.skip.Exception("not here")))
    assert blueque.current_task().id == ""


def test_it_is_the_current_task_and_programs_that_it_starts_know_it():
    before = dict(os.environ)

    def handler(task):
        assert blueque.current_task() is task
        code = "import blueque; print(blueque.current_task().parameters)"
        return subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
        ).stdout

    assert run_task(handler, {"a": 1}).result == "{'a': 1}\n"
    assert blueque.current_task().id == "" and dict(os.environ) == before


def test_inputs_resources_and_further_fields_are_given():
    def handler(task):
        return [task.inputs, task.parents, task.resources, task.context, task.key]

    given = {"resources": {"gpu": [0]}, "context": {"trace": "4bf9"}, "fields": {"key": "42"}}
    ended = run_task(handler, inputs={"a": 41}, **given)
    assert ended.result == [{"a": 41}, ["a"], {"gpu": [0]}, {"trace": "4bf9"}, "42"]


def test_the_tasks_that_it_makes_are_noted():
    def handler(task):
        first = task.spawn("thumbnails", {"of": 1}, key="one", priority=5)
        assert first.is_new and not task.spawn("thumbnails", {"of": 1}, key="one").is_new
        assert first == task.spawned_id("one")
        return Then("done", [New("mails", "sent", key="mail", after=[first])])

    ended = run_task(handler)
    assert ended.result == "done"
    assert [(each.queue, each.parameters) for each in ended.spawned] == [
        ("thumbnails", {"of": 1}),
        ("mails", "sent"),
    ]
    assert ended.spawned[0].options["priority"] == 5
    assert ended.spawned[0].options["spawned_by"] == ended.id


def test_what_cannot_be_stored_fails_as_with_a_listener():
    assert run_task(lambda task: object()).error_type == "result"
    assert run_task(lambda task: "x" * 200, max_bytes=100).error_type == "result"
    with pytest.raises(InvalidInput):
        run_task(lambda task: None, float("nan"))


def test_what_cannot_be_a_handler_is_refused():
    with pytest.raises(InvalidInput, match="run_task: Retry is a class"):
        run_task(Retry)
    with pytest.raises(TypeError, match="unexpected keyword argument 'stop'"):
        run_task(lambda task: None, stop=1)


# Coroutines, and handlers that register themselves


async def pause_and_double(task):
    task.progress(1, 2)
    await asyncio.sleep(0)
    return 2 * task.parameters


def test_a_coroutine_function_runs_and_leaves_no_signal_handler():
    before = signal.getsignal(signal.SIGTERM)
    ended = run_task(pause_and_double, 21)
    assert (ended.result, len(ended.progress)) == (42, 1)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_limit_cancels_a_coroutine_which_may_clean_up():
    cleaned = []

    async def wait(task):
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(True)

    assert run_task(wait, time_limit=0.05).error_type == "time_limit"
    assert cleaned == [True]


@pytest.fixture
def encode():
    """A handler that has registered itself."""
    before = [*registered.registered]

    @blueque.handler("films", retry=Retry(backoff=7, jitter=0), time_limit=0.05)
    def encode(task, film):
        if film == "endless":
            threading.Event().wait()
        return f"{film} of {task.queue}"

    yield encode
    registered.registered[:] = before


def test_a_handler_that_has_registered_itself_brings_its_queue_policy_and_limits(encode):
    assert run_task(encode, "Metropolis").result == "Metropolis of films"
    ended = run_task(encode, "endless")
    assert (ended.outcome, ended.retry_in, ended.error_type) == ("retried", 7.0, "time_limit")
    assert run_task(encode, "endless", retry=False).outcome == "failed"
    assert run_task(encode, "M", queue="old", time_limit=60).result == "M of old"


def test_without_redis_a_handler_enqueues_only_with_a_client_that_it_names(
    encode, client, cli, monkeypatch
):
    monkeypatch.setenv("BLUEQUE_REDIS_URL", client.url)

    for enqueue in (
        lambda task: encode.enqueue("M"),
        lambda task: task.client.get_queue("films").enqueue("M"),
    ):
        ended = run_task(enqueue)
        assert isinstance(ended.exception, InvalidInput)
        assert "run_task has no Redis" in ended.error and "drain()" in ended.error
    assert cli.keys() == []
    made = run_task(lambda task: encode.enqueue("M", client=client)).result
    assert client.get_task(made).parameters == "M"
