"""A small storm, and that the checks it relies on can fail. The large one: `make storm`."""

from copy import deepcopy
from typing import Any

import pytest

from tests.property.choices import Choices, Seeded
from tests.storm.busy_cluster import BusyCluster
from tests.storm.changes import CHANGES, Make, changed
from tests.storm.documents import first_document, fitted, loads, text_of
from tests.storm.mistakes import SPOILS, Spoil
from tests.storm.rules import Broken, check_untouched, places
from tests.storm.storm import Storm
from tests.storm.switch_recorder import verdict_of

SEED = 7
VALID, INVALID = 4, 10


@pytest.mark.long
def test_pushes_under_load_do_what_was_planned_and_refused_ones_change_nothing() -> None:
    with BusyCluster.running(SEED) as busy:
        storm = Storm(busy, SEED)
        storm.push_valid(VALID)
        storm.push_invalid(INVALID)
    assert (storm.tally.pushed, storm.tally.refused.total()) == (VALID, INVALID)
    assert storm.tally.untouched > 0
    assert len(busy.switches.waited_s) >= VALID


def test_the_same_seed_makes_the_same_documents() -> None:
    def draw(seed: int) -> str:
        choices, document = Choices(Seeded(seed)), first_document()
        for _ in range(5):
            document = changed(choices, document)
        return text_of(document)

    assert draw(1) == draw(1) != draw(2)


@pytest.mark.sample(6)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__.strip("_"))
def test_every_change_leaves_a_sound_document(change: Make) -> None:
    choices = Choices(Seeded(1))
    for _ in range(5):
        document = deepcopy(first_document())
        change(choices, document)
        sound = fitted(choices, document)
        assert sound is not None
        assert loads(text_of(sound))


@pytest.mark.parametrize("spoil", SPOILS, ids=lambda spoil: spoil.__name__.strip("_"))
def test_every_mistake_spoils_the_first_document(spoil: Spoil) -> None:
    choices = Choices(Seeded(1))
    assert not all(loads(spoil(choices, first_document())) for _ in range(20))


def pod(name: str, node: str, devices: str) -> dict[str, Any]:
    notes = {"hivedscheduler.microsoft.com/pod-leaf-cell-isolation": devices}
    return {"metadata": {"name": name, "uid": name, "annotations": notes}, "spec": {"nodeName": node}, "status": {}}


def test_a_device_of_two_pods_is_found() -> None:
    assert places([pod("a", "n", "0,1"), pod("b", "n", "2"), pod("c", "m", "0")])["a"] == ("n", (0, 1))
    with pytest.raises(Broken, match="device 1 of n is given to a and to b"):
        places([pod("a", "n", "0,1"), pod("b", "n", "1")])


def test_a_pod_that_is_gone_or_elsewhere_is_found_unless_that_is_explained() -> None:
    before = places([pod("a", "n", "0")])
    assert check_untouched(before, [pod("a", "n", "0")], ()) == 1
    assert check_untouched(before, [], ("a",)) == 0
    with pytest.raises(Broken, match="is gone"):
        check_untouched(before, [], ())
    with pytest.raises(Broken, match="is on m now"):
        check_untouched(before, [pod("a", "m", "0")], ())


def group(*devices: int, state: str = "Allocated", has_place: bool = True, priority: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = {"state": state, "priority": priority}
    found |= {"physicalPlacement": {"n": list(devices)}} if devices else {}
    return found | ({"virtualPlacement": {"a": ["0"]}} if has_place else {})


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        (group(0), group(0), ""),
        (group(0), None, "unaccounted"),
        (group(0, 1), group(0), "partlyUnaccounted"),
        (group(0), group(0, has_place=False), "lazilyPreempted"),
        (group(0, has_place=False), group(0), "restored"),
        (group(has_place=False), group(0), "restored"),
        (group(0, has_place=False, priority=-1), group(0, has_place=False, priority=-1), ""),
        (group(0, state="Preempting"), None, "preemptionCancelled"),
        (group(0, state="Preempting"), group(0, state="Preempting"), ""),
    ],
)
def test_what_became_of_a_group_is_seen_from_its_status(before: Any, after: Any, verdict: str) -> None:
    assert verdict_of(before, after) == verdict
