"""Kernels that are compiled once and called by name, where numba would copy their code into each kernel that calls.

The machine code of a linked kernel gets a global name. Its callers refer to that name by LLVM's own means, which numba
does not offer. So this rests on numba's calling convention, and pyproject.toml bounds the versions of both libraries.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import llvmlite.binding
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from hived.jit import IS_INTERPRETED, keep_on_disk

Kernel = TypeVar("Kernel", bound=Callable[..., Any])

_FOUR_NUMBERS = (types.int64,) * 4

LINKED_KERNELS: dict[str, Any] = {}
"""By the name that machine code knows them by."""


def linked_kernel(function: Kernel) -> Kernel:
    """Compile a helper with much code once, on its own, where `kernel` would put a copy into each kernel that calls it.

    It takes two blocks and four numbers, and returns a truth value. `link_kernels` must have run before any kernel that
    calls it: machine code that refers to an unknown name cannot be loaded.
    """
    if IS_INTERPRETED:
        return function
    symbol = f"hived.{function.__name__}"
    LINKED_KERNELS[symbol] = keep_on_disk(function)

    def call(_typing: Any, t: Any, s: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
        kinds = (t, s, *_FOUR_NUMBERS)

        def generate(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
            convention = context.call_conv
            machine_type = convention.get_function_type(types.boolean, kinds)
            target = builder.module.globals.get(symbol) or ir.Function(builder.module, machine_type, symbol)
            status, result = convention.call_function(builder, target, types.boolean, kinds, values)
            with builder.if_then(status.is_error, likely=False):
                convention.return_status_propagate(builder, status)
            return result

        return types.boolean(*kinds), generate

    call.__name__ = function.__name__
    return cast(Kernel, intrinsic(call))


def link_kernels(t: Any, s: Any) -> None:
    """Load or compile the linked kernels, for the blocks that they take. Costs nothing the second time."""
    for symbol, linked in LINKED_KERNELS.items():
        if llvmlite.binding.address_of_symbol(symbol) is None:
            linked.compile((t._numba_type_, s._numba_type_, *_FOUR_NUMBERS))
            (compiled,) = linked.overloads.values()
            name = compiled.fndesc.llvm_func_name
            llvmlite.binding.add_symbol(symbol, compiled.library.get_pointer_to_function(name))
