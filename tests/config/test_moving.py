"""`movable` and `defrag` of a virtual cluster: values, defaults and mistakes."""

from hived_config.document import ConfigError
from hived_config.loader import load_text
from hived_config.rules import Budget, Moving

CONFIG = """\
physicalCluster:
  cellTypes:
    NODE: {{childCellType: GPU, childCellNumber: 4, isNodeLevel: true}}
  physicalCells:
  - {{cellType: NODE, cellAddress: n0}}
virtualClusters:
  a:
    virtualCells: [{{cellType: NODE, cellNumber: 1}}]
{keys}
"""


def moving_of(keys: str) -> Moving:
    text = CONFIG.format(keys="\n".join(f"    {line}" for line in keys.splitlines()))
    return load_text(text, "a.yaml", environ={}).rules.moving


def mistakes_in(keys: str) -> list[str]:
    try:
        moving_of(keys)
    except ConfigError as error:
        return [str(each) for each in error.mistakes]
    return []


def test_nobody_is_moved_by_default() -> None:
    assert moving_of("") == Moving()


def test_a_virtual_cluster_may_be_movable() -> None:
    assert moving_of("movable: true") == Moving(frozenset({"a"}))


def test_a_budget_is_by_the_hour() -> None:
    assert moving_of("defrag: {maxGpuHours: 2.5}") == Moving(automatic={"a": Budget(2.5)})
    assert moving_of("defrag: {maxGpuHours: 0, maxGroups: 3}") == Moving(automatic={"a": Budget(0.0, 3)})


def test_mistakes_say_the_line_and_what_is_expected() -> None:
    assert mistakes_in("defrag: {maxGroups: 3}") == [
        "a.yaml:9: virtualClusters.a.defrag: found no maxGpuHours, expected a number of GPU-hours"
    ]
    assert "expected a number of GPU-hours" in mistakes_in("defrag: {maxGpuHours: -1}")[0]
    assert "at least 1" in mistakes_in("defrag: {maxGpuHours: 1, maxGroups: 0}")[0]
    assert "unknown key" in mistakes_in("defrag: {maxGpuHours: 1, hours: 2}")[0]
    assert mistakes_in("movable: often")[0].startswith("a.yaml:9: virtualClusters.a.movable: found often")


def test_a_key_without_a_value_is_a_mistake() -> None:
    for key, expected in (
        ("movable", "true or false"),
        ("combine", "true or false"),
        ("sparing", "true or false"),
        ("defrag", "how much room may be made by moving (a mapping)"),
    ):
        (told,) = mistakes_in(f"{key}:")
        assert told == f"a.yaml:9: virtualClusters.a.{key}: found nothing, expected {expected}"
    assert "maxGroups: found nothing" in mistakes_in("defrag: {maxGpuHours: 1, maxGroups: }")[0]
