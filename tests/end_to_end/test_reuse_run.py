"""Task processes that take one task after the other: `--reuse` and `--reuse-for`.

Whatever a task leaves, the next one finds the process as its first task did; and nothing that was
meant for a task touches the next one, although it has the same pid.
"""

from __future__ import annotations

import json
import os
import signal

import pytest
from handlers import WORK, begin, ended, files, has_moved, is_sound, ledger, let_go, pid_of, running
from running import Programs, is_there, patched, state_of, task_processes_of, until

from blueque import Retry
from blueque.errors import WrongState
from blueque.model import keys
from blueque.spool import checkpoint
from blueque.system.embedded_redis import running_server

OWN = (
    WORK
    + """
    import ctypes, faulthandler, multiprocessing, re, resource, threading

    count = 0
    kept = []

    def remember(task):
        global count
        count += 1
        return [os.getpid(), count]

    def fail_and_remember(task):
        global count
        count += 1
        raise ValueError(str(count))

    def get_caught():
        status = Path("/proc/self/status").read_text()
        # not those that the C library uses for threads
        return int(re.search(r"SigCgt:\\s*(\\w+)", status)[1], 16) & ~(0b11 << 31)

    def get_signal_of_parent():
        number = ctypes.c_int()
        ctypes.CDLL(None).prctl(2, ctypes.byref(number), 0, 0, 0)
        return number.value

    LOOKS = {
        "environ": lambda: {k: v for k, v in os.environ.items() if "BLUEQUE" not in k},
        "cwd": os.getcwd,
        "umask": lambda: [os.umask(0o22), os.umask(0o22)][0],
        "signals": lambda: [str(signal.getsignal(n)) for n in (1, 2, 3, 10, 12, 15, 17, 34)],
        "mask": lambda: sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "pending": lambda: sorted(signal.sigpending()),
        "timer": lambda: signal.getitimer(signal.ITIMER_REAL),
        "limits": lambda: [resource.getrlimit(n) for n in range(16)],
        "priority": lambda: os.getpriority(os.PRIO_PROCESS, 0),
        "processors": lambda: sorted(os.sched_getaffinity(0)),
        "streams": lambda: [s.fileno() for s in (sys.stdin, sys.stdout, sys.stderr)],
        "input": lambda: os.readlink("/proc/self/fd/0"),
        "deadline": lambda: os.environ.get("BLUEQUE_DEADLINE"),
        "threads": lambda: len(os.listdir("/proc/self/task")),
        "caught": get_caught,
        "end with parent": get_signal_of_parent,
    }

    def look(task):
        return {name: see() for name, see in LOOKS.items()} | {"pid": os.getpid()}

    def change(task):
        os.environ["OWN"] = "1"
        del os.environ["PATH"]
        os.chdir("/")
        os.umask(0)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
        signal.signal(signal.SIGRTMIN, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP, signal.SIGTERM})
        os.kill(os.getpid(), signal.SIGHUP)
        signal.setitimer(signal.ITIMER_REAL, 1000)
        faulthandler.register(signal.SIGQUIT)
        faulthandler.dump_traceback_later(1000)
        ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        sys.stdout = open("/dev/null", "w")
        sys.stdin.close()
        os.dup2(1, 0)
        os.dup2(2, 1)
        return os.getpid()

    def replace_environ(task):
        os.environ = {"ONLY": "1"}
        return os.getpid()

    def lower_for_ever(task):
        os.nice(5) if os.geteuid() else os.setgroups([65534])
        return os.getpid()

    def close_all(task):
        os.closerange(3, 500)
        return os.getpid()

    def leave_a_thread(task):
        threading.Thread(target=time.sleep, args=(0.1,)).start()
        return os.getpid()

    def leave_a_daemon_thread(task):
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
        return os.getpid()

    def keep_memory(task, mebibytes):
        kept.append(b"x" * (int(mebibytes) << 20))
        return os.getpid()

    def keep_files(task, number):
        kept.extend(open("/dev/null") for _ in range(int(number)))
        return os.getpid()

    def use_shared_memory(task):
        from multiprocessing import shared_memory
        shared = shared_memory.SharedMemory(create=True, size=10)
        shared.close()
        shared.unlink()
        return os.getpid()

    def use_fork_server(task):
        child = multiprocessing.get_context("forkserver").Process(target=os.getpid)
        child.start()
        child.join()
        return [os.getpid(), child.exitcode]

    runner = None

    def use_loop(task):
        global runner
        import asyncio
        runner = runner or asyncio.Runner()
        return runner.run(fetch(asyncio))

    async def fetch(asyncio):
        lock = kept[0] if kept else kept.append(asyncio.Lock()) or kept[0]
        async with lock:
            waiting = asyncio.create_task(lock.acquire())
            await asyncio.sleep(0)
        await waiting
        lock.release()
        return [os.getpid(), kept.index(lock)]

    def tell_devices(task):
        return [os.getpid(), task.resources, os.environ.get("CUDA_VISIBLE_DEVICES")]

    def end_helper_of_shared_memory(task):
        use_shared_memory(task)
        from multiprocessing import resource_tracker
        os.kill(resource_tracker._resource_tracker._pid, signal.SIGKILL)
        os.waitpid(-1, 0)
        return os.getpid()

    def spoil_stacks(task):
        from blueque.task_process import stack_dump
        os.close(stack_dump.DESCRIPTOR)
        signal.signal(stack_dump.NUMBER, signal.SIG_IGN)

    def raise_it(task, name):
        raise {"MemoryError": MemoryError, "SystemExit": SystemExit}[name](3)

    def say(task, *words):
        print(*words)
        print(*words, file=sys.stderr)
        os.system("echo " + " ".join(words))
        return os.getpid()

    def compute(task, seconds, mebibytes):
        eaten = b"x" * (int(mebibytes) << 20)
        end = time.process_time() + float(seconds)
        while time.process_time() < end:
            pass
        return os.getpid()

    pool = None

    def use_pool(task):
        global pool
        pool = pool or multiprocessing.get_context("fork").Pool(2)
        pool.map(abs, range(10))
        return os.getpid()

    BURN = "import time\\nwhile time.process_time() < 0.4: pass"

    def leave_a_zombie(task):
        child = subprocess.Popen([sys.executable, "-c", BURN])
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        kept.append(child)
        return os.getpid()

    def leave_a_busy_child(task):
        child = subprocess.Popen([sys.executable, "-c", BURN + "\\nwhile True: pass"])
        stat = Path(f"/proc/{child.pid}/stat")
        while sum(map(int, stat.read_text().rpartition(")")[2].split()[11:13])) < 40:
            time.sleep(0.01)
        return os.getpid()

    def reap_all(task):
        try:
            while os.waitpid(-1, 0):
                pass
        except ChildProcessError:
            return os.getpid()

    def heed(task):
        task.should_stop
        return [os.getpid(), str(signal.getsignal(signal.SIGTERM))]

    def report(task):
        from blueque import current_task
        with task.stage("a stage", 1, of=2):
            current_task().progress(0.5, "half")
        task.checkpoint(task.parameters)
        return [current_task().id, os.environ["BLUEQUE_TASK_ID"], os.getpid()]

    def remove_own_record(task):
        note(task)
        await_word(task)
        subprocess.Popen(
            ["sh", "-c", "while ! rm exit 2> /dev/null; do :; done"],
            cwd=os.environ["BLUEQUE_TASK_DIR"],
        )
        return "done"
"""
)
WORK = OWN
QUICK = ("--beat", "0.2s", "--lease", "0.6s", "--lost-after", "30s")
ENVIRON = patched({"node.slots._YOUNG": 0.1})


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """What tests share that do no lasting harm: a server, a directory, and one listener."""
    with (
        running_server() as server,
        Programs(server.url, tmp_path_factory.mktemp("reuse"), ENVIRON) as programs,
    ):
        programs.write(WORK)
        yield programs, programs.listener("work:run", "--reuse", "100", *QUICK, grace="0.5s")


