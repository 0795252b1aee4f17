"""Nodes and pods as facts about devices."""

import time

import msgspec
import pytest

from hived_extender.jobs.annotations import MAX_COUNT
from hived_extender.jobs.wire import Node, Pod
from hived_extender.machine.devices.table import allocatable_of, use_of


@pytest.mark.parametrize(
    ("quantity", "expected"), [("8", 8), ("1e999", MAX_COUNT), ("9" * 64, MAX_COUNT), ("9" * 5000, 0)]
)
def test_a_node_may_report_any_number_of_devices(quantity: str, expected: int) -> None:
    node = {"metadata": {"name": "n"}, "status": {"allocatable": {"nvidia.com/gpu": quantity}}}
    assert allocatable_of(msgspec.convert(node, Node)) == {"nvidia.com/gpu": expected}


def test_a_pod_of_many_containers_and_resources_is_read_at_once() -> None:
    many = {"limits": {f"made.up/{number}": 1 for number in range(8000)}}
    containers = [{"name": f"c{number}", "resources": {"limits": {"cpu": 1}}} for number in range(2000)]
    spec = {"nodeName": "n", "containers": [*containers, {"name": "many", "resources": many}]}
    pod = msgspec.convert({"metadata": {"name": "p"}, "spec": spec}, Pod)
    began = time.thread_time()
    use = use_of(pod)
    assert time.thread_time() - began < 2.0
    assert use is not None
    assert len(use.requests) == 8000
