"""The pages of the reference of the API. mkdocstrings fills them from signatures and docstrings."""

from __future__ import annotations

import inspect
import re
from pkgutil import resolve_name

import blueque
from blueque import errors, spark, testing

# What is not a name of `blueque` itself is what its methods return.
PAGES = {
    "Client": ["Client"],
    "AsyncClient": ["AsyncClient", "AsyncQueue"],
    "Queue and new tasks": ["Queue", "New", "Then", "Count", "TaskId"],
    "Task": ["Task", "Status"],
    "Groups and workflows": [
        "producer.groups.TaskGroup",
        "Group",
        "producer.workflow.Workflow",
        "producer.fanout.Fanout",
        "After",
        "after",
    ],
    "Schedules": ["producer.schedules.Schedule"],
    "Handlers": ["handler", "QueueHandler", "Handler", "Fail", "HandBack", "RetryLater"],
    "The running task": ["RunningTask", "current_task"],
    "Retry": ["Retry"],
    "Errors": [name for name, module in blueque._MODULES.items() if module == "errors"],
    "Inspector, history, statistics": [
        "Inspector",
        "queries.history.History",
        "queries.history.Event",
        "queries.timeline.Timeline",
        "queries.statistics.Statistics",
    ],
    "Listeners": [
        "Listener",
        "Processor",
        "ForkingRunner",
        "Ordered",
        "ReducedLottery",
        "RoundRobin",
    ],
    "Settings, feeds, archives": ["Config", "feed", "archive"],
    "blueque.testing": [f"testing.{name}" for name in testing.__all__],
    "blueque.spark": [f"spark.{name}" for name in spark.__all__],
}
CONTENTS = "api/index.md"


def pages() -> dict[str, bytes]:
    """Return the text of each page by its place in the site."""
    lines = [contents(title, names) for title, names in PAGES.items()]
    found = {place(title): page(title, names) for title, names in PAGES.items()}
    found[CONTENTS] = "\n".join(["# API", "", *lines, ""])
    return {name: text.encode() for name, text in found.items()}


def contents(title: str, names: list[str]) -> str:
    link = f"- [{title}]({place(title).removeprefix('api/')})"
    if title in ("Errors", *names):
        return link
    return f"{link}: {', '.join(name.rpartition('.')[2] for name in names)}"


def place(title: str) -> str:
    return f"api/{re.sub('[^a-z.]+', '-', title.lower())}.md"


def page(title: str, names: list[str]) -> str:
    if len(names) == 1:
        return f"::: blueque.{names[0]}\n    options:\n      heading_level: 1\n"
    head = [f"# {title}\n", *(tree() if title == "Errors" else [])]
    return "\n".join([*head, *(f"::: blueque.{name}\n{inherited(name)}" for name in names)])


def inherited(name: str) -> str:
    """Return the options that show what a class has from classes that are on no page.

    The names of `blueque.spark` inherit nothing, and cannot be imported without pyspark.
    """
    if name.startswith("spark."):
        return ""
    every = [each for names in PAGES.values() for each in names if not each.startswith("spark.")]
    things = [resolve_name(f"blueque.{each}") for each in every]
    own = resolve_name(f"blueque.{name}")
    unshown = [
        base
        for base in (own.__mro__[1:] if inspect.isclass(own) else ())
        if base not in things and base.__module__.startswith("blueque.")
    ]
    if not unshown:
        return ""
    found = [member for each in (own, *unshown) for member in vars(each) if member[0] != "_"]
    listed = [*dict.fromkeys(found)]
    return f"    options:\n      inherited_members: {listed}\n      members: {listed}\n"


def tree() -> list[str]:
    """Return the docstring of errors.py, which draws a tree, as lines of Markdown."""
    prose, head, drawing = (inspect.getdoc(errors) or "").partition("BluequeError\n")
    return [prose, f"```{{ .text .tree }}\n{head}{drawing}\n```\n"]
