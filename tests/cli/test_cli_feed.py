"""`blueque feed` and `blueque group`: the programs themselves, on a real Redis, in a pipe and on a
terminal.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from types import SimpleNamespace

import forked
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running import ECHO, Program, clean_environment, until

from blueque.backlog.feed_progress import FeedProgress
from blueque.cli.verbs import feed as cli_feed
from blueque.model import keys

FEED = keys.feed("video", "f")
FEED_IT = ("feed", "backlog", "video", "--name", "f")
BLUEQUE = [sys.executable, "-m", "blueque.cli.main"]


def write(path, rows):
    path.write_text("".join(f'{{"n": {n}, "s": "x{n}"}}\n' for n in rows))


@pytest.fixture
def programs(programs):
    (programs.directory / "backlog").mkdir()
    write(programs.directory / "backlog" / "a.jsonl", range(1500))
    return programs


@pytest.fixture
def start(programs, url):
    """Start `blueque feed backlog video --name f`, or any other verb."""

    def start(*words, verb=FEED_IT, **options):
        return programs.start([*BLUEQUE, "--redis-url", url, *verb, *words], **options)

    return start


@pytest.fixture
def run(programs, url):
    """Run it to its end."""

    def run(*words, verb=FEED_IT):
        arguments = ["--redis-url", url, *verb, *words]
        done = forked.run(arguments, clean_environment(), cwd=programs.directory)
        return SimpleNamespace(
            code=done.returncode,
            printed=done.stdout,
            log=done.stderr,
            lines=lambda text: [line for line in done.stderr.splitlines() if text in line],
        )

    return run


@pytest.fixture
def forked_start(programs, url):
    """Start it in a fork of the test, in which is patched what is patched in the test."""
    begun = []

    def forked_start(*words, verb=FEED_IT):
        paths = [programs.directory / f"forked{len(begun)}.{name}" for name in ("out", "log")]
        with (
            paths[0].open("ab") as printed,
            paths[1].open("ab") as log,
            open(os.devnull) as nothing,
        ):
            files = [file.fileno() for file in (nothing, printed, log)]
            arguments = ["--redis-url", url, *verb, *words]
            pid = forked.start(arguments, clean_environment(), *files, cwd=programs.directory)
        begun.append(Program(forked.Forked(pid), *paths))
        return begun[-1]

    yield forked_start
    for program in begun:
        program.stop(signal.SIGKILL)


def waiting(cli):
    return cli.llen(keys.pending("video"))


def parameters(cli, place):
    return cli.hget(keys.task(cli.lindex(keys.pending("video"), place)), "parameters")


def test_it_feeds_and_says_so_and_does_nothing_the_next_time(run, cli):
    first, second = run(), run()

    assert (first.code, first.log) == (0, "")
    assert re.fullmatch(r"f  1,500 rows fed in [\d.]+ s, [\d,]+/s\n", first.printed)
    assert (second.code, second.printed) == (0, "f  nothing new: all 1,500 rows are done already\n")
    assert second.log == ""
    assert waiting(cli) == 1500 and parameters(cli, -1) == '{"n": 0, "s": "x0"}'


def test_its_outcome_as_json(run):
    said = json.loads(run("--json").printed)

    assert {name: said[name] for name in said if name not in ("seconds", "blueque")} == {
        "kind": "feed",
        "name": "f",
        "queue": "video",
        "finished": True,
        "rows": 1500,
        "fed": 1500,
        "skipped": 0,
    }


def test_columns_needs_and_several_paths(run, programs, cli):
    write(programs.directory / "b.jsonl", range(3))
    write(programs.directory / "c.jsonl", range(3, 5))
    both = ("feed", "b.jsonl", "c.jsonl", "video")

    assert (
        run(
            "--name", "g", "--params", "s, n", "--priority", "3", "--resource", "gpu=1", verb=both
        ).code
        == 0
    )
    assert run("--name", "h", "--value", "s", "--key", "n", verb=both).code == 0

    line = cli.lrange(keys.line("video", "3,gpu=1"), 0, -1)
    assert cli.hget(keys.task(line[0]), "parameters") == '{"s":"x4","n":4}'
    assert parameters(cli, 0) == "x4"
    assert cli.hget(keys.task(cli.lindex(keys.pending("video"), 0)), "key") == "4"


@pytest.mark.parametrize(
    ("words", "verb", "why"),
    [
        ((), ("feed", "video", "--name", "f"), "give PATH and QUEUE"),
        ((), ("feed", "--name", "f"), "give PATH and QUEUE"),
        ((), ("feed", "backlog", "video"), "--name"),
        (
            ("--params", "n", "--value", "n"),
            ("feed", "backlog", "video", "--name", "f"),
            "not both",
        ),
        (("--window", "0"), ("feed", "backlog", "video", "--name", "f"), "--window"),
        (("--lock", "a=b"), ("feed", "backlog", "video", "--name", "f"), "--lock"),
        (
            (),
            ("feed", "nowhere", "video", "--name", "f"),
            "nowhere: there is no such file or directory",
        ),
    ],
)
def test_bad_usage_is_said_in_a_sentence(run, words, verb, why):
    program = run(*words, verb=verb)

    assert program.code == 2 and why in program.log and "Traceback" not in program.log


def test_a_directory_without_rows_is_named(run, programs):
    (programs.directory / "empty").mkdir()
    (programs.directory / "empty" / "read.me").write_text("1\n")

    program = run(verb=("feed", "empty", "video", "--name", "f"))

    assert program.code == 0
    assert program.printed == "f  nothing to feed: there are no rows in empty\n"
    assert program.log == ""


def test_a_file_of_blank_lines_is_not_said_to_be_done_before(run, programs):
    blank = programs.directory / "blank.jsonl"
    blank.write_text("\n \n\n")
    verb = ("feed", "blank.jsonl", "video", "--name", "f")

    first, second = run(verb=verb), run(verb=verb)
    write(programs.directory / "a.jsonl", range(2))
    run(verb=("feed", "a.jsonl", "video", "--name", "g"))
    third = run(verb=("feed", "a.jsonl", "blank.jsonl", "video", "--name", "g"))

    write(programs.directory / "one.jsonl", range(1))
    _, again = (run(verb=("feed", "one.jsonl", "video", "--name", "h")) for _ in range(2))

    assert first.printed == "f  nothing to feed: there are only blank lines in blank.jsonl\n"
    assert again.printed == "h  nothing new: the only row is done already\n"
    assert second.printed == "f  nothing new: all 3 rows are done already\n"
    assert (
        third.printed == "g  nothing new but 3 blank lines; 5 rows in all, with those fed before\n"
    )


def test_a_path_that_is_mistyped_leaves_nothing_behind(run, state):
    before = state()

    assert run(verb=("feed", "backlgo", "video", "--name", "f")).code == 2
    assert run(verb=("feed", "backlog/b.jsonl", "video", "--name", "f")).code == 2

    assert state() == before
    assert run(verb=("group", "ls")).log == "no groups and no feeds\n"


def test_rows_that_share_a_key_are_fed_all_the_same(run, programs, cli):
    (programs.directory / "b.jsonl").write_text('{"n": 1}\n' * 3)

    program = run(verb=("feed", "b.jsonl", "video", "--name", "f", "--key", "n"))

    assert program.printed.startswith("f  3 rows fed in ") and waiting(cli) == 1


def test_a_bad_row_is_named_with_what_can_be_done(run, programs, cli):
    with (programs.directory / "backlog" / "b.jsonl").open("w") as file:
        file.write('{"n": 1}\n' + "oops\n" * 30)

    program = run()
    assert program.code == 2
    assert program.log.splitlines() == [
        "blueque: b.jsonl, line 2: not valid JSON: 'oops' (Expecting value: line 1 column 1 (char 0))",
        "1,501 rows done. Skip such rows with --skip-bad, and feed them from another file when they are repaired.",
    ]
    program = run("--skip-bad")
    assert program.code == 0
    assert re.fullmatch(
        r"f  0 rows fed in .*/s; 30 bad rows skipped\n1,531 rows in all, with those fed before\n",
        program.printed,
    )
    assert (
        len(program.lines("b.jsonl, line")) == len(program.lines("Left out: b.jsonl, line")) == 20
    )
    assert program.log.count("only counted") == 1
    assert (cli.hget(FEED, "rows"), cli.hget(FEED, "tasks")) == ("1531", "1501")
    assert cli.hget(FEED, "skipped") == "30"


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [
        (
            "b.jsonl",
            lambda path: path.write_text('{"n": 3}\n{"n": 4}\n'),
            "b.jsonl: it has changed, and 2 of its rows are fed already",
        ),
        (
            "b.jsonl",
            lambda path: path.unlink(),
            "b.jsonl: it is gone, and only 2 of its rows are fed",
        ),
        (
            "b.jsonl",
            lambda path: path.with_name("a0.jsonl").write_text("1\n"),
            "a0.jsonl: it sorts before b.jsonl, which is already being fed",
        ),
        (
            "b.jsonl",
            lambda path: path.with_name("a.jsonl").write_text("1\n"),
            "a.jsonl: it has changed since it was fed, or during that",
        ),
        (
            "b.parquet",
            lambda path: pq.write_table(pa.table({"n": [1, 2]}), path),
            "b.parquet: it has changed, and 2 of its rows are fed already",
        ),
    ],
)
def test_a_backlog_that_is_not_what_it_was_is_named_with_what_can_be_done(
    run, programs, name, change, why
):
    path = programs.directory / "backlog" / name
    if name.endswith(".parquet"):
        pq.write_table(pa.table({"n": pa.array([1, 2, None], pa.int64())}), path)
    else:
        path.write_text('{"n": 1}\n{"n": 2}\n{"n": null}\n')
    assert run("--key", "n").code == 2
    change(path)

    program = run("--key", "n")

    assert (program.code, program.printed) == (2, "")
    assert program.log.splitlines() == [
        f"blueque: {why}",
        "1,502 rows done. Make the files what they were and run the same command again. Or move those that are not"
        " fed yet into a directory of their own, and feed that with another --name.",
    ]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_between_two_steps_and_the_same_command_goes_on(
    start, run, cli, number, code
):
    program = start("--window", "600")
    until(lambda: waiting(cli) == 600, what="a full window")
    program.send(number)

    assert program.wait() == code
    assert program.log.endswith("Stopped after 600 rows. The same command continues from there.\n")
    assert cli.hget(FEED, "token") is None
    program = run("--window", "2000")
    assert program.code == 0 and "900 rows fed" in program.printed
    assert "1,500 rows in all" in program.printed
    assert waiting(cli) == 1500


def has_taken_signals(pid):
    """Tell whether no signal waits for the process, and it sleeps again after the last one."""
    with open(f"/proc/{pid}/status") as file:
        fields = {name: value for name, _, value in (line.partition(":\t") for line in file)}
    waiting = int(fields["SigPnd"], 16) | int(fields["ShdPnd"], 16)
    return not waiting and fields["State"].startswith("S")


def test_a_second_signal_interrupts_at_once(start, own_server, programs):
    """Redis stands still in the middle of an answer, so that there is no end between two steps."""
    program = start("--redis-url", own_server.url, "--window", "600")
    client = programs.client.__class__(own_server.url)
    until(lambda: client.get_inspector().pending("video") == 600, what="a full window")
    os.kill(own_server.pid, signal.SIGSTOP)
    try:
        time.sleep(ECHO)  # it looks once a second, and waits for the answer now
        program.send(signal.SIGINT)
        until(lambda: has_taken_signals(program.pid), what="the first one to be taken")
        with pytest.raises(AssertionError, match="still there"):
            program.wait(ECHO)
        program.send(signal.SIGINT)
        assert program.wait() == 130
    finally:
        os.kill(own_server.pid, signal.SIGCONT)


def test_a_second_feeder_is_refused_and_told_who_feeds(start, run, cli):
    first = start("--window", "600")
    until(lambda: waiting(cli) == 600, what="a full window")

    refused = run()
    assert refused.code == 5 and refused.log.startswith(
        f"blueque: feed 'f' of queue 'video' is fed by {cli.hget(FEED, 'node')}: stop that one, or, if it is dead, "
    )
    first.send(signal.SIGKILL)
    first.wait()
    assert run("--window", "5000").code == 0
    assert waiting(cli) == 1500


def test_without_redis_it_ends_at_once_as_every_other_verb(run):
    program = run("--redis-url", "redis://127.0.0.1:1/0")

    assert program.code == 69
    assert "no Redis at redis://127.0.0.1:1/0: Connection refused\n" in program.log
    assert "rows" not in program.log and "waiting" not in program.log


def test_when_redis_goes_away_later_it_waits_and_says_so_once(start, own_server, programs):
    program = start("--redis-url", own_server.url, "--window", "600")
    client = programs.client.__class__(own_server.url)
    until(lambda: client.get_inspector().pending("video") == 600, what="a full window")
    own_server.kill()
    program.says("; waiting")

    assert program.stop(signal.SIGTERM) == 143
    assert len(program.lines("waiting")) == 1


def test_in_a_pipe_there_is_a_line_now_and_then(monkeypatch, forked_start):
    monkeypatch.setattr(cli_feed, "EVERY", 0.2)
    noisy = forked_start("--window", "600")

    noisy.says("600 of about ", 12)
    assert re.search(r"600 of about 1,\d\d\d rows, [\d.,]+/s, 600 in line", noisy.log)
    assert noisy.stop() == 143


def test_in_a_pipe_a_line_without_news_comes_seldom(monkeypatch, capsys):
    monkeypatch.setattr(cli_feed, "EVERY", 0.0)
    screen = cli_feed.Screen()
    for rows in (5, 5, 5, 6):
        screen.tell(FeedProgress(rows=rows))

    assert [line.split(",")[0] for line in capsys.readouterr().err.splitlines()] == [
        "5 rows",
        "6 rows",
    ]


def test_on_a_terminal_one_line_is_drawn_anew_within_its_width(programs, url, cli):
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 50, 0, 0))
    command = [*BLUEQUE, "--redis-url", url, *FEED_IT, "--window", "600"]
    program = programs.start(command, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    while b"in line" not in shown or shown.count(b"\r") < 4:
        assert select.select([ours], [], [], 20)[0], shown
        shown += os.read(ours, 4096)
    program.stop()
    last = b""
    with contextlib.suppress(OSError):  # nobody has the other end any more
        while piece := os.read(ours, 4096):
            last += piece
    os.close(ours)

    assert b"\r\x1b[K" in last, last  # the line is gone before the outcome
    frames = [frame.split("\x1b[K")[0] for frame in shown.decode().split("\r") if "rows" in frame]
    assert b"\n" not in shown and all(len(frame) <= 50 for frame in frames)
    assert any(
        re.match(r"600 of about [\d,]+ rows, [\d,.]+/s, 600 in line", frame) for frame in frames
    ), frames


def test_group_lists_feeds_and_forgets_one_when_asked_to(run, cli):
    assert run(verb=("group", "ls")).log == "no groups and no feeds\n"
    run()
    header, row = run(verb=("group", "show", "f")).printed.splitlines()
    (item,) = json.loads(run("--json", verb=("group", "ls")).printed)["feeds"]
    listed = run(verb=("group", "ls")).printed.splitlines()[1]
    assert re.fullmatch(r"f +feed +finished +[\d.]+ s +1500 +- +0 +- +-", listed)

    assert header.split() == [
        "FEED",
        "QUEUE",
        "SOURCE",
        "TASKS",
        "BAD",
        "DONE",
        "STATE",
        "FOR",
        "FEEDER",
    ]
    assert re.fullmatch(r"f +video +backlog +1500 +0 +100 % +finished +[\d.]+ s  -", row)
    assert (item["feed"], item["rows"], item["state"]) == ("f", 1500, "finished")
    assert item["source"] == "backlog"
    assert run(verb=("status",)).printed.count("backlog") == 0  # it is about what goes on
    assert run(verb=("group", "forget", "f")).code == 6
    assert run(verb=("group", "forget", "g", "--yes")).code == 3
    assert run(verb=("group", "forget", "g", "-q", "video", "--yes")).code == 3
    assert run(verb=("group", "show", "f", "-q", "audio")).code == 3
    assert run(verb=("group", "forget", "f", "--yes")).printed == "f  forgotten\n"
    assert not cli.exists(FEED)
    assert run().code == 0 and waiting(cli) == 3000


def test_a_feed_counts_no_row_as_a_task_that_became_none(run, programs):
    file = programs.directory / "backlog" / "a.jsonl"
    file.write_text('{"n": 1}\nbad\n\n{"n": 2}\n')
    run("--skip-bad")

    shown, asked = (run(verb=("group", verb, "f")) for verb in ("show", "forget"))

    assert re.search(r"backlog +2 +1 +100 %", shown.printed)
    assert "feed f has made 2 tasks of 4 rows and would start again" in asked.log


def test_a_feeder_that_was_killed_on_this_host_is_seen_at_once(start, run, cli):
    feeder = start("--window", "600")
    until(lambda: waiting(cli) == 600, what="a full window")
    feeder.stop(signal.SIGKILL)
    assert cli.exists(keys.feeder("video", "f"))

    (row,) = [
        line for line in run(verb=("group", "show", "f")).printed.splitlines() if "backlog" in line
    ]

    assert " stopped " in row
    assert "its feeder" in run(verb=("status",)).printed


def test_status_and_group_show_what_is_fed_from_where_how_far_by_whom_and_since_when(
    start, run, cli
):
    feeder = start("--window", "600")
    until(lambda: waiting(cli) == 600, what="a full window")
    node, since = cli.hget(FEED, "node"), float(cli.hget(FEED, "since"))
    for verb in (("status",), ("group", "show", "f")):
        (row,) = [line for line in run(verb=verb).printed.splitlines() if "backlog" in line]
        found = json.loads(run("--json", verb=verb).printed)
        (item,) = found["feeds" if verb == ("status",) else "items"]

        assert re.fullmatch(
            rf"f +video +backlog +600 +0 +38 % +feeding +[\d.]+ s  {re.escape(node)}", row
        )
        assert (item["feed"], item["rows"], item["skipped"]) == ("f", 600, 0)
        assert item["state"] == "feeding"
        assert item["share"] == pytest.approx(0.39, abs=0.01) and item["node"] == node
        assert item["since_seconds"] == pytest.approx(since, abs=1e-5) and item["since"].endswith(
            "Z"
        )
    feeder.stop()

    (row,) = [line for line in run(verb=("status",)).printed.splitlines() if "backlog" in line]
    assert re.fullmatch(r"f +video +backlog +600 +0 +38 % +stopped +[\d.]+ s  -", row)


@pytest.mark.parametrize(
    ("fields", "row", "attention"),
    [
        (
            {},
            "stopped 1 h 40 m -",
            "! video: feed f has made no progress for 1 h 40 m: no program feeds it\n  blueque group show f -q video\n",
        ),
        ({"updated": "3000"}, "stopped 50 m -", ""),
        ({"rows": "0"}, "stopped 1 h 40 m -", ""),
        (
            {"token": "t", "node": "ws_7", "updated": "3600"},
            "stopped 40 m ws_7",
            "! video: feed f has made no progress for 40 m: its feeder ws_7 died\n",
        ),
        ({"token": "t", "node": "ws_7", "since": "0", "is": "alive"}, "feeding 1 h 40 m ws_7", ""),
        (
            {"token": "t", "node": "ws_7", "updated": "nan", "share": "x", "rows": "inf"},
            "stopped",
            "! video: ",
        ),
    ],
)
def test_status_points_at_feeds_that_stand_still(run, cli, redis, fields, row, attention):
    now = time.time()
    record = {"updated": "0", "share": "0.999", "rows": "5", "source": "backlog"} | fields
    if record.pop("is", "") == "alive":
        cli.set(keys.feeder("video", "f"), 1)
    for name in {"updated", "since"} & record.keys():
        record[name] = str(now - 6000 + float(record[name]))
    cli.hset(FEED, mapping={"feed": "f", "queue": "video", "state": "open", **record})
    cli.zadd(keys.feeds("video"), {"f": "+inf", "expired": "+inf"})
    cli.zadd(keys.QUEUES, {"video": 0})

    shown = run(verb=("status",)).printed

    assert row in re.sub(" +", " ", shown)
    assert ("99 %" in shown) is ("x" not in record["share"])
    said = [
        line
        for line in shown.splitlines()
        if line.startswith("!") and not line.startswith("! Redis:")
    ]
    assert attention in shown and bool(said) is bool(attention)
    assert run("--json", verb=("status",)).code == 0


def test_feeds_fit_a_terminal_of_80_columns(url, cli):
    name = "incoming-frames-of-the-night"
    record = {
        "feed": name,
        "queue": "video-transcoding",
        "state": "open",
        "source": "/mnt/projects/incoming/frames/*.parquet",
        "rows": 12_345_680,
        "tasks": 12_345_678,
        "skipped": 123,
        "share": 0.5,
        "updated": time.time(),
        "token": "t",
        "node": "render-node-17.example.com_123456",
        "since": time.time() - 90_000,
    }
    cli.hset(keys.feed("video-transcoding", name), mapping=record)
    cli.set(keys.feeder("video-transcoding", name), 1)
    cli.zadd(keys.feeds("video-transcoding"), {name: "+inf"})
    cli.zadd(keys.QUEUES, {"video-transcoding": 0})
    for verb in (("group", "show", name), ("status",)):
        shown = forked.on_terminal(
            ["--redis-url", url, *verb], clean_environment() | {"COLUMNS": "80"}
        )

        lines = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in shown]
        (row,) = [line for line in lines if "50 %" in line]
        assert all(len(line) <= 80 for line in lines), lines
        assert "12345678" in row and "feeding" in row and "1 d 1 h" in row
