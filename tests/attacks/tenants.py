"""Tenants of a real API server, who may write pods of their own namespace only, and try for cells of others.

Nothing that they write gives them cells of another virtual cluster or a place in the group of others. Nor does it
give a priority or a use that their namespace does not have. The victim's guaranteed pods start all the same.
Once with hived alone, and once with the admission webhook and the policies that `hived manifests` prints.
"""

import itertools
import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import yaml

from hived_extender.http.webhook import MUTATE_PATH
from hived_extender.jobs.amounts import DEVICE_REQUESTS
from hived_extender.jobs.annotations import BIND_INFO, PREFIX, SCHEDULING_SPEC
from hived_extender.jobs.bind_info import PROOF
from hived_extender.kube.client import KubeClient, KubeError, pod_path
from tests.attacks.attack import Outcome, Run
from tests.e2e.certificates import LOOPBACK
from tests.e2e.cluster import RealCluster
from tests.e2e.plane import ControlPlane
from tests.e2e.pods import configuration, pod
from tests.e2e.processes import free_port
from tests.e2e.tools import DEFAULT, find
from tests.programs import output_of

Json = dict[str, Any]

EVIL, VICTIM = "evil", "victim"
MALLORY, EDITH = "mallory", "edith"
"""Mallory may write pods of her namespace; Edith their bindings and status too."""

SECRET = "hived-system/hived-bindings"
GPUS = 4
OTHER_VC = "a"
LATER_S, DECIDED_S, STARTED_S = 30.0, 20.0, 60.0
RETRY_AT = PREFIX + "pod-retry-at"
POLICIES = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
SPAM = 300

RIGHTS = f"""
apiVersion: v1
kind: Namespace
metadata: {{name: {EVIL}}}
---
apiVersion: v1
kind: Namespace
metadata: {{name: {VICTIM}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: pods, namespace: {EVIL}}}
rules: [{{apiGroups: [""], resources: [pods], verbs: [get, list, create, patch, delete]}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: more, namespace: {EVIL}}}
rules: [{{apiGroups: [""], resources: [pods/binding, pods/status], verbs: [create, patch]}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: pods, namespace: {EVIL}}}
subjects: [{{kind: User, name: {MALLORY}}}, {{kind: User, name: {EDITH}}}]
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: pods}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: more, namespace: {EVIL}}}
subjects: [{{kind: User, name: {EDITH}}}]
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: more}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: hived-bindings, namespace: hived-system}}
rules: [{{apiGroups: [""], resources: [secrets], verbs: [get, create, patch]}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: hived-bindings, namespace: hived-system}}
subjects: [{{kind: ServiceAccount, name: hived, namespace: hived-system}}]
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: hived-bindings}}
"""


def run(run: Run) -> Outcome:
    """With hived alone, then with webhook and policies."""
    outcome = Outcome()
    with ControlPlane(find(DEFAULT), "attacks") as plane:
        for is_guarded in (False, True):
            folder = run.folder / ("guarded" if is_guarded else "alone")
            folder.mkdir()
            run.say(f"  {folder.name}")
            _on_cluster(run, plane, folder, outcome, is_guarded=is_guarded)
    return outcome


def _on_cluster(run: Run, plane: ControlPlane, folder: Path, outcome: Outcome, *, is_guarded: bool) -> None:
    file, port = _configuration(folder), free_port()
    options: tuple[str, ...] = (f"--binding-secret={SECRET}",)
    if is_guarded:
        output_of("certificates", "--out", str(folder / "tls"))
        options += (f"--webhook-port={port}", f"--webhook-tls-cert-file={folder / 'tls' / 'tls.crt'}")
        options += (f"--webhook-tls-private-key-file={folder / 'tls' / 'tls.key'}",)
    cluster = RealCluster(plane, file, serve_options=options)
    plane.kubectl("apply", "--server-side", "-f", "-", stdin=RIGHTS)
    with cluster:
        guards = _guards(file, folder, port) if is_guarded else []
        if is_guarded and not any(each["kind"] in POLICIES for each in guards):
            outcome.notes.append("no policy for pods is shipped: the webhook alone was installed")
        text = yaml.safe_dump_all(guards)
        if guards:
            plane.kubectl("apply", "--server-side", "-f", "-", stdin=text)
        try:
            _Tenants(run, plane, cluster, outcome, is_guarded=is_guarded).attack()
        finally:
            if guards:
                plane.kubectl("delete", "-f", "-", stdin=text)


