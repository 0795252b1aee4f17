"""The rules between mates, given to the core all at once, against kube-scheduler's way of one pod after the other."""

import itertools
import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from hived.values.events import Limit, Spread
from hived_extender.kube_rules.demands import RuledPod
from hived_extender.kube_rules.mates import Rule, Surroundings, mate_rules
from hived_extender.kube_rules.nodes import NodeRules
from hived_extender.kube_rules.residents import Residents, refusals
from tests.extender.kube_rules.objects import HOSTNAME, ZONE, host_port, make_node, make_pod, pod_affinity, spread

NAMES = ("n0", "n1", "n2")
SPECS: list[dict[str, Any]] = [
    {},
    pod_affinity("podAntiAffinity"),
    pod_affinity("podAntiAffinity", key=ZONE),
    pod_affinity("podAntiAffinity", app="master"),
    pod_affinity("podAffinity", key=ZONE),
    spread(),
    spread(key=HOSTNAME),
    spread(minDomains=3),
    host_port(),
    host_port(ip="10.0.0.1"),
]
Slots = tuple[int, ...]


class Case:
    """Three nodes, perhaps without all labels, pods that run there, and a gang of three."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        zones = [rng.choice("aabb-") for _ in NAMES]
        self.nodes = {
            name: make_node(name, {ZONE: zone} if zone != "-" else {}, allocatable={"cpu": "4", "pods": "9"})
            for name, zone in zip(NAMES, zones, strict=True)
        }
        self.table = NodeRules(NAMES)
        for node in self.nodes.values():
            self.table.put(node)
        self._apps: tuple[str, ...] = ("train", "master")
        self.running = [(name, self._pod(rng, "running")) for name in NAMES if rng.random() < 0.2]
        self._apps = rng.choice((("train",), ("train",), ("train", "master")))
        templates = [rng.choice(SPECS) for _ in range(rng.choice((1, 1, 2)))]
        self.is_mixed = len(templates) > 1
        self.gang = [self._pod(rng, str(index), rng.choice(templates)) for index in range(3)]

    def _pod(self, rng: random.Random, index: str, spec: dict[str, Any] | None = None) -> RuledPod:
        labels = {"app": rng.choice(self._apps), "index": index}
        return make_pod(spec or {}, labels=labels, limits={"cpu": rng.choice(("1", "1", "3"))})

    def residents(self) -> Residents:
        residents = Residents(NAMES)
        for index, (name, pod) in enumerate(self.running):
            residents.put(f"running-{index}", name, pod)
        return residents

    def offered(self) -> list[set[str]]:
        """The nodes that kube-scheduler offers each pod before any mate has one."""
        return [self.nodes.keys() - refusals(pod, self.nodes, self.residents(), {}).keys() for pod in self.gang]

    def rules(self) -> tuple[Rule, ...]:
        around = Surroundings(self.table, np.full(len(NAMES), 8, np.int32), self.residents())
        return mate_rules(self.gang, [1] * len(self.gang), around)

    def is_taken_one_by_one(self, where: Sequence[int]) -> bool:
        """Whether kube-scheduler takes the pods to these nodes in some order."""
        return any(self._is_taken(where, order) for order in itertools.permutations(range(len(self.gang))))

    def _is_taken(self, where: Sequence[int], order: Slots) -> bool:
        residents = self.residents()
        for slot in order:
            if NAMES[where[slot]] in refusals(self.gang[slot], self.nodes, residents, {}):
                return False
            residents.put(str(slot), NAMES[where[slot]], self.gang[slot])
        return True


def is_allowed(rules: Sequence[Rule], where: Sequence[int]) -> bool:
    """Whether the rules hold for one placement, in some order of the pods."""
    return any(all(_holds(rule, where, order) for rule in rules) for order in itertools.permutations(range(len(where))))


def _holds(rule: Rule, where: Sequence[int], order: Slots) -> bool:
    if isinstance(rule, Limit):
        used = np.zeros(len(rule.room), np.int64)
        np.add.at(used, rule.domain[list(where)], rule.weight)
        return bool((used <= rule.room).all())
    if isinstance(rule, Spread):
        present = rule.present.copy()
        for slot in order:
            domain = rule.domain[where[slot]]
            if rule.counts[slot]:
                if domain < 0 or present[domain] + 1 - present.min() > rule.max_skew:
                    return False
                present[domain] += 1
        return True
    domains = {int(rule.domain[node]) for slot, node in enumerate(where) if rule.slots[slot]}
    return len(domains) <= 1 and -1 not in domains


def placements(offered: Sequence[set[str]]) -> Iterator[Slots]:
    return itertools.product(*([index for index, name in enumerate(NAMES) if name in each] for each in offered))


@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", range(10))
def test_nothing_is_allowed_that_kube_scheduler_refuses(seed: int) -> None:
    for case in map(Case, range(seed * 30, seed * 30 + 30)):
        rules = case.rules()
        allowed = [where for where in placements(case.offered()) if is_allowed(rules, where)]
        assert all(map(case.is_taken_one_by_one, allowed))


@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", range(10))
def test_all_is_allowed_that_kube_scheduler_takes_of_pods_of_one_template(seed: int) -> None:
    for case in map(Case, range(seed * 30, seed * 30 + 30)):
        if not case.is_mixed and len({pod.labels["app"] for pod in case.gang}) == 1:
            rules = case.rules()
            taken = [where for where in placements(case.offered()) if case.is_taken_one_by_one(where)]
            assert all(is_allowed(rules, where) for where in taken)
