"""Quota trees written shortly."""

from typing import Any

from hived_extender.jobs.quotas.tree import QuotaTree, read_tree

GPU = "nvidia.com/gpu"


def quota(
    name: str, least: dict[str, Any] | None = None, most: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """A quota of an object."""
    return {"name": name, "min": least or {}, "max": most or {}, **more}


def document(*children: dict[str, Any], total: Any = 100, **more: Any) -> dict[str, Any]:
    """An ElasticQuotaTree whose root has so many GPUs."""
    root = quota("root", {GPU: total}, {GPU: total}, children=list(children), **more)
    return {"spec": {"root": root}}


def tree(*children: dict[str, Any], **more: Any) -> QuotaTree:
    """The tree of such an object."""
    return read_tree(document(*children, **more))
