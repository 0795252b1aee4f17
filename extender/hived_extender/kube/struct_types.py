"""Struct types, made known to msgspec before threads read JSON."""

from collections.abc import Iterator
from contextlib import suppress
from weakref import WeakSet

import msgspec

_prepared = WeakSet[type]()
"""The types that msgspec has looked at in this process."""


def prepare() -> None:
    """Have msgspec look at every struct type that is loaded, before threads are started. Tens of milliseconds, once.

    It looks at a type when it is first read, and at those in its fields. Two threads that do so at once, for types
    that have a field's type in common, can crash the process: the second one reads what the first has half written.
    Types that msgspec cannot read, as they are never in JSON, are passed over.
    """
    for kind in _loaded(msgspec.Struct):
        if kind in _prepared:
            continue
        with suppress(TypeError):
            msgspec.json.Decoder(kind)
        _prepared.add(kind)


def _loaded(base: type) -> Iterator[type]:
    subclasses: list[type] = type.__subclasses__(base)
    for kind in subclasses:
        yield kind
        yield from _loaded(kind)
