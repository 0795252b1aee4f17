"""Checks of an edited configuration: it is sound, has the change, and is the same everywhere else."""

from collections.abc import Mapping

import yaml

from hived.errors import UserError
from hived_config.document import compose
from hived_config.errors import ConfigError
from hived_config.loader import load_text
from hived_config.openpai import inner_scalar
from hived_config.promises import CellTypePlace, counts_of

Wanted = Mapping[str, Mapping[CellTypePlace, int] | None]
"""By virtual cluster, how many cells of which place it shall be promised; None for one that shall be gone."""


def check_edit(before: str, after: str, file: str, wanted: Wanted) -> None:
    """Raise ConfigError if `after` is not sound, UserError if it differs from `before` in anything but `wanted`.

    That happens where nodes share an anchor. Cost O(text).
    """
    try:
        old, new = compose(before, file), compose(after, file)
    except ConfigError as error:
        raise _refusal(file, wanted) from error
    old_inner, new_inner = inner_scalar(old), inner_scalar(new)
    if old_inner is not None and new_inner is not None:
        if not _Comparison(frozenset(wanted), (id(old_inner), id(new_inner))).are_equal(old, new):
            raise _refusal(file, wanted)
        old, new = compose(old_inner.value, file), compose(new_inner.value, file)
    if not _Comparison(frozenset(wanted)).are_equal_documents(old, new):
        raise _refusal(file, wanted)
    cluster = load_text(after, file, lenient=True, environ={}).cluster
    for vc, counts in wanted.items():
        has = counts_of(cluster, vc) if vc in cluster.virtual_clusters else None
        if (has is None) != (counts is None) or _given(has or {}) != _given(counts or {}):
            raise _refusal(file, wanted)


def _given(counts: Mapping[CellTypePlace, int]) -> dict[CellTypePlace, int]:
    return {place: count for place, count in counts.items() if count}


def _refusal(file: str, wanted: Wanted) -> UserError:
    names = " and ".join(f"virtualClusters.{vc}" for vc in wanted)
    return UserError(
        f"{file}: {names} cannot be edited alone: through an anchor or an unusual layout something else would "
        "change too; edit it by hand"
    )


class _Comparison:
    """Compares documents as they are written, aliases followed, apart from some virtual clusters' cells."""

    def __init__(self, edited: frozenset[str], ignored: tuple[int, int] = (0, 0)) -> None:
        self._edited = edited
        self._known = {ignored}

    def are_equal_documents(self, old: yaml.Node, new: yaml.Node) -> bool:
        """Whether two configurations differ in the promises of the edited virtual clusters at most."""
        rest, clusters = self._split(old, {"virtualClusters"})
        new_rest, new_clusters = self._split(new, {"virtualClusters"})
        if not self._are_pairs_equal(rest, new_rest) or len(clusters) != len(new_clusters):
            return False
        for (_, old_vcs), (_, new_vcs) in zip(clusters, new_clusters, strict=True):
            others, edited = self._split(old_vcs, self._edited)
            new_others, new_edited = self._split(new_vcs, self._edited)
            if not self._are_pairs_equal(others, new_others):
                return False
            after = {key.value: value for key, value in new_edited}
            for key, value in edited:
                if key.value in after and not self._are_pairs_equal(
                    self._split(value, {"virtualCells"})[0], self._split(after[key.value], {"virtualCells"})[0]
                ):
                    return False
        return True

    def are_equal(self, old: yaml.Node, new: yaml.Node) -> bool:
        """Whether two nodes say the same, in the same order."""
        if (id(old), id(new)) in self._known:
            return True
        is_same = type(old) is type(new) and old.tag == new.tag
        if isinstance(old, yaml.MappingNode):
            is_same = is_same and self._are_pairs_equal(old.value, new.value)
        elif isinstance(old, yaml.SequenceNode):
            is_same = is_same and len(old.value) == len(new.value) and all(map(self.are_equal, old.value, new.value))
        else:
            is_same = is_same and old.value == new.value
        if is_same:
            self._known.add((id(old), id(new)))
        return is_same

    @staticmethod
    def _split(
        node: yaml.Node, names: frozenset[str] | set[str]
    ) -> tuple[list[tuple[yaml.Node, yaml.Node]], list[tuple[yaml.Node, yaml.Node]]]:
        """The pairs of a mapping whose keys are not in `names`, and the pairs whose keys are."""
        pairs = node.value if isinstance(node, yaml.MappingNode) else []
        return [pair for pair in pairs if pair[0].value not in names], [
            pair for pair in pairs if pair[0].value in names
        ]

    def _are_pairs_equal(self, old: list[tuple[yaml.Node, yaml.Node]], new: list[tuple[yaml.Node, yaml.Node]]) -> bool:
        return len(old) == len(new) and all(
            self.are_equal(old_key, new_key) and self.are_equal(old_value, new_value)
            for (old_key, old_value), (new_key, new_value) in zip(old, new, strict=True)
        )
