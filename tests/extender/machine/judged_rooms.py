"""Small random clusters in which others may have to leave for pods, and a judge that tries every set of them.

The judge knows cells by a plain count, as far as a pod fits on a node whose cells are all of one level, and Kubernetes'
rules by `kube_rules`. It is asked before the service is. Pods of a gang have one size or several, each with its own
demands. Some claim volumes of a zone. The service knows only that there are claims: a node can have the volume if
kube-scheduler offers it, so sets of victims that need another node are no better ones.
"""

import random
from collections.abc import Iterable, Sequence
from itertools import chain, combinations, permutations, product
from typing import Any

from hived_extender.kube_rules.demands import DemandsReader
from hived_extender.kube_rules.nodes import RuledNode
from hived_extender.kube_rules.residents import Residents, refusals
from tests.driver import judge_states
from tests.extender.machine.small_cluster import Json, to_pod
from tests.extender.machine.small_rooms import ZONE, SmallRooms

GPUS = 4
ZONES = ("east", "west")
LABELS = ("red", "blue")
FREE, LENT = -2, -1


def apart(label: str, key: str = "kubernetes.io/hostname") -> dict[str, Any]:
    """Required anti-affinity to pods of a label."""
    term = {"labelSelector": {"matchLabels": {"app": label}}, "topologyKey": key}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def wish(chance: random.Random) -> dict[str, Any]:
    """What a random pod asks for besides GPUs."""
    found: dict[str, Any] = {"needs": {}}
    if chance.random() < 0.6:
        found["needs"]["cpu"] = str(chance.choice((1, 2, 3, 5, 6)))
    if chance.random() < 0.2:
        found["needs"]["memory"] = f"{chance.choice((8, 16, 24))}Gi"
    if chance.random() < 0.15:
        found["needs"]["example.com/fpga"] = str(chance.choice((1, 2)))
    if chance.random() < 0.5:
        found["labels"] = {"app": chance.choice(LABELS)}
    if chance.random() < 0.2:
        found["affinity"] = apart(chance.choice(LABELS))
    if chance.random() < 0.15:
        found["ports"] = [{"hostPort": 8080}]
    if chance.random() < 0.1:
        found["nodeSelector"] = {ZONE: chance.choice(ZONES)}
    return found


def sizes_of(chance: random.Random) -> list[int]:
    """The GPUs of pods that want to start together; three of ten gangs have several sizes."""
    if chance.random() < 0.7:
        return [chance.choice((1, 2, 2, 3, 4))] * chance.choice((1, 1, 1, 2))
    return sorted(chance.sample((1, 2, 3, 4), 2) + chance.choice(([], [1])))


