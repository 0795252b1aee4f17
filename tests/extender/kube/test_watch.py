"""Following a resource through everything that an API server does."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hived_config.loader import load_text
from hived_extender.kube import watch
from hived_extender.kube.answers import Listing, WatchEvent
from hived_extender.kube.client import KubeClient, KubeError
from hived_extender.kube.metrics import Metrics
from hived_extender.kube.watch import ObjectKind, OptionalKinds, Reflector, Resource, drained
from hived_lab.embedded.cluster import EmbeddedCluster
from tests.expecting import expect_soon

GONE = KubeError(410, "Expired", "too old")
LOST = KubeError(0, "NoAnswer", "connection refused")


class ScriptedWatch:
    """Plays back events, errors included; `at_end` is called after the last one."""

    def __init__(self, events: list[Any], at_end: Callable[[], None]) -> None:
        self.events, self.at_end = events, at_end
        self.is_closed = False

    def __iter__(self) -> Iterator[Any]:
        for event in self.events:
            if isinstance(event, Exception):
                raise event
            yield event
        self.at_end()

    def close(self) -> None:
        self.is_closed = True


class Script:
    """An API server that plays back lists and watches, then stops the reflector."""

    def __init__(self, lists: list[Any], watches: list[Any]) -> None:
        self.lists, self.watches = lists, watches
        self.versions: list[str] = []
        self.told: list[Any] = []
        self.metrics = Metrics()
        self.on_start: Callable[[Any], object] = lambda reflector: None

    def list_objects(self, path: str, item_type: Any, *, field_selector: str = "") -> Any:
        answer = self.lists.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def watch(self, path: str, item_type: Any, version: str, *, field_selector: str = "") -> "ScriptedWatch":
        self.versions.append(version)
        return ScriptedWatch(self.watches.pop(0), lambda: None if self.watches else self.reflector.stop())

    def follow(self, on_seen: Callable[[str], None] | None = None) -> "Script":
        resource = Resource(
            "/things",
            str,
            lambda items: self.told.append(("sync", items)),
            on_seen or (lambda item: self.told.append(("seen", item))),
            lambda item: self.told.append(("gone", item)),
        )
        self.reflector = Reflector(self, resource, self.metrics)
        self.on_start(self.reflector)
        self.reflector.run()
        return self

    def restarts(self, cause: str) -> float | None:
        return self.metrics.registry.get_sample_value(
            "hived_watch_restarts_total", {"resource": "/things", "cause": cause}
        )


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "FIRST_WAIT_S", 0.001)


def test_a_list_is_told_first_and_then_each_change() -> None:
    script = Script(
        [Listing(["a"], "1")],
        [[WatchEvent("ADDED", "b", "2"), WatchEvent("MODIFIED", "a", "3"), WatchEvent("DELETED", "b", "4")]],
    ).follow()
    assert script.told == [("sync", ["a"]), ("seen", "b"), ("seen", "a"), ("gone", "b")]


def test_a_watch_that_ends_goes_on_where_it_was_bookmarks_included() -> None:
    script = Script(
        [Listing([], "1")], [[WatchEvent("ADDED", "a", "2")], [WatchEvent("BOOKMARK", None, "9")], []]
    ).follow()
    assert script.versions == ["1", "2", "9"]
    assert script.restarts("ended") == 2


def test_a_lost_connection_goes_on_where_it_was() -> None:
    script = Script([Listing([], "1")], [[WatchEvent("ADDED", "a", "2"), LOST], []]).follow()
    assert script.versions == ["1", "2"]
    assert script.restarts("NoAnswer") == 1


def test_an_expired_version_lists_everything_again() -> None:
    script = Script([Listing(["a"], "1"), Listing(["b"], "7")], [[GONE], []]).follow()
    assert script.told == [("sync", ["a"]), ("sync", ["b"])]
    assert script.versions == ["1", "7"]


def test_an_event_that_cannot_be_taken_in_does_not_end_the_watch() -> None:
    def refuse(item: str) -> None:
        raise ValueError(item)

    script = Script([Listing([], "1"), Listing(["a"], "3")], [[WatchEvent("ADDED", "a", "2")], []]).follow(refuse)
    assert script.told == [("sync", []), ("sync", ["a"])]
    assert script.restarts("ValueError") == 1


def test_listing_is_tried_until_it_succeeds() -> None:
    script = Script([LOST, LOST, Listing(["a"], "1")], [[]]).follow()
    assert script.told == [("sync", ["a"])]
    assert script.restarts("NoAnswer") == 2


def test_waits_grow_with_errors_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "LONGEST_WAIT_S", 0.004)
    waits = waits_of(Script([LOST] * 6 + [Listing([], "1")], [[]]), monkeypatch)
    assert waits[0] <= 0.0015
    assert all(0.002 <= wait <= 0.006 for wait in waits[2:6])


def test_an_expired_version_is_answered_by_a_list_soon_however_long_the_server_was_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = Script([Listing([], "1"), Listing(["a"], "2")], [[LOST]] * 5 + [[GONE], []])
    waits = waits_of(script, monkeypatch)
    assert waits[4] >= 0.008
    assert waits[5] <= 0.0015


def waits_of(script: Script, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Play a script; the seconds that the reflector waited between its attempts."""
    waits: list[float] = []

    def listen(reflector: Any) -> None:
        real_wait = reflector._wake.wait
        monkeypatch.setattr(reflector._wake, "wait", lambda seconds: waits.append(seconds) or real_wait(seconds))

    script.on_start = listen
    script.follow()
    return waits


