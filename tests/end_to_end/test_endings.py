"""Every ending of a task is reported as what it was."""

from __future__ import annotations

import json
import os
import pickle
import re
import signal
import socket
import sys
from pathlib import Path

import pytest
import redis as redis_py
from click.testing import CliRunner
from running import Programs, outcome, until

from blueque.cli import listener, listener_handlers

# One function for each ending; the parameters of a task say which.
WORK = """
    import ctypes, os, resource, signal, subprocess, sys, time
    from pathlib import Path

    import blueque

    HOARD = []

    def leave_buffered(task):
        file = open("buffered", "w")
        file.write("kept")
        HOARD.append(file)


    def run(task):
        return globals()[task.parameters](task)


    def return_dict(task):
        return {"size": 123, "name": "\\u00fc\\u2028", "parts": [1.5, None, True]}

    def return_text(task):
        return " as it is\\n"

    def return_none(task):
        return None

    def return_tuple(task):
        return (1, ("a", 2))

    def raise_error(task):
        raise ValueError("no such codec")

    def raise_own_error(task):
        class Unlucky(Exception):
            pass
        raise Unlucky

    def raise_unprintable(task):
        class Mute(Exception):
            def __str__(self):
                raise RuntimeError("not telling")
        raise Mute

    def raise_chained(task):
        try:
            {}["a"]
        except KeyError as error:
            raise OSError("no key") from error

    def raise_long_error(task):
        raise ValueError("\\u00fc" * 1000000)

    def raise_strange_text(task):
        raise ValueError("\\udc80 \\0 \\x1b[31m")

    def raise_interrupt(task):
        raise KeyboardInterrupt

    def recurse(task):
        return recurse(task)

    def exit_3(task):
        sys.exit(3)

    def exit_0(task):
        sys.exit(0)

    def exit_without(task):
        sys.exit()

    def exit_text(task):
        sys.exit("the disc is scratched")

    def exit_true(task):
        sys.exit(True)

    def leave_0(task):
        os._exit(0)

    def leave_7(task):
        os._exit(7)

    def kill(task):
        os.kill(os.getpid(), signal.SIGKILL)

    def crash(task):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        print("the last words", file=sys.stderr)
        ctypes.string_at(0)

    def wait_for_a_signal(task):
        Path("waiting").touch()
        signal.pause()

    def exhaust_memory(task):
        resource.setrlimit(resource.RLIMIT_AS, (256 * 2**20, 256 * 2**20))
        hoard = []
        while True:
            hoard.append(bytearray(2**20))

    def exhaust_descriptors(task):
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        while True:
            HOARD.append(open("/dev/null"))

    def return_object(task):
        return {"task": object()}

    def return_bytes(task):
        return b"abc"

    def return_nan(task):
        return float("nan")

    def return_what_no_json_has(task):
        return {"epochs": [{"loss": 0.5}, {"loss": {1, 2}}]}

    def return_what_cannot_be_pickled(task):
        return {"f": lambda: None}

    def return_surrogate(task):
        return "a\\udc80"

    def return_nested_surrogate(task):
        return {"a": "\\ud800"}

    def return_largest(task):
        return "x" * 2**20

    def return_too_much(task):
        return "x" * (2**20 + 1)

    def return_too_large_a_list(task):
        return ["x" * 2**20]

    def drop_stdout(task):
        sys.stdout = None
        return "done"

    def close_outputs(task):
        sys.stdout.close()
        os.close(2)
        return "done"

    def close_all_files(task):
        os.closerange(3, 1000)
        return "done"

    def write_no_files(task):
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        os.umask(0o777)
        os.chdir("/")
        return "done"

    def give_up_rights(task):
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        raise ValueError("the reason")

    def give_up_rights_and_files(task):
        os.closerange(3, 1000)
        give_up_rights(task)

    def change_root(task):
        os.chroot("/proc")
        return "done"

    def let_a_child_return(task):
        if os.fork() == 0:
            return "the child's"
        os.wait()
        os.kill(os.getpid(), signal.SIGKILL)

    def leave_a_daemon_thread(task):
        import threading
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
        return "done"

    def describe(task):
        return {
            "cwd": os.getcwd(), "stdin": sys.stdin.read(), "is_session_leader": os.getsid(0) == os.getpid(),
            "status": task.status, "is_pid_ours": task.pid == os.getpid(), "id": task.id, "attempt": task.attempt,
            "is_current": blueque.current_task() is task,
            "environ": {name: text for name, text in os.environ.items() if name.startswith("BLUEQUE_")},
        }

    def list_descriptors(task):
        open_ones = [fd for fd in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + fd)]
        return {fd: os.readlink("/proc/self/fd/" + fd) for fd in open_ones}

    def list_ignored_signals(task):
        return subprocess.check_output(["grep", "-E", "SigIgn|SigBlk", "/proc/self/status"], text=True).split()

    def print_lines(task):
        print("said")
        print("\\udc80")
        print("complained", file=sys.stderr)
        return os.environ["BLUEQUE_TASK_DIR"]
"""


