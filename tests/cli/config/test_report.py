"""How a report is drawn: what matters most comes first, and long lists are shortened."""

import re
from typing import Any

import click
import msgspec
import pytest

from hived_cli.config.report import VERDICTS, WAITING_VERDICTS, draw
from hived_extender.api.configuration import ConfigReport
from tests.cli.config.config_service import hit

NOTHING: dict[str, list[Any]] = {"added": [], "removed": [], "changed": []}


def report(**parts: Any) -> dict[str, Any]:
    changes = {
        "nodes": NOTHING, "cellTypes": NOTHING, "cells": [], "pinnedCells": NOTHING, "virtualClusters": NOTHING,
        "shapes": [], "settings": [],
    } | parts.pop("changes", {})  # fmt: skip
    return {
        "baseVersion": 7, "identical": False, "refusals": [], "warnings": [], "changes": changes,
        "groups": {"unaffected": 120, "affected": []}, "waiting": [], "affectsRunning": False,
        "needsAllowDowngrade": False,
    } | parts  # fmt: skip


def drawn(full: bool = False, **parts: Any) -> list[str]:
    return click.unstyle(draw(msgspec.convert(report(**parts), ConfigReport), full=full)).splitlines()


def test_what_means_the_same_changes_nothing() -> None:
    assert drawn(identical=True) == ["identical: nothing changes against version 7"]


def test_a_job_that_names_no_virtual_cluster_has_no_priority_in_one() -> None:
    jobs = [{"name": "Job/default/intruder", "pods": ["default/intruder-x"], "verdict": "unaccounted"}]
    text = "\n".join(drawn(groups={"unaffected": 0, "affected": jobs}))
    assert "Job/default/intruder (without virtual cluster, 1 pod)" in text


def test_a_refusal_is_all_there_is_to_say() -> None:
    assert drawn(
        refusals=["f:3: found 0", "f:9: found 1"], changes={"cells": [{"cellType": "A", "old": 1, "new": 2}]}
    ) == [
        "Refused",
        "  f:3: found 0",
        "  f:9: found 1",
    ]


def test_everything_is_drawn_with_the_most_important_first() -> None:
    changes = {
        "nodes": {"added": ["n3"], "removed": ["n1", "n2"], "changed": [
            {"node": "n4", "what": "moved to r1, formerly r0"}, {"node": "n5", "what": "devices 0-3, formerly 0-7"},
            {"node": "n6", "what": "moved to r1, formerly r0"},
        ]},
        "cellTypes": NOTHING | {"changed": [{"cellType": "A", "what": "childCellNumber 2, formerly 4"}]},
        "cells": [{"cellType": "RACK", "old": 4096, "new": 4095}, {"cellType": "NODE", "old": 0, "new": 2}],
        "pinnedCells": {"added": ["p"], "removed": [], "changed": ["q"]},
        "virtualClusters": {"added": ["c"], "removed": ["b"], "changed": ["a"]},
        "shapes": [
            {"vc": "c", "cellType": "RACK", "old": 0, "new": 1},
            {"vc": "a", "cellType": "RACK", "old": 2, "new": 1},
            {"vc": "a", "cellType": "RACK.NODE", "old": 4, "new": 2},
        ],
        "settings": [
            {"key": "webServerAddress", "old": ":9096", "new": ":9097", "needsRestart": True},
            {"key": "priorityClasses.high", "old": None, "new": 5, "needsRestart": False},
        ],
    }  # fmt: skip
    affected = [
        hit("ns/back", "restored", ""),
        hit("ns/late"),
        hit("ns/gone", "unaccounted", "node n1 is not configured any more"),
        hit("ns/new", "somethingNew"),
    ]
    affected[1]["priority"] = -1
    waiting = [
        hit("ns/w", "waits", "no room"),
        hit("ns/could", "couldStart", ""),
        hit("ns/never", "neverStarts", "too large"),
    ]
    assert drawn(
        changes=changes, groups={"unaffected": 1200, "affected": affected}, waiting=waiting, affectsRunning=True,
        needsAllowDowngrade=True, refusals=["give leave"], warnings=["f:1: warning: odd"],
    ) == [
        "Needs --allow-downgrade",
        "  give leave",
        "Running work: 3 of 1,204 jobs affected",
        "  1 job somethingNew:",
        "    ns/new (a, priority 5, 2 pods): a has 1 NODE instead of 2",
        "  1 job no longer accounted for, running on, with no cell that is configured any more:",
        "    ns/gone (a, priority 5, 2 pods): node n1 is not configured any more",
        "  1 job lazily preempted, running on as opportunistic work that any guaranteed job may preempt:",
        "    ns/late (a, opportunistic, 2 pods): a has 1 NODE instead of 2",
        "  1 job back in the guaranteed place in the virtual cluster:",
        "    ns/back (a, priority 5, 2 pods)",
        "Changes against version 7",
        "  nodes removed: n1, n2",
        "  nodes added: n3",
        "  nodes changed: 3",
        "    n4, n6: moved to r1, formerly r0",
        "    n5: devices 0-3, formerly 0-7",
        "  cell types changed: 1",
        "    A: childCellNumber 2, formerly 4",
        "  pinned cells added: p",
        "  pinned cells changed: q",
        "  virtual clusters removed: b",
        "  virtual clusters added: c",
        "  virtual clusters changed: a",
        "  cells: RACK 4,096 -> 4,095 (-1), NODE 0 -> 2 (+2)",
        "  guaranteed:",
        "    a, RACK: RACK 2 -> 1, NODE 4 -> 2",
        "    c, RACK: RACK 0 -> 1",
        "  settings:",
        '    webServerAddress: ":9096" -> ":9097", once the service is started again',
        "    priorityClasses.high: none -> 5",
        "Waiting jobs: 3",
        "  1 job that can never start:",
        "    ns/never (a, priority 5, 2 pods): too large",
        "  1 job that could start:",
        "    ns/could (a, priority 5, 2 pods)",
        "  1 job still waiting",
        "Warnings",
        "  f:1: warning: odd",
    ]  # fmt: skip


