"""Plain files: what is opened, read and replaced where a task may have put anything."""

from __future__ import annotations

import os
import signal

import pytest
from spoiled import HUGE, KINDS, spoil

from blueque.system import plain_files
from blueque.system.plain_files import NotPlain

NO_FILES = ("pipe", "directory", "loop", "zero", "socket", "link", "dangling")


@pytest.fixture(autouse=True)
def no_waiting():
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it waits"))
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("kind", NO_FILES)
@pytest.mark.parametrize(
    "flags", [os.O_RDONLY, os.O_WRONLY, os.O_RDWR | os.O_CREAT, os.O_WRONLY | os.O_APPEND]
)
def test_what_is_not_a_regular_file_is_refused_at_once_and_no_descriptor_is_left_open(
    tmp_path, kind, flags
):
    spoil(tmp_path / "file", kind)
    before = set(os.listdir("/proc/self/fd"))

    with pytest.raises(NotPlain, match="not a regular file"):
        plain_files.open_plain(str(tmp_path / "file"), flags)
    # what other tests left open may be collected meanwhile
    assert set(os.listdir("/proc/self/fd")) <= before


def test_a_link_to_a_regular_file_is_one_if_that_is_asked_for_and_a_link_to_a_device_is_not(
    tmp_path,
):
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "zero").symlink_to("/dev/zero")

    assert plain_files.read(str(tmp_path / "link"), may_be_link=True) == b"content"
    with pytest.raises(NotPlain):
        plain_files.read(str(tmp_path / "zero"), may_be_link=True)


def test_a_file_is_read_whole_or_its_beginning_or_its_end(tmp_path):
    (tmp_path / "file").write_bytes(b"content")
    path = str(tmp_path / "file")

    assert plain_files.read(path) == plain_files.read(path, 7) == b"content"
    assert (plain_files.head(path, 3), plain_files.head(path, 9)) == (b"con", b"content")
    assert (plain_files.tail(path, 3), plain_files.tail(path, 9)) == (b"ent", b"content")
    with pytest.raises(NotPlain, match="it has 7 bytes, more than 6"):
        plain_files.read(path, 6)


def test_of_a_huge_file_no_more_is_read_than_was_asked_for(tmp_path):
    spoil(tmp_path / "file", "huge")
    path = str(tmp_path / "file")

    assert plain_files.head(path, 5) == plain_files.tail(path, 5) == bytes(5)
    with pytest.raises(NotPlain, match=f"{HUGE:,}"):
        plain_files.read(path)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "deep"])
def test_a_file_is_written_and_replaced_whatever_stands_there(tmp_path, kind):
    (tmp_path / "precious").write_text("precious")
    for name in ("file", "file.new"):
        spoil(tmp_path / name, kind)

    plain_files.write_whole(str(tmp_path / "file.new"), b"content")
    plain_files.replace(str(tmp_path / "file.new"), str(tmp_path / "file"))

    assert plain_files.read(str(tmp_path / "file")) == b"content"
    assert not (tmp_path / "file.new").exists()
    if kind == "directory":
        assert (
            sorted(path.read_text() for path in tmp_path.glob("file*.*/a file"))
            == ["in the way"] * 2
        ), "it is kept"


def test_what_is_removed_by_steps_is_never_outside_of_it(tmp_path):
    """A process that the task has left may move directories meanwhile."""
    tree, kept = tmp_path / "tree", tmp_path / "kept"
    for directory in (tree / "some", kept):
        directory.mkdir(parents=True)
        for name in ("a", "b"):
            (directory / name).touch()
    steps = plain_files.remove_by_steps(str(tree))
    next(steps)

    (tree / "some").rename(tmp_path / "moved")
    (tree / "some").symlink_to(kept)
    list(steps)

    assert sorted(os.listdir(kept)) == ["a", "b"]


def test_directories_whose_path_is_too_long_for_a_call_are_removed(tmp_path):
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(20):
        os.mkdir("x" * 250, dir_fd=here)
        here = os.open("x" * 250, os.O_RDONLY, dir_fd=(above := here))
        os.close(above)
    os.close(here)

    list(plain_files.remove_by_steps(str(tmp_path / ("x" * 250))))

    assert os.listdir(tmp_path) == []
