"""One replica leads, with real electors and a real (embedded) API server between them, whatever happens on the way."""

import random
import re
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from hived_extender.kube import lease as election
from hived_extender.kube.client import KubeClient, KubeError
from hived_extender.kube.lease import Elector, LeaseName
from hived_lab.embedded.cluster import EmbeddedCluster
from tests.expecting import expect_soon
from tests.extender.kube.lease_clock import LeaseClock, SteppedClock, SteppedEvent
from tests.extender.machine.small_cluster import cluster_spec

pytestmark = pytest.mark.sample(12)

NAMESPACE = "default"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
DURATION_S = 1
LOST = KubeError(0, "NoAnswer", "connection reset")
FORBIDDEN = KubeError(403, "Forbidden", 'leases "hived" is forbidden: User "x" cannot get resource "leases"')


class Line:
    """The way from one elector to the API server, on which things go wrong as told. `clock` has delays and waits."""

    def __init__(self, kube: KubeClient, clock: SteppedClock | None) -> None:
        self._kube = kube
        self._clock = clock
        self.call_count = 0
        self.is_cut = False
        self.refusal: KubeError | None = None
        self.lost_answers = 0
        self.delay_s = 0.0
        self.is_open = True

    def get(self, path: str, item_type: type[Any]) -> Any:
        return self._call(lambda: self._kube.get(path, item_type), is_write=False)

    def create(self, path: str, body: Any) -> Any:
        return self._call(lambda: self._kube.create(path, body), is_write=True)

    def replace(self, path: str, body: Any) -> Any:
        return self._call(lambda: self._kube.replace(path, body), is_write=True)

    def _call(self, call: Callable[[], Any], is_write: bool) -> Any:
        self.call_count += 1
        if self._clock is not None:
            self._clock.wait(lambda: self.is_open)
            self._clock.sleep(self.delay_s)
        if self.is_cut:
            raise LOST
        if self.refusal is not None:
            raise self.refusal
        answer = call()
        if self._clock is not None:
            self._clock.wait(lambda: self.is_open)
        if is_write and self.lost_answers:
            self.lost_answers -= 1
            raise LOST
        return answer


class Replica:
    """An elector and what it told. `gains` counts its terms; without `clock` it waits in real time."""

    def __init__(
        self, kube: KubeClient, lease: str, identity: str, clock: SteppedClock | None = None, **options: Any
    ) -> None:
        self.line = Line(kube, clock)
        self.identity = identity
        self.standing = ""
        self.gains = 0
        self.term: Callable[[], bool] = lambda: False
        name = LeaseName(NAMESPACE, lease, identity, DURATION_S)
        self.elector = Elector(self.line, name, self._gained, self._told, **options)
        if clock is not None:
            self.elector._stop = SteppedEvent(clock)
            clock.add(self.elector._thread)

    @property
    def leads(self) -> bool:
        return self.term()

    def start(self) -> "Replica":
        self.elector.start()
        return self

    def kill(self) -> None:
        """Nothing of it reaches the API server any more, and nothing is let go of."""
        self.line.is_cut = True
        self.elector._stop.set()

    def end(self) -> None:
        self.line.is_open = True
        self.elector.stop()

    def _gained(self, holds: Callable[[], bool]) -> None:
        self.gains += 1
        self.term = holds

    def _told(self, standing: str) -> None:
        self.standing = standing


class Watchdog:
    """Looks who leads each time before time passes; `doubles` has each moment at which two did."""

    def __init__(self, clock: SteppedClock, replicas: list[Replica]) -> None:
        self.replicas = replicas
        self.doubles: list[list[str]] = []
        clock.before_step.append(self._look)

    def _look(self) -> None:
        holding = [replica.identity for replica in self.replicas if replica.leads]
        if len(holding) > 1:
            self.doubles.append(holding)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(cluster_spec()) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def kube(cluster: EmbeddedCluster) -> Iterator[KubeClient]:
    client = KubeClient.connect(cluster.api_url)
    yield client
    client.close()


@pytest.fixture
def stepped(monkeypatch: pytest.MonkeyPatch) -> SteppedClock:
    """A clock that goes on by itself."""
    monkeypatch.setattr(election, "RENEW_INTERVAL_S", 0.15)
    monkeypatch.setattr(election, "POLL_INTERVAL_S", 0.1)
    monkeypatch.setattr(election, "SEEN_BEFORE_S", 0.3)
    monkeypatch.setattr(election, "UNKNOWN_S", 0.45)
    return SteppedClock(monkeypatch)


