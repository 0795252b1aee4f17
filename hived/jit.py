"""The decorators of kernels, which are numba's with our options.

`@kernel` marks a function that other kernels call; `@entry_kernel` marks one that Python calls: it is compiled once and
then loaded from disk (`kernel_cache`). `@linked_kernel` keeps much code from being copied into many of them. The name
of the folder carries a digest of every source file of this package: an edit anywhere means another folder, and kernels
may call kernels of other files. Those of other packages call only kernels of their own file. Two rules for kernels: no
recursion (numba crashes when it loads a cached recursive kernel), and every write to `State.cells.memory` goes through
`journal.put`.

With NUMBA_DISABLE_JIT=1 the decorators leave the function as it is, and no folder is made or removed.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import llvmlite.binding
import numba
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from hived.kernel_cache import KernelCache, kernel_folders

Kernel = TypeVar("Kernel", bound=Callable[..., Any])

_FOUR_NUMBERS = (types.int64,) * 4

_OPTIONS: dict[str, Any] = {"error_model": "numpy", "no_cfunc_wrapper": True}
"""No kernel is passed about as a function, nor does Python call any but the entries: their wrappers are a seventh of
what there is to compile.
"""

LINKED_KERNELS: dict[str, Any] = {}
"""By the name that machine code knows them by."""

ENTRY_KERNELS: list[Any] = []
"""Every entry kernel of the modules imported so far; `warm.count_compiled` checks that none was missed."""

# numba makes the attributes of its configuration at run time
IS_INTERPRETED: bool = numba.config.DISABLE_JIT  # type: ignore[attr-defined]

if not IS_INTERPRETED:
    numba.config.CACHE_DIR = str(kernel_folders()[0])  # type: ignore[attr-defined]


def kernel(function: Kernel) -> Kernel:
    """Compile a helper that only other kernels call; its code becomes part of each entry kernel that uses it."""
    return cast(Kernel, numba.njit(**_OPTIONS | {"no_cpython_wrapper": True})(function))


def plain(function: Kernel) -> Kernel:
    """The Python function behind a kernel that calls no other one, for Python code that asks rarely."""
    return cast(Kernel, getattr(function, "py_func", function))


def entry_kernel(function: Kernel) -> Kernel:
    """Compile a kernel that Python calls, and keep the result on disk. A call costs 0.3 us and 0.1 us per array."""
    compiled = _kept_on_disk(function)
    ENTRY_KERNELS.append(compiled)
    return cast(Kernel, compiled)


def _kept_on_disk(function: Callable[..., Any]) -> Any:
    compiled = numba.njit(**_OPTIONS)(function)
    if not IS_INTERPRETED:
        compiled._cache = KernelCache(function)  # as its `enable_caching` does, with a cache that is checked
    return compiled


def linked_kernel(function: Kernel) -> Kernel:
    """Compile a helper with much code once, on its own, where `kernel` would put a copy into each kernel that calls it.

    It takes two blocks and four numbers, and returns a truth value. `link_kernels` must have run before any kernel that
    calls it: machine code that refers to a name which nobody knows cannot be loaded.
    """
    if IS_INTERPRETED:
        return function
    symbol = f"hived.{function.__name__}"
    LINKED_KERNELS[symbol] = _kept_on_disk(function)

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


def forget_sources() -> None:
    """Free what compiled kernels were made from, about 23 MB; to be called once all are compiled.

    numba keeps LLVM's own form of every kernel for linking it into others, which nothing does with an entry kernel. It
    has no name of its own for that; should another version keep it elsewhere, nothing is freed.
    """
    for entry in (*ENTRY_KERNELS, *LINKED_KERNELS.values()):
        for compiled in getattr(entry, "overloads", {}).values():
            compiled.library._shared_module = None
