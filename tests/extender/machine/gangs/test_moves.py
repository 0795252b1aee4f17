"""A gang of another dialect moves as a whole, and finds its new cells once all of it has come back (rule 28.9)."""

from hived.scheduler import check_invariants
from hived.values.specs import BindInfo, PodPlacement
from hived_extender.api.defrag import MovingReport, PlannedPod
from hived_extender.jobs.progress import MAY_MOVE
from hived_extender.machine.stimuli import MoveOrder, MovesAsked, MovesLookedAt
from tests.extender.machine.small_gangs import SmallGangCluster, koordinator

MAY = {MAY_MOVE: "true"}


def worker(cluster: SmallGangCluster, name: str) -> None:
    cluster.pod(name, 1, koordinator("train", 2) | MAY)


def report(cluster: SmallGangCluster) -> MovingReport:
    found: MovingReport = cluster.service.runner.handle(MovesLookedAt())
    return found


def orders(cluster: SmallGangCluster, node: str) -> tuple[MoveOrder, ...]:
    """Both pods of the gang move to the first GPUs of a node."""
    found = []
    for number, (name, status) in enumerate(sorted(cluster.groups().items())):
        ((old, cells),) = status["physicalPlacement"].items()
        place = PodPlacement(node, (number,), ("NODE",))
        info = BindInfo(node, (number,), "RACK", ((place,),))
        found.append(MoveOrder(1, name, "ns/train", (PlannedPod(old, tuple(cells)),), info))
    return tuple(found)


def moving() -> tuple[SmallGangCluster, str, str]:
    """A gang that is told to move; returns its old node and its new one as well."""
    cluster = SmallGangCluster()
    for name in ("w-0", "w-1"):
        worker(cluster, name)
    (old,) = set(cluster.settle().values())
    new = "n0" if old != "n0" else "n1"
    cluster.service.runner.handle(MovesAsked(orders(cluster, new), "somebody", "a", 60.0))
    cluster.pass_time()
    return cluster, old, new


def test_all_pods_of_a_gang_are_evicted() -> None:
    cluster, _, _ = moving()
    assert sorted(cluster.kube.leaving) == [("evicted", "w-0"), ("evicted", "w-1")]


def test_a_gang_that_has_come_back_starts_anew() -> None:
    cluster, _, _ = moving()
    for name in ("w-0", "w-1"):
        cluster.drop(name)
    assert [move.state for move in report(cluster).moves] == ["returning", "returning"]
    for name in ("v-0", "v-1"):
        worker(cluster, name)
    assert len(set(cluster.settle().values())) == 1
    assert report(cluster).state == "done"
    assert set(cluster.groups()) == {"ns/v-0", "ns/v-1"}
    check_invariants(cluster.state)


def test_a_pod_that_comes_while_a_mate_is_still_there_waits() -> None:
    cluster, _, _ = moving()
    cluster.drop("w-0")
    worker(cluster, "v-0")
    assert "is being moved" in cluster.ask("v-0")
    cluster.drop("w-1")
    worker(cluster, "v-1")
    assert len(cluster.settle()) == 2
    assert report(cluster).state == "done"
