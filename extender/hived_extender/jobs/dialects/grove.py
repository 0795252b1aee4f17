"""Grove: its PodGangs are not read. Pods of one wait unless a dialect names their gang. This is none itself."""

from hived_extender.jobs.dialects.vocabulary import LABELS, ignores, refuses, without_gang

NAME = "Grove"
VOCABULARY = (
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
)