@pytest.fixture(scope="module")
def programs(shared_server, tmp_path_factory):
    with redis_py.Redis.from_url(shared_server.url) as redis:
        redis.flushall()
    with Programs(shared_server.url, tmp_path_factory.mktemp("endings")) as programs:
        yield programs


@pytest.fixture(scope="module")
def python(programs):
    """Return what runs one of the functions above as a task and returns how it ended. One listener
    outlives them all.
    """
    programs.write(WORK)
    listener = programs.listener("work:run", queue="python")
    queue, slots = programs.client.get_queue("python"), listener.slots()
    yield lambda name: outcome(programs.client, queue.enqueue(name))
    assert listener.slots() == slots
    assert listener.stop() == 0


@pytest.fixture(scope="module")
def shell(programs):
    """Return what runs a shell script as a task of --exec. The shell is the program; its script
    comes as parameters.
    """
    listener = programs.listener("--exec", "sh", queue="shell")
    queue = programs.client.get_queue("shell")
    yield lambda script: outcome(programs.client, queue.enqueue(script))
    assert listener.stop() == 0


@pytest.mark.parametrize(
    ("name", "result", "encoding"),
    [
        ("return_dict", {"size": 123, "name": "ü\u2028", "parts": [1.5, None, True]}, "json"),
        ("return_text", " as it is\n", None),
        ("return_none", None, "json"),
        ("return_tuple", [1, ["a", 2]], "json"),
        ("return_largest", "x" * 2**20, None),
        ("exit_0", None, "json"),
        ("exit_without", None, "json"),
        ("close_outputs", "done", None),
        ("drop_stdout", "done", None),
        ("leave_a_daemon_thread", "done", None),
        ("close_all_files", "done", None),
        ("write_no_files", "done", None),
    ],
)
def test_what_a_handler_returns_is_the_result(python, name, result, encoding):
    task = python(name)
    assert (task.status, task.result) == ("complete", result)
    assert (task.fields.get("result_encoding"), task.error) == (encoding, None)


def _has_failed(task, error, kind, exit_code=None, number=None):
    """Tell whether a task has failed with an error that begins so; what it has instead is told."""
    assert task.status == "failed" and task.error.startswith(error)
    found = (task.error_type, task.exit_code, task.signal, task.result)
    assert found == (kind, exit_code, number, None)
    return True


UNLUCKY = "raise_own_error.<locals>.Unlucky"
MUTE = "raise_unprintable.<locals>.Mute"


@pytest.mark.parametrize(
    ("name", "error", "kind"),
    [
        ("raise_error", "ValueError: no such codec", "ValueError"),
        ("raise_own_error", UNLUCKY, f"work.{UNLUCKY}"),
        ("raise_unprintable", f"{MUTE}: <Mute that cannot be shown>", f"work.{MUTE}"),
        ("raise_chained", "OSError: no key", "OSError"),
        ("raise_strange_text", "ValueError: \\udc80 \0 \x1b[31m", "ValueError"),
        ("raise_interrupt", "KeyboardInterrupt", "KeyboardInterrupt"),
        ("recurse", "RecursionError: maximum recursion depth exceeded", "RecursionError"),
        ("exhaust_memory", "MemoryError", "MemoryError"),
        ("exhaust_descriptors", "OSError: [Errno 24] Too many open files", "OSError"),
    ],
)
def test_what_a_handler_raises_is_a_failure_with_its_name(python, name, error, kind):
    assert _has_failed(python(name), error, kind)


