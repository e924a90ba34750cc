"""Drives Celery."""

from __future__ import annotations

import time
from collections.abc import Callable

import celery
import driver
import work

app = celery.Celery("bench", broker=driver.URL)
app.conf.update(task_ignore_result=True, broker_pool_limit=200, broker_connection_retry_on_startup=True)
task = app.task(name="note")(work.note)


def make() -> Callable[[str], object]:
    producer = app.amqp.Producer(app.connection_for_write(), auto_declare=False)
    return lambda text: task.apply_async((text,), producer=producer)


def bulk(count: int) -> float:
    with app.producer_pool.acquire(block=True) as producer:
        task.apply_async((driver.TEXT,), producer=producer)
        began = time.perf_counter()
        for _ in range(count):
            task.apply_async((driver.TEXT,), producer=producer)
        return time.perf_counter() - began


if __name__ == "__main__":
    driver.main("drive_celery")