class JudgedRooms:
    """A random state: pods that run, each with its priority, and the pods that want to start together."""

    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)
        rules = chance.choice(("2", "2", "hived"))
        self.is_sparing = rules == "2"  # the reference evicts more than it needs
        count = chance.choice((2, 2, 3))
        labels = {f"n{number}": {ZONE: chance.choice(ZONES)} for number in range(count)}
        self.cluster = SmallRooms(count, gpus=GPUS, rules=rules, labels=labels)
        self.cluster.service.machine.cache.nodes.keep_shares(False)
        self.priorities: dict[str, int] = {}
        self.ranks: dict[str, int] = {}
        # The highest first, so that nobody has to leave for one of these.
        for number, priority in enumerate(
            sorted(chance.choices((-1, 0, 0, 1, 9), k=chance.randint(2, 7)), reverse=True)
        ):
            self._start(chance, f"p{number}", chance.choice((1, 1, 2, 2, 3, 4)), priority)
        for number in range(chance.choice((0, 0, 1))):
            self._foreign(chance, f"f{number}")
        self.rank = 10
        gpus, asked = sizes_of(chance), wish(chance)
        members = [(gpus.count(size), size) for size in sorted(set(gpus))]
        group = {"group": "w", "members": members} if len(gpus) > 1 else {}
        self.has_volumes = chance.random() < 0.1
        volume = {"volume_zone": chance.choice(ZONES)} if self.has_volumes else {}
        assert not self.cluster.kube.leaving
        by_size = {size: asked if len(members) == 1 else wish(chance) for _, size in members}
        self.wanted = [
            dict(name=f"w{number}", gpus=size, priority=5, rank=self.rank, **group, **volume, **by_size[size])
            for number, size in enumerate(gpus)
        ]

    def _start(self, chance: random.Random, name: str, gpus: int, priority: int) -> None:
        pod = self.cluster.pod(name, gpus, priority=priority, rank=chance.choice((0, 20)), **wish(chance))
        if self.cluster.run(pod):
            self.priorities[name] = priority
        else:
            self.cluster.delete(pod)

    def _foreign(self, chance: random.Random, name: str) -> None:
        rank = chance.choice((0, 20))
        pod = self.cluster.pod(name, is_foreign=True, rank=rank, **wish(chance))
        nodes = self.cluster.offered(pod)
        if not nodes:
            self.cluster.delete(pod)
            return
        pod["spec"]["nodeName"] = chance.choice(nodes)
        self.cluster.kube.touch(pod)
        self.cluster.see(pod)
        self.ranks[name] = rank

    def may_leave(self) -> list[str]:
        """The pods that may leave for the wanted ones."""
        own = [name for name, priority in self.priorities.items() if priority < 5]
        return own + [name for name, rank in self.ranks.items() if rank < self.rank]

    def judged(self, nodes: Sequence[Sequence[str]]) -> list[frozenset[str]]:
        """All sets with whose leaving the wanted pods start, each on one of its nodes; none has a smaller one in it."""
        found: list[frozenset[str]] = []
        names = self.may_leave()
        for leaving in chain.from_iterable(combinations(names, count) for count in range(len(names) + 1)):
            if not any(one <= set(leaving) for one in found) and self.start_without(leaving, nodes):
                found.append(frozenset(leaving))
        return found

    def start_without(self, leaving: Iterable[str], nodes: Sequence[Sequence[str]]) -> bool:
        """Would all wanted pods find cells, each on one of its nodes, once these have left?"""
        pods = {name: pod for name, pod in self.cluster.kube.pods.items() if name not in set(leaving)}
        pods = {name: pod for name, pod in pods.items() if pod["spec"]["nodeName"]}
        gpus = dict.fromkeys(self.cluster.names, GPUS)
        for name, pod in pods.items():
            if name in self.priorities:
                gpus[pod["spec"]["nodeName"]] -= self.sizes[name]
        for places in product(*nodes):
            left = dict(gpus)
            for each, node in zip(self.wanted, places, strict=True):
                left[node] -= each["gpus"]
            if min(left.values()) >= 0 and any(
                self._are_taken(order, pods) for order in permutations(list(enumerate(places)))
            ):
                return True
        return False

    @property
    def sizes(self) -> dict[str, int]:
        """The GPUs of each pod that runs."""
        state = self.cluster.state
        return {
            name: sum(len(group.physical) for group in state.groups.values() if f"uid-{name}" in group.slots_of)
            for name in self.priorities
        }

    def _are_taken(self, order: Sequence[tuple[int, str]], pods: dict[str, Json]) -> bool:
        reader, residents = DemandsReader(), Residents()
        for name, pod in pods.items():
            residents.put(name, pod["spec"]["nodeName"], reader.read_pod(to_pod(pod)))
        nodes = {name: RuledNode.of(node) for name, node in self.cluster.nodes.items()}
        for number, node in order:
            ruled = reader.read_pod(to_pod(self.cluster.kube.pods[self.wanted[number]["name"]]))
            if node in refusals(ruled, nodes, residents, {}):
                return False
            if not self.cluster.has_volume(self.wanted[number]["name"], node):
                return False
            residents.put(f"#{number}", node, ruled)
        return True

    def play(self) -> str:
        """Have the wanted pods ask; returns what is wrong with who leaves, "" if nothing."""
        for each in self.wanted:
            more = dict(each)
            self.cluster.pod(more.pop("name"), more.pop("gpus"), **more)
        allowed = self.judged([self.cluster.names] * len(self.wanted))
        known = allowed
        if self.has_volumes:
            known = self.judged([self.cluster.offered(self.cluster.kube.pods[one["name"]]) for one in self.wanted])
        left = self.cluster.settle(6)
        are_running = all(one["name"] in self.cluster.running() for one in self.wanted)
        said = f"{sorted(left)} left, possible: {sorted(map(sorted, allowed))}, running: {are_running}"
        if left and not are_running:
            return f"victims that do not help: {said}"
        if self.has_volumes and not are_running:
            return ""  # kube-scheduler alone knows which nodes others would have to leave
        if bool(allowed) != are_running:
            return f"a false wait: {said}" if allowed else f"a start that nobody understands: {said}"
        if left and left not in [*allowed, *known] and self.is_sparing:
            return f"needless: {said}"
        return ""

    def close(self) -> None:
        """End it."""
        self.cluster.service.close()


if __name__ == "__main__":
    raise SystemExit(judge_states("tests.extender.machine.judged_rooms", __doc__, JudgedRooms))
