"""A Kubernetes control plane on loopback: etcd, kube-apiserver, kube-controller-manager, kwok, kube-scheduler.

Every part is a real program with a client certificate of its own, TLS and RBAC are on. Each is a `Process` that
failure tests can stop, kill, freeze and start again on the same port with the same data.
"""

import contextlib
import json
import shutil
import ssl
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from hived_extender.kube.client import NODES, PODS, KubeClient, KubeError, pod_path
from hived_jobs.records import KIND, record_path
from hived_jobs.submission import JOB
from hived_lab.embedded.nodes import Machine
from tests.e2e import guard
from tests.e2e.certificates import LOOPBACK, Authority, KeyPair
from tests.e2e.machines import KUBELET, PRESENT, NetworkFailures, create_nodes, is_ready, node_path
from tests.e2e.podgroups import DEFINITIONS
from tests.e2e.processes import Process, StartError, answers, free_port
from tests.e2e.tools import Tools
from tests.parts import MadeOfParts

STAGES = Path(__file__).parent / "kwok"
LOGS = Path("out") / "e2e"
SCHEDULER = "kube-scheduler"
PROBE_S = 2.0
NODE_GRACE_S = 3600
"""Without a sign of life a node counts as gone after that. No test waits for it: nodes fail by their annotation
(machines.py), and on a busy machine kwok may be late.
"""

LEASE_S = 20
"""kwok gives a sign of life four times as often. A node that is made again is played from the next one on."""


