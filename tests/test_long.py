"""Samples of long tests."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.long import batches, mark_long, run_named_files_as_a_whole


@dataclass
class Item:
    """What `mark_long` uses of a test."""

    nodeid: str
    marks: list[pytest.Mark] = field(default_factory=list)

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return next((mark for mark in self.marks if mark.name == name), None)

    def iter_markers_with_node(self, name: str) -> Iterator[tuple["Item", pytest.Mark]]:
        return ((self, mark) for mark in self.marks if mark.name == name)

    def add_marker(self, marker: pytest.MarkDecorator) -> None:
        self.marks.append(marker.mark)


def quick_of(*items: Item) -> list[str]:
    """The names of items that `make test` runs."""
    mark_long(cast(Any, items))
    return [item.nodeid for item in items if item.get_closest_marker("long") is None]


def parameters(name: str, *arguments: int) -> list[Item]:
    """Ten parameters of a test with `sample`."""
    return [Item(f"{name}[{number}]", [pytest.mark.sample(*arguments).mark]) for number in range(10)]


def test_of_a_sample_so_many_parameters_are_quick_and_the_same_ones_each_time() -> None:
    first, second = (quick_of(*parameters("file.py::test_a", 3)) for _ in range(2))
    assert first == second
    assert len(first) == 3


def test_samples_of_different_tests_differ() -> None:
    found = {tuple(each.split("[")[1] for each in quick_of(*parameters(f"test_{name}", 3))) for name in "abcdef"}
    assert len(found) > 1


def test_a_sample_larger_than_the_test_leaves_out_none() -> None:
    assert len(quick_of(*parameters("test_a", 20))) == 10


def test_a_test_without_a_sample_is_quick() -> None:
    assert quick_of(Item("test_a"), *parameters("test_b", 1))[0] == "test_a"


@pytest.mark.parametrize("arguments", [(), (0,)])
def test_a_sample_of_nothing_is_refused(arguments: tuple[int, ...]) -> None:
    with pytest.raises(pytest.UsageError, match="no test for `make test`"):
        quick_of(*parameters("test_a", *arguments))


def test_batches_are_all_seeds_once() -> None:
    assert [seed for batch in batches(quick=2, long=5) for seed in batch.values[0]] == [0, 1, 2, 3, 4]


@dataclass
class Config:
    """What decides which tests are left out."""

    args: list[str]
    invocation_params: pytest.Config.InvocationParams
    option: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(markexpr="not long"))


@pytest.mark.parametrize(
    ("args", "options", "left_out"),
    [
        (["tests"], [], "not long"),
        (["tests/core"], [], "not long"),
        (["tests/test_a.py"], [], ""),
        (["tests/test_a.py::test_b[1]", "tests/test_c.py"], [], ""),
        (["tests/test_a.py", "tests/core"], [], "not long"),
        (["tests/test_a.py"], ["-m", "not long"], "not long"),
    ],
)
def test_files_that_are_named_are_run_as_a_whole(args: list[str], options: list[str], left_out: str) -> None:
    config = Config(args, pytest.Config.InvocationParams(args=(*options, *args), plugins=None, dir=Path()))
    run_named_files_as_a_whole(cast(Any, config))
    assert config.option.markexpr == left_out
