"""AsyncClient: the calls of a Client in an event loop, which goes on meanwhile."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from pathlib import Path

import pytest
import redis as redis_py
from sentinels import watched

from blueque import (
    AsyncClient,
    InvalidInput,
    InvalidType,
    NoSuchTask,
    RedisAway,
    RedisRefused,
    TooLarge,
    WaitTimedOut,
    WrongState,
    handler,
)
from blueque.connection import tracked
from blueque.connection.tracked import Tracked
from blueque.model import trace
from blueque.queries import task_ends
from blueque.system.embedded_redis import running_server
from blueque.task_process import registered

STALL = 0.005  # seconds of processor time between two turns of other coroutines
AWAY = 1.5  # seconds for which Redis is away, much longer than any stall


def end(cli, *ids, status="complete", **fields):
    """End tasks as any program may."""
    for task_id in ids:
        cli.hset(f"blueque_task_{task_id}", mapping={"status": status, **fields})


async def until(look, what):
    async with asyncio.timeout(15):
        while not look():
            await asyncio.sleep(0.005)
    return what


def connections(cli):
    return len(cli.client_list()) - 1  # without that which asks


def waiters_of(client):
    return client._loop().waiters


@asynccontextmanager
async def watched_loop() -> AsyncIterator[list[float]]:
    """Note for how long nothing else could run: the processor time of this thread, so that other
    programs do not count, and where it is more than half a second, the time that has passed.
    """
    stalls: list[float] = []

    async def turn() -> None:
        while True:
            used, at = time.thread_time(), time.monotonic()
            await asyncio.sleep(0)
            passed = time.monotonic() - at
            stalls.append(passed if passed > AWAY / 2 else time.thread_time() - used)
            await asyncio.sleep(0.001)

    turning = asyncio.ensure_future(turn())
    await asyncio.sleep(0)
    yield stalls
    turning.cancel()


@contextmanager
def stopped(server) -> Iterator[None]:
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


def test_a_task_goes_its_way(url, client, cli):
    async def program():
        async with AsyncClient(url) as waiting:
            queue = waiting.get_queue("video")
            task_id = await queue.enqueue({"file": "a.mov"}, title="first", key=7)
            again = await queue.enqueue({"file": "a.mov"}, title="first", key=7)
            later = await queue.schedule("later", time.time() + 3600, priority=3)
            many = await queue.enqueue_many(range(248), tags=["x"])
            assert len(await queue.enqueue_many([1, 2], ids=True)) == 2
            seen = await waiting.get_task(task_id)
            end(cli, task_id, result="done")
            ended = await waiting.wait(task_id, timeout=15)
            cancelled = await queue.cancel(later, by="me", reason="no need", only=["scheduled"])
            requeued = await queue.requeue(later)
            unknown = await waiting.get_task("nobody")
            return task_id, again, later, many, seen, ended, cancelled, requeued, unknown

    task_id, again, later, many, seen, ended, cancelled, requeued, unknown = asyncio.run(program())

    assert again == task_id and task_id.is_new and not again.is_new
    assert seen.parameters == {"file": "a.mov"} and seen.title == "first"
    assert (many, many.new) == (248, 248)
    assert (ended.status, ended.result) == ("complete", "done")
    assert (cancelled, requeued) == ("cancelled", "pending")
    assert client.get_task(later).priority == 3
    assert unknown.status is None
    assert cli.llen("blueque_pending_tasks_video") == 251


def test_a_handler_makes_its_tasks_in_an_event_loop(url, client, monkeypatch):
    monkeypatch.setattr(registered, "registered", [])

    @handler("video")
    def encode(task, parameters):
        return parameters

    async def program():
        async with AsyncClient(url) as waiting:
            now = await encode.enqueue_async({"n": 1}, client=waiting, title="now")
            later = await encode.schedule_async({"n": 2}, time.time() + 60, client=waiting)
            for make, other in ((encode.enqueue, waiting), (encode.enqueue_async, client)):
                with pytest.raises(InvalidType, match=r"client is of the type (Async)?Client: enq"):
                    await make({"n": 3}, client=other)
            return now, later

    now, later = map(client.get_task, asyncio.run(program()))
    assert (now.queue, now.parameters, now.title) == ("video", {"n": 1}, "now")
    assert (later.status, later.parameters) == ("scheduled", {"n": 2})


def test_what_is_wrong_is_refused_as_by_a_client(url, client):
    async def program():
        async with AsyncClient(url, max_bytes=100) as waiting:
            queue = waiting.get_queue("video")
            with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
                await queue.enqueue("in", colour="red")
            with pytest.raises(TooLarge):
                await queue.enqueue("x" * 101)
            with pytest.raises(WrongState):
                await queue.requeue(await queue.enqueue("in"))
            with pytest.raises(NoSuchTask, match="task nobody does not exist"):
                await waiting.wait(["nobody"])
            with pytest.raises(InvalidType, match="a task id is a str"):
                await waiting.get_task(7)
            with pytest.raises(InvalidInput, match=r"timeout is '2s'; .* a number of seconds"):
                await waiting.wait("nobody", timeout="2s")
            with pytest.raises(InvalidInput):
                waiting.get_queue("")
        with pytest.raises(InvalidInput, match="connections"):
            AsyncClient(url, connections=0)

    asyncio.run(program())


def test_options_of_redis_py_are_refused_before_anything_is_sent():
    with pytest.raises(InvalidInput, match="options of redis-py"):
        AsyncClient("redis://localhost?socket_timeout=3")


def test_without_greenlet_the_extra_is_named_when_a_client_is_made():
    program = """if True:
        import sys
        sys.modules["greenlet"] = None
        from blueque import *
        try:
            AsyncClient()
        except NotInstalled as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr == ""
    assert re.fullmatch(r"AsyncClient needs greenlet.*\.\[async\]'\n", done.stdout)


