"""How pods of other dialects are read: scheduler names, PriorityClasses, levels of the topology."""

import pytest

from hived_config.loader import load_text
from hived_config.rules import SCHEDULER_NAMES, Foreign, PodRules
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
