"""Following the objects of dynamic resource allocation of an API server that may not have, or not show, them."""

import logging
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from hived_extender.kube.answers import Listing, WatchEvent
from hived_extender.kube.client import KubeError
from hived_extender.kube.metrics import Metrics
from hived_extender.kube.watch import GLANCES
from hived_extender.machine.devices import dra
from hived_extender.machine.devices.dra import DeviceObjects
from tests.extender.kube.open_watch import OpenWatch
from tests.extender.machine.devices.floor import CLASS
from tests.extender.machine.small_cluster import SmallCluster, wait_until

BASE = "/apis/resource.k8s.io/v1"
SAID = "claims of devices are not counted"


class Api:
    """An API server with these versions of the group, and the objects of each path."""

    def __init__(self, *versions: str) -> None:
        self.versions = versions
        self.refusal: KubeError | None = None
        self.lists: dict[str, list[dict[str, Any]]] = {}
        self.watches: dict[str, OpenWatch] = {}
        self.asked: list[str] = []

    def get(self, path: str) -> dict[str, Any]:
        self.asked.append(path)
        if self.refusal is not None and "?" in path:
            raise self.refusal
        if path == "/apis":
            versions = [{"version": version} for version in self.versions]
            return {"groups": [{"name": dra.GROUP, "versions": versions}] if versions else []}
        return {"resources": [{"name": kind.plural} for kind in dra.KINDS]}

    def list_objects(self, path: str, item_type: type[Any], *, field_selector: str = "") -> Listing[Any]:
        return Listing([msgspec.convert(item, item_type) for item in self.lists.get(path, ())], "1")

    def watch(self, path: str, item_type: type[Any], resource_version: str, *, field_selector: str = "") -> OpenWatch:
        self.watches[path] = OpenWatch()
        return self.watches[path]


@pytest.fixture
def cluster() -> SmallCluster:
    return SmallCluster()


@pytest.fixture
def start(cluster: SmallCluster) -> Iterator[Any]:
    started: list[DeviceObjects] = []

    def begin(api: Api) -> DeviceObjects:
        started.append(DeviceObjects(api, cluster.service, Metrics()))
        started[-1].start()
        return started[-1]

    yield begin
    for each in started:
        each.stop()
        each.join(5.0)


def claim_in(version: str) -> dict[str, Any]:
    """A claim with one device, as this version writes it."""
    wanted: dict[str, Any] = {"deviceClassName": CLASS}
    request = {"name": "gpu", **(wanted if version == "v1beta1" else {"exactly": wanted})}
    results = [{"request": "gpu", "driver": CLASS, "pool": "n1", "device": "gpu-2"}]
    return {
        "metadata": {"name": "c", "namespace": "ns"},
        "spec": {"devices": {"requests": [request]}},
        "status": {"allocation": {"devices": {"results": results}}},
    }


@pytest.mark.parametrize(
    ("served", "read"), [(("v1beta1", "v1beta2", "v1"), "v1"), (("v1alpha3", "v1beta1"), "v1beta1")]
)
def test_the_newest_version_that_is_known_is_followed(
    cluster: SmallCluster, start: Any, served: tuple[str, ...], read: str
) -> None:
    api = Api(*served)
    api.lists[f"/apis/resource.k8s.io/{read}/resourceclaims"] = [claim_in(read)]
    assert start(api).wait_until_listed(20.0)
    (told,) = cluster.service.lost_devices()
    assert (told.node, told.known_devices) == ("n1", [2])


def test_what_happens_later_is_told(cluster: SmallCluster, start: Any) -> None:
    api = Api("v1")
    assert start(api).wait_until_listed(20.0)
    path = f"{BASE}/resourceclaims"
    wait_until(lambda: path in api.watches)
    item = msgspec.convert(claim_in("v1"), dra.ResourceClaim)
    api.watches[path].events.put(WatchEvent("ADDED", item, "2"))
    wait_until(cluster.service.lost_devices)
    api.watches[path].events.put(WatchEvent("DELETED", item, "3"))
    wait_until(lambda: not cluster.service.lost_devices())


def test_nobody_waits_for_objects_that_are_not_served(start: Any) -> None:
    assert start(Api()).wait_until_listed(20.0)


def test_nobody_waits_for_objects_that_may_not_be_seen_and_the_log_says_so_once(
    start: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dra, "LOOK_INTERVAL_S", 0.01)
    api = Api("v1")
    api.refusal = KubeError(403, "Forbidden", "resourceslices is forbidden")
    with caplog.at_level(logging.INFO):
        assert start(api).wait_until_listed(20.0)
        wait_until(lambda: len(api.asked) > 6)
    assert [record.message for record in caplog.records].count(SAID) == 1


def test_objects_are_followed_from_when_they_are_served(
    cluster: SmallCluster, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dra, "LOOK_INTERVAL_S", 0.01)
    api = Api()
    start(api)
    wait_until(lambda: len(api.asked) > 2)
    api.lists[f"{BASE}/resourceclaims"] = [claim_in("v1")]
    api.versions = ("v1",)
    wait_until(cluster.service.lost_devices)
    assert len(cluster.service.lost_devices()) == 1


def test_objects_that_may_not_be_seen_for_a_moment_count_as_before(
    cluster: SmallCluster, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dra, "LOOK_INTERVAL_S", 0.01)
    api = Api("v1")
    api.lists[f"{BASE}/resourceclaims"] = [claim_in("v1")]
    assert start(api).wait_until_listed(20.0)
    api.refusal = KubeError(401, "Unauthorized", "the token is too old")
    asked = len(api.asked)
    wait_until(lambda: len(api.asked) > asked + 3 * GLANCES)
    assert cluster.service.lost_devices()


def test_objects_that_are_served_no_more_count_nothing(
    cluster: SmallCluster, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dra, "LOOK_INTERVAL_S", 0.01)
    api = Api("v1")
    api.lists[f"{BASE}/resourceclaims"] = [claim_in("v1")]
    assert start(api).wait_until_listed(20.0)
    assert cluster.service.lost_devices()
    api.versions = ()
    wait_until(lambda: not cluster.service.lost_devices())
