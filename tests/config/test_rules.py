"""How other pods are read, who may be moved, and how jobs wait in queues."""

import pytest

from hived_config.compare import compare
from hived_config.document import ConfigError
from hived_config.loader import Configuration, load_text
from hived_config.rules import SCHEDULER_NAMES, Budget, Foreign, Moving, PodRules, QueueOfVc, QueuePolicy
from tests.config.sound_file import SOUND, mistakes_of

A_NAME = "a name that pods have as schedulerName, such as hived or gpus-{vc}"
A_WORD = "occupy or ignore or refuse"
A_PRIORITY = "crit, prod, test, oppo, preemptible or a number from -1 to 1000"


def rules_of(more: str) -> PodRules:
    """The rules of the sound file with this line before it."""
    return load_text(f"{more}\n{SOUND}", "f", environ={}).rules


def test_without_a_word_nothing_is_assumed_of_a_cluster() -> None:
    assert rules_of("") == PodRules()


def test_a_name_stands_for_itself_or_for_each_virtual_cluster_in_lower_case() -> None:
    rules = rules_of("schedulerNames: [hived, 'gpus-{vc}']")
    served = [rules.serves(name, ["Research", "b"]) for name in ("hived", "gpus-research", "gpus-b", "gpus-{vc}", "x")]
    assert served == [True, True, True, False, False]


def test_by_default_the_names_of_hived_and_of_openpai_are_served() -> None:
    rules = rules_of("schedulerNames:")
    assert rules.scheduler_names == SCHEDULER_NAMES
    served = [rules.serves(name, ["a"]) for name in ("hived", "hived-a", "hivedscheduler-ds-a", "default-scheduler")]
    assert served == [True, True, True, False]


def test_priorities_are_numbers_or_words() -> None:
    rules = rules_of("priorityClasses: {urgent: 1000, batch: -1, spare: preemptible, web: prod, none: 0}")
    assert rules.priority_classes == {"urgent": 1000, "batch": -1, "spare": -1, "web": 100, "none": 0}


def test_levels_are_cell_types() -> None:
    assert rules_of("topologyLevels: {topology.kubernetes.io/zone: RACK, volcano-tier-1: NODE}").topology_levels == {
        "topology.kubernetes.io/zone": "RACK",
        "volcano-tier-1": "NODE",
    }


def test_foreign_use_of_devices_is_refused_unless_the_file_says_otherwise() -> None:
    rules = rules_of("foreignDevices: {nvidia.com/gpu: occupy}")
    assert (rules.foreign("nvidia.com/gpu"), rules.foreign("amd.com/gpu")) == (Foreign.OCCUPY, Foreign.REFUSE)


def test_a_resource_that_no_leaf_cell_means_is_warned_of() -> None:
    (warning,) = load_text(f"foreignDevices: {{nvidia.com/gpus: ignore}}\n{SOUND}", "f", environ={}).warnings
    assert str(warning).startswith(
        "f:1: warning: foreignDevices['nvidia.com/gpus']: found resource 'nvidia.com/gpus', expected the resource of a "
        "leaf cell type, or nothing follows from it (did you mean nvidia.com/gpu?)"
    )


@pytest.mark.parametrize(
    ("written", "mistake"),
    [
        ("schedulerNames: hived", "schedulerNames: found hived, expected a list of names"),
        ("schedulerNames: []", f"schedulerNames: found no name, expected {A_NAME}; leave the key out for hived, "
                               "hived-{vc}, hivedscheduler-ds-{vc}"),
        ("schedulerNames: ['']", f"schedulerNames[0]: found the text '', expected {A_NAME}"),
        ("schedulerNames: [~]", f"schedulerNames[0]: found nothing, expected {A_NAME}"),
        ("schedulerNames: ['gpus-{VC}']", f"schedulerNames[0]: found the text 'gpus-{{VC}}', expected {A_NAME}"),
        ("priorityClasses: 5", "priorityClasses: found 5, expected priorities by the name of a PriorityClass"),
        ("priorityClasses: {a: high}", f"priorityClasses.a: found high, expected {A_PRIORITY}"),
        ("priorityClasses: {a: 1001}", f"priorityClasses.a: found 1001, expected {A_PRIORITY}"),
        ("priorityClasses: {a: -2}", f"priorityClasses.a: found -2, expected {A_PRIORITY}"),
        ("priorityClasses: {a: 5, a: 6}", "priorityClasses.a: found 'a' given twice (first on line 1), expected each "
                                          "key once"),
        ("topologyLevels: [a]", "topologyLevels: found a list, expected cell types by what a level is called"),
        ("topologyLevels: {a: RAK}", "topologyLevels.a: found cell type 'RAK', expected a cell type of cellTypes (did "
                                     "you mean RACK?)"),
        ("topologyLevels: {a: GPU}", "topologyLevels.a: found cell type 'GPU', expected a cell type of cellTypes"),
        ("topologyLevels: {a: [RACK]}", "topologyLevels.a: found a list, expected a cell type of cellTypes"),
        ("foreignDevices: ignore", "foreignDevices: found ignore, expected occupy or ignore or refuse by device"),
        ("foreignDevices: {nvidia.com/gpu: gone}", f"foreignDevices['nvidia.com/gpu']: found gone, expected {A_WORD}"),
        ("foreignDevices: {nvidia.com/gpu: }", f"foreignDevices['nvidia.com/gpu']: found nothing, expected {A_WORD}"),
        ("foreignDevices: {nvidia.com/gpu: ignore, nvidia.com/gpu: ignore}", "foreignDevices['nvidia.com/gpu']: "),
        ("priorityClass: {}", "priorityClass: found unknown key 'priorityClass', expected one of physicalCluster"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_a_mistake(written: str, mistake: str) -> None:
    (found,) = mistakes_of(f"{written}\n{SOUND}")
    assert found.startswith(f"f:1: {mistake}")


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
