"""Tail: what a task prints, line by line."""

from __future__ import annotations

import itertools
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blueque.model.log_line import LINES
from blueque.node.reporter import progress_of
from blueque.spool import log_tail, terminal_text
from blueque.spool.log_tail import HEAD, Tail
from blueque.spool.terminal_text import MAX_LINE


@pytest.fixture
def files(tmp_path):
    """Return what appends to the outputs of an attempt."""

    def write(stdout=b"", stderr=b""):
        for name, content in (("stdout", stdout), ("stderr", stderr)):
            with (tmp_path / name).open("ab") as file:
                file.write(content)
        return str(tmp_path)

    return write


def texts(lines):
    return [line.text for line in lines]


def test_lines_are_numbered_in_both_streams_together_with_the_time_at_which_they_were_read(files):
    tailing = Tail(files(b"one\ntwo\n", b"oh\n"))
    tailing.look(5.0)
    files(b"three\n")
    tailing.look(6.0)

    assert [line[:4] for line in tailing.news()] == [
        (1, 5.0, "stdout", "one"),
        (2, 5.0, "stdout", "two"),
        (3, 5.0, "stderr", "oh"),
        (4, 6.0, "stdout", "three"),
    ]


def test_a_line_is_read_when_it_has_its_end_and_the_last_one_when_all_is_over(files):
    tailing = Tail(files(b"a beg", b""))
    tailing.look(1.0)
    assert not tailing.has_news
    files(b"inning\nan end")
    tailing.look(2.0)
    assert texts(tailing.news()) == ["a beginning"]
    tailing.look(3.0, is_over=True)
    assert texts(tailing.news()) == ["a beginning", "an end"]
    tailing.look(4.0, is_over=True)
    assert len(tailing.news()) == 2


def test_of_a_bar_that_is_drawn_again_and_again_the_last_is_a_line(files):
    tailing = Tail(files(b"", b"\r 10%|#   |"))
    for percent in range(11, 100):
        # so that it does not fit into what is held of a line
        files(b"", b"\r %d%%|" % percent + b"#" * 3000 + b"|")
        tailing.look(percent)
    files(b"", b"\r100%|####|\r\nwindows\r\n")
    tailing.look(100.0)

    assert texts(tailing.news()) == ["100%|####|", "windows"]


def test_of_a_long_line_both_ends_are_kept_and_how_much_is_left_out(files):
    half = MAX_LINE // 2
    tailing = Tail(files(b"x" * 5_000_000 + b"the end\nnext\n" + b"y" * (MAX_LINE + 1)))
    tailing.look(1.0, is_over=True)

    first, second, third = texts(tailing.news())
    left_out = 5_000_000 + len("the end") - MAX_LINE
    assert first.startswith("x" * half + f" ... ({left_out} bytes left out) ... x")
    assert first.endswith("x" * (half - len("the end")) + "the end")
    assert (second, third) == ("next", "y" * half + " ... (1 byte left out) ... " + "y" * half)


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_the_end_of_a_line_is_kept_that_is_longer_than_one_look_reads(files, end):
    path = files(b"x" * (terminal_text.MAX_READ + 2 * terminal_text.BLOCK) + b" the end" + end)
    tailing = Tail(path, kept=2**30)
    tailing.look(1.0, is_over=True)

    gap, last = texts(tailing.news())
    assert gap.endswith("left out)") and last.endswith("x the end")


def test_of_a_flood_the_first_and_the_last_lines_are_held_and_all_are_counted(files):
    tailing = Tail(files(b"".join(b"line %06d\n" % number for number in range(1, 100_001))))
    tailing.look(1.0)

    lines = tailing.news()
    head = [line for line in lines if line.is_head]
    assert [line.number for line in head] == list(range(1, len(head) + 1))
    assert HEAD <= 16 * len(head) < HEAD + 16
    assert [line.number for line in lines[len(head) :]] == list(range(100_001 - LINES, 100_001))
    assert all(line.text == f"line {line.number:06}" for line in lines)