def test_everything_else_is_called_with_a_client(url, client):
    def close(blocking, name):
        return blocking.group(name).close()

    async def program():
        async with AsyncClient(url) as waiting:
            await waiting.call(lambda blocking: blocking.group("import").open())
            await waiting.get_queue("video").enqueue("in", group="import")
            await waiting.call(close, name="import")
            return await waiting.get_queue("video").call(lambda queue: queue.name)

    assert asyncio.run(program()) == "video"
    assert client.group("import").progress().state == "closed"


def test_calls_at_the_same_time_have_a_connection_each_and_no_more_than_allowed(url, cli):
    before = connections(cli)

    async def program():
        async with AsyncClient(url, connections=3) as waiting:
            queue = waiting.get_queue("video")
            ids = await asyncio.gather(*(queue.enqueue(number) for number in range(200)))
            return ids, connections(cli) - before

    ids, opened = asyncio.run(program())
    assert len(set(ids)) == 200 == cli.llen("blueque_pending_tasks_video")
    assert opened == 3


def test_fifty_waiters_share_one_connection(url, client, cli):
    queue = client.get_queue("video")
    ids = [queue.enqueue(number) for number in range(25)]

    async def program():
        async with AsyncClient(url, connections=1) as waiting:
            await waiting.get_task(ids[0])
            before = connections(cli)
            waits = [asyncio.ensure_future(waiting.wait(task_id)) for task_id in ids * 2]
            waiters = waiters_of(waiting)
            await until(lambda: len(waiters.waiting) == 25, "all wait")
            await until(lambda: waiters.ends.has_looked, "it has looked")
            opened = connections(cli) - before
            end(cli, *ids)
            ended = await asyncio.gather(*waits)
            await until(lambda: waiters.watching is None, "nothing is watched")
            assert not waiters.waiting and not waiters.ends.statuses
            return opened, ended

    opened, ended = asyncio.run(program())
    assert opened == 1
    assert [task.id for task in ended] == ids * 2
    assert {task.status for task in ended} == {"complete"}


def test_several_tasks_come_in_the_order_in_which_they_were_named(url, client, cli):
    queue = client.get_queue("video")
    one, two, three = (queue.enqueue(number) for number in range(3))
    end(cli, one, three)

    async def program():
        async with AsyncClient(url) as waiting:
            some = await waiting.wait([three, one, three, two], at_least=2)
            nothing = await waiting.wait([]), await waiting.wait([two], at_least=0)
            end(cli, two)
            both = await waiting.wait((three, two), timeout=15, at_least=7)
            first = await waiting.wait(one, timeout=0)
            assert await waiting.call(lambda blocking: blocking.patience) == 5
            return some, nothing, both, first

    some, nothing, both, first = asyncio.run(program())
    assert [task.id for task in some] == [three, one, three]
    assert nothing == ([], [])
    assert [task.id for task in both] == [three, two]
    assert (first.id, first.parameters) == (one, 0)


