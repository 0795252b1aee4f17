"""Writing into the status of Kueue's objects: our check in Workloads, and that we are at work in AdmissionChecks.

Every write names the version that was read. So it fails where Kueue has evicted the Workload meanwhile, and set its
checks back: a state written after that would keep it out of Kueue's queue for ever.
"""

import logging
from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import quote

from hived_extender.kube.client import KubeError
from hived_extender.kube.events import timestamp
from hived_extender.kueue.checks import Write, with_states
from hived_extender.kueue.names import ACTIVE, MANAGER
from hived_extender.kueue.topologies import assignment_on
from hived_extender.kueue.workloads import Check, Object, Workload

log = logging.getLogger(__name__)


class StatusApi(Protocol):
    """The call to the API server; `kube.KubeClient` has it."""

    def patch_as(self, path: str, body: Mapping[str, Any], manager: str) -> dict[str, Any]:
        """Merge `body` into an object as a field manager, and return it. Raises KubeError."""


def write_state(kube: StatusApi, collection: str, write: Write, now_s: float) -> Object:
    """Write a state into the checks of a Workload, and return it as it is then.

    `collection` is the path of all Workloads. Raises KubeError: a conflict if the Workload is another version by now.
    """
    workload = write.workload
    status: Object = {"admissionChecks": with_states(workload.written, write, timestamp(now_s))}
    if write.said.nodes:
        status["admission"] = {"podSetAssignments": _on_nodes(workload, write.said.nodes)}
    body = {"metadata": {"resourceVersion": workload.version, "uid": workload.job.uid}, "status": status}
    base, plural = collection.rsplit("/", 1)
    namespace, name = quote(workload.job.namespace, safe=""), quote(workload.job.name, safe="")
    return kube.patch_as(f"{base}/namespaces/{namespace}/{plural}/{name}/status", body, MANAGER)


AT_WORK = "hived holds cells for Workloads with this check"
"""The message of the condition, unless there is something to warn of."""


def _on_nodes(workload: Workload, nodes: Mapping[str, Mapping[str, int]]) -> list[Object]:
    """The assignments of a Workload's pod sets, with our nodes instead of those that Kueue has chosen."""
    assigned = [dict(each) for each in workload.admission.get("podSetAssignments") or ()]
    for each in assigned:
        if (own := nodes.get(each.get("name", "main"))) is not None and "topologyAssignment" in each:
            each["topologyAssignment"] = assignment_on(own)
    return assigned


def write_active(kube: StatusApi, collection: str, check: Check, message: str, now_s: float) -> None:
    """Say in an AdmissionCheck that its controller is at work, in these words. Raises KubeError."""
    condition = {
        "type": ACTIVE,
        "status": "True",
        "reason": "Active",
        "message": message,
        "observedGeneration": check.generation,
        "lastTransitionTime": timestamp(now_s),
    }
    others = [dict(each) for each in check.conditions if each.get("type") != ACTIVE]
    body = {"metadata": {"resourceVersion": check.version}, "status": {"conditions": [*others, condition]}}
    kube.patch_as(f"{collection}/{quote(check.name, safe='')}/status", body, MANAGER)


def is_passing(error: KubeError) -> bool:
    """Will the watch tell of something else soon: another version, or the object's end?"""
    return error.is_conflict or error.is_not_found
