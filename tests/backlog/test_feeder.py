"""blueque.feed on a real Redis: order, exact counts, the window, one feeder at a time, and what is
refused.
"""

from __future__ import annotations

import gzip
import json
import signal
import threading
import time
import uuid

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from faults import Fault
from running import Programs, until
from transactions import protocol

import blueque
from blueque import BacklogRefused, Client, InvalidInput, RedisAway, Taken
from blueque.backlog import job
from blueque.model import keys
from blueque.model.ids import FEED_NAMESPACE
from blueque.protocol.feeding import FeedRef

FEED = keys.feed("video", "f")


def lines(path, rows):
    data = "".join(f"{json.dumps(row)}\n" for row in rows).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def table(path, rows):
    """Write rows with a column n, as whatever the name of the file says."""
    if path.suffix == ".parquet":
        pq.write_table(pa.table({"n": pa.array(rows, pa.int64())}), path)
    else:
        lines(path, [{"n": n} for n in rows])


def line(cli, name="0"):
    """Return the parameters of the tasks in a line of the queue video, of the one that runs next
    first.
    """
    ids = cli.lrange(keys.line("video", name), 0, -1)[::-1]
    return [json.loads(cli.hget(keys.task(task), "parameters")) for task in ids]


def numbers(cli):
    return [row["n"] for row in line(cli)]


def drain(cli, count):
    """Take tasks out of the line and delete them, as if they had run long ago; return their
    numbers.
    """
    taken = []
    for task in cli.rpop(keys.pending("video"), count) or []:
        taken.append(json.loads(cli.hget(keys.task(task), "parameters"))["n"])
        cli.delete(keys.task(task))
        cli.zrem(keys.tasks("video"), task)
    return taken


@pytest.fixture
def feed(url):
    """Feed into the queue video, as the feed f."""

    def feed(source, **options):
        return blueque.feed(source, "video", **{"name": "f", "url": url} | options)

    return feed


@pytest.fixture(params=["jsonl", "jsonl.gz", "parquet"])
def backlog(request, tmp_path):
    """Three files with rows 0 to 2499, and an empty one, of one kind."""
    for number, (first, end) in enumerate([(0, 1200), (1200, 1200), (1200, 1201), (1201, 2500)]):
        path = tmp_path / f"{number}.{request.param}"
        if request.param == "parquet":
            pq.write_table(
                pa.table({"n": pa.array(range(first, end), pa.int64())}), path, row_group_size=500
            )
        else:
            lines(path, [{"n": n} for n in range(first, end)])
    return tmp_path


@pytest.fixture
def plenty(tmp_path):
    """One file with rows 0 to 2499."""
    lines(tmp_path / "a.jsonl", [{"n": n} for n in range(2500)])
    return tmp_path


@pytest.fixture
def few(tmp_path):
    """One file of five rows."""
    lines(tmp_path / "a.jsonl", [{"n": n} for n in range(5)])
    return tmp_path


# What comes into Redis


def test_a_finished_feed_run_again_changes_nothing_even_when_all_is_done_and_deleted(
    feed, backlog, cli
):
    feed(backlog)
    drain(cli, 2500)

    outcome = feed(backlog)

    assert (outcome.is_finished, outcome.rows, outcome.fed) == (True, 2500, 0)
    assert cli.llen(keys.pending("video")) == 0
    assert 0 < cli.ttl(FEED) <= 90 * 86400 and 0 < cli.ttl(keys.fed("video", "f")) <= 90 * 86400


def test_a_finished_feed_is_finished_also_when_its_files_are_gone(feed, few):
    feed(few)
    (few / "a.jsonl").unlink()
    few.rmdir()

    assert feed(few).is_finished


def test_forgotten_a_feed_begins_anew_and_finds_no_old_tasks_in_its_way(feed, few, cli, client):
    feed(few)

    assert client.forget_feed("video", "f") and not client.forget_feed("video", "f")
    assert feed(few).fed == 5
    assert numbers(cli) == [0, 1, 2, 3, 4] * 2


def test_feeds_of_two_names_or_queues_have_nothing_in_common(feed, few, url, cli, client):
    feed(few)
    assert feed(few, name="g").fed == 5
    assert blueque.feed(few, "audio", name="f", url=url).fed == 5

    assert (
        len(
            set(cli.lrange(keys.pending("video"), 0, -1) + cli.lrange(keys.pending("audio"), 0, -1))
        )
        == 15
    )
    assert [record["feed"] for record in client.get_feeds("video")] == ["f", "g"]
    with pytest.raises(InvalidInput, match="would share"):
        blueque.feed(few, "b_video", name="f", url=url) and blueque.feed(
            few, "video", name="f_b", url=url
        )


