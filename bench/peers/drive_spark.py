"""Drives Spark in one warm session. A request is a line of JSON, `["verb", arguments...]`; the
answer is a line of JSON.

Nothing of what it does is in the clock but what a user of that call waits for.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import redis

import blueque.spark as bs

URL = os.environ["BENCH_URL"]
QUEUE = "bench"
FOUR = ["status", "created", "started", "finished"]
FOURTEEN = [
    "task_id",
    "queue",
    "status",
    "parameters",
    "result",
    "error",
    "node",
    "pid",
    "attempts",
    "created",
    "updated",
    "started",
    "finished",
    "eta",
]
CHUNK = 1000


class Driver:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.spark = bs.session(
            app="blueque-bench",
            master="local[2]",
            **{
                "spark.driver.memory": "2g",
                "spark.sql.shuffle.partitions": 2,
                "spark.sql.files.maxPartitionBytes": "1g",
            },
        )
        self.number = 0

    def rows(self, count: int, partitions: int) -> Any:
        """Return a frame of 75 bytes of JSON a row, read from Parquet, in so many partitions."""
        path = str(self.directory / f"rows-{count}-{partitions}")
        if not os.path.exists(path):
            made = self.spark.range(0, count, 1, partitions).selectExpr(
                "concat('scene-', id) AS scene",
                'concat(\'{"scene":"scene-\', lpad(id, 8, \'0\'), \'","camera":"left","frames":240\', '
                '\',"quality":"draft"}\') AS body',
            )
            made.write.parquet(path)
        return self.spark.read.parquet(path)

    def keyed(self, count: int, partitions: int) -> Any:
        frame = self.rows(count, partitions)
        self.number += 1
        group = f"bench-{os.getpid()}-{self.number}"
        return self.timed(
            lambda: bs.enqueue(frame, QUEUE, key="scene", params="body", group=group, url=URL)
        )

    def naive(self, count: int, partitions: int) -> Any:
        """What every blog does: foreachPartition, and a pipeline of redis-py, a thousand tasks at a
        time.
        """
        frame = self.rows(count, partitions)
        return self.timed(lambda: frame.foreachPartition(send_naively))

    def read(self, columns: int) -> Any:
        frame = bs.read(
            self.spark, QUEUE, status="complete", fields=FOUR if columns == 4 else FOURTEEN, url=URL
        )
        return self.timed(lambda: frame.write.format("noop").mode("overwrite").save())

    def archive(self) -> Any:
        self.number += 1
        directory = self.directory / f"archive-{self.number}"
        return self.timed(
            lambda: bs.archive(self.spark, QUEUE, str(directory), older_than=0, url=URL)
        )

    def stats(self, count: int) -> Any:
        """So many finished tasks of four queues and thirty days, made by Spark, in Parquet."""
        path = str(self.directory / f"stats-{count}")
        if not os.path.exists(path):
            finished_rows(self.spark, count).write.parquet(path)
        frame = self.spark.read.parquet(path)
        stats = self.timed(lambda: bs.stats(frame).collect())
        histogram = self.timed(lambda: bs.histogram(frame).collect())
        return {"stats": stats["seconds"], "histogram": histogram["seconds"]}

    @staticmethod
    def timed(call: Any) -> dict[str, float]:
        began = time.perf_counter()
        call()
        return {"seconds": time.perf_counter() - began}


def send_naively(rows: Any) -> None:
    import uuid

    client = redis.Redis.from_url(URL)
    chunk: list[Any] = []

    def send() -> None:
        now = time.time()
        with client.pipeline(transaction=True) as pipeline:
            ids = []
            for row in chunk:
                task = str(uuid.uuid4())
                ids.append(task)
                pipeline.hset(
                    f"blueque_task_{task}",
                    mapping={
                        "status": "pending",
                        "queue": QUEUE,
                        "parameters": row.body,
                        "created": now,
                        "updated": now,
                    },
                )
            pipeline.lpush(f"blueque_pending_tasks_{QUEUE}", *ids)
            pipeline.zincrby("blueque_queues", 0, QUEUE)
            pipeline.execute()
        chunk.clear()

    for row in rows:
        chunk.append(row)
        if len(chunk) == CHUNK:
            send()
    if chunk:
        send()


def finished_rows(spark: Any, count: int) -> Any:
    return spark.range(count).selectExpr(
        "uuid() AS task_id",
        "concat('queue-', id % 4) AS queue",
        "if(rand(1) < 0.03, 'failed', 'complete') AS status",
        "cast(null AS string) AS parameters",
        "cast(null AS string) AS result",
        "if(rand(1) < 0.03, 'ValueError: no', null) AS error",
        "if(rand(1) < 0.03, 'ValueError', null) AS error_type",
        "concat('node-', id % 8) AS node",
        "cast(1 AS bigint) AS pid",
        "cast(1 + floor(rand(2) * 1.1) AS int) AS attempts",
        "0 AS priority",
        "cast(null AS string) AS key",
        "cast(null AS string) AS group",
        "timestamp_seconds(1760000000 + id % 2592000) AS created",
        "timestamp_seconds(1760000060 + id % 2592000 + rand(5) * 3600) AS updated",
        "timestamp_seconds(1760000000 + id % 2592000 + rand(3) * 60) AS started",
        "timestamp_seconds(1760000060 + id % 2592000 + rand(5) * 3600) AS finished",
        "cast(null AS timestamp) AS eta",
        "'complete' AS listed_as",
    )


def main() -> None:
    driver = Driver(Path(sys.argv[1]))
    # Spark's Java process may say something on ours
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    print(json.dumps("ready"), file=answers)
    for line in sys.stdin:
        verb, *arguments = json.loads(line)
        print(json.dumps(getattr(driver, verb)(*arguments)), file=answers)


if __name__ == "__main__":
    main()
