"""The types of a kernel's arguments, as its annotations say them; whatever compiles kernels goes by these.

A parameter is a block, a one-dimensional contiguous array, an `int` of 64 bits or a `bool`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_origin

import numpy as np

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
        """Whether it is a single array."""
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