def test_a_backlog_that_redis_takes_half_of_back_is_fed_again_from_there(feed, tmp_path, cli):
    lines(tmp_path / "a.jsonl", [{"n": n} for n in range(10)])
    notes, kept = [], {}

    def look(progress):
        notes.append(progress.note)
        if progress.rows == 4 and not kept:
            kept.update(cli.hgetall(FEED))
        elif progress.rows == 6 and "restored" not in kept:
            cli.hset(FEED, mapping=kept)  # as a replica that had not seen the last chunk
            for task in cli.lpop(keys.pending("video"), 2):
                cli.delete(keys.task(task))
            kept["restored"] = "yes"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "CHUNK", 2)
        feed(tmp_path, window=100, progress=look)

    assert "restored" in kept
    assert any("lost its last changes" in (note or "") for note in notes)
    assert numbers(cli) == list(range(10))


def test_a_backlog_whose_last_rows_redis_takes_back_is_not_said_to_be_fed(feed, tmp_path, cli):
    lines(tmp_path / "a.jsonl", [{"n": n} for n in range(4)])
    notes, kept = [], {}

    def look(progress):
        notes.append(progress.note)
        if progress.rows == 2 and not kept:
            kept.update(cli.hgetall(FEED))
        elif progress.rows == 4 and "restored" not in kept:
            cli.hset(FEED, mapping=kept)  # as a replica that had not seen the last chunk
            cli.delete(keys.fed("video", "f"))
            for task in cli.lpop(keys.pending("video"), 2):
                cli.delete(keys.task(task))
            kept["restored"] = "yes"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "CHUNK", 2)
        outcome = feed(tmp_path, progress=look)

    assert (outcome.is_finished, outcome.rows, cli.hget(FEED, "state")) == (True, 4, "finished")
    assert any("lost its last changes" in (note or "") for note in notes)
    assert numbers(cli) == list(range(4))


def test_a_feeder_that_waits_for_files_feeds_again_what_redis_has_lost(feed, few, cli, monkeypatch):
    monkeypatch.setattr(job, "CHUNK", 2)
    monkeypatch.setattr(job, "FOLLOW_PACE", 0.02)
    monkeypatch.setattr(job, "SIGN", 0.05)
    stop, notes, kept = threading.Event(), [], {}

    def look(progress):
        notes.append(progress.note)
        if progress.rows == 2 and not kept:
            kept.update(cli.hgetall(FEED))

    thread = threading.Thread(
        target=feed, args=(few,), kwargs={"follow": True, "stop": stop, "progress": look}
    )
    thread.start()
    until(lambda: cli.hget(FEED, "rows") == "5", what="all rows")
    with cli.pipeline() as pipeline:  # as a replica that had not seen the last chunks
        pipeline.hset(FEED, mapping=kept)
        pipeline.delete(keys.fed("video", "f"))
        for task in cli.lrange(keys.pending("video"), 0, 2):
            pipeline.lrem(keys.pending("video"), 1, task)
            pipeline.delete(keys.task(task))
        pipeline.execute()
    until(lambda: cli.hget(FEED, "rows") == "5", what="all rows again")
    stop.set()
    thread.join(10)

    assert any("lost its last changes" in (note or "") for note in notes)
    assert numbers(cli) == list(range(5))


# The window


class Consumer(threading.Thread):
    """Takes tasks from the line, and notes the longest line that it has seen."""

    def __init__(self, url, pause=0.002):
        super().__init__(daemon=True)
        self.client, self.pause = Client(url), pause
        self.taken, self.longest, self.is_over = [], 0, threading.Event()

    def run(self):
        redis = self.client.connections
        while True:
            was_over = self.is_over.is_set()
            length, some = redis.read(
                ("LLEN", keys.pending("video")), ("RPOP", keys.pending("video"), 7)
            )
            self.longest = max(self.longest, length)
            for task in some or ():
                (text,) = redis.read(("HGET", keys.task(task), "parameters"))
                redis.read(("DEL", keys.task(task)))
                self.taken.append(json.loads(text)["n"])
            if was_over and not some:
                return
            time.sleep(self.pause)

    def stop(self):
        self.is_over.set()
        self.join(30)
        return self.taken


