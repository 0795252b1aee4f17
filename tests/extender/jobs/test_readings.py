"""Annotations are read before the lock is taken, in bounded time, and what takes long in its turn."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from hived.values.errors import UserError
from hived_extender.jobs import annotations as annotations_module
from hived_extender.jobs import readings
from hived_extender.jobs.annotations import SCHEDULING_SPEC, is_quickly_read, read_json_spec, read_spec
from hived_extender.jobs.bind_info import Prover
from hived_extender.jobs.readings import Reading, Texts
from hived_extender.jobs.wire import PodMetadata
from hived_extender.kube.answers import is_older
from hived_extender.machine.pods import UnknownPodError
from tests.extender.machine.small_cluster import SmallCluster, pod_json, spec_text, to_pod, wait_until

BOMBS = {
    "a mapping of nulls": "{" + "a," * 130_500 + "}",
    "a smaller one": "{" + "a," * 16_000 + "}",
    "a list": "- a\n" * 50_000,
    "nested lists": "[" * 30_000,
    "aliases": "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(f"b{n}: [{'*a, ' * 50}]\n" for n in range(60)),
    "a long text": "a " * 130_000,
    "numbers": '{"priority": ' + "9" * 5_000 + "}",
}


def meta(text: str, uid: str = "u", namespace: str = "ns") -> PodMetadata:
    return PodMetadata("p", namespace, uid, annotations={SCHEDULING_SPEC: text})


def slow_text(number: int) -> str:
    """YAML of several hundred nodes that is a sound spec."""
    members = "".join(f"  - {{podNumber: 1, leafCellNumber: {size}}}\n" for size in range(1, 150))
    return f"virtualCluster: a\nleafCellNumber: 1\naffinityGroup:\n  name: g{number}\n  members:\n{members}"


@pytest.mark.parametrize("text", BOMBS.values(), ids=list(BOMBS))
def test_no_text_takes_more_than_the_limits(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = 0
    enter = annotations_module._Values._enter

    def count(self: Any, *where: Any) -> None:
        nonlocal counted
        counted += 1
        enter(self, *where)

    monkeypatch.setattr(annotations_module._Values, "_enter", count)
    with pytest.raises(UserError):
        read_spec(text)
    assert counted <= 5_001


@pytest.mark.parametrize(
    "text",
    [
        "- 1\r" * 4_900,
        "- 1\x85" * 4_900,
        "- 1\u2028" * 4_900,
        "- 1\u2029" * 4_900,
        ("- " * 28 + "\n") * 80,
        "? " * 4_000,
    ],
    ids=["carriage returns", "next lines", "line separators", "paragraphs", "nested", "keys"],
)
def test_what_has_many_nodes_is_not_taken_for_quick(text: str) -> None:
    assert not is_quickly_read(text)


def test_a_text_that_is_read_late_does_not_bring_an_old_pod_back(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = SmallCluster()
    gate = threading.Event()
    read_now = cluster.service._texts._read_now

    def late(text: str) -> Any:
        if threading.current_thread().name == "slow texts":
            assert gate.wait(60)
        return read_now(text)

    monkeypatch.setattr(cluster.service._texts, "_read_now", late)
    read = threading.Event()
    read_late = cluster.service._texts._on_read
    monkeypatch.setattr(cluster.service._texts, "_on_read", lambda pod: (read_late(pod), read.set()))
    pod = cluster.create("p", slow_text(8))
    pod["metadata"]["annotations"][SCHEDULING_SPEC] = spec_text()
    cluster.kube.touch(pod)
    cluster.see(pod)
    cluster.bind(pod, cluster.filter(pod)["NodeNames"][0])
    cluster.see(pod)
    gate.set()
    assert read.wait(60)
    assert cluster.service.machine.cache.nodes.residents.get("uid-p") is not None
    assert cluster.pod_counts() == {"Bound": 1}
    cluster.service.close()


def test_nothing_is_read_while_the_lock_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = SmallCluster()
    texts: list[str] = []
    holding = threading.local()
    exclusive = cluster.service.runner.exclusive

    @contextmanager
    def noted(**options: Any) -> Iterator[Any]:
        with exclusive(**options) as machine:
            holding.lock = True
            try:
                yield machine
            finally:
                holding.lock = False

    def checked(text: str) -> Any:
        if text:
            texts.append(text)
            assert not getattr(holding, "lock", False)
        return read_spec(text)

    monkeypatch.setattr(cluster.service.runner, "exclusive", noted)
    monkeypatch.setattr(readings, "read_spec", checked)
    cluster.place("p", spec_text(leaf_cells=1, group="first"))
    cluster.place("yaml", "virtualCluster: b\nleafCellNumber: 3")
    slow = cluster.create("slow", slow_text(1))
    wait_until(lambda: cluster.service.machine.cache.pods.get("uid-slow").request)  # it is known
    cluster.filter(slow)
    cluster.service.close()
    assert len(set(texts)) == 2


def test_a_text_that_is_slow_to_read_is_read_later_and_once() -> None:
    seen: list[Any] = []
    texts = Texts(Prover(), seen.append)
    text = slow_text(2)
    first = texts.read_annotations(meta(text), pod="pod")
    assert first.is_pending
    assert isinstance(first.spec, UserError)
    wait_until(lambda: seen == ["pod"])
    again = texts.read_annotations(meta(text, "another"))
    assert not again.is_pending
    assert not isinstance(again.spec, UserError)
    assert again.spec.group.name == "g2"
    texts.close()
    assert seen == ["pod"]


def test_each_namespace_has_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand pods of one tenant hold up those of another by one text."""
    seen: list[Any] = []
    gate = threading.Event()

    def gated(text: str) -> Any:
        assert gate.wait(60)
        return read_spec(text)

    monkeypatch.setattr(readings, "read_spec", gated)
    texts = Texts(Prover(), seen.append)
    for number in range(1000):
        texts.read_annotations(meta(slow_text(number), f"evil-{number}", "evil"), pod=f"evil-{number}")
    texts.read_annotations(meta(slow_text(-1), "honest", "honest"), pod="honest")
    assert len(texts._pending["evil"]) <= readings.MOST_PENDING
    gate.set()
    wait_until(lambda: "honest" in seen)
    texts.close()
    assert seen.index("honest") <= 2