def test_a_task_that_is_put_in_line_again_has_not_ended(url, client, cli):
    queue = client.get_queue("video")
    again, other = queue.enqueue(1), queue.enqueue(2)
    end(cli, again, status="failed")

    async def program():
        async with AsyncClient(url) as waiting, aclosing(waiting.as_ended([again, other])) as ends:
            first = await anext(ends)
            queue.requeue(again)
            another = asyncio.ensure_future(waiting.wait(again))
            await until(lambda: again in waiters_of(waiting).waiting, "it is waited for")
            end(cli, again, other)
            return first, await anext(ends), [each.id async for each in ends], await another

    first, second, more, another = asyncio.run(program())
    assert (first.id, first.status) == (again, "failed")
    assert (second.id, more) == (other, [])
    assert (another.id, another.status) == (again, "complete")


def test_a_wait_that_begins_while_others_rest_or_look_is_not_missed(url, client, cli, monkeypatch):
    monkeypatch.setattr(tracked, "PROOF", 60.0)  # seconds after which it looks in any case
    first, second, third = client.get_queue("video").enqueue_many(range(3), ids=True)

    async def program():
        async with AsyncClient(url) as waiting:
            rests = asyncio.ensure_future(waiting.wait(first, timeout=15))
            waiters = waiters_of(waiting)
            await until(lambda: waiters.ends.has_looked, "it rests")
            leaves, stays = (asyncio.ensure_future(waiting.wait(second, 15)) for _ in range(2))
            await until(lambda: len(waiters.waiting.get(second, ())) == 2, "both wait")
            leaves.cancel()
            await asyncio.wait({leaves})
            (told,) = waiters.waiting[second]
            waiters.end(told, [second])
            told.put_nowait(second)  # as if it had ended and were put in line again
            await until(lambda: second in waiters.waiting, "it waits anew")
            end(cli, second)
            assert (await stays).status == "complete"
            look, other = waiters.ends.look, asyncio.Queue()

            def begin_at_its_end():
                yield from look()
                if third not in waiters.waiting:
                    waiters.begin({third: "pending"}, other)

            monkeypatch.setattr(waiters.ends, "look", begin_at_its_end)
            end(cli, first, third)
            return (await rests).id, await asyncio.wait_for(other.get(), 15)

    assert asyncio.run(program()) == (first, third)


def test_a_wait_that_is_over_says_what_has_not_ended(url, client, cli):
    queue = client.get_queue("video")
    ended, waits = queue.enqueue(1), queue.enqueue(2)
    end(cli, ended)

    async def program():
        async with AsyncClient(url) as waiting:
            with pytest.raises(WaitTimedOut) as raised:
                await waiting.wait([ended, waits], timeout=0.05)
            return raised.value

    assert asyncio.run(program()).statuses == {waits: "pending"}


def test_a_task_that_is_deleted_ends_the_waits_for_it_alone(url, client, cli):
    queue = client.get_queue("video")
    gone, stays = queue.enqueue(1), queue.enqueue(2)

    async def program():
        async with AsyncClient(url) as waiting:
            first, second = map(asyncio.ensure_future, map(waiting.wait, (gone, stays)))
            await until(lambda: len(waiters_of(waiting).waiting) == 2, "both wait")
            cli.delete(f"blueque_task_{gone}")
            with pytest.raises(NoSuchTask) as raised:
                await first
            end(cli, stays)
            return raised.value, await second

    error, ended = asyncio.run(program())
    assert (error.task_id, error.status) == (gone, "pending")
    assert ended.status == "complete"


def test_where_redis_reports_no_changes_the_tasks_are_read_again(url, client, cli, monkeypatch):
    monkeypatch.setattr(task_ends, "PACE", 0.01)
    monkeypatch.setattr("blueque.connection.plain.SocketConnection.track", lambda self: False)
    task_id = client.get_queue("video").enqueue("in")

    async def program():
        async with AsyncClient(url) as waiting:
            wait = asyncio.ensure_future(waiting.wait(task_id))
            await until(lambda: waiters_of(waiting).ends.has_looked, "it has looked")
            end(cli, task_id)
            return await wait

    assert asyncio.run(program()).status == "complete"


def test_a_refusal_is_raised_by_each_wait(url, client, monkeypatch):
    task_id = client.get_queue("video").enqueue("in")

    def refuse(*_):
        raise RedisRefused("NOPERM this user has no permissions")

    monkeypatch.setattr(Tracked, "exchange", refuse)

    async def program():
        async with AsyncClient(url) as waiting:
            with pytest.raises(RedisRefused, match="NOPERM"):
                await waiting.wait(task_id)

    asyncio.run(program())


