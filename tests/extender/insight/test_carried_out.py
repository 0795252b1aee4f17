"""No change that is said to help fails: each is carried out in random states, and the job starts."""

from collections import Counter

from tests.extender.insight.carried_out import run
from tests.property.examples import examples


def test_every_change_that_is_said_to_help_does() -> None:
    counts: Counter[str] = Counter()
    for seed in range(examples(40)):
        run(seed, 25, counts)
    assert counts["helped"]