def test_a_namespace_that_has_much_yaml_takes_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readings, "BURST_S", 1e-6)
    seen: list[Any] = []
    texts = Texts(Prover(), seen.append)
    first, second = (
        texts.read_annotations(meta(f"virtualCluster: a\nleafCellNumber: {number}", f"u{number}"), pod=number)
        for number in (1, 2)
    )
    assert (first.is_pending, second.is_pending) == (False, True)
    assert not texts.read_annotations(meta(spec_text(), "json")).is_pending
    assert not texts.read_annotations(meta("virtualCluster: a\nleafCellNumber: 3", "other", "other")).is_pending
    wait_until(lambda: seen == [2])
    texts.close()


def test_a_spec_that_is_slow_to_read_is_kept_as_json_when_the_pod_is_bound() -> None:
    """A restart reads the specs of all bound pods before it can lead."""
    cluster = SmallCluster()
    text = "virtualCluster: a\nleafCellNumber: 4\n" + "".join(f"note{number}: x\n" for number in range(300))
    pod = cluster.create("p", text)
    wait_until(lambda: cluster.service.machine.cache.pods.get("uid-p").request)  # it is known
    (node,) = cluster.filter(pod)["NodeNames"]
    cluster.bind(pod, node)
    kept = pod["metadata"]["annotations"][SCHEDULING_SPEC]
    assert read_json_spec(kept) == read_spec(text)
    cluster.service.close()


def test_of_a_pod_that_changes_again_and_again_the_last_text_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    read: list[str] = []
    gate = threading.Event()

    def gated(text: str) -> Any:
        assert gate.wait(60)
        read.append(text)
        return read_spec(text)

    monkeypatch.setattr(readings, "read_spec", gated)
    texts = Texts(Prover(), seen.append)
    for number in range(500):
        texts.read_annotations(meta(slow_text(number)), pod=number)
    gate.set()
    wait_until(lambda: 499 in seen)
    texts.close()
    assert len(read) <= 2


def test_a_pod_with_a_slow_text_is_placed_once_it_is_read() -> None:
    cluster = SmallCluster()
    pod = pod_json("p", slow_text(7))
    cluster.kube.add(pod)
    with pytest.raises(UnknownPodError, match="not read yet"):
        cluster.filter(pod)
    cluster.see(pod)
    wait_until(lambda: cluster.service.machine.cache.pods.get("uid-p").request)  # it is known
    assert "FailedNodes" in cluster.filter(pod)  # a group of 149 pods: it waits
    assert cluster.service.machine.cache.pods.get("uid-p").request.spec.group.name == "ns:g7"
    cluster.service.close()


def test_texts_of_pods_of_others_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    reading: list[Reading] = []
    cluster = SmallCluster()
    monkeypatch.setattr(cluster.service.machine.cache, "pod_seen", lambda pod, one, *, is_listed: reading.append(one))
    pod = pod_json("p")
    cluster.service.pod_seen(to_pod(pod))
    assert isinstance(reading[0].spec, UserError)
    assert not reading[0].is_pending


@pytest.mark.parametrize(
    ("version", "known", "expected"),
    [
        ("9" * 5_000, "1", False),
        ("1", "9" * 5_000, True),
        ("9", "10", True),
        ("0010", "9", False),
        ("10", "10", False),
        ("", "1", False),
        ("1", "", False),
        ("-1", "1", False),
        ("\u00b2", "3", False),
        ("\u0661", "3", False),
    ],
)
def test_versions_are_compared_whatever_their_length(version: str, known: str, expected: bool) -> None:
    assert is_older(version, known) is expected


def test_a_version_of_thousands_of_digits_stops_nothing() -> None:
    """Python refuses to convert it to a number: the service stopped for good."""
    cluster = SmallCluster()
    pod = cluster.create("p")
    pod["metadata"]["resourceVersion"] = "9" * 5_000
    assert cluster.filter(pod)["NodeNames"]
    assert cluster.service.fault == ""
