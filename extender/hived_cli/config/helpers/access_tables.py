"""The namespaces that may use each virtual cluster, as text and as JSON."""

from collections.abc import Iterable, Sequence
from typing import Any

from hived.values.specs import MAX_GUARANTEED_PRIORITY
from hived_cli.helpers.tables import table
from hived_config.access import Access, AccessRules, NamespaceEntry, Operator, Requirement, VirtualClusterAccess

_NOBODY = "(none)"


def draw_access(rules: AccessRules, vcs: Sequence[str]) -> str:
    """A row for each virtual cluster, then who may run opportunistically; one line where no rule is written."""
    lines = [f"access: {rules.access.value}"]
    if rules.is_unrestricted and not any(own.namespaces for _, own in _all(rules, vcs)):
        return lines[0]
    rows = [[vc, str(own.max_priority), _namespaces(own.namespaces)] for vc, own in _all(rules, vcs)]
    if rows:
        header = "NAMESPACES" if rules.access is Access.NAMESPACES else "DEFAULT OF NAMESPACES"
        lines += ["  " + line for line in table(["VIRTUAL CLUSTER", ">MAX PRIORITY", header], rows).splitlines()]
    opportunists = "every namespace" if rules.opportunistic is None else _namespaces(rules.opportunistic)
    return "\n".join([*lines, f"opportunistic: {opportunists}"])


def access_as_json(rules: AccessRules, vcs: Sequence[str]) -> dict[str, Any]:
    """The same, in the words of the file."""
    return {
        "access": rules.access.value,
        "virtualClusters": {
            vc: {"maxPriority": own.max_priority, "namespaces": [each.as_json() for each in own.namespaces]}
            for vc, own in _all(rules, vcs)
        },
        "opportunistic": None
        if rules.opportunistic is None
        else {"namespaces": [each.as_json() for each in rules.opportunistic]},
    }


def _all(rules: AccessRules, vcs: Sequence[str]) -> list[tuple[str, VirtualClusterAccess]]:
    return [(vc, rules.virtual_clusters.get(vc, VirtualClusterAccess())) for vc in vcs]


def _namespaces(entries: Iterable[NamespaceEntry]) -> str:
    return ", ".join(map(_entry, entries)) or _NOBODY


def _entry(entry: NamespaceEntry) -> str:
    chosen = entry.name or " and ".join(map(_requirement, entry.requirements))
    return chosen if entry.max_priority == MAX_GUARANTEED_PRIORITY else f"{chosen} (up to {entry.max_priority})"


def _requirement(requirement: Requirement) -> str:
    """As kubectl's option -l has it."""
    values = ",".join(requirement.values)
    match requirement.operator:
        case Operator.IN:
            is_one = len(requirement.values) == 1
            return f"{requirement.key}={values}" if is_one else f"{requirement.key} in ({values})"
        case Operator.NOT_IN:
            return f"{requirement.key} notin ({values})"
        case Operator.EXISTS:
            return requirement.key
        case Operator.DOES_NOT_EXIST:
            return f"!{requirement.key}"