@pytest.mark.parametrize("window", [1, 2, 7, 100])
def test_never_more_wait_than_the_window_has(feed, tmp_path, url, window):
    lines(tmp_path / "a.jsonl", [{"n": n} for n in range(300)])
    consumer = Consumer(url)
    consumer.start()

    feed(tmp_path, window=window)

    assert consumer.stop() == list(range(300))
    assert 0 < consumer.longest <= window


def test_a_feed_keeps_the_bound_of_its_queue_also_one_that_is_set_meanwhile(
    feed, tmp_path, url, client, monkeypatch
):
    monkeypatch.setattr(job, "PACE", 0.0)
    queue = client.get_queue("video")
    queue.set_settings({"max_pending": 40})
    lines(tmp_path / "a.jsonl", [{"n": n} for n in range(300)])
    consumer, lengths = Consumer(url), []

    def look(progress):
        if progress.rows >= 100:
            queue.set_settings({"max_pending": 3})
            lengths.append(client.get_inspector().pending("video"))

    consumer.start()
    feed(tmp_path, window=100, progress=look)

    assert consumer.stop() == list(range(300))
    assert 3 < consumer.longest <= 40 and max(lengths[50:]) <= 3


def test_waiting_for_room_costs_few_commands(feed, tmp_path, cli, monkeypatch):
    monkeypatch.setattr(job, "LONGEST", 0.2)
    monkeypatch.setattr(job, "PACE", 0.2)
    lines(tmp_path / "a.jsonl", [{"n": n} for n in range(20)])
    stop = threading.Event()
    seen = []

    def look(progress):
        if progress.waiting == 10:
            seen.append(cli.info("commandstats")["cmdstat_llen"]["calls"])

    thread = threading.Thread(
        target=feed, args=(tmp_path,), kwargs={"window": 10, "stop": stop, "progress": look}
    )
    thread.start()
    until(lambda: len(seen) > 8, what="looks that are far apart")
    began, calls = time.monotonic(), seen[-1]
    until(lambda: len(seen) > 11, what="three more looks")
    stop.set()
    thread.join(10)

    assert time.monotonic() - began > 0.3
    assert seen[11] - calls <= 6


# Who feeds


def test_a_second_feeder_is_refused_and_told_who_feeds_until_the_first_stops(feed, plenty, cli):
    stop = threading.Event()
    first = threading.Thread(target=feed, args=(plenty,), kwargs={"window": 100, "stop": stop})
    first.start()
    until(lambda: cli.llen(keys.pending("video")) == 100, what="a full window")
    with pytest.raises(Taken, match=f"is fed by {blueque.system.process.node_id()}: stop"):
        feed(plenty)
    assert cli.llen(keys.pending("video")) == 100

    stop.set()
    first.join(10)
    feed(plenty, window=5000)

    assert numbers(cli) == list(range(2500))


PROGRAM = """
    import sys, blueque
    outcome = blueque.feed({source!r}, "video", name="f", window={window}, url={url!r})
    print("null" if outcome is None else outcome.fed)
"""


@pytest.fixture
def programs(url, tmp_path_factory):
    with Programs(url, tmp_path_factory.mktemp("programs")) as programs:
        yield programs


def start(programs, source, window=100, **options):
    return programs.script(
        PROGRAM.format(source=str(source), window=window, url=programs.url), **options
    )


def test_after_kill_9_the_next_on_the_same_host_goes_on_at_once(programs, feed, plenty, cli):
    program = start(programs, plenty)
    until(lambda: cli.llen(keys.pending("video")) == 100, what="a full window")
    program.send(signal.SIGKILL)
    program.wait()
    assert cli.hget(FEED, "token")
    began = time.monotonic()

    outcome = feed(plenty)

    assert outcome.rows == 2500 and 0 < outcome.fed < 2500
    assert numbers(cli) == list(range(2500))
    assert time.monotonic() - began < 10  # elsewhere it would count as alive for a minute


def test_a_feeder_of_another_host_counts_as_dead_when_it_gives_no_sign_of_life(
    feed, plenty, cli, redis
):
    stop = threading.Event()
    feed(plenty, window=100, stop=stop, progress=lambda progress: progress.rows and stop.set())
    protocol.begin_feed(redis, FeedRef("video", "f", "t"), "i", "x", {"node": "ws_7"}, None, 1.0)
    with pytest.raises(Taken, match="is fed by ws_7: stop that one"):
        feed(plenty)
    assert 50 < cli.ttl(keys.feeder("video", "f")) <= 60
    cli.delete(keys.feeder("video", "f"))  # as it expires after a minute

    feed(plenty)

    assert numbers(cli) == list(range(2500))
    assert not cli.exists(keys.feeder("video", "f"))


