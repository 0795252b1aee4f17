"""Random lives of held jobs: holds, pods that come in any order, drops, other pods, nodes that fail, and restarts.

After each step the core keeps its rules, and exactly what is held has a stand-in. Pods run at the priority of their
job's hold and on nodes that kube-scheduler offered. A record of all that replays to the same state.
"""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from hived.life.groups import virtual_leaves
from hived.life.status import snapshot
from hived.scheduler import check_invariants
from hived.values.decisions import Bind, Wait
from hived.values.errors import UserError
from hived.values.specs import Rules
from hived_config.loader import load_text
from hived_extender.jobs.annotations import SCHEDULING_SPEC
from hived_extender.machine.recording.operations import STAND_IN, read_scenario
from hived_extender.machine.recording.record import Recorder
from hived_extender.machine.recording.replay import CoreScheduler, Replay, StateDetail
from hived_extender.machine.stimuli import Hold, HoldsLookedAt, HoldState
from tests.extender.machine.small_cluster import CONFIG, NODES, node, spec_text
from tests.extender.machine.small_gangs import koordinator
from tests.extender.machine.small_jobs import SmallJobCluster, hold, job

STEPS = 60
JOBS = ("j0", "j1", "j2")
WAYS = ("single", "group", "gang")


class Life:
    """One cluster; all follows from the seed."""

    def __init__(self, seed: int, recorder: Recorder | None = None) -> None:
        self.source = Random(seed)
        self.cluster = SmallJobCluster(recorder=recorder)
        self.may_restart = recorder is None
        self.holds: dict[str, Hold] = {}
        self.ways = {name: self.source.choice(WAYS) for name in JOBS}
        self.count = 0
        self.kept = 0  # pods that took cells held for them

    def step(self) -> None:
        """One random thing happens."""
        steps = [
            self.hold,
            self.hold,
            self.come,
            self.come,
            self.ask,
            self.ask,
            self.ask,
            self.ask,
            self.other,
            self.leave,
            self.turn_node,
        ]
        steps += [self.drop, self.victims] + ([self.restart] if self.may_restart else [])
        self.source.choice(steps)()
        self.check()

    def hold(self) -> None:
        name = self.source.choice(JOBS)
        if name not in self.holds:
            pods, gpus, priority = (
                self.source.choice([1, 2, 3]),
                self.source.choice([1, 2, 4]),
                self.source.choice([-1, 0]),
            )
            own: tuple[int, ...] = ()
            if priority == 0 and self.source.random() < 0.5:
                own = self.own_cells(pods * gpus)
            self.holds[name] = hold(name, pods, gpus, priority=priority, own=own)
        answer = self.cluster.hold(self.holds[name])
        assert isinstance(answer, Bind | Wait)
        if isinstance(answer, Wait):
            return
        assert self.cluster.hold(self.holds[name]) == answer

    def own_cells(self, count: int) -> tuple[int, ...]:
        arrays = self.cluster.state.arrays
        leaves = [leaf for leaf in range(len(arrays.level)) if arrays.level[leaf] == 1 and arrays.vc[leaf] == 0]
        start = self.source.randrange(0, len(leaves), 4)
        return tuple((leaves + leaves)[start : start + count]) if count <= len(leaves) else ()

    def come(self) -> None:
        if not self.holds:
            return
        name, wanted = self.source.choice(sorted(self.holds.items()))
        self.count += 1
        (member,) = wanted.spec.group.members
        words = {}
        if self.ways[name] == "group":
            words = {SCHEDULING_SPEC: spec_text(group=name, pods=member.pod_count, leaf_cells=member.leaf_cell_count)}
        elif self.ways[name] == "gang":
            words = koordinator(name, member.pod_count)
        self.cluster.come(f"{name}-{self.count}", name, member.leaf_cell_count, words)

    def ask(self) -> None:
        waiting = sorted(name for name, pod in self.cluster.kube.pods.items() if not pod["spec"]["nodeName"])
        if not waiting:
            return
        pod = self.cluster.kube.pods[self.source.choice(waiting)]
        offered = [name for name in NODES if self.source.random() < 0.95] or [NODES[0]]
        before = sum(one.held_count for one in self.states().values())
        try:
            found = self.cluster.filter(pod, offered)
        except UserError:
            return
        self.kept += sum(one.held_count for one in self.states().values() if not one.is_lost) < before
        for node_name in found.get("NodeNames", []):
            assert node_name in offered
            try:
                self.cluster.bind(pod, node_name)
            except UserError:  # held back until its mates have been asked about
                continue
            self.cluster.see(pod)

    def other(self) -> None:
        self.count += 1
        more = {"priorityClassName": "low"} if self.source.random() < 0.6 else {}
        self.cluster.pod(f"x-{self.count}", self.source.choice([1, 2, 4]), **more)

    def leave(self) -> None:
        if self.cluster.kube.pods:
            self.cluster.drop(self.source.choice(sorted(self.cluster.kube.pods)))

    def turn_node(self) -> None:
        if self.source.random() < 0.7:
            return
        self.cluster.service.node_seen(node(self.source.choice(NODES), is_ready=self.source.random() < 0.6))

    def drop(self) -> None:
        if self.holds and self.source.random() < 0.3:
            name = self.source.choice(sorted(self.holds))
            self.cluster.drop_hold(name)
            del self.holds[name]

    def victims(self) -> None:
        before = snapshot(self.cluster.state)
        wanted = hold("j9", self.source.choice([1, 2]), 4)
        found = self.cluster.victims(wanted, *self.source.sample(JOBS, k=2))
        assert snapshot(self.cluster.state) == before
        assert found is None or set(found.jobs) <= {job(name) for name in JOBS}

    def restart(self) -> None:
        if self.source.random() < 0.8:
            return
        self.cluster = self.cluster.restarted_jobs()
        for _, wanted in sorted(self.holds.items()):
            self.cluster.hold(wanted)

    def states(self) -> dict[str, HoldState]:
        found: dict[str, HoldState] = self.cluster.tell(HoldsLookedAt())
        return found

    def check(self) -> None:
        state = self.cluster.state
        check_invariants(state)
        held = {key for key, one in self.states().items() if one.held_count}
        assert {name.split(":", 2)[2] for name in state.groups if name.startswith(STAND_IN)} == held
        assert not any(one.is_lost and one.held_count for one in self.states().values())
        for key in held:
            (name,) = [name for name in state.groups if name.startswith(STAND_IN) and name.endswith(key)]
            assert not state.cells.bad[state.groups[name].physical].any()
            assert state.groups[name].spec.priority < 0 or virtual_leaves(state, name)


