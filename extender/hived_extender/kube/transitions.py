"""Times of transitions, as Kubernetes keeps them in conditions and in whatever is like one."""

from collections.abc import Mapping
from typing import Any

Object = dict[str, Any]


def with_transition(entry: Object, before: Mapping[str, Any] | None, now: str, key: str = "status") -> Object:
    """An entry with the time of its last transition: `now`, unless `before` has the same value under `key`."""
    is_same = before is not None and before.get(key) == entry[key]
    since = before.get("lastTransitionTime", now) if before is not None and is_same else now
    return {**entry, "lastTransitionTime": since}
