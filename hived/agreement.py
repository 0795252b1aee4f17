"""Do pods that share a group, or the group that they are split from, ask for the same (rule 2.8)?"""

from hived.errors import UserError
from hived.specs import PodRequest, PodSpec
from hived.state import Group

_OF_ONE_POD = ("members", "ignoreK8sSuggestedNodes", "withinCell", "elastic")


def check_agreement(pod: PodRequest, group: Group) -> None:
    """Raise UserError unless a pod's spec is that of the group it names."""
    known = _fields(group.spec)
    for name, mine in _fields(pod.spec).items():
        if mine != known[name]:
            raise UserError(
                f"[{pod.label}]: Pod does not match its affinity group {group.name}: "
                f"{name} is {mine}, group has {known[name]}"
            )


def differing_field(one: PodSpec, other: PodSpec) -> str | None:
    """The first field that keeps one pod from holding cells that the other got.

    How they were to be placed is past, and who leaves first can be another thing for each.
    """
    mine, theirs = _fields(one), _fields(other)
    return next((name for name in mine if name not in _OF_ONE_POD and mine[name] != theirs[name]), None)


def _fields(spec: PodSpec) -> dict[str, str]:
    how = "required" if spec.within_is_required else "preferred"
    return {
        "virtualCluster": spec.virtual_cluster,
        "priority": str(spec.priority),
        "members": ",".join(f"{m.pod_count}x{m.leaf_cell_count}" for m in spec.group.members),
        "pinnedCellId": spec.pinned_cell_id,
        "leafCellType": spec.leaf_cell_type,
        "lazyPreemptionEnable": _text(spec.lazy_preemption),
        "ignoreK8sSuggestedNodes": _text(spec.ignore_suggested_nodes),
        "withinCell": f"{how} {spec.within_cell}" if spec.within_cell or not spec.within_is_required else "",
        "elastic": _text(spec.elastic),
    }


def _text(flag: bool) -> str:
    return "true" if flag else "false"
