"""Each way to make tasks stores them encrypted, if the settings say so."""

from __future__ import annotations

import json

import pytest
from payload_keys import SECRET, client_with, name_of, write_keys

from blueque import Client, Config, IdTaken, New, PayloadRefused, RetryLater, Then, feed
from blueque.model.group_terms import terms_for
from blueque.producer.keyed_groups import open_keyed
from blueque.protocol.bulk import NewTasks
from blueque.testing import drain

K1 = name_of("k1")
CONTEXT = {"trace": SECRET}
ROWS = [{"n": number, "s": SECRET} for number in range(3)]


def many(client, path, **options):
    client.get_queue("q").enqueue_many(ROWS, context=CONTEXT, **options)


def in_a_group(client, path):
    many(client, path, keys="n", group="night")


def each_after(client, path):
    first = client.get_queue("q").enqueue(ROWS[0], context=CONTEXT)
    many(client, path, after_each=lambda row: [first] if row["n"] else [])


def scheduled(client, path):
    client.get_queue("q").schedule_many(ROWS, etas=[1e9, 4e9, 4e9], context=CONTEXT)


def of_spark(client, path):
    opened = open_keyed(client.connections, "q", "night", terms_for(keep="1d", otherwise=60))
    texts = [(json.dumps(row).encode(), True) for row in ROWS]
    rows = NewTasks((), texts, keys=[b"%d" % row["n"] for row in ROWS])
    options = client.get_queue("q").fields_of(context=CONTEXT)
    assert opened.put(client.connections, rows, options) == 3
    opened.close(client.connections, 3)


