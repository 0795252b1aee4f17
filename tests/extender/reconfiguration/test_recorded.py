"""The record of a run whose configuration changes: it is repeated as it was, and plans can be made against its end."""

from pathlib import Path

import pytest

from hived.values.errors import UserError
from hived.values.specs import Rules
from hived_config.loader import load, load_text
from hived_extender.machine.recording.operations import read_scenario
from hived_extender.machine.recording.record import Recorder
from hived_extender.machine.recording.replay import CoreScheduler, Replay, StateDetail
from hived_extender.reconfiguration.change import Change
from hived_extender.reconfiguration.recorded import plan_recorded
from tests.extender.machine.small_cluster import CONFIG, SmallCluster, preempt_args, spec_text

BETTER = f"rules: 2\n{CONFIG}"
SHRUNK = CONFIG.replace("[{cellType: RACK.NODE, cellNumber: 2}]", "[]")


def recorded(folder: Path, **options: int) -> SmallCluster:
    return SmallCluster(recorder=Recorder(folder, CONFIG, run="run", **options))


def switch(small: SmallCluster, old: str, new: str) -> None:
    change = Change(load_text(old, "old"), load_text(new, "new"), small.service.draft(new), 1)
    change.catch_up_with(small.service)
    change.switch(small.service, None)


def replayed(folder: Path) -> CoreScheduler:
    replay = Replay(CoreScheduler, lambda name: load(folder / name).cluster, StateDetail.NONE, check=True)
    for part in sorted(folder.glob("*.jsonl")):
        for _ in replay.run(read_scenario(part), part.name):
            pass
    assert isinstance(replay.scheduler, CoreScheduler)
    return replay.scheduler


def test_a_replay_goes_through_the_same_configurations_to_the_same_state(tmp_path: Path) -> None:
    small = recorded(tmp_path)
    small.place("p", spec_text("a"))
    victim, _ = small.place("q", spec_text("b"))
    small.service.preempt_victims(preempt_args(small.create("r", spec_text("b", priority=3))))
    switch(small, CONFIG, SHRUNK)
    assert replayed(tmp_path).snapshot() == small.snapshot()
    small.delete(victim)
    small.place("s", spec_text("a", priority=-1))
    switch(small, SHRUNK, CONFIG)
    small.service.close()
    assert replayed(tmp_path).snapshot() == small.snapshot()
    names = ["run-0001.jsonl", "run-0002.jsonl", "run-0003.jsonl", "run.2.yaml", "run.3.yaml", "run.yaml"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_a_replay_decides_by_the_rules_that_were_in_force(tmp_path: Path) -> None:
    small = recorded(tmp_path)
    small.place("p", spec_text("a"))
    switch(small, CONFIG, BETTER)
    small.place("q", spec_text("b"))
    small.service.close()
    again = replayed(tmp_path)
    assert again.state.spec.rules is Rules.BETTER
    assert again.snapshot() == small.snapshot()


def test_a_change_that_does_not_happen_leaves_nothing_in_the_record(tmp_path: Path) -> None:
    small = recorded(tmp_path)
    small.place("p", spec_text("a"))
    change = Change(load_text(CONFIG, "old"), load_text(SHRUNK, "new"), small.service.draft(SHRUNK), 1)
    change.catch_up_with(small.service)
    assert (tmp_path / "run.draft").stat().st_size > 0
    change.drop()
    small.place("q", spec_text("b"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run-0001.jsonl", "run.yaml"]
    assert replayed(tmp_path).snapshot() == small.snapshot()


def test_a_draft_that_cannot_be_written_ends_the_record_and_nothing_else(tmp_path: Path) -> None:
    small = recorded(tmp_path)
    (tmp_path / "run.draft").mkdir()
    switch(small, CONFIG, SHRUNK)
    small.place("q", spec_text("b"))
    assert small.state.spec == load_text(SHRUNK, "new").cluster
    assert not (tmp_path / "run-0002.jsonl").exists()


def test_a_plan_against_a_record_says_what_one_against_the_service_does(tmp_path: Path) -> None:
    small = recorded(tmp_path)
    small.place("p", spec_text("a"))
    small.place("q", spec_text("b"))
    small.filter(small.create("waits", spec_text("b")))
    change = Change(load_text(CONFIG, "old"), load_text(SHRUNK, "new"), None, 0)
    live = change.outcome(*change.catch_up_with(small.service)).report()
    plan = plan_recorded(tmp_path, SHRUNK, "new")
    uids = {"ns/p": "uid-p", "ns/waits": "uid-waits"}  # what a record calls pods
    for one in (*live.groups.affected, *live.waiting):
        one.pods[:] = [f"ns/{uids[pod]}" for pod in one.pods]
    assert plan == live
    assert [one.verdict for one in plan.groups.affected] == ["lazilyPreempted"]


def test_a_text_with_mistakes_gets_them_all(tmp_path: Path) -> None:
    plan = plan_recorded(tmp_path, "virtualClusters: 1\nx: 2\n", "new.yaml")
    assert [refusal.split(":")[:2] for refusal in plan.refusals] == [
        ["new.yaml", "1"],
        ["new.yaml", "1"],
        ["new.yaml", "2"],
    ]


def test_a_folder_without_a_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="found no record of a run"):
        plan_recorded(tmp_path, CONFIG, "new.yaml")
