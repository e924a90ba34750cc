"""The files of a backlog and their rows, without Redis: which files, in which order, and what
becomes of each row.
"""

from __future__ import annotations

import datetime
import gzip
import json
import os
import subprocess
import sys
import tempfile
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from blueque.backlog.files import Backlog, BacklogFile
from blueque.backlog.jsonl import JsonRows
from blueque.backlog.parquet import ParquetRows
from blueque.backlog.rows import Portion, Shape
from blueque.errors import BacklogRefused, InvalidInput, InvalidType

EVERYTHING = 10**9
NOBODY = 65534  # a user that may read what all may, and no more


@pytest.fixture
def write(tmp_path):
    """Write a file: lines of text as JSON lines, a dict of columns as Parquet."""

    def write(name, content, **options):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, dict):
            pq.write_table(pa.table(content), path, **options)
        else:
            data = (
                content
                if isinstance(content, bytes)
                else "".join(f"{line}\n" for line in content).encode()
            )
            path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return str(path)

    return write


def open_rows(path, shape=Shape(), row=0, offset=0, constants=None):  # noqa: B008
    kind = ParquetRows if path.endswith(".parquet") else JsonRows
    return kind(BacklogFile(os.path.basename(path), path, constants or {}), shape, row, offset)


def values(path, shape=Shape(), count=EVERYTHING, **place):  # noqa: B008
    """Return what the parameters of the rows are, as a handler gets them."""
    portion = Portion()
    open_rows(path, shape, **place).take(portion, count, EVERYTHING)
    return [json.loads(text) if is_json else text.decode() for text, is_json in portion.parameters]


def keys_of(path, shape):
    portion = Portion()
    open_rows(path, shape).take(portion, EVERYTHING, EVERYTHING)
    return portion.keys


# Which files


def test_the_files_of_a_directory_are_sorted_by_their_places_in_it(write, tmp_path):
    for name in ("b.jsonl", "a/2.json.gz", "a/1.parquet", "a-b/1.ndjson", "day=1/x.jsonl"):
        write(name, {"n": [1]} if name.endswith("parquet") else ["1"])
    for other in (
        "_SUCCESS",
        "_temporary/0.jsonl",
        ".hidden.jsonl",
        "a/.1.parquet.crc",
        "notes.txt",
        "a/x.parquet.tmp",
    ):
        write(other, ["1"])

    files = Backlog(tmp_path).files()

    assert [one.name for one in files] == [
        "a/1.parquet",
        "a/2.json.gz",
        "a-b/1.ndjson",
        "b.jsonl",
        "day=1/x.jsonl",
    ]
    assert [one.constants for one in files if one.constants] == [{"day": "1"}]


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (
            ["x/1.jsonl", "y/1.jsonl"],
            "^1.jsonl: both x/1.jsonl and y/1.jsonl have that name: give the directory above them$",
        ),
        (["x", "y"], "^1.jsonl: both "),
        ([".", "x"], "^x/1.jsonl: it is given twice, as x/1.jsonl and as 1.jsonl$"),
    ],
)
def test_a_name_of_two_files_and_a_file_of_two_names_are_refused(
    write, tmp_path, monkeypatch, source, why
):
    for name in ("x/1.jsonl", "y/1.jsonl"):
        write(name, ["1"])
    monkeypatch.chdir(tmp_path)

    with pytest.raises(BacklogRefused, match=why):
        Backlog(source).files()


def test_a_path_may_be_gone_if_its_file_is_known(write, tmp_path):
    there = write("b.jsonl", ["1"])
    for path in (
        tmp_path / "a.jsonl",
        tmp_path / "a*.jsonl",
        tmp_path / "**" / "a.jsonl",
        tmp_path / "gone" / "a.jsonl",
    ):
        assert [one.name for one in Backlog([path, there]).files({"a.jsonl"})] == ["b.jsonl"]
        with pytest.raises(BacklogRefused, match="there is no such file or directory"):
            Backlog([path, there]).files({"c.jsonl"})
    for path in (tmp_path / "gone", f"{tmp_path}/gone/", tmp_path / "gone" / "*.jsonl"):
        with pytest.raises(BacklogRefused, match="there is no such file or directory"):
            Backlog(path).files({"a.jsonl"})


