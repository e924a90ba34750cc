"""A task that is asked to stop may hand itself back, and goes on elsewhere; who does not look is
treated as ever.
"""

from __future__ import annotations

import os
import signal
import subprocess

import pytest
from handlers import beat_of, begin, ended, files, is_sound, let_go
from running import Programs, is_there, until
from transactions import protocol

from blueque import Retry, Task
from blueque.model.limits import Limits
from blueque.model.outcomes import HandBack
from blueque.node.attempt_watch import AttemptWatch
from blueque.spool import outcome_record
from blueque.spool.attempt import Attempt
from blueque.system.embedded_redis import running_server

WORK = """
    import multiprocessing, os, signal, sys, time
    from pathlib import Path

    from blueque import HandBack


    def run(task):
        if task.attempt > 1:
            return [task.checkpointed, task.attempt]
        return globals()[task.parameters](task)

    def note(task):
        ledger = os.open("ledger", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(ledger, f"{task.id} {task.attempt} {os.getpid()}\\n".encode())
        os.close(ledger)

    def count(task):
        number = 0
        while not task.should_stop:
            number += 1
            task.checkpoint(number)
            if number == 3:
                note(task)
            time.sleep(0.005)
        Path(os.environ["BLUEQUE_STOP_FILE"]).rename(f"asked.{task.id}")

    def hand_back(task):
        count(task)
        time.sleep(0.1)                                # what it has to finish first
        task.checkpoint("the last")
        raise HandBack("as it was asked to")

    def finish(task):
        count(task)
        return "finished"

    def fail(task):
        count(task)
        raise ValueError("no such codec")

    def hand_back_unasked(task):
        note(task)
        raise HandBack("for no reason")

    def wait(task):
        task.checkpoint("the last")
        note(task)
        while not Path("go").exists():
            time.sleep(0.005)
        return "waited"

    def fork(task):
        task.should_stop
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(1000,))
        child.start()
        note(task)
        child.join()
        return [child.exitcode, task.should_stop]
"""
QUICK = ("--beat", "0.2s", "--lease", "0.6s")


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A listener that outlives its tasks, in a place that some tests here share."""
    with (
        running_server() as server,
        Programs(server.url, tmp_path_factory.mktemp("house")) as programs,
    ):
        programs.write(WORK)
        programs.listener("work:run", slots=2)
        yield programs


def asked(programs, task):
    """Return why the task was asked to stop, as it has found it."""
    return (programs.directory / f"asked.{task.id}").read_text().strip()


def goes_on(programs, task_id, reason):
    """See that the task is the next in line at no cost, and why, and let another node run it."""
    waiting = programs.client.get_task(task_id)
    assert (waiting.status, waiting.attempt, waiting.failures) == ("pending", 1, None)
    assert (waiting.interruptions, waiting.error, waiting.last_error) == (None, None, None)
    *_, released = programs.client.get_history(task_id).events
    assert (released.event, released.facts) == ("released", {"reason": reason})
    programs.listener("work:run", spool="elsewhere")
    done = ended(programs.client, task_id)
    assert (done.status, done.result) == ("complete", ["the last", 2])
    assert is_sound(programs.client)


# Drain


@pytest.mark.parametrize("from_afar", [False, True])
def test_drained_a_task_that_looks_hands_itself_back_and_goes_on_elsewhere_before_the_others(
    programs, queue, cli, from_afar
):
    listener = programs.listener("work:run", *QUICK)
    task = begin(programs, "hand_back")
    following = queue.enqueue("finish")
    if from_afar:
        protocol.order(programs.client.connections, "work", task.node, "drain", "ann")
    else:
        listener.send(signal.SIGTERM)
    assert listener.wait() == 0
    assert asked(programs, task) == "drain"
    # taken from the tail
    assert cli.lrange("blueque_pending_tasks_work", 0, -1) == [following, task.id]
    queue.cancel(following)
    goes_on(programs, task.id, "drain")


def test_drained_a_task_that_looks_may_finish_too_and_one_that_does_not_is_waited_for(programs):
    listener = programs.listener("work:run", slots=2)
    busy, heeding = begin(programs, "wait"), begin(programs, "finish")
    listener.send(signal.SIGTERM)
    assert ended(programs.client, heeding.id).result == "finished"
    assert (files(programs, busy) / "stop").read_text() == "drain\n"
    assert listener.is_running and is_there(busy.pid)
    let_go(programs)
    assert listener.wait() == 0
    assert ended(programs.client, busy.id).result == "waited"


def test_left_behind_a_task_is_not_asked_until_somebody_drains_its_node(programs):
    listener = programs.listener("work:run", *QUICK, on_term="leave")
    task = begin(programs, "hand_back")
    assert listener.stop() == 0
    beats = beat_of(programs.client, "work", task.node)
    until(
        lambda: beat_of(programs.client, "work", task.node) >= beats + 2,
        what="its beats without a master",
    )
    assert not (files(programs, task) / "stop").exists() and is_there(task.pid)
    protocol.order(programs.client.connections, "work", task.node, "drain", "ann")
    until(lambda: programs.left() == [], what="the leaving of the listener")
    goes_on(programs, task.id, "drain")


# Stop


def test_stopped_a_task_that_looks_has_its_grace_and_needs_no_policy(programs):
    listener = programs.listener("work:run", on_term="stop")
    task = begin(programs, "hand_back")
    assert listener.stop() == 0
    assert asked(programs, task) == "stopped"
    goes_on(programs, task.id, "stopped")


def test_stopped_a_task_that_does_not_look_dies_as_ever_and_goes_on_from_its_newest_checkpoint(
    programs,
):
    listener = programs.listener("work:run", on_term="stop", slots=2)
    safe = begin(programs, "wait", retry=Retry(max=1, backoff=0, jitter=0))
    once = begin(programs, "wait")
    assert listener.stop() == 0
    failed = programs.client.get_task(once.id)
    assert (failed.status, failed.error) == ("failed", "stopped by operator: killed by SIGTERM")
    goes_on(programs, safe.id, "stopped")
    programs.client.get_queue("work").requeue(once.id)
    assert ended(programs.client, once.id).result == ["the last", 2]


def test_a_child_that_such_a_task_has_forked_dies_of_sigterm_as_ever(programs):
    listener = programs.listener("work:run", on_term="stop")
    task = begin(programs, "fork")
    assert listener.stop() == 0
    assert programs.client.get_task(task.id).result == [-signal.SIGTERM, True]


# Whatever else ends a task


def test_cancelled_it_is_cancelled_even_if_it_hands_itself_back(house):
    task = begin(house, "hand_back")
    house.client.get_queue("work").cancel(task.id)
    assert ended(house.client, task.id).status == "cancelled" and asked(house, task) == "cancelled"


def test_near_a_limit_it_is_asked_if_there_is_a_lead(house):
    task = begin(house, "hand_back", time_limit=5, lead=4.5)
    done = ended(house.client, task.id)
    assert (done.result, done.failures, done.last_error) == (["the last", 2], None, None)
    assert asked(house, task) == "time_limit"
    (reason,) = [
        event.facts
        for event in house.client.get_history(task.id).events
        if event.event == "released"
    ]
    assert reason == {"reason": "time_limit"}


def test_who_goes_on_after_a_warning_that_it_stalls_is_not_asked_any_more_unless_for_something_else(
    client, tmp_path
):
    (tmp_path / "task").touch()
    with subprocess.Popen(["sleep", "1000"]) as child:
        limits = Limits(stall=100.0, lead=99.99)
        processor = client.get_processor(Task("t1", {"queue": "work", "node": "n"}))
        attempt = Attempt(str(tmp_path), "")
        watch = AttemptWatch(processor, attempt, child.pid, limits, os.pidfd_open(child.pid))

        def is_asked():
            watch.step()
            return (tmp_path / "stop").exists()

        until(is_asked, what="the warning")
        watch.bars = "so far"
        assert not is_asked()
        until(is_asked, what="the next warning")
        watch.ask("drain")
        watch.bars = "further"
        assert is_asked()
        watch.close()
        child.kill()


def test_beyond_its_limit_it_has_failed_whatever_it_says(house):
    failed = ended(
        house.client, house.client.get_queue("work").enqueue("hand_back", time_limit=0.3)
    )
    assert failed.error_type == "time_limit"
    assert failed.error.partition(" s ")[0] == "time_limit of 0.3"


def test_who_hands_a_task_back_without_being_asked_has_failed(house):
    failed = ended(house.client, house.client.get_queue("work").enqueue("hand_back_unasked"))
    assert failed.error_type == "blueque.model.outcomes.HandBack"
    assert failed.error == "HandBack: for no reason (the task had not been asked to stop)"


def test_whoever_fails_when_asked_to_stop_has_failed(programs, queue):
    listener = programs.listener("work:run")
    task = begin(programs, "fail", retry=Retry(max=1, backoff=100))
    assert listener.stop() == 0
    failed = programs.client.get_task(task.id)
    assert (failed.status, failed.failures) == ("scheduled", 1)
    assert failed.last_error == "ValueError: no such codec"


def test_a_hand_back_without_words_says_what_it_is():
    assert outcome_record.record_of(HandBack(), is_asked_to_stop=True)["error"] == "HandBack"
    assert (
        outcome_record.record_of(HandBack())["error"]
        == "HandBack (the task had not been asked to stop)"
    )


# Programs

PROGRAM = """
if [ "$BLUEQUE_ATTEMPT" = 2 ]; then cat "$BLUEQUE_CHECKPOINT"; ls "$BLUEQUE_CHECKPOINT_DIR"; exit; fi
echo '"seven"' >"$BLUEQUE_CHECKPOINT.new" && mv "$BLUEQUE_CHECKPOINT.new" "$BLUEQUE_CHECKPOINT"
echo half done >"$BLUEQUE_CHECKPOINT_DIR/state"
echo "$BLUEQUE_TASK_ID 1 $PPID" >>ledger
while [ ! -e "$BLUEQUE_STOP_FILE" ] && [ ! -e go ]; do sleep 0.02; done
[ -e go ] || rm "$BLUEQUE_STOP_FILE"
exit 75
"""


def test_a_program_that_was_asked_to_stop_and_has_taken_notice_hands_itself_back_by_exit_code_75(
    programs, queue
):
    listener = programs.listener("--exec", "sh")
    task = begin(programs, PROGRAM)
    assert listener.stop() == 0
    waiting = programs.client.get_task(task.id)
    assert (waiting.status, waiting.failures, waiting.error) == ("pending", None, None)
    programs.listener("--exec", "sh", spool="elsewhere")
    assert ended(programs.client, task.id).result == '"seven"'
    assert [line.text for line in programs.client.get_log(task.id)[0]] == ['"seven"']


def test_exit_code_75_of_a_program_that_has_been_asked_and_has_not_looked_is_a_failure(programs):
    listener = programs.listener("--exec", "sh")
    task = begin(
        programs,
        'echo "$BLUEQUE_TASK_ID 1 $PPID" >>ledger; while [ ! -e go ]; do sleep 0.02; done; exit 75',
    )
    listener.send(signal.SIGTERM)
    until(lambda: (files(programs, task) / "stop").exists(), what="the wish that it stop")
    let_go(programs)
    assert listener.wait() == 0
    failed = programs.client.get_task(task.id)
    assert (failed.status, failed.exit_code, failed.error_type) == ("failed", 75, "exit")


def test_who_has_taken_notice_is_not_asked_again_and_what_is_withdrawn_was_not_noticed(tmp_path):
    (tmp_path / "task").touch()
    attempt, stop = Attempt(str(tmp_path), ""), tmp_path / "stop"
    for reason in ("stall_limit", "drain"):  # of the listener that adopts it, too
        attempt.ask_to_stop(reason)
    assert (stop.read_text(), attempt.has_taken_notice()) == ("drain\n", False)
    attempt.withdraw_stop()
    assert (stop.exists(), attempt.has_taken_notice()) == (False, False)
    attempt.ask_to_stop("drain")
    stop.unlink()
    for act in (attempt.withdraw_stop, lambda: attempt.ask_to_stop("drain")):
        act()
        assert (stop.exists(), attempt.has_taken_notice()) == (False, True)


def test_exit_code_75_of_a_program_that_nobody_has_asked_is_a_failure(programs):
    programs.listener("--exec", "sh")
    task = begin(programs, PROGRAM)
    let_go(programs)
    failed = ended(programs.client, task.id)
    assert (failed.status, failed.exit_code, failed.error_type) == ("failed", 75, "exit")
    assert os.listdir(files(programs, task) / "checkpoint") == ["state"]
