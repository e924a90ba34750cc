"""blueque.queries.listeners: which listeners a person means by a name. How they are read is in
test_inspector.py.
"""

from __future__ import annotations

import pytest

from blueque import InvalidInput
from blueque.queries.listeners import Node, find_named

GPU = "gpu-1.example.com"


def node(name, queue="video", boot="b1"):
    return Node(name, queue, "up", 1.0, (), None, None, boot)


def found(name, *nodes):
    return [one.id for one in find_named(nodes, name)]


@pytest.mark.parametrize("name", [f"{GPU}_2", "gpu-1_2"])
def test_a_node_id_is_one_listener_with_its_domain_or_without(name):
    assert found(name, node(f"{GPU}_2"), node(f"{GPU}_22"), node("gpu-2.example.com_2")) == [
        f"{GPU}_2"
    ]


def test_a_node_id_on_two_queues_is_both():
    assert found(f"{GPU}_2", node(f"{GPU}_2"), node(f"{GPU}_2", "audio")) == [f"{GPU}_2"] * 2


@pytest.mark.parametrize("name", [GPU, "gpu-1"])
def test_a_host_is_all_its_listeners_with_its_domain_or_without(name):
    others = [node("gpu-10.example.com_2"), node("gpu-2.example.com_2"), node("example.com_2")]

    assert found(name, node(f"{GPU}_2"), *others, node(f"{GPU}_3")) == [f"{GPU}_2", f"{GPU}_3"]


@pytest.mark.parametrize("name", [GPU, "gpu-1"])
def test_a_listener_that_had_to_take_a_name_with_a_random_part_is_of_its_host(name):
    assert found(name, node(f"{GPU}_1"), node(f"{GPU}-0a1b2c_1")) == [f"{GPU}_1", f"{GPU}-0a1b2c_1"]


def test_a_host_whose_own_name_looks_like_one_with_a_random_part_is_another():
    nodes = [
        node("gpu_1", boot="b1"),
        node("gpu-0a1b2c_1", boot="b2"),
        node("gpu-0a1b2_1", boot="b1"),
    ]

    assert found("gpu", *nodes) == ["gpu_1"]
    assert found("gpu-0a1b2c", *nodes) == ["gpu-0a1b2c_1"]


def test_listeners_with_a_random_part_are_found_when_none_has_the_plain_name_any_more():
    assert found(GPU, node(f"{GPU}-0a1b2c_1"), node(f"{GPU}-ffffff_1")) == [
        f"{GPU}-0a1b2c_1",
        f"{GPU}-ffffff_1",
    ]


def test_a_whole_name_goes_before_a_shortened_one():
    assert found("gpu-1", node("gpu-1_5"), node(f"{GPU}_5")) == ["gpu-1_5"]


@pytest.mark.parametrize("name", ["gpu-1", "gpu-1_5"])
def test_a_shortened_name_of_two_hosts_is_refused_with_both(name):
    with pytest.raises(InvalidInput, match=r"gpu-1\.example\.com, gpu-1\.example\.net"):
        found(name, node(f"{GPU}_5"), node("gpu-1.example.net_5"))


@pytest.mark.parametrize(
    "name", ["", "gpu", "example.com", "_5", "gpu-1_", "gpu-1_6", "gpu-1.example"]
)
def test_a_part_of_a_name_is_nobody(name):
    assert found(name, node(f"{GPU}_5")) == []


def test_a_host_may_have_what_parts_a_node_id_in_its_name():
    assert found("my_host", node("my_host.example.com_5"), node("my.example.com_5")) == [
        "my_host.example.com_5"
    ]
    assert found("my_host_5", node("my_host.example.com_5"), node("my_host.example.com_6")) == [
        "my_host.example.com_5"
    ]
