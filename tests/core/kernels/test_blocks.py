"""Blocks: what Python sees as attributes, a kernel sees as the same arrays."""

import sys
from importlib import import_module
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pytest

from hived.cells.topology import IntArray
from hived.kernels.blocks import Block
from tests.core.callable_kernels import IS_INTERPRETED

if not IS_INTERPRETED:
    import_module("hived.kernels.compiling.block_types")  # so that numba knows blocks


class Pair(Block):
    """Two arrays of different kinds."""

    numbers: IntArray
    weights: npt.NDArray[np.float64]


def scale_in_python(pair: Pair, factor: int) -> float:
    """Multiply the numbers, and return their weighted sum."""
    total = 0.0
    for i in range(len(pair.numbers)):
        pair.numbers[i] *= factor
        total += pair.numbers[i] * pair.weights[i]
    return total


scale: Any = numba.njit(scale_in_python)


@numba.njit
def read_missing(pair: Any) -> Any:
    return pair.missing[0]


def a_pair(*numbers: int) -> Pair:
    return Pair(numbers=np.array(numbers, np.int32), weights=np.full(len(numbers), 0.5))


def test_a_kernel_reads_the_arrays_of_a_block() -> None:
    assert scale(a_pair(1, 2, 3), 1) == 3.0


def test_what_a_kernel_writes_is_seen_in_python() -> None:
    pair = a_pair(1, 2, 3)
    scale(pair, 10)
    assert pair.numbers.tolist() == [10, 20, 30]


def test_an_empty_array_has_no_length_in_a_kernel() -> None:
    assert scale(a_pair(), 3) == 0.0


@pytest.mark.skipif(IS_INTERPRETED, reason="nothing is compiled")
def test_blocks_of_one_class_share_the_compiled_kernel() -> None:
    scale(a_pair(1), 2)
    scale(a_pair(1, 2, 3, 4), 2)
    assert len(scale.signatures) == 1


@pytest.mark.skipif(IS_INTERPRETED, reason="nothing is compiled")
def test_a_call_of_a_compiled_kernel_runs_no_python_to_find_the_type_of_a_block() -> None:
    pair = a_pair(1)
    scale(pair, 2)
    called: list[str] = []
    sys.setprofile(lambda frame, event, _: called.append(frame.f_code.co_name) if event == "call" else None)
    try:
        scale(pair, 2)
    finally:
        sys.setprofile(None)
    assert set(called) <= {scale_in_python.__name__}


@pytest.mark.skipif(IS_INTERPRETED, reason="nothing is compiled")
def test_an_unknown_array_is_found_when_a_kernel_is_compiled() -> None:
    with pytest.raises(numba.TypingError, match="missing"):
        read_missing(a_pair(1))


def test_a_changed_block_shares_the_other_arrays() -> None:
    pair = a_pair(1, 2)
    other = pair.with_arrays(weights=np.array([2.0, 2.0]))
    scale(other, 5)
    assert (pair.numbers.tolist(), pair.weights.tolist()) == ([5, 10], [0.5, 0.5])


def test_a_changed_block_reads_its_own_arrays_in_a_kernel() -> None:
    assert scale(a_pair(1, 2).with_arrays(weights=np.array([2.0, 2.0])), 5) == 30.0


def test_a_block_that_lacks_an_array_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Pair lacks or does not know \['weights'\]"):
        Pair(numbers=np.zeros(1, np.int32))


def test_an_array_that_a_block_does_not_know_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Pair lacks or does not know \['other'\]"):
        Pair(numbers=np.zeros(1, np.int32), weights=np.zeros(1), other=np.zeros(1))


def test_an_array_with_other_elements_than_annotated_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Pair\.numbers is no contiguous array of int32 in one dimension"):
        Pair(numbers=np.zeros(1, np.int64), weights=np.zeros(1))


def test_an_array_with_gaps_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Pair\.numbers is no contiguous array"):
        Pair(numbers=np.zeros(4, np.int32)[::2], weights=np.zeros(1))
