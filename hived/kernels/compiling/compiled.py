"""Kernels that numba compiles in a running process, or loads from disk where an earlier one has left them.

`use_compiled` then makes them the targets of the entry kernels. Nothing here is imported where kernels are linked.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from numba.core.compiler_lock import global_compiler_lock

from hived.kernels.compiling.dispatchers import Twins, keep_on_disk, types_of
from hived.kernels.compiling.shared import SHARED, publish, share
from hived.kernels.jit import EXCHANGEABLE, SHARED_KERNELS

_TWINS = Twins(share)


def compile_kernels(tell: Callable[[int, int], None] = lambda ready, total: None) -> int:
    """Compile the entry kernels of all modules imported so far, or load them; returns how many there are.

    `tell` is called with the number of ready ones, and of all. Cost about a minute of CPU, or half a second.
    """
    return _get_ready(_compile, tell)


def load_kernels(tell: Callable[[int, int], None] = lambda ready, total: None) -> bool:
    """As `compile_kernels`, from disk; False if one is not there, or damaged."""
    return _get_ready(_load, tell) == len(EXCHANGEABLE)


def use_compiled() -> None:
    """Let Python call the compiled kernels from now on; all must be ready. A call with other types is a TypeError."""
    for entry in EXCHANGEABLE:
        entry.target = dispatcher = _dispatcher(entry.function)
        dispatcher.disable_compile()


def forget_sources() -> None:
    """Free the sources of compiled kernels, about 23 MB.

    numba keeps LLVM's own form of every kernel for linking it into others, which nothing does with an entry kernel. It
    has no name of its own for that; should another version keep it elsewhere, nothing is freed.
    """
    for dispatcher in (*SHARED.values(), *map(_dispatcher, [entry.function for entry in EXCHANGEABLE])):
        for compiled in dispatcher.overloads.values():
            compiled.library._shared_module = None


def _get_ready(get_one: Callable[[Any, tuple[Any, ...]], bool], tell: Callable[[int, int], None]) -> int:
    """Get the kernels one after the other until one fails; returns how many entry kernels are ready."""
    for function in SHARED_KERNELS:
        _TWINS.dispatcher(function)
        if not get_one(SHARED[f"hived.{function.__name__}"], types_of(function)):
            return 0
        publish()
    for ready, entry in enumerate(EXCHANGEABLE):
        tell(ready, len(EXCHANGEABLE))
        if not get_one(_dispatcher(entry.function), types_of(entry.function)):
            return ready
        forget_sources()
    tell(len(EXCHANGEABLE), len(EXCHANGEABLE))
    return len(EXCHANGEABLE)


@cache
def _dispatcher(function: Callable[..., Any]) -> Any:
    return keep_on_disk(_TWINS.twin(function))


def _compile(dispatcher: Any, types: tuple[Any, ...]) -> bool:
    if types not in dispatcher.overloads:
        dispatcher.compile(types)
    return True


def _load(dispatcher: Any, types: tuple[Any, ...]) -> bool:
    """Load a kernel as numba's `compile` does, but without compiling."""
    with global_compiler_lock:
        if types in dispatcher.overloads:
            return True
        loaded = dispatcher._cache.load_overload(types, dispatcher.targetctx)
        if loaded is not None:
            dispatcher.targetctx.insert_user_function(loaded.entry_point, loaded.fndesc, [loaded.library])
            dispatcher.add_overload(loaded)
        return loaded is not None
