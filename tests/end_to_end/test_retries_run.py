"""Retries on real processes: which failures are followed by another attempt, when, and who puts it
in line.
"""

from __future__ import annotations

import signal

import pytest
from handlers import WORK, ended, is_sound, ledger
from legacy import Legacy, install
from running import Programs, is_there, until

from blueque import Retry
from blueque.system.embedded_redis import running_server

AT_ONCE = {"backoff": 0, "jitter": 0}

# For the processes of 1.0.0.
PROMOTE = "queue = client.get_queue(argv[0])\nwhile True:\n    queue.enqueue_due_tasks()\n    time.sleep(0.01)"
ITS_WORK = """
    import os


    def run(task):
        with open("its_ledger", "a") as ledger:
            print(task.id, file=ledger)
        return "by 1.0.0"
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """Listeners that all tests here share: with and without a policy of their own, and one of
    programs. No scheduler.
    """
    with (
        running_server() as server,
        Programs(server.url, tmp_path_factory.mktemp("retries")) as programs,
    ):
        programs.write(WORK, "ours.py")
        programs.write(ITS_WORK)
        programs.listener("ours:run", "--beat", "0.2s", slots=2)
        policy = '{"max": 1, "backoff": 0.1, "jitter": 0}'
        programs.listener("ours:run", "--beat", "0.2s", "--retry", policy, queue="willing")
        programs.listener("--beat", "0.2s", "--exec", "sh", queue="shell")
        yield programs


def run(programs, how, queue="work", **options):
    """Have a task run and return it when it has ended for good."""
    return ended(programs.client, programs.client.get_queue(queue).enqueue(how, **options))


def test_a_task_that_fails_runs_again_as_often_as_its_policy_says_after_longer_and_longer_pauses(
    programs,
):
    queue, redis = programs.client.get_queue("work"), programs.client.connections
    task_id = queue.enqueue("fail", retry=Retry(max=2, backoff=0.4, factor=2, jitter=0))
    etas = []
    for failures in (1, 2):

        def waits(failures=failures):
            task = programs.client.get_task(task_id)
            return task if task.failures == failures and task.status == "scheduled" else None

        task = until(waits, what="the next attempt")
        assert task.last_error == "ValueError: no such codec"
        assert task.last_error_type == "ValueError"
        assert (task.node, task.pid, task.token, task.started, task.error, task.result) == (
            None,
        ) * 6
        assert task.eta - task.updated == pytest.approx(0.4 * 2 ** (failures - 1), abs=0.1)
        assert redis.read(("ZSCORE", "blueque_scheduled_tasks_work", task_id))[0] is not None
        etas.append(task.eta)
    failed = ended(programs.client, task_id)
    assert (failed.status, failed.error) == ("failed", "ValueError: no such codec")
    assert failed.error_type == "ValueError"
    assert (failed.attempt, failed.failures, failed.interruptions) == (3, 2, None)
    assert failed.started > etas[1] > etas[0]
    runs = ledger(programs, task_id)
    assert [each.attempt for each in runs] == [1, 2, 3] and len({each.pid for each in runs}) == 3
    assert not any(is_there(each.pid) for each in runs) and is_sound(programs.client)


def test_the_number_of_the_attempt_reaches_the_task_and_a_success_keeps_what_the_last_failure_was(
    programs,
):
    done = run(programs, "fail_at_first", retry=Retry(max=1, **AT_ONCE))
    assert (done.status, done.result, done.attempt, done.failures) == ("complete", [2, "2"], 2, 1)
    assert (done.error, done.last_error_type) == (None, "ValueError")
    script = 'if [ "$BLUEQUE_ATTEMPT" = 1 ]; then exit 75; fi; echo "attempt $BLUEQUE_ATTEMPT"'
    assert run(programs, script, "shell", retry=Retry(max=1, **AT_ONCE)).result == "attempt 2"


@pytest.mark.parametrize(
    ("how", "on", "attempts"),
    [
        # more of them are in model/test_retry.py
        ("raise_key_error", [ValueError, OSError], 1),
        ("raise_own_error", ["ours.Flaky"], 2),  # a class of the handler's own
        ("raise_own_error", [ConnectionError], 2),  # a subclass of what is named
        ("kill_itself", ["signal"], 2),
    ],
)
def test_with_on_only_failures_of_these_classes_are_followed_by_another_attempt(
    programs, how, on, attempts
):
    failed = run(programs, how, retry=Retry(max=1, on=on, **AT_ONCE))
    assert (failed.status, failed.attempt, failed.failures or 0) == (
        "failed",
        attempts,
        attempts - 1,
    )
    assert len(ledger(programs, failed.id)) == attempts


@pytest.mark.parametrize(("code", "attempts"), [(75, 2), (1, 1)])
def test_with_exit_codes_only_these_are_followed_by_another_attempt(programs, code, attempts):
    failed = run(
        programs, f"exit {code}", "shell", retry=Retry(max=1, exit_codes=[75, 111], **AT_ONCE)
    )
    assert (failed.status, failed.error_type, failed.exit_code) == ("failed", "exit", code)
    assert failed.attempt == attempts


def test_a_handler_may_say_that_it_failed_for_good_or_wants_to_run_later_whatever_the_policy(
    programs,
):
    failed = run(programs, "give_up", retry=Retry(max=5, **AT_ONCE))
    assert (failed.status, failed.error_type, failed.error) == ("failed", "Fail", "no such film")
    assert failed.attempt == 1
    for policy in (None, False, Retry(max=0)):
        done = run(programs, "ask_for_more_time 0.3", retry=policy)
        assert (done.status, done.attempt, done.failures or 0) == ("complete", 2, 0)
        assert 0.3 <= done.started - done.created < 3
    assert run(programs, "ask_for_more_time 0").attempt == 2


def test_the_policy_of_the_listener_holds_for_tasks_that_have_none_and_not_against_their_will(
    programs,
):
    by_default, never, own = (
        run(programs, "fail", "willing", retry=policy)
        for policy in (None, False, Retry(max=2, **AT_ONCE))
    )
    assert [task.attempt for task in (by_default, never, own)] == [2, 1, 3]
    assert run(programs, "fail").attempt == 1  # and neither of them has one: once


def test_a_person_who_requeues_a_task_gives_it_its_whole_budget_again(programs):
    failed = run(programs, "fail", retry=Retry(max=1, **AT_ONCE))
    assert (failed.attempt, failed.failures) == (2, 1)
    programs.client.get_queue("work").requeue(failed.id)
    until(lambda: len(ledger(programs, failed.id)) == 4, what="two more attempts")
    again = ended(programs.client, failed.id)
    assert (again.status, again.attempt, again.failures) == ("failed", 4, 1) and is_sound(
        programs.client
    )


@pytest.mark.parametrize("who", ["1.0.0", "ours"])
def test_the_next_attempt_may_be_put_in_line_by_1_0_0_and_run_by_either(programs, who):
    install()
    legacy, name = Legacy(programs.url, programs), f"mixed with {who}"
    listener = programs.listener("ours:run", queue=name)
    task_id = programs.client.get_queue(name).enqueue(
        "fail_at_first", retry=Retry(max=3, backoff=0.8, jitter=0)
    )
    until(lambda: programs.client.get_task(task_id).status == "scheduled", what="the next attempt")
    assert listener.stop() == 0  # none of ours is there when it is due
    promoter = legacy.start(PROMOTE, name)
    until(lambda: programs.client.get_task(task_id).status == "pending", what="its promotion")
    if who == "ours":
        runner = programs.listener("ours:run", queue=name)
        done = ended(programs.client, task_id)
        assert (done.status, done.result, done.attempt) == ("complete", [2, "2"], 2)
        assert done.failures == 1
    else:
        runner = legacy.start("ForkingRunner(client, argv[0], work.run).run()", name)
        done = ended(programs.client, task_id)
        assert (done.status, done.result, done.token) == ("complete", "by 1.0.0", None), runner.log
        assert (programs.directory / "its_ledger").read_text().split() == [task_id]
        assert len(ledger(programs, task_id)) == 1
    for program in (promoter, runner):
        assert program.is_running, program.log
        program.stop(signal.SIGKILL)
