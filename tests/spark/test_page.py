"""docs/pipelines.md is run: its blocks of Python, one after the other, in one session."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

from running import ROOT

from spark.seeds import DAY, seed

BLOCKS = re.findall(
    r"^```python\n(.*?)^```$", (ROOT / "docs" / "pipelines.md").read_text(), re.M | re.S
)
SCENES = 12


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

    for block in BLOCKS:
        exec(compile(_here(block, tmp_path, url), "pipelines.md", "exec"), names)
    names["night"]("2026-11-22", spark)
    names["morning"]("2026-11-22", spark)

    assert capsys.readouterr().out.splitlines()[0] == f"True {SCENES} 0 {SCENES}"
    assert cli.llen("blueque_pending_tasks_proxies") == SCENES
    # Two runs, the batch of the stream, and that of foreachBatch.
    assert cli.llen("blueque_pending_tasks_render") == 2 * SCENES + 5 + 5
    assert names["history"].count() == 30
    assert cli.llen("blueque_complete_tasks_render") == 0
    assert "<svg" in Path("report.html").read_text()
    assert Path("report-2026-11-22.html").exists()


def _here(block: str, directory: Path, url: str) -> str:
    """Return the block for a session whose Java process is older than our environment and our
    directory.
    """
    for name in ("scenes/", "incoming/", "archive/", "checkpoints/"):
        block = block.replace(f'"{name}', f'"{directory}/{name}')
    return block.replace('.format("blueque")', f'.format("blueque").option("url", "{url}")')
