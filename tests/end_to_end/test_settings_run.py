"""Settings of a queue in Redis, as a listener obeys them while it runs."""

from __future__ import annotations

from handlers import WORK, ended, ledger
from running import until

from blueque import Retry


def test_settings_hold_within_a_beat_and_what_the_file_of_the_node_says_goes_first(programs):
    programs.write(WORK)
    programs.write(
        '[listener]\nbeat = "200ms"\ngrace = 0\n[queues.own]\nretry = false', "blueque.toml"
    )
    client = programs.client
    work, own = client.get_queue("work"), client.get_queue("own")
    for queue in (work, own):
        queue.set_settings({"retry": Retry(max=1, backoff=0)})

    def attempts(queue):
        task = queue.enqueue("fail")
        assert ended(client, task).status == "failed"
        return len(ledger(programs, task))

    programs.listener("work:run", "own", queue="work")
    assert (attempts(work), attempts(own)) == (2, 1)

    work.set_settings({"retry": None, "time_limit": 0.3})

    inspector = client.get_inspector()
    (node,) = inspector.listeners("work")
    # judges see no policy either
    until(lambda: inspector.registration("work", node)["retry"] == "", what="no policy")
    assert attempts(work) == 1
    assert ended(client, work.enqueue("wait")).error_type == "time_limit"