class ControlPlane(MadeOfParts):
    """A control plane as a context manager: answering when entered, gone without a trace but its logs at the end.

    Parameters
    ----------
    tools : the programs, from `tests.e2e.tools.find`
    name : the folder under `out/e2e` that keeps the logs
    lease_s : see LEASE_S
    audit_policy : what the API server is to write into `audit_log`, by default nothing

    Attributes
    ----------
    etcd, apiserver, controller_manager, kwok : the parts, each a `Process`
    has_podgroups : whether it has Kubernetes' own PodGroups, which came with 1.36 and are switched on here
    forgets_limits : whether its kube-scheduler forgets, when a node comes, which limits it is to ignore
    schedulers : by name, the kube-schedulers that `start_scheduler` has started
    authority : signs certificates that this API server trusts
    kube : a client with every right
    url : where the API server answers
    logs : the folder with a log file for each part
    """

    def __init__(self, tools: Tools, name: str, *, lease_s: int = LEASE_S, audit_policy: str = "") -> None:
        self.tools = tools
        self.logs = LOGS / name
        self.has_podgroups = tools.version.startswith("v1.36.")
        self.forgets_limits = tools.version.startswith("v1.37.")
        self.schedulers: dict[str, Process] = {}
        self.audit_log = self.logs / "audit.log"
        self._audit_policy = audit_policy
        self._lease_s = lease_s

    # -- who may talk to the API server ----------------------------------------------------------

    def kubeconfig(self, user: str, groups: Sequence[str] = ()) -> Path:
        """A kubeconfig with a client certificate for any user and groups; no rights come with it but theirs."""
        return self.authority.kubeconfig(user, self.url, client=self.authority.client(user, groups))

    def service_account_kubeconfig(self, namespace: str, name: str) -> Path:
        """A kubeconfig with an hour's token of a ServiceAccount that exists. Raises KubeError."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 3600},
        }
        token: str = self.kube.create(path, request)["status"]["token"]
        return self.authority.kubeconfig(f"{namespace}-{name}-token", self.url, token=token)

    # -- the parts -------------------------------------------------------------------------------

    @property
    def scheduler(self) -> Process | None:
        """The kube-scheduler that was started without a name of its own, None before."""
        return self.schedulers.get(SCHEDULER)

    def start_scheduler(
        self, configuration: str, kubeconfig: Path, *, name: str = SCHEDULER, options: Sequence[str] = ()
    ) -> Process:
        """Start a kube-scheduler with a KubeSchedulerConfiguration; one of this name that runs is stopped first."""
        if name in self.schedulers:
            self.schedulers[name].stop()
        document = yaml.safe_load(configuration)
        document.setdefault("clientConnection", {})["kubeconfig"] = str(kubeconfig)
        file = self._folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(document))
        port = free_port()
        arguments = [f"--config={file}", "--authentication-skip-lookup=true", *self._serving(port), *options]
        self.schedulers[name] = self._component(SCHEDULER, arguments, port, name=name)
        self.schedulers[name].start()
        return self.schedulers[name]

    def kubectl(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run the kubectl of this version as an administrator. Raises CalledProcessError with what kubectl said."""
        command = [str(self.tools / "kubectl"), f"--kubeconfig={self.admin_kubeconfig}", *arguments]
        try:
            return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120, check=True)
        except subprocess.CalledProcessError as error:
            error.add_note(error.stderr)
            raise

    def compact(self) -> int:
        """Drop etcd's history up to now, and return the revision up to which it is gone.

        The API server answers watches from its own memory too: what asks it for an older version is told 410 after
        the API server has been started again.
        """
        revision = int(self._etcd_call("/v3/kv/range", {"key": "AA=="})["header"]["revision"])
        self._etcd_call("/v3/kv/compaction", {"revision": str(revision), "physical": True})
        return revision

    def processes(self) -> list[Process]:
        """Every part that was started, in the order in which they need each other."""
        parts = [self.etcd, self.apiserver, self.controller_manager, self.kwok]
        return [*parts, *self.schedulers.values()]

    # -- nodes and pods --------------------------------------------------------------------------

    def add_nodes(self, machines: Iterable[Machine], *, ready_s: float | None = 180.0) -> None:
        """Register nodes, and wait until the scheduler may use all of them (not with `ready_s=None`)."""
        wanted = list(machines)
        create_nodes(self.kube, wanted)
        if ready_s is not None:
            names = {machine.name for machine in wanted}
            self.wait_for("nodes to be ready", lambda: names <= self._ready_nodes(), ready_s)

    def is_node_ready(self, name: str) -> bool:
        """Whether the scheduler may use a node: it is Ready and nothing taints it for not having been."""
        return name in self._ready_nodes()

    def wait_for(self, what: str, is_so: Callable[[], bool], timeout_s: float = 30.0) -> None:
        """Look until it is so. Raises StartError with the tails of all logs when time is up."""
        began = time.monotonic()
        while not is_so():
            if time.monotonic() - began > timeout_s:
                tails = "\n".join(process.tail(8) for process in self.processes())
                raise StartError(f"waited {timeout_s:.0f} s for {what}\n{tails}")
            time.sleep(0.1)

    @contextlib.contextmanager
    def defined(self, *definitions: Mapping[str, Any]) -> Iterator[None]:
        """Kinds of custom resources, of which the API server has objects until the end; then they are gone."""
        for each in definitions:
            self.kube.create(DEFINITIONS, each)
        try:
            self.wait_for("the kinds to be there", lambda: all(map(self._lists, definitions)))
            yield
        finally:
            self.kubectl("delete", "--wait", *(f"crd/{each['metadata']['name']}" for each in definitions))

    def _lists(self, definition: Mapping[str, Any]) -> bool:
        spec = definition["spec"]
        try:
            self.kube.get(f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}")
        except KubeError:
            return False
        return True

    def clear(self, timeout_s: float = 60.0) -> None:
        """Delete pods, nodes and records of jobs, for the next experiment; namespaces and what else is in them stay."""
        for one in self.kube.list_objects("/api/v1/configmaps", dict[str, Any], label_selector=KIND).items:
            self.kube.delete(record_path(one["metadata"]["namespace"], one["metadata"]["labels"][JOB]))
        for name in self._names(NODES):
            self._delete(node_path(name))
        for pod in self.kube.list_objects(PODS, dict[str, Any]).items:
            self._delete(pod_path(pod["metadata"]["namespace"], pod["metadata"]["name"]), grace_period_s=0)
        self.wait_for("pods and nodes to be gone", lambda: not self._names(PODS) and not self._names(NODES), timeout_s)

    # -- starting --------------------------------------------------------------------------------

    def _begin(self, stack: contextlib.ExitStack) -> None:
        shutil.rmtree(self.logs, ignore_errors=True)
        self.logs.mkdir(parents=True)
        memory = Path("/dev/shm")  # etcd waits for the disk after every write; memory answers at once
        self._folder = Path(tempfile.mkdtemp(prefix="hived-e2e-", dir=memory if memory.is_dir() else None))
        guard.remove(self._folder)
        stack.callback(shutil.rmtree, self._folder, ignore_errors=True)
        self.authority = Authority(self._folder / "pki")
        self._tls = ssl.create_default_context(cafile=str(self.authority.file))
        self._api_port = free_port()
        self.url = f"https://{LOOPBACK}:{self._api_port}"
        self._tokens = self.authority.signing_key("service-accounts")
        self._serving_pair = self.authority.server("serving")
        self.admin_kubeconfig = self.kubeconfig("admin", ["system:masters"])

        self.etcd = self._make_etcd()
        self._launch(stack, self.etcd)
        self.apiserver = self._make_apiserver()
        self._launch(stack, self.apiserver)
        self.kube = KubeClient.connect(kubeconfig=str(self.admin_kubeconfig))
        stack.callback(self.kube.close)
        stack.callback(lambda: [scheduler.stop() for scheduler in self.schedulers.values()])
        self.controller_manager = self._make_controller_manager()
        self._launch(stack, self.controller_manager, ready_s=None)
        self.kwok = self._make_kwok()
        self._launch(stack, self.kwok, ready_s=None)
        failures = NetworkFailures(KubeClient.connect(kubeconfig=str(self.admin_kubeconfig)))
        failures.start()
        stack.callback(failures.stop)
        self.controller_manager.wait_ready()
        self.kwok.wait_ready()
        self.wait_for("the default service account", self._has_service_account)

    def _launch(self, stack: contextlib.ExitStack, process: Process, ready_s: float | None = 180.0) -> None:
        stack.callback(process.stop)
        process.start(ready_s=ready_s)

    def _make_etcd(self) -> Process:
        self._etcd_url = f"http://{LOOPBACK}:{free_port()}"
        peer = f"http://{LOOPBACK}:{free_port()}"
        arguments = [
            f"--data-dir={self._folder / 'etcd'}",
            f"--listen-client-urls={self._etcd_url}",
            f"--advertise-client-urls={self._etcd_url}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--quota-backend-bytes=4294967296",
        ]
        return Process(
            "etcd",
            [self.tools / "etcd", *arguments],
            self.logs / "etcd.log",
            is_ready=lambda: self._answers(f"{self._etcd_url}/health"),
        )

    def _make_apiserver(self) -> Process:
        arguments = [
            f"--etcd-servers={self._etcd_url}",
            *self._serving(self._api_port),
            f"--client-ca-file={self.authority.file}",
            "--authorization-mode=RBAC",
            "--endpoint-reconciler-type=none",
            # Debian's etcd cannot serve lists as watches; kwok would take that for a broken watch each time.
            f"--feature-gates=WatchList=false{',GenericWorkload=true' if self.has_podgroups else ''}",
            *(["--runtime-config=scheduling.k8s.io/v1alpha2=true"] if self.has_podgroups else []),
            "--service-cluster-ip-range=10.96.0.0/16",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self._tokens.certificate}",
            f"--service-account-signing-key-file={self._tokens.key}",
            *self._auditing(),
        ]
        return self._component("kube-apiserver", arguments, self._api_port)

    def _auditing(self) -> list[str]:
        if not self._audit_policy:
            return []
        file = self._folder / "audit-policy.yaml"
        file.write_text(self._audit_policy)
        return [f"--audit-policy-file={file}", f"--audit-log-path={self.audit_log.resolve()}"]

    def _make_controller_manager(self) -> Process:
        port = free_port()
        arguments = [
            f"--kubeconfig={self.kubeconfig('system:kube-controller-manager')}",
            "--authentication-tolerate-lookup-failure=true",
            *self._serving(port),
            "--leader-elect=false",
            "--use-service-account-credentials=true",
            f"--service-account-private-key-file={self._tokens.key}",
            f"--root-ca-file={self.authority.file}",
            f"--node-monitor-grace-period={NODE_GRACE_S}s",
            f"--node-startup-grace-period={NODE_GRACE_S}s",
            "--node-monitor-period=1s",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
        ]
        return self._component("kube-controller-manager", arguments, port)

    def _make_kwok(self) -> Process:
        port = free_port()
        stages = [f"--config={file}" for file in sorted(STAGES.glob("*.yaml"))]
        arguments = [
            f"--kubeconfig={self.kubeconfig('kwok', ['system:masters'])}",
            f"--manage-nodes-with-label-selector={KUBELET}={PRESENT}",
            f"--node-lease-duration-seconds={self._lease_s}",
            f"--server-address={LOOPBACK}:{port}",
            "--cidr=10.0.0.1/16",
            *stages,
        ]
        return Process(
            "kwok",
            [self.tools / "kwok", *arguments],
            self.logs / "kwok.log",
            is_ready=lambda: self._answers(f"http://{LOOPBACK}:{port}/healthz"),
        )

    def _component(self, program: str, arguments: list[str], port: int, *, name: str = "") -> Process:
        """A program of Kubernetes that serves its health with TLS."""
        return Process(
            name or program,
            [self.tools / program, *arguments],
            self.logs / f"{name or program}.log",
            is_ready=lambda: self._answers(
                f"https://{LOOPBACK}:{port}/{'readyz' if port == self._api_port else 'healthz'}"
            ),
        )

    def _serving(self, port: int) -> list[str]:
        pair: KeyPair = self._serving_pair
        return [
            f"--bind-address={LOOPBACK}",
            f"--secure-port={port}",
            f"--tls-cert-file={pair.certificate}",
            f"--tls-private-key-file={pair.key}",
        ]

    # -- asking ----------------------------------------------------------------------------------

    def _answers(self, url: str) -> bool:
        return answers(url, PROBE_S, self._tls)

    def _etcd_call(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(self._etcd_url + path, json.dumps(body).encode(), method="POST")
        with urllib.request.urlopen(request, timeout=PROBE_S * 5) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def _has_service_account(self) -> bool:
        try:
            self.kube.get("/api/v1/namespaces/default/serviceaccounts/default")
        except KubeError:
            return False
        return True

    def _ready_nodes(self) -> set[str]:
        return {one["metadata"]["name"] for one in self.kube.list_objects(NODES, dict[str, Any]).items if is_ready(one)}

    def _names(self, path: str) -> list[str]:
        return [one["metadata"]["name"] for one in self.kube.list_objects(path, dict[str, Any]).items]

    def _delete(self, path: str, grace_period_s: int | None = None) -> None:
        with contextlib.suppress(KubeError):
            self.kube.delete(path, grace_period_s=grace_period_s)