def test_of_more_than_can_be_read_at_a_look_the_middle_is_left_out_which_a_line_says(
    files, monkeypatch, tmp_path
):
    monkeypatch.setattr(terminal_text, "MAX_READ", 2**20)
    path = files(b"".join(b"line %06d\n" % number for number in range(200_000)))
    tailing = Tail(path)
    tailing.look(1.0)

    lines = texts(tailing.news())
    assert lines[0] == "line 000000" and lines[-1] == "line 199999"
    tailing.done(10**9)
    files(b"".join(b"line %06d\n" % number for number in range(200_000, 400_000)))
    tailing.done(10**9)
    tailing.look(2.0, is_over=True)
    lines = texts(tailing.news())
    tailing.done(10**9)
    assert lines[-1] == "line 399999" and [*log_tail.read(path)][-1].text == "line 399999"
    assert len([*log_tail.read(path)]) == 400_000
    total = 400_000 * len("line 000000\n")
    assert (tmp_path / "times").read_text().splitlines()[-1].split()[2] == str(total)


def test_how_much_was_left_out_is_said_where_it_was(files, monkeypatch):
    monkeypatch.setattr(terminal_text, "MAX_READ", 1000)
    tailing = Tail(files(b"a" * 9 + b"\n"))
    tailing.look(1.0)
    files(b"".join(b"%04d\n" % number for number in range(1000)))
    tailing.look(2.0)

    (first, said, *rest) = texts(tailing.news())
    assert (first, said) == ("a" * 9, "... (4000 bytes left out)")
    # the line in which it begins may be a part of one
    assert rest == [f"{number:04}" for number in range(801, 1000)]


def test_a_file_that_is_too_large_for_the_disk_is_thinned_out_and_read_around_the_hole(
    files, tmp_path
):
    path, written = files(), 0
    tailing = Tail(path, kept=2**22)
    for number in range(8):
        written += len(
            block := b"".join(
                b"%07d\n" % line for line in range(number * 131_072, (number + 1) * 131_072)
            )
        )
        files(block)
        tailing.look(number)
    assert (tmp_path / "stdout").stat().st_size == written == 8 * 2**20
    assert (tmp_path / "stdout").stat().st_blocks * 512 <= 2**22

    found = texts(log_tail.read(path))
    assert found[0] == "0000000" and found[-1] == f"{8 * 131_072 - 1:07}"
    (said,) = [line for line in found if not line.isdecimal()]
    assert said.startswith("... (") and int(said.split()[1][1:]) > 2**22
    assert len(found) < 5 * 131_072


def test_a_bar_is_what_is_drawn_again_and_again_and_not_yet_ended(files):
    tailing = Tail(files(b"plain", b""))
    tailing.look(1.0)
    assert tailing.drawn() == []
    files(b"", b"\r 1%|#| 1/100 [")
    tailing.look(2.0)
    files(b"", b"\r 2%|#| 2/100 [\r")
    tailing.look(3.0)
    assert tailing.drawn() == [" 2%|#| 2/100 ["]
    files(b"", b"\n")  # an inner bar may follow, after which the cursor comes back
    tailing.look(4.0)
    assert tailing.drawn() == [" 2%|#| 2/100 ["] and tailing.ended() == []
    tailing.look(5.0)
    assert tailing.drawn() == [] and tailing.ended() == [" 2%|#| 2/100 ["]
    assert texts(tailing.news()) == [" 2%|#| 2/100 ["]


def test_a_bar_below_one_that_has_ended_ends_it_when_it_is_redrawn(files):
    tailing = Tail(files(b"", draw(EPOCHS[4]) + b"\n" + draw(BATCH[0])))
    tailing.look(1.0)
    assert tailing.drawn() == [BATCH[0], EPOCHS[4]]
    files(b"", draw(BATCH[1]))
    tailing.look(2.0)

    assert tailing.drawn() == [BATCH[1]]
    assert texts(tailing.news()) == tailing.ended() == [EPOCHS[4]]


