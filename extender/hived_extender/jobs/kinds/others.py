"""Projects whose pods name no gang by keys of their own, but have keys about placement.

Pods of a Grove PodGang wait unless a dialect names their gang: its PodGangs are not read.
"""

from hived_extender.jobs.kinds.kind import ANNOTATIONS, EITHER, LABELS, Dialect, Source, ignores, refuses, without_gang

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
            "leaderworkerset.sigs.k8s.io/name",
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
SOURCE = Source(dialects=(LEADER_WORKER_SET, GROVE))
