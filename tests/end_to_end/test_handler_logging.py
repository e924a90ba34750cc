"""Logging in handlers: the set-up of our programs does not reach the process that runs a task."""

from __future__ import annotations

import json
import logging
import re
import sys

import pytest
from running import ROOT, Programs, outcome

# Becomes a listener whose standard error is the journal, as far as JOURNAL_STREAM says.
UNDER_JOURNAL = """
    import os, sys

    status = os.fstat(2)
    os.environ["JOURNAL_STREAM"] = f"{status.st_dev}:{status.st_ino}"
    os.execv(sys.argv[1], sys.argv[1:])
"""
WORK = """
    import json, logging, os

    def switches(task):
        root, own = logging.getLogger(), logging.getLogger("blueque")
        return {
            "raise": logging.raiseExceptions, "threads": logging.logThreads,
            "processes": logging.logProcesses, "multi": logging.logMultiprocessing,
            "source": logging._srcfile is not None, "root": [root.level, len(root.handlers)],
            "own": [own.level, own.propagate, own.disabled, len(own.handlers)],
        }

    with open("imports", "a") as file:
        file.write(json.dumps(switches(None)) + "\\n")

    def talk(task):
        log = logging.getLogger("mine")
        log.info("unseen")
        log.warning("hello")
        logging.getLogger("blueque").warning("from a library")

    def configure(task):
        where = "%(process)d %(threadName)s %(filename)s %(funcName)s"
        logging.basicConfig(level=logging.DEBUG, format=f"%(levelname)s %(name)s {where} %(message)s")
        log = logging.getLogger("mine")
        log.debug("seen")
        log.info("%s", "one", "too many")
        return os.getpid()

    def run(task):
        return globals()[task.parameters](task)
"""
AS_PYTHON_HAS_THEM = {
    "raise": True,
    "threads": True,
    "processes": True,
    "multi": True,
    "source": True,
    "root": [logging.WARNING, 0],
    "own": [logging.NOTSET, True, False, 0],
}
WAYS = {"warm": (), "cold": ("--no-warm",), "preloaded": ("--preload", "work")}


@pytest.fixture
def programs(url, tmp_path):
    with Programs(url, tmp_path) as programs:
        programs.write(UNDER_JOURNAL, "journal.py")
        yield programs


def listener(programs, *options):
    """Start a listener whose standard error is the journal."""
    before = (sys.executable, str(programs.directory / "journal.py"))
    return programs.listener("work:run", *options, before=before)


def run(programs, parameters=""):
    """Run a task; return it and its standard error."""
    task = outcome(programs.client, programs.client.get_queue("work").enqueue(parameters))
    return task, (programs.directory / "spool" / f"{task.id}@1" / "stderr").read_text()


@pytest.mark.parametrize("options", WAYS.values(), ids=WAYS)
def test_a_task_process_has_logging_as_python_has_it(programs, options):
    programs.write(WORK)
    listener(programs, *options)

    assert run(programs, "switches")[0].result == AS_PYTHON_HAS_THEM
    assert run(programs, "talk")[1] == "hello\nfrom a library\n"
    task, printed = run(programs, "configure")
    assert printed.startswith(f"DEBUG mine {task.result} MainThread work.py configure seen\n")
    # Shown, not swallowed: Python's own word for a mistake in a call.
    assert "not all arguments converted during string formatting" in printed

    imports = map(json.loads, (programs.directory / "imports").read_text().splitlines())
    for found in imports:
        assert found == AS_PYTHON_HAS_THEM


@pytest.mark.parametrize(("form", "line"), [("text", "<6>complete"), ("json", '{"at"')])
def test_only_the_listener_writes_as_the_journal_or_a_collector_wants_it(programs, form, line):
    programs.write(WORK)
    started = listener(programs, "--log-format", form)

    assert run(programs, "talk")[1] == "hello\nfrom a library\n"
    started.says("complete task=")
    assert started.lines("complete task=")[0].startswith(line)


def test_configuration_in_the_module_of_a_handler_works_and_leaves_the_listener_alone(programs):
    programs.write("""
        import logging

        logging.basicConfig(level=logging.DEBUG, format="OWN %(levelname)s %(message)s")

        def run(task):
            logging.debug("hello")
    """)
    started = listener(programs)

    assert run(programs)[1] == "OWN DEBUG hello\n"
    started.says("complete task=")
    assert "OWN" not in started.log


def test_a_preloaded_module_that_configures_logging_leaves_the_log_of_the_listener_alone(programs):
    programs.write("""
        import logging.config

        logging.config.dictConfig({
            "version": 1, "root": {"level": "INFO", "handlers": ["own"]},
            "handlers": {"own": {"class": "logging.StreamHandler", "formatter": "own"}},
            "formatters": {"own": {"format": "OWN %(message)s"}},
        })

        def run(task):
            logging.info("hello")
    """)
    started = listener(programs, "--preload", "work")

    _, printed = run(programs)
    started.says("complete task=")

    assert printed == "OWN hello\n"
    assert "OWN" not in started.log
    assert started.lines("complete task=")[0].startswith("<6>complete")


def test_what_a_preloaded_module_configures_for_our_logger_holds_for_tasks_and_not_for_the_listener(
    programs,
):
    programs.write("""
        import logging

        own = logging.getLogger("blueque")
        own.setLevel(logging.ERROR)
        own.propagate = False
        own.addHandler(logging.StreamHandler())

        def run(task):
            own.warning("hidden")
            own.error("shown")
            return [own.level, own.propagate, len(own.handlers)]
    """)
    started = listener(programs, "--preload", "work")

    task, printed = run(programs)
    started.says("complete task=")

    assert (task.result, printed) == ([logging.ERROR, False, 1], "shown\n")
    assert len(started.lines("complete task=")) == 1


def test_a_preloaded_module_that_configures_logging_and_then_fails_is_told_of(programs):
    programs.write(
        """
        import logging.config

        logging.config.dictConfig({"version": 1})
        raise OSError("no licence")
    """,
        "large.py",
    )
    programs.write("def run(task): return 1")

    started = programs.listener("work:run", "--preload", "large", is_awaited=False)

    assert started.wait() == 78
    assert "cannot preload large: OSError: no licence" in started.log


def test_the_example_of_the_page_prints_what_it_says(programs):
    page = (ROOT / "docs/guide/logging.md").read_text()
    (module,) = re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)
    (shown,) = re.findall(r"^```text\n(.*?)^```$", page, re.M | re.S)
    programs.write(module, "render.py")
    programs.write("from render import render as run")
    listener(programs)

    task, printed = run(programs, {"scene": "intro"})

    assert (task.result, printed) == ("done", shown)
