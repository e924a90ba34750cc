"""What a task leaves open, unsaved or unfinished is saved and waited for, as a plain interpreter does
at its end.
"""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import pytest
import redis as redis_py
from running import Programs, outcome, patched, until

# Each function leaves something in the directory that it is given.
WORK = """
    import atexit, concurrent.futures, gzip, io, logging, logging.handlers, mmap, multiprocessing
    import os, shelve, tempfile, threading, time, weakref, zipfile
    from dbm import dumb
    from pathlib import Path

    KEPT = []

    def run(task):
        how, directory = task.parameters
        return globals()[how](Path(directory))

    def keep(thing):
        KEPT.append(thing)
        return thing

    def buffered_writer(to):
        keep(open(to / "a", "wb")).write(b"x" * 100)

    def text(to):
        keep(open(to / "a", "w")).write("x" * 100)

    def own_class_of_text(to):
        class Own(io.TextIOWrapper):
            pass
        keep(Own(open(to / "a", "wb"))).write("x" * 100)

    def text_beside_a_class_that_has_no_hash(to):
        class Kind(type):
            def __eq__(self, other):
                return self is other
        keep(Kind("Own", (), {})())
        text(to)

    def text_beside_a_class_whose_comparison_fails(to):
        class Kind(type):
            def __eq__(self, other):
                raise TypeError
            __hash__ = type.__hash__
        keep(Kind("Own", (), {"__init__": lambda self: setattr(self, "held", [])})())
        text(to)

    def own_class_with_a_buffer(to):
        class Own(io.RawIOBase):
            def __init__(self):
                self.held = []
            def write(self, data):
                self.held.append(data)
            def close(self):
                if not self.closed:
                    (to / "a").write_bytes(b"".join(self.held))
                super().close()
        keep(Own()).write(b"x" * 100)

    def pair(to):
        keep(io.BufferedRWPair(open(os.devnull, "rb", 0), open(to / "a", "wb", 0))).write(b"x")

    def gzip_file(to):
        keep(gzip.GzipFile(to / "a", "w", mtime=0)).write(b"x" * 100)

    def gzip_text(to):
        binary = gzip.GzipFile(to / "a", "w", mtime=0)
        keep(io.TextIOWrapper(binary)).write("x" * 100)

    def zip_file_over_an_open_file(to):
        file = open(to / "a", "w+b")
        keep(zipfile.ZipFile(file, "w")).writestr(zipfile.ZipInfo("part"), "x" * 100)

    def shelf(to):
        with_cache = keep(shelve.Shelf(dumb.open(str(to / "a"), "c"), writeback=True))
        with_cache["a"] = []
        with_cache["a"].append(1)

    def memory_map(to):
        (to / "a").write_bytes(b"-" * 100)
        with open(to / "a", "r+b") as file:
            keep(mmap.mmap(file.fileno(), 100))[:3] = b"xyz"

    def named_temporary_file(to):
        file = keep(tempfile.NamedTemporaryFile(dir=to, delete=False, prefix="a"))
        file.write(b"x")
        os.rename(file.name, to / "a")

    def temporary_file_that_goes(to):
        keep(tempfile.NamedTemporaryFile(dir=to)).write(b"x")

    def temporary_directory(to):
        keep(tempfile.TemporaryDirectory(dir=to))

    def memory_handler(to):
        handler = logging.handlers.MemoryHandler(100, target=logging.FileHandler(to / "a"))
        logging.getLogger("own").addHandler(handler)
        logging.getLogger("own").error("said")

    def own_handler_that_saves_when_it_is_closed(to):
        class Own(logging.Handler):
            def emit(self, record):
                self.held = record.getMessage()
            def close(self):
                (to / "a").write_text(self.held)
        logging.getLogger("own").addHandler(Own())
        logging.getLogger("own").error("said")

    def function_for_the_end(to):
        atexit.register((to / "a").write_text, "x")

    def finalizer(to):
        class Own:
            pass
        weakref.finalize(keep(Own()), (to / "a").write_text, "x")

    def method_for_the_end(to):
        class Own:
            def __del__(self):
                (to / "a").write_text("x")
        keep(Own())

    def suspended_generator(to):
        def generate():
            try:
                yield
            finally:
                (to / "a").write_text("x")
        next(keep(generate()))

    def thread(to):
        def work():
            time.sleep(0.2)
            (to / "a").write_text("x")
        threading.Thread(target=work).start()

    def thread_of_a_thread(to):
        threading.Thread(target=lambda: (time.sleep(0.1), thread(to))).start()

    def thread_after_a_failure(to):
        thread(to)
        raise ValueError

    def daemon_thread(to):
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()

    def thread_pool(to):
        pool = keep(concurrent.futures.ThreadPoolExecutor(1))
        for name in "ab":
            pool.submit(lambda name=name: (time.sleep(0.1), (to / name).write_text("x")))

    def process(to):
        context = multiprocessing.get_context("fork")
        context.Process(target=save_late, args=(to / "a",)).start()

    def process_pool(to):
        context = multiprocessing.get_context("fork")
        pool = keep(concurrent.futures.ProcessPoolExecutor(1, mp_context=context))
        pool.submit(save_late, to / "a")

    def daemon_process(to):
        context = multiprocessing.get_context("fork")
        context.Process(target=time.sleep, args=(1000,), daemon=True).start()

    def queue_of_processes(to):
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        context.Process(target=lambda: (to / "a").write_text(queue.get())).start()
        queue.put("x" * 100_000)

    def manager(to):
        keep(multiprocessing.get_context("fork").Manager())

    def forkserver(to):
        tempfile.tempdir = str(to)
        context = multiprocessing.get_context("forkserver")
        with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
            pool.submit(abs, 1).result()

    def save_late(path):
        time.sleep(0.2)
        path.write_text("x")
"""
GZIP = b"\x1f\x8b"
LEAVE = [
    line.split()[1].split("(")[0]
    for line in WORK.splitlines()
    if line.startswith("    def ") and line.endswith("(to):")
]

