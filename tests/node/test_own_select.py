"""A selector of the user in a listener: what it returns, and what happens when it fails."""

from __future__ import annotations

import logging

import pytest

from blueque.errors import InvalidInput
from blueque.node import own_select
from blueque.node.own_select import OwnSelect

QUEUES = ["a", "b", "c"]


def test_it_gets_the_queues_and_those_with_work_and_its_choice_is_taken():
    seen = []

    def select(queues, ready):
        seen.append((queues, ready))
        yield from ("c", "a")

    assert [*OwnSelect("m:f", select)(QUEUES, {"c", "a"})] == ["c", "a"]
    assert seen == [(QUEUES, {"c", "a"})]


@pytest.mark.parametrize(
    ("select", "said"),
    [
        (lambda queues, ready: 1 // 0, "ZeroDivisionError"),
        (lambda queues, ready: None, "TypeError"),
        (lambda queues, ready: ["z"], "it names 'z', which is no queue of this listener"),
        (list, "TypeError"),
    ],
)
def test_where_it_fails_the_first_queue_with_work_is_next_and_the_log_says_so_once(
    select, said, caplog
):
    own = OwnSelect("m:f", select)
    with caplog.at_level(logging.INFO, "blueque"):
        assert [[*own(QUEUES, {"b", "c"})] for _ in range(3)] == [["b", "c"]] * 3
    (record,) = caplog.records
    assert record.levelname == "ERROR" and said in record.getMessage()
    assert "the selector m:f fails" in record.getMessage()


def test_the_log_says_when_it_works_again(caplog):
    answers = iter([["z"], ["a"], ["a"]])
    own = OwnSelect("m:f", lambda queues, ready: next(answers))
    with caplog.at_level(logging.INFO, "blueque"):
        assert [[*own(QUEUES, {"b"})] for _ in range(3)] == [["b"], ["a"], ["a"]]
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]


def test_what_cannot_be_a_selector_is_refused(tmp_path, monkeypatch):
    (tmp_path / "own_orders.py").write_text(
        "class Kind: pass\nnumber = 3\ndef wrong(queues): return queues\n"
        "def other(queues, ready): return ['z']\ndef right(queues, ready): return queues\n"
    )
    (tmp_path / "leaves.py").write_text("raise SystemExit(3)")
    monkeypatch.syspath_prepend(tmp_path)
    for name, said in [
        ("own_orders:nothing", "has no 'nothing'"),
        ("own_orders:number", "not a callable"),
        ("own_orders:Kind", "the class Kind"),
        ("own_orders:wrong", "cannot be used: TypeError"),
        ("own_orders:other", "cannot be used: it names 'z'"),
        ("leaves:select", "cannot import the selector leaves:select: SystemExit: 3"),
        ("nowhere:select", "ModuleNotFoundError"),
    ]:
        assert said in str(own_select.refusal(name, QUEUES))
    assert own_select.refusal("own_orders:right", QUEUES) is None
    with pytest.raises(InvalidInput, match="cannot import the selector"):
        own_select.load("own_orders:Kind")
