"""How many pods a second come through kube-scheduler and our service on a real control plane, and what they cost.

    python -m tests.e2e.throughput --nodes 100 --pods 500 --load singles
    python -m tests.e2e.throughput --nodes 1000 --pods 1500 --gangs 171 --against ../other-checkout --rounds 2

The mixed load has gangs of three dialects and pods by themselves, under one schedulerName. All pods exist before
kube-scheduler starts, so that creating them does not count. The time runs from the first binding to the last, as a
watch tells. Then gangs of 64 pods of 8 GPUs come one after the other, each timed from its last creation to its last
binding. With `--against` another checkout, which has a `.venv`, is measured too, in turn with this one.
"""

import argparse
import json
import os
import tempfile
import time
import urllib.request
from dataclasses import asdict, dataclass, field
from pathlib import Path

from hived_extender.jobs.wire import Pod
from hived_extender.kube.client import PODS, KubeClient
from tests.benchmarks.process import cpu_s
from tests.e2e.accounting import POLICY, Spending, Writes
from tests.e2e.certificates import LOOPBACK
from tests.e2e.cluster import RealCluster
from tests.e2e.load import Gang, Json, gang_pods, mixed
from tests.e2e.plane import ControlPlane
from tests.e2e.pods import configuration, create, pod, pod_changes
from tests.e2e.tools import DEFAULT, VERSIONS, find
from tests.expecting import expect_soon

LONGEST_S = 600.0
SETTLED_S = 3.0
"""Without a write after the last binding: all words about it are written."""

LEASE_S = 120
"""Kubelets that give a sign of life every few seconds would be most of what a thousand nodes do to this machine."""

GANG = Gang("wide", 64, 8)
MIXED_VC, GANG_VC = "mixed", "wide"
HIVED = "hived"


@dataclass(slots=True)
class Figures:
    """Of one checkout. `writes` and `cpu_ms` are by program and, like `hived_writes`, which is by kind, for one pod."""

    product: str
    pod_count: int
    seconds: float = 0.0
    pods_per_s: float = 0.0
    cpu_ms: dict[str, float] = field(default_factory=dict)
    writes: dict[str, float] = field(default_factory=dict)
    hived_writes: dict[str, float] = field(default_factory=dict)
    all_writes: dict[str, float] = field(default_factory=dict)
    forced: int = 0
    gang_s: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Load:
    """The measured cluster: how many nodes, and which pods."""

    nodes: int
    pods: int
    gangs: int
    seed: int
    is_mixed: bool
    gang_repeats: int

    def jobs(self) -> list[list[Json]]:
        """The pods of the backlog, by job."""
        if self.is_mixed:
            return mixed(self.pods, self.gangs, MIXED_VC, self.seed)
        return [[pod(f"p-{number}", vc=MIXED_VC)] for number in range(self.pods)]


def measure(plane: ControlPlane, load: Load, product: Path | None) -> Figures:
    """All figures of one checkout, this one if `product` is None."""
    figures = Figures(str(product or "."), load.pods)
    wide = GANG.size if load.gang_repeats else 0
    shares = {MIXED_VC: load.nodes - wide, GANG_VC: wide}
    with tempfile.TemporaryDirectory() as folder:
        file = configuration(Path(folder), {vc: count for vc, count in shares.items() if count})
        with RealCluster(plane, file, is_direct=True, product=product) as cluster:
            _backlog(cluster, load, figures)
            for number in range(load.gang_repeats):
                figures.gang_s.append(_gang(plane.kube, number))
    return figures


def _backlog(cluster: RealCluster, load: Load, figures: Figures) -> None:
    plane = cluster.plane
    assert plane.scheduler is not None
    plane.scheduler.stop()
    create(plane.kube, [one for job in load.jobs() for one in job])
    [service] = cluster.services
    spending = Spending(
        {
            HIVED: service,
            "kube-apiserver": plane.apiserver,
            "etcd": plane.etcd,
            "kwok": plane.kwok,
            "controller-manager": plane.controller_manager,
        }
    )
    writes = Writes(plane.audit_log)
    forced = _forced(cluster)
    plane.scheduler.start()
    moments = wait_bound(plane.kube, load.pods)
    figures.seconds, figures.pods_per_s = moments[-1] - moments[0], rate(moments)
    _settle(writes)
    spent = spending.cpu_s() | {"kube-scheduler": cpu_s(plane.scheduler.pid)}
    figures.cpu_ms = {name: round(1000 * seconds / load.pods, 2) for name, seconds in spent.items()}
    _count(writes, figures)
    figures.forced = _forced(cluster) - forced


def _settle(writes: Writes) -> None:
    deadline = time.monotonic() + LONGEST_S / 10
    last, now = -1, writes.count().total()
    while last != now and time.monotonic() < deadline:
        time.sleep(SETTLED_S)
        last, now = now, writes.count().total()