def fed(client, path):
    (path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    assert feed(path / "rows.jsonl", "q", name="f", client=client, context=CONTEXT).is_finished


def workflow(client, path):
    for _ in "ab":  # the second commit finds all of the first
        with client.workflow("w") as flow:
            first = flow.add("q", ROWS[0], context=CONTEXT)
            flow.add("q", ROWS[1], after=first, context=CONTEXT)


def fanned_out(client, path):
    client.get_fanout("f", to=["q", "r"]).enqueue(ROWS[0], context=CONTEXT)


def backfilled(client, path):
    options = {"queue": "q", "parameters": ROWS[0], "context": CONTEXT, "overlap": "queue"}
    nightly = client.set_schedule("nightly", every="1h", **options)
    nightly.trigger()
    nightly.backfill(1e9, 1e9 + 7200)


WAYS = [
    many,
    lambda client, path: many(client, path, keys="n"),
    lambda client, path: many(client, path, priorities=lambda row: row["n"]),
    in_a_group,
    each_after,
    scheduled,
    of_spark,
    fed,
    workflow,
    fanned_out,
    backfilled,
]


@pytest.mark.parametrize("way", WAYS)
def test_each_way_to_make_tasks_encrypts_parameters_and_context(
    sealed, redis, everything, tmp_path, way
):
    way(sealed, tmp_path)
    assert SECRET not in str(everything())
    (tasks,) = redis.read(("ZRANGE", "blueque_tasks_q", 0, -1))
    assert len(tasks) >= 1
    for task in map(sealed.get_task, tasks):
        assert task.parameters in ROWS and task.context == CONTEXT, task.fields
        assert task.fields["needs"].startswith(f"key.{K1}=1")
    assert sealed.get_listener("q").listen(timeout=0).parameters in ROWS


def test_the_record_of_a_workflow_tells_nothing_to_who_guesses_its_parameters(sealed, client):
    digests = []
    for each in (sealed, client):
        with each.workflow("w") as flow:
            flow.add("q", "42")
        digests += each.connections.read(("HGET", "blueque_group_w", "made_by"))
        each.connections.read(("FLUSHALL",))
    assert digests[0] and digests[1] and digests[0] != digests[1]


def test_tasks_that_wait_in_one_line_come_in_their_order(sealed):
    queue, listener = sealed.get_queue("q"), sealed.get_listener("q")
    ids = [queue.enqueue(number) for number in range(5)]
    assert [listener.listen(timeout=0).id for _ in ids] == ids


def test_a_listener_with_another_key_takes_no_task(url, sealed, tmp_path, client):
    task, plain = sealed.get_queue("q").enqueue("a"), client.get_queue("q").enqueue("b")
    with client_with(url, keys=write_keys(tmp_path / "other.keys", "k2")) as other:
        taken = [each.get_listener("q").listen(timeout=0) for each in (other, other)]
    assert [each and each.id for each in taken] == [plain, None]
    assert client.get_task(task).status == "pending"


def test_the_same_id_with_the_same_parameters_is_the_same_task(sealed, keys):
    queue = sealed.get_queue("q")
    queue.enqueue({"a": 1}, id="one")
    write_keys(keys, "k2", "k1")
    assert not queue.enqueue({"a": 1}, id="one").is_new
    with pytest.raises(IdTaken):
        queue.enqueue({"a": 2}, id="one")


def test_a_schedule_that_is_set_again_stays_as_it_is_until_the_key_changes(sealed, keys):
    def version(parameters):
        options = {"queue": "q", "every": "1h", "context": CONTEXT}
        return sealed.set_schedule("nightly", parameters=parameters, **options).record["version"]

    assert [version("a"), version("a"), version("b"), version("b")] == [1, 1, 2, 2]
    write_keys(keys, "k2", "k1")
    assert [version("b"), version("b")] == [3, 3]


def test_the_template_of_one_schedule_is_not_that_of_another(sealed, redis):
    for name in "ab":
        sealed.set_schedule(name, queue="q", every="1h", parameters=name)
    (text,) = redis.read(("HGET", "blueque_schedule_a", "parameters"))
    redis.read(("HSET", "blueque_schedule_b", "parameters", text))
    task = sealed.get_task(sealed.get_schedule("b").trigger())
    with pytest.raises(PayloadRefused, match="of schedule b does not fit"):
        _ = task.parameters


def test_only_compressed_tasks_wait_where_plain_ones_do(url, everything):
    with client_with(url, compress_from=50) as client:
        queue = client.get_queue("q")
        ids = [queue.enqueue(text) for text in ("a" * 500, "b")]
        queue.enqueue_many(["c" * 500, "d"])
        assert client.get_task(ids[0]).fields["parameters_encoding"] == "zlib"
        assert "aaaaaaaaaa" not in str(everything()) and "cccccccccc" not in str(everything())
        taken = [client.get_listener("q").listen(timeout=0).parameters for _ in range(4)]
    assert taken == ["a" * 500, "b", "c" * 500, "d"]


def test_a_drained_task_and_what_it_makes_are_encrypted(sealed, everything):
    def work(task):
        assert (task.parameters, task.context) == (ROWS[0], CONTEXT)
        if task.attempt == 1:
            task.checkpoint(SECRET)
            raise RetryLater(0)
        assert task.checkpointed == SECRET
        task.spawn("later", ROWS[1], key="a", context=CONTEXT)
        return Then(SECRET, [New("later", ROWS[2], key="b", context=CONTEXT)])

    task = sealed.get_queue("q").enqueue(ROWS[0], context=CONTEXT)
    wants = sealed.get_queue("r").enqueue(SECRET, after=task, results=True)
    ended = drain(sealed, {"q": work, "r": lambda task: [*task.inputs.values()]})
    assert [each.outcome for each in ended] == ["retried", "complete", "complete"], ended
    assert sealed.get_task(wants).result == [SECRET]
    assert SECRET not in str(everything())
    later = sealed.get_listener("later")
    assert [later.listen(timeout=0).parameters for _ in "ab"] == ROWS[1:]


def test_the_limit_counts_what_was_given(url, keys):
    with client_with(url, keys=keys) as client:
        client.max_bytes = 100
        task = client.get_queue("q").enqueue("a" * 100)
        assert len(client.get_task(task).fields["parameters"]) > 130


def test_only_queues_of_the_patterns_and_of_aliases_that_fit_them_are_encrypted(url, keys):
    payloads = {"keys": str(keys), "queues": ("pay*",)}
    with Client(url, config=Config(payloads=payloads, aliases={"payroll": "salaries"})) as client:
        encrypted = [
            name
            for name in ("payroll", "salaries", "pay", "other")
            if "parameters_encoding" in client.get_task(client.get_queue(name).enqueue("x")).fields
        ]
    assert encrypted == ["payroll", "salaries", "pay"]
