"""Drives Celery."""

from __future__ import annotations

from collections.abc import Callable

import celery
import driver
import work

app = celery.Celery("bench", broker=driver.URL)
app.conf.update(
    task_ignore_result=True, broker_pool_limit=200, broker_connection_retry_on_startup=True
)
task = app.task(name="note")(work.note)


def make() -> Callable[[str], object]:
    producer = app.amqp.Producer(app.connection_for_write(), auto_declare=False)
    return lambda text: task.apply_async((text,), producer=producer)


def bulk(count: int) -> driver.Answer:
    with app.producer_pool.acquire(block=True) as producer:
        task.apply_async((driver.TEXT,), producer=producer)
        clock = driver.Clock()
        for _ in range(count):
            task.apply_async((driver.TEXT,), producer=producer)
        return clock.read()


if __name__ == "__main__":
    driver.main("drive_celery")
