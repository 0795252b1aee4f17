"""Numbers that commands take."""

import click
import pytest

from hived_cli.helpers.answers import FiniteRange


@pytest.mark.parametrize("text", ["nan", "inf", "-1", "x"])
def test_what_is_no_number_of_the_range_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        FiniteRange(min=0).convert(text, None, None)


def test_a_number_of_the_range_is_taken() -> None:
    assert FiniteRange(min=0).convert("2.5", None, None) == 2.5