@pytest.fixture
def shared(started):
    """These programs; the next task is the first of its process."""
    programs, _ = started
    run(programs, "raise_it MemoryError")
    return programs


def run(programs: Programs, *each: str, **options):
    """Run tasks one after the other, and return them as they have ended."""
    queue = programs.client.get_queue("work")
    return [ended(programs.client, queue.enqueue(how, **options)) for how in each]


def results(programs: Programs, *each: str, **options):
    done = run(programs, *each, **options)
    assert {task.status for task in done} == {"complete"}, [task.error for task in done]
    return [task.result for task in done]


def test_so_many_tasks_share_a_process_and_its_memory_and_no_more(programs):
    programs.listener("work:run", "--reuse", "3")

    found = results(programs, *["remember"] * 7)

    first, second, third = found[0][0], found[3][0], found[6][0]
    assert found == [
        *[[first, number] for number in (1, 2, 3)],
        *[[second, number] for number in (1, 2, 3)],
        [third, 1],
    ]
    assert len({first, second, third}) == 3
    until(lambda: not is_there(second), what="the end of the process")
    assert is_sound(programs.client)


def test_with_a_time_alone_tasks_share_a_process_too(programs):
    programs.listener("work:run", "--reuse-for", "1h")
    first, second = results(programs, "remember", "remember")
    assert second == [first[0], 2]


