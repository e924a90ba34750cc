"""What each page answers, which command does the same, the keys, and the words."""

from __future__ import annotations

from typing import NamedTuple

from blueque.faces.orders import ORDERS
from blueque.web.visit import Page, Visit


class Answer(NamedTuple):
    """A page: its name, the question that it answers, and the commands that answer it, too."""

    path: str
    word: str
    question: str
    commands: tuple[str, ...] = ()
    is_order: bool = False  # only operators have it


ANSWERS = (
    Answer("/", "Overview", "Is anything wrong now? What runs, what waits?", ("status",)),
    Answer("/queues", "Queues", "Does each queue keep up?", ("queue ls", "queue show QUEUE")),
    Answer("/tasks", "Tasks", "Which tasks are there? Find them, and act on many.", ("ls",)),
    Answer(
        "/tasks",
        "A task",
        "How far is it, and what does it print? Why does it wait?",
        ("show ID", "why ID", "logs -f ID", "history ID"),
    ),
    Answer(
        "/nodes",
        "Hosts",
        "Which hosts work or are idle, and what ran when?",
        ("timeline", "host ls"),
    ),
    Answer("/failures", "Failures", "What fails, since when, and on which hosts?", ("failures",)),
    Answer(
        "/schedule",
        "Schedule",
        "What runs when? How did recurring tasks end?",
        ("schedule ls", "schedule show NAME"),
    ),
    Answer("/groups", "Groups", "How far are groups and feeds?", ("group ls", "graph ID")),
    Answer(
        "/statistics", "Statistics", "How long do tasks wait and run? How many fail?", ("stats",)
    ),
    Answer("/doctor", "Doctor", "Is Redis healthy, and is its data consistent?", ("doctor",)),
    Answer("/activity", "Activity", "Who did what, and when?", ("history -q '*'",)),
    Answer("/new", "New task", "Enqueue a task by hand.", ("enqueue QUEUE JSON",), True),
    Answer("/settings", "Settings", "Time zone and colours."),
)
KEYS = (
    ("/", "find a task, a queue, a host or words"),
    (".", "pause the changes of the page, and go on"),
    ("?", "this page"),
)
STATES = (
    ("blocked", "It waits for other tasks."),
    ("scheduled", "It waits for a time."),
    ("pending", "It waits in its queue for a listener."),
    ("reserved", "A listener has taken it and is about to start it."),
    ("started", "Its process runs."),
    ("complete", "It has succeeded."),
    ("failed", "It has failed, or its host is gone."),
    ("cancelled", "A person or a program has cancelled it."),
)


def help(visit: Visit) -> Page:
    """Return the page that explains the others."""
    answers = [each for each in ANSWERS if visit.may_act or not each.is_order]
    orders = [
        (order.word, sorted(order.states), f"blueque {order.command}") for order in ORDERS.values()
    ]
    context = {"answers": answers, "orders": orders, "keys": KEYS, "states": STATES}
    return Page("help.html", {**context, "is_live": False})
