"""Events that contradict each other, come late, twice or never: the service goes on, and forgets nothing and nobody.

Pods are re-created under their names before the old one is reported gone. Somebody else binds them, with annotations
that are stolen or garbage. Their specs change at any time; the API server refuses bindings; nodes flap.
"""

import json
import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from hived.life.groups import nodes_of_slots
from hived.scheduler import check_invariants
from hived.values.errors import UserError
from hived_extender.insight.answering import Answering
from hived_extender.insight.forecast import Forecaster
from hived_extender.jobs.annotations import BIND_INFO, LEAF_CELL_ISOLATION, SCHEDULING_SPEC
from hived_extender.jobs.progress import EXPECTED_DURATION, KUEUE_LIMIT
from hived_extender.kube.client import KubeError
from hived_extender.machine.preemptions import PreemptionPolicy
from hived_extender.machine.verbs import VerbSettings
from tests.extender.machine.small_cluster import NODES, SmallCluster, node, pod_json, preempt_args, spec_text, to_pod
from tests.property.examples import examples

pytestmark = pytest.mark.sample(3)

STEPS = 300
NEVER_S = 1e6
STARTED = {"state": {"running": {"startedAt": "1970-01-01T00:00:02Z"}}}
GARBAGE = ("{", "null", '{"node": "n0", "leafCellIsolation": [0], "affinityGroupBindInfo": []}')


class Saboteur:
    """Does to a cluster whatever Kubernetes and its users may do."""

    def __init__(self, seed: int) -> None:
        self.cluster = SmallCluster(verb_settings=VerbSettings(force_bind_threshold=10**9, wake_delay_s=NEVER_S))
        self.random = random.Random(seed)
        self.count = 0
        self.unreported: list[str] = []

    def step(self) -> None:
        actions = {
            self.create: 20, self.ask: 30, self.preempt: 15, self.look: 10, self.delete: 5, self.turn_node: 5,
            self.list_again: 3, self.change_term: 2, self.bind_behind_our_back: 4, self.change_spec: 8,
            self.complete: 2, self.report: 3,
        }  # fmt: skip
        (action,) = self.random.choices(list(actions), list(actions.values()))
        action()

    def may(self, probability: float) -> bool:
        return self.random.random() < probability

    def pod(self) -> Any:
        """Any pod; there is always one."""
        if not self.cluster.kube.pods:
            self.create()
        return self.random.choice(list(self.cluster.kube.pods.values()))

    def unbound_pod(self) -> Any:
        """A pod without a node if there is one."""
        unbound = [pod for pod in self.cluster.kube.pods.values() if not pod["spec"]["nodeName"]]
        return self.random.choice(unbound) if unbound else self.pod()

    def spec(self) -> str:
        choose = self.random.choice
        return spec_text(
            choose(["a"] * 6 + ["b"] * 3 + ["none"]), choose([1, 2, 4, 4]), choose([-1, 0, 0, 5, 9]),
            choose(["", "", "", "g", "h"]), choose([1, 2, 3]),
            lazyPreemptionEnable=self.may(0.4), ignoreK8sSuggestedNodes=self.may(0.6),
        )  # fmt: skip

    def create(self) -> None:
        """A pod; the one that had its name before is reported gone at once, later or never."""
        self.count += 1
        name = f"p{self.random.randrange(20)}"
        old = self.cluster.kube.pods.get(name)
        self.cluster.kube.add(pod_json(name, self.spec(), uid=f"u{self.count}"))
        if old is not None:
            self.unreported.append(old["metadata"]["uid"])
            if self.may(0.5):
                self.report()
        self.cluster.see(self.cluster.kube.pods[name])

    def report(self) -> None:
        if self.unreported:
            self.cluster.service.pod_gone(self.unreported.pop())

    def ask(self) -> None:
        pod = self.unbound_pod()
        offered = [name for name in NODES if self.may(0.9)]
        chosen = self.cluster.filter(pod, offered).get("NodeNames")
        if chosen and self.may(0.8):
            if self.may(0.2):
                self.cluster.kube.refusals.append(KubeError(self.random.choice([0, 404, 409, 500]), "Refused", "no"))
            try:
                self.cluster.bind(pod, chosen[0])
            finally:
                self.cluster.kube.refusals.clear()
            if self.may(0.7):
                self.cluster.see(pod)

    def preempt(self) -> None:
        candidates = [name for name in NODES if self.may(0.9)]
        args = preempt_args(self.unbound_pod(), candidates)
        answer = self.cluster.service.preempt_victims(args).node_name_to_meta_victims
        victims = {victim.uid for on_node in (answer or {}).values() for victim in on_node.pods}
        if self.may(0.7):
            for pod in list(self.cluster.kube.pods.values()):
                if pod["metadata"]["uid"] in victims:
                    self.cluster.delete(pod)

    def look(self) -> None:
        self.cluster.see(self.pod())

    def delete(self) -> None:
        self.cluster.delete(self.pod())

    def complete(self) -> None:
        pod = self.pod()
        pod["status"]["phase"] = self.random.choice(["Succeeded", "Failed"])
        self.cluster.see(pod)
        del self.cluster.kube.pods[pod["metadata"]["name"]]

    def change_spec(self) -> None:
        pod = self.unbound_pod()
        pod["metadata"]["annotations"][SCHEDULING_SPEC] = self.spec() if self.may(0.8) else "{"
        if self.may(0.5):
            self.cluster.see(pod)

    def bind_behind_our_back(self) -> None:
        """Somebody binds a pod, with the annotations of another, garbage or none."""
        pod = self.unbound_pod()
        if pod["spec"]["nodeName"]:
            return
        notes = pod["metadata"]["annotations"]
        others = [other["metadata"]["annotations"] for other in self.cluster.kube.pods.values()]
        placed = [other for other in others if other.get(BIND_INFO, "") not in ("", *GARBAGE)]
        pod["spec"]["nodeName"] = self.random.choice(NODES)
        if placed and self.may(0.7):
            stolen = self.random.choice(placed)
            keys = (BIND_INFO, LEAF_CELL_ISOLATION, *([SCHEDULING_SPEC] if self.may(0.5) else []))
            notes.update({key: stolen[key] for key in keys if key in stolen})
            pod["spec"]["nodeName"] = json.loads(notes[BIND_INFO])["node"]
        elif self.may(0.5):
            notes[BIND_INFO] = self.random.choice(GARBAGE)
        self.cluster.see(pod)

    def turn_node(self) -> None:
        name = self.random.choice(NODES)
        if self.may(0.2):
            self.cluster.service.node_gone(node(name))
        else:
            self.cluster.service.node_seen(node(name, is_ready=self.may(0.8), is_cordoned=self.may(0.1)))

    def nodes_of_held_cells(self) -> Iterator[tuple[str, str]]:
        """For every pod that holds cells and still exists: its node, "" if it has none yet, and that of the cells."""
        true = {pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in self.cluster.kube.pods.values()}
        state = self.cluster.state
        for group in state.groups.values():
            for held, pod in zip(nodes_of_slots(state, group), group.holders, strict=True):
                if pod is not None and pod.uid in true:
                    yield true[pod.uid], held

    def change_term(self) -> None:
        """Another replica led for a moment, or nobody did."""
        self.cluster.service.follow("for a change")
        if self.may(0.5):
            self.look()
        self.cluster.lead()

    def list_again(self) -> None:
        """The watch has expired; whatever was not reported is simply missing from the list."""
        self.cluster.service.sync_pods([to_pod(pod) for pod in self.cluster.kube.pods.values()])
        self.unreported.clear()