def test_text_that_is_redrawn_before_each_carriage_return_moves_and_ends_as_one_line(files):
    tailing, shown = Tail(files(b"ffmpeg version 7\n")), []
    for frame in range(3):
        files(b"", b"frame= %d fps=25\r" % frame)
        tailing.look(frame)
        shown += tailing.drawn()
    assert shown == ["frame= 0 fps=25", "frame= 1 fps=25", "frame= 2 fps=25"]
    files(b"", b"frame= 3 fps=25\nvideo:1kB\n")
    tailing.look(4.0)

    assert texts(tailing.news()) == ["ffmpeg version 7", "frame= 3 fps=25", "video:1kB"]


def test_what_tqdm_writes_between_its_bars_is_a_line(files):
    """`tqdm.write` clears each bar, prints, and draws them again."""
    clear = draw(" " * 50 + "\r", 1) + draw(" " * 50 + "\r")
    bars = draw(EPOCHS[1]) + draw(BATCH[1], 1)
    tailing = Tail(files(b"", bars + clear + b"loss 0.3\n" + bars + clear + b"loss 0.2\n" + bars))
    tailing.look(1.0)

    assert texts(tailing.news()) == ["loss 0.3", "loss 0.2"]
    assert tailing.drawn() == [EPOCHS[1], BATCH[1]]


@pytest.mark.parametrize(
    ("bar", "progress"),
    [
        (" 45%|████▌     | 45/100 [00:10<00:12,  4.51it/s]", "45/100"),
        (" 27%|####  | 1.2T/4.5T [00:10<00:12, 4.51GB/s]", "1.2T/4.5T"),
        ("45it [00:10,  4.51it/s]", "45 it"),
        ("reading: 1.21Mrows [01:00:10, 4.51krows/s, bad=3]", "1.21M rows reading"),
        (
            "encoding:  45%|####5     | 45/100 [00:10<00:12,  4.51frames/s, loss=0.3]",
            "45/100 encoding",
        ),
        ("100%|██████████| 1.20M/1.20M [00:10<00:00, 4.51MB/s]", "1.20M/1.20M"),
        (f"{' ' * 4000}5%|5{' ' * 4000}| 1/20 [", "1/20"),
        (f"{' ' * 4000}5%|5{' ' * 4000}", ""),
        ("45% done", ""),
        ("12 apples [red, green]", ""),
        ("", ""),
    ],
)
def test_progress_is_read_from_a_bar(bar, progress):
    assert progress_of(bar) == progress


# As tqdm has written them, with leave=False for the inner bar and without; `FULL` is a bar that is
# full.
FULL = "█" * 10
EPOCHS = [f"epochs: {n * 25:3}%|{FULL}| {n}/4 [00:00<00:00, 1.00it/s]" for n in range(5)]
BATCH = [f"batch: {n * 50:3}%|{FULL}| {n}/2 [00:00<00:00, 1.00it/s]" for n in range(3)]


def draw(text, row=0):
    """Return what tqdm writes to draw a bar so many rows below the first."""
    return ("\n" * row + "\r" + text + "\x1b[A" * row).encode()


def nested(*, leave, row=1):
    """Yield what a bar in a bar writes, and what the outer one shows after it."""
    yield draw(EPOCHS[0]), EPOCHS[0]
    for epoch in range(4):
        for batch in BATCH:
            yield draw(batch, row), EPOCHS[epoch]
        if leave:
            yield draw(BATCH[2]) + b"\n" + draw(EPOCHS[epoch + 1]), EPOCHS[epoch + 1]
        else:
            yield draw(" " * len(BATCH[2]), row) + draw(EPOCHS[epoch + 1]), EPOCHS[epoch + 1]


