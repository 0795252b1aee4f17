"""Readers of long answers: others are served in between."""

import pytest

from hived.values.specs import Rules
from hived_config.loader import load_text
from hived_config.settings import NAMES
from tests.extender.machine.small_cluster import CONFIG, SmallCluster


def test_groups_are_not_waited_for_while_others_are_served() -> None:
    small = SmallCluster()
    small.place("p")
    groups = small.service.reader.sliced_affinity_groups()
    with small.service.runner.look():
        assert next(groups) is None


def test_a_group_is_told_of_once_others_have_been_served() -> None:
    small = SmallCluster()
    small.place("p")
    groups = small.service.reader.sliced_affinity_groups()
    with small.service.runner.look():
        next(groups)
    assert [group["status"]["state"] for group in groups if group] == ["Allocated"]


@pytest.mark.parametrize("rules", Rules)
def test_the_rules_of_the_present_state_are_told(rules: Rules) -> None:
    small = SmallCluster(spec=load_text(f"rules: {NAMES[rules]}\n{CONFIG}", "f", environ={}).cluster)
    assert small.service.reader.rules() is rules


def test_a_group_that_has_gone_meanwhile_is_left_out() -> None:
    small = SmallCluster()
    pod, _ = small.place("p")
    groups = small.service.reader.sliced_affinity_groups()
    small.service.pod_gone(pod["metadata"]["uid"])
    assert list(groups) == []
