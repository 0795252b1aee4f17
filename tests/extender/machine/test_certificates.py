"""A certificate has the core's counts, and the names and moments that people know."""

import pytest

from hived.scheduler import new_state
from hived.values.decisions import Cause, Explanation, HoldingGroup
from hived.values.specs import GroupSpec, MemberSpec, PodRequest, PodSpec
from hived_extender.api.waiting import BadNode
from hived_extender.machine.certificates import GroupFacts, asks_of, certificate_of, holders_of
from tests.extender.machine.small_cluster import cluster_spec

TOPOLOGY = new_state(cluster_spec()).topology
NOON_S = 1_795_435_200.0


class KnownFacts:
    """Two groups of one job, and a node."""

    def of_group(self, name: str) -> GroupFacts | None:
        if not name.startswith("ns/g-"):
            return None
        started_s = NOON_S - 60 * int(name[-1])
        return GroupFacts("podgroup/ns/g", "ns", started_s, NOON_S + 600, is_leaving=True)

    def of_node(self, name: str) -> BadNode:
        return BadNode(name, "cordoned")


def request(*sizes: tuple[int, int], priority: int = 0, pinned: str = "") -> PodRequest:
    members = tuple(MemberSpec(count, size) for count, size in sizes)
    spec = PodSpec("a", priority, sizes[0][1], GroupSpec("g", members), pinned_cell_id=pinned)
    return PodRequest("u", "p", "ns", spec)


def explanation(**facts: object) -> Explanation:
    base = {
        "causes": (Cause.IN_USE,), "chain": "RACK", "level": "NODE", "leaf_type": "GPU", "asked": 1, "total": 2,
        "free": 0,
        "in_use": 1, "in_pieces": 0, "bad": 1, "refused": 0, "free_leaves": 0, "largest_fit": 0, "largest_ever": 4,
        "holders": (), "more_holders": 0, "bad_nodes": (),
    }  # fmt: skip
    return Explanation(**(base | facts))  # type: ignore[arg-type]  # facts of a test, by name


@pytest.mark.parametrize(
    ("sizes", "node_leaves", "asks"),
    [
        ([(1, 8)], 8, "1 node of 8 H100"),
        ([(2, 8)], 8, "2 nodes of 8 H100 each at once"),
        ([(16, 1)], 8, "16 pods of 1 H100 at once"),
        ([(1, 3)], 8, "1 pod of 3 H100"),
        ([(2, 4)], 8, "2 pods of 4 H100 each at once"),
        ([(1, 1)], 1, "1 pod of 1 H100"),
        ([(1, 2), (3, 8)], 8, "1 pod of 2 and 3 pods of 8 H100 at once"),
        ([(4, 2), (1, 8)], 8, "4 pods of 2 and 1 pod of 8 H100 at once"),
    ],
)
def test_the_request_in_words(sizes: list[tuple[int, int]], node_leaves: int, asks: str) -> None:
    assert asks_of([request(*sizes)], "H100", node_leaves) == asks


def test_gpus_have_a_plural_and_other_types_have_none() -> None:
    assert [
        asks_of([request((2, size))], leaf_type, is_gang=False) for size, leaf_type in ((1, "GPU"), (8, "GPU"), (4, ""))
    ] == [
        "2 pods of 1 GPU",
        "2 pods of 8 GPUs each",
        "2 pods of 4 GPUs each",
    ]


def test_groups_of_one_job_are_one_holder() -> None:
    groups = [HoldingGroup(f"ns/g-{index}", 5, 0, False, (4 * index, 4 * index + 1)) for index in range(2)]
    leaf = TOPOLOGY.forests[0].bases[1]
    groups = [HoldingGroup(one.name, 5, 0, False, tuple(leaf + cell for cell in one.leaves)) for one in groups]
    (holder,) = holders_of(groups, TOPOLOGY, KnownFacts())
    assert (holder.group, holder.vc, holder.priority, holder.cells) == ("podgroup/ns/g", "a", 5, 4)
    assert holder.nodes == ["n0", "n1"]
    assert (holder.since, holder.until) == ("2026-11-23T11:59:00Z", "2026-11-23T12:10:00Z")


def test_a_group_of_which_nothing_is_known_keeps_its_name() -> None:
    (holder,) = holders_of([HoldingGroup("x", -1, -1, True, ())], TOPOLOGY, KnownFacts())
    assert (holder.group, holder.vc, holder.since, holder.is_lent) == ("x", "", "", True)


def test_the_causes_stand_in_their_order_and_the_sentence_follows() -> None:
    found = certificate_of(
        explanation(causes=(Cause.IN_USE, Cause.BAD), bad_nodes=("n1",)),
        [request((1, 4))], TOPOLOGY, KnownFacts(), NOON_S, reason="insufficient capacity",
    )  # fmt: skip
    assert (found.cause, found.also, found.never, found.unit) == ("in-use", ["bad"], False, "node")
    assert found.sentence == "needs 1 node of 4 GPUs; a has 1 of 2 in use and node n1 is cordoned"
    assert found.reason == "insufficient capacity"


def test_never_stands_alone() -> None:
    found = certificate_of(
        explanation(causes=(Cause.NEVER, Cause.IN_USE), level="", asked=0, total=0),
        [request((1, 16))], TOPOLOGY, KnownFacts(), NOON_S, reason="",
    )  # fmt: skip
    assert (found.cause, found.also, found.never) == ("never", [], True)
    assert found.sentence == "needs 1 pod of 16 GPUs; it can never run: a pod can have at most 4 GPUs in a"


@pytest.mark.parametrize(("refused", "is_named"), [(1, True), (0, False)])
def test_nodes_that_kubernetes_refuses_are_named_where_they_are_counted(refused: int, is_named: bool) -> None:
    rules = "1 of 4 nodes cannot take it (tainted: n0)"
    found = certificate_of(
        explanation(refused=refused), [request((1, 4))], TOPOLOGY, KnownFacts(), NOON_S, reason="", rules=rules
    )
    assert (found.cause, found.rules) == ("in-use", rules if is_named else "")