@pytest.mark.parametrize("row", [1, 2])
@pytest.mark.parametrize("leave", [False, True])
def test_of_bars_one_in_another_each_is_seen_as_it_is_and_the_log_has_what_stays(files, leave, row):
    tailing, moves = Tail(files()), set()
    for count, (written, shown) in enumerate(nested(leave=leave, row=row)):
        files(b"", written)
        tailing.look(count)
        assert tailing.drawn()[0] == shown
        moves.add(tuple(tailing.drawn()))
    assert len(moves) >= 14
    files(b"", b"\n")
    tailing.look(100.0)
    assert EPOCHS[4] in tailing.ended() + tailing.drawn()
    files(b"", b"uploading\n")
    tailing.look(101.0)

    assert texts(tailing.news()) == [*[BATCH[2]] * (4 if leave else 0), EPOCHS[4], "uploading"]
    tailing.done(10**9)
    assert texts(log_tail.read(files())) == [
        *[BATCH[2]] * (4 if leave else 0),
        EPOCHS[4],
        "uploading",
    ]


def test_what_bars_one_in_another_show_last_are_lines_when_all_is_over(files):
    tailing = Tail(
        files(b"", draw(EPOCHS[0]) + draw(BATCH[0], 1) + draw(EPOCHS[1]) + draw(BATCH[1], 1))
    )
    tailing.look(1.0)
    assert tailing.drawn() == [EPOCHS[1], BATCH[1]]
    tailing.look(2.0, is_over=True)

    assert texts(tailing.news()) == [EPOCHS[1], BATCH[1]]
    assert tailing.ended()[-1] == EPOCHS[1]
    tailing.done(10**9)
    assert [(line.at, line.text) for line in log_tail.read(files())] == [
        (2.0, EPOCHS[1]),
        (2.0, BATCH[1]),
    ]


def test_what_is_printed_among_bars_is_a_line_at_once(files):
    tailing = Tail(
        files(
            b"", draw(EPOCHS[0]) + draw(BATCH[0], 1) + b"\nWARNING: it is hot\n" + draw(EPOCHS[1])
        )
    )
    tailing.look(1.0)

    assert texts(tailing.news()) == [EPOCHS[0], "WARNING: it is hot"]
    assert tailing.drawn() == [EPOCHS[1]]


def test_a_cursor_that_moves_up_and_up_draws_nothing(files):
    tailing = Tail(files(b"\x1b[99A" * 500 + b"\rx\n" + b"\x1b[A" * 100))
    tailing.look(1.0, is_over=True)

    assert [text for text in texts(tailing.news()) if text] == ["x"]


def test_empty_lines_are_no_way_to_have_very_many_of_them_held(files):
    tailing = Tail(files(b"\n" * 150_000))
    tailing.look(1.0)

    lines = tailing.news()
    assert len(lines) <= HEAD // log_tail.LEAST + LINES and lines[-1].number == 150_000


def test_a_stuck_bar_that_is_drawn_again_and_again_stays_the_same(files):
    tailing = Tail(files())
    for look in range(300):
        files(b"", b"\r 45%|" + b"#" * 80 + b"| 45/100 [retry=1")
        tailing.look(look)
        assert tailing.drawn() == [" 45%|" + "#" * 80 + "| 45/100 [retry=1"]


def test_who_comes_after_somebody_whose_lines_nobody_took_reads_them_again(files):
    path = files(b"one\ntwo\n")
    first = Tail(path)
    first.look(1.0)
    first.done(2)
    files(b"three\n", b"oh\n")
    first.look(2.0)

    second = Tail(path)
    second.look(3.0)
    assert [(line.number, line.text) for line in second.news()] == [(3, "three"), (4, "oh")]
    assert all(line.is_head for line in second.news())


def test_only_a_file_that_is_ours_alone_is_thinned_out(files, tmp_path):
    own = tmp_path / "own"
    own.write_bytes(b"x" * 2**22)
    for make in (os.symlink, os.link):
        (tmp_path / "stdout").unlink(missing_ok=True)
        make(own, tmp_path / "stdout")
        Tail(str(tmp_path), kept=2**20).look(1.0)
    assert own.read_bytes() == b"x" * 2**22


