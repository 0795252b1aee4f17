"""Kernels that no Python code of the product calls, for tests: plain where kernels are linked, else compiled."""

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, cast

import hived.scheduler  # noqa: F401  # the modules of all kernels
from hived.kernels.jit import EXCHANGEABLE, IS_INTERPRETED

__all__ = ["IS_INTERPRETED", "callable_kernel"]

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def callable_kernel(kernel: Kernel) -> Kernel:
    """The kernel compiled for calls from Python and kept on disk; the kernel itself where others are linked or plain.

    Compiling all of them takes a minute, which `make test-jit` spends.
    """
    if IS_INTERPRETED or not EXCHANGEABLE:
        return kernel
    from hived.kernels.compiling.dispatchers import keep_on_disk  # noqa: PLC0415  # numba

    twin = _twins().twin(kernel)
    # Entry kernels on disk call shared ones by name; these have them inside, so they get files of their own.
    twin.__qualname__ = f"whole_{kernel.__name__}"
    return cast(Kernel, keep_on_disk(twin))


@cache
def _twins() -> Any:
    from hived.kernels.compiling.dispatchers import Twins, compile_alone  # noqa: PLC0415  # numba

    return Twins(compile_alone)
