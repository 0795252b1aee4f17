"""What would help a waiting job: every kind of change, each tried by the core before it is named."""

from typing import Any

from hived.scheduler import check_invariants
from hived_extender.api.waiting import Unblock
from hived_extender.insight.snapshot import Snapshot, take
from hived_extender.insight.unblocks import unblocks_of
from tests.extender.service.small_cluster import SmallCluster, spec_text


def helps(snapshot: Snapshot, name: str) -> dict[str, Unblock]:
    """What would help the job, by the change."""
    entry = snapshot.find(name)
    assert entry is not None
    before = snapshot.state.cells.memory.tobytes()
    found = {one.change: one for one in unblocks_of(snapshot, entry)}
    assert snapshot.state.cells.memory.tobytes() == before
    check_invariants(snapshot.state)
    return found


def helps_after(small: SmallCluster, **spec: Any) -> dict[str, Unblock]:
    """What would help a pod `late` that comes last."""
    small.filter(small.create("late", spec_text(**spec)))
    return helps(take(small.service), "ns/late")


def test_a_job_that_could_start_needs_nothing() -> None:
    small = SmallCluster()
    small.create("late")
    assert helps(take(small.service), "ns/late") == {}


def test_smaller_pods_fit_into_pieces() -> None:
    small = SmallCluster()
    for name in ("one", "two"):
        small.place(name, spec_text(leaf_cells=2))
    small.place("three", spec_text(leaf_cells=1))
    small.place("four", spec_text(leaf_cells=2))
    found = helps_after(small, leaf_cells=1, group="g", pods=2)
    assert "pods=1x1" in found
    assert found["pods=1x1"].text == "with 1 of its 2 pods"