@pytest.mark.sample(4)
@pytest.mark.parametrize("seed", range(15))
def test_the_state_keeps_its_rules(seed: int) -> None:
    life = Life(seed)
    for _ in range(STEPS):
        life.step()


@pytest.mark.long
def test_pods_get_held_cells_in_these_lives() -> None:
    kept = 0
    for seed in range(8):
        life = Life(seed)
        for _ in range(STEPS):
            life.step()
        kept += life.kept
    assert kept > 5


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", range(5))
def test_a_record_of_them_replays_to_the_same_state(seed: int, tmp_path: Path) -> None:
    text = CONFIG + "rules: 2\n"
    recorder = Recorder(tmp_path, text, run="run")
    life = Life(seed, recorder)
    for _ in range(STEPS):
        life.step()
    recorder.close()
    schedulers: list[CoreScheduler] = []

    def start(spec: object) -> CoreScheduler:
        schedulers.append(CoreScheduler(replace(load_text(text, "run.yaml", environ={}).cluster, rules=Rules.BETTER)))
        return schedulers[-1]

    run = Replay(start, lambda name: load_text(text, name, environ={}).cluster, StateDetail.NONE, check=True)
    for _ in run.run(read_scenario(tmp_path / "run-0001.jsonl")):
        pass
    assert schedulers[-1].snapshot() == snapshot(life.cluster.state)
