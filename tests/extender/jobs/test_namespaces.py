"""Following the labels of namespaces."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from hived_extender.jobs.namespaces import Namespace, Namespaces
from hived_extender.kube.answers import Listing, WatchEvent
from hived_extender.kube.client import NAMESPACES, KubeError
from hived_extender.kube.metrics import Metrics
from tests.expecting import PATIENCE_S, expect_soon
from tests.extender.kube.open_watch import OpenWatch

NAME = "kubernetes.io/metadata.name"


def namespace(name: str, labels: dict[str, str] | None = None) -> Namespace:
    """A namespace as it is read from the API server."""
    return msgspec.convert({"metadata": {"name": name, "labels": labels}}, Namespace)


class Api:
    """An API server with namespaces."""

    def __init__(self) -> None:
        self.there = [namespace("blue", {"team": "blue"}), namespace("bare")]
        self.refusals: list[KubeError] = []
        self.watches: list[OpenWatch] = []

    def list_objects(self, path: str, item_type: Any, *, field_selector: str = "") -> Any:
        assert (path, item_type) == (NAMESPACES, Namespace)
        if self.refusals:
            raise self.refusals.pop(0)
        return Listing(list(self.there), "1")

    def watch(self, path: str, item_type: Any, version: str, *, field_selector: str = "") -> Any:
        self.watches.append(OpenWatch())
        return self.watches[-1]

    def tell(self, kind: str, item: Namespace) -> None:
        expect_soon(lambda: bool(self.watches))
        self.watches[-1].events.put(WatchEvent(kind, item, "2"))


class Followed:
    """Namespaces of an API server, and (name, labels by then) of each that was told of."""

    def __init__(self, api: Api) -> None:
        self.told: list[tuple[str, dict[str, str]]] = []
        self.namespaces = Namespaces(api, Metrics())

    def start(self) -> None:
        self.namespaces.start(lambda name: self.told.append((name, dict(self.namespaces.labels(name)))))
        assert self.namespaces.wait_until_listed(PATIENCE_S)


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
def followed(api: Api) -> Iterator[Followed]:
    one = Followed(api)
    yield one
    one.namespaces.stop()
    one.namespaces.join(PATIENCE_S)


def test_nothing_is_known_before_the_start(followed: Followed) -> None:
    assert followed.namespaces.labels("blue") == {}
    assert not followed.namespaces.wait_until_listed(0.0)


def test_the_name_of_a_namespace_is_one_of_its_labels(followed: Followed) -> None:
    followed.start()
    assert followed.namespaces.labels("blue") == {"team": "blue", NAME: "blue"}
    assert followed.namespaces.labels("bare") == {NAME: "bare"}
    assert followed.namespaces.labels("unheard-of") == {}


def test_a_change_is_told_once_the_new_labels_can_be_read(api: Api, followed: Followed) -> None:
    followed.start()
    del followed.told[:]
    api.tell("MODIFIED", namespace("blue", {"team": "red"}))
    api.tell("ADDED", namespace("new", {"team": "blue"}))
    api.tell("DELETED", namespace("bare"))
    expect_soon(lambda: len(followed.told) == 3)
    assert followed.told == [
        ("blue", {"team": "red", NAME: "blue"}),
        ("new", {"team": "blue", NAME: "new"}),
        ("bare", {}),
    ]


def test_an_event_without_other_labels_is_not_told(api: Api, followed: Followed) -> None:
    followed.start()
    del followed.told[:]
    api.tell("MODIFIED", namespace("blue", {"team": "blue"}))
    api.tell("MODIFIED", namespace("bare", {"team": "red"}))
    expect_soon(lambda: bool(followed.told))
    assert [name for name, _ in followed.told] == ["bare"]


def test_a_namespace_that_a_new_list_lacks_is_gone(api: Api, followed: Followed) -> None:
    followed.start()
    del followed.told[:]
    api.there = [namespace("blue", {"team": "blue"})]
    followed.namespaces._reflector.relist().wait(PATIENCE_S)
    assert followed.told == [("bare", {})]


def test_labels_are_known_once_the_right_to_list_is_given(api: Api, followed: Followed) -> None:
    api.refusals.append(KubeError(403, "Forbidden", "namespaces is forbidden"))
    followed.start()
    assert followed.namespaces.labels("blue")["team"] == "blue"


def test_a_second_start_has_no_effect(followed: Followed) -> None:
    followed.start()
    others: list[str] = []
    followed.namespaces.start(others.append)
    assert others == []
    assert {name for name, _ in followed.told} == {"blue", "bare"}
