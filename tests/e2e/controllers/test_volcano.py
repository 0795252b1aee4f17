"""Pods and PodGroups as Volcano's controllers write them, with `--scheduler-name=hived`.

They are not to be had as Go modules here, so this file plays them. The podgroup controller makes a PodGroup for the
owner of every plain pod, and annotates the pod with it a moment later. The job controller waits for its PodGroup to be
let in.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from hived_extender.jobs.kinds import volcano
from hived_extender.kube.client import KubeError, pod_path
from tests.e2e.controllers.installing import await_served
from tests.e2e.controllers.racks import SCHEDULER, Racks, pod, template
from tests.e2e.plane import ControlPlane
from tests.e2e.podgroups import DEFINITIONS, path_of

GROUP_NAME = "scheduling.k8s.io/group-name"
PODGROUPS = path_of(volcano.PODGROUPS)

Json = dict[str, Any]


@pytest.fixture
def racks(shared_racks: Racks) -> Iterator[Racks]:
    """The racks without jobs, before and after."""
    yield shared_racks
    shared_racks.clean(("jobs.batch", "deployments.apps", "statefulsets.apps", volcano.PODGROUPS.name))


@contextmanager
def defined(plane: ControlPlane, group: str, version: str, kind: str, plural: str) -> Iterator[None]:
    """A kind of Volcano's while it is served."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "shortNames": [f"vc{kind.lower()}"]}
    metadata = {"name": f"{plural}.{group}"}
    spec = {"group": group, "names": names, "scope": "Namespaced", "versions": [served]}
    document = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": metadata}
    plane.kube.create(DEFINITIONS, {**document, "spec": spec})
    await_served(plane, metadata["name"])
    plane.wait_for(f"{kind} to be listed", lambda: plural in kinds_in(plane, f"/apis/{group}/{version}"))
    yield
    plane.kubectl("delete", f"crd/{metadata['name']}")  # which waits until it is gone


def kinds_in(plane: ControlPlane, base: str) -> list[str]:
    """The plurals that the API server lists in a version of a group, some time after it serves the first."""
    with suppress(KubeError):
        return [one["name"] for one in plane.kube.get(base)["resources"]]
    return []


@pytest.fixture
def volcano_jobs(plane: ControlPlane, racks: Racks) -> Iterator[None]:
    """Volcano's kind of jobs."""
    with defined(plane, "batch.volcano.sh", "v1alpha1", "Job", "jobs"):
        yield
        racks.clean(())


@pytest.fixture
def volcano_queues(plane: ControlPlane) -> Iterator[None]:
    """Volcano's kind of queues; real ones belong to no namespace, which makes no difference here."""
    with defined(plane, volcano.PODGROUPS.group, volcano.PODGROUPS.versions[0], "Queue", "queues"):
        yield


def play_podgroup_controller(racks: Racks, prefix: str) -> None:
    """Make the PodGroup of every plain pod, for one pod, and annotate the pod with it."""
    made = set()
    for one in racks.pods(prefix):
        metadata = one.pod["metadata"]
        owner = next(iter(metadata.get("ownerReferences") or ()), None)
        if owner is None:
            owner = {"apiVersion": "v1", "kind": "Pod", "name": one.name, "uid": one.uid, "controller": True}
        name = f"podgroup-{owner['uid']}"
        body = {"metadata": {"name": name, "ownerReferences": [owner]}, "spec": {"minMember": 1}}
        group = {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            **body,
            "status": {"phase": "Pending"},
        }
        if name not in made:
            racks.plane.kube.create(PODGROUPS, group)
            made.add(name)
        racks.plane.kube.patch(pod_path("default", one.name), {"metadata": {"annotations": {GROUP_NAME: name}}})


def job(name: str, pods: int, **metadata: Any) -> Json:
    """A Job of Kubernetes."""
    made = template(**metadata)
    made["spec"]["restartPolicy"] = "Never"
    spec = {"parallelism": pods, "completions": pods, "template": made}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def test_a_gang_of_another_dialect_starts_whole_beside_the_podgroup_controller(racks: Racks) -> None:
    prefix = "pod-group.scheduling.sigs.k8s.io"
    racks.block("rival-1", "rival-2")
    racks.create(job("train", 3, labels={f"{prefix}/name": "train", f"{prefix}/min-available": "3"}))
    racks.await_created("train-", 3)
    play_podgroup_controller(racks, "train-")
    assert racks.bound_while_waiting("train-", 3) == []
    racks.unblock("rival-1")
    racks.await_whole("train-", 3)


def test_pods_without_a_gang_start_one_by_one_beside_the_podgroup_controller(racks: Racks) -> None:
    racks.block("rival-1", "rival-2")
    racks.create(job("sweep", 3), pod("single"))
    racks.await_created("sweep-", 3)
    play_podgroup_controller(racks, "sweep-")
    play_podgroup_controller(racks, "single")
    racks.until(lambda: len(racks.bound("s")) == 2, "two of them to run in what is left")
    racks.unblock("rival-1", "rival-2")
    racks.until(lambda: len(racks.bound("s")) == 4, "the others to run")
    assert racks.faults() == []


