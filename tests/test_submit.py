"""blueque.protocol.submit against a real Redis; the whole state is compared, so that leftovers fail too."""

from __future__ import annotations

from blueque import protocol


def test_enqueue_leaves_one_pending_task_and_nothing_else(redis, state):
    protocol.enqueue(redis, "video", "t1", "{}", "json", now=5.5)

    assert state() == {
        "blueque_task_t1": {
            "status": "pending", "queue": "video", "parameters": "{}", "created": "5.5", "updated": "5.5",
            "attempt": "0", "parameters_encoding": "json",
        },
        "blueque_queues": {"video": 0.0},
        "blueque_pending_tasks_video": ["t1"],
        "blueque_tasks_video": {"t1": 5.5},
        "blueque_wake_video": {"0": 0.0},
    }
