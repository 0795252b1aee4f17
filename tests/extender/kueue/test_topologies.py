"""Topology assignments of both versions, read as labels of nodes with pods."""

from typing import Any

import msgspec
import pytest

from hived.errors import UserError
from hived_extender.kueue.topologies import Assignment, domains_of

LEVELS = ["block", "rack"]


def read(**fields: Any) -> list[tuple[dict[str, str], int]]:
    assignment = msgspec.convert({"levels": LEVELS, **fields}, Assignment)
    return [(dict(labels), count) for labels, count in domains_of(assignment)]


EXPECTED = [({"block": "b1", "rack": "r1"}, 4), ({"block": "b1", "rack": "r2"}, 2)]


@pytest.mark.parametrize(
    "fields",
    [
        {"domains": [{"values": ["b1", "r1"], "count": 4}, {"values": ["b1", "r2"], "count": 2}]},
        {
            "slices": [
                {
                    "domainCount": 2,
                    "valuesPerLevel": [{"universalValue": "b1"}, {"prefix": "r", "roots": ["1", "2"]}],
                    "podCounts": [4, 2],
                }
            ]
        },
        {
            "slices": [
                {
                    "domainCount": 1,
                    "valuesPerLevel": [{"roots": ["b"], "suffix": "1"}, {"roots": ["r1"]}],
                    "universalPodCount": count,
                }
                | ({"valuesPerLevel": [{"universalValue": "b1"}, {"universalValue": "r2"}]} if count == 2 else {})
                for count in (4, 2)
            ]
        },
    ],
)
def test_all_forms_mean_the_same(fields: dict[str, Any]) -> None:
    assert read(**fields) == EXPECTED


@pytest.mark.parametrize(
    "fields",
    [
        {"domains": [{"values": ["b1"], "count": 1}]},
        {
            "slices": [
                {"domainCount": 2, "valuesPerLevel": [{"roots": ["1"]}, {"roots": ["1"]}], "universalPodCount": 1}
            ]
        },
        {"slices": [{"domainCount": 1, "valuesPerLevel": [{"roots": ["1"]}], "universalPodCount": 1}]},
        {"slices": [{"domainCount": 10**9, "valuesPerLevel": [], "universalPodCount": 1}]},
    ],
)
def test_an_assignment_that_does_not_add_up_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="its topology assignment has"):
        read(**fields)
