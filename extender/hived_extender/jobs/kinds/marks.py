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

BEGIN = PREFIX + "begin"
"""The moment from which on a job may start, in RFC 3339; see `jobs.starts`."""

AFTER = PREFIX + "after"
"""The jobs that have to end before a job may start, such as `afterok:Job.batch/prepare`; see `jobs.starts`."""

USER_LABEL = "userName"
"""OpenPAI's label of pods that names it."""

JOB_LABEL = "jobName"
"""OpenPAI's label of pods that names their job."""

OPENPAI = (USER_LABEL, JOB_LABEL, "taskRole")
"""The labels that all of OpenPAI's pods have."""

SUSPEND = "scheduling.x-k8s.io/suspend"
"""Kube Queue's annotation, set to `"true"` by the author of a job that is to be held."""

KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
"""Kueue's label: the job is in one of its queues."""

HOLD = PREFIX + "hold"
"""An annotation of pods that Kueue has started: the key of the cells held for their Workload."""

SUBMITTED = PREFIX + "job"
"""Label of all that `hived submit` has made of a job: its name."""

SUBMITTED_KIND = PREFIX + "job-kind"
"""Label of such pods, and of the record of their job: its kind. No other ConfigMap has it."""

RECORD = "hived-job-"
"""The beginning of the name of a record, a ConfigMap, which owns what was made of the job."""

_OWNERS = (USER, USER_LABEL, "arena.kubeflow.org/username", "kubeflow.org/user")
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


def user_said(labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """The owner of a job or a pod by an annotation or a label, ours first; "" if none says so."""
    said = (annotations.get(key) or labels.get(key) for key in _OWNERS)
    return next((name for name in said if name), "")


def user_of(labels: Mapping[str, str], annotations: Mapping[str, str], namespace: str) -> str:
    """The same for limits per user: its namespace if nothing says so."""
    return user_said(labels, annotations) or namespace
