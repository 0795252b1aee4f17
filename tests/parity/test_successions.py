"""Recorded reconfigurations in the way of a push, record by record: the same state, and the verdicts that it means.

A push takes pods by falling priority, the records in an order of chance. Where cells or places are short, that decides
who gets them; so in its own order only that is compared which does not depend on it. README.md says how much differs.
"""

from pathlib import Path

import pytest

from hived.life.status import snapshot
from hived_extender.machine.recording.replay import Json
from tests import places
from tests.parity.replays import scenario_names
from tests.parity.successions import Restarted, recorded_verdicts, restarts, told_verdicts

RECORDED = Path(__file__).parent / "recorded"
SHARED = places.SHARED / "parity"
FOLDERS = [SHARED, SHARED / "robust"] if SHARED.is_dir() else [RECORDED]
"""The recorded decisions here are a part of those in the shared folder."""


def names(folder: Path) -> list[str]:
    """The scenarios with a restart."""
    files = {name: folder / "scenarios" / f"{name}.jsonl" for name in scenario_names(folder)}
    return [name for name, file in files.items() if '"op":"restart"' in file.read_text()]


SCENARIOS = [pytest.param(folder, name, id=f"{folder.name}-{name}") for folder in FOLDERS for name in names(folder)]


@pytest.mark.sample(6)
@pytest.mark.parametrize(("folder", "name"), SCENARIOS)
def test_a_push_does_what_was_recorded(folder: Path, name: str) -> None:
    for restarted in restarts(folder, name):
        check_the_same_is_there(restarted)
        check_its_own_order_changes_only_who_gets_what_is_short(restarted)


def check_the_same_is_there(restarted: Restarted) -> None:
    successor = restarted.in_recorded_order()
    successor.check()
    where = f"record {restarted.number}"
    assert set(successor.unaccounted) == restarted.refused, where
    for found, expected in zip(snapshot(successor.core.state), restarted.after, strict=True):
        assert found == expected, where
    assert told_verdicts(restarted, successor) == recorded_verdicts(restarted), where


def check_its_own_order_changes_only_who_gets_what_is_short(restarted: Restarted) -> None:
    successor = restarted.at_once()
    successor.check()
    expected, found = restarted.after[2], snapshot(successor.core.state)[2]
    where = f"record {restarted.number}"
    assert found.keys() == expected.keys(), where
    assert cells(found) == cells(expected), where
    won = [name for name in found if found[name]["virtual"] and not expected[name]["virtual"]]
    for each in found:
        if expected[each]["virtual"] and not found[each]["virtual"]:
            assert any(is_ahead(found[other], found[each]) for other in won), f"{where}: {each}"


def is_ahead(one: Json, other: Json) -> bool:
    """Whether a group gets a place before another one."""
    return bool(one["vc"] == other["vc"] and one["priority"] >= other["priority"])


def cells(groups: dict[str, Json]) -> dict[str, Json]:
    """Where groups run: their accounted leaf cells and pods, and what they asked for."""
    keys = ("physical", "allocated", "preempting", "priority", "state", "vc")
    return {name: {key: group[key] for key in keys} for name, group in groups.items()}