def test_long_lines_in_a_flood_are_held_to_a_number_of_bytes(files):
    tailing = Tail(
        files(b"".join(b"%04d" % number + b"x" * 3000 + b"\n" for number in range(1000)))
    )
    tailing.look(1.0)

    last = [line for line in tailing.news() if not line.is_head]
    assert 100 < len(last) < 200 and last[-1].text.startswith("0999")
    assert sum(map(len, texts(last))) <= log_tail.HELD


def test_all_of_it_is_read_from_the_files_with_the_times(files):
    path = files(b"one\ntwo\n", b"oh\n")
    tailing = Tail(path)
    tailing.look(1.0)
    files(b"three\nfou", b"no\n")
    tailing.look(2.5)
    tailing.done(5)
    assert [line[:4] for line in log_tail.read(path)] == [
        (1, 1.0, "stdout", "one"),
        (2, 1.0, "stdout", "two"),
        (3, 1.0, "stderr", "oh"),
        (4, 2.5, "stdout", "three"),
        (5, 2.5, "stderr", "no"),
        (6, 0.0, "stdout", "fou"),
    ]
    tailing.look(3.0, is_over=True)
    tailing.done(6)
    assert [*log_tail.read(path)][-1][:4] == (6, 3.0, "stdout", "fou")


def test_without_files_and_without_a_place_for_the_times_there_is_nothing_to_fail(tmp_path, files):
    tailing = Tail(str(tmp_path / "gone"))
    tailing.look(1.0, is_over=True)
    assert not tailing.has_news and [*log_tail.read(str(tmp_path / "gone"))] == []

    (tmp_path / "times").mkdir()
    tailing = Tail(files(b"one\n"))
    tailing.look(1.0)
    assert texts(tailing.news()) == ["one"]


def test_a_file_that_the_task_has_emptied_is_read_from_its_beginning(files, tmp_path):
    tailing = Tail(files(b"one\ntwo\n"))
    tailing.look(1.0)
    (tmp_path / "stdout").write_bytes(b"new\n")
    tailing.look(2.0)

    assert texts(tailing.news()) == ["one", "two", "new"]


def test_what_is_not_utf_8_is_shown_as_far_as_it_is(files):
    tailing = Tail(files(b"caf\xe9 \xc3\xa9\n"))
    tailing.look(1.0)

    assert texts(tailing.news()) == ["caf� é"]


D = b"d" * 5000
PIECES = st.lists(
    st.sampled_from(
        [b"a", b"bc", b"\n", b"\r", b"\r\n", D, b"\xc3\xa9", b"e\nf\n", b"\n\rg\x1b[A"]
    ),
    max_size=30,
)


@given(PIECES, st.sampled_from([7, 4096, 2**18]))
def test_however_it_comes_and_whoever_reads_it_the_lines_are_the_same(
    tmp_path_factory, pieces, block
):
    whole, bit_by_bit, by_many = (
        tmp_path_factory.mktemp(name) for name in ("whole", "bits", "many")
    )
    (whole / "stdout").write_bytes(b"".join(pieces))
    at_once, slowly = Tail(str(whole)), Tail(str(bit_by_bit))
    found, before = [], terminal_text.BLOCK
    terminal_text.BLOCK = block
    try:
        at_once.look(1.0, is_over=True)
        for piece, now in zip([*pieces, b""], itertools.count()):
            for directory in (bit_by_bit, by_many):
                with (directory / "stdout").open("ab") as file:
                    file.write(piece)
            slowly.look(now)
            one = Tail(str(by_many))
            one.look(now)
            found += one.news()
            one.done(10**9)
    finally:
        terminal_text.BLOCK = before
    slowly.look(1.0, is_over=True)
    last = Tail(str(by_many))
    last.look(1.0, is_over=True)

    expected = [(line.number, line.text) for line in at_once.news()]
    assert [(line.number, line.text) for line in slowly.news()] == expected
    assert [(line.number, line.text) for line in [*found, *last.news()]] == expected
    assert [(line.number, line.text) for line in log_tail.read(str(bit_by_bit))] == expected
