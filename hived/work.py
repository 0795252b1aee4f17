"""Counts what an event costs, in work instead of time: the same events give the same numbers on every machine.

    with counted(state) as work:
        handle(state, event)

Nothing is counted by hand, because a loop that somebody adds by accident would not count itself. Kernels run as plain
Python (NUMBA_DISABLE_JIT=1), where every line can be observed; arrays and containers of the state are exchanged, while
counting lasts, for ones that notice being walked. The rest of the core knows nothing of it, so compiled kernels hold no
trace of a counter. What is built around the core can be counted together with it.

Not seen is a walk in C that allocates nothing, over bytes, text or a container that was made meanwhile; one that
allocates is seen by its bytes. Other threads than the one that counts are not observed.
"""

import gc
import inspect
import sys
import tracemalloc
from collections import OrderedDict
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, ValuesView
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, is_dataclass
from types import CodeType, FrameType, ModuleType
from typing import Any

import numpy as np

from hived.blocks import Block
from hived.jit import ENTRY_KERNELS


@dataclass(slots=True)
class Work:
    """What was done. `operations` and `elements` are exact; `allocated` can vary by some hundred bytes."""

    operations: int = 0  # lines run in files of the packages; every round of a loop or comprehension counts
    elements: int = 0  # of arrays that operations on whole arrays touched, and of the owners' containers that were met
    allocated: int = 0  # bytes in use at the worst moment, beyond those at the start


_work = Work()  # what counts now


@contextmanager
def counted(*owners: object, packages: tuple[ModuleType, ...] = ()) -> Iterator[Work]:
    """Count until the end of the block; cannot be nested.

    owners : dataclasses, such as a `State`, or objects of `packages`. Arrays, dicts, lists, sets and tuples in their
    fields, and in those of blocks, dataclasses and objects of `packages` that they hold, are exchanged until the end;
    nobody else may use them meanwhile. Arrays that are made meanwhile count for ever.

    packages : whose lines count besides those of the core

    Raises RuntimeError if kernels are compiled: there is nothing to observe then.
    """
    global _work, _folders  # noqa: PLW0603 - arrays cannot carry whom to tell
    if not all(map(inspect.isfunction, ENTRY_KERNELS)):
        raise RuntimeError("work cannot be counted in compiled kernels; start Python with NUMBA_DISABLE_JIT=1")
    names = {package.__name__ for package in packages}
    with ExitStack() as afterwards:
        for owner in owners:
            _exchange(owner, _watched, names, set())
            afterwards.callback(_exchange, owner, _plain, names, set())
        for name in _MAKERS:
            maker = getattr(np, name)
            setattr(np, name, _counted_maker(maker))
            afterwards.callback(setattr, np, name, maker)
        if gc.isenabled():  # when it runs must make no difference
            gc.disable()
            afterwards.callback(gc.enable)
        _work = work = Work()
        _folders = (_folder_of(__file__), *(_folder_of(package.__file__ or "") for package in packages))
        _is_ours.clear()
        tracemalloc.start()
        afterwards.callback(tracemalloc.stop)
        before = tracemalloc.get_traced_memory()[0]
        afterwards.callback(sys.settrace, sys.gettrace())
        sys.settrace(_trace_call)
        yield work
        sys.settrace(None)
        work.allocated = tracemalloc.get_traced_memory()[1] - before


# Lines.

_folders: tuple[str, ...] = ()  # whose files count now
_is_ours: dict[CodeType, bool] = {}


def _folder_of(file: str) -> str:
    return file.removesuffix("__init__.py").removesuffix("work.py")


def _trace_call(frame: FrameType, _event: str, _argument: object) -> Callable[..., Any] | None:
    code = frame.f_code
    if code not in _is_ours:
        _is_ours[code] = code.co_filename.startswith(_folders) and code.co_filename != __file__
    return _trace_line if _is_ours[code] else None


def _trace_line(_frame: FrameType, event: str, _argument: object) -> Callable[..., Any]:
    if event == "line":
        _work.operations += 1
    return _trace_line


