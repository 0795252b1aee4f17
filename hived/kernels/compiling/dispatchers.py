"""numba's dispatchers for our kernels, and the types that they are compiled for.

A kernel's own name stands for the plain function everywhere in Python, which numba would compile as a call of unknown
type. So numba is given a twin of each function: the same code with other global names, in which every kernel is the
dispatcher of its twin. Machine code is as if the decorators were numba's.
"""

import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numba
from numba import types

from hived.kernels.blocks import Block
from hived.kernels.compiling.block_types import type_of_blocks
from hived.kernels.compiling.kernel_cache import KernelCache, kernel_folders
from hived.kernels.jit import KERNELS, SHARED_KERNELS, Parameter, parameters

OPTIONS: dict[str, Any] = {"error_model": "numpy", "no_cfunc_wrapper": True}
"""No kernel is passed about as a function, nor does Python call any but the entries: their wrappers are a seventh of
what there is to compile.
"""

INNER_OPTIONS = OPTIONS | {"no_cpython_wrapper": True}


def compile_alone(twin: Callable[..., Any]) -> Any:
    """The dispatcher of a kernel that only kernels call."""
    return numba.njit(**INNER_OPTIONS)(twin)


def keep_on_disk(function: Callable[..., Any]) -> Any:
    """The dispatcher of a kernel that is compiled as a whole, or loaded from disk."""
    numba.config.CACHE_DIR = str(kernel_folders()[0])  # type: ignore[attr-defined]  # made at run time
    kept = numba.njit(**OPTIONS)(function)
    kept._cache = KernelCache(function)  # as its `enable_caching` does, with a cache that is checked
    return kept


class Twins:
    """The functions that numba compiles in the place of our kernels."""

    def __init__(self, shared: Callable[[Callable[..., Any]], Any]) -> None:
        """`shared` makes of the twin of a shared kernel what kernels call."""
        self._shared = shared
        self._namespaces: dict[str, dict[str, Any]] = {}
        self._dispatchers: dict[Callable[..., Any], Any] = {}

    def twin(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, which calls the dispatchers of kernels."""
        assert isinstance(function, FunctionType)
        namespace = self._namespace(function.__module__)
        twin = FunctionType(function.__code__, namespace, function.__name__, function.__defaults__)
        twin.__module__, twin.__qualname__ = function.__module__, function.__qualname__
        return twin

    def dispatcher(self, function: Callable[..., Any]) -> Any:
        """The function that kernels call in the place of a kernel; made once."""
        if function not in self._dispatchers:
            make = self._shared if function in SHARED_KERNELS else compile_alone
            self._dispatchers[function] = make(self.twin(function))
        return self._dispatchers[function]

    def _namespace(self, module: str) -> dict[str, Any]:
        """The global names of a module, registered before filling, as kernels of a module may call each other."""
        if module not in self._namespaces:
            names = self._namespaces[module] = dict(vars(sys.modules[module]))
            for name, value in list(names.items()):
                if isinstance(value, FunctionType) and value in KERNELS:
                    names[name] = self.dispatcher(value)
        return self._namespaces[module]


def types_of(function: Callable[..., Any]) -> tuple[Any, ...]:
    """The types that a kernel is compiled for."""
    return tuple(_type_of(parameter) for parameter in parameters(function))


def _type_of(parameter: Parameter) -> Any:
    if parameter.kind is int:
        return types.int64
    if parameter.kind is bool:
        return types.boolean
    if parameter.is_array:
        return types.Array(numba.from_dtype(parameter.kind), 1, "C", readonly=not parameter.is_written)
    assert issubclass(parameter.kind, Block)
    return type_of_blocks(parameter.kind)
