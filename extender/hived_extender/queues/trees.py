"""The ElasticQuotaTree of a cluster, as its watch tells of it: the last one that keeps all rules.

There is one, in namespace kube-system, as for Kube Queue: tenants may write objects of their own namespaces. Of several
the oldest counts, then the first by name. One that breaks a rule is named in the log and by an event, and the tree
before it stays.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from hived.values.errors import UserError
from hived_extender.kube.optional_kinds import ObjectKind
from hived_extender.quotas.reading import NAMESPACE, misspelt_in, names_of, read_tree
from hived_extender.quotas.tree import QuotaTree

log = logging.getLogger(__name__)

Object = dict[str, Any]


TREES = ObjectKind("scheduling.sigs.k8s.io", "elasticquotatrees", ("v1beta1",))

INVALID, IGNORED, MISSPELT = "InvalidQuotaTree", "IgnoredQuotaTree", "MisspeltQuotaTree"
"""Reasons of events at trees."""


class WatchedTree:
    """See the module. Thread-safe. `tell` is called once with each object, message and reason that are news."""

    def __init__(self, wake: Callable[[], None], tell: Callable[[Object, str, str], None]) -> None:
        self._wake, self._tell = wake, tell
        self._lock = threading.Lock()
        self._objects: dict[tuple[str, str], Object] = {}
        self._told: dict[tuple[str, str], str] = {}
        self.tree: QuotaTree | None = None
        self.item: Object | None = None  # the object that counts, whether it keeps the rules or not

    def listed(self, kind: ObjectKind, items: list[Object]) -> None:
        """See `optional_kinds.Told`."""
        with self._lock:
            self._objects = {names_of(item): item for item in items if _may_count(item)}
        self._read()

    def seen(self, kind: ObjectKind, item: Object) -> None:
        """See `optional_kinds.Told`."""
        if _may_count(item):
            with self._lock:
                self._objects[names_of(item)] = item
            self._read()

    def gone(self, kind: ObjectKind, item: Object) -> None:
        """See `optional_kinds.Told`."""
        if _may_count(item):
            with self._lock:
                self._objects.pop(names_of(item), None)
            self._read()

    def unserved(self, kind: ObjectKind) -> None:
        """See `optional_kinds.Told`."""
        self.listed(kind, [])

    def why_ignored(self, item: Mapping[str, Any]) -> str:
        """Why a tree of that namespace does not count, "" if it does."""
        first = names_of(item) if self.item is None else names_of(self.item)
        counts = f"only the oldest tree counts, which is {'/'.join(first)}: change that one, or delete it"
        return "" if first == names_of(item) else counts

    def _read(self) -> None:
        with self._lock:
            items = sorted(self._objects.values(), key=_age)
        tree, self.item = self.tree, items[0] if items else None
        news: list[tuple[Object, str, str]] = [(item, self.why_ignored(item), IGNORED) for item in items[1:]]
        try:
            tree = read_tree(items[0]) if items else None
            news += [(item, "\n".join(misspelt_in(item)), MISSPELT) for item in items[:1]]
        except UserError as error:
            news.append((items[0], error.message, INVALID))
        before, self._told = self._told, {names_of(item): text for item, text, _ in news}
        for item, text, reason in news:
            if text and text != before.get(names_of(item)):
                fields = {"name": names_of(item)[1], "reason": reason, "mistakes": text}
                log.warning("an ElasticQuotaTree is not as it should be", extra={"fields": fields})
                self._tell(item, text, reason)
        if tree != self.tree:
            self.tree = tree
            self._wake()


def _may_count(item: Object) -> bool:
    return names_of(item)[0] == NAMESPACE


def _age(item: Object) -> tuple[str, tuple[str, str]]:
    return item["metadata"].get("creationTimestamp", ""), names_of(item)
