"""The spool is removed under a listener, as by a program that tidies up /tmp: it is made again, and
tasks run on.
"""

from __future__ import annotations

import shutil
import stat

import handlers
import pytest
from handlers import begin, ended, is_sound, let_go
from running import until

from blueque.errors import SpoolRefused
from blueque.listener.resources import Pool
from blueque.spool.spool import Spool

WORK = handlers.WORK

QUICK = ("--beat", "0.2s", "--lease", "0.6s")


@pytest.fixture
def spool(tmp_path):
    spool = Spool(str(tmp_path / "spool"), 1000)
    spool.open()
    assert spool.want_of_room() is None
    return spool


def remove(path, directory):
    """Remove a directory at one blow: its listener might make it again while its entries are
    removed.
    """
    shutil.rmtree(path.rename(directory / "removed"))


@pytest.mark.parametrize("removed", ["", "open"])
def test_an_idle_listener_makes_its_spool_again_for_itself_alone_and_takes_tasks(programs, removed):
    listener = programs.listener("work:run", *QUICK, "--resource", "gpu=1")
    queue, spool = programs.client.get_queue("work"), programs.directory / "spool"
    assert ended(programs.client, queue.enqueue("quick")).status == "complete"

    remove(spool / removed, programs.directory)

    assert ended(programs.client, queue.enqueue("quick")).status == "complete"
    assert ended(programs.client, queue.enqueue("quick", resources={"gpu": 1})).status == "complete"
    assert stat.S_IMODE(spool.stat().st_mode) == 0o700
    (slot,) = listener.slots()
    until(
        (spool / "listeners" / str(slot)).exists, what="its entry among the listeners of the spool"
    )
    assert len(listener.lines("was removed, and is created again")) == 1 and is_sound(
        programs.client
    )


def test_a_listener_whose_spool_is_removed_under_its_task_takes_the_next_one(programs):
    programs.listener("work:run", *QUICK)
    task = begin(programs)

    remove(programs.directory / "spool", programs.directory)

    following = programs.client.get_queue("work").enqueue("quick")
    let_go(programs)
    assert ended(programs.client, task.id).status == "failed"
    assert ended(programs.client, following).status == "complete" and is_sound(programs.client)


def test_a_spool_that_another_has_made_again_meanwhile_and_left_open_is_refused(spool, tmp_path):
    shutil.rmtree(spool.root)
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool" / "trap").touch()
    (tmp_path / "spool").chmod(0o777)

    want = spool.want_of_room()

    assert want is not None and "is open to others (mode 777)" in want
    with pytest.raises(SpoolRefused):
        spool.open()


def test_what_a_node_has_to_give_is_given_again_once_its_directory_is_made_again(spool):
    pool = Pool(f"{spool.root}/resources", {"gpu": 1})
    pool.open()
    shutil.rmtree(spool.root)

    assert pool.claim({"gpu": 1}) is None
    assert spool.want_of_room() is None
    assert pool.claim({"gpu": 1}) is None
    claim = pool.claim({"gpu": 1})

    assert claim is not None and claim.numbers == {"gpu": [0]}
    claim.close()
