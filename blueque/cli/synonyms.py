"""Words that users of other programs type, and the command that does the same here.

A key is what follows `blueque`: a word, two words, or a noun and a word.
"""

from __future__ import annotations

_PENDING = "blueque ls --state pending"
_LISTENER = "blueque-listener QUEUE"
_EMPTY = "blueque delete -q QUEUE --state pending,scheduled,blocked"
_PRIORITY = "blueque move ID --priority N"
_NOW = "blueque move ID --now"
_RECURRING = "blueque schedule trigger SCHEDULE"
_REMOVE = (
    "blueque delete ID, blueque queue forget QUEUE, blueque group forget GROUP or "
    "blueque schedule rm SCHEDULE"
)
_REOPEN = "blueque group close GROUP --reopen"

MEANT: dict[str, str] = {
    # tasks
    **dict.fromkeys(("retry", "rerun", "restart", "redo"), "blueque requeue ID"),
    **dict.fromkeys(
        ("kill", "abort", "stop", "revoke", "term", "terminate", "end"), "blueque cancel ID"
    ),
    **dict.fromkeys(("preempt", "evict"), "blueque interrupt ID"),
    **dict.fromkeys(("list", "tasks", "ps", "jobs", "get tasks", "get jobs"), "blueque ls"),
    **dict.fromkeys(("active", "running", "inspect active"), "blueque ls --state started"),
    **dict.fromkeys(("peek", "next", "pending", "waiting"), _PENDING),
    "inspect reserved": "blueque ls --state reserved",
    "inspect scheduled": "blueque ls --state scheduled",
    **dict.fromkeys(("find", "search", "grep"), "blueque ls --text WORDS"),
    **dict.fromkeys(("describe", "inspect", "get", "describe task", "get task"), "blueque show ID"),
    "info": "blueque status, or blueque show ID",
    **dict.fromkeys(
        ("result", "results", "task result", "task results"),
        "blueque show ID, or blueque wait ID, or for many tasks: blueque export",
    ),
    **dict.fromkeys(
        ("submit", "push", "put", "send", "delay", "apply_async", "call", "create", "new", "add"),
        "blueque enqueue QUEUE JSON",
    ),
    **dict.fromkeys(("log", "tail", "output", "follow", "attach"), "blueque logs -f ID"),
    **dict.fromkeys(("rm", "remove", "drop", "erase", "discard", "forget"), _REMOVE),
    **dict.fromkeys(("prune", "clean", "cleanup"), "blueque delete --kept-too-long"),
    **dict.fromkeys(("purge", "clear", "empty", "flush", "queue purge", "queue clear"), _EMPTY),
    **dict.fromkeys(("priority", "prioritize", "renice", "bump", "task priority"), _PRIORITY),
    **dict.fromkeys(("first", "task first"), "blueque move ID --first"),
    **dict.fromkeys(("unblock", "unhold", "task unblock"), "blueque move ID --unblock"),
    **dict.fromkeys(("migrate", "transfer"), "blueque move ID --to QUEUE"),
    "now": _NOW,
    "task run": f"{_NOW}; a new one: blueque run QUEUE JSON",
    **dict.fromkeys(("dag", "tree", "dependencies", "deps"), "blueque graph ID"),
    **dict.fromkeys(("trace", "traceback", "py-spy"), "blueque stack ID"),
    # queues
    **dict.fromkeys(
        ("queues", "lines", "count", "size", "length", "get queues", "inspect active_queues"),
        "blueque queue ls",
    ),
    "describe queue": "blueque queue show QUEUE",
    **dict.fromkeys(("delete-queue", "remove-queue"), "blueque queue forget QUEUE"),
    "queue peek": f"{_PENDING} -q QUEUE",
    **dict.fromkeys(("queue count", "queue size", "queue length"), "blueque queue ls"),
    **dict.fromkeys(
        ("limit", "scale", "concurrency", "queue limit", "set-limit"),
        "blueque queue set QUEUE max-running=N",
    ),
    # hosts
    **dict.fromkeys(
        ("nodes", "node", "workers", "listeners", "hosts", "get nodes", "get hosts", "get workers"),
        "blueque host ls",
    ),
    **dict.fromkeys(("node ls", "worker ls", "worker list", "inspect ping"), "blueque host ls"),
    **dict.fromkeys(("node show", "describe node", "describe host"), "blueque host show HOST"),
    **dict.fromkeys(("node pause", "cordon", "host cordon"), "blueque host pause HOST"),
    **dict.fromkeys(
        ("node resume", "uncordon", "host uncordon", "host undrain"), "blueque host resume HOST"
    ),
    **dict.fromkeys(("node drain", "quiet", "control shutdown"), "blueque host drain HOST"),
    **dict.fromkeys(("gpu", "gpus", "resources", "host gpus"), "blueque host show HOST"),
    **dict.fromkeys(
        ("host forget", "host rm", "host remove", "host delete"),
        "blueque host drain HOST; a host without listeners is forgotten by itself",
    ),
    **dict.fromkeys(("listener", "listen", "worker", "work", "start", "serve-queue"), _LISTENER),
    # groups
    **dict.fromkeys(
        ("workflow", "workflows", "runs", "batch", "batches", "groups", "feeds", "get groups"),
        "blueque group ls",
    ),
    **dict.fromkeys(("workflow cancel", "batch cancel"), "blueque group cancel NAME"),
    "group results": "blueque export --group GROUP",
    "group graph": "blueque graph GROUP",
    "group wait": "blueque wait --group GROUP",
    **dict.fromkeys(("reopen", "group reopen", "group open"), _REOPEN),
    # schedules
    **dict.fromkeys(("schedules", "recurring"), "blueque schedule ls"),
    "cron": "blueque schedule add SCHEDULE --dry-run",
    "scheduled": "blueque ls --state scheduled",
    **dict.fromkeys(
        ("schedule set", "schedule edit", "schedule change", "schedule update"),
        "blueque schedule add SCHEDULE --replace, with all options: the others get defaults",
    ),
    "schedule preview": "blueque schedule add SCHEDULE --dry-run",
    "schedule check": "blueque schedule apply --dry-run",
    "schedule backfill": "blueque schedule trigger SCHEDULE --since TIME",
    "schedule run": f"{_RECURRING}; a task that is scheduled once: {_NOW}",
    "schedule now": _RECURRING,
    "unschedule": (
        "blueque schedule rm SCHEDULE, or blueque schedule pause SCHEDULE; a task that is scheduled"
        " once: blueque cancel ID"
    ),
    **dict.fromkeys(("scheduler", "beat", "enqueue_due_tasks"), "blueque-scheduler"),
    # reports and the rest
    **dict.fromkeys(("top", "monitor", "dash", "watch"), "blueque status --watch"),
    **dict.fromkeys(("dashboard", "ui", "serve", "flower"), "blueque web"),
    **dict.fromkeys(("stat", "statistics", "inspect stats"), "blueque stats"),
    **dict.fromkeys(("errors", "failed"), "blueque failures"),
    "events": "blueque history -q '*' -f",
    **dict.fromkeys(("audit", "activity", "who"), "blueque history -q '*' --on people"),
    **dict.fromkeys(("check", "health", "fsck", "ping"), "blueque doctor"),
    **dict.fromkeys(("gc", "repair", "fix"), "blueque doctor --fix"),
    "exporter": "blueque metrics",
    "csv": "blueque export --format csv",
    **dict.fromkeys(("version", "versions"), "blueque --version"),
    "settings": "blueque config",
    "setup": "blueque init",
    **dict.fromkeys(("help codes", "help exit", "help exit-code"), "blueque help exit-codes"),
    **dict.fromkeys(("help commands", "help all"), "blueque help verbs"),
}