def test_a_frozen_feeder_is_replaced_and_thawed_it_writes_nothing(programs, plenty, cli, feed):
    program = start(programs, plenty)
    until(lambda: cli.llen(keys.pending("video")) == 100, what="a full window")
    program.send(signal.SIGSTOP)
    cli.delete(keys.feeder("video", "f"))  # as it expires after a minute

    feed(plenty, window=5000)
    cli.delete(keys.pending("video"))  # room for it, if it were to go on
    before = cli.hgetall(FEED)
    program.send(signal.SIGCONT)
    assert program.wait() == 1
    assert "Taken" in program.log and "is gone" in program.log
    assert (cli.llen(keys.pending("video")), cli.hgetall(FEED)) == (0, before)


# Interruptions


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize(
    ("having", "time"), [(b"PERSIST", 1), (b"LPUSH", 1), (b"LPUSH", 2), (b"ZREMRANGEBYSCORE", 1)]
)
def test_a_lost_answer_makes_nothing_twice(proxy, plenty, cli, monkeypatch, fault, having, time):
    """Of begin_feed, of the first and the second chunk, and of end_feed; each of them is one
    write to the proxy.
    """
    monkeypatch.setattr(job, "CHUNK", 100)
    proxy.arm(fault, time, having)
    notes = []

    outcome = blueque.feed(
        plenty,
        "video",
        name="f",
        url=proxy.url,
        progress=lambda progress: progress.note and notes.append(progress.note),
    )
    proxy.release()

    assert proxy.has_struck and outcome.is_finished
    assert [note for note in notes if not note.endswith("; waiting")] == ["going on"]
    assert numbers(cli) == list(range(2500))
    assert cli.hget(FEED, "tasks") == "2500"


def test_while_redis_is_away_it_waits_and_then_goes_on(own_server, plenty):
    client = Client(own_server.url, patience=5)
    notes, stop = [], threading.Event()
    thread = threading.Thread(
        target=blueque.feed,
        args=(plenty, "video"),
        kwargs={
            "name": "f",
            "url": own_server.url,
            "window": 100,
            "stop": stop,
            "progress": lambda progress: progress.note and notes.append(progress.note),
        },
    )
    thread.start()
    until(lambda: client.get_inspector().pending("video") == 100, what="a full window")
    own_server.kill()
    until(lambda: notes, 30, what="that it waits")
    own_server.start()
    until(lambda: len(notes) >= 2, 30, what="that it goes on")
    consumer = Consumer(own_server.url, 0)
    consumer.start()
    thread.join(60)

    assert "waiting" in notes[0] and notes[-1] == "going on"
    assert consumer.stop() == list(range(2500))


def test_a_redis_that_never_answers_is_an_error_when_patience_is_over(few):
    notes, began = [], time.monotonic()

    with pytest.raises(RedisAway, match=r"^no Redis at redis://127.0.0.1:1/0: Connection refused$"):
        blueque.feed(
            few,
            "video",
            name="f",
            client=Client("redis://127.0.0.1:1/0", patience=0.5),
            progress=lambda progress: notes.append(progress.note),
        )

    assert 0.1 < time.monotonic() - began < 3  # it has waited once at least
    assert notes == ["no Redis at redis://127.0.0.1:1/0: Connection refused; waiting"]


def test_stop_is_heeded_while_redis_is_away(few):
    stop, notes = threading.Event(), []

    def look(progress):
        notes.append(progress.note)
        if len(notes) == 1:
            stop.set()

    outcome = blueque.feed(
        few, "video", name="f", url="redis://127.0.0.1:1/0", stop=stop, progress=look
    )

    assert (outcome.is_finished, outcome.fed) == (False, 0)
    assert "no Redis at" in notes[0]


# Refused


