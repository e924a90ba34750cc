"""The programs in examples/, as their pages say to run them. That of the night is in tests/spark."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys

import httpx
import pytest
from running import PATIENCE, ROOT, until

from blueque import Retry

SHORT = "testsrc=duration=2:size=320x180:rate=10"
# Quick to make, and a minute of work to encode in the size of a television.
LONG = "testsrc=duration=20000:size=32x18:rate=1"


@pytest.fixture
def example(programs):
    """Copy an example to where programs start."""
    return lambda name: shutil.copytree(
        ROOT / "examples" / name, programs.directory, dirs_exist_ok=True
    )


def run_task(programs, handler, parameters):
    """Run a task in a program of its own, and return how it ended, its type of error and its result."""
    module, _, name = handler.partition(":")
    script = f"""
        import json
        from blueque.testing import run_task
        from {module} import {name}

        ended = run_task({name}, {parameters!r})
        result = ended.result if ended.outcome == "complete" else None
        print(json.dumps([ended.outcome, ended.error_type, result]))
    """
    program = programs.script(script)
    assert program.wait() == 0, program.log
    return program.said()[-1]


def make_video(directory, source):
    film = directory / "film.mp4"
    command = ["ffmpeg", "-v", "error", "-y", "-f", "lavfi", "-i", source, "-preset", "ultrafast"]
    subprocess.run([*command, str(film)], check=True)
    return film


def look_at(film):
    show = ["-show_entries", "stream=height:format=duration", "-of", "json"]
    found = json.loads(subprocess.check_output(["ffprobe", "-v", "error", *show, str(film)]))
    return found["streams"][0]["height"], float(found["format"]["duration"])


@contextlib.contextmanager
def serving(programs):
    """Start the service; yield a client of it."""
    service = programs.start(
        [sys.executable, "-m", "uvicorn", "service:app", "--port", "0"],
        environ={"BLUEQUE_REDIS_URL": programs.url},
    )
    service.says("Uvicorn running on")
    (line,) = service.lines("Uvicorn running on")
    address = line.partition("running on ")[2].split()[0]
    with httpx.Client(base_url=address, timeout=PATIENCE) as web:
        yield web


def ended(web, task_id):
    def has_ended():
        seen = web.get(f"/tasks/{task_id}").json()
        return seen["status"] in ("complete", "failed", "cancelled") and seen

    return until(has_ended, what="the end of a task")


def test_a_video_is_uploaded_encoded_once_and_downloaded(example, programs, client):
    example("video")
    programs.listen("--module", "video")
    film = make_video(programs.directory, SHORT)
    with serving(programs) as web:
        assert "<title>Videos" in web.get("/").text
        first, again = [
            web.put("/videos/film.mov", params={"height": 90}, content=film.read_bytes()).json()
            for _ in range(2)
        ]
        assert first["is_new"] and again == {"task": first["task"], "is_new": False}
        assert ended(web, first["task"]) == {
            "title": "film.mov",
            "status": "complete",
            "progress": "2/2 seconds",
            "error": None,
        }
        answer = web.get(f"/tasks/{first['task']}/video")
        assert 'filename="film.mp4"' in answer.headers["content-disposition"]
        film.write_bytes(answer.content)
        assert look_at(film) == (90, 2.0)

        bad = web.put("/videos/letter", params={"urgent": True}, content=b"Dear Ada").json()["task"]
        assert ended(web, bad)["error"].startswith("not a video:")
        assert client.get_task(bad).queue == "video.urgent"
        assert client.get_task(bad).attempt == 1
        assert web.get(f"/tasks/{bad}/video").status_code == 409
        assert web.get("/tasks/none").status_code == 404


def test_a_video_that_is_cancelled_leaves_nothing_and_can_be_encoded_again(example, programs):
    example("video")
    listener = programs.listen("--module", "video")
    film = make_video(programs.directory, LONG).read_bytes()

    def suffixes():
        return sorted(path.suffix for path in (programs.directory / "files").iterdir())

    with serving(programs) as web:
        task = web.put("/videos/long.mov", params={"height": 1080}, content=film).json()["task"]
        for attempt in (1, 2):
            if attempt == 2:
                assert web.post(f"/tasks/{task}/retry").json() == {"status": "pending"}
            until(lambda: suffixes() == ["", ".mp4"], what="an encoding")
            web.delete(f"/tasks/{task}")
            assert ended(web, task)["status"] == "cancelled"
            assert suffixes() == [""]
        assert web.post("/tasks/none/retry").status_code == 404
    assert listener.is_running


def test_a_video_that_cannot_be_written_is_tried_again(example, programs):
    example("video")
    film = make_video(programs.directory, SHORT)
    video = {"source": str(film), "target": f"{programs.directory}/none/film.mp4", "height": 90}
    ended = run_task(programs, "video:encode", video)
    assert ended == ["retried", "subprocess.CalledProcessError", None]


def test_a_training_that_is_killed_goes_on_and_ends_as_one_that_is_not(
    example, programs, client, run
):
    example("training")
    programs.listen("--module", "train")
    trial = {"degree": 5, "rate": 0.1, "epochs": 3000}
    task_id = client.get_queue("trainings").enqueue(trial, retry=Retry(max=1, backoff=0))
    running = until(
        lambda: (task := client.get_task(task_id)).progress and task, what="a checkpoint"
    )
    assert running.status == "started"
    os.kill(running.pid, signal.SIGKILL)
    task = client.wait(task_id, timeout=PATIENCE)

    assert (task.status, task.attempt) == ("complete", 2)
    assert "goes on after epoch" in run("history", task_id).stdout
    assert task.result == run_task(programs, "train:train", trial)[2]


def test_a_sweep_is_made_once_and_its_best_model_is_kept(example, programs, client):
    example("training")
    programs.listen("--module", "train", "--slots", "2")
    environ = {"BLUEQUE_REDIS_URL": programs.url}
    for new in (9, 0):
        sweep = programs.start([sys.executable, "sweep.py", "polynomials"], environ=environ)
        assert sweep.wait() == 0, sweep.log
        first, best = sweep.printed.splitlines()
        assert first == f"{new} new trainings of 9"
        assert "'of': 8, 'best': 'degree 5, rate 0.1'" in best
    assert len(json.loads((programs.directory / "polynomials.json").read_text())) == 6
    (diverged,) = client.get_inspector().listing(["trainings"], ["failed"], 9).tasks
    assert client.get_task(diverged.id).error.startswith("it diverged in epoch ")


def test_a_command_of_django_runs_a_listener(programs, client):
    page = (ROOT / "docs/guide/web-applications.md").read_text()
    blocks = dict(re.findall(r'```python title="([\w.]+)"\n(.*?)```', page, re.S))
    (programs.directory / "shop/management/commands").mkdir(parents=True)
    programs.write(blocks["listen.py"], "shop/management/commands/listen.py")
    programs.write(blocks["articles.py"], "articles.py")
    programs.write("INSTALLED_APPS = ['shop']", "settings.py")
    task_id = client.get_queue("articles").enqueue({"article": 7})
    environ = {
        "BLUEQUE_REDIS_URL": programs.url,
        "DJANGO_SETTINGS_MODULE": "settings",
        "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}",
    }
    command = [sys.executable, "-m", "django", "listen", "articles", "--until-empty"]
    program = programs.start(command, environ=environ)

    assert program.wait() == 0, program.log
    assert client.get_task(task_id).result == "published"
