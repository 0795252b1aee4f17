"""All pods of a job one by one, for its owner: those that hived knows, those that have ended, and those to come.

Ended ones are the API server's, as far as the caller may list pods. The pods of an indexed Job and of a JobSet are made
in turn, and have an index: those that are not made yet are named as their hosts will be, `NAME-INDEX`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

from msgspec.structs import replace

from hived_extender.api.names import GANG, is_full
from hived_extender.api.waiting import Ended, Job, PodView, exit_words
from hived_extender.jobs.kinds.batch import indexes_of
from hived_extender.jobs.kinds.jobset import COMPLETION_INDEX
from hived_extender.jobs.kinds.kind import path_of
from hived_extender.jobs.kinds.table import find_kind
from hived_extender.jobs.outcomes import outcome_of
from hived_extender.jobs.wire import Pod
from hived_extender.kube.client import KubeClient
from hived_extender.kube.clocks import timestamp

TO_COME = "it is not made yet"

_OF_JOB_SET = "jobset.sigs.k8s.io/jobset-name"
_DRAWN = re.compile(r"-[a-z0-9]{5}")
_DIGITS = re.compile(r"(\d+)")


def with_all_pods(kube: KubeClient, job: Job, *, is_folded: bool = True) -> Job:
    """The job with all of its pods as `members`, by name. A job without an object keeps those that it has.

    If `is_folded`, those that are not there are one row for each run of indexes: `arr-3 to arr-99`.

    Raises KubeError. Cost: the pods of its namespace, and its object.
    """
    kind_name, _, where = job.name.partition("/")
    if not is_full(job.name) or job.name.startswith(GANG):
        return job
    namespace, _, name = where.partition("/")
    listed = kube.list_objects(f"/api/v1/namespaces/{quote(namespace, safe='')}/pods", Pod).items
    own = [pod for pod in listed if _is_of(pod, kind_name, name)]
    known = {view.name: view for view in job.members}
    seen = {f"{namespace}/{pod.metadata.name}": pod for pod in own}
    views = [_view(full, pod, known.get(full)) for full, pod in seen.items()]
    views += [view for full, view in known.items() if full not in seen]
    there = {short_of(view.name) for view in views if view.state != "Failed"}
    for row, base, indexes in _not_there(kube, job, namespace, name, there):
        runs = _runs(indexes) if is_folded else [(index, index) for index in indexes]
        views += [_row(row, base, *run) for run in runs]
    return replace(job, members=sorted(views, key=lambda view: _natural(view.name)))


def short_of(pod: str) -> str:
    """The name of a pod without its namespace and the five letters that its controller has drawn: `train-3`."""
    name = pod.rpartition("/")[2]
    return name[:-6] if _DRAWN.fullmatch(name[-6:]) else name


def _is_of(pod: Pod, kind: str, name: str) -> bool:
    owned = any((owner.kind, owner.name) == (kind, name) for owner in pod.metadata.owners or ())
    return owned or (kind in ("JobSet", "TrainJob") and (pod.metadata.labels or {}).get(_OF_JOB_SET) == name)


def _view(name: str, pod: Pod, known: PodView | None) -> PodView:
    """A pod as the API server has it; one that goes on as the service has it, if that does."""
    index = _index(pod.annotations.get(COMPLETION_INDEX, ""))
    phase = pod.status.phase if pod.status is not None else ""
    if phase in ("Succeeded", "Failed"):
        end = outcome_of(pod)
        at = timestamp(end.at_s) if end.at_s is not None else ""
        said = exit_words(Ended(at=at, exit_code=end.exit_code, reason=end.evicted or end.reason))
        has_failed = phase == "Failed"
        return PodView(
            name=name, state="Failed" if has_failed else "Completed", node=pod.node, since=at, index=index, reason=said
        )
    if known is not None:
        return replace(known, index=index)
    started = (pod.status.started or "") if pod.status is not None and phase == "Running" else ""
    return PodView(
        name=name, state="Running" if phase == "Running" else "Waiting", node=pod.node, since=started, index=index
    )


def _not_there(
    kube: KubeClient, job: Job, namespace: str, name: str, there: set[str]
) -> Iterator[tuple[PodView, str, list[int]]]:
    """The pods of an indexed Job and of a JobSet that are not made yet, or are gone since they ended.

    As a row, the start of their names, and their indexes.
    """
    kind = find_kind(job.api_version, job.name.partition("/")[0])
    if kind is None or kind.kind not in ("Job", "JobSet"):
        return
    document = kube.get(path_of(job.api_version, kind.plural, namespace, name))
    waits = PodView(name="", state="Held" if job.state == "Held" else "Waiting", reason=TO_COME)
    if kind.kind == "JobSet":
        for of_jobs in (document["spec"].get("replicatedJobs") or ()) if job.ended is None else ():
            for number in range(of_jobs.get("replicas", 1)):
                one = f"{name}-{of_jobs['name']}-{number}"
                count = _count(of_jobs["template"]["spec"])
                yield waits, f"{namespace}/{one}", [at for at in range(count) if f"{one}-{at}" not in there]
    elif document["spec"].get("completionMode") == "Indexed":
        status: Mapping[str, Any] = document.get("status") or {}
        done, failed = (indexes_of(status.get(key) or "") for key in ("completedIndexes", "failedIndexes"))
        left = [at for at in range(_count(document["spec"])) if f"{name}-{at}" not in there]
        if job.ended is None:
            yield waits, f"{namespace}/{name}", [at for at in left if at not in done and at not in failed]
        gone = PodView(name="", state="Completed", reason="its pod is gone")
        yield gone, f"{namespace}/{name}", [at for at in left if at in done]


def _count(spec: Mapping[str, Any]) -> int:
    found = spec.get("completions")
    return int(spec.get("parallelism", 1) if found is None else found)


def _row(row: PodView, name: str, first: int, last: int) -> PodView:
    to = f" to {name.rpartition('/')[2]}-{last}" if last > first else ""
    return replace(row, name=f"{name}-{first}{to}", index=first)


def _runs(indexes: Iterable[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for index in indexes:
        if runs and runs[-1][1] == index - 1:
            runs[-1] = runs[-1][0], index
        else:
            runs.append((index, index))
    return runs


def _index(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part) if part.isdecimal() else 0, part) for part in _DIGITS.split(name)]