def _count(writes: Writes, figures: Figures) -> None:
    found = writes.count()
    programs = sorted({program for program, _ in found})
    for program in programs:
        total = sum(count for (by, _), count in found.items() if by == program)
        figures.writes[program] = round(total / figures.pod_count, 2)
    for (program, kind), count in sorted(found.items()):
        figures.all_writes[f"{program}: {kind}"] = count
        if program == HIVED:
            figures.hived_writes[kind] = round(count / figures.pod_count, 2)


def _gang(kube: KubeClient, number: int) -> float:
    """Seconds from the last creation to the last binding of a gang, which is gone afterwards."""
    gang = Gang(f"{GANG.name}-{number}", GANG.size, GANG.gpus)
    names = {one["metadata"]["name"] for one in gang_pods(gang, GANG_VC)}
    changes = pod_changes(kube, kube.list_objects(PODS, Pod).resource_version, LONGEST_S)
    create(kube, gang_pods(gang, GANG_VC))
    created = time.monotonic()
    bound: set[str] = set()
    while not names <= bound:
        one = next(changes)
        bound |= {one["metadata"]["name"]} if one["spec"].get("nodeName") else set()
    seconds = time.monotonic() - created
    for name in names:
        kube.delete_pod("default", name, grace_period_s=0)
    expect_soon(lambda: not names & {one.metadata.name for one in kube.list_objects(PODS, Pod).items})
    return seconds


def _forced(cluster: RealCluster) -> int:
    with urllib.request.urlopen(f"http://{LOOPBACK}:{cluster.ports[0]}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return sum(int(float(line.split()[1])) for line in lines if line.startswith('hived_binds_total{origin="force"'))


def wait_bound(kube: KubeClient, pod_count: int) -> list[float]:
    """Wait until that many pods are bound; the moments at which each was seen to be, in order."""
    seen: dict[str, float] = {}
    changes = pod_changes(kube, "0", LONGEST_S)
    while len(seen) < pod_count:
        one = next(changes)
        if one["spec"].get("nodeName"):
            seen.setdefault(one["metadata"]["uid"], time.monotonic())
    return sorted(seen.values())


def rate(moments: list[float]) -> float:
    """Events per second between the first and the last."""
    return (len(moments) - 1) / (moments[-1] - moments[0])


def table(found: list[Figures]) -> str:
    """The figures, a column for each measurement."""
    rows = [("", *(one.product for one in found))]
    rows.append(("pods/s", *(f"{one.pods_per_s:.0f}" for one in found)))
    for name in sorted({name for one in found for name in one.cpu_ms}):
        rows.append((f"CPU a pod, ms: {name}", *(f"{one.cpu_ms.get(name, 0.0):.1f}" for one in found)))
    for name in sorted({name for one in found for name in one.writes}):
        rows.append((f"writes a pod: {name}", *(f"{one.writes.get(name, 0.0):.2f}" for one in found)))
    for name in sorted({name for one in found for name in one.hived_writes}):
        rows.append((f"  hived: {name}", *(f"{one.hived_writes.get(name, 0.0):.2f}" for one in found)))
    rows.append(("writes a pod, all", *(f"{sum(one.writes.values()):.1f}" for one in found)))
    rows.append(("bound by force", *(str(one.forced) for one in found)))
    if any(one.gang_s for one in found):
        gang = f"{GANG.size} pods x {GANG.gpus} GPUs, s"
        rows.append((gang, *("/".join(f"{seconds:.1f}" for seconds in one.gang_s) for one in found)))
    width = max(len(row[0]) for row in rows)
    return "\n".join("  ".join([row[0].ljust(width), *(cell.rjust(12) for cell in row[1:])]) for row in rows)


def main() -> None:
    """Print a table, and the same as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--version", choices=VERSIONS, default=DEFAULT)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--pods", type=int, default=500)
    parser.add_argument("--load", choices=("singles", "mixed"), default="mixed")
    parser.add_argument("--gangs", type=int, default=57)
    parser.add_argument("--wide", type=int, default=3, metavar="TIMES", help="gangs of 64 pods, after the backlog")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--against", type=Path, help="another checkout to measure in turn")
    parser.add_argument("--rounds", type=int, default=1, help="how often each is measured")
    options = parser.parse_args()
    load = Load(
        options.nodes, options.pods, options.gangs, options.seed, options.load == "mixed", gang_repeats=options.wide
    )
    found: list[Figures] = []
    name = f"throughput-{os.getpid()}"
    tools = find(options.version)
    with ControlPlane(tools, name, lease_s=LEASE_S, audit_policy=POLICY) as plane:
        for _ in range(options.rounds):
            for product in [None, *([options.against.resolve()] if options.against else [])]:
                found.append(measure(plane, load, product))
    print(f"Kubernetes {tools.version}, {load.nodes} nodes, {load.pods} pods, seed {load.seed}")
    print(table(found))
    print(json.dumps([asdict(one) for one in found]))


if __name__ == "__main__":
    main()
