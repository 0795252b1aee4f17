"""Named arrays that a kernel receives as one pointer.

A `Block` is a set of one-dimensional arrays with names: in Python ordinary attributes, in a kernel attributes as well.
Passing 50 arrays one by one costs numba 5 us a call and minutes of compilation, because each array is seven values in
every signature. A block is one integer: the address of a table that holds address and length of every array, read
when a kernel names the array. Call overhead is 0.3 us whatever the number of arrays. The word before the table says
which block it is of, so that the linked library refuses any other one.

The block must outlive the call, as the caller holds it. Arrays are never replaced in place;
make a new block (`with_arrays`) instead. `compiling.block_types` teaches numba about them.
"""

import hashlib
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from hived.kernels.jit import element_type

WORD_BYTES = 8


class Block:
    """Base of the classes whose annotations name one-dimensional, contiguous arrays with the type of their elements."""

    dtypes: ClassVar[dict[str, np.dtype[Any]]]
    """The type of the elements of each array, in the order of the table."""

    layout: ClassVar[int]
    """A number that differs between classes with other arrays."""

    def __init_subclass__(cls) -> None:
        names = {name: kind for each in reversed(cls.__mro__[:-2]) for name, kind in each.__annotations__.items()}
        cls.dtypes = {name: element_type(kind) for name, kind in names.items()}
        described = ", ".join(f"{name}: {dtype.str}" for name, dtype in cls.dtypes.items())
        cls.layout = int.from_bytes(hashlib.sha256(described.encode()).digest()[: WORD_BYTES - 1])

    def __init__(self, **arrays: npt.NDArray[Any]) -> None:
        if arrays.keys() != self.dtypes.keys():
            unknown = sorted(arrays.keys() ^ self.dtypes.keys())
            raise TypeError(f"{type(self).__name__} lacks or does not know {unknown}")
        table = [self.layout]
        for name, dtype in self.dtypes.items():
            array = arrays[name]
            if array.dtype != dtype or array.ndim != 1 or not array.flags.c_contiguous:
                raise TypeError(f"{type(self).__name__}.{name} is no contiguous array of {dtype} in one dimension")
            setattr(self, name, array)
            table += (array.ctypes.data, len(array))
        self.names = tuple(self.dtypes)
        self._table = np.array(table, np.int64)
        self._address = self._table.ctypes.data + WORD_BYTES

    def with_arrays(self, **changed: npt.NDArray[Any]) -> Self:
        """A block that differs in some arrays."""
        return type(self)(**({name: getattr(self, name) for name in self.names} | changed))
