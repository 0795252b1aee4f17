"""Counts in words: one of a thing is no plural, and names of types have none."""

import pytest

from hived_config.words import counted


@pytest.mark.parametrize(
    ("count", "noun", "words"),
    [
        (1, "job", "1 job"),
        (2, "job", "2 jobs"),
        (1024, "leaf cell", "1,024 leaf cells"),
        (1, "GPU", "1 GPU"),
        (0, "GPU", "0 GPUs"),
        (2, "SKU", "2 SKUs"),
        (8, "H100", "8 H100"),
    ],
)
def test_a_count_has_its_noun_in_the_right_number(count: int, noun: str, words: str) -> None:
    assert counted(count, noun) == words