@pytest.mark.parametrize(
    ("source", "error"), [(5, InvalidType), (b"x", InvalidType), ([], InvalidInput)]
)
def test_what_is_no_path_is_no_backlog(source, error):
    with pytest.raises(error):
        Backlog(source)


def test_a_path_that_is_not_there_or_cannot_be_rows_is_refused(write, tmp_path):
    for path in (tmp_path / "none", tmp_path / "*.jsonl", write("notes.txt", ["1"])):
        with pytest.raises(BacklogRefused):
            Backlog(path).files()


def test_a_directory_that_cannot_be_read_is_not_passed_over():
    with tempfile.TemporaryDirectory() as directory:  # one of pytest's is root's alone, all the way
        os.chmod(directory, 0o755)
        locked = Path(directory, "locked")
        locked.mkdir(mode=0)
        was = os.geteuid()
        if was == 0:
            os.seteuid(NOBODY)  # root may read everything
        try:
            with pytest.raises(BacklogRefused, match="locked"):
                Backlog(directory).files()
        finally:
            os.seteuid(was)
            locked.chmod(0o700)


# JSON lines


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "not valid JSON"),
        ('{"a": NaN}', "NaN"),
        ("[1, -Infinity]", "Infinity"),
        ('{"a": "\\ud800"}', "not a character"),
        (b"\xff", "not UTF-8"),
        ("[" * 100_000, "nested too deeply"),
        ('"' + "x" * 2000 + '"', "2,000 bytes"),
    ],
)
def test_a_bad_line_is_named_and_comes_after_those_before_it(write, line, why):
    bad = line if isinstance(line, bytes) else line.encode()
    rows = open_rows(
        write("a.jsonl", b'{"n": 1}\n\n' + bad + b'\n{"n": 4}\n'), Shape(max_bytes=1000)
    )
    portion = Portion()

    for _ in range(2):
        with pytest.raises(BacklogRefused, match=rf"^a.jsonl, line 3: .*{why}") as caught:
            rows.take(portion, EVERYTHING, EVERYTHING)
        assert (portion.parameters, portion.rows) == ([(b'{"n": 1}', True)], 2)
    assert (caught.value.file, caught.value.row) == ("a.jsonl", 3)


