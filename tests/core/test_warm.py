"""Every kernel can be compiled ahead of time."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import llvmlite.binding
import numba
import pytest

import hived
from hived import warm
from hived.jit import ENTRY_KERNELS, forget_sources
from hived.linking import LINKED_KERNELS
from tests.core.kernels import IS_INTERPRETED


def core_kernels() -> list[Any]:
    """Other packages have kernels too, and other tests import them."""
    return [kernel for kernel in ENTRY_KERNELS if kernel.__module__.startswith("hived.")]


def test_every_entry_kernel_in_the_sources_is_compiled() -> None:
    sources = Path(hived.__file__).parent.glob("*.py")
    names = [name for s in sources for name in re.findall(r"^@entry_kernel\ndef (\w+)", s.read_text(), re.M)]
    assert warm.compile_kernels() == len(names)
    assert sorted(kernel.__name__ for kernel in core_kernels()) == sorted(names)


@pytest.mark.skipif(IS_INTERPRETED, reason="with NUMBA_DISABLE_JIT=1 there is no machine code to look at")
def test_a_kernel_that_the_story_misses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    @numba.njit
    def forgotten() -> None:
        pass

    forgotten.__module__ = "hived.somewhere"
    monkeypatch.setattr(warm, "ENTRY_KERNELS", [*ENTRY_KERNELS, forgotten])
    with pytest.raises(RuntimeError, match="kernels that were not compiled: forgotten"):
        warm.compile_kernels()


def test_between_events_it_is_known_how_many_kernels_are_ready() -> None:
    counts: list[tuple[int, int]] = []
    warm.compile_kernels(lambda: counts.append(warm.ready_count()))
    assert len(counts) > 10
    assert counts == sorted(counts)
    assert counts[-1][0] <= counts[-1][1] == len(ENTRY_KERNELS)


def test_the_command_says_how_many_kernels_are_ready(capsys: pytest.CaptureFixture[str]) -> None:
    warm.main()
    assert re.fullmatch(rf"{len(core_kernels())} kernels ready after [\d.]+ s\n", capsys.readouterr().err)


@pytest.mark.skipif(IS_INTERPRETED, reason="with NUMBA_DISABLE_JIT=1 there is no machine code to look at")
def test_compiled_kernels_do_without_their_sources() -> None:
    warm.compile_kernels()
    forget_sources()
    kernels = [*core_kernels(), *LINKED_KERNELS.values()]
    compiled = [result for kernel in kernels for result in kernel.overloads.values()]
    assert {result.library._shared_module for result in compiled} == {None}
    assert warm.compile_kernels() == len(core_kernels())


@pytest.mark.skipif(IS_INTERPRETED, reason="with NUMBA_DISABLE_JIT=1 there is no machine code to look at")
def test_linked_kernels_are_compiled_once_and_known_by_their_names() -> None:
    warm.compile_kernels()
    assert {"hived.settle", "hived.allocate_leaf"} == LINKED_KERNELS.keys()
    for symbol, kernel in LINKED_KERNELS.items():
        assert len(kernel.overloads) == 1
        assert llvmlite.binding.address_of_symbol(symbol)


def test_no_kernel_calls_an_entry_kernel_whose_source_may_be_forgotten() -> None:
    entries = {kernel.__name__ for kernel in core_kernels()}
    calls = {name: called & entries for name, called in _kernels_and_what_they_call()}
    assert len(calls) > len(entries)
    assert not [name for name, called in calls.items() if called]


def _kernels_and_what_they_call() -> Iterator[tuple[str, set[str]]]:
    for source in Path(hived.__file__).parent.glob("*.py"):
        for node in ast.parse(source.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.decorator_list:
                names = (call.func for call in ast.walk(node) if isinstance(call, ast.Call))
                yield node.name, {name.id for name in names if isinstance(name, ast.Name)}