# What a process that takes another task has not ended with.
OF_THE_PROCESS = {
    *("own_class_with_a_buffer", "gzip_file", "gzip_text", "zip_file_over_an_open_file", "shelf"),
    *("own_handler_that_saves_when_it_is_closed", "temporary_file_that_goes", "finalizer"),
    *("function_for_the_end", "method_for_the_end", "suspended_generator", "temporary_directory"),
    "forkserver",
}


@pytest.fixture(scope="module")
def programs(shared_server, tmp_path_factory):
    with redis_py.Redis.from_url(shared_server.url) as redis:
        redis.flushall()
    with Programs(shared_server.url, tmp_path_factory.mktemp("end")) as programs:
        programs.write(WORK)
        yield programs


@pytest.fixture(scope="module")
def ended(programs):
    """Run one of the functions above in a task with this option, and return it as it has ended."""
    queues = {}
    for option in ("", "--reuse 100"):
        queues[option] = programs.client.get_queue(f"end{option.replace(' ', '')}")
        programs.listener("work:run", *option.split(), queue=queues[option].name)

    def run(option: str, how: str, directory: Path):
        return outcome(programs.client, queues[option].enqueue([how, str(directory)]))

    return run


def _left(directory: Path) -> dict[str, bytes | None]:
    found = {}
    for path in directory.rglob("*"):
        content = path.read_bytes() if path.is_file() else None
        is_zipped = content is not None and content.startswith(GZIP)  # in blocks of any length
        found[str(path.relative_to(directory))] = gzip.decompress(content) if is_zipped else content
    return found


@pytest.fixture(scope="module")
def plain(programs, tmp_path_factory):
    """What each function leaves behind when a plain interpreter runs it."""
    found = {}

    def run(how: str) -> dict[str, bytes | None]:
        if how not in found:
            directory = tmp_path_factory.mktemp("plain")
            code = f"import pathlib, work; work.{how}(pathlib.Path({str(directory)!r}))"
            subprocess.run([sys.executable, "-c", code], cwd=programs.directory, timeout=60)
            found[how] = _left(directory)
        return found[how]

    return run


@pytest.mark.parametrize(
    ("option", "how"),
    [("", how) for how in LEAVE]
    + [("--reuse 100", how) for how in LEAVE if how not in OF_THE_PROCESS],
)
def test_a_task_leaves_what_a_plain_interpreter_leaves(ended, plain, tmp_path, option, how):
    task = ended(option, how, tmp_path)

    expected = "failed" if how == "thread_after_a_failure" else "complete"
    assert (task.status, _left(tmp_path)) == (expected, plain(how)), task.error


def test_what_a_preloaded_module_has_opened_is_written_once_and_its_exit_functions_are_its_own(
    shared_server, tmp_path
):
    with Programs(shared_server.url, tmp_path) as programs:
        programs.write(
            """
            import atexit, tempfile
            file = open("lines", "a")
            file.write("preloaded\\n")
            directory = tempfile.TemporaryDirectory(dir=".")
            atexit.register(print, "not here")
            """,
            "base.py",
        )
        programs.write(
            """
            import atexit, os, base

            def run(task):
                base.file.write(f"{task.parameters}\\n")
                atexit.register(print, "in the log")
                base.own = base.tempfile.TemporaryDirectory(dir=".")
                return os.path.isdir(base.directory.name)
            """
        )
        programs.listener("work:run", "--preload", "base", queue="preloaded")
        queue = programs.client.get_queue("preloaded")

        tasks = [outcome(programs.client, queue.enqueue(name)) for name in ("first", "second")]

        assert [task.result for task in tasks] == [True, True], tasks[0].error
        assert (tmp_path / "lines").read_text() == "preloaded\nfirst\nsecond\n"
        printed = tmp_path / "spool" / f"{tasks[0].id}@1" / "stdout"
        assert printed.read_text() == "in the log\n"


