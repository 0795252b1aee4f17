"""Queues with jobs or without: the leaves of a tree, and virtual clusters beside it (rule 29.1)."""

import pytest

from hived_config.rules import PodRules
from hived_extender.jobs.quotas.tree import Quota, QuotaTree
from hived_extender.queues.turns import KnownQueues
from tests.extender.queues.small import SPEC

GPU = "nvidia.com/gpu"
RULES = PodRules()


@pytest.fixture
def beside_a_tree() -> KnownQueues:
    """One leaf is backed by virtual cluster A."""
    leaf = Quota("root/team", "root", min={GPU: 2.0}, max={GPU: 6.0}, max_jobs=3, vc="A")
    return KnownQueues(QuotaTree({"root": Quota("root", children=("root/team",)), "root/team": leaf}), SPEC, RULES)


def test_every_virtual_cluster_is_a_queue_without_a_tree() -> None:
    known = KnownQueues(None, SPEC, RULES)
    assert known.with_others([]) == ["A", "B", "C"]
    assert (known.guaranteed("C"), known.most("C")) == ({GPU: 8.0}, {})


def test_a_leaf_stands_for_its_virtual_cluster(beside_a_tree: KnownQueues) -> None:
    assert beside_a_tree.with_others([]) == ["B", "C", "root/team"]
    assert beside_a_tree.vcs["root/team"] == "A"


def test_a_virtual_cluster_of_a_leaf_is_a_queue_too_while_it_has_jobs(beside_a_tree: KnownQueues) -> None:
    assert beside_a_tree.with_others(["A", "B"]) == ["A", "B", "C", "root/team"]
    assert beside_a_tree.guaranteed("A") == {GPU: 4.0}


def test_a_leaf_has_its_min_and_its_max_with_the_number_of_jobs(beside_a_tree: KnownQueues) -> None:
    assert beside_a_tree.guaranteed("root/team") == {GPU: 2.0}
    assert beside_a_tree.most("root/team") == {GPU: 6.0, "kube-queue/max-jobs": 3.0}
