"""Compressed and encrypted payloads, from the producer to the handler and back."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from payload_keys import SECRET, client_with, name_of, write_keys
from running import outcome, until

from blueque import InvalidInput, Retry

WORK = f"""
    import blueque
    from blueque import New, Then

    SECRET = "{SECRET}"

    def work(task):
        assert task.parameters == {{"salary": SECRET}}, task.parameters
        assert task.context == {{"trace": SECRET}}, task.context
        print("printed", SECRET, flush=True)
        if task.attempt == 1:
            task.checkpoint({{"at": SECRET}})
            raise blueque.RetryLater(0)
        assert task.checkpointed == {{"at": SECRET}}, task.checkpointed
        task.spawn("later", {{"salary": SECRET}}, key="child", context={{"trace": SECRET}})
        new = New("later", {{"salary": SECRET}}, key="new", context={{"trace": SECRET}})
        return Then({{"paid": SECRET}}, [new])

    def collect(task):
        return [SECRET, *task.inputs.values()]
"""


@pytest.fixture
def environ_of_listeners(keys: Path) -> dict[str, str]:
    return {"BLUEQUE_PAYLOADS_KEYS": str(keys), "BLUEQUE_PAYLOADS_COMPRESS_FROM": "100"}


@pytest.mark.parametrize("options", [[], ["--reuse", "9"]])
def test_redis_has_no_piece_of_the_plain_text_in_the_whole_life_of_a_task(
    programs, sealed, redis, everything, tmp_path, environ_of_listeners, options
):
    queue = sealed.get_queue("work")
    parent = queue.enqueue({"salary": SECRET}, context={"trace": SECRET}, retry=3)
    joined = sealed.get_queue("collect").enqueue(SECRET, after=parent, results=True)
    assert SECRET not in str(everything())

    programs.listener("work:work", *options, environ=environ_of_listeners)
    programs.listener("work:collect", queue="collect", environ=environ_of_listeners)
    done, collected = outcome(sealed, parent), outcome(sealed, joined)

    assert (done.status, done.result) == ("complete", {"paid": SECRET}), done.error
    assert collected.result == [SECRET, {"paid": SECRET}], collected.error
    later = redis.read(("ZCARD", "blueque_tasks_later"))
    assert later == [2]
    lines = until(lambda: sealed.get_log(parent)[0], what="its log")
    assert f"printed {SECRET}" in [line.text for line in lines]
    assert [name for name, value in everything().items() if SECRET in str(value)] == []
    spooled = [(tmp_path / "spool" / f"{joined}@1" / name).read_text() for name in ("exit", "task")]
    assert all("aes:" in text and SECRET not in text for text in spooled), spooled


def test_a_program_reads_plain_parameters_and_what_it_leaves_is_encrypted(
    programs, sealed, client, everything, environ_of_listeners
):
    script = 'printf %s "$BLUEQUE_CONTEXT" >&2; cat; test "$BLUEQUE_ATTEMPT" = 2'
    programs.listener("--exec", "sh", "-c", script, environ=environ_of_listeners)
    queue = sealed.get_queue("work")
    task = queue.enqueue("x" + SECRET, context={"trace": SECRET}, retry=Retry(max=1, backoff=0))
    assert outcome(sealed, task).result == "x" + SECRET
    lines = until(lambda: sealed.get_log(task)[0], what="its log")
    assert {line.text for line in lines} > {f'{{"trace":"{SECRET}"}}', "x" + SECRET}
    ended = client.get_task(task)
    assert ended.fields["result_encoding"] == f"aes:{name_of('k1')}"
    assert (ended.attempt, ended.last_error) == (2, "exit code 1")
    assert SECRET not in str(everything())


def test_a_damaged_task_fails_before_its_handler_runs_and_the_listener_goes_on(
    programs, sealed, redis, environ_of_listeners
):
    queue = sealed.get_queue("work")
    first, second = (
        queue.enqueue({"salary": SECRET}, context={"trace": SECRET}, retry=3) for _ in "ab"
    )
    texts = [sealed.get_task(task).fields["parameters"] for task in (first, second)]
    redis.read(("HSET", f"blueque_task_{first}", "parameters", texts[1]))
    programs.listener("work:work", environ=environ_of_listeners)
    assert outcome(sealed, second).status == "complete"
    failed = outcome(sealed, first)
    assert (failed.error_type, failed.failures, failed.traceback) == ("PayloadRefused", None, None)
    assert "does not fit payload key" in failed.error and texts[1] not in failed.error
    assert not sealed.get_log(first)[0]


def test_a_key_that_is_replaced_while_a_listener_runs(
    programs, sealed, keys, run, environ_of_listeners
):
    listener = programs.listener("work:collect", "--beat", "1s", environ=environ_of_listeners)
    write_keys(keys, "k2", "k1")
    queue = sealed.get_queue("work")
    new = queue.enqueue("b")
    assert sealed.get_task(new).fields["parameters_encoding"] == f"aes:{name_of('k2')}"
    assert outcome(sealed, new).result == [SECRET]

    queue.pause()
    write_keys(keys, "k1")
    old = queue.enqueue("a")
    write_keys(keys, "k2")
    queue.resume()
    offered = f"key.{name_of('k2')}=1000000"
    (node,) = sealed.get_inspector().listeners("work")
    registration = sealed.get_inspector().registration
    until(lambda: registration("work", node)["resources"] == offered, what="its next beat")
    assert sealed.get_task(old).status == "pending"
    said = " ".join(run("why", old).stdout.split())
    assert f"It needs payload key {name_of('k1')}, which no listener of work has." in said

    keys.write_text("k1 nonsense")
    until(lambda: not registration("work", node)["resources"], what="its next beat")
    assert listener.is_running
    write_keys(keys, "k2", "k1")
    assert outcome(sealed, old).result == [SECRET]


def test_a_process_that_cannot_read_the_keys_runs_plain_tasks_and_others_come_again_later(
    programs, sealed, client, tmp_path, environ_of_listeners
):
    hidden = tmp_path / "hidden.keys"
    # Its process finds another file than the listener.
    work = f'import os\nos.environ["BLUEQUE_PAYLOADS_KEYS"] = {str(hidden)!r}\n'
    programs.write(work + f"def work(task):\n    return {SECRET!r}\n", "moved.py")
    task = sealed.get_queue("work").enqueue("a")
    listener = programs.listener(
        "moved:work", "--preload", "moved", "--slots", "1", environ=environ_of_listeners
    )
    listener.says(f"retry task={task}")
    assert "status=scheduled in=" in listener.lines(f"retry task={task}")[0]
    assert sealed.get_task(task).failures is None
    plain = outcome(client, client.get_queue("work").enqueue("in plain text"))
    assert plain.fields["result_encoding"] == f"aes:{name_of('k1')}"  # its listener has the key
    assert sealed.get_task(plain.id).result == SECRET
    write_keys(hidden, "k1")
    assert outcome(sealed, task).result == SECRET


GOES_ON = f"""
    import time
    from blueque import HandBack

    def work(task):
        if task.parameters == "plain":
            return "of this listener"
        if task.parameters == "joins":
            return [*task.inputs.values()]
        if task.attempt == 1:
            task.checkpoint({{"at": "{SECRET}"}})
            print("has a checkpoint", flush=True)
            while not task.should_stop:
                time.sleep(0.01)
            raise HandBack
        return task.checkpointed