@pytest.mark.parametrize(
    ("name", "error", "code"),
    [
        ("exit_3", "sys.exit(3)", 3),
        ("exit_true", "sys.exit(1)", 1),
        ("exit_text", "sys.exit: the disc is scratched", 1),
        ("leave_0", "the process left with exit code 0 and without a result", 0),
        ("leave_7", "the process left with exit code 7 and without a result", 7),
    ],
)
def test_a_handler_that_exits_has_failed_with_its_code(python, name, error, code):
    assert _has_failed(python(name), error, "exit", code)


@pytest.mark.parametrize("name", ["kill", "let_a_child_return"])
def test_a_handler_that_is_killed_has_failed_whatever_a_child_returns(python, name):
    assert _has_failed(python(name), "killed by SIGKILL", "signal", number="SIGKILL")


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("return_object", 'result["task"] is of the type object, which JSON does not have; it is'),
        ("return_bytes", "the result: bytes cannot be stored; decode it, or pass a str of base64"),
        ("return_nan", "the result: it is nan, which JSON does not have; pass None; it is kept in"),
        ("return_surrogate", "the result: '\\udc80' at position 1 is not a character"),
        ("return_nested_surrogate", "the result: '\\ud800' at position 6 is not a character"),
        ("return_too_much", "the result takes 1,048,577 bytes; the limit is 1,048,576 bytes"),
    ],
)
def test_a_result_that_cannot_be_stored_is_a_failure(python, name, error):
    assert _has_failed(python(name), error, "result")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to give up")
def test_a_handler_that_gives_up_its_rights_has_its_end_recorded(python):
    failed, done = python("give_up_rights"), python("change_root")

    assert (failed.error, failed.error_type) == ("ValueError: the reason", "ValueError")
    assert (done.status, done.result) == ("complete", "done")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to give up")
def test_an_end_that_cannot_be_recorded_is_said_with_the_reason(programs, python):
    task = python("give_up_rights_and_files")

    assert task.error.startswith("the process left with exit code 1 and without a result: ")
    assert "cannot write how the task has ended: [Errno 13] Permission denied" in task.error
    log = programs.directory / "spool" / f"{task.id}@1" / "stderr"
    assert "ValueError: the reason" in log.read_text()


def _kept(task):
    """Return the content of the file that the error of a task names."""
    path = Path(task.error.partition("; it is kept in ")[2])
    return pickle.loads(path.read_bytes()) if path.suffix == ".pickle" else path.read_text()


def test_a_result_that_cannot_be_stored_is_kept_and_the_error_names_its_first_culprit(python):
    task = python("return_what_no_json_has")

    assert task.error.startswith(
        'result["epochs"][1]["loss"] is of the type set, which JSON does not have'
    )
    assert _kept(task) == {"epochs": [{"loss": 0.5}, {"loss": {1, 2}}]}
    assert _kept(python("return_too_much")) == "x" * (2**20 + 1)
    large = python("return_too_large_a_list")
    assert "bytes; write a file and return its path; it is kept in" in large.error
    assert large.error.endswith("/result.json") and json.loads(_kept(large)) == ["x" * 2**20]
    assert _kept(python("return_what_cannot_be_pickled")).startswith("{'f': <function ")


def test_the_traceback_of_an_exception_leads_to_the_line_of_the_handler(python):
    trace = python("raise_error").traceback
    assert trace.startswith("Traceback (most recent call last):")
    assert trace.endswith("ValueError: no such codec\n")
    frames = [line for line in trace.splitlines() if line.startswith("  File ")]
    assert [frame.rpartition(" in ")[2] for frame in frames] == ["run", "raise_error"]
    assert 'work.py"' in frames[0] and "/blueque/" not in trace


def test_the_traceback_tells_the_cause_of_an_exception_too(python):
    trace = python("raise_chained").traceback
    assert "KeyError: 'a'" in trace and "direct cause" in trace
    assert trace.endswith("OSError: no key\n")


def test_a_very_long_error_is_kept_in_part(python):
    task = python("raise_long_error")
    assert task.error.startswith("ValueError: üüü")
    assert len(task.error.encode()) < 17_000 and len(task.traceback.encode()) < 70_000


def test_a_task_process_ended_from_outside_fails_with_the_name_of_the_signal(programs, python):
    task_id = programs.client.get_queue("python").enqueue("wait_for_a_signal")
    until((programs.directory / "waiting").exists, what="the task")
    os.kill(programs.client.get_task(task_id).pid, signal.SIGTERM)
    task = outcome(programs.client, task_id)
    assert (task.status, task.error, task.error_type) == ("failed", "killed by SIGTERM", "signal")
    assert task.signal == "SIGTERM"


