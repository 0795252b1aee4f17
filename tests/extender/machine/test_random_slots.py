"""Random lives of affinity groups whose pods end, go and return, with take-overs: no cell has two pods."""

import random
from typing import Any

import pytest

from hived.scheduler import check_invariants
from hived.values.errors import UserError
from hived_extender.machine.empty_slots import LENT_S, OWN_S
from tests.extender.machine.small_cluster import Json, SmallCluster, spec_text

pytestmark = pytest.mark.sample(3)

MEMBERS = {"s": [(2, 4)], "m": [(1, 1), (2, 2)], "l": [(3, 2)], "x": [(4, 4)]}
"""Pods and leaf cells of each, by the first letter of the group's name."""

TOO_MANY = "Requesting more pods than the configured number"
GROUPS = (("s1", 5), ("m1", -1), ("l1", -1), ("x1", -1), ("m2", 5), ("l2", 0))


def text(group: str, size: int, priority: int) -> str:
    members = [{"podNumber": count, "leafCellNumber": cells} for count, cells in MEMBERS[group[0]]]
    return spec_text("a", size, priority, affinityGroup={"name": group, "members": members})


class Story:
    """One cluster and its successors."""

    def __init__(self, seed: int) -> None:
        self.rng, self.number, self.cluster = random.Random(seed), 0, SmallCluster()

    def step(self) -> None:
        pods: list[Json] = list(self.cluster.kube.pods.values())
        steps: list[tuple[int, Any]] = [(7, self.create), (2, self.pass_time), (1, self.take_over)]
        steps += [(6, self.bind), (2, self.delete), (2, self.end)] if pods else []
        (chosen,) = self.rng.choices([step for _, step in steps], [weight for weight, _ in steps])
        chosen(pods)

    def create(self, _: list[Json]) -> None:
        group, priority = self.rng.choice(GROUPS)
        size = self.rng.choice([cells for count, cells in MEMBERS[group[0]] for _ in range(count)])
        self.number += 1
        self.cluster.create(f"p-{self.number}", text(group, size, priority))

    def bind(self, pods: list[Json]) -> None:
        for pod in self.rng.sample(pods, min(len(pods), 4)):
            if pod["spec"]["nodeName"]:
                continue
            found = self.cluster.filter(pod)
            if "NodeNames" in found and self.rng.random() < 0.9:
                self.cluster.bind(pod, found["NodeNames"][0])
                if self.rng.random() < 0.9:
                    self.cluster.see(pod)

    def delete(self, pods: list[Json]) -> None:
        self.cluster.delete(self.rng.choice(pods))

    def end(self, pods: list[Json]) -> None:
        pod = self.rng.choice(pods)
        if pod["spec"]["nodeName"] and pod["status"]["phase"] == "Pending":
            pod["status"]["phase"] = self.rng.choice(["Succeeded", "Failed"])
            self.cluster.kube.touch(pod)
            self.cluster.see(pod)

    def pass_time(self, _: list[Json]) -> None:
        self.cluster.pass_time(self.rng.choice([1.0, 10.0, LENT_S + 1, OWN_S + 1]))

    def take_over(self, pods: list[Json]) -> None:
        self.cluster.pass_time()
        successor = SmallCluster(is_leading=False)
        successor.kube.pods = self.cluster.kube.pods
        for pod in pods:
            successor.see(pod)
        successor.lead()
        self.cluster = successor

    def check(self) -> None:
        """Every pod with a place has just these cells in the core, and no other pod has them."""
        check_invariants(self.cluster.state)
        core, users = self.cluster.service.machine.cache.core, dict[tuple[str, int], str]()
        assert core is not None
        for record in self.cluster.service.machine.cache.pods:
            if record.place.info is None or record.request is None:
                continue
            info = core.info_of(record.request)
            assert (info.node, set(info.leaf_cell_indices)) == (
                record.place.info.node,
                set(record.place.info.leaf_cell_indices),
            )
            for cell in info.leaf_cell_indices:
                assert users.setdefault((info.node, cell), record.key) == record.key


@pytest.mark.parametrize("seed", range(8))
def test_pods_that_come_and_go_have_cells_of_their_own(seed: int) -> None:
    story, refused = Story(seed), list[str]()
    for _ in range(80):
        try:
            story.step()
        except UserError as error:
            refused.append(error.message)
        story.check()
    assert [one for one in refused if "has all its pods" not in one and TOO_MANY not in one] == []
