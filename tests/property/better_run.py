"""Random lives of the core under better rules: all operations of `operations`, with times, offers and changing rules.

Two cores get the same operations, and must give the same answers and states. Whatever was only asked changes nothing,
and all invariants hold after each operation.
"""

from dataclasses import replace
from typing import Any

from hived.values.specs import ClusterSpec, Rules
from hived_extender.machine.recording.replay import CoreScheduler
from tests.property.choices import Choices, Seeded
from tests.property.clusters import make_cluster, make_hardware, pack_some
from tests.property.lockstep import LockStep
from tests.property.operations import Op, Operations

CONFIG_COUNT = 3


class BetterRun:
    """One cluster with some configurations, of which `rules: 2` is the first one's; all follows from the seed."""

    def __init__(self, seed: int, leaves: int = 0) -> None:
        self.choices = Choices(Seeded(seed))
        hardware = make_hardware(self.choices, leaves)
        self.configs = {
            f"config{number}.yaml": self._configuration(make_cluster(self.choices, hardware), number)
            for number in range(CONFIG_COUNT)
        }
        self.lockstep = LockStep(self.configs, CoreScheduler)
        self._operations = Operations(self.choices, self.configs, beyond=True, reservations=self.lockstep.reservations)
        self._now_s = 0.0
        self._answers: dict[str, int] = {}

    def live(self, op_count: int) -> dict[str, int]:
        """Carry out so many operations; how often each kind of answer came. Raises Difference."""
        for op in self._operations.start():
            self.lockstep.apply(op)
        while len(self.lockstep.operations) < op_count:
            self.step()
        return self._answers

    def step(self) -> None:
        """Carry out one operation, and sometimes tell the times of a pod."""
        op = self._with_more(self._operations.next())
        result = self.lockstep.apply(op)
        self._answers[result["kind"]] = self._answers.get(result["kind"], 0) + 1
        self._operations.learn(op, result)
        if op["op"] == "schedule" and self.choices.chance(30):
            started = self._now_s - self.choices.integer(0, 100)
            self.lockstep.apply({"op": "progress", "pod": op["pod"], "started": max(started, 0.0)})

    def _configuration(self, spec: ClusterSpec, number: int) -> ClusterSpec:
        if number > 0 and self.choices.chance(30):
            return pack_some(self.choices, spec)
        vcs = {
            name: replace(vc, spares=self.choices.chance(30), combines=self.choices.chance(30))
            for name, vc in sorted(spec.virtual_clusters.items())
        }
        return replace(spec, rules=Rules.BETTER, virtual_clusters=vcs)

    def _with_more(self, op: Op) -> Op:
        """A schedule operation with the time, and sometimes with an offer in place of suggested nodes."""
        self._now_s += self.choices.integer(0, 20)
        if op["op"] != "schedule":
            return op
        op = op | ({"now": self._now_s} if self.choices.chance(90) else {})
        members = op["spec"].get("affinityGroup", {}).get("members", [{"podNumber": 1}])
        pods = sum(member["podNumber"] for member in members)
        if not self.choices.chance(25) or not 0 < pods <= 16:
            return op
        return op | {"suggested": "all", "offer": self._offer(pods)}

    def _offer(self, pods: int) -> dict[str, Any]:
        nodes = list(self.lockstep.state.topology.node_names)
        cut = self.choices.integer(0, pods)
        rows = [list(range(cut)), list(range(cut, pods))]
        return {
            "rows": [
                {
                    "slots": slots,
                    "nodes": {"except": self.choices.subset(nodes, 25)},
                    "after": self.choices.subset(nodes, 10),
                }
                for slots in rows
                if slots
            ]
        }
