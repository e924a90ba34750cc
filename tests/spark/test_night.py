"""examples/night, as its page says to run it, in the session of the tests."""

from __future__ import annotations

import shutil
import sys

import pytest
from running import ROOT

DAY = "2026-11-21"


@pytest.fixture
def night(spark, url, programs, tmp_path, monkeypatch):
    """The module, with its data in a directory of the test; its worker listens."""
    shutil.copytree(ROOT / "examples" / "night", tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("BLUEQUE_REDIS_URL", url)
    programs.listen("--module", "render", "--slots", "2")
    import night

    yield night
    del sys.modules["night"]


def test_a_night_makes_each_scene_once_and_leaves_results_an_archive_and_a_report(
    night, spark, programs, capsys, tmp_path
):
    scenes = programs.start([sys.executable, "make_scenes.py", DAY, "30"])
    assert scenes.wait(120) == 0, scenes.log
    for new in (30, 0):
        night.main(DAY)
        assert capsys.readouterr().out == f"{new} new tasks of 30\n0 tasks archived\n"

    def rendered():
        rows = spark.read.parquet(str(tmp_path / "rendered"))
        return [tuple(row) for row in rows.select("key", "path", "frames", "status").collect()]

    wanted = [
        (f"scene-{number:05}", f"frames/scene-{number:05}", number % 20 + 1, "complete")
        for number in range(30)
    ]
    assert sorted(rendered()) == wanted

    night.tidy_up(spark, DAY, older_than="0s")
    assert capsys.readouterr().out == "30 tasks archived\n"
    assert "<svg" in (tmp_path / f"report-{DAY}.html").read_text()
    night.main(DAY)  # of tasks that are in the archive
    assert sorted(rendered()) == wanted


def test_a_night_with_a_bad_scene_says_so_and_holds_its_tasks(night, spark, client, tmp_path):
    scenes = spark.createDataFrame([("good", 2), ("bad", 0)], "scene string, frames long")
    scenes.write.parquet(str(tmp_path / "scenes" / f"day={DAY}"))

    with pytest.raises(SystemExit, match=f"^1 are not complete: blueque group show render-{DAY}$"):
        night.main(DAY)
    rows = spark.read.parquet(str(tmp_path / "rendered")).select("key", "status", "error")
    assert {tuple(row) for row in rows.collect()} == {
        ("good", "complete", None),
        ("bad", "failed", "a scene without frames"),
    }
    assert "collected" not in client.group(f"render-{DAY}").progress().record