# Words for verbs: the first of these verbs that the noun has is meant; without a noun, that of any.
VERBS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("list", "all"), ("ls",)),
    **dict.fromkeys(("edit", "change", "update", "config"), ("set", "add")),
    **dict.fromkeys(
        ("remove", "delete", "drop", "purge", "rm", "forget"), ("rm", "forget", "delete")
    ),
    **dict.fromkeys(("create", "new", "add", "set"), ("add", "set")),
    **dict.fromkeys(("describe", "info", "get", "inspect"), ("show",)),
    **dict.fromkeys(("retry", "rerun"), ("requeue",)),
    **dict.fromkeys(("kill", "stop", "terminate", "abort", "revoke"), ("cancel", "pause")),
    **dict.fromkeys(("suspend", "hold", "disable", "off"), ("pause",)),
    **dict.fromkeys(("start", "unpause", "continue", "enable", "on"), ("resume",)),
    **dict.fromkeys(("run", "fire", "now"), ("trigger",)),
    **dict.fromkeys(("log", "tail", "output"), ("logs",)),
    **dict.fromkeys(("events", "activity"), ("history",)),
}

_TIMES = "a time is given with --in DURATION or --at TIME"

# Options of other programs, and the one of the same meaning that a verb here may have.
SAME_OPTIONS: dict[str, str] = {
    "-y": "--yes",
    **dict.fromkeys(("-o", "--output"), "--json"),
    **dict.fromkeys(("-w", "--interval"), "--watch"),
    **dict.fromkeys(("--tail", "--lines"), "-n"),
    "--days": "--since",
    "--host": "--listen",
    **dict.fromkeys(("--run", "--runs", "--batch", "--workflow"), "--group"),
}

# Options of other programs, by the verb here that lacks them, or "" for any: what to use.
OPTIONS: dict[str, dict[str, str]] = {
    "": {
        **dict.fromkeys(("--count", "--size"), "blueque queue ls, or blueque status, counts tasks"),
        **dict.fromkeys(
            ("--result", "--results"), "blueque show ID and blueque export have results"
        ),
        "--csv": "blueque export --format csv writes CSV",
    },
    "enqueue": dict.fromkeys(("--eta", "--delay", "--countdown"), _TIMES),
    "move": {"--queue": "the queue to move to is given with --to QUEUE"},
    "delete": dict.fromkeys(
        ("--older-than", "--older"),
        "use --kept-too-long, or --until AGE for tasks that ended before then",
    ),
    "web": {"--port": "the port is given with --listen HOST:PORT"},
    "ls": {"-n": "the number of tasks is given with --limit N"},
    "requeue": {"--failed": "use: blueque requeue -q '*' --state failed"},
    "blueque-listener": {
        "--concurrency": "the number of tasks at a time is given with --slots N",
        "--burst": "use --until-empty",
        "--with-scheduler": "blueque-scheduler is a program of its own",
        "--queue": "the queue is an argument: blueque-listener QUEUE",
        "-q": "the queue is an argument: blueque-listener QUEUE",
    },
}