def test_a_process_ends_when_its_time_is_over(programs):
    (slot,) = programs.listener("work:run", "--reuse-for", "0.2s", "--beat", "0.1s").slots()

    (task,) = run(programs, "quick")

    until(lambda: not is_there(task.pid), what="its end while no task comes")
    assert run(programs, "quick")[0].pid != task.pid
    assert is_there(slot)


def test_a_task_that_fails_may_be_followed_by_another_in_its_process(shared):
    failed, then = run(shared, "fail_and_remember", "remember")

    assert (failed.status, failed.error) == ("failed", "ValueError: 1")
    assert then.result == [failed.pid, 2]


def test_the_next_attempt_of_a_task_may_run_in_the_same_process(shared):
    (done,) = run(shared, "fail_at_first", retry=Retry(1, backoff=0))

    assert (done.status, done.attempt, done.result) == ("complete", 2, [2, "2"])
    assert {run.pid for run in ledger(shared, done.id)} == {done.pid}


def test_a_task_finds_the_process_as_its_first_task_did(shared):
    before, pid, after = results(shared, "look", "change", "look", time_limit="1h")

    assert pid == before["pid"]
    deadlines = float(before.pop("deadline")), float(after.pop("deadline"))
    assert deadlines[0] < deadlines[1]
    assert after == before
    assert before["input"] == "/dev/null" and before["streams"] == [0, 1, 2]


def test_an_environment_that_is_replaced_is_that_of_the_task_only(shared):
    before, pid, after = results(shared, "look", "replace_environ", "look")

    assert (after["pid"], after["environ"]) == (pid, before["environ"])


@pytest.mark.parametrize("options", [(), ("--no-warm",)], ids=repr)
def test_what_the_import_sets_holds_for_all_tasks(programs, options):
    programs.write(
        "import os\nos.environ['SET'] = 'by the import'\nos.umask(0o27)\n"
        + (programs.directory / "work.py").read_text()
    )
    programs.listener("work:run", "--reuse", "100", *options)

    first, _, after = results(programs, "look", "change", "look")

    assert first["environ"]["SET"] == after["environ"]["SET"] == "by the import"
    assert first["umask"] == 0o27 and after["pid"] == first["pid"]


def test_tasks_run_in_a_directory_that_was_removed_each_in_its_own_process(programs):
    path = programs.directory / "work.py"
    leave = (
        "import os\nos.mkdir(str(os.getpid()))\nos.chdir(str(os.getpid()))\nos.rmdir(os.getcwd())\n"
    )
    path.write_text(leave + path.read_text())
    programs.listener("work:run", "--reuse", "100")

    pids = [pid for pid, _ in results(programs, "remember", "remember")]

    assert len({*pids}) == 2


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("lower_for_ever", ""),
        ("close_all", ""),
        ("leave_a_thread", "its task has left 1 thread"),
        ("keep_files 150", ""),
    ],
)
def test_a_process_that_cannot_be_as_before_takes_no_other_task(started, shared, how, why):
    run(shared, "quick")

    spoiled, then = run(shared, how, "remember")

    assert then.result[0] != spoiled.pid and spoiled.status == "complete"
    refused = f"pid={spoiled.pid} takes no other task after task={spoiled.id}: {why}"
    assert not why or started[1].lines(refused)
    until(lambda: not is_there(spoiled.pid), what="the end of the process")


