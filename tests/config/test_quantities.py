"""Quantities of Kubernetes as numbers."""

from fractions import Fraction

import pytest

from hived_config.quantities import (
    LARGEST,
    LONGEST_QUANTITY,
    amount,
    canonical,
    exact,
    is_positive,
    is_quantity,
    quantity,
    signed,
)


@pytest.mark.parametrize(
    ("given", "value"),
    [("1", 1), (1, 1), (7, 7), (0.5, 0.5), ("500m", 0.5), ("1500m", 1.5), ("3u", 3e-6), ("2Ki", 2048), ("4Gi", 2**32),
     ("1.5Gi", 1.5 * 2**30), ("2k", 2000), ("1E", 1e18), ("1E2", 100), ("1e3", 1000), ("1e-3", 0.001), ("+.5", 0.5),
     ("2.", 2), (" 1 ", 1), ("0", 0), (0, 0), ("0Ki", 0), ("1e-9999", 0)],
)  # fmt: skip
def test_a_quantity_is_read_as_kubernetes_reads_it(given: object, value: float) -> None:
    assert quantity(given) == amount(given) == value
    assert is_positive(given) is (value > 0)
    assert is_quantity(given.strip() if isinstance(given, str) else given)


@pytest.mark.parametrize(
    "given",
    ["", "x", "many", "two", "1 2", "0x1", "1Q", "1Xi", "1e3Ki", "\u0661", "1." + "0" * LONGEST_QUANTITY, None, [1],
     True, -1, "-1"],
)  # fmt: skip
def test_anything_else_is_none(given: object) -> None:
    assert quantity(given) is None
    assert amount(given) == 0
    assert not is_positive(given)


def test_sums_of_quantities_are_exact() -> None:
    tenths = [exact("100m")] * 10
    assert sum(filter(None, tenths)) == 1
    assert exact("0.1") == exact("100000000n") == Fraction(1, 10)


@pytest.mark.parametrize("given", ["1e9999", "1e999999999", 1e30, "10E", "8Ei"])
def test_more_than_kubernetes_counts_is_the_most_that_it_counts(given: object) -> None:
    assert exact(given) == LARGEST


def test_a_negative_quantity_is_one_to_kubernetes() -> None:
    assert is_quantity("-1.5Gi")
    assert not is_quantity("1.5GiB")


@pytest.mark.parametrize(
    ("given", "written"),
    [("0.5", "500m"), (0.5, "500m"), ("1500m", "1500m"), ("1000m", "1"), (8, "8"), (1000, "1k"), ("1500000", "1500k"),
     ("1024Mi", "1Gi"), ("1.5Gi", "1536Mi"), ("0.5Ki", "512"), ("1000Ki", "1000Ki"), ("-1", "-1"), ("-0.5", "-500m"),
     ("0", "0"), ("0Ki", "0"), ("1e3", "1e3"), ("1e4", "10e3"), ("1e-3", "1e-3"), ("2E", "2E"), ("0.1n", "1n"),
     ("lots", "lots"), ("--1", "--1"), ("-+1", "-+1")],
)  # fmt: skip
def test_a_quantity_is_written_as_kubernetes_writes_it(given: object, written: str) -> None:
    assert canonical(given) == written
    assert canonical(written) == written
    assert signed(written) == signed(given) or written == "1n"
