"""Every kernel can be compiled ahead of time, for the types that its annotations say."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType

import llvmlite.binding
import numba
import pytest

import hived
from hived.kernels.compiling import compiled
from hived.kernels.compiling.compiled import SHARED
from hived.kernels.compiling.dispatchers import INNER_OPTIONS, Twins, compile_alone, keep_on_disk, types_of
from hived.kernels.compiling.kernel_cache import KernelCache
from hived.kernels.jit import ENTRY_KERNELS, EXCHANGEABLE
from hived_extender import warm
from tests.core.callable_kernels import IS_INTERPRETED

needs_compiler = pytest.mark.skipif(not EXCHANGEABLE, reason="kernels are linked, or stay plain")


def double(number: int) -> int:
    """Twice a number."""
    return 2 * number


def test_every_entry_kernel_in_the_sources_is_known() -> None:
    sources = Path(hived.__file__).parent.rglob("*.py")
    names = [name for s in sources for name in re.findall(r"^@entry_kernel\ndef (\w+)", s.read_text(), re.M)]
    assert warm.MODULES_WITH_KERNELS
    known = [kernel.__name__ for kernel in ENTRY_KERNELS if kernel.__module__.startswith("hived.")]
    assert sorted(known) == sorted(names)


def test_entry_kernels_have_names_of_their_own() -> None:
    assert len({kernel.__name__ for kernel in ENTRY_KERNELS}) == len(ENTRY_KERNELS)


@pytest.mark.parametrize("function", ENTRY_KERNELS, ids=lambda function: function.__name__)
def test_the_annotations_of_an_entry_kernel_say_what_it_is_compiled_for(function: object) -> None:
    assert isinstance(function, FunctionType)
    assert len(types_of(function)) == function.__code__.co_argcount


@needs_compiler
def test_kernels_are_compiled_once_and_then_used() -> None:
    warm.compile_kernels()
    assert {len(entry.target.signatures) for entry in EXCHANGEABLE} == {1}


@needs_compiler
def test_it_is_known_how_many_kernels_are_ready() -> None:
    counts: list[tuple[int, int]] = []
    compiled.compile_kernels(lambda ready, total: counts.append((ready, total)))
    assert counts == [(ready, len(EXCHANGEABLE)) for ready in range(len(EXCHANGEABLE) + 1)]


@needs_compiler
def test_a_call_with_other_types_is_refused_and_compiles_nothing() -> None:
    warm.compile_kernels()
    with pytest.raises(TypeError):
        EXCHANGEABLE[0].target(1.5, "two")


@needs_compiler
def test_compiled_kernels_do_without_their_sources() -> None:
    warm.compile_kernels()
    dispatchers = [*(entry.target for entry in EXCHANGEABLE), *SHARED.values()]
    results = [result for dispatcher in dispatchers for result in dispatcher.overloads.values()]
    assert {result.library._shared_module for result in results} == {None}


@needs_compiler
def test_shared_kernels_are_compiled_once_and_known_by_their_names() -> None:
    warm.compile_kernels()
    assert {"hived.settle", "hived.allocate_leaf"} == SHARED.keys()
    for symbol, kernel in SHARED.items():
        assert len(kernel.overloads) == 1
        assert llvmlite.binding.address_of_symbol(symbol)


@pytest.mark.skipif(IS_INTERPRETED, reason="nothing is compiled")
def test_only_entry_kernels_are_kept_on_disk() -> None:
    assert type(compile_alone(double)._cache) is numba.core.caching.NullCache
    assert type(keep_on_disk(double)._cache) is KernelCache


@pytest.mark.skipif(IS_INTERPRETED, reason="nothing is compiled")
def test_the_twin_of_a_kernel_calls_the_dispatchers_of_kernels() -> None:
    from hived.life import allocation  # noqa: PLC0415  # where its plain kernels are

    twin = Twins(lambda function: "shared").twin(allocation.release_leaf)
    assert twin.__globals__["allocate_leaf"] == "shared"
    assert twin.__globals__["set_state"].py_func.__code__ is allocation.set_state.__code__
    assert twin.__globals__["set_state"].targetoptions.items() >= INNER_OPTIONS.items()


def test_no_kernel_calls_an_entry_kernel_whose_source_may_be_forgotten() -> None:
    entries = {kernel.__name__ for kernel in ENTRY_KERNELS}
    calls = {name: called & entries for name, called in _kernels_and_what_they_call()}
    assert len(calls) > len(entries)
    assert not [name for name, called in calls.items() if called]


def _kernels_and_what_they_call() -> Iterator[tuple[str, set[str]]]:
    for source in Path(hived.__file__).parent.rglob("*.py"):
        for node in ast.parse(source.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.decorator_list:
                names = (call.func for call in ast.walk(node) if isinstance(call, ast.Call))
                yield node.name, {name.id for name in names if isinstance(name, ast.Name)}
