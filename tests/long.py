"""Long tests: `make test` runs a sample of them, `make test-long` the others.

`@pytest.mark.long` keeps a whole test out of `make test`, `@pytest.mark.sample(3)` all but three of its parameters.
"""

from collections.abc import Iterable
from random import Random
from typing import Any

import pytest


def mark_long(items: Iterable[pytest.Item]) -> None:
    """Give the mark `long` to all parameters of a test except its sample.

    The sample is drawn at random by the name of the test: the same on every machine, and of all kinds and seeds.
    Raises `pytest.UsageError` if a mark has no positive count.
    """
    alike: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sample") is not None:
            alike.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for name, each in alike.items():
        mark = each[0].get_closest_marker("sample")
        count = mark.args[0] if mark is not None and mark.args else 0
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
