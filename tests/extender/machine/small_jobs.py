"""The small cluster with jobs whose pods come only when a queue has let them go."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from hived.values.decisions import Bind, Wait
from hived.values.errors import UserError
from hived.values.specs import GroupSpec, MemberSpec, PodSpec, Rules
from hived_extender.jobs.job import JobRef
from hived_extender.jobs.wire import Pod
from hived_extender.machine.holds import HeldBind
from hived_extender.machine.stimuli import (
    GroupsEvicted,
    Hold,
    HoldAsked,
    HoldDropped,
    HoldsLookedAt,
    HoldState,
    Stimulus,
    Victims,
    VictimsAsked,
)
from tests.extender.machine.small_cluster import Json, cluster_spec
from tests.extender.machine.small_gangs import SmallGangCluster

T = TypeVar("T")


def job(name: str = "train") -> JobRef:
    """A batch Job."""
    return JobRef("batch/v1", "Job", "ns", name, f"uid-{name}")


def hold(
    name: str = "train", pods: int = 2, gpus: int = 4, *, priority: int = 0, vc: str = "a", own: tuple[int, ...] = (),
    templates: tuple[Pod, ...] = (),
) -> Hold:  # fmt: skip
    """Cells for all pods of a batch Job."""
    ref = job(name)
    spec = PodSpec(
        vc, priority, gpus, GroupSpec(ref.key, (MemberSpec(pods, gpus),)), leaf_cell_type="GPU",
        ignore_suggested_nodes=False,
    )  # fmt: skip
    return Hold(ref.key, ref, spec, own, templates)


class SmallJobCluster(SmallGangCluster):
    """Under `rules: 2`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(spec=replace(cluster_spec(), rules=Rules.BETTER), **options)

    def tell(self, stimulus: Stimulus) -> Any:
        """The answer. Raises it if it is an error."""
        found = self.service.runner.handle(stimulus)
        if isinstance(found, UserError):
            raise found
        return found

    def hold(self, wanted: Hold) -> Bind | Wait:
        """Ask for cells."""
        found: Bind | Wait = self.tell(HoldAsked(wanted))
        return found

    def held(self, wanted: Hold) -> HeldBind:
        """Ask for cells, which are to be had."""
        found = self.hold(wanted)
        assert isinstance(found, HeldBind), found
        return found

    def drop_hold(self, name: str = "train") -> None:
        """Give back what is held for a job."""
        self.tell(HoldDropped(job(name).key))

    def victims(self, wanted: Hold, *candidates: str) -> Victims | None:
        """Who would have to leave?"""
        found: Victims | None = self.tell(VictimsAsked(wanted, tuple(job(name) for name in candidates)))
        return found

    def evict(self, *groups: str, winner: str = "Job/ns/train") -> None:
        """Have groups leave."""
        self.tell(GroupsEvicted(groups, winner))

    def state_of(self, name: str = "train") -> HoldState:
        """The progress of a hold."""
        found: dict[str, HoldState] = self.tell(HoldsLookedAt())
        return found[job(name).key]

    def come(
        self, name: str, job_name: str = "train", gpus: int = 4, annotations: Mapping[str, str] | None = None,
        job_uid: str = "", **labels: str,
    ) -> Json:  # fmt: skip
        """The controller of a job makes a pod; `job_uid` is that of another job of the name."""
        self.clock += 1
        owner = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": job_name,
            "uid": job_uid or f"uid-{job_name}",
            "controller": True,
        }
        pod: Json = {
            "metadata": {
                "name": name,
                "namespace": "ns",
                "uid": f"uid-{name}",
                "creationTimestamp": f"2026-01-01T00:00:{self.clock:02d}Z",
                "annotations": dict(annotations or {}),
                "labels": {"batch.kubernetes.io/job-name": job_name, **labels},
                "ownerReferences": [owner],
            },
            "spec": {
                "nodeName": "",
                "schedulerName": "hived",
                "containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": gpus}}}],
            },
            "status": {"phase": "Pending"},
        }
        self.kube.add(pod)
        self.see(pod)
        return pod

    def state_or_none(self, name: str = "train") -> HoldState | None:
        """The progress of a hold, None if there is none."""
        found: dict[str, HoldState] = self.tell(HoldsLookedAt())
        return found.get(job(name).key)

    def restarted_jobs(self) -> "SmallJobCluster":
        """Another service that begins to lead with what the API server has."""
        again = self.restarted()
        cluster = SmallJobCluster(is_leading=False)
        cluster.kube, cluster.clock, cluster.service = again.kube, again.clock, again.service
        return cluster

    def cells(self) -> dict[str, Json]:
        """The physical cells of each group."""
        return {name: status["physicalPlacement"] for name, status in self.groups().items()}


def template(**spec: Any) -> Pod:
    """A pod as a template of a job makes it."""
    containers = [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": 4}}}]
    return msgspec.convert({"metadata": {"namespace": "ns"}, "spec": {"containers": containers, **spec}}, Pod)
