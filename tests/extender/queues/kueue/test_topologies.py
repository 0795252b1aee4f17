"""Topology assignments of both versions, read as labels of nodes with pods."""

from typing import Any

import msgspec
import pytest

from hived.values.errors import UserError
from hived_extender.queues.kueue.workloads import MOST_DOMAINS, Assignment, domains_of

LEVELS = ["block", "rack"]


def read(**fields: Any) -> list[tuple[dict[str, str], int]]:
    assignment = msgspec.convert({"levels": LEVELS, **fields}, Assignment)
    return [(dict(labels), count) for labels, count in domains_of(assignment)]


def part(count: int, pods: dict[str, Any], *values: dict[str, Any]) -> dict[str, Any]:
    """A slice of an assignment."""
    return {"domainCount": count, "valuesPerLevel": list(values), "podCounts": pods}


def one(value: str) -> dict[str, Any]:
    return {"universal": value}


def each(*roots: str, **common: str) -> dict[str, Any]:
    return {"individual": {"roots": list(roots), **common}}


EXPECTED = [({"block": "b1", "rack": "r1"}, 4), ({"block": "b1", "rack": "r2"}, 2)]


@pytest.mark.parametrize(
    "fields",
    [
        {"domains": [{"values": ["b1", "r1"], "count": 4}, {"values": ["b1", "r2"], "count": 2}]},
        {"slices": [part(2, {"individual": [4, 2]}, one("b1"), each("1", "2", prefix="r"))]},
        {"slices": [part(2, {"individual": [4, 2]}, each("b", "b", suffix="1"), each("r1", "r2"))]},
        {
            "slices": [
                part(1, {"universal": 4}, each("b", suffix="1"), each("r1")),
                part(1, {"universal": 2}, one("b1"), one("r2")),
            ]
        },
    ],
)
def test_all_forms_mean_the_same(fields: dict[str, Any]) -> None:
    assert read(**fields) == EXPECTED


def test_one_number_of_pods_counts_for_every_domain() -> None:
    found = read(slices=[part(3, {"universal": 1}, one("b1"), each("1", "2", "3", prefix="r", suffix="x"))])
    assert found == [({"block": "b1", "rack": f"r{number}x"}, 1) for number in (1, 2, 3)]


@pytest.mark.parametrize(
    "fields",
    [
        {"domains": [{"values": ["b1"], "count": 1}]},
        {"slices": [part(2, {"universal": 1}, each("1"), each("1"))]},
        {"slices": [part(1, {"universal": 1}, each("1", "2"), one("1"))]},
        {"slices": [part(1, {"universal": 1}, each("1"))]},
        {"slices": [part(1, {"universal": 1}, {}, one("1"))]},
        {"slices": [part(2, {"individual": [1]}, one("b1"), one("r1"))]},
        {"slices": [part(2, {}, one("b1"), one("r1"))]},
        {"slices": [part(MOST_DOMAINS + 1, {"universal": 1}, one("b1"), one("r1"))]},
    ],
)
def test_an_assignment_that_does_not_add_up_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="its topology assignment has"):
        read(**fields)
