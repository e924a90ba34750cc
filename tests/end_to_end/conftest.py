"""The queue of the handlers that the tests here write, which is also the default of `Programs`."""

from __future__ import annotations

import pytest
from running import Programs

from blueque.producer.queue import Queue


@pytest.fixture
def queue(programs: Programs) -> Queue:
    return programs.client.get_queue("work")
