"""Projects whose pods name no gang by keys of their own, but have keys about placement.

Pods of a Grove PodGang wait unless a dialect names their gang: its PodGangs are not read.
"""

from collections.abc import Mapping

from hived_extender.jobs.kinds.kind import ANNOTATIONS, EITHER, LABELS, Dialect, Source, ignores, refuses, without_gang
from hived_extender.jobs.wire import Owner

SET_NAME = "leaderworkerset.sigs.k8s.io/name"


SPARK_NAME = "sparkoperator.k8s.io/app-name"

SPARK_SELECTOR = "spark-app-selector"
"""Spark's own label of a driver and its executors: the id of the application."""


def maker_of(labels: Mapping[str, str], owner: Owner) -> tuple[str, str, str] | None:
    """Group, kind and name of what made the owner of a pod, where the pod's labels say it; else None.

    That is a LeaderWorkerSet for StatefulSets: the leaders' has the name of the set, and those of the workers begin
    with it. It is a SparkApplication for its driver, which owns the executors.
    """
    name, application = labels.get(SET_NAME, ""), labels.get(SPARK_NAME, "")
    if name and owner.kind == "StatefulSet" and f"{owner.name}-".startswith(f"{name}-"):
        return "leaderworkerset.x-k8s.io", "LeaderWorkerSet", name
    if application and owner.kind == "Pod" and owner.name.startswith(f"{application}-"):
        return "sparkoperator.k8s.io", "SparkApplication", application
    return None


LEADER_WORKER_SET = Dialect(
    "LeaderWorkerSet",
    (
        *ignores(
            ANNOTATIONS,
            "its webhook writes affinities to pods, which kube-scheduler keeps",
            "leaderworkerset.sigs.k8s.io/exclusive-topology",
            "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology",
        ),
        *ignores(
            EITHER,
            "names that its controller gives",
            SET_NAME,
            "leaderworkerset.sigs.k8s.io/group-index",
            "leaderworkerset.sigs.k8s.io/group-key",
            "leaderworkerset.sigs.k8s.io/worker-index",
            "leaderworkerset.sigs.k8s.io/size",
            "leaderworkerset.sigs.k8s.io/leader-name",
            "leaderworkerset.sigs.k8s.io/subgroup-index",
            "leaderworkerset.sigs.k8s.io/subgroup-key",
            "leaderworkerset.sigs.k8s.io/subgroup-size",
            "leaderworkerset.sigs.k8s.io/subgroup-policy-type",
            "leaderworkerset.sigs.k8s.io/template-revision-hash",
        ),
    ),
)
GROVE = Dialect(
    "Grove",
    (
        *refuses(LABELS, "a PodGang, and no dialect names its gang", "grove.io/podgang", when=without_gang),
        *ignores(
            LABELS,
            "names that its operator gives",
            "grove.io/base-podgang",
            "grove.io/podclique",
            "grove.io/podclique-pod-index",
            "grove.io/podcliqueset-replica-index",
            "grove.io/podcliquescalinggroup",
            "grove.io/podcliquescalinggroup-replica-index",
            "grove.io/pod-template-hash",
        ),
    ),
)
SPARK = Dialect("Spark", (*ignores(LABELS, "the name that its operator gives: lists show it", SPARK_NAME),))
SOURCE = Source(dialects=(LEADER_WORKER_SET, GROVE, SPARK))
