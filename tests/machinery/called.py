"""A plugin for pytest, which `mistakes.py` loads: which functions of the package each test calls,
itself or in the programs that it starts.

It writes JSON to the file that the variable TOLD names: for each test that passes a list of
`file:function`.
"""

from __future__ import annotations

import collections
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import traced


class Calls:
    """The functions of each test. Those of its fixtures are among them."""

    def __init__(self) -> None:
        self._passed: list[tuple[str, bool]] = []  # by number of the test

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        traced.set_test(len(self._passed))
        self._passed.append((item.nodeid, True))
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._passed[-1] = (report.nodeid, False)

    def pytest_sessionfinish(self) -> None:
        called = collections.defaultdict(set)
        for line in Path(traced.CALLS).read_text().splitlines():
            number, name = line.split(" ")
            called[int(number)].add(name)
        of_tests = {
            test: sorted(called[number]) if has_passed else None
            for number, (test, has_passed) in enumerate(self._passed)
        }
        Path(os.environ["TOLD"]).write_text(json.dumps(of_tests))


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Calls())