def test_running_work_that_is_left_alone_is_counted() -> None:
    lines = drawn(changes={"cells": [{"cellType": "A", "old": 1, "new": 2}]})
    assert lines[0] == "Running work: not affected (120 jobs)"


def test_a_recorded_run_has_no_version() -> None:
    affected = {"unaffected": 1, "affected": [hit("g")]}
    lines = drawn(baseVersion=0, groups=affected, affectsRunning=True, needsAllowDowngrade=True)
    assert "  Some of these jobs are guaranteed their cells and would run on without that guarantee." in lines
    assert lines[-2:] == ["Changes", "  none"]
    assert drawn(baseVersion=0, identical=True) == ["identical: nothing changes"]


def test_who_only_gets_something_back_is_not_affected() -> None:
    lines = drawn(groups={"unaffected": 1, "affected": [hit("g", "restored", "")]})
    assert lines[:3] == [
        "Running work: not affected (2 jobs)",
        "  1 job back in the guaranteed place in the virtual cluster:",
        "    g (a, priority 5, 2 pods)",
    ]


def test_a_job_of_several_groups_is_drawn_and_counted_once() -> None:
    affected = [hit(f"ns/w-{i}", reason=f"{i}") | {"job": "PyTorchJob/ns/w"} for i in range(5)]
    lines = drawn(groups={"unaffected": 9, "unaffectedJobs": 2, "affected": affected}, waiting=affected)
    assert lines[:3] == [
        "Running work: 1 of 3 jobs affected",
        "  1 job lazily preempted, running on as opportunistic work that any guaranteed job may preempt:",
        "    PyTorchJob/ns/w (a, priority 5, 10 pods): 0; 1; 2; and 2 more",
    ]
    assert "Waiting jobs: 1" in lines


def many(count: int) -> dict[str, Any]:
    return {
        "changes": {"nodes": NOTHING | {"added": [f"n{i}" for i in range(count)]}},
        "groups": {"unaffected": 0, "affected": [hit(f"g{i:04}") for i in range(count)]},
        "waiting": [hit("w", "waits", "no room")],
    }


def test_long_lists_are_shortened() -> None:
    lines = drawn(**many(1022))
    assert "    and 1,012 more" in lines
    assert sum("priority" in line for line in lines) == 10
    assert "  nodes added: n0, n1, n2, n3, n4, n5, n6, n7 and 1,014 more" in lines


def test_full_shows_all() -> None:
    lines = drawn(full=True, **many(1022))
    assert not any("more" in line for line in lines)
    assert sum("priority" in line for line in lines) == 1023
    assert lines[-1] == "    w (a, priority 5, 2 pods): no room"


@pytest.mark.parametrize("count", [9, 11])
def test_a_list_is_not_shortened_by_a_single_line(count: int) -> None:
    assert sum("priority" in line for line in drawn(**many(count))) == count


def test_an_explanation_of_several_lines_stays_together() -> None:
    assert drawn(refusals=["one\ntwo"]) == ["Refused", "  one", "    two"]


def test_a_long_value_is_shortened_unless_all_is_asked_for() -> None:
    many = [f"team-{i}" for i in range(1000)]
    changes = {"settings": [{"key": "virtualClusters.a.namespaces", "old": None, "new": many, "needsRestart": False}]}
    (line,) = (each for each in drawn(changes=changes) if "namespaces" in each)
    assert line.startswith('    virtualClusters.a.namespaces: none -> ["team-0", ')
    assert (line.endswith("..."), len(line) < 200) == (True, True)
    assert any("team-999" in each for each in drawn(True, changes=changes))


def test_nodes_that_would_be_bad_are_counted_by_type_and_named() -> None:
    few = {"cellType": "RACK.NODE", "bad": 1, "total": 18, "nodes": ["n3"]}
    shown = drawn(bad=[few, {"cellType": "NODE", "bad": 10, "total": 16, "nodes": [f"m{i}" for i in range(8)]}])
    at = shown.index("Nodes that would be bad now")
    assert shown[at + 1 : at + 3] == [
        "  RACK.NODE: 1 bad of 18 (n3)",
        "  NODE: 10 bad of 16 (m0, m1, m2, m3, m4, m5, m6, m7 and 2 more)",
    ]


@pytest.mark.parametrize("words", [*VERDICTS.values(), *WAITING_VERDICTS.values()])
def test_a_verdict_is_said_of_one_job_as_of_several(words: str) -> None:
    assert not re.search(r"\b(its|their|runs|run|asks|ask)\b", words)
