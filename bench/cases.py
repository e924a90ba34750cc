"""All cases, each with its text for the page, its columns and its targets."""

from __future__ import annotations

from bench import (
    backlog,
    dashboards,
    full,
    looking,
    producing,
    recurring,
    selecting,
    telling,
    waiting,
    watching,
    working,
)
from bench.case import Case, Place, Target
from bench.pipeline_cases import PIPELINE_CASES
from blueque.model.queue_order import NAMES


def _web(name: str, wanted: str, bound: float, ours: Place, unit: str) -> Target:
    return Target(f"page: {name}", wanted, bound, False, ours, unit=unit)


CASES = [
    Case(
        "enqueue",
        "Enqueue, one by one",
        "One producer enqueues 4,000 tasks of 100 bytes, one call after the other, each waiting for its answer. The raw "
        "limit sends the transaction of this version over one socket, packed before the clock starts, and waits for "
        "its answers, too. The bytes are what Redis uses more after than before, for each task.",
        producing.enqueue,
        [("rate", "tasks/s"), ("bytes", "bytes in Redis per task")],
        "rate",
        [
            Target(
                "enqueue one by one",
                "1.3 x blueque 1.0.0",
                1.3,
                True,
                ("blueque", "rate"),
                ("blueque_1_0_0", "rate"),
            ),
            Target(
                "enqueue one by one",
                "0.6 x the raw limit",
                0.6,
                True,
                ("blueque", "rate"),
                ("raw", "rate"),
            ),
        ],
        {"raw": "*raw limit*"},
    ),
    Case(
        "bulk",
        "Enqueue, in bulk",
        "One producer enqueues as fast as its library lets it. Blueque's `enqueue_many` gets an iterable of dicts. It makes "
        "JSON and ids inside the clock, and writes 1,000 tasks per transaction, with index and wake-up. The raw limit sends "
        "the same transactions over one socket, each before the answer to the last one has come. They are packed before "
        "the clock starts. A library without a bulk call gets a loop.",
        producing.bulk,
        [("rate", "tasks/s")],
        "rate",
        [
            Target(
                "bulk enqueue",
                "10 x RQ `enqueue_many`",
                10.0,
                True,
                ("blueque", "rate"),
                ("rq", "rate"),
            ),
            Target(
                "bulk enqueue",
                "0.7 x the raw limit",
                0.7,
                True,
                ("blueque", "rate"),
                ("raw", "rate"),
            ),
        ],
        {"raw": "*raw limit*"},
        axis="tasks/s",
        question="How fast does a program fill a queue?\n"
        "This matters where millions of tasks come at once.",
    ),
    Case(
        "keyed",
        "Enqueue, in bulk, with keys",
        "One producer gives an iterable of dicts, whose field `scene` is the key, to `enqueue_many`, in a group and without; "
        "JSON, ids and keys are checked and made inside the clock, and each key makes one task, whoever else makes it. The "
        "raw limits write as many hashes of the same fields, and one LPUSH for a thousand; they look for nothing and keep "
        "no index. They are packed before the clock starts, and one transaction is sent ahead of the answer to the one "
        "before.",
        producing.keyed,
        [("rate", "tasks/s")],
        None,
        [
            Target(
                "`enqueue_many(keys=, group=)`",
                "0.4 x the raw limit of its record",
                0.4,
                True,
                ("group", "rate"),
                ("raw_group", "rate"),
                why="Redis watches each hash, and enters each task in two sets of the group",
            ),
            Target(
                "`enqueue_many(keys=)`",
                "0.4 x the raw limit of its record",
                0.4,
                True,
                ("keys", "rate"),
                ("raw_keys", "rate"),
            ),
        ],
        {
            "group": "keyed, in a group",
            "keys": "keyed, without a group",
            "raw_group": "*raw limit, the record in a group*",
            "raw_keys": "*raw limit, the record without a group*",
            "raw": "*raw limit, the record of 1.0.0*",
        },
    ),
    Case(
        "put_many",
        "A hundred producers at once",
        "A hundred producers in four processes, each with a connection of its own, enqueue 50 tasks of 1 KiB each, one "
        "call after the other (Kestrel's put-many). On two cores this measures how much work a call is.",
        producing.put_many,
        [("rate", "tasks/s"), ("p50", "p50 ms of a call"), ("p99", "p99 ms of a call")],
        "rate",
        [],
    ),
    Case(
        "drain",
        "Drain a line, two tasks at a time",
        "Each task appends 18 bytes to a file. All wait in line when the workers start, and the clock starts when the first "
        "are done. Blueque, 1.0.0 and RQ run a process per task; Blueque also syncs an exit record to the disk. The others "
        "have pools, which work less and protect less. With `--reuse 100`, Blueque runs up to 100 tasks in a process, each "
        "with its exit record. The fork limit is two bare Python processes that fork, exit and wait.",
        working.drain,
        [("rate", "tasks/s")],
        "rate",
        [
            Target(
                "drain, process per task, 2 slots",
                "the rate of blueque 1.0.0",
                1.0,
                True,
                ("blueque", "rate"),
                ("blueque_1_0_0", "rate"),
                why="1.0.0 writes no files",
            ),
            Target(
                "drain, process per task, 2 slots",
                "2.5 x RQ",
                2.5,
                True,
                ("blueque", "rate"),
                ("rq", "rate"),
            ),
            Target(
                "drain, `--reuse 100`, 2 slots",
                "2 x blueque 1.0.0",
                2.0,
                True,
                ("reuse", "rate"),
                ("blueque_1_0_0", "rate"),
            ),
        ],
        {"forks": "*fork limit*", "reuse": "Blueque, `--reuse 100`"},
        axis="tasks/s",
        question="How many tasks do two slots run?\n"
        "This matters for tasks of milliseconds. For tasks of minutes, all systems are alike.",
    ),
    Case(
        "pickup",
        "Pick up a task when idle",
        "The time goes from the call of enqueue to the first line of the handler. One idle worker gets one task at a time, "
        "with a pause between. For 1.0.0 and Dramatiq, which poll, the pause is longer and random. Huey runs threads here. "
        "p95 and p99 are of all rounds together.",
        working.pickup,
        [("p50", "p50 ms"), ("p95", "p95 ms"), ("p99", "p99 ms"), ("count", "tasks")],
        "p50",
        [
            Target(
                "pick-up p50, idle, warm",
                "2.5 x Huey's threads",
                2.5,
                False,
                ("blueque", "p50"),
                ("huey", "p50"),
            ),
            Target(
                "pick-up p50, idle, warm",
                "1/4 of RQ",
                1 / 4,
                False,
                ("blueque", "p50"),
                ("rq", "p50"),
            ),
            Target(
                "pick-up p99, idle, warm",
                "3 x p50",
                3.0,
                False,
                ("blueque", "p99"),
                ("blueque", "p50"),
            ),
        ],
        plot="steps",
        axis="ms from the call to the handler's first line",
        question="How soon does a task begin?\n"
        "This matters where a person waits for the result. The chart shows the share of tasks that had begun after each time.",
    ),
    Case(
        "listeners",
        "500 waiting listeners and a trickle",
        "500 processes, each in `Listener.listen`, wait on one queue while a producer enqueues about 65 tasks a second, "
        "one at a time (Kestrel's many-clients). Wake-ups are the calls that listeners got from Redis, those for "
        "nothing included; the latency is from the call of enqueue until `listen` returns the task. Then all idle, and "
        "their commands are counted.",
        waiting.many_listeners,
        [
            ("wakeups", "wake-ups per task"),
            ("p50", "p50 ms"),
            ("p99", "p99 ms"),
            ("commands", "idle commands/s each"),
        ],
        None,
        [
            Target(
                "500 waiting listeners", "1.1 wake-ups per task", 1.1, False, ("blueque", "wakeups")
            ),
            Target(
                "500 waiting listeners, p99", "50 ms", 50.0, False, ("blueque", "p99"), unit=" ms"
            ),
            Target(
                "500 waiting listeners",
                "2 idle commands/s each",
                2.0,
                False,
                ("blueque", "commands"),
            ),
        ],
    ),
    Case(
        "backlog",
        "A backlog of a million tasks",
        "A Redis for each length of the line, filled with the transactions of enqueue. In each round, 1,500 calls of "
        "enqueue and as many of reserve (`Listener.take`: pop and reserve), a hundred of each in a row, on one Redis after "
        "the other, each waiting for its answer; their medians. Bytes are those that Redis uses for each waiting task, "
        "ours with the index of all tasks; 1.0.0 keeps none.",
        backlog.backlog,
        [
            ("tasks", "tasks in line"),
            ("enqueue_us", "enqueue, us"),
            ("reserve_us", "reserve, us"),
            ("bytes", "bytes per task"),
            ("bytes_1_0_0", "bytes per task, 1.0.0"),
        ],
        None,
        [
            Target(
                "reserve at 1M pending",
                "1.2 x the time at 1,000",
                1.2,
                False,
                ("1000000", "reserve_us"),
                ("1000", "reserve_us"),
            ),
            Target(
                "Redis memory per pending task",
                "1.25 x blueque 1.0.0",
                1.25,
                False,
                ("1000000", "bytes"),
                ("1000000", "bytes_1_0_0"),
            ),
        ],
        {"1000": "1,000", "10000": "10,000", "100000": "100,000", "1000000": "1,000,000"},
    ),
    Case(
        "drain_full",
        "Drain beside a million complete tasks",
        "Two slots and tasks that do nothing, in a Redis that is empty and in one that keeps a million complete tasks of "
        "the queue, in turn in blocks of a fraction of a second. What a task costs in processor time, by process, to the "
        "microsecond: the listener with its master, the task processes, Redis.",
        full.drain,
        [
            ("all", "us of CPU per task"),
            ("listener", "listener"),
            ("tasks", "task processes"),
            ("redis", "Redis"),
            ("rate", "tasks/s"),
        ],
        None,
        [
            Target(
                "drain with a million complete tasks",
                "1.05 x the CPU of a task in an empty Redis",
                1.05,
                False,
                ("full", "all"),
                ("empty", "all"),
            )
        ],
        {"empty": "an empty Redis", "full": "1,000,000 complete tasks"},
    ),
    Case(
        "scheduler",
        "A scheduler of a million tasks",
        "A scheduler in a Redis with 5,000 tasks that are due tomorrow, and one in a Redis with a million. First it has "
        "nothing to do, for 10 s. Then 5,000 tasks are due at one time: how many it puts in line in a second, and what that "
        "takes of it and of Redis. Then once more while another program enqueues, one call after the other, into another "
        "queue: how long its calls take.",
        full.scheduler,
        [
            ("commands", "idle commands/s"),
            ("idle", "idle, % of a core"),
            ("rate", "tasks/s"),
            ("cost", "us of CPU per task"),
            ("p50", "p50 ms of an enqueue"),
            ("p99", "p99 ms of an enqueue"),
        ],
        None,
        [
            Target(
                "a scheduler of a million tasks",
                "1.2 x the CPU of a task among 5,000",
                1.2,
                False,
                ("many", "cost"),
                ("few", "cost"),
            )
        ],
        {"few": "5,000 scheduled", "many": "1,000,000 scheduled"},
    ),
    Case(
        "idle",
        "What an idle worker costs",
        "A worker that has nothing to do: commands it sends to Redis, its share of a core, and the memory that is its "
        "alone (USS), all its processes together. Ours: a listener, the master over it and a scheduler beside it; "
        '"listener" is the listener with its warm child, without those two. All at the same time, each on a Redis of '
        "its own, in windows of 10 s, which is the time between two beats; and once for a minute, in which looks fall that "
        "come more rarely than beats.",
        waiting.idle,
        [
            ("commands", "commands/s"),
            ("minute", "commands in a minute"),
            ("cpu", "% of a core"),
            ("uss", "USS MiB"),
            ("listener_uss", "USS MiB, listener"),
        ],
        "commands",
        [
            Target(
                "one idle listener and a scheduler",
                "1 command/s",
                1.0,
                False,
                ("blueque", "commands"),
            ),
            Target(
                "one idle listener and a scheduler",
                "0.1 % of a core",
                0.1,
                False,
                ("blueque", "cpu"),
                unit=" %",
            ),
            Target(
                "one idle listener with its warm child",
                "20 MiB USS",
                20.0,
                False,
                ("blueque", "listener_uss"),
                unit=" MiB",
            ),
        ],
    ),
    Case(
        "queues",
        "A listener of a hundred queues",
        "One slot that listens to one queue and one that listens to a hundred, in turn: from the call of enqueue, into "
        "any of its queues, to the first line of the handler; and the commands that it sends while nothing comes.",
        waiting.hundred_queues,
        [("p50", "p50 ms"), ("p99", "p99 ms"), ("commands", "idle commands/s")],
        None,
        [],
        {"1": "1 queue", "100": "100 queues"},
    ),
    Case(
        "many",
        "A task of one queue among many",
        "One slot that listens to 1, 20 or 200 queues drains one of them, in the middle; all others are empty. The "
        "processor time of the listener, without its task processes, and of Redis, for each task.",
        selecting.many_queues,
        [
            ("listener", "listener, us of CPU"),
            ("redis", "Redis, us of CPU"),
            ("all", "both"),
            ("commands", "commands per task"),
        ],
        None,
        [
            Target(
                f"200 queues, {select}",
                "1.3 x the CPU with one queue",
                1.3,
                False,
                (selecting.row_of(200, select), "all"),
                (selecting.row_of(1, select), "all"),
            )
            for select in NAMES
        ],
        {
            selecting.row_of(count, select): f"{count} queue{'s' if count > 1 else ''}, {select}"
            for count in selecting.COUNTS
            for select in NAMES
        },
    ),
    Case(
        "printing",
        "A task that prints a lot",
        "A Python program prints 500,000 lines of some 60 bytes, and works between them so that it prints 50,000 a second "
        "with its output in a file; the same with `python -u`, which writes what it prints at once; the same function "
        "as the handler of a listener, which writes line by line; and the program as a task, which is given "
        "`PYTHONUNBUFFERED`. The listener reads the lines meanwhile, and sends Redis the first and the last of them.",
        telling.printing,
        [("seconds", "s"), ("rate", "lines/s")],
        None,
        [
            Target(
                "a handler that prints 50,000 lines/s",
                "1.05 x the time with `python -u`",
                1.05,
                False,
                ("handler", "seconds"),
                ("lines", "seconds"),
            ),
            Target(
                "a program that prints 50,000 lines/s",
                "1.05 x the time with `python -u`",
                1.05,
                False,
                ("program", "seconds"),
                ("lines", "seconds"),
            ),
        ],
        {
            "plain": "into a file",
            "lines": "into a file, `python -u`",
            "handler": "as a handler",
            "program": "as a task",
        },
    ),
    Case(
        "reporting",
        "A thousand running tasks that tell how far they are",
        "What the listeners of a thousand started tasks write, evenly over 10 s, by one program: each a beat in the 10 s; "
        "each task's progress once a second besides; and a line that each has printed as well. A look at what is watched is "
        "part of each. What is measured is the processor time of Redis.",
        telling.reporting,
        [("core", "% of a core of Redis"), ("commands", "commands/s")],
        None,
        [
            Target(
                "1,000 tasks that tell progress each second",
                "10 % of a core of Redis",
                10.0,
                False,
                ("progress", "core"),
                unit=" %",
                why="two runs differ by as much",
            )
        ],
        {"beats": "beats", "progress": "progress, too", "both": "and a line"},
    ),
    Case(
        "status",
        "What status takes",
        "200 queues with two listeners and six running tasks each, and 10,000 tasks in all, or a million: the look of "
        "`blueque status` in a program that runs already, and the whole program, from its start to its end, with its "
        "output into a pipe. Neither may grow with the tasks.",
        looking.overview,
        [
            ("p50", "the look, p50 ms"),
            ("p95", "the look, p95 ms"),
            ("whole", "whole program, p50 ms"),
        ],
        None,
        [
            Target(
                "status, 200 queues, a million tasks",
                "300 ms",
                300.0,
                False,
                ("many", "whole"),
                unit=" ms",
            ),
            Target(
                "status, 200 queues, a million tasks",
                "1.2 x the time with 10,000",
                1.2,
                False,
                ("many", "whole"),
                ("few", "whole"),
            ),
        ],
        {"few": "10,000 tasks", "many": "1,000,000 tasks"},
    ),
    Case(
        "status_queues",
        "What status takes with many queues",
        "The same with up to 10,000 queues. One in a hundred has a listener and tasks that wait and run; the others keep two "
        "complete tasks each.",
        looking.many_queues,
        [
            ("queues", "queues"),
            ("p50", "the look, p50 ms"),
            ("p95", "the look, p95 ms"),
            ("whole", "whole program, p50 ms"),
        ],
        None,
        [Target("status, 10,000 queues", "2 s", 2000.0, False, ("10000", "whole"), unit=" ms")],
        {"1000": "1,000 queues", "10000": "10,000 queues"},
    ),
    Case(
        "help",
        "What imports and help take",
        "A program from its start to its end: Python alone, Python that imports click, `blueque`, or what a producer needs of "
        "it, `blueque --help`, and the help of that verb which takes longest.",
        looking.help_of_verbs,
        [("p50", "p50 ms")],
        None,
        [
            Target("import blueque", "40 ms", 40.0, False, ("import", "p50"), unit=" ms"),
            Target(
                "import blueque",
                "2.5 x `python -c pass`",
                2.5,
                False,
                ("import", "p50"),
                ("pass", "p50"),
            ),
            Target("blueque --help", "100 ms", 100.0, False, ("help", "p50"), unit=" ms"),
            Target(
                "blueque --help",
                "7 x `python -c pass`",
                7.0,
                False,
                ("help", "p50"),
                ("pass", "p50"),
            ),
            Target("help of the slowest verb", "150 ms", 150.0, False, ("verb", "p50"), unit=" ms"),
            Target(
                "help of the slowest verb",
                "2.5 x `import click`",
                2.5,
                False,
                ("verb", "p50"),
                ("click", "p50"),
            ),
        ],
        {
            "pass": "`python -c pass`",
            "click": '`python -c "import click"`',
            "import": '`python -c "import blueque"`',
            "producer": '`python -c "from blueque import Client, Queue"`',
            "help": "`blueque --help`",
            "verb": "`blueque VERB --help`",
        },
    ),
    Case(
        "recurring",
        "Schedules that are due at once",
        "10,000 schedules are due in the same second, and one `blueque-scheduler`, which waits for that, makes their tasks, each "
        "in a transaction of its own. The seconds count from that second until the last task is in line. Beside it, a producer "
        "enqueues as many tasks, one call after the other.",
        recurring.recurring,
        [("seconds", "seconds"), ("rate", "tasks/s")],
        None,
        [Target("10,000 schedules", "10 s", 10.0, False, ("scheduler", "seconds"), unit=" s")],
        {"scheduler": "`blueque-scheduler`", "enqueue": "`Queue.enqueue`"},
    ),
    Case(
        "web",
        "What a page takes",
        "1,000 queues with a million tasks, a listener and a running task each, and the events of a day in 20 of them. Cold: "
        "the server forgets what it knows before each request; warm: it has answered the same a moment ago. Times count from "
        "the request to the first byte of the answer, on a kept connection. The raw read sends the commands of the cold page "
        "in one write and does nothing with the replies. KB are compressed; all of a page counts style and scripts, which a "
        "browser keeps.",
        watching.pages,
        [
            ("cold", "cold, p50 ms"),
            ("cold95", "cold, p95 ms"),
            ("warm", "warm, p50 ms"),
            ("warm95", "warm, p95 ms"),
            ("raw", "raw read, p50 ms"),
            ("cpu", "CPU of the server cold, ms"),
            ("cpuwarm", "warm, ms"),
            ("commands", "commands"),
            ("trips", "round trips"),
            ("bytes", "KB"),
            ("all", "all of it, KB"),
            ("requests", "requests"),
        ],
        None,
        [
            _web("overview, cold", "500 ms", 500.0, ("overview", "cold95"), " ms"),
            _web("overview, warm", "50 ms", 50.0, ("overview", "warm95"), " ms"),
            _web("a task", "40 ms", 40.0, ("task", "cold95"), " ms"),
            _web("a list of 100, warm", "60 ms", 60.0, ("list", "warm95"), " ms"),
            _web("a log of 1,000 lines", "80 ms", 80.0, ("log", "cold95"), " ms"),
            _web("24 h of 20 queues", "400 ms", 400.0, ("timeline", "cold95"), " ms"),
            _web("the largest page", "100 KB", 100.0, ("task", "all"), " KB"),
        ],
        {
            "overview": "overview",
            "task": "a running task",
            "list": "list of 100 pending tasks",
            "log": "log of 1,000 lines",
            "timeline": "24 h, 20 queues with 10,000 events each",
        },
    ),
    Case(
        "web_viewers",
        "What viewers cost",
        "Viewers of the overview, which asks once a second, while a task reports progress each second; 1,000 queues with a listener "
        "and a running task each. Then all of them leave.",
        watching.viewers,
        [
            ("commands", "commands/s"),
            ("server", "% of a core of the server"),
            ("redis", "% of a core of Redis"),
            ("received", "KB/s to all viewers"),
        ],
        None,
        [
            Target(
                "50 viewers",
                "1.1 x the commands of one",
                1.1,
                False,
                ("many", "commands"),
                ("one", "commands"),
            ),
            Target(
                "50 viewers",
                "10 % of a core of the server",
                10.0,
                False,
                ("many", "server"),
                unit=" %",
            ),
            Target(
                "no viewer left",
                "1 command/s",
                1.0,
                False,
                ("left", "commands"),
                unit=" commands/s",
            ),
        ],
        {"none": "no viewer", "one": "1 viewer", "many": "50 viewers", "left": "they have left"},
    ),
    Case(
        "dashboards",
        "The page beside other dashboards",
        "One queue with 10,000 waiting tasks; of Flower, which knows only the tasks that a worker has had, some hundreds. What "
        "each page asks its server for again and again: the overview of the queues, and a list of 100 tasks. Commands to Redis "
        "are counted for one look at the overview, and for 50 looks of 50 viewers one after the other. Blueque forgets what it "
        "knows before each look, but not between the 50.",
        dashboards.dashboards,
        [
            ("overview", "overview, p50 ms"),
            ("overview_cpu", "CPU of the server, ms"),
            ("listed", "list of 100, p50 ms"),
            ("listed_cpu", "CPU of it, ms"),
            ("kb", "list, KB compressed"),
            ("one", "commands, 1 viewer"),
            ("many", "commands, 50 viewers"),
        ],
        None,
        [],
        {
            "blueque": "Blueque",
            "rq_dashboard": "rq-dashboard",
            "flower": "Flower",
            "bull_board": "bull-board",
        },
    ),
    *PIPELINE_CASES,
]
