"""The node that a selector names."""

from typing import Any

import msgspec
import pytest

from hived_extender.jobs.wire import NodeSelector


def name(*values: str, key: str = "metadata.name", operator: str = "In") -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("terms", "node"),
    [
        ([{"matchFields": [name("n0")]}], "n0"),
        ([{"matchFields": [name("n0")], "matchExpressions": [name("b", key="zone")]}], "n0"),
        ([{"matchFields": [name("n0", "n1")]}], ""),
        ([{"matchFields": [name("n0"), name("n1")]}], ""),
        ([{"matchFields": [name("n0")]}, {"matchFields": [name("n1")]}], ""),
        ([{"matchFields": [name("n0")]}, {}], ""),
        ([{"matchFields": [name("n0", operator="NotIn")]}], ""),
        ([{"matchFields": [name("n0", key="metadata.uid")]}], ""),
        ([{"matchFields": [{"key": "metadata.name", "operator": "In"}]}], ""),
        ([{"matchFields": None}], ""),
        ([], ""),
        (None, ""),
    ],
)
def test_only_one_node_in_one_term_is_the_node(terms: list[dict[str, Any]] | None, node: str) -> None:
    assert msgspec.convert({"nodeSelectorTerms": terms}, NodeSelector).only_node == node