def test_a_thread_that_is_a_daemon_may_stay(shared):
    first, second = results(shared, "leave_a_daemon_thread", "remember")

    assert second == [first, 1]


@pytest.mark.parametrize(("name", "is_same"), [("MemoryError", False), ("SystemExit", True)])
def test_after_a_want_of_memory_a_process_takes_no_other_task(shared, name, is_same):
    failed, then = run(shared, f"raise_it {name}", "quick")

    assert failed.status == "failed"
    assert (failed.pid == then.pid) is is_same


def test_memory_that_a_first_task_keeps_is_a_model_and_what_others_keep_is_a_leak(shared):
    *pids, then = run(shared, "keep_memory 200", "keep_memory 20", "keep_memory 300", "quick")

    assert len({task.pid for task in pids}) == 1
    assert then.pid != pids[0].pid


def test_memory_that_earlier_tasks_keep_leaves_the_next_one_its_limit(shared):
    first, small = run(shared, "keep_memory 300", "quick")
    (limited,) = run(shared, "keep_memory 300", memory_limit="500MiB")
    (then,) = run(shared, "quick")

    assert small.pid == first.pid
    assert limited.pid != first.pid and limited.status == "complete"
    assert then.pid != limited.pid, "it was near its own limit"


def test_what_a_task_has_left_running_has_ended_before_the_next_begins(shared):
    left = begin(shared, "leave_children plain session twice deaf")
    let_go(shared, left.id)
    first, second = ended(shared.client, left.id), run(shared, "remember")[0]

    assert (first.status, first.leaked, second.pid) == ("complete", 4, first.pid)
    assert second.leaked is None
    assert not [pid for pid in shared.left() if b"sleep" in _command(pid)]


