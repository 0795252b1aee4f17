"""Labels and annotations of job objects about queues."""

from collections.abc import Mapping

from hived_extender.jobs.annotations import PREFIX

QUEUE = PREFIX + "queue"
"""`"off"`: this job is in no queue. Also the name of the scheduling gate of held pods."""

HELD = PREFIX + "queue-held"
"""`"true"` on a job object that hived held at its creation, or whose kind has no `suspend`; removed at its start."""

GANG = PREFIX + "queue-gang"
"""On a plain pod whose gate was removed: its gang, `NAME/UID`."""

USER = PREFIX + "user"
"""The owner of a job, for limits per user."""

SUSPEND = "scheduling.x-k8s.io/suspend"
"""Kube Queue's annotation, set to `"true"` by the author of a job that is to be held."""

KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
"""Kueue's label: the job is in one of its queues."""

HOLD = PREFIX + "hold"
"""An annotation of pods that Kueue has started: the key of the cells held for their Workload."""

_OWNERS = (USER, "userName", "arena.kubeflow.org/username", "kubeflow.org/user")
"""Labels or annotations that name the owner of a job, ours first."""

PREEMPTIBLE = ("quota.scheduling.alibabacloud.com/preemptible", "quota.scheduling.koordinator.sh/preemptible")
"""Labels: `"false"` keeps a job off borrowed cells, as it may not be preempted."""


def may_queue(labels: Mapping[str, str], annotations: Mapping[str, str]) -> bool:
    """May a job be in a queue of ours, by its own marks?"""
    said = annotations.get(QUEUE, labels.get(QUEUE, ""))
    return said.strip().lower() != "off" and not labels.get(KUEUE_QUEUE)


def is_marked_held(annotations: Mapping[str, str]) -> bool:
    """Has hived marked a job as held, when it was created or suspended?"""
    return annotations.get(HELD) == "true"


def is_preemptible(labels: Mapping[str, str]) -> bool:
    """May a job be preempted on borrowed cells? Unless a label of quotas says no."""
    return all(labels.get(key, "true").strip().lower() != "false" for key in PREEMPTIBLE)


def user_of(labels: Mapping[str, str], annotations: Mapping[str, str], namespace: str) -> str:
    """The owner of a job: an annotation or a label, ours first, else its namespace."""
    said = (annotations.get(key) or labels.get(key) for key in _OWNERS)
    return next((name for name in said if name), namespace)
