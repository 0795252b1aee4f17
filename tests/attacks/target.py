"""A cluster that can be attacked: the embedded API server and `hived serve`, each a process, and honest callers."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Any

from hived_extender.api.paths import FILTER_PATH, HEALTH_PATH, READINESS_PATH
from hived_extender.kube.client import KubeClient
from tests.attacks.attack import Latency, Outcome, Run
from tests.benchmarks.process import cpu_s, resident_mb
from tests.e2e import guard
from tests.e2e.pods import POD_LIST, Json, configuration, create, pod
from tests.e2e.processes import Process, StartError, answers, free_port, hived_process
from tests.extender.http.secured import Files
from tests.parts import MadeOfParts

READY_S = 180.0
STOP_S = 15.0
LATER_S = 60.0
HONEST_PODS = 60
INTERVAL_S = 0.005
SHARES = {"a": 16, "evil": 4, "b": 4}
"""Nodes of 8 GPUs for each virtual cluster; honest pods are of "a"."""

NODE_NAMES = [f"n{number}" for number in range(sum(SHARES.values()))]


class Target(MadeOfParts):
    """An API server, replicas of hived beside it, and honest pods, as a context manager.

    Parameters
    ----------
    run, name : the attack that it is for
    options : further ones of `hived serve`
    replica_count : how many replicas
    is_secured : whether it serves TLS, knows kube-scheduler by its certificate, and asks for reviews
    has_webhook : whether the admission webhook has a port
    file_limit : how many files each replica may open, 0 for as many as the system allows
    users, rights : of the reviews, see `api.Reviewing`
    shares : nodes by virtual cluster, which "a", "evil" and "b" are
    settings : further keys of the configuration
    """

    def __init__(
        self,
        run: Run,
        name: str,
        *,
        options: Sequence[str] = (),
        replica_count: int = 1,
        is_secured: bool = False,
        has_webhook: bool = False,
        file_limit: int = 0,
        users: Json | None = None,
        rights: dict[str, list[str]] | None = None,
        shares: Mapping[str, int] = SHARES,
        settings: Json | None = None,
    ) -> None:
        self.folder = run.folder / name
        self.folder.mkdir(parents=True)
        self.config = configuration(self.folder, shares, **(settings or {}))
        self.is_secured = is_secured
        self.files = Files(self.folder)
        self.api_port = free_port()
        self._users = self.folder / "users.json"
        self._users.write_text(json.dumps({"users": users or {}, "rights": rights or {}}))
        self.ports = [free_port() for _ in range(replica_count)]
        self.webhook_port = free_port() if has_webhook else 0
        self._options, self._file_limit = tuple(options), file_limit

    @property
    def port(self) -> int:
        """Of the first replica."""
        return self.ports[0]

    @property
    def service(self) -> Process:
        """The first replica."""
        return self.services[0]

    @property
    def _kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    def _begin(self, stack: ExitStack) -> None:
        self.api = Process(
            "api",
            [sys.executable, "-m", "tests.attacks.api", f"--config={self.config}", f"--port={self.api_port}",
             f"--kubeconfig={self._kubeconfig}", f"--users={self._users}"],
            self.folder / "api.log",
            is_ready=lambda: self._kubeconfig.exists() and answers(f"http://127.0.0.1:{self.api_port}/api/v1/nodes", 2),
            environment={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )  # fmt: skip
        stack.callback(self.api.stop)
        self.api.start()
        self.kube = KubeClient.connect(kubeconfig=str(self._kubeconfig))  # with hived's rights
        stack.callback(self.kube.close)
        self.services = [self._service(number, port) for number, port in enumerate(self.ports)]
        for service, port in zip(self.services, self.ports, strict=True):
            stack.callback(service.stop)
            service.start(ready_s=READY_S)
            if port == self.port:
                self.await_status(READINESS_PATH, port)  # the first one leads

    def _service(self, number: int, port: int) -> Process:
        words = [f"--config={self.config}"]
        files = [f"--tls-cert-file={self.files.certificate}", f"--tls-private-key-file={self.files.key}"]
        words += [*files, f"--client-ca-file={self.files.ca}", "--authorize"] if self.is_secured else []
        if self.webhook_port:
            words += [f"--webhook-port={self.webhook_port}"]
            words += [f"--webhook-tls-cert-file={self.files.certificate}"]
            words += [f"--webhook-tls-private-key-file={self.files.key}"]
        return hived_process(
            f"hived-{number}",
            port,
            [*words, *self._options],
            self.folder / f"hived-{number}.log",
            is_ready=lambda: self.status(HEALTH_PATH, port=port) == 200,
            environment={"KUBECONFIG": str(self._kubeconfig), "PYTHONFAULTHANDLER": "1"},
            file_limit=self._file_limit,
        )

    # -- asking

    def connect(self, client: str = "scheduler", *, port: int = 0, timeout_s: float = 10.0) -> HTTPConnection:
        """A connection to a replica; over TLS with the certificate of that name."""
        if not self.is_secured:
            return HTTPConnection("127.0.0.1", port or self.port, timeout=timeout_s)
        context = self.files.context(client)
        return HTTPSConnection("127.0.0.1", port or self.port, timeout=timeout_s, context=context)

    def status(self, path: str, *, port: int = 0, timeout_s: float = 5.0) -> int:
        """With what a GET is answered, 0 for no answer."""
        connection = self.connect(port=port, timeout_s=timeout_s)
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        except OSError:
            return 0
        finally:
            connection.close()

    def await_status(self, path: str, port: int = 0) -> float:
        """Seconds until a path is answered with 200. Raises StartError."""
        began = time.monotonic()
        while not any(self.status(path, port=each, timeout_s=0.5) == 200 for each in ([port] if port else self.ports)):
            if time.monotonic() - began > LATER_S:
                raise StartError(f"{path} was not answered with 200\n{self.service.tail()}")
            time.sleep(0.01)
        return time.monotonic() - began

    def end_service(self, outcome: Outcome, number: int = 0) -> None:
        """End a replica in order; one that does not end tells where it stands."""
        service = self.services[number]
        os.kill(service.pid, signal.SIGTERM)
        try:
            service.wait_ended(STOP_S)
        except subprocess.TimeoutExpired:
            os.kill(service.pid, signal.SIGABRT)
            service.wait_ended(STOP_S)
            outcome.fault(f"hived did not end within {STOP_S:.0f} s of SIGTERM\n{service.tail(60)}")

    def restart(self, outcome: Outcome, number: int = 0) -> float:
        """End a replica in order and start it again; seconds from its start until it is ready."""
        self.end_service(outcome, number)
        began = time.monotonic()
        self.services[number].start(ready_s=READY_S)
        self.await_status(READINESS_PATH, self.ports[number])
        return time.monotonic() - began

    def fault(self) -> str:
        """Why the first replica is not well, "" if it is."""
        if not self.service.is_running:
            return f"hived has ended\n{self.service.tail()}"
        status = self.status(HEALTH_PATH, timeout_s=10.0)
        return "" if status == 200 else f"{HEALTH_PATH} is answered with {status}\n{self.service.tail(8)}"

    def resident_mb(self) -> float:
        """Memory of the first replica."""
        return resident_mb(self.service.pid)

    def cpu_s(self) -> float:
        """Processor time of the first replica so far."""
        return cpu_s(self.service.pid)

    # -- honest calls

    def honest_bodies(self, count: int = HONEST_PODS) -> list[str]:
        """Create honest pods; returns filter calls about them, once all are answered."""
        create(self.kube, [pod(f"honest-{number}") for number in range(count)])
        bodies = []
        for number in range(count):
            found = self.kube.get(f"{POD_LIST}/honest-{number}")
            bodies.append(json.dumps({"Pod": found, "Nodes": None, "NodeNames": NODE_NAMES}))
        for body in bodies:
            self.place(body)
        return bodies

    def place(self, body: str) -> None:
        """Ask filter until a pod has cells. Raises StartError."""
        until = time.monotonic() + LATER_S
        while True:
            connection = self.connect()
            connection.request("POST", FILTER_PATH, body)
            text = connection.getresponse().read()
            connection.close()
            if json.loads(text).get("NodeNames"):
                return
            if time.monotonic() > until:
                raise StartError(f"an honest pod has no node: {text[:300]!r}")
            time.sleep(0.05)

    @contextmanager
    def probing(self, bodies: Sequence[str], *, port: int = 0) -> Iterator["Probe"]:
        """Honest calls until the end."""
        plan = self.folder / "plan.json"
        pair = self.folder / "scheduler.crt", self.folder / "scheduler.key"
        paths = {"ca": self.files.ca, "certificate": pair[0], "key": pair[1]}
        words: dict[str, Any] = {key: str(path) if self.is_secured else "" for key, path in paths.items()}
        plan.write_text(json.dumps({"port": port or self.port, "bodies": bodies, "interval_s": INTERVAL_S, **words}))
        command = [sys.executable, "-m", "tests.attacks.prober", str(plan)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            guard.watch(process.pid)
            try:
                probe = Probe(process)
                probe.over(0.5)  # imports and connections do not count
                yield probe
            finally:
                process.kill()
                process.wait()
                guard.forget(process.pid)


class Probe:
    """The honest calls that go on in another process."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def since(self) -> Latency:
        """Of the calls since the last time this was asked. Raises RuntimeError if nobody calls any more."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the honest caller has ended")
        seen = json.loads(line)
        return Latency.of(seen["spent"], seen["failures"])

    def over(self, seconds: float) -> Latency:
        """Of the calls of the next seconds."""
        self.since()
        time.sleep(seconds)
        return self.since()
