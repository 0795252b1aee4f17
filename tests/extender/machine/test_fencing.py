"""No GPU is ever given twice, whoever leads, and however long a binding was on its way."""

import random
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from hived_extender.jobs.annotations import LEAF_CELL_ISOLATION
from hived_extender.jobs.wire import BindArgs
from hived_extender.kube.client import KubeError
from hived_extender.machine.preemptions import PreemptionPolicy
from hived_extender.machine.service import Service
from hived_extender.machine.verbs import VerbSettings
from tests.extender.machine.by_hand import ByHand
from tests.extender.machine.small_cluster import (
    NODES,
    PATIENCE_S,
    FakeKube,
    Json,
    SmallCluster,
    cluster_spec,
    filter_args,
    node,
    pod_json,
    spec_text,
    to_pod,
)
from tests.property.examples import examples

MOST_SEEDS = 20
STEPS = 150


class Gate(FakeKube):
    """An API server to which bindings are on their way until they are let in one by one.

    `on_patch` is called before a touch, which is when a new leader has its list but nothing else.
    """

    def __init__(self) -> None:
        super().__init__()
        self.on_bind = self._wait
        self.on_patch = lambda: None
        self.held: list[tuple[threading.Event, threading.Thread]] = []
        self._arrived = threading.Semaphore(0)

    def send(self, call: Any) -> None:
        """Make a call that binds, on a thread; returns when it waits here, or has ended without a binding."""

        def run() -> None:
            try:
                call()
            finally:
                self._arrived.release()

        threading.Thread(target=run, daemon=True).start()
        assert self._arrived.acquire(timeout=PATIENCE_S)

    def let_in(self, number: int) -> None:
        """Let one binding go on, until it has its answer or is here again with another version."""
        gate, _ = self.held.pop(number)
        gate.set()
        assert self._arrived.acquire(timeout=PATIENCE_S)

    def patch(self, path: str, body: Any, item_type: type[Any] = dict) -> Any:
        self.on_patch()
        return super().patch(path, body, item_type)

    def _wait(self) -> None:
        gate = threading.Event()
        self.held.append((gate, threading.current_thread()))
        self._arrived.release()
        assert gate.wait(PATIENCE_S)


class Drama:
    """Two replicas, one of which leads; everything else happens at random."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.kube = Gate()
        self.kube.on_patch = self._amid_touches
        self.term = 0
        self.pod_count = 0
        self.bound_count = 0
        self.conflicts = 0
        self.replicas = [
            Service(
                cluster_spec(),
                self.kube,
                verb_settings=VerbSettings(force_bind_threshold=1000, wake_delay_s=1000),
                preemption=PreemptionPolicy(by_service=False),
                run=ByHand,  # nobody tells anybody of pods, which would give them other versions
            )
            for _ in range(2)
        ]
        self.take_over()

    @property
    def leader(self) -> Service:
        return self.replicas[self.term % 2]

    def take_over(self) -> None:
        """The other replica leads from now on; the one before may not have noticed yet."""
        before = self.leader
        if self.chance.random() < 0.5:
            before.follow("the other leads")
        self.term += 1
        now = self.term
        self.leader.follow("electing")
        self.leader.sync_nodes([node(name) for name in NODES])
        self.leader.sync_pods([to_pod(pod) for pod in self.kube.pods.values()])
        self.leader.fence(set())
        self.leader.lead(lambda: self.term == now)

    def create(self) -> None:
        number, self.pod_count = self.pod_count, self.pod_count + 1
        vc = self.chance.choice("aab")
        if self.chance.random() < 0.3:
            spec = spec_text(vc=vc, leaf_cells=self.chance.choice((1, 2)), group=f"g{number // 4}-{vc}", pods=2)
        else:
            spec = spec_text(vc=vc, leaf_cells=self.chance.choice((1, 2, 4)))
        pod = pod_json(f"p{number}", spec)
        self.kube.add(pod)
        for replica in self.replicas:
            replica.pod_seen(to_pod(pod))

    def schedule(self) -> None:
        """kube-scheduler asks about a pod, and sends its binding on the way if there is a node for it."""
        waiting = [pod for pod in self.kube.pods.values() if not pod["spec"]["nodeName"]]
        if not waiting:
            return
        pod = self.chance.choice(waiting)
        try:
            nodes = self.leader.filter_nodes(filter_args(pod)).node_names
        except Exception:  # not agreed with its gang, or bound as a watch has told already
            return
        if nodes:
            self.bind(pod, nodes[0])

    def bind(self, pod: Json, where: str) -> None:
        leader, meta = self.leader, pod["metadata"]

        def call() -> None:
            try:
                leader.bind_pod(BindArgs(meta["name"], meta["namespace"], meta["uid"], where))
            except Exception:
                self.conflicts += 1

        self.kube.send(call)

    def let_in(self) -> None:
        if self.kube.held:
            self.kube.let_in(self.chance.randrange(len(self.kube.held)))
            self.check()

    def watch(self) -> None:
        """Somebody is told of some pod."""
        if self.kube.pods:
            pod = self.chance.choice(list(self.kube.pods.values()))
            self.chance.choice(self.replicas).pod_seen(to_pod(pod))

    def end(self) -> None:
        """A pod is deleted; each replica is told."""
        bound = [pod for pod in self.kube.pods.values() if pod["spec"]["nodeName"]]
        if len(bound) > 4:
            meta = self.chance.choice(bound)["metadata"]
            del self.kube.pods[meta["name"]]
            for replica in self.replicas:
                replica.pod_gone(meta["uid"])

    def play(self) -> None:
        actions = {
            self.create: 6,
            self.schedule: 10,
            self.let_in: 6,
            self.watch: 10,
            self.end: 3,
            self.take_over: 2,
        }
        for _ in range(STEPS):
            self.chance.choices(list(actions), list(actions.values()))[0]()
        while self.kube.held:
            self.let_in()

    def check(self) -> None:
        """Every GPU is given to one pod at most."""
        given: Counter[tuple[str, str]] = Counter()
        for pod in self.kube.pods.values():
            cells = pod["metadata"]["annotations"].get(LEAF_CELL_ISOLATION, "")
            if pod["spec"]["nodeName"]:
                given.update((pod["spec"]["nodeName"], cell) for cell in cells.split(","))
        self.bound_count = max(self.bound_count, sum(given.values()))
        assert not [gpu for gpu, count in given.items() if count > 1]

    def close(self) -> None:
        while self.kube.held:
            self.kube.let_in(0)
        for replica in self.replicas:
            replica.close()

    def _amid_touches(self) -> None:
        """A binding of the leader before gets through at the worst moment."""
        with touching:
            if self.kube.held and self.chance.random() < 0.3:
                self.kube.let_in(0)


touching = threading.Lock()


@pytest.fixture(scope="module", params=range(examples(MOST_SEEDS)))
def drama(request: pytest.FixtureRequest) -> Iterator[Drama]:
    """Played to its end, which two tests look at."""
    drama = Drama(request.param)
    try:
        drama.play()
        yield drama
    finally:
        drama.close()


@pytest.mark.sample(2)
def test_no_gpu_is_given_twice(drama: Drama) -> None:
    """Playing checks it after each binding."""
    drama.check()
    assert drama.bound_count > 0


def test_the_last_leader_has_the_state_of_a_rebuild(drama: Drama) -> None:
    drama.take_over()
    rebuilt = Service(cluster_spec(), drama.kube, run=ByHand)
    rebuilt.sync_nodes([node(name) for name in NODES])
    rebuilt.sync_pods([to_pod(pod) for pod in drama.kube.pods.values()])
    rebuilt.lead(lambda: True)
    assert drama.leader.reader.snapshot() == rebuilt.reader.snapshot()
    rebuilt.close()


def test_without_the_fence_some_would_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above is able to fail."""
    monkeypatch.setattr(Service, "fence", lambda self, fenced: None)
    assert any(gives_a_gpu_twice(Drama(seed)) for seed in range(MOST_SEEDS))


