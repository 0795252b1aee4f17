"""No answer of the API server ends a process that starts or takes over: it waits, says so, and goes on."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from hived.values.errors import UserError
from hived_extender import groundwork
from hived_extender.groundwork import Awaiting, BindingSecretName, StoppedError
from hived_extender.http import server
from hived_extender.kube.client import KubeClient, KubeError
from hived_extender.kube.lease import LeaseName
from hived_extender.machine import leadership
from hived_extender.reconfiguration.stores import ConfigMapName
from hived_extender.reconfiguration.versions import TEXT_KEY
from hived_extender.running import start_extender
from hived_lab.embedded.cluster import EmbeddedCluster
from tests.e2e.processes import free_port
from tests.extender.machine.small_cluster import CONFIG, cluster_spec, wait_until
from tests.extender.machine.stored_secrets import Secrets
from tests.extender.replica import DEADLINE_S, status_of

pytestmark = pytest.mark.sample(5)

FAULTS = {0: "NoAnswer", 401: "Unauthorized", 403: "Forbidden", 429: "TooManyRequests", 500: "InternalError"}
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
SECRETS = "/api/v1/namespaces/default/secrets"


class Faulty(KubeClient):
    """A client whose requests fail as `fault` says; Secrets are in memory."""

    origin: "Faulty | None" = None
    secrets: Secrets
    fault: Callable[[str, str], int | None] = staticmethod(lambda method, path: None)
    """The status of a request that fails, by method and path."""

    def with_timeout(self, request_timeout_s: float) -> KubeClient:
        """Another one with the same faults."""
        other = Faulty(self._endpoint.configuration, request_timeout_s=request_timeout_s)
        other.origin = self
        return other

    def _request(self, method: str, path: str, *arguments: Any, **options: Any) -> Any:
        self._fail(method, path)
        if path.startswith(SECRETS):
            return self._secret(method, path, options.get("body") or {})
        return super()._request(method, path, *arguments, **options)

    def _open(self, method: str, path: str, *arguments: Any, **options: Any) -> Any:
        self._fail(method, path)
        return super()._open(method, path, *arguments, **options)

    def _fail(self, method: str, path: str) -> None:
        status = (self.origin or self).fault(method, path)
        if status is not None:
            raise KubeError(status, FAULTS[status], f"{method} {path}")

    def _secret(self, method: str, path: str, body: Mapping[str, Any]) -> bytes:
        secrets = (self.origin or self).secrets
        if method == "POST":
            secrets.create(path, body)
        elif method == "PATCH":
            secrets.patch(path, body)
        return json.dumps(secrets.get(path) if method != "POST" else body).encode()


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(cluster_spec()) as cluster:
        with closing(KubeClient.connect(cluster.api_url)) as kube:
            kube.create(CONFIG_MAPS, {"metadata": {"name": "hived-config"}, "data": {TEXT_KEY: CONFIG}})
        yield cluster


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groundwork, "FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(leadership, "RETRY_WAIT_S", 0.01)
    monkeypatch.setattr(leadership, "OBJECTS_S", 0.1)


def line(cluster: EmbeddedCluster) -> Faulty:
    found = Faulty.connect(kubeconfig=str(cluster.hived_kubeconfig))
    found.secrets = Secrets()
    return found


def first_calls(status: int, count: int = 2) -> Callable[[str, str], int | None]:
    """The first calls of each method and path fail."""
    calls: dict[tuple[str, str], int] = {}

    def fault(method: str, path: str) -> int | None:
        calls[method, path] = calls.get((method, path), 0) + 1
        return status if calls[method, path] <= count else None

    return fault


def starting(kube: KubeClient, **options: Any) -> Any:
    secret = BindingSecretName("default", "keys")
    given = {"listen": "127.0.0.1:0", "binding_secret": secret, **options}
    return start_extender(ConfigMapName("default", "hived-config"), kube, **given)


@pytest.mark.sample(2)
@pytest.mark.parametrize("status", FAULTS)
def test_every_first_call_of_a_start_may_fail(cluster: EmbeddedCluster, status: int) -> None:
    faulty = line(cluster)
    faulty.fault = first_calls(status)
    with starting(faulty, lease=LeaseName("default", "hived", "r0")) as extender:
        assert extender.wait_ready(DEADLINE_S)
        assert extender.is_serving


@pytest.mark.sample(2)
@pytest.mark.parametrize("status", FAULTS)
def test_every_call_of_a_take_over_may_fail_for_a_while(cluster: EmbeddedCluster, status: int) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(ExitStack())
        leader = first.enter_context(starting(line(cluster), lease=LeaseName("default", "hived", "r0")))
        assert leader.wait_ready(DEADLINE_S)
        faulty = line(cluster)
        taker = stack.enter_context(starting(faulty, lease=LeaseName("default", "hived", "r1")))
        wait_until(lambda: "leads" in taker.service.standing)
        asked = []

        def fault(method: str, path: str) -> int | None:
            if "/leases/" in path:
                return None
            asked.append(path)
            return status if asked.count(path) <= 2 else None

        faulty.fault = fault
        first.close()
        assert taker.wait_ready(DEADLINE_S)
        assert f"{SECRETS}/keys" in asked
        assert taker.is_serving


@pytest.mark.parametrize("path", [f"{SECRETS}/keys", f"{CONFIG_MAPS}/hived-config"])
def test_a_start_that_waits_is_alive_and_says_why_it_is_not_ready(cluster: EmbeddedCluster, path: str) -> None:
    faulty, port, is_over = line(cluster), free_port(), threading.Event()
    faulty.fault = lambda method, called: None if is_over.is_set() or called != path else 500
    url = f"http://127.0.0.1:{port}"

    def watch() -> None:
        wait_until(lambda: _status(f"{url}/healthz") == 200)
        with pytest.raises(HTTPError) as caught:
            urlopen(f"{url}/readyz")
        reasons.append(json.load(caught.value)["reason"])
        is_over.set()

    reasons: list[str] = []
    watching = threading.Thread(target=watch)
    watching.start()
    with starting(faulty, listen=f"127.0.0.1:{port}") as extender:
        watching.join()
        assert extender.wait_ready(DEADLINE_S)
    assert reasons[0].startswith("waiting for the API server, which cannot show ")


def _status(url: str) -> int:
    with contextlib.suppress(OSError):
        return status_of(url)
    return 0


def test_a_start_that_waits_can_be_stopped(cluster: EmbeddedCluster) -> None:
    faulty, stop = line(cluster), threading.Event()
    faulty.fault = lambda method, path: stop.set() or 500 if path.startswith(SECRETS) else None
    with pytest.raises(StoppedError), starting(faulty, stop=stop):
        pass


@pytest.mark.parametrize("status", [400, 404, 422])
def test_a_mistake_is_not_waited_for(status: int) -> None:
    error = KubeError(status, "", "it is wrong")
    with pytest.raises(KubeError, match="it is wrong"):
        Awaiting().read(lambda: (_ for _ in ()).throw(error), "Secret ns/keys")
    with pytest.raises(UserError, match="no such file"):
        Awaiting().read(lambda: (_ for _ in ()).throw(UserError("no such file")), "file f")


def test_the_port_is_free_again_once_the_waiting_is_over() -> None:
    port, tries = free_port(), []

    def read() -> int:
        tries.append(1)
        if len(tries) < 3:
            raise KubeError(500, "InternalError", "no")
        return 7

    assert Awaiting(f"127.0.0.1:{port}").read(read, "Secret ns/keys") == 7
    server.listen(f"127.0.0.1:{port}").close()