def test_a_line_without_end_is_refused_and_not_held_in_memory(write, monkeypatch):
    monkeypatch.setattr("blueque.backlog.jsonl._LONGEST", 1 << 16)
    path = write("a.jsonl", b"1\n" + b"x" * (20 << 20) + b"\n2\n")
    tracemalloc.start()
    portion = Portion()
    open_rows(path, Shape(skip_bad=True)).take(portion, EVERYTHING, EVERYTHING)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert [text for text, _ in portion.parameters] == [b"1", b"2"]
    assert portion.bad[0].row == 2
    assert peak < 8 << 20


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.gz.part.gz"])
def test_a_file_that_is_cut_off_is_refused_after_what_can_be_read(write, tmp_path, name):
    whole = gzip.compress(
        b"".join(
            b'{"n": %d, "x": "%s"}\n' % (n, os.urandom(20).hex().encode()) for n in range(5000)
        )
    )
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(whole[: len(whole) // 2] if name == "a.jsonl.gz" else b"no gzip at all")

    with pytest.raises(BacklogRefused, match=r"^a.jsonl.gz: cannot be read"):
        values(str(path))


# Columns, of both kinds


@pytest.fixture(params=["a.jsonl", "a.parquet"])
def table(request, write):
    """Two rows with the columns scene, frame and note, as either kind of file."""
    rows = [{"scene": 'a"ä', "frame": 1, "note": None}, {"scene": "b", "frame": 2, "note": "x"}]
    if request.param == "a.jsonl":
        return write(request.param, [json.dumps(row) for row in rows])
    return write(request.param, {name: [row[name] for row in rows] for name in rows[0]})


def test_params_are_all_columns_some_or_one(table):
    assert values(table) == [
        {"scene": 'a"ä', "frame": 1, "note": None},
        {"scene": "b", "frame": 2, "note": "x"},
    ]
    assert values(table, Shape(("note", "frame"))) == [
        {"note": None, "frame": 1},
        {"note": "x", "frame": 2},
    ]
    assert values(table, Shape("scene")) == ['a"ä', "b"]
    assert values(table, Shape("frame")) == [1, 2]
    assert values(table, Shape("note")) == [None, "x"]


def test_a_key_is_a_column_of_text_or_of_whole_numbers(table):
    assert keys_of(table, Shape(key="scene")) == ['a"ä'.encode(), b"b"]
    assert keys_of(table, Shape(("scene",), key="frame")) == [b"1", b"2"]
    with pytest.raises(
        BacklogRefused,
        match=r"(line|row) 1: 'note' holds nothing; a key is text, or a whole number",
    ):
        keys_of(table, Shape(key="note"))
    portion = Portion()
    open_rows(table, Shape(key="note", skip_bad=True)).take(portion, EVERYTHING, EVERYTHING)
    assert (portion.keys, portion.places) == ([b"x"], [1])


def test_a_column_that_is_missing_is_named(table):
    for shape in (Shape(("scene", "none")), Shape("none"), Shape(key="none")):
        with pytest.raises(
            BacklogRefused, match=r"there is no .*'none'.*; there are scene, frame, note$"
        ):
            values(table, shape)


def test_what_directories_say_is_a_column(table):
    constants = {"day": "1 %s", "part": None}
    first = {"scene": 'a"ä', "frame": 1, "note": None, **constants}

    assert values(table, constants=constants)[0] == first
    assert values(table, Shape(("day", "scene")), constants=constants)[0] == {
        "day": "1 %s",
        "scene": 'a"ä',
    }
    assert values(table, Shape("day"), constants=constants) == ["1 %s"] * 2


def test_bytes_of_parameters_bound_a_portion(table):
    portion = Portion()
    open_rows(table).take(portion, EVERYTHING, 10)

    assert portion.rows == 1


# Parquet


def test_what_json_has_not_becomes_what_it_has(write):
    """That `bs.enqueue` makes the same of the same rows is in tests/spark/test_same_json.py."""
    day = datetime.datetime(2026, 11, 21, 5, 26, 11, 500)
    columns = {
        "clock": [day.time(), None],
        "fine": pa.array([1_795_238_771_000_000_999, None], pa.timestamp("ns")),
        "fixed": pa.array([b"ab", None], pa.binary(2)),
        "pair": pa.array([[1, 2], None], pa.list_(pa.int8(), 2)),
        "large": pa.array([["a"], None], pa.large_list(pa.large_string())),
        "half": pa.array([0.5, None]).cast(pa.float16()),
        "enum": pa.array(["x", "y"]).dictionary_encode(),
        "of": pa.array([["x"], ["y"]], pa.list_(pa.dictionary(pa.int8(), pa.string()))),
        '100% "sure"': ["a", "b"],
    }
    first, second = values(write("a.parquet", columns))

    assert first == {
        "clock": "05:26:11.000500",
        "fine": "2026-11-21T05:26:11.000000",
        "fixed": "YWI=",
        "pair": [1, 2],
        "large": ["a"],
        "half": 0.5,
        "enum": "x",
        "of": ["x"],
        '100% "sure"': "a",
    }
    assert second == {**dict.fromkeys(columns), "enum": "y", "of": ["y"], '100% "sure"': "b"}


def test_a_time_as_older_spark_writes_it_is_in_utc_wherever_it_stands(write):
    day = datetime.datetime(2026, 11, 21, 5, 26, 11, 500)
    columns = {
        "kept": pa.array([[1]]),
        "at": pa.array([day]),
        "of": pa.array([[{"a": day, "b": [day]}]]),
        "map": pa.array([[("k", day)]], pa.map_(pa.string(), pa.timestamp("us"))),
    }
    path = write("a.parquet", columns, use_deprecated_int96_timestamps=True)

    text = "2026-11-21T05:26:11.000500Z"
    assert values(path) == [
        {"kept": [1], "at": text, "of": [{"a": text, "b": [text]}], "map": {"k": text}}
    ]
    assert values(path, Shape("at")) == [text]


@pytest.mark.parametrize(
    "values_of",
    [
        [datetime.timedelta(1)],
        [[datetime.timedelta(1)]],
        [{"a": datetime.timedelta(1)}],
        pa.array([[(1.5, "a")]], pa.map_(pa.float64(), pa.string())),
    ],
)
def test_a_column_that_json_cannot_have_is_refused_unless_it_is_not_wanted(write, values_of):
    path = write("a.parquet", {"n": [1], "odd": values_of})

    with pytest.raises(
        BacklogRefused, match=r"column 'odd(\.a)?' is of type .* which JSON has not"
    ):
        open_rows(path)
    assert values(path, Shape(("n",))) == [{"n": 1}]


@pytest.mark.parametrize(
    ("column", "why"),
    [
        (["a", "b", "x" * 2000, "d"], r"\d,\d+ bytes"),
        (pa.array([b"a", b"b", b"\xff", b"d"]).view(pa.string()), "utf-8"),
    ],
)
def test_a_bad_row_is_named(write, column, why):
    path = write("a.parquet", {"n": range(4), "odd": column})
    rows, portion = open_rows(path, Shape(max_bytes=1000)), Portion()

    with pytest.raises(BacklogRefused, match=rf"^a.parquet, row 3: .*({why})"):
        rows.take(portion, EVERYTHING, EVERYTHING)
    assert portion.rows == 2
    assert [row["n"] for row in values(path, Shape(max_bytes=1000, skip_bad=True))] == [0, 1, 3]


def test_what_is_no_parquet_is_refused(write):
    for content in (b"", b"PAR1 and no more", b"{}\n"):
        with pytest.raises(BacklogRefused, match=r"a.parquet: cannot be read as Parquet"):
            open_rows(write("a.parquet", content))


def test_a_parquet_file_without_columns_is_refused(tmp_path):
    pq.write_table(pa.table({}), tmp_path / "a.parquet")

    with pytest.raises(BacklogRefused, match="no columns"):
        open_rows(str(tmp_path / "a.parquet"))


def test_a_large_file_takes_little_memory(tmp_path):
    """Measured in a process of its own: what pyarrow takes is nothing to Python's own count."""
    with pq.ParquetWriter(
        tmp_path / "a.parquet", pa.schema([("n", pa.int64()), ("s", pa.string())])
    ) as writer:
        some = pa.table(
            {"n": range(250_000), "s": [f"/mnt/render/{n:08d}.exr" for n in range(250_000)]}
        )
        for _ in range(4):
            writer.write_table(some, row_group_size=250_000)
    program = f"""if True:
        import resource
        from blueque.backlog.files import BacklogFile
        from blueque.backlog.rows import Portion, Shape
        from blueque.backlog.parquet import ParquetRows
        rows, count = ParquetRows(BacklogFile("a", {str(tmp_path / "a.parquet")!r}, {{}}), Shape()), 0
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        has_more = True
        while has_more:
            has_more = rows.take(portion := Portion(), 1000, 1 << 22)
            count += portion.rows
        print(count, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
    """
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    count, mebibytes = map(int, done.stdout.split())

    assert count == 1_000_000
    assert mebibytes < 60


def test_json_lines_need_no_pyarrow():
    program = "import sys, blueque.backlog.jsonl, blueque.backlog.parquet; sys.exit('pyarrow' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", program], timeout=30).returncode == 0
