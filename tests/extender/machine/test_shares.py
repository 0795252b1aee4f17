"""Lent cells come with their share of a node, and with amounts that are promised to nobody (rule 27.14)."""

from collections.abc import Iterator

import pytest

from tests.extender.machine.small_rooms import ROOM, SmallRooms


@pytest.fixture
def cluster() -> Iterator[SmallRooms]:
    """One node of four GPUs, with 8 CPUs."""
    made = SmallRooms(1)
    yield made
    made.service.close()


def told(cluster: SmallRooms) -> str:
    cluster.pass_time(10)
    return " ".join(cluster.kube.messages)


@pytest.mark.parametrize(
    ("resource", "share", "more"),
    [
        ("cpu", "2", "2.5"),
        ("memory", "8Gi", "9Gi"),
        ("ephemeral-storage", "25Gi", "26Gi"),
        ("example.com/fpga", "1", "2"),
    ],
)
def test_a_borrower_gets_its_share_and_no_more(cluster: SmallRooms, resource: str, share: str, more: str) -> None:
    assert cluster.run(cluster.pod("fair", 1, priority=-1, needs={resource: share}))
    assert not cluster.run(cluster.pod("greedy", 1, priority=-1, needs={resource: more}))


def test_shares_grow_with_the_cells(cluster: SmallRooms) -> None:
    assert cluster.run(cluster.pod("all", 4, priority=-1, needs={"cpu": "8"}))


def test_a_guaranteed_pod_may_have_all_it_asks_for(cluster: SmallRooms) -> None:
    assert cluster.run(cluster.pod("owner", 1, needs={"cpu": "8"}))


def test_a_borrower_without_requests_runs(cluster: SmallRooms) -> None:
    assert cluster.run(cluster.pod("modest", 1, priority=-1))


def test_the_message_names_the_share_and_what_helps(cluster: SmallRooms) -> None:
    cluster.run(cluster.pod("greedy", 1, priority=-1, needs={"cpu": "7"}))
    text = told(cluster)
    assert "come with at most 2 CPUs of n0, and asks for 7 CPUs;" in text
    assert "at a guaranteed priority" in text


def test_a_borrower_gets_what_sku_types_promise_nobody(cluster: SmallRooms) -> None:
    generous = SmallRooms(1, skus="GPU: {gpu: 1, cpu: 1, memory: 4Gi}", room={**ROOM, "cpu": "7", "memory": "32Gi"})
    assert not generous.run(generous.pod("greedy", 1, priority=-1, needs={"cpu": "5"}))
    assert generous.run(generous.pod("fair", 1, priority=-1, needs={"cpu": "4"}))
    generous.service.close()


def test_a_borrower_that_ignores_the_offers_keeps_to_its_share(cluster: SmallRooms) -> None:
    pod = cluster.pod("greedy", 1, priority=-1, needs={"cpu": "7"}, ignores=True)
    assert not cluster.run(pod)


def test_any_amount_is_lent_where_the_configuration_says_so(cluster: SmallRooms) -> None:
    cluster.service.machine.cache.nodes.keep_shares(False)
    assert cluster.run(cluster.pod("greedy", 1, priority=-1, needs={"cpu": "7"}))


def test_no_node_could_take_a_borrower_that_asks_for_more_whoever_leaves(cluster: SmallRooms) -> None:
    cluster.run(cluster.pod("greedy", 1, priority=-1, needs={"cpu": "7"}))
    cluster.run(cluster.pod("owner", 1, priority=0, needs={"cpu": "7"}))
    cache = cluster.service.machine.cache
    greedy, owner = (cache.pods.get(f"uid-{name}") for name in ("greedy", "owner"))
    assert greedy is not None
    assert owner is not None
    assert not cache.offers.could_take([greedy]).any()
    assert cache.offers.could_take([owner]).all()
    cache.nodes.keep_shares(False)
    assert cache.offers.could_take([greedy]).all()
