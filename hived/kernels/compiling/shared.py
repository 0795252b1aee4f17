"""Shared kernels: compiled once and called by name, where numba would copy their code into each caller.

The machine code of a shared kernel gets a global name. Its callers refer to that name by LLVM's own means, which numba
does not offer. So this rests on numba's calling convention, and pyproject.toml bounds the versions of both libraries.
"""

from collections.abc import Callable
from typing import Any

import llvmlite.binding
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from hived.kernels.compiling.dispatchers import keep_on_disk

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