# Arrays. Their single elements are left to the lines that read or write them.

_MAKERS = ("arange", "array", "empty", "full", "ones", "zeros")
_CHEAP = {"getfield", "item", "reshape", "searchsorted", "setflags", "squeeze", "swapaxes", "transpose", "view"}
"""Methods, and functions of their names, that do not touch every element."""


_get_item, _set_item = np.ndarray.__getitem__, np.ndarray.__setitem__
_NUMBERS = frozenset({int, np.int8, np.int16, np.int32, np.int64, np.intp})
"""Types of indices that name one element. Nearly all are of them, so that is asked first."""


class _Array(np.ndarray[Any, Any]):
    """An array that counts the elements that operations on the whole of it, or on a part, touch."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        options = {name: _unwrapped(option) for name, option in options.items()}
        result = getattr(ufunc, method)(*_unwrapped(inputs), **options)
        _work.elements += max(map(_size, (*inputs, result)))
        return _wrapped(result)

    def __array_function__(self, function: Any, _types: Any, arguments: Any, options: Any) -> Any:
        options = {name: _unwrapped(option) for name, option in options.items()}
        result = function(*_unwrapped(arguments), **options)
        if function.__name__ not in _CHEAP:
            _work.elements += _size(arguments) + _size(result)
        return _wrapped(result)

    def __getitem__(self, key: Any) -> Any:
        result = _get_item(self, key)
        if type(key) not in _NUMBERS and _is_selection(key):
            _work.elements += max(_size(key), _size(result))
        return result

    def __setitem__(self, key: Any, value: Any) -> None:
        if type(key) not in _NUMBERS:
            _work.elements += _size(key) if _is_selection(key) else _size(_get_item(self, key))
        _set_item(self, key, value)

    def __iter__(self) -> Iterator[Any]:
        return _walk(super().__iter__())


def _counted_method(name: str) -> Callable[..., Any]:
    def method(self: _Array, *arguments: Any, **options: Any) -> Any:
        _work.elements += self.size
        return _wrapped(getattr(_unwrapped(self), name)(*arguments, **options))

    return method


for _name, _method in vars(np.ndarray).items():
    if callable(_method) and not _name.startswith("_") and _name not in _CHEAP:
        setattr(_Array, _name, _counted_method(_name))


def _counted_maker(maker: Callable[..., Any]) -> Callable[..., Any]:
    def make(*arguments: Any, **options: Any) -> Any:
        made = maker(*arguments, **options)
        _work.elements += made.size
        return _wrapped(made)

    return make


def _is_selection(key: Any) -> bool:
    """Does an index name its elements one by one, so that they are copied?"""
    if isinstance(key, tuple):
        return any(map(_is_selection, key))
    return isinstance(key, np.ndarray | list)


def _size(value: Any) -> int:
    if isinstance(value, tuple | list):
        return sum(map(_size, value))
    return value.size if isinstance(value, np.ndarray) else 1


def _wrapped(value: Any) -> Any:
    if type(value) is tuple:
        return tuple(map(_wrapped, value))
    return value.view(_Array) if type(value) is np.ndarray else value


def _unwrapped(value: Any) -> Any:
    if type(value) is tuple or type(value) is list:
        return type(value)(map(_unwrapped, value))
    return value.view(np.ndarray) if isinstance(value, _Array) else value


# Containers. An element counts when it is met; what walks a container in C asks these for their elements one by one.


def _walk(elements: Iterator[Any]) -> Iterator[Any]:
    for element in elements:
        _work.elements += 1
        yield element


class _Mapping(dict[Any, Any]):
    def __iter__(self) -> Iterator[Any]:
        return _walk(super().__iter__())

    def keys(self) -> Any:
        return KeysView(self)

    def values(self) -> Any:
        return ValuesView(self)

    def items(self) -> Any:
        return ItemsView(self)


class _Dict(_Mapping):
    def copy(self) -> dict[Any, Any]:
        return dict(self)


class _OrderedDict(_Mapping, OrderedDict[Any, Any]):
    pass


class _Set(set[Any]):
    def __iter__(self) -> Iterator[Any]:
        return _walk(super().__iter__())


_SET_METHODS = (
    "__and__", "__or__", "__sub__", "__xor__", "__rand__", "__ror__", "__rsub__", "__rxor__", "__le__", "__lt__",
    "__ge__", "__gt__", "__eq__", "copy", "difference", "intersection", "isdisjoint", "issubset", "issuperset",
    "symmetric_difference", "union",
)  # fmt: skip
"""They walk over the set itself, all in C; some may get by with less."""


def _counted_set_method(name: str) -> Callable[..., Any]:
    method = getattr(set, name)

    def count(self: _Set, *others: Any) -> Any:
        _work.elements += len(self)
        return method(self, *others)

    return count


for _name in _SET_METHODS:
    setattr(_Set, _name, _counted_set_method(_name))


class _List(list[Any]):
    def copy(self) -> list[Any]:
        return list(self)


class _Tuple(tuple[Any, ...]):
    pass


def _watch_sequence(kind: type[Any], base: type[Any]) -> None:
    """What lists and tuples have in common."""

    def contains(self: Any, element: object) -> bool:
        return any(each == element for each in self)

    def index(self: Any, element: Any, *bounds: Any) -> int:
        found = int(base.index(self, element, *bounds))
        _work.elements += found + 1
        return found

    kind.__iter__ = lambda self: _walk(base.__iter__(self))
    kind.__contains__ = contains
    kind.index = index


_watch_sequence(_List, list)
_watch_sequence(_Tuple, tuple)


# Putting all this around a state, or around what is built around one.

_PLAIN_VALUES = frozenset({bool, bytes, float, int, str, type(None)})


def _exchange(owner: object, convert: Callable[[Any], Any], packages: set[str], done: set[int]) -> None:
    """Convert the arrays and containers below an owner, in their places."""
    done.add(id(owner))
    for name in _names(owner):
        value = getattr(owner, name)
        if not _is_owner(value, packages):
            object.__setattr__(owner, name, convert(value))  # the topology is frozen
        elif id(value) not in done:
            _exchange(value, convert, packages, done)


def _is_owner(value: object, packages: set[str]) -> bool:
    kind = type(value)
    is_ours = kind.__module__.partition(".")[0] in packages and hasattr(value, "__dict__")
    return is_ours or isinstance(value, Block) or is_dataclass(kind)


def _names(owner: Any) -> list[str]:
    if isinstance(owner, Block):
        return list(owner.names)
    return [field.name for field in fields(owner)] if is_dataclass(owner) else list(vars(owner))


def _watched(value: Any) -> Any:
    kind = type(value)
    if kind is np.ndarray:
        return value.view(_Array)
    if kind is dict:
        return _Dict(zip(value, _each(_watched, value.values()), strict=True))
    if kind is OrderedDict:
        return _OrderedDict(zip(value, _each(_watched, value.values()), strict=True))
    if kind is list:
        return _List(_each(_watched, value))
    if kind is set:
        return _Set(value)
    if kind is tuple:
        return _Tuple(_each(_watched, value))
    return value


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind is _Array:
        return value.view(np.ndarray)
    if kind is _Dict:
        return dict(zip(dict.__iter__(value), _each(_plain, dict.values(value)), strict=True))
    if kind is _OrderedDict:
        return OrderedDict(zip(OrderedDict.__iter__(value), _each(_plain, OrderedDict.values(value)), strict=True))
    if kind is _List:
        return _each(_plain, list.__iter__(value))
    if kind is _Set:
        return set(set.__iter__(value))
    if kind is _Tuple:
        return tuple(_each(_plain, tuple.__iter__(value)))
    return value


def _each(convert: Callable[[Any], Any], values: Iterable[Any]) -> list[Any]:
    """Convert what is no plain value; millions are."""
    return [value if type(value) in _PLAIN_VALUES else convert(value) for value in values]
