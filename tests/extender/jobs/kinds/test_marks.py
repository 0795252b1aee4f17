"""Marks of job objects: which words are taken for misspelt ones."""

import pytest

from hived_extender.jobs.kinds.table import KEYS
from hived_extender.jobs.misspelt import odd_words

OTHERS = (
    "pod-group.scheduling.sigs.k8s.io", "gang.scheduling.koordinator.sh/network-topology-spec",
    "scheduling.volcano.sh/queue-names", "kueue.x-k8s.io/priority-class", "volcano.sh/job-name",
    "scheduling.koordinator.sh/priority", "koordinator.sh/qosClass", "kai.scheduler/queue-name",
    "yunikorn.apache.org/app-id", "yunikorn.apache.org/queue", "batch.kubernetes.io/job-name",
    "pod-group.scheduling.sigs.k8s.io/annotations", "scheduling.k8s.io/group-names",
)  # fmt: skip
"""Words that other schedulers and controllers write, beside those of dialects."""


@pytest.mark.parametrize("word", [*sorted(KEYS), *OTHERS])
def test_a_word_of_another_scheduler_is_not_taken_for_a_misspelt_one_of_ours(word: str) -> None:
    assert odd_words({word: "1"}, {}, ()) == []
    assert odd_words({}, {word: "1"}, ()) == []


@pytest.mark.parametrize("said", ["no", "0", ""])
def test_a_label_that_is_neither_true_nor_false_is_told(said: str) -> None:
    key = "quota.scheduling.koordinator.sh/preemptible"
    assert odd_words({key: said}, {}, ()) == [f'{key} is {said!r}, and counts as "true": expected "true" or "false"']
    assert odd_words({key: "False"}, {}, ()) == odd_words({key: "true"}, {}, ()) == []


def test_a_prefix_that_is_nearly_ours_still_is_a_mistake() -> None:
    (said,) = odd_words({"quota.scheduling.koordinators.sh/name": "a"}, {}, ())
    assert said.endswith("did you mean quota.scheduling.koordinator.sh/name?")
