"""Cells as text: which letter names whom, and what each leaf shows."""

from typing import Any

import pytest

from hived_extender.api.cells import Cell
from hived_extender.api.pictures import cell_picture, legend, letters


def cell(cell_type: str, address: str, **facts: Any) -> Cell:
    seen = {"cell_state": "Free", "cell_healthiness": "Healthy", "cell_priority": -2} | facts
    return Cell(cell_type=cell_type, cell_address=address, **seen)


def leaf(**facts: Any) -> Cell:
    return cell("A100", "n0/0", **facts)


def test_initials_name_virtual_clusters_if_they_differ() -> None:
    assert letters(["research", "batch"]) == {"research": "R", "batch": "B"}


@pytest.mark.parametrize("names", [["ads", "analytics"], ["xray", "batch"], ["", "batch"]])
def test_letters_in_order_name_those_whose_initials_would_mislead(names: list[str]) -> None:
    assert list(letters(names).values()) == ["A", "B"]


def test_virtual_clusters_beyond_the_letters_share_a_sign() -> None:
    names = [f"vc{number}" for number in range(26)]
    assert letters(names)["vc25"] == "#"


@pytest.mark.parametrize(
    ("facts", "sign"),
    [
        ({}, "."),
        ({"cell_healthiness": "Bad"}, "x"),
        ({"cell_state": "Reserved", "vc": "research"}, "~"),
        ({"cell_state": "Used", "vc": "research", "cell_priority": 0}, "R"),
        ({"cell_state": "Used", "vc": "research", "cell_priority": -1}, "r"),
        ({"cell_state": "Used", "vc": "nobody", "cell_priority": 0}, "#"),
    ],
)
def test_a_leaf_shows_who_uses_it(facts: dict[str, object], sign: str) -> None:
    assert cell_picture(leaf(**facts), {"research": "R"}) == sign


def test_nodes_stand_apart() -> None:
    nodes = [cell("NODE", name, is_node_level=True, cell_children=[leaf(), leaf()]) for name in ("n0", "n1")]
    assert cell_picture(cell("RACK", "r0", cell_children=nodes), {}) == ".. .."


def test_the_legend_explains_every_sign() -> None:
    assert (
        legend({"research": "R"}) == "R research   lower case opportunistic   . free   x bad, not in use   ~ reserved"
    )
