"""Nodes as facts about devices."""

import msgspec
import pytest

from hived_extender.annotations import MAX_COUNT
from hived_extender.devices.reading import allocatable_of
from hived_extender.wire import Node


@pytest.mark.parametrize(
    ("quantity", "expected"), [("8", 8), ("1e999", MAX_COUNT), ("9" * 64, MAX_COUNT), ("9" * 5000, 0)]
)
def test_a_node_may_report_any_number_of_devices(quantity: str, expected: int) -> None:
    node = {"metadata": {"name": "n"}, "status": {"allocatable": {"nvidia.com/gpu": quantity}}}
    assert allocatable_of(msgspec.convert(node, Node)) == {"nvidia.com/gpu": expected}