@pytest.fixture
def replicas(kube: KubeClient, request: pytest.FixtureRequest) -> Iterator[Callable[..., list[Replica]]]:
    """Starts replicas with a Lease of the test's own; the first leads. They go by the clock of the test."""
    is_turned = "clock" in request.fixturenames
    stepped = None if is_turned else request.getfixturevalue("stepped")
    started: list[Replica] = []

    def start(count: int) -> list[Replica]:
        for number in range(count):
            started.append(Replica(kube, lease_of(request), f"r{number}", stepped).start())
            expect_soon(lambda: started[0].leads)
        return started

    yield start
    for replica in started:
        replica.end()


@pytest.fixture
def lease_path(request: pytest.FixtureRequest) -> str:
    return f"{LEASES}/{lease_of(request)}"


def lease_of(request: pytest.FixtureRequest) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")
    return f"{name[:40].strip('-')}-{zlib.crc32(name.encode())}"


def keeps_leading(clock: SteppedClock, replica: Replica, seconds: float) -> bool:
    """Was it one term, without a gap, for so long?"""
    gains = replica.gains
    clock.sleep(seconds)
    return replica.leads and replica.gains == gains


def test_the_first_leads_and_the_second_says_who(replicas: Callable[..., list[Replica]]) -> None:
    first, second = replicas(2)
    expect_soon(lambda: second.standing)
    assert (first.leads, second.leads, second.standing) == (True, False, "r0 leads")


def test_a_polite_stop_hands_over_before_the_lease_runs_out(
    clock: LeaseClock, replicas: Callable[..., list[Replica]]
) -> None:
    first, second = replicas(2)
    first.elector.stop()
    expect_soon(lambda: second.leads)
    assert not first.leads


def test_a_polite_stop_after_a_lost_answer_hands_over_before_the_lease_runs_out(
    clock: LeaseClock, replicas: Callable[..., list[Replica]]
) -> None:
    first, second = replicas(2)
    first.line.lost_answers = 1
    expect_soon(lambda: not first.line.lost_answers)
    first.elector.stop()
    expect_soon(lambda: second.leads)
    assert not first.leads


def test_a_killed_leader_is_followed_when_its_lease_runs_out(
    clock: LeaseClock, replicas: Callable[..., list[Replica]]
) -> None:
    first, second = replicas(2)
    expect_soon(lambda: second.standing == "r0 leads")
    first.kill()
    clock.turn(0.9 * DURATION_S)
    expect_soon(lambda: not first.leads)
    look_count = second.line.call_count
    expect_soon(lambda: second.line.call_count >= look_count + 3)
    assert not second.leads
    clock.run_out(DURATION_S, lambda: second.leads)


def test_the_next_leader_is_counted(replicas: Callable[..., list[Replica]], kube: KubeClient, lease_path: str) -> None:
    first, second = replicas(2)
    first.elector.stop()
    expect_soon(lambda: second.leads)
    spec = kube.get(lease_path)["spec"]
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("r1", 2)


def test_a_lease_that_is_deleted_by_hand_is_made_again(
    stepped: SteppedClock, replicas: Callable[..., list[Replica]], kube: KubeClient, lease_path: str
) -> None:
    first, second = replicas(2)
    expect_soon(lambda: second.standing)
    kube.delete(lease_path)
    assert keeps_leading(stepped, first, 1.5)
    assert kube.get(lease_path)["spec"]["holderIdentity"] == "r0"
    assert second.gains == 0


def test_a_leader_obeys_when_somebody_gives_the_lease_to_another(
    clock: LeaseClock, replicas: Callable[..., list[Replica]], kube: KubeClient, lease_path: str
) -> None:
    first = replicas(1)[0]
    kube.patch(lease_path, {"spec": {"holderIdentity": "stranger"}})
    expect_soon(lambda: not first.leads)
    expect_soon(lambda: first.standing == "stranger leads")
    assert first.gains == 1
    clock.run_out(DURATION_S, lambda: first.gains == 2)


def test_a_leader_keeps_the_lease_when_somebody_else_annotates_it(
    stepped: SteppedClock, replicas: Callable[..., list[Replica]], kube: KubeClient, lease_path: str
) -> None:
    first, second = replicas(2)
    for number in range(8):
        kube.patch(lease_path, {"metadata": {"annotations": {"note": str(number)}}})
        assert keeps_leading(stepped, first, 0.12)
    assert second.gains == 0


def test_lost_answers_do_not_cost_leadership(stepped: SteppedClock, replicas: Callable[..., list[Replica]]) -> None:
    first, second = replicas(2)
    first.line.lost_answers = 2
    assert keeps_leading(stepped, first, 1.5)
    assert (first.line.lost_answers, second.gains) == (0, 0)


def test_a_leader_without_its_api_server_stops_before_the_next_one_begins(
    stepped: SteppedClock,
    replicas: Callable[..., list[Replica]],
) -> None:
    first, second = replicas(2)
    watchdog = Watchdog(stepped, [first, second])
    first.line.is_cut = True
    expect_soon(lambda: second.leads)
    first.line.is_cut = False
    expect_soon(lambda: first.standing == "r1 leads")
    assert watchdog.doubles == []


