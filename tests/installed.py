"""Run a task with a Blueque that is installed: `PYTHON tests/installed.py` says what has run it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import blueque
from blueque.system.embedded_redis import running_server

WORK = """
import platform
import blueque

def run(task):
    return [task.parameters, platform.python_version(), blueque.__file__]
"""


def main() -> None:
    scripts = sysconfig.get_path("scripts")
    with tempfile.TemporaryDirectory() as directory, running_server() as server:
        Path(directory, "work.py").write_text(WORK)
        client = blueque.Client(server.url)
        task = client.get_queue("work").enqueue({"scene": "intro"})
        command = [f"{scripts}/blueque-listener", "work", "--handler", "work:run", "--until-empty"]
        command += ["--log-level", "warning"]
        environ = {**os.environ, "BLUEQUE_REDIS_URL": server.url, "BLUEQUE_SPOOL": directory}
        subprocess.run(command, cwd=directory, env=environ, check=True, timeout=60)
        ended = client.get_task(task)
    assert ended.result == [{"scene": "intro"}, platform.python_version(), blueque.__file__], ended
    assert Path(blueque.__file__).is_relative_to(sys.prefix), f"not installed: {blueque.__file__}"
    print(f"a task ran with {blueque.__file__}")


if __name__ == "__main__":
    main()