def test_a_bad_row_is_named_when_all_before_it_are_fed_and_can_be_left_out(feed, few, cli):
    lines(few / "b.jsonl", [{"n": 5}])
    with (few / "b.jsonl").open("a") as file:
        file.write("oops\n")
    lines(few / "c.jsonl", [{"n": 6}])

    for fed in (6, 0):
        with pytest.raises(
            BacklogRefused, match=r"^b.jsonl, line 2: not valid JSON: 'oops'"
        ) as caught:
            feed(few)
        assert (caught.value.file, caught.value.row) == ("b.jsonl", 2)
        assert "feed 'f' has done 6 rows" in caught.value.__notes__[0]
        assert fed in (6, 0) and numbers(cli) == list(range(6))
    notes = []
    outcome = feed(
        few, skip_bad=True, progress=lambda progress: progress.note and notes.append(progress.note)
    )

    assert (outcome.rows, outcome.fed, outcome.skipped, cli.hget(FEED, "skipped")) == (8, 1, 1, "1")
    instance = cli.hget(FEED, "instance")
    expected = [
        uuid.uuid5(FEED_NAMESPACE, f"video\0{instance}\0{number}")
        for number in (0, 1, 2, 3, 4, 5, 7)
    ]
    assert cli.lrange(keys.pending("video"), 0, -1)[::-1] == [str(task) for task in expected]
    assert notes == [
        "left out: b.jsonl, line 2: not valid JSON: 'oops' (Expecting value: line 1 column 1 (char 0))"
    ]
    assert numbers(cli) == list(range(7))


def test_rows_that_are_fed_and_rows_that_are_left_out_are_two_numbers(feed, tmp_path, monkeypatch):
    monkeypatch.setattr(job, "CHUNK", 2)
    (tmp_path / "a.jsonl").write_bytes(b"1\noops\n\n2\noops\noops\n3\n")
    stop, notes = threading.Event(), []

    def look(progress):
        notes.append((progress.note, progress.skipped))
        if progress.rows == 3:
            stop.set()

    first = feed(tmp_path, skip_bad=True, stop=stop, progress=look)
    second, third = feed(tmp_path, skip_bad=True), feed(tmp_path, skip_bad=True)

    assert (first.rows, first.fed, first.skipped) == (3, 1, 1)
    assert [note for note, _ in notes if note] == [
        "left out: a.jsonl, line 2: not valid JSON: 'oops' "
        "(Expecting value: line 1 column 1 (char 0))"
    ]
    assert notes[-1] == (None, 1)
    assert (second.rows, second.fed, second.skipped) == (7, 2, 2)
    assert (third.rows, third.fed, third.skipped, third.is_finished) == (7, 0, 0, True)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda path: lines(path / "a.jsonl", [{"n": 0}]), "a.jsonl: it has changed"),
        (
            lambda path: table(path / "b.jsonl", range(5, 11)),
            "b.jsonl: it has changed, and 3 of its rows are fed already",
        ),
        (
            lambda path: (path / "b.jsonl").unlink(),
            "b.jsonl: it is gone, and only 3 of its rows are fed",
        ),
        (lambda path: lines(path / "a0.jsonl", [{"n": 0}]), "a0.jsonl: it sorts before"),
    ],
)
def test_a_backlog_that_is_not_what_it_was_is_refused(feed, few, cli, monkeypatch, change, why):
    half_fed(feed, few, monkeypatch)

    change(few)

    with pytest.raises(BacklogRefused, match=f"^{why}"):
        feed(few)
    assert numbers(cli) == list(range(8))


def half_fed(feed, few, monkeypatch, kind="jsonl"):
    """Feed all of a.jsonl, and three rows of b."""
    table(few / f"b.{kind}", range(5, 10))
    monkeypatch.setattr(job, "CHUNK", 4)
    stop = threading.Event()
    feed(few, stop=stop, progress=lambda progress: progress.rows == 8 and stop.set())


@pytest.mark.parametrize("kind", ["jsonl", "jsonl.gz", "parquet"])
def test_a_file_that_was_fed_to_its_end_may_go_though_nothing_came_after_it(
    feed, tmp_path, cli, monkeypatch, kind
):
    """The last row of the file is the last of a chunk, and the feeder ends there."""
    monkeypatch.setattr(job, "CHUNK", 2)
    for number in range(2):
        table(tmp_path / f"{number}.{kind}", range(4 * number, 4 * number + 4))
    stop = threading.Event()
    feed(tmp_path, stop=stop, progress=lambda progress: progress.rows == 4 and stop.set())
    (tmp_path / f"0.{kind}").unlink()

    outcome = feed(tmp_path)

    assert (outcome.is_finished, outcome.rows, outcome.fed) == (True, 8, 4)
    assert numbers(cli) == list(range(8))


def test_a_file_is_fed_once_however_many_paths_there_are(feed, few, cli):
    a, b, c = (few / f"{name}.jsonl" for name in "abc")
    table(b, [5, 6])
    assert feed([a, b]).fed == 7
    a.unlink()

    assert [feed(source).fed for source in (b, [b], few, f"{few}/*.jsonl", f"{few}/b*")] == [0] * 5

    table(c, [7])
    assert [feed(source).fed for source in ([b, c], [b, c], few, c)] == [1, 0, 0, 0]
    assert numbers(cli) == list(range(8))