def test_a_crash_in_c_code_tells_its_last_words_and_where_in_the_code_of_the_user_it_was(python):
    task = python("crash")

    assert (task.error_type, task.signal) == ("signal", "SIGSEGV")
    how, *lines = task.error.split("\n")
    assert how == "killed by SIGSEGV:"
    assert lines[:2] == ["the last words", "Fatal Python error: Segmentation fault"]
    assert any(re.search(r"work\.py\", line \d+ in crash$", line) for line in lines), task.error
    assert not any("/blueque/task_process/" in line for line in lines)


def test_a_task_process_is_at_home_where_the_listener_was_started(programs, python):
    task = python("describe")
    assert task.result == {
        "cwd": str(programs.directory),
        "stdin": "",
        "is_session_leader": True,
        "status": "started",
        "is_pid_ours": True,
        "id": task.id,
        "attempt": 1,
        "is_current": True,
        "environ": {
            "BLUEQUE_TASK_ID": task.id,
            "BLUEQUE_QUEUE": "python",
            "BLUEQUE_NODE": task.node,
            "BLUEQUE_ATTEMPT": "1",
            "BLUEQUE_PROGRESS": str(programs.directory / "spool" / f"{task.id}@1" / "progress"),
            "BLUEQUE_TASK_DIR": str(programs.directory / "spool" / f"{task.id}@1"),
            "BLUEQUE_CHECKPOINT": str(
                programs.directory / "spool" / f"{task.id}@1" / "checkpoint.json"
            ),
            "BLUEQUE_CHECKPOINT_DIR": str(
                programs.directory / "spool" / f"{task.id}@1" / "checkpoint"
            ),
            "BLUEQUE_STOP_FILE": str(programs.directory / "spool" / f"{task.id}@1" / "stop"),
            # which all programs of a test have
            "BLUEQUE_MAX_BYTES": str(2**20),
            "BLUEQUE_HOST": socket.getfqdn(),
        },
    }


def test_a_task_process_has_inherited_no_descriptor_of_the_listener(programs, python):
    task = python("list_descriptors")
    attempt = programs.directory / "spool" / f"{task.id}@1"
    own = {"0": "/dev/null", "1": f"{attempt}/stdout", "2": f"{attempt}/stderr"}
    kept = {number: target for number, target in task.result.items() if number not in own}
    assert task.result == {**own, **kept}
    # Kept open for the exit record, for the traceback that `blueque stack` asks for, and for what
    # of Blueque is imported late.
    assert list(kept.values()) == [
        f"{attempt}/exit.new",
        "/memfd:blueque-stack (deleted)",
        "/memfd:blueque-package (deleted)",
    ]


def test_what_a_task_prints_lies_in_the_spool(programs, python):
    attempt = programs.directory / "spool" / f"{python('print_lines').id}@1"
    assert (attempt / "stdout").read_bytes() == b"said\n\\udc80\n"
    assert (attempt / "stderr").read_bytes() == b"complained\n"


def test_what_a_task_runs_has_no_signal_ignored_or_blocked(python):
    assert python("list_ignored_signals").result == ["SigBlk:", "0" * 16, "SigIgn:", "0" * 16]


@pytest.mark.parametrize(
    ("text", "name", "reason"),
    [
        ("", "gone:run", "ModuleNotFoundError: No module named 'gone'"),
        ("run = 3", "bad:run", "bad:run is of the type int, not a callable"),
        ("import sys; sys.exit(4)", "bad:run", "SystemExit: 4 ({file}, line 1)"),
        (
            "import argparse\nargparse.ArgumentParser().parse_args()",
            "bad:run",
            "SystemExit: 2 ({file}, line 2)",
        ),
        ("import os; os._exit(5)", "bad:run", "exit code 5"),
        ("import os; os.kill(os.getpid(), 9)", "bad:run", "killed by SIGKILL"),
        ("def run(:", "bad:run", "SyntaxError: invalid syntax (bad.py, line 1)"),
    ],
)
def test_a_handler_that_cannot_be_had_is_refused_at_the_start_with_the_reason(
    programs, text, name, reason
):
    path = programs.write(text, "bad.py")
    code, log = programs.run_to_end("bad", "--handler", name)
    said = [line.split(" ", 1)[1] for line in log.splitlines()]
    assert (code, said[-1]) == (78, f"cannot import the handler {name}: {reason.format(file=path)}")
    assert "argparse" in text or not said[1:]