def test_replicas_of_a_deployment_start_one_by_one_beside_the_podgroup_controller(racks: Racks) -> None:
    made = template(gpus=2, labels={"app": "serve"})
    spec = {"replicas": 3, "selector": {"matchLabels": {"app": "serve"}}, "template": made}
    racks.create({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "serve"}, "spec": spec})
    racks.await_created("serve-", 3)
    play_podgroup_controller(racks, "serve-")
    racks.until(lambda: len(racks.bound("serve-")) == 3, "three replicas")
    racks.plane.kube.delete_pod("default", racks.bound("serve-")[0].name)
    racks.until(lambda: len(racks.bound("serve-")) == 3 == len(racks.pods("serve-")), "three replicas again")
    assert racks.faults() == []


def make_group(racks: Racks, owner: Json, minimum: int) -> str:
    """The PodGroup that a controller makes before the pods of an owner; returns its name."""
    reference = {key: owner[key] for key in ("apiVersion", "kind")} | {"uid": owner["metadata"]["uid"]}
    reference |= {"name": owner["metadata"]["name"], "controller": True, "blockOwnerDeletion": True}
    name = f"{reference['name']}-{reference['uid']}"
    resources = {"minTaskMember": {"worker": minimum}, "minResources": {"count/pods": str(minimum)}}
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "ownerReferences": [reference]},
        "spec": {"minMember": minimum, "queue": "default", **resources},
        "status": {"phase": "Pending"},
    }
    racks.plane.kube.create(PODGROUPS, group)
    return name


def make_stateful_set(racks: Racks) -> Json:
    """A StatefulSet without replicas, which the rights of an installation do not reach."""
    labels = {"app": "own"}
    spec = {
        "replicas": 0,
        "selector": {"matchLabels": labels},
        "template": template(labels=labels),
        "serviceName": "own",
    }
    document = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "own"}, "spec": spec}
    return document | racks.plane.kube.create("/apis/apps/v1/namespaces/default/statefulsets", document)


def make_job(racks: Racks) -> Json:
    """A job of Volcano of three pods for hived."""
    task = {"name": "worker", "replicas": 3, "template": template()}
    spec = {"schedulerName": SCHEDULER, "minAvailable": 3, "queue": "default", "tasks": [task]}
    document = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "train"}, "spec": spec}
    return document | racks.plane.kube.create("/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs", document)


def phase_of(racks: Racks, name: str) -> str:
    """The phase of a PodGroup, "" for a new one."""
    return str((racks.plane.kube.get(f"{PODGROUPS}/{name}").get("status") or {}).get("phase", ""))


def test_a_pod_group_whose_owner_hived_may_not_read_is_let_in_where_volcano_has_no_queues(racks: Racks) -> None:
    name = make_group(racks, make_stateful_set(racks), 1)
    racks.until(lambda: phase_of(racks, name) not in ("", "Pending"), "the PodGroup to be let in")
    assert phase_of(racks, name) == "Inqueue"


def test_a_pod_group_whose_owner_hived_may_not_read_is_left_to_the_queues_of_volcano(
    racks: Racks, volcano_jobs: None, volcano_queues: None
) -> None:
    first = make_group(racks, make_stateful_set(racks), 1)
    second = make_group(racks, make_job(racks), 3)
    racks.until(lambda: phase_of(racks, second) == "Inqueue", "the later PodGroup to be let in")
    assert phase_of(racks, first) in ("", "Pending")


def test_a_job_of_volcano_is_let_in_and_starts_whole(racks: Racks, volcano_jobs: None) -> None:
    """Its controller makes no pods before the phase of its PodGroup is Inqueue."""
    name = make_group(racks, make_job(racks), 3)
    owners = racks.plane.kube.get(f"{PODGROUPS}/{name}")["metadata"]["ownerReferences"]
    racks.until(lambda: phase_of(racks, name) == "Inqueue", "the PodGroup to be let in")
    annotations = {GROUP_NAME: name, "volcano.sh/task-spec": "worker", "volcano.sh/job-name": "train"}
    annotations |= {"volcano.sh/queue-name": "default", "volcano.sh/job-version": "0"}
    racks.block("rival-1", "rival-2")
    for number in range(3):
        labels = {"volcano.sh/job-name": "train", "volcano.sh/task-spec": "worker"}
        racks.create(pod(f"train-worker-{number}", labels=labels, annotations=annotations, ownerReferences=owners))
    assert racks.bound_while_waiting("train-", 3) == []
    racks.unblock("rival-2")
    racks.await_whole("train-", 3)
    racks.until(lambda: phase_of(racks, name) == "Running", "the PodGroup to say so")
    racks.unblock("rival-1")
    racks.plane.kube.delete("/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs/train")
    racks.until(lambda: not racks.used(), "all cells to be free")