def _command(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read()
    except OSError:
        return b""


def test_a_pool_of_processes_that_is_left_open_is_the_end_of_its_process(started, shared):
    """It would replace each of its processes that is ended."""
    first, second = run(shared, "use_pool", "use_pool")

    assert (first.status, second.status) == ("complete", "complete")
    assert first.pid != second.pid
    assert started[1].is_running


def test_one_process_is_ready_to_follow_the_one_that_is_reused(programs):
    (slot,) = programs.listener("work:run", "--reuse", "5").slots()

    results(programs, *["remember"] * 12)

    def are_two() -> bool:
        if len(task_processes_of(slot)) == 2:
            return True
        results(programs, "remember")  # the one before was the last of its process
        return False

    until(are_two, what="one that is reused, and one more")


def test_each_task_has_its_own_output_progress_and_checkpoint(shared):

    said = run(shared, "say the first", "say the second", "report", "report")

    assert len({task.pid for task in said}) == 1
    for task, words in zip(said, ("the first", "the second"), strict=False):
        assert (files(shared, task) / "stdout").read_text() == f"{words}\n{words}\n"
        assert (files(shared, task) / "stderr").read_text() == f"{words}\n"
    for task in said[2:]:
        assert task.result == [task.id, task.id, said[0].pid]
        assert "a stage" in task.progress
        assert json.loads((files(shared, task) / checkpoint.VALUE).read_text()) == "report"
    assert not (files(shared, said[1]) / checkpoint.VALUE).exists()


def test_each_task_tells_what_it_has_used_itself(shared):
    large, small, killed = run(shared, "compute 0.4 200", "compute 0 1", "kill_itself")

    assert large.pid == small.pid == killed.pid
    assert large.cpu_seconds >= 0.4 and large.memory_peak > 200 << 20
    assert small.cpu_seconds < 0.3 and small.memory_peak < 200 << 20
    assert (killed.status, killed.signal) == ("failed", "SIGKILL") and killed.cpu_seconds < 0.3


@pytest.mark.parametrize("before", ["leave_a_zombie", "leave_a_busy_child"])
def test_what_the_children_of_earlier_tasks_have_used_is_not_of_the_next(shared, before):

    first, *others = run(shared, before, "reap_all", "quick", "kill_itself")

    assert {task.pid for task in others} == {first.pid}
    assert max(task.cpu_seconds for task in others) < 0.3


def test_a_task_that_is_killed_after_its_adoption_tells_what_it_has_used_itself(shared):
    first = run(shared, "compute 0.6 1")[0]
    second = begin(shared, "wait")
    assert second.pid == first.pid
    os.kill(pid_of(second.node), signal.SIGKILL)
    has_moved(shared.client, second)

    os.kill(second.pid, signal.SIGKILL)

    killed = ended(shared.client, second.id)
    assert killed.status == "failed" and killed.cpu_seconds < 0.4


def test_a_task_that_reads_should_stop_leaves_no_handler_to_the_next(shared):

    first, second, third = results(shared, "heed", "look", "heed")

    assert first[0] == second["pid"] == third[0]
    assert "Heeding" in first[1] and "Heeding" in third[1]
    assert "Heeding" not in str(second["signals"])


def test_tasks_may_each_use_and_end_the_helper_processes_of_multiprocessing(shared):
    uses = ("use_shared_memory", "use_shared_memory", "end_helper_of_shared_memory")

    tasks = run(shared, *uses, "use_shared_memory", "use_fork_server", "use_fork_server")

    pid = tasks[0].pid
    assert [task.result for task in tasks] == [pid] * 4 + [[pid, 0]] * 2, tasks[-1].error
    assert {task.leaked for task in tasks} == {None}


def test_a_plain_handler_may_run_all_tasks_of_its_process_on_one_loop_of_asyncio(shared):
    first, second = run(shared, "use_loop", "use_loop")

    assert first.result == second.result == [first.pid, 0], second.error


def test_a_task_with_other_devices_has_another_process(programs):
    """A library that is loaded keeps to the devices that it has found."""
    programs.listener("work:run", "--reuse", "100", "--resource", "gpu=2")
    queue = programs.client.get_queue("work")

    tasks = [queue.enqueue("tell_devices", resources={"gpu": count}) for count in (1, 1, 2, 1)]

    one, same, both, again = [ended(programs.client, task).result for task in tasks]
    assert [one[1:], both[1:]] == [[{"gpu": [0]}, "0"], [{"gpu": [0, 1]}, "0,1"]]
    assert one == same and len({one[0], both[0], again[0]}) == 3


def test_queues_with_one_handler_share_a_process_and_each_has_its_own_number(programs):
    programs.write("from work import run\n", "other.py")
    programs.write(
        """
        [listener]
        handler = "work:run"
        reuse = 100
        [queues.once]
        reuse = 1
        [queues.other]
        handler = "other:run"
        """,
        "blueque.toml",
    )
    names = ("work", "same", "once", "other")
    program = programs.listen(*names)

    def run_in(name: str) -> int:
        queue = programs.client.get_queue(name)
        return ended(programs.client, queue.enqueue("remember")).result[0]

    shared = [run_in(name) for name in ("work", "same", "work")]
    assert len({*shared}) == 1
    assert run_in("once") != shared[0], "it may have no task before it, either"
    other = [run_in("other"), run_in("other")]
    assert other[0] == other[1] != run_in("work")
    assert program.is_running, program.log


# What was meant for a task does not touch the next one


def test_an_order_for_a_task_that_has_ended_does_not_touch_the_next_one(started, shared):
    first = run(shared, "quick")[0]
    second = begin(shared, "wait")
    assert second.pid == first.pid

    redis = shared.client.connections
    with pytest.raises(WrongState):
        shared.client.get_queue("work").cancel(first.id)
    # As a program may write it that has seen the task a moment before.
    redis.read(("HSET", keys.task(first.id), "cancel", "1", "stack", "mark"))
    beat = _beat(shared, second.node)
    until(lambda: _beat(shared, second.node) > beat + 2, what="three beats")

    assert is_there(second.pid)
    let_go(shared, second.id)
    done = ended(shared.client, second.id)
    assert (done.status, done.pid, done.error) == ("complete", first.pid, None)
    assert started[1].lines(f"stopping task={second.id}") == []


def _beat(programs: Programs, node: str) -> int:
    return int(programs.client.get_inspector().registration("work", node).get("beat", -1))


def test_a_limit_holds_for_each_task_and_ends_the_process_of_one_alone(shared):

    naps = run(shared, "nap 0.3", "nap 0.3", "wait", "quick", time_limit=0.5)

    assert [task.status for task in naps] == ["complete", "complete", "failed", "complete"]
    assert naps[2].error_type == "time_limit"
    assert naps[0].pid == naps[1].pid == naps[2].pid != naps[3].pid


def test_a_task_that_is_cancelled_ends_its_process(shared):
    first = run(shared, "quick")[0]
    second = begin(shared, "wait")

    shared.client.get_queue("work").cancel(second.id)

    assert ended(shared.client, second.id).status == "cancelled"
    third = run(shared, "quick")[0]
    assert (second.pid, third.status) == (first.pid, "complete") and third.pid != first.pid


@pytest.mark.parametrize("before", ["quick", "spoil_stacks"])
def test_the_stack_of_each_task_is_its_own(shared, before):
    run(shared, before)
    first = begin(shared, "wait")
    _show_stack(shared, first)
    let_go(shared, first.id)
    assert ended(shared.client, first.id).status == "complete"
    second = begin(shared, "wait")
    assert second.pid == first.pid
    assert not (files(shared, second) / "stack").exists()

    _show_stack(shared, second)

    let_go(shared, second.id)
    assert ended(shared.client, second.id).status == "complete"


def _show_stack(programs: Programs, task) -> None:
    programs.client.connections.read(("HSET", keys.task(task.id), "stack", "mark"))
    path = files(programs, task) / "stack"
    until(lambda: path.exists() and "in await_word" in path.read_text(), what="its stack")


# Whatever dies


def test_a_task_whose_listener_is_killed_is_adopted_and_runs_once(shared):
    first = run(shared, "quick")[0]
    second = begin(shared, "wait")
    assert second.pid == first.pid

    os.kill(pid_of(second.node), signal.SIGKILL)
    has_moved(shared.client, second)
    let_go(shared, second.id)

    done = ended(shared.client, second.id)
    assert (done.status, done.result, done.attempt) == ("complete", "done", 1)
    assert len(ledger(shared, second.id)) == 1
    until(lambda: not is_there(second.pid), what="the end of a process without a listener")
    assert shared.client.get_task(first.id).status == "complete"
    third = run(shared, "quick")[0]
    assert third.pid != second.pid and is_sound(shared.client)


def test_an_end_that_a_killed_listener_has_not_reported_is_reported_once_and_its_process_ends(
    shared,
):
    first = run(shared, "quick")[0]
    second = begin(shared, "wait")
    assert second.pid == first.pid
    shared.client.connections.read(("CLIENT", "PAUSE", 60_000, "WRITE"))
    try:
        let_go(shared, second.id)
        until((files(shared, second) / "exit").exists, what="its exit record")
        until(lambda: state_of(second.pid) == "S", what="its rest")

        os.kill(pid_of(second.node), signal.SIGKILL)

        until(lambda: not is_there(second.pid), what="the end of a process without a listener")
    finally:
        shared.client.connections.read(("CLIENT", "UNPAUSE"))
    done = ended(shared.client, second.id)
    assert (done.status, done.result, done.attempt) == ("complete", "done", 1)
    assert len(ledger(shared, second.id)) == 1 and is_sound(shared.client)


@pytest.fixture
def cut_off(programs, proxy, cli):
    """A task whose listener is cut off from Redis, and that another listener has adopted; the two
    listeners.
    """
    direct, programs.url = programs.url, proxy.url
    first = programs.listener("work:run", "--reuse", "100", *QUICK)
    task = begin(programs)
    proxy.stop_listening()
    cli.client_kill_filter(_type="normal", skipme=True)
    programs.url = direct
    options = ("--beat", "0.2s", "--lease", "60s", "--lost-after", "90s")
    second = programs.listener("work:run", "--reuse", "100", *options)
    has_moved(programs.client, task)
    return task, first, second


def test_an_adopted_task_ends_although_its_process_waits_for_another(programs, cut_off):
    task, _, _ = cut_off

    let_go(programs, task.id)

    done = ended(programs.client, task.id)
    assert (done.status, done.attempt, done.leaked) == ("complete", 1, None)
    assert is_there(task.pid), "it is of the listener that is cut off"


def test_a_process_whose_task_has_been_adopted_takes_no_other(programs, proxy, cut_off):
    """Who has adopted it would take the next task for it."""
    task, _, _ = cut_off
    adopter = pid_of(programs.client.get_task(task.id).node)
    os.kill(adopter, signal.SIGSTOP)
    try:
        let_go(programs, task.id)
        until((files(programs, task) / "exit").exists, what="its exit record")

        proxy.listen_again()

        until(lambda: not is_there(task.pid), what="the end of its process")
    finally:
        os.kill(adopter, signal.SIGCONT)
    done = ended(programs.client, task.id)
    assert (done.status, done.attempt, len(ledger(programs, task.id))) == ("complete", 1, 1)
    assert is_sound(programs.client)


def test_a_task_whose_process_is_killed_fails_and_those_before_it_stay_complete(shared):
    first = run(shared, "quick")[0]
    queue = shared.client.get_queue("work")
    second = running(shared, queue.enqueue("first_nap 1000", retry=Retry(1, backoff=0)))
    assert second.pid == first.pid

    os.kill(second.pid, signal.SIGKILL)

    done = ended(shared.client, second.id)
    assert (done.status, done.attempt) == ("complete", 2) and done.pid != first.pid
    assert shared.client.get_task(first.id).status == "complete"
    assert len(ledger(shared, first.id)) == 1 and is_sound(shared.client)


def test_a_process_that_is_killed_while_it_waits_is_replaced(started, shared):
    first = run(shared, "quick")[0]

    os.kill(first.pid, signal.SIGKILL)
    until(lambda: not is_there(first.pid), what="its end")

    second = run(shared, "quick")[0]
    assert (second.status, second.attempt) == ("complete", 1) and second.pid != first.pid
    assert started[1].lines("ended before it had begun") == []


def test_an_end_that_redis_has_lost_is_reported_again_while_the_process_runs_another_task(shared):
    """The living pid is no proof that the earlier task runs."""
    first = begin(shared, "wait")
    redis, before = shared.client.connections, shared.client.get_task(first.id).fields
    let_go(shared, first.id)
    assert ended(shared.client, first.id).status == "complete"
    second = begin(shared, "wait")
    assert second.pid == first.pid

    node = first.node or ""
    redis.read(
        ("DEL", keys.task(first.id)),
        ("HSET", keys.task(first.id), *[text for pair in before.items() for text in pair]),
        ("LREM", keys.complete("work"), 0, first.id),
        ("LPUSH", keys.reserved("work", node), first.id),
        ("SADD", keys.started("work"), keys.started_member(node, first.pid, first.id)),
    )

    done = ended(shared.client, first.id)
    assert (done.status, done.result, len(ledger(shared, first.id))) == ("complete", "done", 1)
    assert is_there(second.pid) and shared.client.get_task(second.id).status == "started"
    let_go(shared, second.id)
    assert ended(shared.client, second.id).pid == first.pid


def test_a_record_that_is_removed_after_the_end_is_the_end_of_the_process(shared):
    task_id = shared.client.get_queue("work").enqueue("remove_own_record")
    let_go(shared, task_id)

    done, (then,) = ended(shared.client, task_id), run(shared, "quick")

    assert then.status == "complete"
    if done.status != "complete":  # the child was faster than the listener
        assert then.pid != done.pid


# Who gives orders


def test_a_process_that_waits_ends_when_its_listener_takes_no_task(programs):
    listener = programs.listener("work:run", "--reuse", "100", *QUICK)
    for number in (signal.SIGUSR2, signal.SIGHUP, signal.SIGTERM):
        first = run(programs, "quick")[0]
        assert is_there(first.pid)

        listener.send(number)

        until(lambda pid=first.pid: not is_there(pid), what=f"its end after signal {number}")
        if number == signal.SIGUSR2:
            listener.send(number)
            listener.says("SIGUSR2: taking tasks again")
