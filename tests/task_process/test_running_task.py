"""The task as a handler, a library or a program that it has started sees it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from running import ROOT, clean_environment, outcome

from blueque import InvalidInput, InvalidType, New, current_task
from blueque.spool import progress_file
from blueque.task_process import running_task
from blueque.task_process.running_task import RunningTask
from blueque.text.eta import read_progress

PROGRAM = """#!/bin/sh
exec "$PYTHON" -c "
from blueque import current_task
task = current_task()
task.progress(3, 4, 'rounds')
print([task.id, task.attempt, task.queue, task.parameters])
"
"""


@pytest.fixture(autouse=True)
def nobody(monkeypatch):
    """Have this process work on no task, as of now."""
    monkeypatch.setattr(running_task, "_current", None)
    for name in ("BLUEQUE_TASK_ID", "BLUEQUE_TASK_DIR"):
        monkeypatch.delenv(name, raising=False)


def told(task, directory):
    """Return what is to be seen after each item that it tracks."""
    return [str(progress_file.read(str(directory))) for _ in task]


# Progress of an iterable


@pytest.mark.parametrize(
    ("frames", "shown", "last"),
    [
        (
            ["a", "b", "c"],
            ["0/3 frames encoding", "1/3 frames encoding", "2/3 frames encoding"],
            "3/3 frames encoding",
        ),
        (
            (letter for letter in "ab"),
            ["0 frames encoding", "1 frames encoding"],
            "2 frames encoding",
        ),
        ([], [], "0/0 frames encoding"),
    ],
)
def test_what_is_tracked_tells_how_many_are_done_and_of_how_many_if_that_is_known(
    tmp_path, frames, shown, last
):
    task = RunningTask("t1", {}, str(tmp_path))
    assert told(task.track(frames, "encoding", "frames"), tmp_path) == shown
    assert str(progress_file.read(str(tmp_path))) == last


def test_what_is_tracked_is_yielded_as_it_is(tmp_path):
    items = [object(), None, 0]
    assert list(RunningTask("t1", {}, str(tmp_path)).track(iter(items))) == items


# Results of other tasks


def test_a_task_has_the_results_that_it_is_given(tmp_path):
    (tmp_path / "inputs").write_text('{"b": {"n": 1}, "a": "text"}')

    task = RunningTask("t1", {"inputs": "11"}, str(tmp_path))

    assert [*task.inputs.items()] == [("b", {"n": 1}), ("a", "text")]
    assert task.inputs is task.inputs


def test_a_task_that_wants_no_results_has_none(tmp_path):
    (tmp_path / "inputs").write_text("a file of its own")

    assert RunningTask("t1", {}, str(tmp_path)).inputs == {}
    assert RunningTask("t1", {"inputs": "0"}, None).inputs == {}


def test_a_task_without_its_results_says_so_each_time(tmp_path):
    task = RunningTask("t1", {"inputs": "0"}, str(tmp_path))

    for _ in range(2):
        with pytest.raises(InvalidInput, match="more than 64 MiB together"):
            task.inputs  # noqa: B018


# Whatever is told

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("arguments", "keywords", "shown"),
    [
        ((0.3, "encoding"), {}, "0.3 encoding"),
        ((1.0, "encoding"), {}, "100 % encoding"),
        ((1, None, "", "encoding"), {}, "1 encoding"),
        (("encoding",), {}, "encoding"),
        ((450, 1500, "frames", "encoding"), {}, "450/1500 frames encoding"),
        ((3, 4), {"text": "this is\nall"}, "3/4 this is all"),
        (("0.3", "encoding"), {}, "0.3 encoding"),
        ((0, 0), {}, "0/0"),
    ],
)
def test_what_is_meant_is_told(tmp_path, capfd, arguments, keywords, shown):
    RunningTask("t1", {}, str(tmp_path)).progress(*arguments, **keywords)
    assert str(progress_file.read(str(tmp_path))) == shown
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("arguments", "shown", "says"),
    [
        ((-0.1, "encoding"), "0 % encoding", "-0.1 is negative"),
        ((11, 10), "10/10", "11 of 10"),
        ((NAN, "encoding"), "encoding", "nan is not a finite number"),
        ((INF, 10), "", "inf is not a finite number"),
        ((5, -INF), "5", "-inf is not a finite number"),
        ((5, -10), "5", "a total of -10"),
        ((10**400, 10), "", "is not a finite number"),
        (([], object), "", "is not a finite number"),
    ],
)
def test_what_makes_no_sense_is_made_some_and_said_once(tmp_path, capfd, arguments, shown, says):
    task = RunningTask("t1", {}, str(tmp_path))
    for _ in range(3):
        task.progress(*arguments)
        told = progress_file.read(str(tmp_path))
    assert ("" if told.done is None else str(told)) == shown or str(told) == shown
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("-- blueque: task.progress: ") and says in line
    assert line.endswith("; this warning appears once --")
    task.progress(0.5)
    assert str(progress_file.read(str(tmp_path))) == "0.5"


def test_progress_never_fails_also_without_a_standard_error(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stderr", None)
    RunningTask("t1", {}, str(tmp_path)).progress(NAN, "encoding")
    assert str(progress_file.read(str(tmp_path))) == "encoding"


# Stages


def test_stages_make_the_progress_of_a_part_that_of_the_whole(tmp_path):
    task, seen = RunningTask("t1", {}, str(tmp_path)), []

    def tell(*told, **more):
        task.progress(*told, **more)
        seen.append(str(progress_file.read(str(tmp_path))))

    with task.stage("decode", 1, of=4):
        seen.append(str(progress_file.read(str(tmp_path))))
        tell(0.5)
    seen.append(str(progress_file.read(str(tmp_path))))
    with task.stage("mux", 2, of=4) as same:
        assert same is task
        tell(450, 900, "frames", "audio")
        tell(text="waiting")
        tell(12, None, "files")
        with task.stage("video", 2, of=2):
            tell(0.5, "pass 1")
        with task.stage("check"):
            tell(0.5)
    with task.stage("upload", 4, of=4):
        tell(1.0)
    tell(0.5, "outside")

    assert seen == [
        "0 % decode",
        "0.125 decode",
        "0.25 decode",
        "0.375 mux: 450/900 frames audio",
        "0.375 mux: waiting",
        "0.375 mux: 12 files",
        "0.4375 mux: video: pass 1",
        "0.375 mux: check",
        "100 % upload",
        "0.5 outside",
    ]
    assert read_progress(seen[6]) == (0.4375, "mux: video: pass 1")


def test_a_stage_without_numbers_is_a_name_and_wrong_numbers_are_said_once(tmp_path, capfd):
    task = RunningTask("t1", {}, str(tmp_path))
    with task.stage("mux"):
        task.progress(3, 4, "frames")
        assert str(progress_file.read(str(tmp_path))) == "3/4 frames mux"
    assert capfd.readouterr().err == ""
    for number, of in ((0, 3), (4, 3), (1, 0), ("2", 3), (2, None), (None, 3)):
        with task.stage("mux", number, of=of):
            task.progress(0.5)
            assert str(progress_file.read(str(tmp_path))) == "0.5 mux"
    assert (
        capfd.readouterr().err
        == "-- blueque: task.stage: not the number of a stage: 0 of 3; this warning appears once --\n"
    )


def test_a_stage_without_numbers_moves_nothing(tmp_path):
    task = RunningTask("t1", {}, str(tmp_path))

    def seen():
        return str(progress_file.read(str(tmp_path)))

    with task.stage("load"):
        assert seen() == "load"
    assert seen() == "load"
    with task.stage("mux", 1, of=2):
        task.progress(0.5)
        with task.stage("flush"), task.stage("disk"):
            assert seen() == "0.25 mux: flush: disk"
            task.progress(0.75)
        assert seen() == "0.375 mux: flush: disk"
        task.progress(text="waiting")
        assert seen() == "0.375 mux: waiting"


def test_a_stage_that_fails_is_left_where_it_was(tmp_path):
    task = RunningTask("t1", {}, str(tmp_path))

    def encode():
        with task.stage("mux", 1, of=2), task.stage("video", 2, of=2):
            task.progress(0.5)
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        encode()
    assert str(progress_file.read(str(tmp_path))) == "0.375 mux: video"
    task.progress(0.75, "tidying up")
    assert str(progress_file.read(str(tmp_path))) == "0.75 tidying up"


# Without a task


def test_outside_of_a_task_the_current_one_has_no_id_and_does_nothing():
    task = current_task()
    task.progress(1, 2)
    assert list(task.track([1, 2])) == [1, 2]
    with task.stage("mux", 2, of=3):
        task.progress(0.5)
    assert (task.id, task.status, task.parameters, task.attempt) == ("", None, None, None)
    assert (task.should_stop, task.resources) == (False, {})
    assert current_task() is task


# In a program


def test_a_program_that_a_task_has_started_finds_its_task(programs):
    program = programs.write(PROGRAM, "program.sh", mode=0o755)
    programs.listener("--exec", str(program), environ={"PYTHON": sys.executable})
    task_id = programs.client.get_queue("work").enqueue("a.mov")
    done = outcome(programs.client, task_id)
    assert done.result == str([task_id, 1, "work", "a.mov"]), done.error
    assert str(progress_file.read(done.files.partition(":")[2])) == "3/4 rounds"


def test_a_program_with_the_files_of_another_task_knows_of_its_own_what_the_environment_says(
    tmp_path,
):
    tell = "from blueque import current_task as task; print(task().id, task().attempt, task().queue, task().parameters)"
    environ = {
        "BLUEQUE_TASK_ID": "t1",
        "BLUEQUE_TASK_DIR": str(tmp_path),
        "BLUEQUE_QUEUE": "work",
        "BLUEQUE_ATTEMPT": "7",
    }
    said = subprocess.check_output(
        [sys.executable, "-c", tell],
        text=True,
        env=clean_environment() | environ | {"PYTHONPATH": str(ROOT)},
    )
    assert said == "t1 7 work None\n"


@pytest.mark.parametrize(
    ("its", "said"), [({}, "1"), ({"PYTHONUNBUFFERED": "x"}, "x"), ({"PYTHONUNBUFFERED": ""}, "")]
)
def test_python_programs_print_line_by_line_unless_the_user_has_decided_about_that(
    programs, its, said
):
    programs.listener("--exec", "sh", environ=its)
    task_id = programs.client.get_queue("work").enqueue('echo "<$PYTHONUNBUFFERED>"')
    assert outcome(programs.client, task_id).result == f"<{said}>"


TELL = """echo "0.42 encoding" >"$BLUEQUE_PROGRESS"
    echo "$BLUEQUE_NODE|$BLUEQUE_DEADLINE|$BLUEQUE_PROGRESS|$TQDM_MININTERVAL" """


@pytest.mark.parametrize(("its", "interval"), [({}, "5"), ({"TQDM_MININTERVAL": "0.1"}, "0.1")])
def test_a_program_finds_its_node_its_deadline_and_its_progress_file_in_its_environment(
    programs, its, interval
):
    programs.listener("--exec", "sh", environ={"BLUEQUE_DEADLINE": "7", **its})
    queue = programs.client.get_queue("work")
    ends = [
        outcome(programs.client, queue.enqueue(TELL, **limit))
        for limit in ({}, {"time_limit": 3600})
    ]

    for task, has_deadline in zip(ends, (False, True), strict=True):
        node, deadline, progress, said = task.result.split("|")
        assert (node, progress) == (task.node, f"{task.files.partition(':')[2]}/progress")
        assert said == interval
        assert task.progress == "0.42 encoding"
        assert 0 <= float(deadline) - 3600 - task.started < 60 if has_deadline else deadline == ""


# Tasks that it makes


def test_outside_of_a_task_none_can_be_made(url, monkeypatch):
    monkeypatch.setenv("BLUEQUE_REDIS_URL", url)
    task = current_task()

    for call in (lambda: task.spawn("parts", 1, key="a"), lambda: task.spawn_many([])):
        with pytest.raises(InvalidInput, match=r"^task.spawn: not inside a task"):
            call()


@pytest.fixture
def started(client, queue):
    """A task that has started, as its handler sees it."""
    queue.enqueue("in")
    listener = client.get_listener("video")
    processor = client.get_processor(listener.listen())
    processor.start(77)
    task = RunningTask(processor.task.id, processor.task.fields, None)
    yield task
    task.disconnect()


@pytest.fixture
def _in_this_redis(url, monkeypatch):
    monkeypatch.setenv("BLUEQUE_REDIS_URL", url)


@pytest.mark.usefixtures("_in_this_redis")
def test_many_tasks_are_made_in_several_transactions_each_once(started, client, cli):
    first = started.spawn("parts", "first", key=0)
    tasks = [New("parts", n, key=n) for n in range(450)]
    tasks += [New("joins", n, key=f"join {n}", after=started.spawned_id(n)) for n in range(150)]

    made = started.spawn_many(tasks)

    assert made == [started.spawned_id(task.key) for task in tasks] and made[0] == first
    assert [task.is_new for task in made] == [False] + [True] * 599
    assert cli.llen("blueque_pending_tasks_parts") == 450
    assert cli.zcard("blueque_blocked_tasks_joins") == 150
    assert not any(task.is_new for task in started.spawn_many(tasks))


@pytest.mark.usefixtures("_in_this_redis")
def test_what_does_not_fit_into_a_transaction_is_refused(started, cli):
    parts = started.spawn_many([New("parts", n, key=n) for n in range(101)])
    with pytest.raises(InvalidInput, match="wait for more than 100 others"):
        started.spawn("joins", "all", key="join", after=parts)
    with pytest.raises(InvalidType, match=r"a new task is a blueque.New, not dict"):
        started.spawn_many([{"queue": "parts"}])
    assert cli.exists("blueque_tasks_joins") == 0
