"""The decorators of kernels, and the way in which each process runs them.

`@kernel` marks a function that other kernels call; `@entry_kernel` marks one that Python calls, with the types that its
annotations say. `@shared_kernel` marks a `@kernel` with so much code that numba shall not copy it into each caller. A
parameter is a block, a one-dimensional contiguous array, an `int` of 64 bits or a `bool`.

Kernels are written in the part of Python that numba compiles, and run in one of three ways, with equal results:

- *linked*: machine code of the library that was made when hived was built (`linked`). Neither numba nor LLVM is loaded.
- *compiled*: by numba, in a running process, and then kept on disk (`compiling`).
- *plain*: as Python; with NUMBA_DISABLE_JIT=1, and until compiled kernels are ready.

Python code sees the plain function of a `@kernel` in every process, and may call it where that is rare. An entry kernel
is either the library's own function, or an `EntryKernel`, whose target may be exchanged between two calls.

Two rules for kernels: no recursion (numba crashes when it loads a cached recursive kernel), and every write to
`State.cells.memory` goes through `journal.put`. Kernels may call kernels of other files; kernels of other packages call
only kernels of their own file.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import update_wrapper
from typing import Annotated, Any, TypeVar, cast, get_args, get_origin

import numpy as np

from hived.kernels import linked
from hived.kernels.linked import Way

Kernel = TypeVar("Kernel", bound=Callable[..., Any])

IS_INTERPRETED = linked.wanted_way() is Way.PLAIN
"""True if this process runs kernels as plain Python."""

KERNELS: list[Callable[..., Any]] = []
"""Every kernel of the modules imported so far that only kernels call."""

SHARED_KERNELS: list[Callable[..., Any]] = []
"""Kernels of `KERNELS` with much code."""

ENTRY_KERNELS: list[Callable[..., Any]] = []
"""Every entry kernel of the modules imported so far, as the plain function."""

EXCHANGEABLE: list["EntryKernel"] = []
"""The entry kernels that the linked library does not have."""


class EntryKernel:
    """A kernel that Python calls: as plain Python, until `target` is another function with the same results."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = self.target = function
        update_wrapper(self, function)

    def __call__(self, *arguments: Any) -> Any:
        return self.target(*arguments)


def kernel(function: Kernel) -> Kernel:
    """Mark a helper that only other kernels call; its code becomes part of each entry kernel that uses it."""
    KERNELS.append(function)
    return function


def shared_kernel(function: Kernel) -> Kernel:
    """Mark a helper with much code, which numba compiles once, on its own. It takes two blocks and four numbers, and
    returns a truth value.
    """
    SHARED_KERNELS.append(function)
    return kernel(function)


def entry_kernel(function: Kernel) -> Kernel:
    """Mark a kernel that Python calls. A call of a linked one costs 0.03 to 0.15 us, whatever it takes."""
    ENTRY_KERNELS.append(function)
    if IS_INTERPRETED:
        return function
    if (found := linked.find(function)) is not None:
        return cast(Kernel, found)
    entry = EntryKernel(function)
    EXCHANGEABLE.append(entry)
    return cast(Kernel, entry)


def is_plain(entry: Callable[..., Any]) -> bool:
    """True if an entry kernel runs as plain Python at present."""
    return IS_INTERPRETED or (isinstance(entry, EntryKernel) and entry.target is entry.function)


def has_plain_kernels() -> bool:
    """True if any entry kernel of the modules imported so far runs as plain Python at present."""
    return IS_INTERPRETED or any(map(is_plain, EXCHANGEABLE))


def kernels_in_use() -> str:
    """The kind of kernels that run: `linked (avx2)`, `compiled` or `plain`.

    A library may lack some, of a module that was edited since: `linked (avx2), 2 of 24 plain`.
    """
    others = "plain" if has_plain_kernels() else "compiled"
    if IS_INTERPRETED or (EXCHANGEABLE and len(EXCHANGEABLE) == len(ENTRY_KERNELS)):
        return others
    ours = f"linked ({linked.variant()})"
    return f"{ours}, {len(EXCHANGEABLE)} of {len(ENTRY_KERNELS)} {others}" if EXCHANGEABLE else ours


READ_ONLY = "read-only"
"""`Annotated[array, READ_ONLY]` is an array that the kernel does not write, so that Python need not be able to."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a kernel. `kind` is `int`, `bool`, a class of blocks, or the type of an array's elements."""

    name: str
    kind: Any
    is_written: bool = False

    @property
    def is_array(self) -> bool:
        """True for a single array."""
        return isinstance(self.kind, np.dtype)


def parameters(function: Callable[..., Any]) -> tuple[Parameter, ...]:
    """The parameters of a kernel in their order. TypeError for a type that kernels do not take."""
    names = function.__annotations__.items()
    return tuple(_parameter(name, annotation) for name, annotation in names if name != "return")


def element_type(annotation: Any) -> np.dtype[Any]:
    """The type of the elements of an annotated array. TypeError if it is none."""
    bare = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    if get_origin(bare) is not np.ndarray:
        raise TypeError(f"{annotation} is no array of a certain type")
    (_, dtype) = get_args(bare)
    element: type = get_args(dtype)[0]
    return np.dtype(element)


def _parameter(name: str, annotation: Any) -> Parameter:
    if annotation in (int, bool) or hasattr(annotation, "layout"):
        return Parameter(name, annotation)
    return Parameter(name, element_type(annotation), is_written=READ_ONLY not in get_args(annotation))
