"""The cases of pipelines, see pipeline.py."""

from __future__ import annotations

from bench import pipeline
from bench.case import Case, Target

PIPELINE_CASES = [
    Case(
        "into",
        "From Spark into a queue",
        "500,000 rows of 75 bytes of JSON; those of Spark from Parquet, in two partitions of one warm session in "
        "local[2]. The raw limit: transactions of a thousand tasks of 1.0.0 (a hash of five fields each, one LPUSH), "
        "packed before the clock starts, over one socket, one sent ahead of the answer to the one before. Ours write "
        "the index of all tasks besides, and 200 tasks with keys in a transaction. The second raw limit writes the fields that a "
        "keyed task has today, and neither index, nor ledger, nor guard. The last is what one finds when one "
        "looks for it: foreachPartition with a pipeline of redis-py; every retry of Spark doubles its tasks.",
        pipeline.into,
        [("rate", "rows/s"), ("redis", "Redis, us a row")],
        "rate",
        [
            Target(
                "`enqueue_many`",
                "0.5 x the raw limit (aim 0.75)",
                0.5,
                True,
                ("core", "rate"),
                ("raw", "rate"),
            ),
            Target(
                "`enqueue_many(keys=, group=)`",
                "0.5 x the raw limit (aim 0.75)",
                0.5,
                True,
                ("core_keyed", "rate"),
                ("raw", "rate"),
                why="Redis' own time is the limit",
            ),
            Target(
                "`bs.enqueue(key=)`",
                "0.45 x the raw limit",
                0.45,
                True,
                ("keyed", "rate"),
                ("raw", "rate"),
            ),
            Target(
                "`bs.enqueue(key=)`",
                "2.2 x foreachPartition",
                2.2,
                True,
                ("keyed", "rate"),
                ("naive", "rate"),
            ),
        ],
        {
            "core": "`queue.enqueue_many`, without Spark",
            "core_keyed": "the same, keyed, in a group",
            "keyed": "`bs.enqueue`, keyed, in a group",
            "naive": "foreachPartition and redis-py",
            "raw": "*raw limit*",
            "raw_record": "*raw limit with the fields of today*",
        },
    ),
    Case(
        "partitions",
        "The same by partitions",
        "The same 500,000 rows in 1 to 8 partitions, on two cores, of which Redis takes one.",
        pipeline.partitions,
        [
            ("keyed", "`bs.enqueue`, rows/s"),
            ("naive", "foreachPartition, rows/s"),
            ("raw", "raw limit, rows/s"),
        ],
        None,
        [],
        {"1": "1 partition", "2": "2 partitions", "4": "4 partitions", "8": "8 partitions"},
    ),
    Case(
        "out_of",
        "From a queue into Spark, and into files",
        "400,000 complete tasks. The raw limit: HMGET of 13 fields of each, a thousand in a write, packed before the "
        "clock starts, over one socket; replies parsed and thrown away. Reading with Spark goes into its `noop` sink. "
        "The archives are from end to end: read, written, published, compared and deleted.",
        pipeline.out_of,
        [("rate", "tasks/s")],
        "rate",
        [
            Target(
                "read 14 columns",
                "0.5 x the raw limit",
                0.5,
                True,
                ("fourteen", "rate"),
                ("raw", "rate"),
            ),
            Target(
                "read 4 columns",
                "0.8 x the raw limit",
                0.8,
                True,
                ("four", "rate"),
                ("raw", "rate"),
            ),
            Target(
                "archive", "0.1 x the raw limit", 0.1, True, ("archive", "rate"), ("raw", "rate")
            ),
        ],
        {
            "fourteen": "`bs.read`, 14 columns",
            "four": "`bs.read`, 4 columns",
            "archive": "`bs.archive`",
            "arrow": "`blueque archive`, without Spark",
            "raw": "*raw limit*",
        },
    ),
    Case(
        "feed",
        "A backlog larger than Redis",
        "A million rows of 75 bytes in ten Parquet files, and once ten million, fed through a window of 20,000 while a "
        "consumer takes all that waits and deletes it. Memory: what the feeder takes (PSS), and what Redis takes more "
        "than before. The raw limit as above, of a million.",
        pipeline.feeding,
        [
            ("rate", "rows/s"),
            ("waiting", "tasks waiting, at most"),
            ("memory", "feeder, MiB"),
            ("redis", "Redis, MiB"),
        ],
        "rate",
        [
            Target("feed", "0.6 x the raw limit", 0.6, True, ("fed", "rate"), ("raw", "rate")),
            Target(
                "feed of 10 million",
                "a window of 20,000",
                20_000,
                False,
                ("fed_10", "waiting"),
                unit=" tasks",
            ),
            Target(
                "feed of 10 million", "200 MiB", 200.0, False, ("fed_10", "memory"), unit=" MiB"
            ),
        ],
        {"fed": "1,000,000 rows", "fed_10": "10,000,000 rows", "raw": "*raw limit*"},
    ),
    Case(
        "stats",
        "Statistics of a million tasks",
        "A million finished tasks of four queues and thirty days in Parquet, in one warm session in local[2]: "
        "`bs.stats` and `bs.histogram` by queue and day.",
        pipeline.stats,
        [("stats", "stats, s"), ("histogram", "histogram, s")],
        None,
        [
            Target(
                "statistics of a million rows", "4 s", 4.0, False, ("blueque", "stats"), unit=" s"
            ),
            Target(
                "a histogram of a million rows",
                "2 s",
                2.0,
                False,
                ("blueque", "histogram"),
                unit=" s",
            ),
        ],
    ),
]
