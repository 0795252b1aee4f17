"""The functions that the decorators make of another."""

import subprocess
import sys
from typing import Any

import pytest

from hived.kernels import jit, linked
from tests.core.callable_kernels import IS_INTERPRETED
from tests.places import ROOT


@pytest.fixture(autouse=True)
def lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """No kernel of a test is seen by others."""
    for name in ("KERNELS", "SHARED_KERNELS", "ENTRY_KERNELS", "EXCHANGEABLE"):
        monkeypatch.setattr(jit, name, [])


def double(number: int) -> int:
    """A kernel that the library does not have."""
    return 2 * number


def triple(number: int) -> int:
    """A kernel that the library has."""
    return 3 * number


def test_python_sees_the_plain_function_of_a_kernel_that_kernels_call() -> None:
    assert jit.kernel(double) is double


def test_a_shared_kernel_is_a_kernel() -> None:
    jit.shared_kernel(double)
    assert jit.KERNELS == jit.SHARED_KERNELS == [double]


@pytest.mark.skipif(IS_INTERPRETED, reason="no target can be exchanged")
def test_an_entry_kernel_is_plain_until_its_target_is_exchanged() -> None:
    entry = jit.entry_kernel(double)
    assert (entry(3), jit.kernels_in_use()) == (6, "plain")
    jit.EXCHANGEABLE[0].target = lambda number: number
    assert (entry(3), jit.kernels_in_use()) == (3, "compiled")


@pytest.mark.skipif(IS_INTERPRETED, reason="all kernels are plain")
def test_an_entry_kernel_says_whether_it_is_plain() -> None:
    entry = jit.entry_kernel(double)
    seen = [jit.is_plain(entry)]
    jit.EXCHANGEABLE[0].target = lambda number: number
    assert [*seen, jit.is_plain(entry)] == [True, False]


@pytest.mark.parametrize(("target", "way"), [(double, "plain"), (len, "compiled")])
def test_kernels_beside_a_library_are_counted(monkeypatch: pytest.MonkeyPatch, target: Any, way: str) -> None:
    monkeypatch.setattr(jit, "IS_INTERPRETED", False)
    monkeypatch.setattr(linked, "find", lambda function: len if function is triple else None)
    monkeypatch.setattr(linked, "variant", lambda: "avx2")
    for function in (double, triple):
        jit.entry_kernel(function)
    jit.EXCHANGEABLE[0].target = target
    assert jit.kernels_in_use() == f"linked (avx2), 1 of 2 {way}"


def test_a_linked_kernel_is_not_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "IS_INTERPRETED", False)
    assert not jit.is_plain(len)


@pytest.mark.skipif(not IS_INTERPRETED, reason="targets can be exchanged")
def test_entry_kernels_are_plain_functions_when_compiling_is_switched_off() -> None:
    assert jit.entry_kernel(double) is double
    assert jit.kernels_in_use() == "plain"


def test_a_process_that_compiles_nothing_imports_no_compiler() -> None:
    code = "import sys, hived.scheduler, hived_extender.running\n"
    code += "print([name for name in ('numba', 'llvmlite') if name in sys.modules])"
    path = ":".join(str(ROOT / each) for each in (".", "config", "extender"))
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": path}, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]\n"
