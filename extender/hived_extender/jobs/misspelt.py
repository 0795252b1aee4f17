"""Labels and annotations of a job object that mean nothing there: misspelt, or of its pods alone."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from hived_config.reader import closest
from hived_extender.jobs.annotations import BIND_INFO, LEAF_CELL_ISOLATION, OLD_LEAF_CELL_ISOLATION, SCHEDULING_SPEC
from hived_extender.jobs.asks import LEAF_CELL_TYPE, PINNED_CELL, PRIORITY, VIRTUAL_CLUSTER
from hived_extender.jobs.job import Job
from hived_extender.jobs.kinds import marks
from hived_extender.jobs.kinds.own import TASK, TASK_MINIMUMS, WITHIN_CELL
from hived_extender.jobs.kinds.table import KEYS
from hived_extender.jobs.progress import CHECKPOINTED_AT, EXPECTED_DURATION, MAY_MOVE
from hived_extender.jobs.quotas.tree import LABELS
from hived_extender.jobs.wire import Pod

_ASKED = (VIRTUAL_CLUSTER, PRIORITY, LEAF_CELL_TYPE, PINNED_CELL)
OF_PODS = (
    *_ASKED,
    *(SCHEDULING_SPEC, LEAF_CELL_ISOLATION, OLD_LEAF_CELL_ISOLATION, BIND_INFO),
    *(WITHIN_CELL, TASK, TASK_MINIMUMS, EXPECTED_DURATION, CHECKPOINTED_AT, MAY_MOVE),
)
"""Words of ours that count on pods."""

LONGEST = 63
"""Characters of a word that are compared, and shown."""

_KUBE_QUEUE = ("kube-queue", "koord-queue")
"""Prefixes of Kube Queue's words for other objects: no job object has one that counts."""

_OF_DIALECTS = frozenset(key.partition("/")[0] for key in KEYS)
"""Prefixes that are none of ours misspelt."""

ALIKE = 0.85
"""So much of the letters of two prefixes are the same if one is the other misspelt."""


def misplaced(job: Job, pods: Iterable[Pod]) -> str:
    """A warning about annotations that count on the pods alone, which lack them, or are misspelt; "" for none."""
    on_pods = {name for pod in pods for name in pod.annotations}
    found = [name for name in _ASKED if name in job.annotations and name not in on_pods]
    moved = f"it is annotated {' and '.join(found)}, which counts on its pods alone: move it to their template"
    return "; ".join([*([moved] if found else []), *odd_words(job.labels, job.annotations, _ASKED)])


_KNOWN = marks.QUEUE, marks.USER, marks.BEGIN, marks.AFTER, marks.SUSPEND, marks.KUEUE_QUEUE


def odd_words(labels: Mapping[str, str], annotations: Mapping[str, str], of_pods: Iterable[str]) -> list[str]:
    """Labels and annotations of a job object that mean nothing, and are nearly one that does: a sentence for each.

    `of_pods` are ours that count on pods. Those of others are left alone. Cost: a comparison with each of ours.
    """
    known, found = (
        (*_KNOWN, *marks.PREEMPTIBLE, *LABELS, *of_pods),
        [],
    )
    by_prefix: dict[str, list[str]] = {}
    for word in known:
        by_prefix.setdefault(word.partition("/")[0], []).append(word)
    for word in dict.fromkeys((*labels, *annotations)):
        prefix, slash, name = word.partition("/")
        if not slash or word in known or word in KEYS or word.startswith(f"{marks.QUEUE}-"):  # hived's own begin so
            continue
        if prefix in _OF_DIALECTS and prefix not in by_prefix:
            continue
        like = get_close_matches(prefix[:LONGEST], by_prefix, n=1, cutoff=ALIKE)
        meant = known if prefix in _KUBE_QUEUE else by_prefix[like[0]] if like else ()
        names = {each.partition("/")[2]: each for each in reversed(meant)}
        if near := names.get(closest(name, names)):
            found.append(f"{word} means nothing, did you mean {near}?")
    for key in marks.PREEMPTIBLE:
        if labels.get(key, "true").strip().lower() not in ("true", "false"):
            found.append(f'{key} is {labels[key][:LONGEST]!r}, and counts as "true": expected "true" or "false"')
    said = annotations.get(marks.QUEUE, labels.get(marks.QUEUE, "off"))
    if said.strip().lower() != "off":
        found.append(f'{marks.QUEUE} is {said[:LONGEST]!r}, and only "off" counts; the label {LABELS[0]} names a quota')
    return found