def test_a_named_file_that_is_fed_may_go_while_others_are_fed(feed, few, cli, monkeypatch):
    monkeypatch.setattr(job, "CHUNK", 2)
    table(few / "b.jsonl", range(5, 10))

    def remove(progress):
        if progress.rows == 8:
            (few / "a.jsonl").unlink(missing_ok=True)

    outcome = feed([few / "a.jsonl", few / "b.jsonl"], progress=remove)

    assert (outcome.is_finished, cli.hget(FEED, "state")) == (True, "finished")
    assert numbers(cli) == list(range(10))


@pytest.mark.parametrize("pattern", ["a.jsonl", "*.jsonl"])
def test_a_named_file_may_go_between_the_last_row_and_the_end(feed, few, cli, pattern):
    stop = threading.Event()
    first = feed(
        few / pattern, stop=stop, progress=lambda progress: progress.rows == 5 and stop.set()
    )
    (few / "a.jsonl").unlink()

    assert (first.is_finished, first.rows) == (False, 5)
    assert feed(few / pattern).is_finished
    assert cli.hget(FEED, "state") == "finished" and numbers(cli) == list(range(5))


def test_a_named_file_that_goes_when_it_is_half_fed_is_missed(feed, few, monkeypatch):
    half_fed(feed, few, monkeypatch)
    (few / "b.jsonl").unlink()

    for source in (
        few / "b.jsonl",
        [few / "a.jsonl", few / "b.jsonl"],
        f"{few}/*.jsonl",
        f"{few}/b*.jsonl",
    ):
        with pytest.raises(
            BacklogRefused, match=r"^b.jsonl: it is gone, and only 3 of its rows are fed"
        ):
            feed(source)


@pytest.mark.parametrize("kind", ["jsonl", "jsonl.gz"])
def test_a_bad_first_row_of_a_file_may_be_repaired_and_later_ones_left_out(feed, few, cli, kind):
    rows = [{"n": n} for n in range(5, 10)]
    lines(few / f"b.{kind}", ["\ud800", *rows[1:]])
    with pytest.raises(BacklogRefused, match=rf"^b.{kind}, line 1: "):
        feed(few)
    lines(few / f"b.{kind}", [*rows[:3], "\ud800", rows[4]])
    with pytest.raises(BacklogRefused, match=rf"^b.{kind}, line 4: "):
        feed(few)

    assert feed(few, skip_bad=True).fed == 1
    lines(few / f"c.{kind}", [rows[3]])
    assert feed(few).fed == 1
    assert numbers(cli) == [0, 1, 2, 3, 4, 5, 6, 7, 9, 8]


def test_a_file_that_grows_while_it_is_fed_is_refused(feed, few, monkeypatch):
    def grow(progress):
        if progress.rows == 2:
            with (few / "a.jsonl").open("a") as file:
                file.write('{"n": 5}\n')

    monkeypatch.setattr(job, "CHUNK", 1)

    with pytest.raises(BacklogRefused, match=r"^a.jsonl: it has changed"):
        feed(few, progress=grow)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"window": 0}, "window is 0"),
        ({"name": ""}, "feed name cannot be empty"),
        ({"params": []}, "names of columns"),
        ({"priority": 101}, "priority 101"),
        ({"client": 1}, "not both"),
        ({"params": [5]}, "names of columns"),
        (
            {"prority": 1},
            r"^feed\(\) got an unexpected keyword argument 'prority'; for tasks there are resources, ",
        ),
    ],
)
def test_bad_options_are_refused_before_anything_is_written(feed, few, state, options, why):
    with pytest.raises((InvalidInput, TypeError), match=why):
        feed(few, **options)
    assert state() == {}


# More files


def test_follow_may_begin_with_nothing(feed, tmp_path, cli, monkeypatch):
    monkeypatch.setattr(job, "FOLLOW_PACE", 0.02)
    stop = threading.Event()
    thread = threading.Thread(target=feed, args=(tmp_path,), kwargs={"follow": True, "stop": stop})
    thread.start()
    until(lambda: cli.exists(FEED), what="the record")
    lines(tmp_path / "a.jsonl", [{"n": 0}])
    until(lambda: cli.llen(keys.pending("video")) == 1, what="the task")
    stop.set()
    thread.join(10)
