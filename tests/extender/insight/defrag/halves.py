"""A service whose virtual cluster a has two nodes, both half used, by groups that may be moved."""

from typing import Any

from hived_config.loader import load_text
from hived_extender.insight.defrag.desk import DefragDesk, Ledger
from hived_extender.jobs.progress import MAY_MOVE
from tests.extender.machine.small_cluster import CONFIG, Json, SmallCluster, spec_text

AUTOMATIC = CONFIG.replace("  a:\n", "  a:\n    movable: true\n    defrag: {maxGpuHours: 1, maxGroups: 1}\n")


class Halves:
    """`first` and `second` are the pods of groups ns:first and ns:second, on different nodes."""

    def __init__(self, text: str = CONFIG, ledger: Ledger | None = None, **more: Any) -> None:
        configuration = load_text(text, "small.yaml", environ={})
        self.cluster = SmallCluster(spec=configuration.cluster, rules=configuration.rules, **more)
        self.now = 1000.0
        self.text = text
        self.desk = self.new_desk(ledger)
        blocker, _ = self.cluster.place("blocker")
        self.first, self.first_node = self.place("first")
        filler, _ = self.cluster.place("filler", spec_text(leaf_cells=2, group="filler"))
        self.cluster.delete(blocker)
        self.second, self.second_node = self.place("second")
        self.cluster.delete(filler)
        assert self.first_node != self.second_node

    def new_desk(self, ledger: Ledger | None = None) -> DefragDesk:
        """A desk that knows nothing yet, as after a restart."""
        return DefragDesk(self.cluster.service, lambda: self.text, ledger, clock=lambda: self.now, now=lambda: self.now)

    def place(self, name: str) -> tuple[Json, str]:
        return self.cluster.place(name, self.spec(name), annotations={MAY_MOVE: "true"})

    def spec(self, name: str) -> str:
        return spec_text(leaf_cells=2, group=name)

    def big(self, name: str = "big") -> Json:
        """A job that wants a whole node waits."""
        pod = self.cluster.create(name, spec_text(leaf_cells=4, group=name))
        assert "needs 1 node of 4 GPUs" in str(self.cluster.filter(pod))
        return pod

    def pods(self) -> set[str]:
        """The pods that are there, as `namespace/name`."""
        return {f"ns/{name}" for name in self.cluster.kube.pods}

    def evicted(self) -> Json | None:
        """The pod that was asked to leave, if any."""
        self.cluster.pass_time()
        names = [name for _, name in self.cluster.kube.leaving]
        return next((pod for pod in (self.first, self.second) if pod["metadata"]["name"] in names), None)

    def carry_on(self) -> str:
        """The evicted pod goes, and its controller makes another one, which is placed; returns its node."""
        pod = self.evicted()
        assert pod is not None
        name = pod["metadata"]["name"]
        self.cluster.delete(pod)
        again = self.cluster.create(f"{name}-again", self.spec(name), annotations={MAY_MOVE: "true"})
        node: str = self.cluster.filter(again)["NodeNames"][0]
        return node
