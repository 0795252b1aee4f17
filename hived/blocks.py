"""Named arrays that a kernel receives as one pointer.

A `Block` is a set of one-dimensional arrays with names: in Python ordinary attributes, in a kernel attributes as well.
Passing 50 arrays one by one costs numba 5 us a call and minutes of compilation, because each array is seven values in
every signature. A block is one integer: the address of a table that holds address and length of every array, read
when a kernel names the array. Call overhead is 0.3 us whatever the number of arrays.

The block must outlive the call, which holds as long as somebody calls with it. Arrays are never replaced in place;
make a new block (`with_arrays`) instead.
"""

from typing import Any, Self

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import types
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    NativeValue,
    infer_getattr,
    lower_getattr_generic,
    models,
    register_model,
    typeof_impl,
    unbox,
)
from numba.np.arrayobj import make_array, populate_array

_WORD = ir.IntType(64)


class BlockType(types.Type):
    """The numba type of a block class: the names of its arrays and their element types, in order."""

    def __init__(self, name: str, fields: tuple[tuple[str, Any], ...]) -> None:
        self.fields = fields
        super().__init__(name=f"Block({name}: {fields})")

    def place(self, name: str) -> int:
        """Position of a named array in the table, -1 if there is none."""
        return next((i for i, (field, _) in enumerate(self.fields) if field == name), -1)


class Block:
    """Base of the classes whose annotations name one-dimensional, contiguous arrays."""

    def __init__(self, **arrays: npt.NDArray[Any]) -> None:
        names = [name for cls in reversed(type(self).__mro__) for name in vars(cls).get("__annotations__", {})]
        if arrays.keys() != set(names):
            raise TypeError(f"{type(self).__name__} lacks or does not know {sorted(arrays.keys() ^ set(names))}")
        arrays = {name: arrays[name] for name in names}
        for name, array in arrays.items():
            setattr(self, name, array)
        self.names = tuple(names)
        self._table = np.array([(array.ctypes.data, len(array)) for array in arrays.values()], np.int64)
        self._address = self._table.ctypes.data
        self._numba_type_ = BlockType(
            type(self).__name__, tuple((name, numba.from_dtype(array.dtype)) for name, array in arrays.items())
        )

    def with_arrays(self, **changed: npt.NDArray[Any]) -> Self:
        """A block that differs in some arrays."""
        return type(self)(**({name: getattr(self, name) for name in self.names} | changed))


@typeof_impl.register(Block)
def _type_of_block(block: Block, _context: object) -> BlockType:
    return block._numba_type_


@register_model(BlockType)
class _BlockModel(models.PrimitiveModel):
    """In a kernel a block is the address of its table."""

    def __init__(self, manager: Any, block_type: BlockType) -> None:
        super().__init__(manager, block_type, _WORD)


@infer_getattr
class _BlockAttributes(AttributeTemplate):
    """Types `block.name` as a contiguous array."""

    key = BlockType

    # in the base class this name stands for NotImplemented
    def generic_resolve(self, block_type: BlockType, name: str) -> Any:  # type: ignore[override]
        place = block_type.place(name)
        return None if place < 0 else types.Array(block_type.fields[place][1], 1, "C")


@lower_getattr_generic(BlockType)
def _lower_attribute(context: Any, builder: Any, block_type: BlockType, block: Any, name: str) -> Any:
    """Compiles `block.name` to two loads from the table; no reference is counted, the caller holds the block."""
    place = block_type.place(name)
    element = block_type.fields[place][1]
    table = builder.inttoptr(block, _WORD.as_pointer())
    address, length = (builder.load(builder.gep(table, [_WORD(2 * place + i)])) for i in range(2))
    machine_type = context.get_data_type(element)
    size = _WORD(context.get_abi_sizeof(machine_type))
    array = make_array(types.Array(element, 1, "C"))(context, builder)
    data = builder.inttoptr(address, machine_type.as_pointer())
    populate_array(array, data=data, shape=[length], strides=[size], itemsize=size, meminfo=None)
    return array._getvalue()


@unbox(BlockType)
def _unbox_block(_type: BlockType, block: Any, compilation: Any) -> Any:
    attribute = compilation.pyapi.object_getattr_string(block, "_address")
    address = compilation.pyapi.long_as_longlong(attribute)
    compilation.pyapi.decref(attribute)
    return NativeValue(address)