def gives_a_gpu_twice(drama: Drama) -> bool:
    try:
        drama.play()
    except AssertionError:
        return True
    finally:
        drama.close()
    return False


def test_a_touch_that_conflicts_says_what_became_of_the_pod() -> None:
    """The API server gives a patch up that others keep getting ahead of; a binding may have been among those."""
    drama = Drama(0)
    drama.create()
    (pod,) = drama.kube.pods.values()
    pod["spec"]["nodeName"] = "n0"
    drama.kube.refusals.append(KubeError(409, "Conflict", "the object has been modified"))
    drama.leader.fence(set())
    assert drama.leader.metrics.registry.get_sample_value("hived_pods", {"state": "Bound"}) == 1
    drama.close()


def test_fencing_goes_on_where_the_api_server_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hived_extender.machine.writes.binding.FENCING_THREADS", 1)
    drama = Drama(0)
    for _ in range(3):
        drama.create()
    fenced: set[str] = set()
    later = drama.kube.on_patch

    def refuse_the_last() -> None:
        if len(drama.kube.patches) == 2:
            drama.kube.on_patch = later
            raise KubeError(503, "ServiceUnavailable", "try again")

    drama.kube.on_patch = refuse_the_last
    with pytest.raises(KubeError):
        drama.leader.fence(fenced)
    assert len(fenced) == 2
    drama.leader.fence(fenced)
    assert [path.rsplit("/", 1)[1] for path, _ in drama.kube.patches] == ["p0", "p1", "p2"]
    drama.close()


def test_a_pod_that_has_no_room_for_an_annotation_is_touched_all_the_same() -> None:
    drama = Drama(0)
    drama.create()
    (pod,) = drama.kube.pods.values()
    (where,) = drama.leader.filter_nodes(filter_args(pod)).node_names or ()
    drama.bind(pod, where)
    drama.kube.refusals.append(KubeError(422, "Invalid", "metadata.annotations: Too long"))
    drama.take_over()
    drama.let_in()
    assert (pod["spec"]["nodeName"], drama.conflicts) == ("", 1)
    assert list(drama.kube.patches[-1][1]["metadata"]) == ["uid", "labels"]
    drama.close()


def test_another_pod_of_the_name_is_not_touched() -> None:
    drama = Drama(0)
    drama.create()
    (pod,) = drama.kube.pods.values()
    pod["metadata"]["uid"] = "another"
    before = dict(pod["metadata"])
    drama.kube.refusals.append(KubeError(422, "Invalid", "metadata.uid: field is immutable"))
    drama.leader.fence(set())
    assert pod["metadata"] == before
    drama.close()


def test_a_pod_that_may_not_be_touched_does_not_keep_a_replica_from_leading(caplog: pytest.LogCaptureFixture) -> None:
    cluster = SmallCluster(is_leading=False)
    cluster.create("p")
    cluster.kube.refusals.append(KubeError(403, "Forbidden", "a policy forbids to change this pod"))
    cluster.lead()
    assert cluster.service.is_ready
    assert "a pod cannot be fenced" in caplog.messages
