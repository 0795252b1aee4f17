"""Small random clusters in which groups may move for a job, and a judge that tries every arrangement of them.

The judge knows cells by a plain count, as each group is one pod on a node whose cells are all of one level, and
Kubernetes' rules by `kube_rules`.
"""

import random
from collections.abc import Sequence
from itertools import product

from hived_extender.insight.defrag.planner import NOT_KNOWN, NOTHING_NEEDED, NOTHING_POSSIBLE, PLAN
from hived_extender.kube_rules.demands import DemandsReader
from hived_extender.kube_rules.nodes import RuledNode
from hived_extender.kube_rules.residents import Residents, refusals
from tests.driver import judge_states
from tests.extender.insight.defrag.small_moves import MAY, SmallMoves
from tests.extender.machine.judged_rooms import GPUS, wish
from tests.extender.machine.small_cluster import to_pod


class JudgedMoves:
    """A random state: groups of one pod, most of which may move, and a job of one or two pods that waits."""

    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)
        self.cluster = SmallMoves(chance.choice((2, 3, 3)), gpus=GPUS)
        self.sizes: dict[str, int] = {}
        self.may: list[str] = []
        for number in range(chance.randint(2, 5)):
            self._start(chance, f"p{number}", chance.choice((1, 1, 2, 2, 3)))
        for number in range(chance.choice((0, 1, 2))):
            self._foreign(chance, f"f{number}")
        count, gpus, asked = chance.choice((1, 1, 2)), chance.choice((2, 3, 4, 4)), wish(chance)
        self.wanted = [f"w{number}" for number in range(count)]
        self.gpus = gpus
        for name in self.wanted:
            self.cluster.pod(name, gpus, group="big", pods=count, **asked)
        for name in self.wanted:
            self.cluster.run(self.cluster.kube.pods[name])

    def _start(self, chance: random.Random, name: str, gpus: int) -> None:
        may = chance.random() < 0.8
        pod = self.cluster.pod(name, gpus, group=name, annotations=MAY if may else {}, **wish(chance))
        offered = self.cluster.offered(pod)
        chance.shuffle(offered)
        for node in offered:
            if self.cluster.filter(pod, [node]).get("NodeNames") == [node]:
                self.cluster.bind(pod, node)
                self.cluster.see(pod)
                self.sizes[name] = gpus
                self.may += [name] if may else []
                return
        self.cluster.delete(pod)

    def _foreign(self, chance: random.Random, name: str) -> None:
        pod = self.cluster.pod(name, is_foreign=True, rank=2_000_000_000, **wish(chance))
        nodes = self.cluster.offered(pod)
        if not nodes:
            self.cluster.delete(pod)
            return
        pod["spec"]["nodeName"] = chance.choice(nodes)
        self.cluster.kube.touch(pod)
        self.cluster.see(pod)

    def has_arrangement(self, moving: Sequence[str] | None = None) -> bool:
        """Is there room for the job with all groups somewhere, of which `moving` may be elsewhere than now?"""
        moving = self.may if moving is None else moving
        staying = {
            name: pod["spec"]["nodeName"]
            for name, pod in self.cluster.kube.pods.items()
            if pod["spec"]["nodeName"] and name not in moving
        }
        reader = DemandsReader()
        ruled = {name: reader.read_pod(to_pod(pod)) for name, pod in self.cluster.kube.pods.items()}
        nodes = {name: RuledNode.of(node) for name, node in self.cluster.nodes.items()}
        sizes = {**self.sizes, **dict.fromkeys(self.wanted, self.gpus)}
        coming = [*moving, *self.wanted]
        for places in product(self.cluster.names, repeat=len(coming)):
            left = dict.fromkeys(self.cluster.names, GPUS)
            for name, node in [*staying.items(), *zip(coming, places, strict=True)]:
                left[node] -= sizes.get(name, 0)
            if min(left.values()) < 0:
                continue
            residents = Residents()
            for name, node in staying.items():
                residents.put(name, node, ruled[name])
            for name, node in zip(coming, places, strict=True):
                if node in refusals(ruled[name], nodes, residents, {}):
                    break
                residents.put(name, node, ruled[name])
            else:
                return True
        return False

    def play(self) -> str:
        """Plan, and carry out; returns what is wrong, "" if nothing."""
        if all(name in self.cluster.running() for name in self.wanted):
            return ""
        found = self.cluster.plan()
        if found.outcome == NOTHING_NEEDED:
            return "" if self.has_arrangement(()) else "said that nothing is needed"
        if found.outcome == NOTHING_POSSIBLE:
            return f"a false no: {found.reason}" if self.has_arrangement() else ""
        if found.outcome == NOT_KNOWN:
            return ""
        assert found.outcome == PLAN
        moved = self.cluster.moved(found)
        if not all(one.is_met for one in found.wanted):
            return f"moves for nothing: {moved}"
        self.cluster.carry_out(found)
        return "" if self.cluster.are_all_running else f"moved in vain: {moved}, {self.cluster.running()}"

    def close(self) -> None:
        """End it."""
        self.cluster.service.close()


if __name__ == "__main__":
    raise SystemExit(judge_states("tests.extender.insight.defrag.judged_moves", __doc__, JudgedMoves))