"""


def test_a_listener_without_the_key_of_a_checkpoint_or_of_inputs_leaves_the_task_to_others(
    programs, sealed, redis, tmp_path, run
):
    programs.write(GOES_ON)
    newer, older = (tmp_path / name for name in ("newer.keys", "older.keys"))
    write_keys(newer, "k2", "k1")
    write_keys(older, "k1")
    queue = sealed.get_queue("work")
    first = programs.listener("work:work", environ={"BLUEQUE_PAYLOADS_KEYS": str(newer)})
    parent = queue.enqueue("plain")
    assert outcome(sealed, parent).fields["result_encoding"].startswith(f"aes:{name_of('k2')}")
    long = queue.enqueue("long")
    until(lambda: sealed.get_log(long)[0], what="its checkpoint")
    assert first.stop() == 0
    assert sealed.get_task(long).status == "pending"
    joining = queue.enqueue("joins", after=parent, results=True)
    assert (
        f"2 unfinished tasks and schedules need payload key {name_of('k2')}" in run("doctor").stdout
    )

    environ = {"BLUEQUE_PAYLOADS_KEYS": str(older)}
    second = programs.listener("work:work", "--beat", "1s", spool="other", environ=environ)
    plain = outcome(sealed, queue.enqueue("plain"))
    # A program that does not know this adds what the task cannot read: it is handed back once.
    other = queue.schedule("joins", 4e9, after=plain.id, results=True)
    until(lambda: sealed.get_task(other).status == "scheduled", what="its inputs")
    (theirs,) = redis.read(("HGET", f"blueque_inputs_{joining}", parent))
    redis.read(("HSET", f"blueque_inputs_{other}", plain.id, theirs))
    assert run("move", other, "--now").returncode == 0
    second.says(f"release task={other}")
    assert outcome(sealed, queue.enqueue("plain")).status == "complete"
    assert len(second.lines(f" reserve task={other}")) == 1, second.log
    assert "its listener lacks a payload key" in run("history", other).stdout
    for task in (long, joining, other):
        assert task == other or not second.lines(f" reserve task={task}")
        found = sealed.get_task(task)
        assert (found.status, found.failures, found.interruptions) == ("pending", None, None)
        said = " ".join(run("why", task).stdout.split())
        assert f"It needs payload key {name_of('k2')}" in said, said

    write_keys(older, "k1", "k2")
    write_keys(tmp_path / "payload.keys", "k1", "k2")
    assert outcome(sealed, long).result == {"at": SECRET}
    assert outcome(sealed, joining).result == ["of this listener"]


def test_a_listener_without_keys_that_adopts_an_encrypted_task_records_its_end(
    programs, sealed, client, everything, tmp_path, environ_of_listeners
):
    programs.write(f"""
        import time
        from pathlib import Path

        def work(task):
            Path("begun").touch()
            while not Path("go").exists():
                time.sleep(0.01)
            print("printed {SECRET}", flush=True)
            task.checkpoint("{SECRET}")
            return "{SECRET}"
    """)
    first = programs.listener("work:work", environ=environ_of_listeners)
    task = sealed.get_queue("work").enqueue("a")
    until((tmp_path / "begun").exists, what="its first line")
    slots = first.slots()
    for pid in (first.pid, *slots):
        os.kill(pid, signal.SIGKILL)
    second = programs.listener("work:work")
    second.says(f"adopt task={task}")
    waiting = sealed.get_queue("work").enqueue("c")
    (tmp_path / "go").touch()
    assert outcome(sealed, task).result == SECRET
    assert "Traceback" not in second.log
    assert SECRET not in str(everything())
    assert outcome(client, client.get_queue("work").enqueue("b")).status == "complete"
    assert sealed.get_task(waiting).status == "pending"


def test_a_listener_does_not_start_with_a_file_of_keys_that_others_can_read(programs, keys):
    keys.chmod(0o644)
    environ = {"BLUEQUE_PAYLOADS_KEYS": str(keys)}
    code, said = programs.run_to_end("work", "--handler", "work:work", environ=environ)
    assert code == 78
    assert f"{keys}: others can read it (mode 0644): chmod 600 {keys}" in said


def test_a_listener_of_1_0_0_has_encrypted_and_compressed_tasks_refused(
    legacy, programs, sealed, url, redis, queue
):
    programs.write("def work(task):\n    return None\n")
    runs = "ForkingRunner(client, argv[0], getattr(work, argv[1])).run()"
    legacy.start(runs, queue.name, "work")
    until(lambda: redis.read(("SCARD", f"blueque_listeners_{queue.name}")) == [1], what="1.0.0")
    with client_with(url, compress_from=100) as packing:
        calls = [
            lambda: sealed.get_queue(queue.name).enqueue("a"),
            lambda: sealed.get_queue(queue.name).enqueue_many("ab" for _ in range(3)),
            lambda: packing.get_queue(queue.name).enqueue("a" * 1000),
        ]
        for call in calls:
            with pytest.raises(InvalidInput, match=r"has a listener of 1\.0\.0, .*_\d+, which"):
                call()
        assert redis.read(("EXISTS", f"blueque_tasks_{queue.name}")) == [0]
        assert outcome(packing, packing.get_queue(queue.name).enqueue("short"))
