"""What would help, in words for people."""

from collections.abc import Iterator, Sequence

from hived.values.specs import MIN_GUARANTEED_PRIORITY, OPPORTUNISTIC_PRIORITY, MemberSpec
from hived_extender.insight.changes import (
    Cells,
    Change,
    Combine,
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
from hived_extender.insight.trials import Outcome, Trials
from hived_extender.insight.wanted import slot_count
from hived_extender.pods.progress import MAY_MOVE
from hived_extender.service.devices.keeper import SHORT
from hived_extender.service.sentences import counted, listed_with, short_name

_REMEDIES = {
    "cordoned": ("is uncordoned", "are uncordoned"),
    "NotReady": ("is Ready", "are Ready"),
    "not in Kubernetes": ("is in Kubernetes", "are in Kubernetes"),
    SHORT: ("has all its devices", "have all their devices"),
}
"""What is said of a node once it can be used, and of several, by the reason why it cannot."""

_MENDED = ("is usable again", "are usable again")


def text_of(change: Change, found: Outcome, trials: Trials) -> str:
    """The change as a clause that goes with "starts at once", and who would be preempted."""
    said = _said(change, trials)
    return f"{said}; {_jobs(found.victims, trials)} would be preempted" if found.victims else said


def _said(change: Change, trials: Trials) -> str:
    match change:
        case Priority(value):
            if value == OPPORTUNISTIC_PRIORITY:
                return "as an opportunistic job, which others may preempt"
            if trials.entry.priority < MIN_GUARANTEED_PRIORITY:
                return f"with a guarantee, at priority {value}"
            return f"at priority {value} instead of {trials.entry.priority}"
        case Pods(members):
            return _pods(members, trials)
        case LeafType(name):
            return f"with {name} instead of {trials.wanted[0].request.spec.leaf_cell_type}"
        case OtherCluster(name):
            pinned = next((spec.pinned_cell_id for spec in trials.specs if spec.pinned_cell_id), "")
            return f"in virtual cluster {name}" + (f", without pinned cell {pinned}" if pinned else "")
        case Ends(names):
            return f"once {_jobs(names, trials)} {'has' if len(names) == 1 else 'have'} ended"
        case Heal(nodes):
            return _healed(nodes, trials.snapshot)
        case Move(names):
            start = "starts" if len(names) == 1 else "start"
            return f"if {_jobs(names, trials)} {start} anew elsewhere, {_permission(names, trials)}"
        case Cells(resizes):
            return "if the configuration promises " + listed_with(list(_resizes(resizes)))
        case Combine(vc):
            return f"if the configuration sets combine: true for {vc}"


def _pods(members: tuple[MemberSpec, ...], trials: Trials) -> str:
    own = trials.specs[0].group.members
    if [one.leaf_cell_count for one in own] == [one.leaf_cell_count for one in members]:
        return f"with {slot_count(members)} of its {slot_count(own)} pods"
    return f"as {_shape(members)} instead of {_shape(own)}"


def _shape(members: tuple[MemberSpec, ...]) -> str:
    return listed_with([f"{counted(one.pod_count, 'pod')} of {one.leaf_cell_count}" for one in members])


def _healed(nodes: tuple[str, ...], snapshot: Snapshot) -> str:
    """Nodes that need the same remedy together."""
    alike: dict[tuple[str, str], list[str]] = {}
    for node in nodes:
        reason, _ = snapshot.bad.get(node, (SHORT, None))
        alike.setdefault(_REMEDIES.get(reason.partition(":")[0], _MENDED), []).append(node)
    return "once " + listed_with(
        [
            f"node {own[0]} {alone}" if len(own) == 1 else f"nodes {listed_with(own)} {together}"
            for (alone, together), own in alike.items()
        ]
    )


def _jobs(names: Sequence[str], trials: Trials) -> str:
    return listed_with([short_name(name, trials.namespace_of(name), trials.entry.namespace) for name in names])


def _permission(names: tuple[str, ...], trials: Trials) -> str:
    if trials.may_move(names):
        return "as its owner allows" if len(names) == 1 else "as their owners allow"
    return f"which annotation {MAY_MOVE} does not allow yet"


def _resizes(resizes: Sequence[Resize]) -> Iterator[str]:
    """A clause for each; the cell type once, while it is the same."""
    before = ""
    for one in resizes:
        noun = "" if one.cell_type == before else f" {one.cell_type}"
        yield f"{abs(one.count)}{noun} {'more' if one.count > 0 else 'fewer'} to {one.vc}"
        before = one.cell_type
