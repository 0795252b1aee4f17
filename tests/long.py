"""Long tests: `make test` runs a sample of them, `make test-long` the others.

`@pytest.mark.long` keeps a whole test out of `make test`, `@pytest.mark.sample(3)` all but three of its parameters, and
`pytestmark = pytest.mark.sample(3)` all but three tests of a file. Files that are named on the command line are
run whole.
"""

from collections.abc import Iterable
from random import Random
from typing import Any

import pytest


def run_named_files_as_a_whole(config: pytest.Config) -> None:
    """Leave out no long tests where files or tests are named, unless `-m` is given as well."""
    is_named = all(".py" in argument for argument in config.args)
    if is_named and not any(each.startswith("-m") for each in config.invocation_params.args):
        config.option.markexpr = ""


def mark_long(items: Iterable[pytest.Item]) -> None:
    """Give the mark `long` to all parameters of a test, or tests of a file, except its sample.

    The sample is drawn at random by the name: the same on every machine, and of all kinds and seeds.
    Raises `pytest.UsageError` if a mark has no positive count.
    """
    alike: dict[str, list[pytest.Item]] = {}
    counts: dict[str, int] = {}
    for item in items:
        for node, mark in item.iter_markers_with_node("sample"):
            name = node.nodeid.partition("[")[0]
            alike.setdefault(name, []).append(item)
            counts[name] = mark.args[0] if mark.args else 0
    for name, each in alike.items():
        count = counts[name]
        if count < 1:
            raise pytest.UsageError(f"{name}: sample({count}) has no test for `make test`")
        quick = set(Random(name).sample(range(len(each)), min(count, len(each))))
        for place, item in enumerate(each):
            if place not in quick:
                item.add_marker(pytest.mark.long)


def batches(*, quick: int, long: int) -> list[Any]:
    """Seeds of a test that goes through many of them: the first `quick` ones, and the others below `long`."""
    return [
        pytest.param(range(quick), id="first"),
        pytest.param(range(quick, long), id="others", marks=pytest.mark.long),
    ]