@pytest.fixture(autouse=True)
def only_what_the_test_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """No second tries of pods."""
    for name in ("OVERTAKEN_S", "RETRY_S"):
        monkeypatch.setattr(f"hived_extender.machine.retries.{name}", NEVER_S)


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", range(examples(12)))
def test_nothing_that_happens_to_pods_breaks_the_state_or_stays_behind(seed: int) -> None:
    saboteur = Saboteur(seed)
    cluster = saboteur.cluster
    for _ in range(STEPS):
        with suppress(UserError):
            saboteur.step()
        assert cluster.service.fault == ""
        check_invariants(cluster.state)
        assert sum(cluster.pod_counts().values()) == len(cluster.kube.pods) + len(saboteur.unreported)
        assert all(true in ("", held) for true, held in saboteur.nodes_of_held_cells())
    cluster.service.sync_pods([])
    cluster.service.sync_nodes([node(name) for name in NODES])
    assert cluster.snapshot() == ({}, {}, {})
    assert cluster.pod_counts() == {}
    cluster.service.close()


@pytest.mark.parametrize("seed", range(examples(4)))
def test_a_restart_after_all_that_finds_a_sound_state(seed: int) -> None:
    saboteur = Saboteur(seed)
    for _ in range(STEPS):
        with suppress(UserError):
            saboteur.step()
    restarted = SmallCluster()
    restarted.service.sync_pods([to_pod(pod) for pod in saboteur.cluster.kube.pods.values()])
    assert restarted.service.fault == ""
    check_invariants(restarted.state)


def test_no_amount_of_resources_stops_the_service() -> None:
    cluster = SmallCluster()
    resources = {"requests": {"memory": "9223372036854775807"}}
    containers = [{"name": f"c{number}", "resources": resources} for number in range(8192)]
    cluster.service.pod_seen(to_pod({
        "metadata": {"name": "greedy", "namespace": "evil", "uid": "greedy"},
        "spec": {"nodeName": NODES[0], "containers": containers},
    }))  # fmt: skip
    assert cluster.service.fault == ""
    cluster.service.close()


@pytest.mark.sample(2)
@pytest.mark.parametrize("seconds", [10**9, 10**12, 10**15, 2**63 - 1])
@pytest.mark.parametrize("deadline_s", [3600, 2**63 - 1])
def test_no_length_of_time_stops_the_service_or_its_answers(seconds: int, deadline_s: int) -> None:
    cluster = SmallCluster(preemption=PreemptionPolicy(by_service=True))
    for name in ("o0", "o1", "o2", "o3"):
        pod = pod_json(name, spec_text(vc="b", priority=-1), annotations={EXPECTED_DURATION: "999999999w"})
        pod["spec"] |= {"terminationGracePeriodSeconds": seconds, "activeDeadlineSeconds": deadline_s}
        pod["metadata"]["labels"] = {KUEUE_LIMIT: str(seconds)}
        cluster.kube.add(pod)
        cluster.see(pod)
        cluster.bind(pod, cluster.filter(pod)["NodeNames"][0])
        pod["status"] |= {"phase": "Running", "containerStatuses": [STARTED]}
        cluster.see(pod)
    waiting = cluster.create("p")
    for wanted in (waiting, cluster.create("q", spec_text(vc="b", priority=-1))):
        assert "NodeNames" not in cluster.filter(wanted)
    cluster.pass_time(60)
    assert cluster.filter(waiting)["FailedNodes"] == {"n0": "node(s) with pods to preempt: ns/o0"}
    answering = Answering(cluster.service, Forecaster(cluster.service))
    for name in ("ns/p", "ns/q", "ns/o0"):
        assert answering.why(name).job.name == name
    answering.nodes()
    assert cluster.service.fault == ""
    check_invariants(cluster.state)
    cluster.service.close()
