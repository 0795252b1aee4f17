"""A cluster as it looks from outside, in the words of the cases."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from hived_extender.api.cells import AffinityGroup, Cell
from hived_extender.api.inspection import Inspector
from hived_extender.kube.client import PODS, KubeClient
from hived_extender.machine.gangs.gang import written_name
from hived_extender.reconfiguration.judging import Verdict
from hived_lab.demo.observer import ShownPod

NAMESPACE = "default"
"""Where all pods of the cases are."""

PREEMPTING, BEING_PREEMPTED = "Preempting", "BeingPreempted"


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group: its state, its cells by node, whether it has a place in its VC, and its pods."""

    state: str
    cells: Mapping[str, tuple[int, ...]]
    has_place: bool
    pods: frozenset[str]

    @property
    def cell_count(self) -> int:
        """How many leaf cells it has."""
        return sum(map(len, self.cells.values()))


@dataclass(frozen=True, slots=True)
class PodView:
    """A pod as the API server has it."""

    uid: str
    node: str
    is_leaving: bool


@dataclass(frozen=True, slots=True)
class View:
    """Groups and pods by name; nodes and VCs as the cases write them."""

    groups: Mapping[str, GroupView]
    pods: Mapping[str, PodView]
    nodes: Mapping[str, str]
    vcs: Mapping[str, str]

    @property
    def leaving(self) -> set[str]:
        """The pods, by uid, that have to leave for a reservation."""
        return {uid for group in self.groups.values() if group.state == BEING_PREEMPTED for uid in group.pods}


def look(kube: KubeClient, inspector: Inspector) -> View:
    """Look now. Raises UserError if the service does not answer."""
    pods = {one.metadata.name: one for one in kube.list_objects(PODS, ShownPod).items}
    return View(
        {written(group.name): _group(group) for group in inspector.groups()},
        {
            name: PodView(one.metadata.uid, one.node, bool(one.metadata.deletion_timestamp))
            for name, one in pods.items()
        },
        {node.name: _leaves(node) for top in inspector.physical_cluster() for node in top.nodes()},
        {vc: _preassigned(cells) for vc, cells in inspector.virtual_clusters().items()},
    )


def written(group: str) -> str:
    """The name of a group as the cases, and the pods, write it."""
    return written_name(NAMESPACE, group)


def allocated(view: View) -> dict[str, GroupView]:
    """The groups that run; reservations last no longer than the process."""
    return {name: group for name, group in view.groups.items() if group.state != PREEMPTING}


def verdicts(before: Mapping[str, GroupView], after: Mapping[str, GroupView]) -> dict[str, str]:
    """The fate of each group that was there, in the words of a plan; nothing of those that go on as before."""
    found = {name: _verdict(group, after.get(name)) for name, group in before.items()}
    return {name: verdict.value for name, verdict in found.items() if verdict is not None}


def _verdict(old: GroupView, new: GroupView | None) -> Verdict | None:
    if old.state == PREEMPTING:
        is_kept = new is not None and new.state == PREEMPTING and new.cells == old.cells
        return None if is_kept else Verdict.PREEMPTION_CANCELLED
    if new is None or (old.cells and not new.cells):
        return Verdict.UNACCOUNTED
    if new.cell_count < old.cell_count:
        return Verdict.PARTLY_UNACCOUNTED
    if old.has_place and not new.has_place:
        return Verdict.LAZILY_PREEMPTED
    if new.cell_count > old.cell_count or (new.has_place and not old.has_place):
        return Verdict.RESTORED
    return None


def _group(group: AffinityGroup) -> GroupView:
    status = group.status
    cells = {node: tuple(sorted(devices)) for node, devices in status.physical_placement.items() if devices}
    pods = (*status.allocated_pods, *status.preempting_pods)
    return GroupView(status.state, cells, bool(status.virtual_placement), frozenset(pods))


def _leaves(node: Cell) -> str:
    return " ".join(_leaf(leaf) for leaf in node.leaves())


def _leaf(leaf: Cell) -> str:
    if not leaf.is_used:
        return "."
    return f"{leaf.vc}{leaf.cell_priority}" + "~" * (leaf.cell_state in ("Reserving", "Reserved"))


def _preassigned(cells: list[Cell]) -> str:
    """`USED/ALL TYPE` for each type of preassigned cell, in the order of the configuration."""
    own = [cell for cell in cells if not cell.cell_address.endswith("-opp")]
    total = Counter(cell.cell_type for cell in own)
    used = Counter(cell.cell_type for cell in own if cell.is_used)
    return ", ".join(f"{used[kind]}/{count} {kind}" for kind, count in total.items())