def test_events_come_as_they_happen(url, client):
    queue = client.get_queue("video")

    async def program():
        seen = []
        async with AsyncClient(url) as waiting:
            places = await waiting.call(lambda blocking: blocking.get_event_places("video"))
            task_id = await waiting.get_queue("video").enqueue("in")
            await waiting.get_queue("video").cancel(task_id, by="me")
            events = waiting.events("video", after=places)
            async for event in events:
                seen.append(event)
                break
            await events.aclose()
            return task_id, seen

    task_id, (event,) = asyncio.run(program())
    assert (event.task, event.event, event.by) == (task_id, "cancelled", "me")
    assert queue.name == event.queue


def test_nothing_stays_behind_a_cancelled_call(url, client, cli, monkeypatch):
    monkeypatch.setattr(tracked, "PROOF", 60.0)  # seconds after which it looks in any case
    task_id = client.get_queue("video").enqueue("in")
    before = connections(cli)

    async def program():
        async with AsyncClient(url) as waiting:
            own = len(asyncio.all_tasks())
            wait = asyncio.ensure_future(waiting.wait(task_id))
            events = asyncio.ensure_future(anext(waiting.events("video")))
            await until(lambda: waiters_of(waiting).ends.has_looked, "it waits")
            await until(lambda: connections(cli) - before == 3, "the events are waited for")
            for each in (wait, events):
                each.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await each
            await until(lambda: len(asyncio.all_tasks()) == own, "its tasks have ended")
            left = waiters_of(waiting).waiting, waiters_of(waiting).ends.statuses
            await until(lambda: connections(cli) - before == 2, "the events have no connection")
            return left

    assert asyncio.run(program()) == ({}, {})
    assert connections(cli) == before


def test_a_call_that_is_cancelled_while_it_connects_closes_its_socket(url, monkeypatch):
    sockets = []

    async def never(connected, address):
        sockets.append(connected)
        await asyncio.Event().wait()

    async def program():
        monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", never)
        async with AsyncClient(url) as waiting:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(waiting.get_task("any"), 0.05)

    asyncio.run(program())
    assert [connected.fileno() for connected in sockets] == [-1]


def look(blocking, task_id, kept):
    """Keep the client, so that its connection is closed and not only forgotten."""
    kept.append(blocking)
    return blocking.get_task(task_id)


def next_wait(monkeypatch, name="add_reader"):
    """Return an event that is set when something waits for a socket, to read an answer from it."""
    loop, waits = asyncio.get_running_loop(), asyncio.Event()
    wait = getattr(loop, name)
    monkeypatch.setattr(loop, name, lambda *arguments: waits.set() or wait(*arguments))
    return waits


def test_a_client_closes_at_once_while_it_waits_for_an_answer(own_server, monkeypatch):
    kept = []

    async def program():
        async with AsyncClient(own_server.url, patience=30) as waiting:
            task_id = await waiting.get_queue("video").enqueue("in")
            wait, waiters = asyncio.ensure_future(waiting.wait(task_id)), waiters_of(waiting)
            await until(lambda: waiters.ends.has_looked, "it rests")
            with stopped(own_server):
                awaits = next_wait(monkeypatch)
                waiters.begin({"another": "pending"}, asyncio.Queue())  # so it looks again
                await awaits.wait()
                call = asyncio.ensure_future(waiting.call(look, task_id, kept))
                await until(lambda: kept, "it has begun")
                async with asyncio.timeout(AWAY):
                    await waiting.close()
                assert waiters.watching is None
            with pytest.raises(RedisAway, match="the client was closed"):
                await wait
            waiters.begin({task_id: "pending"}, told := asyncio.Queue())
            return await call, told.get_nowait()

    task, error = asyncio.run(program())
    assert task.status == "pending" and isinstance(error, RedisAway)
    with redis_py.Redis.from_url(own_server.url) as another:
        assert connections(another) == 0


def test_a_cancelled_call_takes_no_answer_of_the_next_one(own_server, monkeypatch):
    async def program():
        async with AsyncClient(own_server.url, connections=1) as waiting:
            queue = waiting.get_queue("video")
            first = await queue.enqueue("first")
            with stopped(own_server):
                awaits = next_wait(monkeypatch)
                asked = asyncio.ensure_future(waiting.get_task(first))
                await awaits.wait()  # it has been sent, and nothing answers
                asked.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asked
            second = await queue.enqueue("second")
            return (await waiting.get_task(second)).parameters

    assert asyncio.run(program()) == "second"


