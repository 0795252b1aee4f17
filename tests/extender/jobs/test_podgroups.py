"""Following PodGroups and Workloads of an API server whose kinds come and go."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hived_extender.jobs.kinds.description import ObjectRef
from hived_extender.jobs.podgroups import Objects
from hived_extender.kube import watch
from hived_extender.kube.answers import Listing, WatchEvent
from hived_extender.kube.client import KubeError
from hived_extender.kube.metrics import Metrics
from tests.expecting import PATIENCE_S, expect_soon
from tests.extender.kube.open_watch import OpenWatch

PODGROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/podgroups"
VOLCANO = "/apis/scheduling.volcano.sh/v1beta1/podgroups"
TRAIN = ObjectRef("podgroups.scheduling.x-k8s.io", "team", "train")


def podgroup(minimum: int, name: str = "train", **other: Any) -> dict[str, Any]:
    """A PodGroup as it is stored."""
    return {"metadata": {"namespace": "team", "name": name, "uid": name}, "spec": {"minMember": minimum}, **other}


class Api:
    """An API server with resources, by path, and the objects of each."""

    def __init__(self, *paths: str) -> None:
        self.lists: dict[str, list[dict[str, Any]]] = {path: [] for path in paths}
        self.watches: dict[str, OpenWatch] = {}
        self.refusals: list[KubeError] = []
        self.asked: list[str] = []

    def get(self, path: str) -> dict[str, Any]:
        self.asked.append(path)
        if self.refusals:
            raise self.refusals.pop(0)
        parts = [each.split("/")[2:] for each in self.lists]
        if path == "/apis":
            groups = [{"name": group, "versions": [{"version": version}]} for group, version, _ in parts]
            return {"groups": [*groups, {"name": "scheduling.k8s.io", "versions": [{"version": "v1"}]}]}
        return {
            "resources": [{"name": plural} for group, version, plural in parts if path.endswith(f"{group}/{version}")]
        }

    def list_objects(self, path: str, item_type: Any, *, field_selector: str = "") -> Any:
        if path not in self.lists:
            raise KubeError(404, "NotFound", "no such resource")
        return Listing(list(self.lists[path]), "1")

    def watch(self, path: str, item_type: Any, version: str, *, field_selector: str = "") -> Any:
        self.watches[path] = OpenWatch()
        return self.watches[path]

    def tell(self, path: str, kind: str, item: dict[str, Any]) -> None:
        expect_soon(lambda: path in self.watches)
        self.watches[path].events.put(WatchEvent(kind, item, "2"))


class Followed:
    """Objects of an API server, and what was told of them."""

    def __init__(self, api: Api) -> None:
        self.told: list[ObjectRef] = []
        self.objects = Objects(api, Metrics())
        self.objects.start(self.told.append)

    def minimum(self, ref: ObjectRef = TRAIN) -> int | None:
        found = self.objects.get(ref.kind, ref.namespace, ref.name)
        return None if found is None else found["spec"]["minMember"]


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "LOOK_INTERVAL_S", 0.01)
    monkeypatch.setattr(watch, "GLANCE_INTERVAL_S", 0.01)
    monkeypatch.setattr(watch, "RETRY_S", 0.01)
    monkeypatch.setattr(watch, "FIRST_WAIT_S", 0.001)


@pytest.fixture
def follow() -> Iterator[Callable[[Api], Followed]]:
    """Follow the objects of an API server until the test ends."""
    started: list[Followed] = []

    def begin(api: Api) -> Followed:
        started.append(Followed(api))
        return started[-1]

    yield begin
    for each in started:
        each.objects.stop()
        each.objects.join(PATIENCE_S)
    ours = ("watch /apis/scheduling", "kinds of")
    expect_soon(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith(ours)])


Follow = Callable[[Api], Followed]


def test_what_is_listed_is_there_and_told(follow: Follow) -> None:
    api = Api(PODGROUPS)
    api.lists[PODGROUPS] = [podgroup(3), podgroup(2, "other")]
    followed = follow(api)
    assert followed.objects.wait_until_listed(PATIENCE_S)
    assert followed.minimum() == 3
    assert followed.told == [TRAIN, ObjectRef(TRAIN.kind, "team", "other")]


def test_changes_are_there_when_they_are_told(follow: Follow) -> None:
    api = Api(PODGROUPS)
    followed = follow(api)
    seen: list[int | None] = []
    followed.objects._on_change = lambda ref: seen.append(followed.minimum(ref))
    api.tell(PODGROUPS, "ADDED", podgroup(3))
    api.tell(PODGROUPS, "MODIFIED", podgroup(4))
    api.tell(PODGROUPS, "DELETED", podgroup(4))
    expect_soon(lambda: len(seen) == 3)
    assert seen == [3, 4, None]


def test_a_status_is_there_and_nobody_is_told_of_it(follow: Follow) -> None:
    api = Api(PODGROUPS)
    followed = follow(api)
    api.tell(PODGROUPS, "ADDED", podgroup(3))
    api.tell(PODGROUPS, "MODIFIED", podgroup(3, status={"phase": "Running"}))
    expect_soon(lambda: "status" in (followed.objects.get(TRAIN.kind, "team", "train") or {}))
    assert followed.told == [TRAIN]


def test_an_object_that_was_made_anew_is_told(follow: Follow) -> None:
    api = Api(PODGROUPS)
    followed = follow(api)
    api.tell(PODGROUPS, "ADDED", podgroup(3))
    again = podgroup(3)
    again["metadata"]["uid"] = "again"
    api.tell(PODGROUPS, "MODIFIED", again)
    expect_soon(lambda: len(followed.told) == 2)
    assert followed.told == [TRAIN, TRAIN]


def test_what_a_new_list_leaves_out_is_gone(follow: Follow) -> None:
    api = Api(PODGROUPS)
    api.lists[PODGROUPS] = [podgroup(3), podgroup(2, "other")]
    followed = follow(api)
    assert followed.objects.wait_until_listed(PATIENCE_S)
    expect_soon(lambda: PODGROUPS in api.watches)
    del api.lists[PODGROUPS][0]
    followed.told.clear()
    followed.objects._kinds._reflectors[PODGROUPS].relist()
    expect_soon(lambda: bool(followed.told))
    assert (followed.told, followed.minimum()) == ([TRAIN], None)


def test_a_kind_that_comes_later_is_followed_then(follow: Follow) -> None:
    api = Api()
    followed = follow(api)
    assert followed.objects.wait_until_listed(PATIENCE_S)
    assert followed.minimum() is None
    api.lists = {PODGROUPS: [podgroup(3)]}
    expect_soon(lambda: followed.told == [TRAIN])
    assert followed.minimum() == 3


def test_the_objects_of_a_kind_that_goes_are_gone_with_it(follow: Follow) -> None:
    api = Api(PODGROUPS, VOLCANO)
    api.lists[PODGROUPS], api.lists[VOLCANO] = [podgroup(3)], [podgroup(2)]
    followed = follow(api)
    assert followed.objects.wait_until_listed(PATIENCE_S)
    followed.told.clear()
    api.lists = {VOLCANO: [podgroup(2)]}
    expect_soon(lambda: followed.minimum() is None and TRAIN in followed.told)
    assert followed.minimum(ObjectRef("podgroups.scheduling.volcano.sh", "team", "train")) == 2


@pytest.mark.parametrize(
    ("paths", "followed"),
    [
        (["/apis/scheduling.k8s.io/v1alpha2/podgroups"], "/apis/scheduling.k8s.io/v1alpha2/podgroups"),
        (
            ["/apis/scheduling.k8s.io/v1alpha2/podgroups", "/apis/scheduling.k8s.io/v1beta1/podgroups"],
            "/apis/scheduling.k8s.io/v1beta1/podgroups",
        ),
        (["/apis/scheduling.k8s.io/v1alpha1/workloads"], "/apis/scheduling.k8s.io/v1alpha1/workloads"),
        (["/apis/scheduling.x-k8s.io/v1/podgroups"], None),
        (["/apis/scheduling.x-k8s.io/v1alpha1/elasticquotas"], None),
    ],
)
def test_the_version_that_we_know_best_is_followed(follow: Follow, paths: list[str], followed: str | None) -> None:
    class Grouped(Api):
        """All versions of a group in one entry, as API servers have it."""

        def get(self, path: str) -> dict[str, Any]:
            if path != "/apis":
                return super().get(path)
            group = paths[0].split("/")[2]
            return {"groups": [{"name": group, "versions": [{"version": each.split("/")[3]} for each in paths]}]}

    api = Grouped(*paths)
    following = follow(api)
    assert following.objects.wait_until_listed(PATIENCE_S)
    assert list(following.objects._kinds._reflectors) == ([] if followed is None else [followed])


def test_a_refusal_changes_nothing_and_is_tried_again(follow: Follow, caplog: pytest.LogCaptureFixture) -> None:
    api = Api(PODGROUPS)
    api.lists[PODGROUPS] = [podgroup(3)]
    followed = follow(api)
    assert followed.objects.wait_until_listed(PATIENCE_S)
    api.refusals = [KubeError(503, "ServiceUnavailable", "starting")] * 3
    asked = len(api.asked)
    expect_soon(lambda: len(api.asked) > asked + 6)
    assert followed.minimum() == 3
    assert "cannot see which kinds of gang objects there are" in caplog.text


def test_what_may_not_be_listed_is_not_waited_for_for_ever(follow: Follow) -> None:
    class Forbidding(Api):
        def list_objects(self, path: str, item_type: Any, *, field_selector: str = "") -> Any:
            raise KubeError(403, "Forbidden", "podgroups is forbidden")

    assert not follow(Forbidding(PODGROUPS)).objects.wait_until_listed(0.05)


def test_a_cluster_without_such_kinds_is_asked_for_no_more_than_their_groups(follow: Follow) -> None:
    api = Api()
    followed = follow(api)
    assert followed.objects.wait_until_listed(PATIENCE_S)
    assert set(api.asked) == {"/apis"}


def test_objects_have_the_version_that_lists_omit(follow: Follow) -> None:
    api = Api(PODGROUPS)
    api.lists[PODGROUPS] = [podgroup(3)]
    followed = follow(api)
    assert followed.objects.wait_until_listed(PATIENCE_S)
    found = followed.objects.get(TRAIN.kind, TRAIN.namespace, TRAIN.name)
    assert found is not None
    assert found["apiVersion"] == "scheduling.x-k8s.io/v1alpha1"
