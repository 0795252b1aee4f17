"""Forecasts of a running service: what it learns each minute, and answers beside that."""

import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from hived_extender.insight import forecast as module
from hived_extender.insight.forecast import Forecaster
from hived_extender.insight.past import Ended
from hived_extender.insight.snapshot import take
from hived_extender.machine.apart import compute_apart
from hived_extender.machine.preemptions import PreemptionPolicy
from tests.extender.machine.small_cluster import SmallCluster, spec_text

LONG_S = 60.0
"""Until a test that hangs fails."""


def full() -> SmallCluster:
    """A's nodes are in use, and one of its pods waits."""
    cluster = SmallCluster()
    for name in ("one", "two"):
        cluster.place(name)
    cluster.create("p")
    return cluster


@pytest.mark.skipif(sys.platform != "linux", reason="copies of processes are made on Linux alone")
@pytest.mark.parametrize("slow", ["all", "look"])
def test_a_question_does_not_wait_while_lists_are_played(slow: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = full()
    forecaster, snapshot = Forecaster(cluster.service), take(cluster.service)
    entry = snapshot.find("ns/p")
    assert entry is not None
    is_playing, may_end = threading.Event(), threading.Event()

    def slowly(compute: Callable[[], bytes], lock: AbstractContextManager[object]) -> bytes:
        found = compute_apart(compute, lock)
        if threading.current_thread() is not threading.main_thread():
            is_playing.set()
            may_end.wait(LONG_S)
        return found

    monkeypatch.setattr(module, "compute_apart", slowly)
    acts: dict[str, Callable[[], object]] = {"all": lambda: forecaster.all(snapshot), "look": forecaster.look}
    other = threading.Thread(target=acts[slow])
    other.start()
    assert is_playing.wait(LONG_S)
    when = forecaster.of(snapshot, entry)
    assert other.is_alive()
    may_end.set()
    other.join()
    assert when.kind == "unknown"


def test_a_list_is_played_once_for_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = full()
    forecaster, snapshot = Forecaster(cluster.service), take(cluster.service)
    found = forecaster.all(snapshot)
    monkeypatch.setattr(module, "compute_apart", None)
    assert forecaster.all(snapshot) is found
    assert list(found) == ["ns/p"]


def test_a_job_that_was_preempted_between_two_looks_has_not_ended_by_itself() -> None:
    cluster = SmallCluster(preemption=PreemptionPolicy())
    guests = [cluster.place(f"guest-{number}", spec_text("b", priority=-1))[0] for number in range(4)]
    forecaster = Forecaster(cluster.service)
    forecaster.look()
    cluster.filter(cluster.create("p"))
    cluster.by_hand.settle()
    (victim,) = (name for _, name in cluster.kube.leaving)
    for guest in guests[:2] if victim not in ("guest-0", "guest-1") else guests[2:]:
        cluster.delete(guest)
    cluster.delete(cluster.kube.pods[victim])
    cluster.pass_time(60)
    forecaster.look()
    ended = forecaster._known().durations._ended["b"]
    assert sorted(one.is_whole for one in ended) == [False, True, True]


def test_a_job_runs_as_much_longer_as_the_median_of_jobs_like_it_that_have_run_so_long() -> None:
    forecaster = Forecaster(full().service)
    assert forecaster.left_s("a", 4, 0.0) is None
    forecaster._known().durations.add([Ended("a", 4, 100.0 * number) for number in range(1, 31)])
    forecaster.look()
    assert forecaster.left_s("a", 4, 0.0) == pytest.approx((1600.0, 2800.0), abs=200.0)
    assert forecaster.left_s("a", 4, 2000.0) == pytest.approx((500.0, 900.0), abs=200.0)
    assert forecaster.left_s("b", 4, 0.0) is None
