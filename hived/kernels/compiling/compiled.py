"""Kernels that numba compiles in a running process, or loads from disk where an earlier one has left them.

`use_compiled` then makes them the targets of the entry kernels. Nothing here is imported where kernels are linked.

Shared kernels are compiled once and called by name, where numba would copy their code into each caller. The machine
code of a shared kernel gets a global name. Its callers refer to that name by LLVM's own means, which numba does not
offer. So this rests on numba's calling convention, and pyproject.toml bounds the versions of both libraries.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import llvmlite.binding
from llvmlite import ir
from numba import types
from numba.core.compiler_lock import global_compiler_lock
from numba.extending import intrinsic

from hived.kernels.compiling.dispatchers import Twins, keep_on_disk, types_of
from hived.kernels.jit import EXCHANGEABLE, SHARED_KERNELS

_NUMBERS = (types.int64,) * 4

SHARED: dict[str, Any] = {}
"""The dispatchers by the names that machine code knows them by."""


def share(twin: Callable[..., Any]) -> Any:
    """The function that kernels call in the place of a shared kernel.

    `publish` must have run before any kernel that calls it: machine code that refers to an unknown name cannot be
    loaded.
    """
    symbol = f"hived.{twin.__name__}"
    SHARED[symbol] = keep_on_disk(twin)

    def call(_typing: Any, t: Any, s: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
        kinds = (t, s, *_NUMBERS)

        def generate(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
            convention = context.call_conv
            machine_type = convention.get_function_type(types.boolean, kinds)
            target = builder.module.globals.get(symbol) or ir.Function(builder.module, machine_type, symbol)
            status, result = convention.call_function(builder, target, types.boolean, kinds, values)
            with builder.if_then(status.is_error, likely=False):
                convention.return_status_propagate(builder, status)
            return result

        return types.boolean(*kinds), generate

    call.__name__ = twin.__name__
    return intrinsic(call)


def publish() -> None:
    """Give the names of shared kernels to the machine code that is loaded from now on."""
    for symbol, dispatcher in SHARED.items():
        for compiled in dispatcher.overloads.values():  # one at most
            address = compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)
            llvmlite.binding.add_symbol(symbol, address)


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


def _compile(dispatcher: Any, kinds: tuple[Any, ...]) -> bool:
    if kinds not in dispatcher.overloads:
        dispatcher.compile(kinds)
    return True


def _load(dispatcher: Any, kinds: tuple[Any, ...]) -> bool:
    """Load a kernel as numba's `compile` does, but without compiling."""
    with global_compiler_lock:
        if kinds in dispatcher.overloads:
            return True
        loaded = dispatcher._cache.load_overload(kinds, dispatcher.targetctx)
        if loaded is not None:
            dispatcher.targetctx.insert_user_function(loaded.entry_point, loaded.fndesc, [loaded.library])
            dispatcher.add_overload(loaded)
        return loaded is not None
