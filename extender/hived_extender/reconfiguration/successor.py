"""The state of a configuration to come, built beside the present one (rule 18.2 for other rules of decisions).

It is told of all holders of cells like a core at a restart, then of the changes since, as often as need be. So the long
work is done while the present state answers. Only the few changes of the last round are left for the switch. Not
thread-safe; it needs no lock, as no other thread knows of it.
"""

from hived.cells.state import Group
from hived.scheduler import check_invariants
from hived.values.errors import UserError
from hived.values.specs import ClusterSpec
from hived_config.rules import PodRules
from hived_extender.machine.core import Core, StateInputs, in_replay_order
from hived_extender.machine.devices.shortage import Losses
from hived_extender.machine.recording.record import Draft

Errors = dict[str, UserError]


class Successor:
    """`unaccounted` has the pods, by uid, that the state refused, and `lost` the reservations, by group, with why.
    `losses` has the devices that cannot be had.
    """

    def __init__(self, spec: ClusterSpec, draft: Draft | None = None, rules: PodRules | None = None) -> None:
        """Cost O(cells). `draft` is where its events are recorded. By default no jobs are queued."""
        self.unaccounted: Errors = {}
        self.lost: Errors = {}
        self.core = Core(spec, draft, _nothing, _nothing, is_successor=True)
        rules = rules or PodRules()
        self.losses = Losses(self.core.state.topology, spec, rules)
        self._has_queues = rules.queueing.is_enabled
        self._draft = draft
        self._held = StateInputs()

    def catch_up(self, inputs: StateInputs) -> int:
        """Bring the state up to date with the inputs; returns the number of differences since the last time.

        Cost: a look at each holding, and an event of the core for each difference.
        """
        before, self._held = self._held, inputs
        old, new = before.placed, inputs.placed
        come = [
            placed
            for uid, placed in new.items()
            if (known := old.get(uid)) is None
            or known[1] is not placed[1]
            or (known[0] is not placed[0] and known[0] != placed[0])
        ]
        gone = [uid for uid in (*sorted(old.keys() - new.keys()), *(each.request.uid for each in come)) if uid in old]
        lifted = [name for name, reserved in before.reserved.items() if inputs.reserved.get(name) != reserved]
        made = [name for name, reserved in inputs.reserved.items() if before.reserved.get(name) != reserved]
        turned = sorted((before.healthy_nodes ^ inputs.healthy_nodes) & self.core.state.topology.node_index.keys())
        moved_on = [uid for uid in sorted((new.keys() & old.keys()) - set(gone)) if new[uid].times != old[uid].times]
        for name in lifted:
            if self.lost.pop(name, None) is None:
                for pod in before.reserved[name].pods:
                    self.core.delete(pod)
        for uid in gone:
            if self.unaccounted.pop(uid, None) is None:
                self.core.delete(old[uid].request)
        for node in turned:
            self.core.set_node(node, node in inputs.healthy_nodes)
        for placed in in_replay_order(come):
            try:
                self.core.adopt(*placed)
            except UserError as error:
                self.unaccounted[placed.request.uid] = error
        for groups in inputs.queued if self._has_queues else ():
            self.core.lend_all(groups)  # as the queues do that go on with it
        for uid in moved_on:
            self.core.progress(new[uid].request, new[uid].times)
        moved = {old[uid].info.node for uid in gone} | {placed.info.node for placed in come}
        lost = self._catch_up_with_devices(before, inputs, moved)
        for name in sorted(made):
            try:
                self.core.reserve(*inputs.reserved[name])
            except UserError as error:
                self.lost[name] = error
        return len(gone) + len(come) + len(moved_on) + len(lifted) + len(made) + len(turned) + lost

    def _catch_up_with_devices(self, before: StateInputs, inputs: StateInputs, moved: set[str]) -> int:
        """Tell of lost devices: on nodes whose value has changed, and on nodes where pods `moved`."""
        old, new = before.devices, inputs.devices
        changed = {name for name in old.keys() | new.keys() if old.get(name) is not new.get(name)} | moved
        if before.device_classes != inputs.device_classes:
            changed |= new.keys()

        def holds(uid: str) -> bool:
            return uid in inputs.placed and uid not in self.unaccounted

        others = self.losses.settle(self.core, new, inputs.device_classes, changed, holds)
        for node in sorted(moved):
            self.losses.retell(self.core, node)
        return len(others)

    def was_told_of(self, group: Group) -> bool:
        """Was this group of the present state there when the state caught up last? Cost O(its pods)."""
        if group.name in self._held.reserved:
            return True
        return any(pod is not None and pod.uid in self._held.placed for pod in group.holders)

    def check(self) -> None:
        """Raise InvariantError if the state breaks a rule. Cost O(cells)."""
        check_invariants(self.core.state)

    def drop(self) -> None:
        """It will not replace the present state."""
        if self._draft is not None:
            self._draft.drop()


def _nothing(group: Group | None = None) -> None:
    pass
