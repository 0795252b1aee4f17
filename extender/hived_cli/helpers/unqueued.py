"""Pods that were submitted where jobs wait in queues, and that are in none: how to have them wait."""

from collections.abc import Mapping, Sequence
from typing import Any

from hived_cli.helpers.waits import listed
from hived_extender.job_kinds import gates, marks
from hived_extender.job_kinds.kinds import find_kind
from hived_extender.job_kinds.parts import Part
from hived_jobs.submission import Manifest, PlannedJob


def unqueued(jobs: Sequence[PlannedJob], pods: Sequence[Manifest]) -> str:
    """A sentence about the pods of these jobs, as the API server has stored them; "" if all wait in a queue, or are
    to be in none by their own words.
    """
    passing = {
        pod["metadata"]["name"]
        for pod in pods
        if not gates.is_gated(Part(pod["spec"], "spec")) and _may_queue(pod["metadata"])
    }
    found = [job for job in jobs if any(pod.name in passing for pod in job.pods)]
    if not found:
        return ""
    queued = [job.name for job in found if job.document and find_kind(*map(job.document.get, ("apiVersion", "kind")))]
    ways = [f"kubectl apply the file of {listed(queued)}"] if queued else []
    if len(queued) < len(found):
        ways.append(f"create the pods with the scheduling gate {gates.GATE}")
    return (
        "jobs wait in queues here, and pods of hived submit do not: they get cells as they come. To have them wait, "
        f"{', and '.join(ways)} instead"
    )


def _may_queue(metadata: Mapping[str, Any]) -> bool:
    return marks.may_queue(metadata.get("labels") or {}, metadata.get("annotations") or {})
