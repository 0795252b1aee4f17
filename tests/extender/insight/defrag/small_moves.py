"""A small cluster with little besides GPUs, groups that may move, a desk, and owners that make their pods again."""

from typing import Any

import msgspec

from hived_extender.api.defrag import DefragArgs, DefragPlan, Inputs
from hived_extender.insight.defrag.desk import DefragDesk
from hived_extender.insight.defrag.planner import Task, job_shapes, plan
from hived_extender.jobs.annotations import SCHEDULING_SPEC
from hived_extender.jobs.progress import MAY_MOVE
from hived_extender.jobs.wire import Node
from tests.extender.machine.small_cluster import Json
from tests.extender.machine.small_rooms import SmallRooms

MAY = {MAY_MOVE: "true"}


class SmallMoves(SmallRooms):
    """See the module."""

    def __init__(self, count: int = 3, **more: Any) -> None:
        super().__init__(count, **more)
        self.desk = DefragDesk(self.service, lambda: self.text, clock=lambda: 1000.0, now=lambda: 1000.0)

    def inputs(self) -> Inputs:
        """The inputs of a plan as they come over the wire."""
        found = self.desk.inputs()
        again = msgspec.json.decode(msgspec.json.encode(found), type=Inputs)
        assert again == found
        return again

    def plan(self, job: str = "ns:big", **more: Any) -> DefragPlan:
        """A plan for a job that waits."""
        inputs = self.inputs()
        vc, shapes = job_shapes(inputs, job)
        return plan(Task(cluster=self.state.spec, inputs=inputs, vc=vc, shapes=shapes, **more))

    def big(self, name: str = "big", gpus: int = 4, **more: Any) -> Json:
        """A job that has no room waits."""
        pod = self.pod(name, gpus, **{"group": "big", **more})
        assert self.run(pod) == ""
        return pod

    def foreign(self, node: str, name: str = "foreign", **more: Any) -> Json:
        """A pod of another scheduler runs there, of a priority that nobody displaces."""
        return self.pod(name, is_foreign=True, node=node, rank=2_000_000_000, **more)

    def change_node(self, name: str, **spec: Any) -> None:
        """A node has another spec from now on."""
        body = msgspec.to_builtins(self.nodes[name])
        self.nodes[name] = msgspec.convert({**body, "spec": spec}, Node)
        self.service.sync_nodes(list(self.nodes.values()))

    def moved(self, found: DefragPlan) -> dict[str, str]:
        """The new node of each group that moves; "" for one that has to wait."""
        return {move.group: next((place.node for place in move.becomes), "") for move in found.moves}

    def carry_out(self, found: DefragPlan) -> None:
        """Groups leave, and their owners make new pods that ask for the same."""
        self.desk.apply(DefragArgs(plan=found), "ann")
        for _ in range(2 + 2 * len(found.moves)):
            self.pass_time(3)
            leaving = [name for _, name in self.kube.leaving]
            self.kube.leaving.clear()
            for name in leaving:
                if name in self.kube.pods:
                    self._make_again(self.kube.pods[name])
            for pod in list(self.kube.pods.values()):
                if not pod["spec"]["nodeName"]:
                    self.run(pod)

    def _make_again(self, old: Json) -> None:
        self.delete(old)
        again: Json = msgspec.json.decode(msgspec.json.encode(old))
        name, notes = f"{old['metadata']['name']}-again", again["metadata"]["annotations"]
        again["metadata"] |= {"name": name, "uid": f"uid-{name}"}
        again["metadata"]["annotations"] = {key: notes[key] for key in (SCHEDULING_SPEC, MAY_MOVE) if key in notes}
        again["spec"]["nodeName"] = ""
        self.kube.add(again)
        self.see(again)

    @property
    def are_all_running(self) -> bool:
        """Has every pod a node?"""
        return all(pod["spec"]["nodeName"] for pod in self.kube.pods.values())
