"""Pods that name our scheduler and ask hived for nothing: no devices, no gang. kube-scheduler places them.

They are kept for lists and answers alone, so that a job of such pods is a job there too.
"""

from collections.abc import Iterator

import msgspec

from hived_extender.jobs.job import JobName
from hived_extender.jobs.kinds.gangs import gang_of
from hived_extender.jobs.kinds.marks import user_said
from hived_extender.jobs.wire import Pod
from hived_extender.kube.answers import is_older
from hived_extender.machine.pods import PodName, Seen


class PlainPod(msgspec.Struct, frozen=True):
    """One of them. `owner` is its job object, `reason` why kube-scheduler has found no node, in its words.

    `unit` is the gang as which it queues, by our gate (rule 24.12).
    """

    named: PodName
    seen: Seen
    node: str
    started: str
    owner: JobName | None
    user: str
    labels: dict[str, str]
    reason: str = ""
    unit: JobName | None = None


class PlainPods:
    """By uid. Not thread-safe."""

    def __init__(self) -> None:
        self._pods: dict[str, PlainPod] = {}

    def __iter__(self) -> Iterator[PlainPod]:
        return iter(self._pods.values())

    def uids(self) -> tuple[str, ...]:
        """All pods."""
        return tuple(self._pods)

    def seen(self, pod: Pod, owner: JobName | None, *, is_listed: bool) -> None:
        """A pod looks like this now, or did before: a listing is never late."""
        meta = pod.metadata
        known = self._pods.get(meta.uid)
        if known is not None and not is_listed and is_older(meta.version, known.seen.version):
            return
        if pod.is_over:
            self.gone(meta.uid)
            return
        scheduled = pod.condition("PodScheduled")
        self._pods[meta.uid] = PlainPod(
            PodName(meta.uid, meta.namespace, meta.name),
            Seen.of(pod),
            pod.node,
            (pod.status.started if pod.status is not None else "") or "",
            owner,
            user_said(pod.labels, pod.annotations),
            dict(pod.labels),
            "" if scheduled is None or pod.node else scheduled.message or "",
            gang_of(pod),
        )

    def gone(self, uid: str) -> None:
        """A pod was deleted, has ended, or is one of ours by now."""
        self._pods.pop(uid, None)
