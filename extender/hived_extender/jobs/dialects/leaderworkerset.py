"""LeaderWorkerSets: their pods name no gang, but keys of theirs are about placement. This is no dialect."""

from hived_extender.jobs.dialects.vocabulary import ANNOTATIONS, EITHER, ignores

NAME = "LeaderWorkerSet"
VOCABULARY = (
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
)
