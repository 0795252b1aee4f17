"""The function that the decorators make of another."""

from typing import Any

import numba
import pytest

from hived import jit
from hived.kernel_cache import KernelCache
from tests.core.kernels import IS_INTERPRETED


@pytest.mark.skipif(IS_INTERPRETED, reason="nothing is compiled")
def test_only_entry_kernels_are_kept_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "ENTRY_KERNELS", [])
    monkeypatch.setattr(jit, "KEPT_KERNELS", [])

    def double(number: int) -> int:
        return 2 * number

    helper: Any = jit.kernel(double)
    entry: Any = jit.entry_kernel(double)
    assert type(helper._cache) is numba.core.caching.NullCache
    assert type(entry._cache) is KernelCache


@pytest.mark.skipif(not IS_INTERPRETED, reason="kernels are compiled")
def test_kernels_are_plain_functions_when_compiling_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "ENTRY_KERNELS", [])
    monkeypatch.setattr(jit, "KEPT_KERNELS", [])

    def double(number: int) -> int:
        return 2 * number

    assert jit.kernel(double) is double
    assert jit.entry_kernel(double) is double
