"""No change that is said to help fails: each is carried out in random states, and the job starts."""

from collections import Counter

import pytest

from tests.extender.insight.carried_out import run
from tests.long import batches
from tests.property.examples import examples


@pytest.mark.parametrize("seeds", batches(quick=2, long=examples(40)))
def test_every_change_that_is_said_to_help_does(seeds: range) -> None:
    counts: Counter[str] = Counter()
    for seed in seeds:
        run(seed, 25, counts)
    assert counts["helped"]