def test_nothing_is_told_after_the_stop() -> None:
    script = Script([Listing([], "1")], [[WatchEvent("ADDED", "a", "2"), WatchEvent("ADDED", "b", "3")]])

    def stop_at_first(item: str) -> None:
        script.told.append(item)
        script.reflector.stop()

    assert script.follow(stop_at_first).told == [("sync", []), "a"]


@pytest.mark.parametrize(
    "error", [KubeError(504, "Timeout", "Too large resource version"), KubeError(0, "BadAnswer", "?")]
)
def test_everything_is_listed_again_after_an_error_that_may_last(error: KubeError) -> None:
    script = Script([Listing(["a"], "1"), Listing(["b"], "7")], [[error], []]).follow()
    assert script.told == [("sync", ["a"]), ("sync", ["b"])]
    assert script.versions == ["1", "7"]


@pytest.mark.parametrize("error", [LOST, KubeError(429, "TooManyRequests", "later"), KubeError(503, "", "starting")])
def test_a_watch_goes_on_after_an_error_that_passes(error: KubeError) -> None:
    script = Script([Listing(["a"], "1")], [[WatchEvent("BOOKMARK", None, "5"), error], []]).follow()
    assert script.versions == ["1", "5"]


def test_a_list_that_is_asked_for_comes_at_once_and_is_told_before_anything_later() -> None:
    asked: list[threading.Event] = []

    def ask(item: str) -> None:
        script.told.append(("seen", item))
        asked.append(script.reflector.relist())

    events = [WatchEvent("ADDED", "a", "2"), WatchEvent("ADDED", "never told", "3")]
    script = Script([Listing([], "1"), Listing(["a", "b"], "7")], [events, []])
    script.follow(ask)
    assert script.told == [("sync", []), ("seen", "a"), ("sync", ["a", "b"])]
    assert script.versions == ["1", "7"]
    assert asked[0].is_set()


def test_a_list_asked_for_before_the_start_is_the_first_one() -> None:
    script = Script([LOST, Listing(["a"], "1")], [[]])
    asked: list[threading.Event] = []
    script.on_start = lambda reflector: asked.append(reflector.relist())
    script.follow()
    assert asked[0].is_set()
    assert script.told == [("sync", ["a"])]


def test_a_list_that_is_asked_for_ends_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "FIRST_WAIT_S", 60.0)
    script = Script([LOST, Listing(["a"], "1")], [[]])
    script.on_start = lambda reflector: threading.Timer(0.05, reflector.relist).start()
    began = time.monotonic()
    script.follow()
    assert time.monotonic() - began < 30
    assert script.told == [("sync", ["a"])]


def test_a_list_that_is_drained_gives_its_items_in_order_and_holds_none_of_those() -> None:
    items = list("abc")
    assert [(item, tuple(items)) for item in drained(items)] == [("a", ("c", "b")), ("b", ("c",)), ("c", ())]


CONFIG = """\
physicalCluster:
  cellTypes: {NODE: {childCellType: GPU, childCellNumber: 4, isNodeLevel: true}}
  physicalCells: [{cellType: NODE, cellAddress: n0}]
virtualClusters:
  a: {virtualCells: [{cellType: NODE, cellNumber: 1}]}
"""
KIND = ObjectKind("kueue.x-k8s.io", "resourceflavors", ("v1beta2", "v1beta1"))
THERE = ObjectKind("kueue.x-k8s.io", "workloads", ("v1beta2",))


class Told:
    """Takes note of lists."""

    def __init__(self) -> None:
        self.listed_kinds: list[ObjectKind] = []

    def listed(self, kind: ObjectKind, items: list[dict[str, Any]]) -> None:
        self.listed_kinds.append(kind)

    def seen(self, kind: ObjectKind, item: dict[str, Any]) -> None: ...

    def gone(self, kind: ObjectKind, item: dict[str, Any]) -> None: ...

    def unserved(self, kind: ObjectKind) -> None: ...


def test_a_kind_that_comes_later_is_followed_at_the_next_glance(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interval of full looks is a minute all the time."""
    monkeypatch.setattr(watch, "GLANCE_INTERVAL_S", 0.01)
    told, has_come = Told(), threading.Event()
    with EmbeddedCluster(load_text(CONFIG, "small.yaml", environ={}).cluster) as cluster:
        kube = KubeClient.connect(kubeconfig=str(cluster.hived_kubeconfig))
        get = kube.get

        def before_it_came(path: str, *more: Any) -> Any:
            found = get(path, *more)
            if path == "/apis/kueue.x-k8s.io/v1beta2" and not has_come.is_set():
                found["resources"] = [each for each in found["resources"] if each["name"] != KIND.plural]
            return found

        monkeypatch.setattr(kube, "get", before_it_came)
        kinds = OptionalKinds(kube, Metrics(), (KIND, THERE), told, "tests")
        kinds.start()
        expect_soon(lambda: THERE in told.listed_kinds)
        assert KIND not in told.listed_kinds
        has_come.set()
        expect_soon(lambda: KIND in told.listed_kinds)
        kinds.stop()
        kinds.join(10)
        kube.close()
