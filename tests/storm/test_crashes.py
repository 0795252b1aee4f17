"""Services that are killed amid a push, and pushes whose commit the API server does not answer. More: `make storm`."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
from msgspec.structs import replace

from hived_config.loader import load_text
from hived_extender.kube.client import KubeClient
from hived_extender.kube.metrics import Metrics
from hived_extender.reconfiguration import configurations, stores
from hived_extender.reconfiguration.stores import ConfigMapName, ConfigMapStore
from hived_extender.reconfiguration.versions import Stored, Version
from hived_extender.running import Extender, start_extender
from hived_lab.embedded.cluster import EmbeddedCluster
from tests.e2e.http_proxy import Hold, HttpProxy, Side
from tests.expecting import expect_soon
from tests.extender.machine.small_cluster import PATIENCE_S
from tests.storm.busy_cluster import CONFIG, call
from tests.storm.crashes import CONFIG_MAP, KilledService
from tests.storm.documents import first_document, text_of, vcs
from tests.storm.mistakes import push_body
from tests.storm.replica import NAME, NAMESPACE

pytestmark = pytest.mark.sample(3)

SEED = 5
TIMEOUT_S = 1.0
"""How long the service waits for the API server where an answer is held; else a minute."""

held = pytest.mark.parametrize("reached", [TIMEOUT_S], indirect=True, ids=["held"])


@pytest.mark.long
def test_a_service_that_is_killed_amid_a_push_has_the_old_or_the_new_configuration_wholly() -> None:
    with KilledService.open(SEED) as killed:
        killed.kill_at("before the commit reached the API server")
        killed.roll_back("when the commit was answered")
        killed.kill_sometime()
        killed.push()
    assert killed.tally.total() == 3


class Reached:
    """An extender in this process that reaches its API server through a proxy."""

    def __init__(self, extender: Extender, proxy: HttpProxy, kube: KubeClient) -> None:
        self.proxy = proxy
        self._extender = extender
        self._kube = kube

    def in_force(self) -> tuple[int, str]:
        """Version and text."""
        shown = call(self._extender.url, "GET", CONFIG)[1]
        return shown["version"], shown["text"]

    def stored(self) -> Stored:
        """The contents of the ConfigMap, asked for directly."""
        return ConfigMapStore(self._kube, NAMESPACE, NAME, Metrics()).read().stored

    def edit(self, text: str) -> None:
        """Change the text in the ConfigMap directly."""
        store = ConfigMapStore(self._kube, NAMESPACE, NAME, Metrics())
        snapshot = store.read()
        store.commit(snapshot, replace(snapshot.stored, text=text))

    def push(self, text: str, version: int = 1) -> tuple[int, dict[str, object]]:
        """Status code and answer."""
        return call(self._extender.url, "POST", CONFIG, push_body(text, version))


@pytest.fixture
def reached(request: pytest.FixtureRequest) -> Iterator[Reached]:
    """Version 1 is stored and in force; nothing runs. A parameter is how long the service waits for an answer."""
    with running(text_of(first_document()), getattr(request, "param", PATIENCE_S)) as reached:
        yield reached


@contextmanager
def running(text: str, timeout_s: float) -> Iterator[Reached]:
    """A cluster, a proxy and an extender."""
    with ExitStack() as stack:
        cluster = stack.enter_context(EmbeddedCluster(load_text(text, "first.yaml").cluster))
        kube = KubeClient.connect(cluster.api_url)
        stack.callback(kube.close)
        first = Version(1, "2026-01-02T03:04:05Z", "", "", text)
        ConfigMapStore(kube, NAMESPACE, NAME, Metrics()).create(Stored(text, (first,)))
        proxy = HttpProxy(lambda: cluster.api_url)
        proxy.start()
        stack.callback(proxy.stop)
        near = KubeClient.connect(proxy.url, str(cluster.hived_kubeconfig), request_timeout_s=timeout_s)
        extender = stack.enter_context(
            start_extender(ConfigMapName(NAMESPACE, NAME), near, listen="127.0.0.1:0", serves_every_name=True)
        )
        assert extender.wait_ready(PATIENCE_S)
        yield Reached(extender, proxy, kube)


def other(priority: int) -> str:
    """The first document with another promise."""
    document = first_document()
    vcs(document)["a"]["virtualCells"].pop()
    document["priorityClasses"]["high"] = priority
    return text_of(document)


def test_of_two_pushes_at_once_one_wins_and_the_other_is_told(reached: Reached) -> None:
    answers: dict[str, tuple[int, dict[str, object]]] = {}
    texts = [other(1), other(2)]
    pushing = [threading.Thread(target=lambda text=text: answers.update({text: reached.push(text)})) for text in texts]
    for thread in pushing:
        thread.start()
    for thread in pushing:
        thread.join()
    (winner,) = [text for text in texts if answers[text][0] == 200]
    (loser,) = [text for text in texts if text != winner]
    assert reached.in_force() == (2, winner)
    assert answers[loser][0] == 409
    assert "version 2 was pushed by storm" in str(answers[loser][1]["message"])


def test_somebody_who_writes_between_reading_and_committing_wins(reached: Reached) -> None:
    """Another replica, or kubectl."""

    reached.proxy.hold(Side.REQUEST, "PUT", CONFIG_MAP, act=lambda: reached.edit(other(3))).release()
    code, answer = reached.push(other(1))
    assert (code, "changed by another client" in str(answer["message"])) == (409, True)
    expect_soon(lambda: reached.in_force() == (2, other(3)))


@held
@pytest.mark.parametrize("keep_back", [HttpProxy.drop, HttpProxy.hold], ids=["drop", "hold"])
def test_a_commit_that_happens_and_is_not_answered_comes_into_force(
    reached: Reached, keep_back: Callable[[HttpProxy, Side, str, str], Hold]
) -> None:
    keep_back(reached.proxy, Side.ANSWER, "PUT", CONFIG_MAP)
    code, answer = reached.push(other(1))
    assert (code, answer.get("version")) == (200, 2)
    assert reached.in_force() == (2, other(1))
    assert [version.text for version in reached.stored().versions] == [text_of(first_document()), other(1)]


def test_a_commit_that_got_lost_changes_nothing(reached: Reached) -> None:
    reached.proxy.drop(Side.REQUEST, "PUT", CONFIG_MAP)
    code, answer = reached.push(other(1))
    assert (code, "was not changed" in str(answer)) == (503, True)
    assert reached.in_force() == (1, text_of(first_document()))
    assert reached.push(other(1))[0] == 200


@held
def test_a_commit_that_was_said_not_to_have_happened_comes_too_late_afterwards(reached: Reached) -> None:
    held = reached.proxy.hold(Side.REQUEST, "PUT", CONFIG_MAP)
    code, answer = reached.push(other(1))
    assert (code, "was not changed" in str(answer)) == (503, True)
    held.release()
    assert reached.push(other(2), 1)[0] == 200
    assert reached.in_force() == (2, other(2))
    assert [version.text for version in reached.stored().versions] == [text_of(first_document()), other(2)]


def test_a_commit_nobody_knows_about_is_found_out_later(reached: Reached, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "UNKNOWN_TRIES", 2)
    monkeypatch.setattr(stores, "UNKNOWN_WAIT_S", 0.01)
    monkeypatch.setattr(configurations, "FIRST_RETRY_S", 0.1)
    reached.proxy.drop(Side.ANSWER, "PUT", CONFIG_MAP, act=lambda: setattr(reached.proxy, "is_open", False))
    code, answer = reached.push(other(1))
    assert (code, "does not answer" in json.dumps(answer)) == (503, True)
    assert reached.in_force() == (1, text_of(first_document()))
    reached.proxy.is_open = True
    expect_soon(lambda: reached.in_force() == (2, other(1)))
