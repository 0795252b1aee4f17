"""The admission of an ElasticQuotaTree: all of its rules are checked before it is stored, in the words of `reading`.

Only an object that breaks a rule is refused. A tree that keeps them but is hardly meant gets a warning: a `min` that is
no sum of cells, or a word that means nothing. A change that leaves the tree as it is passes, so that labels and
finalizers can be changed.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from hived.values.errors import UserError
from hived.values.specs import ClusterSpec
from hived_extender.quotas.backing import fit_warnings
from hived_extender.quotas.reading import NAMESPACE, misspelt_in, names_of, read_tree
from hived_extender.quotas.tree import QuotaTree

MOST_WARNINGS = 20

Object = Mapping[str, Any]
Beside = Callable[[Object, QuotaTree], list[str]]
"""Gives warnings about a tree that follow from all that runs now; may be called on any thread."""


class Verdict(msgspec.Struct, frozen=True):
    """Why a tree is refused, "" if it is not, and what to warn its author of."""

    refusal: str = ""
    warnings: tuple[str, ...] = ()


def judge(
    document: Object,
    old: Object | None,
    cluster: ClusterSpec,
    resources: Mapping[str, str],
    beside: Beside | None = None,
) -> Verdict:
    """The verdict about an object that is created, or changed from `old`. Raises nothing that the object causes.

    `resources` has the device resource of each leaf cell type that stands for devices.
    """
    if old is not None and old.get("spec") == document.get("spec"):
        return Verdict()
    if names_of(document)[0] not in ("", NAMESPACE):
        return Verdict(warnings=(f"trees count in namespace {NAMESPACE} only, so this one changes nothing",))
    try:
        tree = read_tree(document)
    except UserError as error:
        return Verdict(f"the quota tree breaks rules, and is not stored:\n{error.message}")
    warnings = [*misspelt_in(document), *fit_warnings(tree, cluster, resources)]
    if beside is not None:
        warnings += beside(document, tree)
    more = len(warnings) - MOST_WARNINGS
    return Verdict(warnings=(*warnings[:MOST_WARNINGS], *([f"and {more} more warnings"] if more > 0 else [])))
