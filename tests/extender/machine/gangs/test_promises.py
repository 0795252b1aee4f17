"""A scheduler ends while a gang starts: the next leader gives the other pods their places (rule 26.10)."""

import json
import zlib
from base64 import b64encode
from uuid import uuid4

import pytest

from hived.values.errors import UserError
from hived_extender.jobs.annotations import SCHEDULING_SPEC
from hived_extender.jobs.bind_info import POD_GANG, Promise, gang_annotations, peers_of
from tests.extender.machine.machine_table import Table
from tests.extender.machine.small_cluster import spec_text
from tests.extender.machine.small_gangs import SmallGangCluster, koordinator

ROLES = json.dumps(["ns/ps", "ns/worker"])


def cells(cluster: SmallGangCluster) -> dict[str, object]:
    """The hardware of every group."""
    return {name: group["physicalPlacement"] for name, group in cluster.groups().items()}


def test_a_bound_pod_without_devices_keeps_the_places_of_its_gang() -> None:
    cluster = SmallGangCluster()
    for name, gpus in (("ps", 0), ("w-0", 4), ("w-1", 4)):
        cluster.pod(name, gpus, koordinator("train", 3))
    cluster.start("w-0", "w-1", "ps")
    assert list(cluster.placed()) == ["ps"]
    before = cells(cluster)
    assert cells(cluster.restarted()) == before != {}


def test_a_bound_pod_keeps_the_places_of_gangs_that_start_with_its_own() -> None:
    cluster = SmallGangCluster()
    cluster.pod("ps-0", 2, koordinator("ps", 1, groups=ROLES))
    cluster.pod("worker-0", 2, koordinator("worker", 1, groups=ROLES))
    cluster.start("ps-0", "worker-0")
    assert list(cluster.placed()) == ["worker-0"]
    assert set(cells(cluster.restarted())) == {"ns/ps-0", "ns/worker-0"}


def test_a_replica_that_leads_for_the_second_time_still_knows_the_places() -> None:
    cluster = SmallGangCluster()
    for name in ("w-0", "w-1"):
        cluster.pod(name, 4, koordinator("train", 2))
    cluster.start("w-0", "w-1")
    assert list(cluster.placed()) == ["w-1"]
    before = cells(cluster)
    for _ in range(2):
        cluster.service.follow("another leads")
        cluster.lead()
    assert cells(cluster) == before != {}


def test_a_gang_whose_pods_are_over_still_has_its_minimum() -> None:
    cluster = SmallGangCluster()
    terms = {"groups": ROLES, "match_policy": "waiting-and-running"}
    cluster.pod("ps-0", 2, koordinator("ps", 1, **terms))
    cluster.pod("worker-0", 2, koordinator("worker", 1, **terms))
    assert len(cluster.settle()) == 2
    cluster.become("worker-0", "Succeeded")
    cluster.pod("ps-1", 2, koordinator("ps", 1, **terms))
    assert cluster.ask("ps-1") == "rejected by podgroup/ns/worker: 0 of 1 pods created"


def peers(cluster: SmallGangCluster, name: str) -> list[str]:
    """The pods whose places a bound pod has."""
    return sorted(one.uid for one in peers_of(cluster.kube.pods[name]["metadata"]["annotations"]))


def test_a_place_is_written_onto_no_more_pods_than_were_bound_before_that_was_known() -> None:
    cluster = SmallGangCluster()
    pods = [cluster.pod(f"w-{number}", 2, koordinator("train", 4)) for number in range(4)]
    nodes = [cluster.filter(pod).get("NodeNames") for _ in range(2) for pod in pods][-4:]
    for pod, node in zip(pods[:2], nodes, strict=False):
        cluster.bind(pod, node[0])
    assert peers(cluster, "w-1") == ["uid-w-0", "uid-w-2", "uid-w-3"]
    cluster.see(pods[0])
    cluster.bind(pods[2], nodes[2][0])
    assert peers(cluster, "w-2") == []
    cluster.drop("w-0")
    cluster.bind(pods[3], nodes[3][0])
    assert peers(cluster, "w-3") == ["uid-w-1", "uid-w-2"]


def test_the_places_of_a_thousand_pods_fit_into_an_annotation() -> None:
    uids = [str(uuid4()) for _ in range(1000)]
    places = [Promise(uid, f"node-{n:04}", "DGX", list(range(8)), ["DGX"] * 8) for n, uid in enumerate(uids)]
    written = gang_annotations(None, "ns/train", places)
    assert peers_of(written) == places
    assert sum(map(len, written.values())) < 64 * 1024


def test_places_that_unpack_to_too_much_are_refused() -> None:
    packed = b64encode(zlib.compress(b" " * 2**24)).decode()
    with pytest.raises(UserError, match="more than 1048576 characters"):
        peers_of({POD_GANG: json.dumps({"name": "ns/train", "packed": packed})})


def test_a_pod_may_not_speak_for_pods_of_other_gangs() -> None:
    cluster = SmallGangCluster()
    for name in ("w-0", "w-1"):
        cluster.pod(name, 4, koordinator("train", 2))
    cluster.start("w-0", "w-1")
    notes = cluster.kube.pods["w-1"]["metadata"]["annotations"]
    cluster.drop("w-1")
    cluster.pod("x", 4, {**koordinator("x", 1), POD_GANG: notes[POD_GANG]}, nodeName="n3")
    assert cells(cluster.restarted()) == {}


def test_a_pod_that_has_left_its_gang_for_a_larger_group_keeps_its_place_when_a_mate_is_bound() -> None:
    table = Table()
    table.do("gang p q minimum=2 gpus=2; filter p n0 n1; filter q n0 n1")
    places = {record.name: record.place.node for record in table.machine.cache.pods}
    table.bind("p", places["p"])
    table.pods["q"]["metadata"]["annotations"][SCHEDULING_SPEC] = spec_text(leaf_cells=2, group="pair", pods=2)
    table.do("see q; filter q n2 n3")
    table.answer(f"bind p to {places['p']}")
    table.see("p", nodeName=places["p"])
    record = table.machine.cache.pods.get("uid-q")
    assert record is not None
    assert record.place.node in ("n2", "n3")
