"""The keys of queues: read, compared, and refused with their place."""

import pytest

from hived_config.compare import compare
from hived_config.document import ConfigError
from hived_config.loader import Configuration, load_text
from hived_config.rules import QueueOfVc, QueuePolicy

TEXT = """
physicalCluster:
  cellTypes: {NODE: {childCellType: GPU, childCellNumber: 8, isNodeLevel: true}}
  physicalCells: [{cellType: NODE, cellAddress: n1}]
virtualClusters:
  a:
    virtualCells: [{cellType: NODE, cellNumber: 1}]
"""


def read(extra: str, of_vc: str = "") -> Configuration:
    return load_text(TEXT + of_vc + extra, "file.yaml")


def test_jobs_wait_in_no_queues_by_default() -> None:
    assert not read("").rules.queueing.is_enabled


def test_the_keys_are_read() -> None:
    found = read(
        "queues: {enabled: true, policy: Block, halfLifeMinutes: 30, startMinutes: 5}\n",
        "    queue: {borrow: true, weight: 2, maxRunningPerUser: 3, maxWaitingPerUser: 40}\n",
    ).rules.queueing
    assert (found.is_enabled, found.policy, found.half_life_s) == (True, QueuePolicy.BLOCK, 1800.0)
    assert (found.start_s, read("").rules.queueing.start_s) == (300.0, 600.0)
    assert found.of("a") == QueueOfVc(borrows=True, weight=2.0, most_running=3, most_waiting=40)
    assert found.of("another") == QueueOfVc()


@pytest.mark.parametrize(
    ("extra", "of_vc", "named"),
    [
        ("queues: {policy: Fifo}\n", "", "hived or Priority or Block or Round"),
        ("queues: {enabled: perhaps}\n", "", "true or false"),
        ("queues: {startMinutes: 0}\n", "", "above 0"),
        ("", "    queue: {weight: 0}\n", "a weight above 0"),
        ("", "    queue: {maxRunningPerUser: 0}\n", "at least 1"),
        ("", "    queue: {borrows: true}\n", "borrow"),
    ],
)
def test_a_mistake_is_named_with_its_line(extra: str, of_vc: str, named: str) -> None:
    with pytest.raises(ConfigError) as error:
        read(extra, of_vc)
    assert named in str(error.value)
    assert "file.yaml:" in str(error.value)


def test_a_plan_names_changed_keys() -> None:
    changes = compare(read(""), read("queues: {enabled: true}\n", "    queue: {borrow: true}\n"))
    named = {change.key for change in changes.settings}
    assert "queues.enabled" in named
    assert "virtualClusters.a.queue" in named
