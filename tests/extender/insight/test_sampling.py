"""Samples of a running service: what they say, when they are taken, and what they cost."""

from collections.abc import Callable
from pathlib import Path

import pytest

from hived_extender.api.past import History
from hived_extender.insight import history
from hived_extender.insight.history import HistoryRings, Sampler, waiting_causes
from hived_extender.insight.store import Store
from hived_extender.machine.preemptions import PreemptionPolicy
from tests.extender.machine.small_cluster import SmallCluster, node, spec_text, wait_until
from tests.extender.machine.small_gangs import SmallGangCluster, koordinator

START = 1_790_000_000 // 3600 * 3600


class Sampled:
    """A small cluster with a sampler, one minute between two samples."""

    def __init__(
        self, path: Path | None = None, cluster: SmallCluster | None = None, queued: Callable[[], dict[str, int]] = dict
    ) -> None:
        self.cluster = cluster or SmallCluster(preemption=PreemptionPolicy())
        self.history = HistoryRings(Store(path))
        self.at = float(START)
        self.sampler = Sampler(self.cluster.service, self.history, now=lambda: self.at, queued=queued)

    def look(self) -> None:
        self.sampler.look()
        self.at += 60

    def past(self) -> History:
        self.history.flush()
        return self.history.query(START, START + 86_400, 60)

    def last(self) -> dict[str, float | None]:
        """The last value of each series that is not 0 all the time, by `metric:label:...`."""
        found = self.past()
        return {":".join((one.metric, *one.labels.values())): one.values[-1] for one in found.series if one.values[-1]}

    def metric(self, name: str, **labels: str) -> float | None:
        return self.cluster.service.metrics.registry.get_sample_value(name, labels)


def test_a_sample_has_the_pods_that_jobs_in_queues_will_have() -> None:
    queued = {"a": 3}
    one = Sampled(queued=lambda: queued)
    one.look()
    queued["a"] = 1
    one.look()
    series = next(each for each in one.past().series if each.metric == "queued_pods")
    assert (series.labels, series.values) == ({"vc": "a"}, [3.0, 1.0])


def test_a_sample_has_the_cells_of_every_virtual_cluster() -> None:
    one = Sampled()
    one.cluster.place("p", spec_text("a"))
    one.cluster.place("o", spec_text("empty", leaf_cells=2, priority=-1))
    one.cluster.service.node_seen(node("n3", is_ready=False))
    one.look()
    found = one.last()
    assert {key: found.get(key) for key in found if not key.startswith("free")} == {
        "leaf_cells": 16.0,
        "leaf_cells_bad": 4.0,
        "leaf_cells_promised:a": 8.0,
        "leaf_cells_promised:b": 4.0,
        "leaf_cells_used:a": 4.0,
        "leaf_cells_borrowed:empty": 2.0,
    }
    assert (found["free_cells:a:RACK:NODE"], found["free_cells:b:RACK:NODE"], found["free_cells:a:RACK:GPU"]) == (
        1,
        1,
        4,
    )


def test_metrics_show_the_last_sample_and_none_on_a_replica_that_does_not_lead() -> None:
    one = Sampled()
    assert one.metric("hived_free_cells", vc="a", chain="RACK", cell_type="NODE") is None
    one.look()
    assert one.metric("hived_free_cells", vc="a", chain="RACK", cell_type="NODE") == 2
    one.cluster.service.follow("another replica leads")
    one.look()
    assert one.metric("hived_free_cells", vc="a", chain="RACK", cell_type="NODE") is None
    assert one.past().times == [START]


def test_cells_are_copied_only_after_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    one, copies = Sampled(), []
    copy = one.cluster.service.reader.versioned_cells
    monkeypatch.setattr(one.cluster.service.reader, "versioned_cells", lambda: copies.append(1) or copy())
    for _ in range(3):
        one.look()
    one.cluster.place("p", spec_text("a"))
    one.look()
    assert len(copies) == 2
    assert one.past().times == [START, START + 60, START + 120, START + 180]


def test_waiting_pods_are_counted_by_their_cause() -> None:
    one = Sampled(cluster=SmallCluster(preemption=PreemptionPolicy(by_service=False)))
    cluster = one.cluster
    for name in ("p", "q", "r"):
        cluster.filter(cluster.create(name, spec_text("a")))
    record = cluster.service.machine.cache.pods.get("uid-r")
    assert record is not None
    record.cause = "in-use"
    wrong = cluster.create("w", '{"virtualCluster": 7}')
    cluster.create("stranger", spec_text("nobody"))
    assert waiting_causes(cluster.service) == {("a", "in-use"): 1, ("", "invalid"): 1, ("", "unknown"): 1}
    cluster.delete(wrong)
    one.look()
    assert one.metric("hived_waiting_pods", vc="a", cause="in-use") == 1
    assert one.last()["waiting_pods:a:in-use"] == 1


def test_a_gang_that_is_not_complete_waits_for_its_members() -> None:
    cluster = SmallGangCluster()
    cluster.pod("w-0", annotations=koordinator("g", 3))
    assert list(waiting_causes(cluster.service).values()) == [1]
    assert {cause for _, cause in waiting_causes(cluster.service)} == {"incomplete"}


def test_a_pod_whose_victims_are_leaving_waits_for_lent_cells() -> None:
    cluster = SmallCluster(preemption=PreemptionPolicy())
    for number in range(4):
        cluster.place(f"o{number}", spec_text("b", priority=-1))
    cluster.filter(cluster.create("p", spec_text("a")))
    assert waiting_causes(cluster.service) == {("a", "lent"): 1}


def test_a_pod_whose_victims_have_a_lower_priority_waits_for_no_lent_cells() -> None:
    cluster = SmallCluster(preemption=PreemptionPolicy())
    for name in ("low-0", "low-1"):
        cluster.place(name, spec_text("a", priority=1))
    cluster.filter(cluster.create("p", spec_text("a", priority=2)))
    assert waiting_causes(cluster.service) == {("a", "preempting"): 1}


def test_events_between_two_samples_are_counted_once() -> None:
    one = Sampled()
    one.look()
    one.cluster.service.metrics.count_start("a", 30.0)
    one.cluster.service.metrics.count_start("a", 10.0)
    one.cluster.service.metrics.count_preempted("b", 2.5)
    one.look()
    one.look()
    found = {one.metric: one.values for one in one.past().series}
    assert found["started_pods"] == [None, 2, 0]
    assert found["start_delay_seconds"] == [None, 40, 0]
    assert found["preempted_pods"] == [None, 1, 0]
    assert found["preempted_gpu_hours"] == [None, 2.5, 0]


def test_the_next_leader_of_a_shared_file_goes_on_where_the_former_ended(tmp_path: Path) -> None:
    first = Sampled(tmp_path / "past.db")
    second = Sampled(tmp_path / "past.db", SmallCluster(is_leading=False))
    first.look()
    first.cluster.service.follow("another replica leads")
    first.look()
    second.at = first.at
    second.look()
    second.cluster.lead()
    second.look()
    assert second.past().times == [START, START + 180]


class Mistaken(Sampler):
    """Fails the first time."""

    look_count = 0

    def look(self) -> None:
        self.look_count += 1
        if self.look_count == 1:
            raise ValueError("a mistake of ours")
        super().look()


def test_a_thread_samples_until_it_is_stopped_and_writes_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "EVERY_S", 0.001)
    one = Sampled()
    sampler = Mistaken(one.cluster.service, one.history, now=lambda: one.at)
    sampler.start()
    wait_until(lambda: sampler.look_count >= 3)
    sampler.stop()
    assert one.history.query(START, START + 60, 60).times == [START]
