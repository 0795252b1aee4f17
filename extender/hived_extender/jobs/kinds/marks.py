"""Labels and annotations of job objects that say whether and how they are queued."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from hived_config.reader import closest
from hived_extender.jobs.annotations import PREFIX
from hived_extender.jobs.dialects import table
from hived_extender.jobs.quotas.tree import LABELS

LONGEST = 63
"""Characters of a word that are compared, and shown."""

QUEUE = PREFIX + "queue"
"""`"off"`: this job is in no queue. Also the name of the scheduling gate of pods that are held."""

HELD = PREFIX + "queue-held"
"""`"true"` on a job object that hived has held at its creation, or that is held although its kind has no `suspend`,
until hived takes the annotation away."""

GANG = PREFIX + "queue-gang"
"""On a plain pod whose gate was lifted: the gang that it waited with, `NAME/UID`."""

USER = PREFIX + "user"
"""The owner of a job, for limits per user."""

SUSPEND = "scheduling.x-k8s.io/suspend"
"""Kube Queue's annotation, `"true"` by the author of a job that is to be held."""

KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
"""Kueue's label: the job is in one of its queues."""

HOLD = PREFIX + "hold"
"""An annotation of pods that Kueue has started: the key of the cells that are held for their Workload."""

_OWNERS = (USER, "userName", "arena.kubeflow.org/username", "kubeflow.org/user")
"""Labels or annotations that name the owner of a job, ours first."""

PREEMPTIBLE = ("quota.scheduling.alibabacloud.com/preemptible", "quota.scheduling.koordinator.sh/preemptible")
"""Labels that say whether a job may be taken off borrowed cells."""


_KUBE_QUEUE = ("kube-queue", "koord-queue")
"""Prefixes of Kube Queue's words for other objects: no job object has one that counts."""

_OF_DIALECTS = frozenset(key.partition("/")[0] for key in table.KEYS)
"""Prefixes that are none of ours misspelt."""

ALIKE = 0.85
"""So much of the letters of two prefixes are the same if one is the other misspelt."""


def odd_words(labels: Mapping[str, str], annotations: Mapping[str, str], of_pods: Iterable[str]) -> list[str]:
    """Labels and annotations of a job object that mean nothing, and are nearly one that does: a sentence for each.

    `of_pods` are ours that count on pods. Those of others are left alone. Cost: a comparison with each of ours.
    """
    known, found = (QUEUE, USER, SUSPEND, KUEUE_QUEUE, *PREEMPTIBLE, *LABELS, *of_pods), []
    by_prefix: dict[str, list[str]] = {}
    for word in known:
        by_prefix.setdefault(word.partition("/")[0], []).append(word)
    for word in dict.fromkeys((*labels, *annotations)):
        prefix, slash, name = word.partition("/")
        if not slash or word in known or word in table.KEYS or word.startswith(f"{QUEUE}-"):  # hived's own begin so
            continue
        if prefix in _OF_DIALECTS and prefix not in by_prefix:
            continue
        like = get_close_matches(prefix[:LONGEST], by_prefix, n=1, cutoff=ALIKE)
        meant = known if prefix in _KUBE_QUEUE else by_prefix[like[0]] if like else ()
        names = {each.partition("/")[2]: each for each in reversed(meant)}
        if near := names.get(closest(name, names)):
            found.append(f"{word} means nothing, did you mean {near}?")
    for key in PREEMPTIBLE:
        if labels.get(key, "true").strip().lower() not in ("true", "false"):
            found.append(f'{key} is {labels[key][:LONGEST]!r}, and counts as "true": expected "true" or "false"')
    said = annotations.get(QUEUE, labels.get(QUEUE, "off"))
    if said.strip().lower() != "off":
        found.append(f'{QUEUE} is {said[:LONGEST]!r}, and only "off" counts; the label {LABELS[0]} names a quota')
    return found


def may_queue(labels: Mapping[str, str], annotations: Mapping[str, str]) -> bool:
    """May a job be in a queue of ours, as far as its own marks go?"""
    said = annotations.get(QUEUE, labels.get(QUEUE, ""))
    return said.strip().lower() != "off" and not labels.get(KUEUE_QUEUE)


def is_marked_held(annotations: Mapping[str, str]) -> bool:
    """Has hived marked a job as held, when it was created or called back?"""
    return annotations.get(HELD) == "true"


def is_preemptible(labels: Mapping[str, str]) -> bool:
    """May a job be taken off borrowed cells, as the labels of quotas say? Unless they say no."""
    return all(labels.get(key, "true").strip().lower() != "false" for key in PREEMPTIBLE)


def user_of(labels: Mapping[str, str], annotations: Mapping[str, str], namespace: str) -> str:
    """The owner of a job: an annotation or a label, ours first, else its namespace."""
    said = (annotations.get(key) or labels.get(key) for key in _OWNERS)
    return next((name for name in said if name), namespace)
