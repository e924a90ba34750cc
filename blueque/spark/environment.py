"""The environment variables of Spark, and where Java and spark-submit are. Needs no pyspark, whose
import takes a second.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import site
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from blueque.errors import InvalidInput, NotInstalled

_HERE = Path(__file__).parent
# in a checkout only; an installed package has its content elsewhere
_DISCOVERY = _HERE / "discovery"
# variables of a process whose Java another program has started
_RUNS_ALREADY = {"PYSPARK_GATEWAY_PORT", "SPARK_REMOTE"}


def prepare(environ: MutableMapping[str, str], is_local: bool) -> None:
    """Set the variables that Java and the workers need, before Java starts. Raises NotInstalled.

    is_local: the workers are on this machine.
    """
    if not _RUNS_ALREADY & environ.keys():
        find_java(environ)
    environ.setdefault("PYSPARK_DRIVER_PYTHON", environ.get("PYSPARK_PYTHON", sys.executable))
    if is_local:
        # else it is the python3 in PATH, as on a cluster
        environ.setdefault("PYSPARK_PYTHON", sys.executable)
        # else it warns of host names that resolve to the loopback
        environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    known = [path for path in environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    missing = [path for path in _import_paths() if path not in known]
    if missing:
        environ["PYTHONPATH"] = os.pathsep.join([*missing, *known])


def default_master(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return $MASTER, else all cores of this machine; None if Spark is configured otherwise."""
    if _RUNS_ALREADY & environ.keys() or "--master" in environ.get("PYSPARK_SUBMIT_ARGS", ""):
        return None
    return (
        None
        if _is_configured("spark-defaults.conf", environ)
        else environ.get("MASTER") or "local[*]"
    )


def quiet_log(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return options that make Spark log only errors, unless its logging is configured."""
    if _is_configured("log4j2.properties", environ):
        return {}
    return {
        "spark.driver.defaultJavaOptions": f"-Dlog4j2.configurationFile={(_HERE / 'quiet.properties').as_uri()}"
    }


def option(name: str, value: object) -> tuple[str, str]:
    """Return the name and value of an option: `spark_driver_memory` is spark.driver.memory."""
    if name.startswith("spark_"):
        name = name.replace("_", ".")
    if not name.startswith("spark."):
        raise InvalidInput(f"{name!r} is not an option of Spark: their names begin with spark.")
    if value is None:
        raise InvalidInput(f"option {name} of Spark is None: leave it out")
    return name, str(value).lower() if isinstance(value, bool) else str(value)


def find_java(environ: Mapping[str, str] = os.environ) -> str:
    """Return the path of the Java that Spark would run. Raises NotInstalled."""
    home = environ.get("JAVA_HOME")
    found = shutil.which(
        os.path.join(home, "bin", "java") if home else "java", path=environ.get("PATH")
    )
    if found is None:
        how = "apt install default-jre-headless"
        if home:
            how = f"there is none in JAVA_HOME, {home}: correct that, or {how}"
        raise NotInstalled("Spark", "Java 17 or newer", how=how)
    return found


def find_submit(environ: Mapping[str, str] = os.environ) -> str:
    """Return the path of spark-submit. Raises NotInstalled; InvalidInput for a wrong SPARK_HOME."""
    home = environ.get("SPARK_HOME")
    if not home:
        package = importlib.util.find_spec("pyspark")
        if package is None or not package.submodule_search_locations:
            raise NotInstalled("blueque.spark.submit", "pyspark", "spark")
        home = package.submodule_search_locations[0]
    path = os.path.join(home, "bin", "spark-submit")
    if not os.access(path, os.X_OK):
        raise InvalidInput(f"there is no program {path}: is SPARK_HOME right?")
    return path


def _import_paths() -> list[str]:
    """Return the directories in which workers find Blueque, without those where every Python looks."""
    if _DISCOVERY.is_dir():
        return [str(_HERE.parent.parent), str(_DISCOVERY)]
    usual = {*site.getsitepackages(), site.getusersitepackages()}
    return [] if str(_HERE.parent.parent) in usual else [str(_HERE.parent.parent)]


def _is_configured(name: str, environ: Mapping[str, str]) -> bool:
    """Return whether the installation of Spark has a configuration file of this name."""
    directory = environ.get("SPARK_CONF_DIR") or os.path.join(environ.get("SPARK_HOME", ""), "conf")
    return os.path.isabs(directory) and os.path.exists(os.path.join(directory, name))
