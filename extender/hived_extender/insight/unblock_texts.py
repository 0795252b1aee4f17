"""What would help, in words for people."""

from hived.specs import OPPORTUNISTIC_PRIORITY, MemberSpec
from hived_extender.insight.changes import (
    Cells,
    Change,
    Ends,
    Heal,
    LeafType,
    Move,
    OtherCluster,
    Pods,
    Priority,
    Resize,
)
from hived_extender.insight.snapshot import Snapshot
from hived_extender.insight.trials import Outcome, Trials, slot_count
from hived_extender.pods.progress import MAY_MOVE


def text_of(change: Change, found: Outcome, trials: Trials) -> str:
    """The change as a clause that goes with "starts at once", and who would be preempted."""
    said = _said(change, trials)
    return f"{said}; {_listed(found.victims)} would be preempted" if found.victims else said


def _said(change: Change, trials: Trials) -> str:
    match change:
        case Priority(value):
            if value == OPPORTUNISTIC_PRIORITY:
                return "as an opportunistic job, which others may preempt"
            return f"at priority {value} instead of {trials.entry.priority}"
        case Pods(members):
            return _pods(members, trials)
        case LeafType(name):
            return f"with cells of type {name}"
        case OtherCluster(name):
            return f"in virtual cluster {name}"
        case Ends(names):
            return f"once {_listed(names)} {'has' if len(names) == 1 else 'have'} ended"
        case Heal(nodes):
            return (
                "once "
                + _listed([_node(node, trials.snapshot) for node in nodes])
                + (" is healthy" if len(nodes) == 1 else " are healthy")
            )
        case Move(names):
            return f"if {_listed(names)} {'starts' if len(names) == 1 else 'start'} anew elsewhere" + _permission(
                names, trials
            )
        case Cells(resizes):
            return "if the configuration promises " + _listed([_resize(one) for one in resizes])


def _pods(members: tuple[MemberSpec, ...], trials: Trials) -> str:
    own = trials.wanted[0].request.spec.group.members
    if [one.leaf_cell_count for one in own] == [one.leaf_cell_count for one in members]:
        return f"with {slot_count(members)} of its {slot_count(own)} pods"
    return f"as {_shape(members)} instead of {_shape(own)}"


def _shape(members: tuple[MemberSpec, ...]) -> str:
    """Pods x cells."""
    return " + ".join(f"{one.pod_count}x{one.leaf_cell_count}" for one in members)


def _node(node: str, snapshot: Snapshot) -> str:
    reason, _ = snapshot.bad.get(node, ("lost devices", None))
    return f"node {node} ({reason})"


def _permission(names: tuple[str, ...], trials: Trials) -> str:
    if trials.may_move(names):
        return ", as its owner allows" if len(names) == 1 else ", as their owners allow"
    return f" (annotation {MAY_MOVE} does not allow it)"


def _resize(one: Resize) -> str:
    return f"{abs(one.count)} {one.cell_type} {'more' if one.count > 0 else 'fewer'} to {one.vc}"


def _listed(names: "tuple[str, ...] | list[str]") -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)
