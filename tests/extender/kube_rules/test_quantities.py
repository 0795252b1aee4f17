"""Quantities as whole numbers."""

import pytest

from hived_extender.kube_rules.selectors import MOST, units


@pytest.mark.parametrize(
    ("resource", "quantity", "expected"),
    [
        ("cpu", "100m", 100),
        ("cpu", "0.1", 100),
        ("cpu", 2, 2000),
        ("cpu", 0.5, 500),
        ("cpu", "1n", 1),
        ("memory", "1Ki", 1024),
        ("memory", "1.5Gi", 1610612736),
        ("memory", "1e3", 1000),
        ("memory", "128974848000m", 128974848),
        ("memory", "100M", 100_000_000),
        ("nvidia.com/gpu", "8", 8),
        ("memory", "1.", 1),
        ("memory", "1e999999999", MOST),
        ("memory", "8Ei", MOST),
        ("memory", "many", 0),
        ("memory", "-1", 0),
        ("cpu", "1." + "0" * 62, 1000),
        ("cpu", "1." + "0" * 63, 0),
        ("cpu", "1." + "0" * 5000 + "1", 0),
    ],
)
def test_a_quantity_is_a_whole_number_of_its_resource_rounded_up(
    resource: str, quantity: str | int | float, expected: int
) -> None:
    assert units(resource, quantity) == expected