def test_a_task_leaves_the_processes_of_a_preloaded_module_alone(shared_server, tmp_path):
    with Programs(shared_server.url, tmp_path) as programs:
        programs.write(
            """
            import multiprocessing, time
            context = multiprocessing.get_context("fork")
            context.Process(target=time.sleep, args=(60,), daemon=True).start()
            """,
            "base.py",
        )
        programs.write("def run(task): return 1")
        programs.listener("work:run", "--preload", "base", queue="children")

        task = outcome(programs.client, programs.client.get_queue("children").enqueue(""))

        assert task.result == 1
        log = tmp_path / "spool" / f"{task.id}@1" / "stderr"
        assert not log.exists() or log.read_text() == ""


HOOK = """
    from concurrent.futures import ThreadPoolExecutor
    from pathlib import Path
    import threading

    class Hooks:
        def after_end(self, task, ended):
            with ThreadPoolExecutor(1) as pool:
                pool.submit(Path("pool").touch).result()
            threading.Timer(0.2, Path("thread").touch).start()
"""


def test_a_hook_uses_threads_after_a_task_that_left_one(shared_server, tmp_path):
    with Programs(shared_server.url, tmp_path) as programs:
        programs.write(HOOK, "hooks.py")
        programs.write("import threading\ndef run(task): threading.Timer(0.1, abs, (1,)).start()")
        programs.listener("work:run", "--hooks", "hooks:Hooks", queue="hook")

        task = outcome(programs.client, programs.client.get_queue("hook").enqueue(""))

        assert task.status == "complete"
        assert (tmp_path / "pool").exists() and (tmp_path / "thread").exists()


WAITING = """
    import threading
    from pathlib import Path

    def run(task):
        threading.Thread(target=wait, args=(task.id,), name="upload").start()
        return "done"

    def wait(name):
        while not Path(f"go.{name}").exists():
            threading.Event().wait(0.01)
"""
LINGERING = """
    import atexit, time

    def run(task):
        atexit.register(time.sleep, 1000)
        return "done"
"""
WAITS = "-- blueque: the handler has ended; its process still waits for 'upload' --"
LINGERS = "the end is recorded; the process still calls exit functions and finalizers"


@pytest.fixture(scope="module")
def left(programs):
    """Run a task of these modules, and return it when its log says what its process still does."""
    queues = {}
    for name, text, *options in (
        ("waiting", WAITING),
        ("reused", WAITING, "--reuse", "100"),
        ("lingering", LINGERING),
    ):
        programs.write(text, f"{name}.py")
        environ = patched({"task_process.process_end.TELL_AFTER": 0.1})
        programs.listener(f"{name}:run", *options, queue=name, environ=environ)
        queues[name] = programs.client.get_queue(name)

    def left(name: str, **limits: float):
        task = queues[name].enqueue("", **limits)
        log = programs.directory / "spool" / f"{task}@1" / "stderr"
        said = LINGERS if name == "lingering" else WAITS
        until(lambda: log.exists() and said in log.read_text(), what="the line in the log")
        return task

    return left


@pytest.mark.parametrize("name", ["waiting", "reused"])
def test_the_log_of_a_task_names_the_threads_it_waits_for(programs, left, name):
    task = left(name)
    assert programs.client.get_task(task).status == "started"

    (programs.directory / f"go.{task}").touch()

    assert outcome(programs.client, task).result == "done"


def test_limits_hold_while_a_task_waits_for_its_threads(programs, left):
    ended = outcome(programs.client, left("waiting", time_limit=1))

    assert (ended.status, ended.error_type) == ("failed", "time_limit")


def test_a_task_that_waits_for_its_threads_is_cancelled(programs, left):
    task = left("waiting")

    programs.client.get_queue("waiting").cancel(task)

    until(lambda: programs.client.get_task(task).status == "cancelled", what="the end")


@pytest.mark.parametrize("how", ["limit", "cancel"])
def test_a_process_that_does_not_end_is_ended_and_its_task_is_complete(programs, left, how):
    task = left("lingering", **({"time_limit": 1} if how == "limit" else {}))

    if how == "cancel":
        programs.client.get_queue("lingering").cancel(task)

    until(lambda: programs.client.get_task(task).status != "started", what="the end")
    ended = programs.client.get_task(task)
    assert (ended.status, ended.result) == ("complete", "done")


def test_a_task_whose_exit_functions_remove_its_exit_record_has_ended_as_its_process_did(
    shared_server, tmp_path
):
    with Programs(shared_server.url, tmp_path) as programs:
        programs.write(
            """
            import atexit, os, shutil

            def run(task):
                atexit.register(shutil.rmtree, os.environ["BLUEQUE_TASK_DIR"])
            """
        )
        programs.listener("work:run", queue="removed")

        task = outcome(programs.client, programs.client.get_queue("removed").enqueue(None))

        assert task.error == "the process left with exit code 0 and without a result"
