"""Who says when it saved its work is not the one that always leaves for others."""

from collections import Counter

import pytest

from hived_config.loader import load_text
from hived_extender.jobs.progress import CHECKPOINTED_AT, read_time, write_time
from hived_extender.machine.preemptions import PreemptionPolicy
from tests.extender.machine.small_cluster import SmallCluster, node, spec_text

NOW_S = read_time("2026-01-01T10:00:00Z")
NAMES = tuple(f"n{number}" for number in range(8))
CONFIG = """\
rules: 2
physicalCluster:
  cellTypes:
    NODE: {childCellType: GPU, childCellNumber: 4, isNodeLevel: true}
  physicalCells: [CELLS]
virtualClusters:
  owner: {virtualCells: [{cellType: NODE, cellNumber: 8}]}
  a: {virtualCells: []}
  b: {virtualCells: []}
""".replace("CELLS", ", ".join(f"{{cellType: NODE, cellAddress: {name}}}" for name in NAMES))


def hit(saves: str, *, ages_s: tuple[int, int] = (3600, 3600)) -> Counter[str]:
    """How often each VC is hit as the owner takes half of its cells back; those of `saves` report checkpoints."""
    spec = load_text(CONFIG, "small.yaml", environ={}).cluster
    cluster = SmallCluster(spec=spec, preemption=PreemptionPolicy(), is_leading=False)
    cluster.service.sync_nodes([node(name) for name in NAMES])
    cluster.lead()
    cluster.by_hand.at = NOW_S
    for number in range(4):
        for vc, age_s in zip("ab", ages_s, strict=True):
            pod = cluster.create(f"{vc}-{number}", spec_text(vc, 4, -1))
            cluster.bind(pod, cluster.filter(pod, NAMES)["NodeNames"][0])
            pod["status"] |= {"phase": "Running", "startTime": write_time(int(NOW_S - age_s - 10 * number))}
            if vc in saves:
                pod["metadata"]["annotations"][CHECKPOINTED_AT] = write_time(int(NOW_S - 5))
            cluster.kube.touch(pod)
            cluster.see(pod)
    left: Counter[str] = Counter()
    for number in range(4):
        pod = cluster.create(f"own-{number}", spec_text("owner", 4))
        cluster.filter(pod, NAMES)
        cluster.pass_time(1)
        for _, name in cluster.kube.leaving:
            left[name[0]] += 1
            cluster.delete(cluster.kube.pods[name])
        cluster.kube.leaving.clear()
        cluster.bind(pod, cluster.filter(pod, NAMES)["NodeNames"][0])
        cluster.see(pod)
    cluster.service.close()
    return left


@pytest.mark.parametrize("saves", ["a", "b", "ab"])
def test_evictions_are_shared_whoever_reports_checkpoints(saves: str) -> None:
    assert hit(saves) == {"a": 2, "b": 2}


def test_who_has_run_a_little_longer_is_not_spared_for_good() -> None:
    assert hit("a", ages_s=(3600, 4000)) == {"a": 2, "b": 2}


def test_who_loses_far_more_is_spared_as_before() -> None:
    assert hit("b", ages_s=(600, 36_000)) == {"a": 4}
    assert hit("a", ages_s=(36_000, 600)) == {"b": 4}
