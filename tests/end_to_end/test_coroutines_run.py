"""Handlers that are coroutine functions: their end, and what SIGTERM does to them."""

from __future__ import annotations

import pytest
from handlers import begin, ended, is_sound
from running import Programs

from blueque import Retry
from blueque.system.embedded_redis import running_server

WORK = """
    import asyncio, multiprocessing, os, time
    from pathlib import Path

    from blueque import Fail, HandBack, current_task


    async def run(task):
        return await globals()[task.parameters](task)

    def note(task):
        ledger = os.open("ledger", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(ledger, f"{task.id} {task.attempt} {os.getpid()}\\n".encode())
        os.close(ledger)

    async def add(task):
        both = await asyncio.gather(asyncio.to_thread(lambda: 1), asyncio.sleep(0, 2))
        return [sum(both), current_task() is task]

    async def fail(task):
        raise ValueError("no such codec")

    async def give_up(task):
        raise Fail("no such film")

    async def wait(task):
        note(task)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            Path(f"cleaned.{task.id}").touch()

    async def finish(task):
        note(task)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "finished"

    async def hand_back(task):
        if task.attempt > 1:
            return task.checkpointed
        note(task)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            task.checkpoint("half")
            raise HandBack from None

    async def look(task):
        is_asked = task.should_stop
        note(task)
        while not task.should_stop:
            await asyncio.sleep(0.005)
        return [is_asked, task.should_stop]

    async def fork(task):
        note(task)
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(1000,))
        child.start()
        child.terminate()
        child.join()
        return child.exitcode

    async def cancel_itself(task):
        asyncio.current_task().cancel()
        await asyncio.sleep(1000)

    def plain(task):
        return add(task)
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A listener that tests share which do not harm it."""
    with (
        running_server() as server,
        Programs(server.url, tmp_path_factory.mktemp("coroutines")) as programs,
    ):
        programs.write(WORK)
        programs.listener("work:run")
        yield programs


def run(programs, parameters, **options):
    return ended(programs.client, programs.client.get_queue("work").enqueue(parameters, **options))


def test_a_coroutine_runs_to_its_end_and_its_result_is_that_of_the_task(shared):
    assert run(shared, "add").result == [3, True]


def test_a_plain_function_may_return_a_coroutine(programs):
    programs.write(WORK)
    programs.listener("work:plain", "--no-warm")

    assert run(programs, "").result == [3, True]


def test_what_a_coroutine_raises_is_the_end_of_the_task_as_of_any_other_handler(shared):
    failed, given_up = run(shared, "fail"), run(shared, "give_up", retry=2)

    assert (failed.error, failed.error_type) == ("ValueError: no such codec", "ValueError")
    assert failed.fields["traceback"].count("File ") == 2  # of run and of fail
    assert (given_up.status, given_up.error_type) == ("failed", "Fail")


def test_cancelling_a_task_cancels_its_coroutine_which_cleans_up(shared):
    task = begin(shared, "wait")

    shared.client.get_queue("work").cancel(task.id, by="ann")

    gone = ended(shared.client, task.id)
    assert (gone.status, gone.cancelled_by) == ("cancelled", "ann")
    assert (shared.directory / f"cleaned.{task.id}").exists() and is_sound(shared.client)


def test_a_coroutine_that_takes_no_notice_of_its_time_limit_ends_by_it(shared):
    task = run(shared, "wait", time_limit="100ms", retry=Retry(max=0))

    assert (task.status, task.error_type) == ("failed", "time_limit")
    assert (shared.directory / f"cleaned.{task.id}").exists()


def test_a_coroutine_that_catches_the_cancellation_completes(shared):
    task = run(shared, "finish", time_limit="100ms")

    assert (task.status, task.result) == ("complete", "finished")


def test_a_coroutine_that_is_cancelled_may_hand_the_task_back(programs):
    programs.write(WORK)
    listener = programs.listener("work:run", "--on-term", "stop")
    task = begin(programs, "hand_back")
    listener.stop()
    assert programs.client.get_task(task.id).status == "pending"

    programs.listener("work:run")

    assert ended(programs.client, task.id).result == "half"


def test_a_coroutine_that_reads_should_stop_is_not_cancelled(shared):
    task = run(shared, "look", time_limit="200ms")

    assert (task.status, task.result) == ("complete", [False, True])


def test_a_child_that_a_coroutine_forks_ends_by_sigterm(shared):
    assert run(shared, "fork").result == -15


def test_a_coroutine_that_cancels_itself_has_failed(shared):
    task = run(shared, "cancel_itself")

    assert (task.status, task.error_type) == ("failed", "asyncio.exceptions.CancelledError")


def test_coroutines_run_one_after_the_other_in_a_process_that_is_reused(programs):
    programs.write(WORK)
    programs.listener("work:run", "--reuse", "3")

    tasks = [run(programs, "add"), run(programs, "fork"), run(programs, "add")]

    assert [task.result for task in tasks] == [[3, True], -15, [3, True]]
    assert len({task.pid for task in tasks}) == 1
