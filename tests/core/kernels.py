"""Kernels that no Python code of the product calls, made callable for tests."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

from hived.linking import LINKED_KERNELS

Kernel = TypeVar("Kernel", bound=Callable[..., Any])

IS_INTERPRETED = bool(numba.config.DISABLE_JIT)


def callable_kernel(kernel: Kernel) -> Kernel:
    """The kernel compiled for calls from Python and kept on disk; the kernel itself with NUMBA_DISABLE_JIT=1."""
    if IS_INTERPRETED:
        return kernel
    if linked := LINKED_KERNELS.get(f"hived.{kernel.__name__}"):
        return cast(Kernel, linked)
    return cast(Kernel, numba.njit(error_model="numpy", cache=True)(kernel.py_func))
