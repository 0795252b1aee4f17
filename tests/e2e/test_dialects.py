"""Pods in other dialects with kube-scheduler: the examples of `hived demo dialects`, and a scheduler that dies."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click
import pytest

from hived_extender.jobs.annotations import LEAF_CELL_ISOLATION
from hived_extender.jobs.asks import PRIORITY
from hived_extender.kube.client import NODES, pod_path
from hived_jobs.records import KIND
from hived_lab.demo.experiment import Loaded, experiments_folder, load_experiments
from hived_lab.demo.report import Report
from hived_lab.demo.runner import run_experiment
from hived_lab.embedded.nodes import READY, machines_of
from tests.e2e.cluster import RealCluster
from tests.e2e.failures.working_cluster import redirected
from tests.e2e.http_proxy import HttpProxy, Side
from tests.e2e.plane import ControlPlane
from tests.e2e.podgroups import CUSTOM, definition
from tests.e2e.pods import create, is_bound, priority_class
from tests.e2e.rights import grant_rights, service_kubeconfig
from tests.expecting import expect_soon

PATIENCE = 3.0
"""kube-scheduler tries a pod again after a second at the earliest, and the machine may be busy."""

PATIENCE_S = 30.0

NOT_SERVED = ("workload",)
"""A kind of Kubernetes 1.35 alone."""

NATIVE = ("native-podgroup",)

EXAMPLES = [one for one in load_experiments(experiments_folder("dialects")) if one.name not in NOT_SERVED]

Json = dict[str, Any]


@pytest.fixture(scope="module")
def podgroup_kinds(plane: ControlPlane) -> Iterator[ControlPlane]:
    """A control plane that has the PodGroups of scheduler-plugins and of Volcano."""
    with plane.defined(*map(definition, CUSTOM)):
        yield plane


@pytest.fixture(scope="module")
def clusters(podgroup_kinds: ControlPlane) -> Iterator["Clusters"]:
    """See `Clusters`."""
    kept = Clusters(podgroup_kinds)
    yield kept
    kept.close()


class Clusters:
    """One cluster at a time: that of the last example, if the next has the same configuration."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._file: Path | None = None
        self._running: RealCluster | None = None

    def fresh(self, configuration: Path) -> RealCluster:
        """A cluster with this configuration: all nodes as they were at first, no pods and no jobs."""
        if self._running is None or self._file != configuration:
            self.close()
            self._file, self._running = configuration, RealCluster(self._plane, configuration).__enter__()
        return self._running

    def clean(self) -> None:
        """Remove what an example left."""
        assert self._running is not None
        self._plane.kubectl("delete", "configmaps", "-l", KIND)
        self._plane.kubectl("delete", "pods", "--all", "--force", "--grace-period=0")
        for machine in machines_of(self._running.spec):
            self._plane.kube.patch(f"{NODES}/{machine.name}", {"metadata": {"annotations": {READY: None}}})
            self._plane.wait_for(f"{machine.name} to be ready", partial(self._plane.is_node_ready, machine.name))

    def close(self) -> None:
        """Stop what runs."""
        if self._running is not None:
            self._running.__exit__(None, None, None)
            self._running = None


@pytest.mark.parametrize("loaded", EXAMPLES, ids=lambda loaded: loaded.name)
def test_every_expectation_of_an_example_holds_on_a_real_control_plane(
    plane: ControlPlane, clusters: Clusters, loaded: Loaded
) -> None:
    if loaded.name in NATIVE and not plane.has_podgroups:
        pytest.skip("this Kubernetes has no PodGroups of its own")
    report = Report(click.echo)
    report.begin(loaded, 1, 1)
    cluster = clusters.fresh((loaded.folder / loaded.experiment.configuration).resolve())
    try:
        result = run_experiment(loaded, report, cluster, time.monotonic(), patience=PATIENCE)
    finally:
        clusters.clean()
    assert not result.error
    assert [check.found for check in result.checks if check.found] == []
    assert len(result.checks) == sum(step.is_checked for step in loaded.experiment.steps)


def member(number: int, gang: str, minimum: int) -> Json:
    """A pod with a GPU, of a gang by the labels that go with any dialect."""
    labels = {
        "pod-group.scheduling.sigs.k8s.io/name": gang,
        "pod-group.scheduling.sigs.k8s.io/min-available": str(minimum),
    }
    container = {"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    return {
        "metadata": {"name": f"{gang}-{number}", "labels": labels},
        "spec": {"schedulerName": "hived", "containers": [container]},
    }


@pytest.mark.parametrize("bound", [1, 4])
def test_a_gang_whose_scheduler_dies_as_it_starts_keeps_all_its_places(
    plane: ControlPlane, clusters: Clusters, bound: int
) -> None:
    """Some pods are bound, the bindings of the others never reach the API server, and a rival comes meanwhile."""
    clusters.close()  # one kube-scheduler at a time
    configuration = experiments_folder("dialects") / "hivedscheduler.yaml"
    grant_rights(plane)
    with closing_proxy(HttpProxy(lambda: plane.url, plane.authority)) as api:
        account = redirected(service_kubeconfig(plane), api.url)
        with RealCluster(plane, configuration, kubeconfig=account) as cluster:
            kube, (service,) = cluster.kube, cluster.services
            names = [f"cut-{number}" for number in range(8)]
            holds = [api.hold(Side.REQUEST, "POST", f"{name}/binding") for name in names[bound:]]
            create(kube, [member(number, "cut", 8) for number in range(8)])
            assert all(hold.wait(PATIENCE_S) for hold in holds)
            expect_soon(lambda: all(is_bound(kube, name) for name in names[:bound]))
            service.kill()
            for hold in holds:
                hold.drop()
            assert not any(is_bound(kube, name) for name in names[bound:])
            scheduler = plane.scheduler
            assert scheduler is not None
            scheduler.stop()
            rival = member(0, "rival", 1)  # kube-scheduler asks about it first
            rival["spec"]["priorityClassName"] = priority_class(kube, 1000)
            rival["metadata"]["annotations"] = {PRIORITY: "0"}
            create(kube, [rival])
            service.start()
            scheduler.start()
            expect_soon(lambda: all(is_bound(kube, name) for name in names))
            places = [place(kube.get(pod_path("default", name))) for name in names]
            assert len(set(places)) == 8
            assert not is_bound(kube, "rival-0")


@contextmanager
def closing_proxy(proxy: HttpProxy) -> Iterator[HttpProxy]:
    """A proxy while it runs."""
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.stop()


def place(pod: Json) -> tuple[str, str]:
    """Node and device of a pod that has one GPU."""
    return pod["spec"]["nodeName"], pod["metadata"]["annotations"][LEAF_CELL_ISOLATION]
