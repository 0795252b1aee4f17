"""Pods and clusters of tests on a control plane: what they ask for or consist of, and waiting for what is to come."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from hived_extender.jobs.annotations import SCHEDULING_SPEC
from hived_extender.jobs.wire import ENABLE_LIMIT
from hived_extender.kube.client import PODS, KubeClient, KubeError, pod_path
from hived_jobs.submission import Submission
from tests.expecting import expect_soon

POD_LIST = "/api/v1/namespaces/default/pods"
PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
CREATORS = 8

BUSY_S = 5.0
"""Time for everything that is promised within two seconds, where the machine runs a whole cluster besides."""

Json = dict[str, Any]


def configuration(
    folder: Path,
    shares: Mapping[str, int],
    *,
    gpus: int = 8,
    of_vcs: Mapping[str, Json] | None = None,
    edit: Callable[[Json], None] = lambda _: None,
    **settings: Any,
) -> Path:
    """A file for our service: nodes n0, n1, ... of so many GPUs and CPUs, and how many each virtual cluster has.

    `of_vcs` are further keys of virtual clusters, `settings` those of the file, and `edit` changes what remains.
    """
    document = settings | {
        "physicalCluster": {
            "skuTypes": {"GPU": {"gpu": 1, "cpu": 1, "memory": "8Gi"}},
            "cellTypes": {"NODE": {"childCellType": "GPU", "childCellNumber": gpus, "isNodeLevel": True}},
            "physicalCells": [{"cellType": "NODE", "cellAddress": f"n{each}"} for each in range(sum(shares.values()))],
        },
        "virtualClusters": {
            vc: {"virtualCells": [{"cellType": "NODE", "cellNumber": count}], **(of_vcs or {}).get(vc, {})}
            for vc, count in shares.items()
        },
    }
    edit(document)
    file = folder / "hivedscheduler.yaml"
    file.write_text(yaml.safe_dump(document))
    return file


def pod(
    name: str,
    *,
    vc: str = "a",
    gpus: int = 1,
    annotations: Mapping[str, str] | None = None,
    limits: Mapping[str, str] | None = None,
    fields: Mapping[str, Any] | None = None,
    **wishes: Any,
) -> Json:
    """A pod of ours, to create.

    Parameters
    ----------
    vc, gpus, wishes : what it asks our scheduler for; `wishes` as its annotation spells them, `priority` is 0 otherwise
    annotations, limits : beside its own
    fields : further ones of its `spec`, or others
    """
    asked = {"virtualCluster": vc, "priority": 0, "leafCellNumber": gpus} | wishes
    resources = {"limits": {ENABLE_LIMIT: "1", **(limits or {})}}
    return {
        "metadata": {"name": name, "annotations": {SCHEDULING_SPEC: json.dumps(asked), **(annotations or {})}},
        "spec": {
            "schedulerName": Submission(user="").scheduler_for(vc),
            "containers": [{"name": "main", "image": "none", "resources": resources}],
            **(fields or {}),
        },
    }


def create(kube: KubeClient, pods: Iterable[Json]) -> None:
    """Create pods in the namespace default, several at a time."""
    with ThreadPoolExecutor(CREATORS) as pool:
        list(pool.map(lambda one: kube.create(POD_LIST, one), pods))


def priority_class(kube: KubeClient, value: int) -> str:
    """The name of a PriorityClass with this value, which is there and known to admission."""
    name = f"test-{value}" if value >= 0 else f"test-minus-{-value}"
    body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}
    with suppress(KubeError):
        kube.create(PRIORITY_CLASSES, body)
        expect_soon(lambda: _is_admitted(kube, pod("trial", fields={"priorityClassName": name})))
    return name


def _is_admitted(kube: KubeClient, one: Json) -> bool:
    try:
        kube.create(f"{POD_LIST}?dryRun=All", one)
    except KubeError:
        return False
    return True


def is_bound(kube: KubeClient, name: str) -> bool:
    """Whether a pod of the namespace default has a node."""
    return bool(kube.get(pod_path("default", name))["spec"].get("nodeName"))


def pod_changes(kube: KubeClient, version: str, timeout_s: float) -> Iterator[Json]:
    """Pods as watches from a version on show them. Raises TimeoutError, at the first change after that time."""
    deadline = time.monotonic() + timeout_s
    while True:  # the API server ends the watch of a client that is slower than it
        for event in kube.watch(PODS, Json, version):
            version = event.resource_version
            if time.monotonic() > deadline:
                raise TimeoutError(f"pods are not as expected after {timeout_s:.0f} s")
            if event.object is not None:
                yield event.object