def test_the_event_loop_goes_on_while_redis_is_away(own_server):
    async def program():
        async with AsyncClient(own_server.url, patience=30) as waiting:
            queue = waiting.get_queue("video")
            ids = [await queue.enqueue(number) for number in range(50)]
            waits = [asyncio.ensure_future(waiting.wait(task_id)) for task_id in ids]
            await until(lambda: waiters_of(waiting).ends.has_looked, "they wait")
            async with watched_loop() as stalls:
                with stopped(own_server):
                    calls = [asyncio.ensure_future(queue.enqueue("late")) for _ in range(20)]
                    await asyncio.sleep(AWAY)
                    assert not any(call.done() for call in calls)
                made = await asyncio.gather(*calls)
                many = await queue.enqueue_many({"number": number} for number in range(2000))
            for wait in waits:
                wait.cancel()
            return made, many, stalls

    made, many, stalls = asyncio.run(program())
    assert len(set(made)) == 20 and many == 2000
    goes_on(stalls)


@pytest.mark.parametrize(
    "url",
    [  # it selects a database, shakes hands, or is asked for the primary
        "redis://127.0.0.1:{port}/1",
        "rediss://127.0.0.1:{port}",
        "redis+sentinel://127.0.0.1:{port}/service",
    ],
)
def test_the_event_loop_goes_on_while_a_server_accepts_and_is_silent(url):
    async def program(port):
        client = AsyncClient(url.format(port=port), patience=30)
        async with client as waiting, watched_loop() as stalls:
            calls = [asyncio.ensure_future(waiting.get_task("any")) for _ in range(5)]
            await asyncio.sleep(AWAY)
            assert await asyncio.to_thread(int) == 0  # the threads are those of the application
            for call in calls:
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await call
            others = asyncio.all_tasks() - {asyncio.current_task()}
            assert len(others) == 1  # that which watches the loop
        return stalls

    with socket.create_server(("127.0.0.1", 0)) as silent:
        goes_on(asyncio.run(program(silent.getsockname()[1])))


