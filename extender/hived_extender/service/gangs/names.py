"""Names of affinity groups: a pod's author writes a name within the pod's namespace.

The core knows the group as `namespace:name`, which is no pod's name and no gang's. So nobody can take the name of
another namespace's group. Groups that were started before this rule keep the bare name until their last pod is gone.
"""

from collections import defaultdict


class GroupNames:
    """Not thread-safe."""

    def __init__(self) -> None:
        self._bare: defaultdict[tuple[str, str], set[str]] = defaultdict(set)  # uids by namespace and name
        self._of: dict[str, tuple[str, str]] = {}

    def name(self, namespace: str, written: str) -> str:
        """The group that pods of a namespace mean by a name."""
        return written if (namespace, written) in self._bare else qualified(namespace, written)

    def is_bare(self, namespace: str, group: str) -> bool:
        """Is this a group of the bare name?"""
        return (namespace, group) in self._bare

    def keep(self, uid: str, namespace: str, written: str) -> None:
        """A bound pod is in a group of the bare name; pods of its namespace that name it are too."""
        self.forget(uid)
        self._of[uid] = namespace, written
        self._bare[namespace, written].add(uid)

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        key = self._of.pop(uid, None)
        if key is not None:
            self._bare[key].discard(uid)
            if not self._bare[key]:
                del self._bare[key]


def qualified(namespace: str, written: str) -> str:
    """The core's name for the group that a pod of a namespace names."""
    return f"{namespace}:{written}"


def written_name(namespace: str, group: str) -> str:
    """The name that pods of a namespace write for a group of theirs; the name of another group as it is."""
    return group.removeprefix(f"{namespace}:")