@pytest.mark.parametrize(
    ("script", "result"),
    [
        ("echo one; echo two", "two"),
        ("echo '{\"size\": 3}'", '{"size": 3}'),
        ("printf 'no newline'", "no newline"),
        ("echo ' spaces '; echo", " spaces "),
        ("printf 'two\\r\\n'", "two"),
        ("echo out; printf 'in a file\\n' > $BLUEQUE_TASK_DIR/result", "in a file\n"),
        ("echo out; : > $BLUEQUE_TASK_DIR/result", ""),
        ("true", None),
        ("echo complained >&2", None),
        ("printf '\\377'", "\ufffd"),
        ("head -c 1048576 /dev/zero | tr '\\0' x; echo", "x" * 2**20),
    ],
)
def test_a_program_that_exits_with_0_completes_with_its_last_line_or_its_file(
    shell, script, result
):
    task = shell(script)
    assert (task.status, task.result, task.error) == ("complete", result, None)


TOO_MUCH = "the result takes {} bytes or more; the limit is 1,048,576 bytes; write a file and return its path"


@pytest.mark.parametrize(
    ("script", "error", "kind", "exit_code", "number"),
    [
        ("exit 3", "exit code 3", "exit", 3, None),
        ("echo o; echo a >&2; echo b >&2; exit 3", "exit code 3:\na\nb", "exit", 3, None),
        ("kill -KILL $$", "killed by SIGKILL", "signal", None, "SIGKILL"),
        ("echo bad >&2; kill -SEGV $$", "killed by SIGSEGV:\nbad", "signal", None, "SIGSEGV"),
        ("kill -TERM $$", "killed by SIGTERM", "signal", None, "SIGTERM"),
        ("kill -PIPE $$", "killed by SIGPIPE", "signal", None, "SIGPIPE"),
        (
            "head -c 1048577 /dev/zero | tr '\\0' x",
            TOO_MUCH.format("1,048,577"),
            *("result", None, None),
        ),
        (
            "head -c 2000000 /dev/zero > $BLUEQUE_TASK_DIR/result",
            TOO_MUCH.format("2,000,000"),
            *("result", None, None),
        ),
    ],
)
def test_a_program_that_ends_otherwise_fails_with_its_code_and_last_words(
    shell, script, error, kind, exit_code, number
):
    task = shell(script)
    assert _has_failed(task, error, kind, exit_code, number) and task.error == error


def test_of_a_program_that_fails_the_last_ten_lines_are_kept(shell):
    assert shell("seq 1 50 >&2; exit 1").error == "exit code 1:\n" + "\n".join(
        str(n) for n in range(41, 51)
    )


def test_a_wrapper_that_is_killed_takes_its_program_with_it(programs, shell):
    task_id = programs.client.get_queue("shell").enqueue(
        "echo $$ > pid.new; mv pid.new pid; exec sleep 1000"
    )
    until((programs.directory / "pid").exists, what="the program")
    program = int((programs.directory / "pid").read_text())
    os.kill(programs.client.get_task(task_id).pid, signal.SIGKILL)
    assert outcome(programs.client, task_id).error == "killed by SIGKILL"
    until(lambda: program not in programs.left(), what="the end of the program")


def test_only_a_newline_ends_a_line_of_output(shell):
    assert shell('printf \'{"title": "a\\342\\200\\250b"}\\n\'').result == '{"title": "a\u2028b"}'


def test_a_program_finds_ids_in_its_environment_and_is_where_the_listener_was_started(
    programs, shell
):
    task = shell('echo "$BLUEQUE_TASK_ID $BLUEQUE_QUEUE $BLUEQUE_ATTEMPT $BLUEQUE_TASK_DIR $PWD"')
    directory = programs.directory
    assert task.result == f"{task.id} shell 1 {directory}/spool/{task.id}@1 {directory}"


