"""A `min` that is no sum of cells is told with the nearest sums."""

from hived_extender.quotas.backing import shape_warnings
from tests.extender.quotas.trees import GPU, quota, tree

CELLS = {"vision": {GPU: (8, 8, 8)}, "mixed": {GPU: (8, 4, 2)}}


def test_a_sum_of_cells_is_no_warning() -> None:
    assert shape_warnings(tree(quota("vision", {GPU: 16}), quota("mixed", {GPU: 10})), CELLS) == []


def test_another_amount_names_the_nearest_sums() -> None:
    (warning,) = shape_warnings(tree(quota("vision", {GPU: 12})), CELLS)
    assert warning == (
        "root/vision: min is 12 nvidia.com/gpu, and virtual cluster vision is promised cells of 3 x 8: "
        "nearest are 8 and 16"
    )


def test_more_than_all_cells_is_told() -> None:
    found = shape_warnings(tree(quota("vision", {GPU: 32})), CELLS)
    assert found[-1] == "the min of the quotas of virtual cluster vision are 32 nvidia.com/gpu, it has 24"


def test_quotas_without_cells_are_left_alone() -> None:
    assert shape_warnings(tree(quota("other", {GPU: 3})), CELLS) == []


def test_fractions_have_nearest_sums_too() -> None:
    (warning,) = shape_warnings(tree(quota("mixed", {GPU: 2.5})), CELLS)
    assert warning.endswith("nearest are 2 and 4")
