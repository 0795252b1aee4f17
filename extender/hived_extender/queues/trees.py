"""The ElasticQuotaTree of a cluster, as its watch tells of it: the last one that keeps all rules.

There is one, in any namespace; of several the oldest counts, then the first by name. One that breaks a rule is named in
the log and by an event, and the tree before it stays.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from hived.errors import UserError
from hived_extender.quotas.reading import read_tree
from hived_extender.quotas.tree import QuotaTree

log = logging.getLogger(__name__)

Object = dict[str, Any]


class TreeKind(msgspec.Struct, frozen=True):
    """A kind to follow; see `optional_kinds.OptionalKind`."""

    group: str
    plural: str
    versions: tuple[str, ...]


TREES = TreeKind("scheduling.sigs.k8s.io", "elasticquotatrees", ("v1beta1",))


class WatchedTree:
    """See the module. Thread-safe. `tell` is called with each object that breaks rules, and the mistakes."""

    def __init__(self, wake: Callable[[], None], tell: Callable[[Object, str], None]) -> None:
        self._wake, self._tell = wake, tell
        self._lock = threading.Lock()
        self._objects: dict[tuple[str, str], Object] = {}
        self.tree: QuotaTree | None = None
        self.item: Object | None = None  # the object that counts, whether it keeps the rules or not
        self.problem = ""

    def listed(self, kind: TreeKind, items: list[Object]) -> None:
        """See `optional_kinds.Told`."""
        with self._lock:
            self._objects = {_name(item): item for item in items}
        self._read()

    def seen(self, kind: TreeKind, item: Object) -> None:
        """See `optional_kinds.Told`."""
        with self._lock:
            self._objects[_name(item)] = item
        self._read()

    def gone(self, kind: TreeKind, item: Object) -> None:
        """See `optional_kinds.Told`."""
        with self._lock:
            self._objects.pop(_name(item), None)
        self._read()

    def unserved(self, kind: TreeKind) -> None:
        """See `optional_kinds.Told`."""
        self.listed(kind, [])

    def older_than(self, item: Mapping[str, Any]) -> str:
        """The namespace and name of the object that counts in place of this one, "" if there is none."""
        found = self.item
        return "" if found is None or _name(found) == _name(item) else "/".join(_name(found))

    def _read(self) -> None:
        with self._lock:
            first = min(self._objects.values(), key=_age, default=None)
        tree, problem = self.tree, ""
        if first is None:
            tree = None
        else:
            try:
                tree = read_tree(first)
            except UserError as error:
                problem = error.message
        if problem and problem != self.problem and first is not None:
            log.warning("the ElasticQuotaTree is not used", extra={"fields": {"mistakes": problem}})
            self._tell(first, problem)
        self.item = first
        is_other = tree != self.tree
        self.tree, self.problem = tree, problem
        if is_other:
            self._wake()


def _name(item: Mapping[str, Any]) -> tuple[str, str]:
    metadata = item.get("metadata") or {}
    return str(metadata.get("namespace") or ""), str(metadata.get("name") or "")


def _age(item: Object) -> tuple[str, tuple[str, str]]:
    return item["metadata"].get("creationTimestamp", ""), _name(item)
