"""docs/pipelines.md is run: its blocks of Python, one after the other, in one session."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from types import SimpleNamespace

from running import ROOT

from spark.seeds import DAY, seed

BLOCKS = re.findall(
    r"^```python\n(.*?)^```$", (ROOT / "docs" / "pipelines.md").read_text(), re.M | re.S
)
SCENES = 12
WORK = """
    import blueque

    def render(task):
        scene = task.parameters["scene_id"]
        if not task.parameters["camera"]:
            raise blueque.Fail("no camera")
        return {"path": f"/frames/{scene}", "frames": 240}
"""
# Airflow, as far as the page uses it: the sensor is the function itself.
AIRFLOW = SimpleNamespace(
    PokeReturnValue=lambda is_done, xcom_value: (is_done, xcom_value),
    task=SimpleNamespace(sensor=lambda **options: lambda function: function),
)


def test_the_page_does_what_it_says(
    spark, compiled, sources, url, client, cli, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BLUEQUE_REDIS_URL", url)
    rows = [(f"s{number}", "left", "2026-11-22", number) for number in range(SCENES)]
    scenes = spark.createDataFrame(rows, "scene_id string, camera string, day string, frames int")
    scenes.write.parquet(str(tmp_path / "scenes"))
    incoming = Path("incoming")
    incoming.mkdir()
    (incoming / "one.json").write_text(
        "".join(json.dumps({"scene": "s1", "frame": frame}) + "\n" for frame in range(5))
    )
    seed(url, "render", 30, end=time.time() - 8 * DAY)
    names: dict[str, object] = {}
    monkeypatch.setitem(sys.modules, "airflow.sdk", AIRFLOW)

    for block in BLOCKS:
        exec(compile(_here(block, tmp_path, url), "pipelines.md", "exec"), names)
    names["tidy_up"]("2026-11-22", spark)

    assert capsys.readouterr().out.splitlines()[0] == f"True {SCENES} 0 {SCENES}"
    assert cli.llen("blueque_pending_tasks_proxies") == SCENES
    # A frame, and the batch of the stream.
    assert cli.llen("blueque_pending_tasks_render") == SCENES + 5
    assert names["history"].count() == 30
    assert cli.llen("blueque_complete_tasks_render") == 0
    assert "<svg" in Path("report.html").read_text()
    assert Path("report-2026-11-22.html").exists()


def test_a_night_goes_from_rows_to_results_through_failures_late_rows_and_an_archive(
    spark, url, client, cli, programs, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BLUEQUE_REDIS_URL", url)
    monkeypatch.setitem(sys.modules, "airflow.sdk", AIRFLOW)
    columns, day, names = "scene_id string, camera string, day string", "2026-11-22", {}
    rows = [(f"s{number}", "" if number == 3 else "left", day) for number in range(SCENES)]
    spark.createDataFrame(rows, columns).write.parquet(str(tmp_path / "scenes"))
    late = [("s0", "left", day), ("late", "left", day)]
    spark.createDataFrame(late, columns).write.parquet(str(tmp_path / "late"))
    for block in BLOCKS:
        if "def find_work" in block or "def is_rendered" in block:
            here = _here(block, tmp_path, url).replace('f"rendered', f'f"{tmp_path}/rendered')
            exec(compile(here, "pipelines.md", "exec"), names)

    done = names["find_work"](day, spark)
    assert names["is_rendered"](day) == (False, 0)
    programs.listener("work:render", queue="render")
    seen = done.wait(timeout=120)
    assert (seen.complete, seen.bad) == (SCENES - 1, 1)
    assert names["is_rendered"](day) == (True, 1)
    (failed,) = client.get_inspector().listing(["render"], ["failed"], 9).tasks
    cli.hset(f"blueque_task_{failed.id}", "parameters", '{"scene_id":"s3","camera":"right"}')
    assert done.requeue() == [failed.id]
    archived = names["bs"].archive(spark, "render", str(tmp_path / "archive"))
    assert archived.deleted >= SCENES - 1
    again = names["add_late_rows"](day, spark)

    names["collect"](again, spark)

    assert (again.new, again.tasks, again.progress().complete) == (1, SCENES + 1, SCENES + 1)
    found = spark.read.parquet(str(tmp_path / "rendered" / f"render-{day}")).select(
        "key", "status", "result.path", "result.frames"
    )
    wanted = {*(f"s{number}" for number in range(SCENES)), "late"}
    assert {tuple(row) for row in found.collect()} == {
        (scene, "complete", f"/frames/{scene}", 240) for scene in wanted
    }
    assert found.count() == len(wanted)
    assert "collected" in client.group(f"render-{day}").progress().record
    assert names["find_work"](day, spark).is_replay


def _here(block: str, directory: Path, url: str) -> str:
    """Return the block for a session whose Java process is older than our environment and our
    directory.
    """
    for name in ("scenes/", "late/", "incoming/", "archive/", "checkpoints/"):
        block = block.replace(f'"{name}', f'"{directory}/{name}')
    return block.replace('.format("blueque")', f'.format("blueque").option("url", "{url}")')
