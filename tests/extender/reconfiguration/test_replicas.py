"""Two replicas that share a ConfigMap: whoever leads, what has been committed is what is in force."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from hived.values.errors import UserError
from hived_extender.api.configuration import ConfigPushArgs
from hived_extender.api.inspection import ConfigClient, Inspector, PushAnswer
from hived_extender.kube.client import KubeClient, KubeError
from hived_extender.kube.lease import LeaseName
from hived_extender.reconfiguration import configurations
from hived_extender.reconfiguration.stores import ConfigMapName
from hived_extender.reconfiguration.versions import TEXT_KEY, decode
from hived_extender.running import Extender, start_extender
from hived_lab.embedded.cluster import EmbeddedCluster
from tests.e2e.pods import POD_LIST, pod
from tests.extender.kube.lease_clock import LeaseClock
from tests.extender.machine.small_cluster import CONFIG, NODES, cluster_spec, wait_until
from tests.extender.machine.test_leadership import Line

pytestmark = pytest.mark.sample(3)

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
NAME = "hived-config"
DURATION_S = 1
WITHIN_S = 60.0
CUT = KubeError(0, "NoAnswer", "connection refused")
FOR_EMPTY = CONFIG.replace("virtualCells: []", "virtualCells: [{cellType: RACK.NODE, cellNumber: 1}]")
"""The VC `empty`, which had nothing, has a node."""

Json = dict[str, Any]


class DyingLine(Line):
    """A client that nothing comes through any more after a certain write.

    `before_write` is called before each write of the configuration.
    """

    dies_after = ""
    is_dead = False
    before_write: Callable[[], object] = staticmethod(lambda: None)

    def replace(self, path: str, body: Mapping[str, Any]) -> Json:
        """The write happens, and its answer is lost."""
        if path.endswith(NAME):
            self.before_write()
        found = super().replace(path, body)
        if self.dies_after and path.endswith(self.dies_after):
            self.is_dead = True
            raise CUT
        return found

    def trouble(self, method: str, path: str) -> None:
        """Raise KubeError when it is dead."""
        if self.is_dead:
            raise CUT

    def heal(self) -> None:
        """All is well again."""
        self.is_dead, self.dies_after = False, ""


class Replicas:
    """Two extenders; the first leads at the beginning."""

    def __init__(self, cluster: EmbeddedCluster, stack: ExitStack, clock: LeaseClock) -> None:
        self.clock = clock
        self.kube = KubeClient.connect(cluster.api_url)
        stack.callback(self.kube.close)
        self.kube.create(CONFIG_MAPS, {"metadata": {"name": NAME}, "data": {TEXT_KEY: CONFIG}})
        self.lines = [DyingLine.connect(kubeconfig=str(cluster.hived_kubeconfig)) for _ in range(2)]
        self.leader = self._start(stack, 0)
        assert self.leader.wait_ready(WITHIN_S)
        wait_until(lambda: self.stored_versions() == [1])
        self.follower = self._start(stack, 1)
        wait_until(lambda: "leads" in self.follower.service.standing)

    def _start(self, stack: ExitStack, number: int) -> Extender:
        lease = LeaseName("default", "hived", f"r{number}", DURATION_S)
        name = ConfigMapName("default", NAME)
        return stack.enter_context(start_extender(name, self.lines[number], listen="127.0.0.1:0", lease=lease))

    def stored_versions(self) -> list[int]:
        """The versions that the ConfigMap has, the oldest first."""
        stored = decode(self.kube.get(f"{CONFIG_MAPS}/{NAME}"))
        return [each.version for each in stored.versions]

    def run_out(self, is_so: Callable[[], object]) -> None:
        """Let the Lease of a leader that cannot renew it run out until it is so."""
        self.clock.run_out(DURATION_S, is_so)

    def create(self, name: str) -> Json:
        """A pod that `empty` can only run if it has a node."""
        made = self.kube.create(POD_LIST, pod(name, vc="empty", gpus=4))
        for extender in (self.leader, self.follower):
            wait_until(lambda extender=extender: extender.service.machine.cache.pods.get(made["metadata"]["uid"]))
        return made


def push(extender: Extender, text: str, base_version: int = 1) -> PushAnswer:
    wish = ConfigPushArgs(text, "file", "a reason", "somebody", base_version, {})
    return ConfigClient(Inspector(extender.url)).push(wish)


def version(extender: Extender) -> tuple[int, str]:
    current = extender.configurations.describe()
    return current.version, current.text


def filtered(extender: Extender, asked: Json) -> Json:
    body = json.dumps({"Pod": asked, "Nodes": None, "NodeNames": NODES}).encode()
    with urlopen(Request(f"{extender.url}/v1/extender/filter", body)) as answer:
        found: Json = json.load(answer)
    return found


@pytest.fixture
def replicas(clock: LeaseClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Replicas]:
    monkeypatch.setattr(configurations, "LONGEST_RETRY_S", 0.2)
    with EmbeddedCluster(cluster_spec()) as cluster, ExitStack() as stack:
        yield Replicas(cluster, stack, clock)


def test_a_push_reaches_both_and_the_next_leader_decides_by_it(replicas: Replicas) -> None:
    waiting = replicas.create("p")
    assert not filtered(replicas.leader, waiting)["NodeNames"]
    assert push(replicas.leader, FOR_EMPTY).version == 2
    assert version(replicas.leader) == (2, FOR_EMPTY)
    wait_until(lambda: version(replicas.follower) == (2, FOR_EMPTY))
    replicas.leader.stop()
    assert replicas.follower.wait_ready(WITHIN_S)
    assert filtered(replicas.follower, waiting)["NodeNames"]
    assert push(replicas.follower, FOR_EMPTY + "# again\n", 2).version == 3


def test_a_follower_takes_no_push(replicas: Replicas) -> None:
    body = json.dumps({"text": FOR_EMPTY, "baseVersion": 1}).encode()
    with pytest.raises(HTTPError) as caught:
        urlopen(Request(f"{replicas.follower.url}/v1/config", body))
    assert caught.value.code == 503
    assert "leads" in json.load(caught.value)
    assert version(replicas.leader) == version(replicas.follower) == (1, CONFIG)
    assert [each.version for each in replicas.leader.configurations.versions()] == [1]


class Pushing:
    """A push on a thread of its own; `answer` says why it came to nothing."""

    def __init__(self, extender: Extender) -> None:
        self._extender = extender
        self._answers: list[str] = []
        self._thread = threading.Thread(target=self._push)
        self._thread.start()

    def _push(self) -> None:
        try:
            self._answers.append(push(self._extender, FOR_EMPTY).message)
        except UserError as error:
            self._answers.append(error.message)

    @property
    def answer(self) -> str:
        """Waits for it."""
        self._thread.join()
        return self._answers[0]


def test_what_was_committed_is_in_force_although_the_leader_is_gone(replicas: Replicas) -> None:
    """The leader loses its network with the answer to the write that makes the version count."""
    waiting = replicas.create("p")
    line = replicas.lines[0]
    line.dies_after = NAME
    pushing = Pushing(replicas.leader)
    wait_until(lambda: line.is_dead)
    replicas.run_out(lambda: replicas.follower.service.is_ready)
    assert version(replicas.follower) == (2, FOR_EMPTY)
    assert filtered(replicas.follower, waiting)["NodeNames"]
    line.heal()
    assert "will be seen when it does" in pushing.answer or "the next leader puts it in force" in pushing.answer
    wait_until(lambda: version(replicas.leader) == (2, FOR_EMPTY))


def test_a_term_does_not_begin_before_it_is_known_what_is_stored(replicas: Replicas) -> None:
    """The next leader has been told nothing of the version, and some of its questions get no answer."""
    replicas.follower.configurations.store.stop()
    assert push(replicas.leader, FOR_EMPTY).version == 2
    was_ready: list[bool] = []

    def trouble(method: str, path: str) -> None:
        if NAME in path and len(was_ready) < 5:
            was_ready.append(replicas.follower.service.is_ready)
            raise CUT

    replicas.lines[1].trouble = trouble
    replicas.leader.stop()
    assert replicas.follower.wait_ready(WITHIN_S)
    assert version(replicas.follower) == (2, FOR_EMPTY)
    assert was_ready == [False] * 5


def test_a_version_that_arrives_when_another_leads_already_is_refused(replicas: Replicas) -> None:
    """The write of an earlier leader is on its way for longer than its Lease lasts."""
    on_its_way, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        on_its_way.set()
        assert go_on.wait(WITHIN_S)

    def cut_leases(method: str, path: str) -> None:
        if "/leases/" in path:
            raise CUT

    line = replicas.lines[0]
    line.before_write = hold
    pushing = Pushing(replicas.leader)
    assert on_its_way.wait(WITHIN_S)
    line.trouble = cut_leases
    replicas.run_out(lambda: replicas.follower.service.is_ready)
    go_on.set()
    assert "was changed by another client at the same moment" in pushing.answer
    assert replicas.stored_versions() == [1]
    assert version(replicas.follower) == (1, CONFIG)
