"""The oldest Spark that we take, in an environment of its own: `.venv-spark-3.5` beside `.venv`,
where it has all but pyspark from.

`python -m spark.oldest ARGUMENTS` in tests/ is `python ARGUMENTS` there.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

import environments
from running import ROOT, TEST_PATHS, clean_environment

DIRECTORY = ROOT / ".venv-spark-3.5"
REQUIREMENTS = ["pyspark==3.5.*"]
NEWEST = "NEWEST_SPARK"  # the variable that says there which Python has it
HAS_SOURCES = find_spec("pyspark.sql.datasource") is not None  # 3.5 has none in Python

_IS_RIGHT = """\
import sys, pyspark, blueque
sys.exit(not pyspark.__version__.startswith("3.5") or not pyspark.__file__.startswith(sys.argv[1]))
"""


def python(*arguments: str) -> int:
    """Run a program with it, and return the exit code. Raises EnvironmentMissing."""
    environments.install(DIRECTORY, REQUIREMENTS, _IS_RIGHT, sees_ours=True)
    command = [environments.python_of(DIRECTORY), *arguments]
    # What a session of the newest Spark has set in this process is not for the oldest.
    environ = {
        name: text
        for name, text in clean_environment().items()
        if not name.startswith(("SPARK_", "PYSPARK_"))
    }
    environ["PYTHONPATH"] = os.pathsep.join(TEST_PATHS)
    environ[NEWEST] = sys.executable
    return subprocess.run(command, cwd=ROOT, env=environ).returncode


if __name__ == "__main__":
    sys.exit(python(*sys.argv[1:]))
