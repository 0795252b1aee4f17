"""Readers of long answers: others are served in between."""

from tests.extender.service.small_cluster import SmallCluster


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


def test_a_group_that_has_gone_meanwhile_is_left_out() -> None:
    small = SmallCluster()
    pod, _ = small.place("p")
    groups = small.service.reader.sliced_affinity_groups()
    small.service.pod_gone(pod["metadata"]["uid"])
    assert list(groups) == []