def test_parameters_come_on_standard_input_byte_for_byte(shared_server, tmp_path):
    expected = [
        ("as it is\r\n\0\x7f ü🎉", "as it is\r\n\0\x7f ü🎉".encode()),
        ("", b""),
        ({"name": "ü", "n": [1, None]}, '{"name":"ü","n":[1,null]}'.encode()),
        (None, b"null"),
        ("x" * 2**20, b"x" * 2**20),
    ]
    with Programs(shared_server.url, tmp_path) as programs:
        programs.listener("--exec", "sh", "-c", "cat > got; echo done", queue="stdin")
        for parameters, stdin in expected:
            task = outcome(programs.client, programs.client.get_queue("stdin").enqueue(parameters))
            assert (task.result, (tmp_path / "got").read_bytes()) == ("done", stdin)


def test_arguments_reach_the_program_untouched_by_any_shell_and_its_options_are_its_own(
    shared_server, tmp_path
):
    arguments = ["--slots", "7", "--help", "$HOME; echo no", "two  words", "*", "--exec", "", "ü"]
    with Programs(shared_server.url, tmp_path) as programs:
        path = programs.write(
            f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n",
            "tell",
            mode=0o755,
        )
        programs.listener("--exec", "--", f"./{path.name}", *arguments, queue="arguments")
        task = outcome(programs.client, programs.client.get_queue("arguments").enqueue(""))
        assert (
            task.result
            == '["--slots", "7", "--help", "$HOME; echo no", "two  words", "*", "--exec", "", "\\u00fc"]'
        )


@pytest.mark.parametrize(
    "arguments",
    [["--slots", "7"], ["--fast", "--spool=/srv"], ["more", "--no-warm", "--", "x"], ["--slots"]],
)
def test_options_of_the_listener_behind_exec_are_refused(arguments):
    done = CliRunner().invoke(listener.command, ["work", "--exec", "./tell", *arguments])

    option = next(word for word in arguments if word in ("--slots", "--spool=/srv", "--no-warm"))
    assert done.exit_code == 2
    assert (
        f"{option} would be given to ./tell: options of the listener go before --exec"
        in done.output
    )


@pytest.mark.parametrize("option", [("--reuse", "2"), ("--reuse-for", "1h"), ("--preload", "json")])
def test_options_for_callables_are_refused_beside_exec(option):
    done = CliRunner().invoke(listener.command, ["work", *option, "--exec", "true"])

    assert done.exit_code == 2 and "need --handler" in done.output


@pytest.mark.parametrize(
    "program",
    [["true", "--fast", "slots"], ["true", "--", "--slots", "7"], ["--", "true", "--slots", "7"]],
)
def test_options_that_are_not_the_listeners_or_come_after_two_dashes_are_the_programs(program):
    listener_handlers.refuse_swallowed(listener.command, program)


@pytest.mark.parametrize("command", ["./nothing", "./data", "."])
def test_a_program_that_is_not_there_or_none_is_refused_at_the_start(programs, command):
    programs.write("#!/bin/sh\n", "data", mode=0o644)
    code, log = programs.run_to_end("none", "--exec", command)
    refusal = f"cannot run {command!r}: no such program, or it is not executable"
    assert (code, log.split(" ", 1)[1]) == (78, f"{refusal}\n")


def test_a_program_that_cannot_be_run_any_more_fails_its_task_with_the_reason(programs):
    path = programs.write("#!/bin/sh\necho ran\n", "program", mode=0o755)
    listener = programs.listener("--exec", "./program", queue="spoilt")
    queue = programs.client.get_queue("spoilt")
    assert outcome(programs.client, queue.enqueue("")).result == "ran"
    spoil = {
        "Exec format error": lambda: path.write_text("echo a script without its first line\n"),
        "Permission denied": lambda: path.chmod(0o644),
        "No such file or directory": path.unlink,
    }
    for reason, act in spoil.items():
        act()
        task = outcome(programs.client, queue.enqueue(""))
        assert _has_failed(task, f"cannot run ./program: {reason}", "exit", task.exit_code)
    assert listener.stop() == 0


def test_what_a_task_has_left_in_the_buffer_of_a_file_of_its_own_is_written(programs, python):
    assert python("leave_buffered").status == "complete"
    assert (programs.directory / "buffered").read_text() == "kept"


def test_a_handler_module_that_starts_something_when_it_is_imported_does_not_hold_up_the_listener(
    shared_server, tmp_path
):
    with Programs(shared_server.url, tmp_path) as programs:
        programs.write(
            """
            import subprocess
            subprocess.Popen(["sleep", "60"], close_fds=False)

            def run(task):
                return "done"
        """,
            "starter.py",
        )
        listener = programs.listener("starter:run")
        assert listener.stop() == 0
