"""The decorators of kernels, which are numba's with our options.

`@kernel` marks a function that other kernels call; `@entry_kernel` marks one that Python calls: it is compiled once and
then loaded from disk (`kernel_cache`). `linking` has a third decorator, for much code that many of them call. The name
of the folder carries a digest of every source file of this package: an edit anywhere means another folder, and kernels
may call kernels of other files. Kernels of other packages call only kernels of their own file. Two rules for kernels:
no recursion (numba crashes when it loads a cached recursive kernel), and every write to `State.cells.memory` goes
through `journal.put`.

With NUMBA_DISABLE_JIT=1 the decorators leave the function as it is, and no folder is made or removed.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

from hived.kernel_cache import KernelCache, kernel_folders

Kernel = TypeVar("Kernel", bound=Callable[..., Any])

_OPTIONS: dict[str, Any] = {"error_model": "numpy", "no_cfunc_wrapper": True}
"""No kernel is passed about as a function, nor does Python call any but the entries: their wrappers are a seventh of
what there is to compile.
"""

ENTRY_KERNELS: list[Any] = []
"""Every entry kernel of the modules imported so far; `warm.count_compiled` checks that none was missed."""

KEPT_KERNELS: list[Any] = []
"""Every kernel that is kept on disk: entry kernels, and those of `linking`."""

# numba makes the attributes of its configuration at run time
IS_INTERPRETED: bool = numba.config.DISABLE_JIT  # type: ignore[attr-defined]

if not IS_INTERPRETED:
    numba.config.CACHE_DIR = str(kernel_folders()[0])  # type: ignore[attr-defined]


def kernel(function: Kernel) -> Kernel:
    """Compile a helper that only other kernels call; its code becomes part of each entry kernel that uses it."""
    return cast(Kernel, numba.njit(**_OPTIONS | {"no_cpython_wrapper": True})(function))


def interpreted(function: Kernel) -> Kernel:
    """The Python function behind a kernel that calls no other one, for Python code that asks rarely."""
    return cast(Kernel, getattr(function, "py_func", function))


def entry_kernel(function: Kernel) -> Kernel:
    """Compile a kernel that Python calls, and keep the result on disk. A call costs 0.3 us and 0.1 us per array."""
    compiled = keep_on_disk(function)
    ENTRY_KERNELS.append(compiled)
    return cast(Kernel, compiled)


def keep_on_disk(function: Callable[..., Any]) -> Any:
    """Compile a kernel as a whole, or load an earlier result."""
    compiled = numba.njit(**_OPTIONS)(function)
    if not IS_INTERPRETED:
        compiled._cache = KernelCache(function)  # as its `enable_caching` does, with a cache that is checked
    KEPT_KERNELS.append(compiled)
    return compiled


def forget_sources() -> None:
    """Free the sources of compiled kernels, about 23 MB; to be called once all are compiled.

    numba keeps LLVM's own form of every kernel for linking it into others, which nothing does with an entry kernel. It
    has no name of its own for that; should another version keep it elsewhere, nothing is freed.
    """
    for kept in KEPT_KERNELS:
        for compiled in getattr(kept, "overloads", {}).values():
            compiled.library._shared_module = None