def test_everybody_without_an_api_server_waits_until_it_is_back(replicas: Callable[..., list[Replica]]) -> None:
    both = replicas(2)
    for replica in both:
        replica.line.is_cut = True
    expect_soon(lambda: all("is out of reach" in replica.standing for replica in both))
    assert not any(replica.leads for replica in both)
    for replica in both:
        replica.line.is_cut = False
    expect_soon(lambda: any(replica.leads for replica in both))


def test_a_refusal_by_rbac_is_told(kube: KubeClient, request: pytest.FixtureRequest) -> None:
    replica = Replica(kube, lease_of(request), "r0")
    replica.line.refusal = FORBIDDEN
    replica.start()
    expect_soon(lambda: replica.standing)
    replica.end()
    assert "cannot get resource" in replica.standing
    assert f"the Lease {NAMESPACE}/{lease_of(request)} is out of reach" in replica.standing


def test_a_wall_clock_that_jumps_by_hours_changes_nothing(
    stepped: SteppedClock, replicas: Callable[..., list[Replica]], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = replicas(2)
    real_time = time.time
    for hours in (5, -5):
        monkeypatch.setattr("hived_extender.kube.clocks.time.time", lambda hours=hours: real_time() + 3600 * hours)
        assert keeps_leading(stepped, first, 0.7)
    assert second.gains == 0


def test_a_slow_api_server_does_not_cost_leadership(
    stepped: SteppedClock,
    replicas: Callable[..., list[Replica]],
) -> None:
    """A quarter of the duration for each call, as one second is of the usual four."""
    first = replicas(1)[0]
    first.line.delay_s = 0.25 * DURATION_S
    assert keeps_leading(stepped, first, 2.0)


def test_a_slow_api_server_elects(stepped: SteppedClock, kube: KubeClient, request: pytest.FixtureRequest) -> None:
    replica = Replica(kube, lease_of(request), "r0", stepped)
    replica.line.delay_s = 0.25 * DURATION_S
    replica.start()
    expect_soon(lambda: replica.leads)
    lasts = keeps_leading(stepped, replica, 1.5)
    replica.end()
    assert lasts


def test_a_renewal_that_comes_too_late_begins_another_term(
    stepped: SteppedClock, replicas: Callable[..., list[Replica]]
) -> None:
    first = replicas(1)[0]
    ended = first.term
    first.line.is_open = False
    stepped.sleep(DURATION_S)
    assert not first.leads
    first.line.is_open = True
    expect_soon(lambda: first.leads)
    assert (first.gains, ended()) == (2, False)


def test_a_replica_that_breaks_lets_go(clock: LeaseClock, kube: KubeClient, request: pytest.FixtureRequest) -> None:
    health = {"r0": True}
    broken = Replica(kube, lease_of(request), "r0", may_lead=lambda: health["r0"]).start()
    expect_soon(lambda: broken.leads)
    other = Replica(kube, lease_of(request), "r1").start()
    health["r0"] = False
    expect_soon(lambda: other.leads)
    assert (broken.leads, broken.standing) == (False, "this replica is broken")
    broken.end()
    other.end()


def test_an_elector_that_has_ended_by_itself_is_noticed(
    kube: KubeClient, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    replica = Replica(kube, lease_of(request), "r0", may_lead=lambda: 1 / 0)
    assert replica.elector.is_alive
    replica.start()
    expect_soon(lambda: not replica.elector.is_alive)


@pytest.mark.sample(1)
@pytest.mark.parametrize("batch", [0, 1])
def test_never_two_lead_whatever_happens(stepped: SteppedClock, kube: KubeClient, batch: int) -> None:
    """Ten seeds side by side, each with three replicas and a Lease of its own."""
    seeds = range(10 * batch, 10 * (batch + 1))
    with ThreadPoolExecutor(len(seeds)) as pool:
        outcomes = list(pool.map(lambda seed: trouble(stepped, kube, seed), seeds))
    assert [doubles for doubles, _ in outcomes] == [[] for _ in seeds]
    assert all(terms >= 2 for _, terms in outcomes)


def trouble(clock: SteppedClock, kube: KubeClient, seed: int) -> tuple[list[list[str]], int]:
    """Kill, stop, pause and cut off replicas for some seconds; returns when two led, and how many terms there were."""
    chance = random.Random(seed)
    everybody: list[Replica] = []

    def another() -> Replica:
        everybody.append(Replica(kube, f"trouble-{seed}", f"r{len(everybody)}", clock).start())
        return everybody[-1]

    watchdog = Watchdog(clock, everybody)
    with clock.taken_part():
        alive = [another() for _ in range(3)]
        until = election.now() + 4.0
        while election.now() < until:
            clock.sleep(chance.uniform(0.05, 0.4))
            leaders = [replica for replica in alive if replica.leads]
            victim = chance.choice(leaders or alive)
            match chance.choice(("kill", "stop", "pause", "cut", "lose", "heal", "heal")):
                case "kill":
                    victim.kill()
                    alive[alive.index(victim)] = another()
                case "stop":
                    victim.end()
                    alive[alive.index(victim)] = another()
                case "pause":
                    victim.line.is_open = False
                case "cut":
                    victim.line.is_cut = True
                case "lose":
                    victim.line.lost_answers += 1
                case _:
                    for replica in alive:
                        replica.line.is_cut = False
                        replica.line.is_open = True
    for replica in everybody:
        replica.end()
    return watchdog.doubles, sum(replica.gains for replica in everybody)


FORGED = {
    "emptied": {"spec": {"holderIdentity": None, "leaseDurationSeconds": None, "renewTime": None, "acquireTime": None}},
    "let go of by another": {
        "metadata": {"annotations": {election.RELEASE: "1", election.DIGEST: election._digest("1")}},
        "spec": {"holderIdentity": "", "leaseDurationSeconds": 1},
    },
    "given to the follower": {"spec": {"holderIdentity": "r1"}},
    "given to nobody we know": {"spec": {"holderIdentity": "r7"}},
    "cut short": {
        "spec": {"leaseDurationSeconds": 1, "holderIdentity": "r0", "renewTime": "1970-01-01T00:00:00.000000Z"}
    },
    "touched": {"metadata": {"labels": {"a": "b"}}},
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("forged", FORGED)
@pytest.mark.parametrize("count", [1, 5])
def test_who_may_write_the_lease_makes_no_two_leaders(
    forged: str,
    count: int,
    kube: KubeClient,
    stepped: SteppedClock,
    replicas: Callable[..., list[Replica]],
    lease_path: str,
) -> None:
    started = replicas(2)
    with stepped.taken_part():
        watchdog = Watchdog(stepped, started)
        stepped.sleep(0.5)
        for _ in range(count):
            kube.patch(lease_path, FORGED[forged])
            stepped.sleep(0.07)
        stepped.wait(lambda: any(one.leads for one in started), 10 * DURATION_S)
        stepped.sleep(3 * DURATION_S)
    assert watchdog.doubles == []
    assert any(one.leads for one in started)


@pytest.mark.parametrize("forged", ["emptied", "let go of by another", "cut short", "touched"])
def test_a_leader_takes_an_emptied_lease_back_and_leads_on(
    forged: str, kube: KubeClient, stepped: SteppedClock, replicas: Callable[..., list[Replica]], lease_path: str
) -> None:
    first, _ = replicas(2)
    with stepped.taken_part():
        stepped.sleep(0.5)
        kube.patch(lease_path, FORGED[forged])
        assert keeps_leading(stepped, first, 3 * DURATION_S)


def test_a_release_of_an_earlier_leader_is_not_believed_again(
    kube: KubeClient, stepped: SteppedClock, replicas: Callable[..., list[Replica]], lease_path: str
) -> None:
    started = replicas(3)
    with stepped.taken_part():
        stepped.sleep(0.5)
        started[0].end()
        found = kube.get(lease_path)
        released = {"metadata": {"annotations": found["metadata"]["annotations"]}, "spec": found["spec"]}
        stepped.wait(lambda: any(one.leads for one in started[1:]), 5 * DURATION_S)
        stepped.sleep(0.5)
        watchdog = Watchdog(stepped, started)
        for _ in range(5):
            kube.patch(
                lease_path, {"metadata": {"annotations": released["metadata"]["annotations"]}, "spec": released["spec"]}
            )
            stepped.sleep(0.07)
        stepped.sleep(3 * DURATION_S)
    assert watchdog.doubles == []


def test_a_newcomer_respects_a_lease_that_nobody_holds_until_a_leader_would_have_written_it(
    kube: KubeClient, stepped: SteppedClock, replicas: Callable[..., list[Replica]], request: pytest.FixtureRequest
) -> None:
    name = lease_of(request)
    (first,) = replicas(1)
    with stepped.taken_part():
        stepped.sleep(0.5)
        kube.patch(f"{LEASES}/{name}", FORGED["let go of by another"])
        newcomer = Replica(kube, name, "r9", stepped).start()
        watchdog = Watchdog(stepped, [first, newcomer])
        stepped.sleep(3 * DURATION_S)
        assert (first.leads, newcomer.leads) == (True, False)
        newcomer.end()
    assert watchdog.doubles == []