def _configuration(folder: Path) -> Path:
    """Nodes n0 and n1 for the victim's VC, n2 and n3 for the attackers', who may go up to priority 5 there."""
    of_vcs = {OTHER_VC: {"namespaces": [VICTIM]}, "b": {"namespaces": [{"name": EVIL, "maxPriority": 5}]}}
    opportunistic = {"namespaces": [VICTIM]}
    shares = {OTHER_VC: 2, "b": 2}
    return configuration(folder, shares, gpus=GPUS, of_vcs=of_vcs, access="namespaces", opportunistic=opportunistic)


def _guards(file: Path, folder: Path, port: int) -> list[Json]:
    """Webhook and policies as `hived manifests` prints them; only the webhook's address is put in."""
    ca = folder / "tls" / "ca.crt"
    printed = yaml.safe_load_all(output_of("manifests", "--config", str(file), "--webhook", str(ca)))
    guards = [each for each in printed if each["kind"] in (*POLICIES, "MutatingWebhookConfiguration")]
    for each in guards:
        for webhook in each.get("webhooks", ()):
            del webhook["clientConfig"]["service"]
            webhook["clientConfig"]["url"] = f"https://{LOOPBACK}:{port}{MUTATE_PATH}"
    return guards


class _Tenants:
    """The tenants of one cluster, and what they try."""

    def __init__(
        self, run: Run, plane: ControlPlane, cluster: RealCluster, outcome: Outcome, *, is_guarded: bool
    ) -> None:
        self._run, self._plane, self._cluster, self._outcome = run, plane, cluster, outcome
        self._where = "guarded" if is_guarded else "alone"
        self._mallory = KubeClient.connect(kubeconfig=str(plane.kubeconfig(MALLORY)))
        self._edith = KubeClient.connect(kubeconfig=str(plane.kubeconfig(EDITH)))
        self._names = (f"p{number}" for number in itertools.count())

    def attack(self) -> None:
        """Everything in turn; the victim begins a gang before it, and needs all of its cells after it."""
        self._plane.wait_for("the tenants to have rights", self._may_create)
        gang = self._gang("train")
        first = self._create_victim("train-0", affinityGroup=gang)
        self._expect_started("train-0")
        self._forbidden_wishes(gang)
        self._forgeries(first)
        self._own_bound_pod()
        self._subresources(first)
        self._expect_not_forged()
        self._create_victim("train-1", affinityGroup=gang)
        self._expect_started("train-1")
        with urlopen(f"{self._cluster.url}/healthz", timeout=10) as answer:
            if answer.status != 200:
                self._outcome.fault(f"{self._where}: /healthz is answered with {answer.status}")
        if "internal error" in self._cluster.services[0].log.read_text(errors="replace"):
            self._outcome.fault(f"{self._where}: hived's log has an internal error")
        for kube in (self._mallory, self._edith):
            kube.close()

    # -- what is tried

    def _forbidden_wishes(self, gang: Json) -> None:
        """The service's own annotations ask for more than the namespace may have."""
        wishes: dict[str, Json] = {
            "another VC": {"vc": OTHER_VC, "gpus": 1, "priority": 1000},
            "another VC, of the lowest priority": {"vc": OTHER_VC, "gpus": 1, "priority": 0},
            "a priority above its own": {"vc": "b", "gpus": 1, "priority": 1000},
            "opportunistic use": {"vc": "b", "gpus": 1, "priority": -1},
            "the free slot of another's group": {"vc": OTHER_VC, "gpus": GPUS, "affinityGroup": gang},
            "the same by its full name": {
                "vc": OTHER_VC,
                "gpus": GPUS,
                "affinityGroup": gang | {"name": "victim:train"},
            },
        }
        for title, wish in wishes.items():
            self._expect_refused(title, pod(next(self._names), **wish))
        own = pod(next(self._names), vc="b", gpus=GPUS, affinityGroup=gang)
        self._create(self._mallory, own)  # another's name in its own VC is its own group
        time.sleep(1.0)
        self._plane.kube.delete(pod_path(EVIL, own["metadata"]["name"]), grace_period_s=0)
        forged = pod(next(self._names), annotations={DEVICE_REQUESTS: json.dumps(
            {"resource": "nvidia.com/gpu", "total": 1, "containers": {"main": 1}})})  # fmt: skip
        del forged["metadata"]["annotations"][SCHEDULING_SPEC]
        forged["metadata"]["annotations"] |= {PREFIX + "virtual-cluster": OTHER_VC, PREFIX + "priority": "1000"}
        self._expect_refused("another VC with device requests of its own", forged)

    def _forgeries(self, bound: Json) -> None:
        """Pods that claim to be bound, on every node, before the victim's next pod comes."""
        stolen = bound["metadata"]["annotations"]
        without = {key: text for key, text in stolen.items() if key != PROOF}
        texts = (stolen, without, without | {PROOF: '{"digest":"AAAA"}'})
        for notes, node, scheduler in itertools.product(texts, ("n0", "n1"), ("hived", "nobody", None)):
            forged = pod(next(self._names), annotations=self._placed_on(notes, node))
            forged["spec"] |= {"nodeName": node}
            forged["spec"].pop("schedulerName")
            if scheduler:
                forged["spec"]["schedulerName"] = scheduler
            self._outcome.tried += 1
            self._outcome.refused += self._create(self._mallory, forged) is None

    def _own_bound_pod(self) -> None:
        """A pod that hived has bound says something else from now on, and hived is started again."""
        mine = self._create(self._mallory, pod("mine", vc="b", gpus=2))
        if mine is None or not self._is_started("mine", EVIL):
            self._outcome.fault(f"{self._where}: the attacker's own pod, which is allowed, has not started")
            return
        for notes in ({BIND_INFO: "garbage"}, {SCHEDULING_SPEC: "{"}, {PROOF: "x"}, {BIND_INFO: None}):
            self._outcome.tried += 1
            self._outcome.refused += not self._patch(self._mallory, "mine", {"metadata": {"annotations": notes}})
        for number in range(self._run.count(SPAM, least=10)):
            self._outcome.tried += 1
            mark = {"metadata": {"annotations": {RETRY_AT: str(number)}}}
            self._outcome.refused += not self._patch(self._mallory, "mine", mark)
        time.sleep(1.0)  # hived sees it
        self._cluster.restart_service()
        if "evil/mine" not in self._groups():
            self._outcome.let_in.append(
                f"{self._where}: after a restart nobody accounts for the cells of a changed pod"
            )

    def _subresources(self, bound: Json) -> None:
        """Bindings and status, which most tenants may not write."""
        notes = self._placed_on(bound["metadata"]["annotations"], "n1")
        for kube, who in ((self._mallory, MALLORY), (self._edith, EDITH)):
            name = next(self._names)
            waiting = pod(name, vc=OTHER_VC, fields={"schedulerName": "nobody"})
            self._outcome.tried += 2
            if self._create(kube, waiting) is None:
                self._outcome.refused += 2
                continue
            patched = self._attempt(partial(self._patch_status, kube, name, notes))
            made = self._attempt(partial(self._bind, kube, name, notes))
            self._outcome.refused += (not patched) + (not made)
            if who == MALLORY and (patched or made):
                self._outcome.let_in.append(f"{self._where}: {who} wrote a binding or a status")

    # -- what must hold

    def _expect_refused(self, title: str, body: Json) -> None:
        self._outcome.tried += 1
        if self._create(self._mallory, body) is None:
            self._outcome.refused += 1
            return
        name = body["metadata"]["name"]
        until = time.monotonic() + DECIDED_S
        while time.monotonic() < until:
            found = self._plane.kube.get(pod_path(EVIL, name))
            if found["spec"].get("nodeName"):
                self._outcome.let_in.append(f"{self._where}: {title}: bound to {found['spec']['nodeName']}")
                return
            conditions = found["status"].get("conditions", ())
            if any(each["type"] == "PodScheduled" and each["status"] == "False" for each in conditions):
                self._outcome.refused += 1
                return
            time.sleep(0.1)
        self._outcome.refused += 1  # nobody has even looked at it

    def _expect_not_forged(self) -> None:
        """No group of the attackers may be in the victim's VC."""
        for name, status in self._groups().items():
            if not name.startswith((f"{VICTIM}/", f"{VICTIM}:")) and status["vc"] == OTHER_VC:
                self._outcome.let_in.append(f"{self._where}: group {name} has cells of {OTHER_VC}")

    def _expect_started(self, name: str) -> None:
        if not self._is_started(name, VICTIM):
            self._outcome.let_in.append(f"{self._where}: the victim's pod {name} has not started: its cells are taken")

    def _is_started(self, name: str, namespace: str) -> bool:
        until = time.monotonic() + STARTED_S
        while time.monotonic() < until:
            if self._plane.kube.get(pod_path(namespace, name))["spec"].get("nodeName"):
                return True
            time.sleep(0.1)
        return False

    # -- calls

    def _gang(self, name: str) -> Json:
        return {"name": name, "members": [{"podNumber": 2, "leafCellNumber": GPUS}]}

    def _create_victim(self, name: str, **wishes: Any) -> Json:
        self._plane.kube.create(f"/api/v1/namespaces/{VICTIM}/pods", pod(name, vc=OTHER_VC, gpus=GPUS, **wishes))
        self._is_started(name, VICTIM)
        found: Json = self._plane.kube.get(pod_path(VICTIM, name))
        return found

    def _create(self, kube: KubeClient, body: Json) -> Json | None:
        try:
            return kube.create(f"/api/v1/namespaces/{EVIL}/pods", body)
        except KubeError:
            return None

    def _patch(self, kube: KubeClient, name: str, change: Json) -> bool:
        return self._attempt(lambda: kube.patch(pod_path(EVIL, name), change))

    @staticmethod
    def _patch_status(kube: KubeClient, name: str, notes: Json) -> None:
        kube.patch(
            f"{pod_path(EVIL, name)}/status", {"metadata": {"annotations": notes}, "status": {"phase": "Running"}}
        )

    @staticmethod
    def _bind(kube: KubeClient, name: str, notes: Json) -> None:
        body = {"metadata": {"name": name, "annotations": notes}, "target": {"kind": "Node", "name": "n1"}}
        kube.create(f"{pod_path(EVIL, name)}/binding", body)

    @staticmethod
    def _attempt(write: Callable[[], object]) -> bool:
        try:
            write()
        except KubeError:
            return False
        return True

    @staticmethod
    def _placed_on(notes: Mapping[str, str], node: str) -> dict[str, str]:
        """The annotations of a bound pod, for another node."""
        info = notes[BIND_INFO].replace('"n0"', f'"{node}"').replace('"n1"', f'"{node}"')
        return {**notes, BIND_INFO: info}

    def _groups(self) -> dict[str, Json]:
        with urlopen(f"{self._cluster.url}/v1/inspect/affinitygroups/", timeout=10) as answer:
            items = json.load(answer)["items"] or ()
        return {item["metadata"]["name"]: item["status"] for item in items}

    def _may_create(self) -> bool:
        with suppress(KubeError):
            self._mallory.create(f"/api/v1/namespaces/{EVIL}/pods?dryRun=All", pod("trial", vc="b"))
            return True
        return False
