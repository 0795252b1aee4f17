"""Clusters that hostile tenants attack, on the embedded API server and on a real one: the same deeds on both.

On the real one the tenants' rights end at their namespaces. hived has the rights, policies and webhooks of an
installation, and nothing more.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import yaml

from hived_deploy.installation import NAMESPACE, kinds_of_queues
from hived_extender.http.webhook import MUTATE_PATH
from hived_extender.jobs.amounts import DEVICE_REQUESTS
from hived_extender.jobs.annotations import PREFIX
from hived_extender.kube.client import KubeClient, KubeError, pod_path
from hived_jobs.submission import Submission
from hived_lab.embedded.nodes import RUN_SECONDS
from hived_lab.start import start_embedded
from tests.attacks.attack import Outcome, Run
from tests.e2e.cluster import RealCluster
from tests.e2e.plane import ControlPlane
from tests.e2e.podgroups import DEFINITIONS
from tests.e2e.pods import configuration
from tests.e2e.rights import grant_rights
from tests.e2e.tools import DEFAULT, find
from tests.e2e.webhooks import webhook

Json = dict[str, Any]
Made = tuple[str, Json]
"""The path of a collection, and an object to create there."""

VICTIM, EVIL, MORE = "victim", "evil", "evil-more"
"""Namespaces. Mallory may write the last two."""

NAMESPACES = (VICTIM, EVIL, MORE)
MALLORY = "mallory"
GPU, GPUS = "nvidia.com/gpu", 4
"""Of each node."""

PODS, JOBS = "/api/v1/namespaces/{}/pods", "/apis/batch/v1/namespaces/{}/jobs"
SOON_S, LATER_S = 60.0, 0.05
SECRET = f"{NAMESPACE}/hived-bindings"

RIGHTS: Json = {
    "": ["pods", "pods/ephemeralcontainers", "pods/eviction", "configmaps"],
    "batch": ["jobs"],
    "apps": ["deployments", "replicasets"],
    "scheduling.x-k8s.io": ["queues", "queues/status", "queueunits", "queueunits/status"],
    "scheduling.sigs.k8s.io": ["elasticquotatrees", "elasticquotatrees/status"],
}
"""Of Mallory in her namespaces, by API group: more than tenants usually have."""


def _objects_of_tenants() -> Iterator[Json]:
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1"}
    for name in NAMESPACES:
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    rules: list[Json] = [
        {"apiGroups": [group], "resources": resources, "verbs": ["*"]} for group, resources in RIGHTS.items()
    ]
    yield {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hived-bindings", "namespace": NAMESPACE}}
    mallory = {"kind": "User", "name": MALLORY, "apiGroup": "rbac.authorization.k8s.io"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "attacks"}
    for namespace in (EVIL, MORE):
        meta = {"name": "attacks", "namespace": namespace}
        yield {**rbac, "kind": "Role", "metadata": meta, "rules": rules}
        yield {**rbac, "kind": "RoleBinding", "metadata": meta, "roleRef": role, "subjects": [mallory]}


def pod(
    name: str,
    namespace: str = EVIL,
    *,
    vc: str = "",
    gpus: int = GPUS,
    priority: int = 0,
    notes: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Made:
    """A pod that runs until it is deleted, of a virtual cluster that is called like its namespace unless `vc` says it.

    `notes` are further annotations. Without GPUs, it has the limit that makes a pod ours.
    """
    vc = vc or (EVIL if namespace == MORE else namespace)
    said = {f"{PREFIX}virtual-cluster": vc, f"{PREFIX}priority": str(priority), RUN_SECONDS: "100000"}
    limits = {GPU: str(gpus)} if gpus else {f"{PREFIX}pod-scheduling-enable": "1"}
    meta = {"name": name, "annotations": {**said, **(notes or {})}, "labels": dict(labels or {}), **(metadata or {})}
    of_pod: Json = {
        "schedulerName": Submission(user="").scheduler_for(vc),
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "x", "resources": {"limits": limits}}],
        **spec,
    }
    return PODS.format(namespace), {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": of_pod}


def job(
    name: str,
    namespace: str = EVIL,
    *,
    notes: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    of_pods: Mapping[str, str] | None = None,
    **of_pod: Any,
) -> Made:
    """A Job of one such pod. `notes` and `labels` are the Job's, `of_pods` are labels of its template."""
    _, made = pod(name, namespace, labels=of_pods, **of_pod)
    template = {"metadata": {key: made["metadata"][key] for key in ("annotations", "labels")}, "spec": made["spec"]}
    metadata = {"name": name, "annotations": dict(notes or {}), "labels": dict(labels or {})}
    spec = {"parallelism": 1, "completions": 1, "suspend": False, "template": template}
    return JOBS.format(namespace), {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


@dataclass(frozen=True)
class Deed:
    """One thing that Mallory does, and what must hold all the same.

    Attributes
    ----------
    title : in the present tense, without a subject
    made : what she creates, in order
    breach : what she has gained, "" for nothing
    act : what she does once these exist
    spares : whether pods stay that are there afterwards
    """

    title: str
    made: Sequence[Made]
    breach: "Callable[[Cluster], str]"
    act: "Callable[[Cluster], None] | None" = None
    spares: bool = False


@dataclass
class Cluster:
    """A running cluster with hived.

    Attributes
    ----------
    admin, tenant : clients; the tenant is Mallory
    url : where hived answers
    """

    is_real: bool
    admin: KubeClient
    tenant: KubeClient
    url: str
    outcome: Outcome
    folder: Path
    real: "RealCluster | None" = None

    def carry_out(self, deed: Deed) -> None:
        """Do it, judge it, and leave no object of it."""
        self.outcome.tried += 1
        try:
            made = [one for one in deed.made if self.create(self.tenant, *one)]
            if deed.act is not None and (made or not deed.made):
                with suppress(KubeError):
                    deed.act(self)
            gained = deed.breach(self) if made or not deed.made else ""
        except TimeoutError as error:
            self.outcome.fault(f"{deed.title}: {error}")
            return
        finally:
            self.clear(deed.made, spares=deed.spares)
        if gained:
            self.outcome.let_in.append(f"{deed.title}: {gained}")
        else:
            self.outcome.refused += 1

    def get(self, path: str) -> Any:
        """The answer of hived."""
        with urlopen(f"{self.url}{path}", timeout=30) as answer:
            return json.load(answer)

    def create(self, kube: KubeClient, path: str, body: Json) -> bool:
        """Create an object; whether that was allowed."""
        with suppress(KubeError):
            kube.create(path, body)
            return True
        return False

    def clear(self, made: Sequence[Made] = (), *, spares: bool = False) -> None:
        """Delete these and all pods of the tenants, unless it `spares` them."""
        for path, body in reversed(made):
            if path not in map(PODS.format, NAMESPACES):
                self.delete(f"{path}/{body['metadata']['name']}")
        until = time.monotonic() + SOON_S
        while not spares and (left := self.pods()):
            for each in left:
                path = pod_path(each["metadata"]["namespace"], each["metadata"]["name"])
                with suppress(KubeError):
                    if each["metadata"].get("finalizers"):
                        self.admin.patch(path, {"metadata": {"finalizers": None}})
                    self.admin.delete(path, grace_period_s=0)
            if time.monotonic() > until:
                raise TimeoutError("pods do not go")
            time.sleep(LATER_S)

    def delete(self, path: str) -> None:
        """Delete an object and its dependents, if it is there."""
        with suppress(KubeError):
            self.admin.delete(path, grace_period_s=0, with_dependents=True)

    def pods(self) -> list[Json]:
        """All pods of the tenants."""
        found = []
        for namespace in NAMESPACES:
            for each in self.admin.get(PODS.format(namespace))["items"]:
                each["metadata"]["namespace"] = namespace
                found.append(each)
        return found

    def started(self) -> dict[str, Json]:
        """The pods that have a node, by name."""
        return {each["metadata"]["name"]: each for each in self.pods() if each["spec"].get("nodeName")}

    def await_so(self, what: str, is_so: Callable[[], bool], within_s: float = SOON_S) -> None:
        """Wait until it is so. Raises TimeoutError."""
        until = time.monotonic() + within_s
        while not is_so():
            if time.monotonic() > until:
                raise TimeoutError(f"after {within_s:.0f} s it is not so that {what}")
            time.sleep(LATER_S)

    def await_started(self, *made: Made) -> None:
        """Wait until these pods, which are allowed, have nodes. Raises TimeoutError."""
        names = {body["metadata"]["name"] for _, body in made}
        self.await_so(f"{', '.join(sorted(names))} run", lambda: names <= self.started().keys())

    def starts(self, *made: Made) -> bool:
        """Create pods of the victim; whether they all get nodes."""
        for path, body in made:
            self.admin.create(path, body)
        try:
            self.await_started(*made)
        except TimeoutError:
            return False
        return True


@dataclass(frozen=True)
class Hostile:
    """An attack of tenants on either kind of cluster.

    Attributes
    ----------
    attack : carries out deeds; at a lower scale of the run, fewer
    shares : nodes by virtual cluster
    settings, of_vcs : further keys of the configuration, and of each virtual cluster
    edit : changes the configuration besides
    """

    attack: Callable[[Cluster, Run], None]
    shares: Mapping[str, int] = field(default_factory=lambda: {VICTIM: 2, EVIL: 1})
    settings: Mapping[str, Any] = field(default_factory=dict)
    of_vcs: Mapping[str, Json] = field(default_factory=dict)
    edit: Callable[[Json], None] = lambda _: None

    def embedded(self, run: Run) -> Outcome:
        """On the embedded cluster, with its webhook."""
        outcome = Outcome()
        with start_embedded(self._file(run), has_webhook=True) as running, ExitStack() as stack:
            files = {"hived": running.cluster.hived_kubeconfig, "tenant": running.cluster.kubeconfig}
            kubes = {name: KubeClient.connect(kubeconfig=str(file)) for name, file in files.items()}
            for kube in kubes.values():
                stack.callback(kube.close)
            for name in NAMESPACES:
                kubes["hived"].create("/api/v1/namespaces", {"metadata": {"name": name}})
            url = running.extender.url
            self.attack(Cluster(False, kubes["hived"], kubes["tenant"], url, outcome, run.folder), run)
        return outcome

    def real(self, run: Run) -> Outcome:
        """On a real control plane, with roles, policies and webhooks of an installation."""
        outcome = Outcome()
        with ControlPlane(find(DEFAULT), "attacks") as plane, self._on(plane, run, outcome) as cluster:
            self.attack(cluster, run)
        return outcome

    @contextmanager
    def _on(self, plane: ControlPlane, run: Run, outcome: Outcome) -> Iterator[Cluster]:
        file = self._file(run)
        grant_rights(plane)
        plane.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(_objects_of_tenants()))
        namespace, *definitions = kinds_of_queues()
        plane.kube.create("/api/v1/namespaces", namespace)
        for each in definitions:
            plane.kube.create(DEFINITIONS, each)
        document, options = webhook("MutatingWebhookConfiguration", MUTATE_PATH, file, run.folder / "tls")
        with RealCluster(plane, file, serve_options=(*options, f"--binding-secret={SECRET}")) as real:
            plane.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(document))
            tenant = KubeClient.connect(kubeconfig=str(plane.kubeconfig(MALLORY)))
            try:
                cluster = Cluster(True, plane.kube, tenant, real.url, outcome, run.folder, real)
                cluster.await_so("the webhook and the policies are asked", lambda: _is_guarded(tenant))
                yield cluster
            finally:
                tenant.close()

    def _file(self, run: Run) -> Path:
        return configuration(run.folder, self.shares, gpus=GPUS, of_vcs=self.of_vcs, edit=self.edit, **self.settings)


def _is_guarded(tenant: KubeClient) -> bool:
    """Does the webhook change pods, and do the policies refuse them?"""
    path, made = pod("trial")
    with suppress(KubeError):
        found = tenant.create(f"{path}?dryRun=All", made)
        if DEVICE_REQUESTS not in found["metadata"]["annotations"]:
            return False
        forged = pod("trial", notes={f"{PREFIX}pod-bind-info": "x"})[1]
        try:
            tenant.create(f"{path}?dryRun=All", forged)
        except KubeError as error:
            return "hived-pods" in str(error)
    return False
