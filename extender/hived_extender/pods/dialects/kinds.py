"""The kinds of objects that pods name as their gang, and how a dialect looks one up."""

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from hived_extender.pods.dialects.description import ObjectRef


class Kind(msgspec.Struct, frozen=True):
    """A namespaced resource; of `versions` the first is read that the API server has."""

    group: str
    plural: str
    versions: tuple[str, ...]

    @property
    def name(self) -> str:
        """As `ObjectRef.kind` has it, and kubectl."""
        return f"{self.plural}.{self.group}"

    def ref(self, namespace: str, name: str) -> ObjectRef:
        """One object of the kind."""
        return ObjectRef(self.name, namespace, name)


class Lookup(Protocol):
    """Where the objects are to be had; `objects.Objects` is one."""

    def get(self, kind: str, namespace: str, name: str, /) -> Mapping[str, Any] | None:
        """The object as the API server has it, None if it does not exist. `kind` is `Kind.name`."""


def find(objects: Lookup, ref: ObjectRef) -> Mapping[str, Any] | None:
    """The object that `ref` is of, None if it does not exist."""
    return objects.get(ref.kind, ref.namespace, ref.name)


class NoObjects:
    """Where nothing is watched: no object exists."""

    def get(self, _kind: str, _namespace: str, _name: str, /) -> Mapping[str, Any] | None:
        """Always None."""
        return None