def goes_on(stalls):
    """See that nothing held up the loop: in few of its turns for as long as a garbage collection."""
    assert len(stalls) > 100
    assert sorted(stalls)[-1] < AWAY / 2
    assert sorted(stalls)[len(stalls) * 99 // 100] < STALL


def test_a_refused_try_pauses_without_holding_up_the_loop(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    monkeypatch.setattr("blueque.connection.redis.pause", lambda failures: AWAY)

    async def program():
        async with AsyncClient(f"redis://localhost:{port}", patience=30) as waiting:
            async with watched_loop() as stalls:
                call = asyncio.ensure_future(waiting.get_task("any"))
                await asyncio.sleep(AWAY)
                call.cancel()
            await asyncio.wait({call})
        async with AsyncClient(f"redis://localhost:{port}", patience=0.1) as impatient:
            with pytest.raises(RedisAway, match="no Redis at"):
                await impatient.get_queue("video").enqueue("in")
        return stalls

    goes_on(asyncio.run(program()))


def test_each_event_loop_has_connections_of_its_own(url, client, cli):
    waiting = AsyncClient(url, connections=1)
    before = connections(cli)

    async def program():
        queue = waiting.get_queue("video")
        task_id, *_ = await asyncio.gather(*(queue.enqueue(number) for number in range(5)))
        wait = asyncio.ensure_future(waiting.wait(task_id))
        await until(lambda: waiters_of(waiting).ends.has_looked, "it waits")
        looks, look = [], waiters_of(waiting).ends.look
        waiters_of(waiting).ends.look = lambda: looks.append(1) or look()
        await asyncio.sleep(0.1)
        end(cli, task_id)
        assert (await wait).status == "complete"
        assert len(looks) <= 3

    async def beside_another():
        await program()
        await asyncio.to_thread(asyncio.run, program())

    asyncio.run(program())
    asyncio.run(program())
    with asyncio.Runner() as runner:
        runner.run(beside_another())
        runner.run(waiting.close())
    assert connections(cli) == before


def test_what_waits_anew_while_the_client_closes_is_told(url, client, cli):
    task_id, kept = client.get_queue("video").enqueue("in"), []

    async def program():
        waiting = AsyncClient(url)
        first = asyncio.ensure_future(waiting.wait(task_id))
        await until(lambda: waiters_of(waiting).ends.has_looked, "it waits")
        call = asyncio.ensure_future(waiting.call(look, task_id, kept))
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(waiting.close())
        await asyncio.sleep(0)
        second = asyncio.ensure_future(waiting.wait(task_id))
        await closing
        with pytest.raises(RedisAway, match="the client was closed"):
            await first
        assert (await call).status == "pending"
        await until(lambda: waiters_of(waiting).ends.has_looked, "it waits")
        end(cli, task_id)
        ended = await second
        await waiting.call(look, task_id, kept)
        await waiting.close()
        return ended

    before = connections(cli)
    assert asyncio.run(program()).status == "complete"
    assert connections(cli) == before


def test_a_lost_connection_is_opened_again_and_waits_go_on(url, client, cli, proxy):
    task_id = client.get_queue("video").enqueue("in")

    async def program():
        async with AsyncClient(proxy.url) as waiting:
            wait = asyncio.ensure_future(waiting.wait(task_id))
            await until(lambda: waiters_of(waiting).ends.has_looked, "it waits")
            for each in cli.client_list():
                if each["id"] != str(cli.client_id()):
                    cli.client_kill_filter(each["id"])
            again = await waiting.get_queue("video").enqueue("again")
            end(cli, task_id)
            return again, await wait

    again, ended = asyncio.run(program())
    assert client.get_task(again).status == "pending"
    assert ended.status == "complete"


def test_the_trace_of_the_caller_goes_with_the_task(url, client, monkeypatch):
    from contextvars import ContextVar

    named: ContextVar[str] = ContextVar("named", default="nobody")
    monkeypatch.setattr(trace, "of_caller", lambda: {"traceparent": named.get()})

    async def program():
        named.set("00-" + "a" * 32 + "-" + "b" * 16 + "-01")
        async with AsyncClient(url) as waiting:
            return await waiting.get_queue("video").enqueue("in")

    context = client.get_task(asyncio.run(program())).context
    assert context["traceparent"].startswith("00-aaaa")


@pytest.fixture(scope="module")
def sentinels(tmp_path_factory):
    with watched(tmp_path_factory.mktemp("sentinels"), 1, 1) as service:
        yield service


def test_the_primary_is_found_behind_sentinel_and_again_after_a_failover(sentinels, monkeypatch):
    monkeypatch.setattr("blueque.connection.sentinel.ASK_EVERY", 0.0)

    async def program():
        async with AsyncClient(sentinels.url, patience=20) as waiting:
            queue = waiting.get_queue("video")
            await queue.enqueue("first")
            new = await asyncio.to_thread(sentinels.fail_over)
            return new, await queue.enqueue("second")

    new, second = asyncio.run(program())
    with redis_py.Redis(port=new.port) as primary:
        assert primary.exists(f"blueque_task_{second}")


def test_a_unix_socket_and_tls_are_waited_for_as_well(tmp_path: Path, monkeypatch):
    from authority import Authority

    authority = Authority(tmp_path)
    signed, key = authority.sign("server", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    path = tmp_path / "redis"
    options = ("--unixsocket", path, "--tls-port", port, "--tls-cert-file", signed)
    options += ("--tls-key-file", key, "--tls-ca-cert-file", authority.file)
    text = "y" * (2 << 20)

    async def program(server, url):
        async with AsyncClient(url, max_bytes=4 << 20) as waiting:
            queue, is_unix = waiting.get_queue("video"), url.startswith("unix")
            await queue.enqueue("first")  # draws the id of the next one, too
            with stopped(server):  # of this text, a unix socket takes a part at once
                full = next_wait(monkeypatch, "add_writer" if is_unix else "add_reader")
                call = asyncio.ensure_future(queue.enqueue(text))
                await asyncio.wait_for(full.wait(), 15)
            task_id = await call
            wait = asyncio.ensure_future(waiting.wait(task_id))
            await until(lambda: waiters_of(waiting).ends.has_looked, "it waits")
            await queue.cancel(task_id)
            return (await wait).parameters

    with running_server(*map(str, options), "--tls-auth-clients", "no") as server:
        tls = f"rediss://127.0.0.1:{port}?ssl_ca_certs={authority.file}"
        for url in (f"unix://{path}", tls):
            assert asyncio.run(program(server, url)) == text
