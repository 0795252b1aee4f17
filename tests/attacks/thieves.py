"""A thief with the token of hived's account, and a tenant who writes what hived alone may write into pods.

On a real API server each call meets roles and policies. Beside the embedded one, which has no roles, the roles that are
shipped are read instead; calls that only the policy of own writes refuses are left out there.
"""

from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import yaml

from hived_deploy.installation import NAMESPACE, deploy_folder
from hived_deploy.kustomize import build
from hived_extender.kube.client import KubeClient, KubeError, pod_path
from tests.attacks.attack import Run
from tests.attacks.clusters import EVIL, JOBS, MALLORY, PODS, VICTIM, Cluster, Hostile, Json, Made, pod
from tests.e2e.rights import service_kubeconfig
from tests.pod_writes import ADMIN, CASES, HIVED, TENANT, Writes

ACCOUNT = "hived"
FORBIDDEN, INVALID = 403, 422
DRY = "?dryRun=All"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
DEPLOYMENTS = "/apis/apps/v1/namespaces/{}/deployments"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
GATES = [{"name": "example.com/other"}]
HONEST = {"name": "main", "image": "honest"}
OTHER_IMAGE = [{"name": "main", "image": "evil"}]
UNCONFINED = "container.apparmor.security.beta.kubernetes.io/main"
OF_FEATURES = ("hived-queues", "hived-tenants-queues", "hived-kueue", "hived-tenants-kueue")
"""Bindings of the roles that features bring."""


@dataclass(frozen=True)
class Call:
    """A call of the thief. `by_policy`: a role allows it, as the service makes another call of its kind."""

    title: str
    verb: str
    path: str
    body: Json = field(default_factory=dict)
    by_policy: bool = False


def attack(cluster: Cluster, run: Run) -> None:
    """All calls, then those that take a role of a feature that is off, then the tenant's."""
    calls, of_features = list(_calls()), list(_of_features())
    if cluster.real is not None:
        plane = cluster.real.plane
        for path, body in _objects():
            cluster.admin.create(path, body)
        with closing(KubeClient.connect(kubeconfig=str(service_kubeconfig(plane)))) as thief:
            for call in calls[: run.count(len(calls))]:
                _judge(cluster, call.title, _answer(thief, call))
            for verb, resource, group in _ASKED:
                _judge(cluster, f"may {verb} {resource}", "" if _may(thief, verb, resource, group) else "refused")
            for role in OF_FEATURES:
                plane.kube.delete(f"{RBAC}/clusterrolebindings/{role}")
            cluster.await_so("the rights are gone", lambda: not _may(thief, "patch", "jobs", "batch"))
            for call in of_features:
                _judge(cluster, call.title, _answer(thief, call))
    else:
        everything, least = _roles(with_features=True), _roles(with_features=False)
        for call in calls:
            if not call.by_policy:
                _judge(cluster, call.title, "" if _is_granted(everything, call) else "refused")
        for call in of_features:
            _judge(cluster, call.title, "" if _is_granted(least, call) else "refused")
    _write_as_hived(cluster, run)


def _judge(cluster: Cluster, title: str, refusal: str) -> None:
    cluster.outcome.tried += 1
    if refusal:
        cluster.outcome.refused += 1
    else:
        cluster.outcome.let_in.append(title)


# -- the thief


def _objects() -> Iterator[Made]:
    """Work of others."""
    labels = {"app": "a"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [HONEST]}}
    spec = {"containers": [HONEST], "schedulerName": "nobody"}
    yield PODS.format(VICTIM), {"metadata": {"name": "p"}, "spec": spec}
    yield PODS.format(VICTIM), {"metadata": {"name": "gated"}, "spec": spec | {"schedulingGates": GATES}}
    selected = {"selector": {"matchLabels": labels}, "template": template}
    yield DEPLOYMENTS.format(VICTIM), {"metadata": {"name": "d"}, "spec": {"replicas": 0, **selected}}
    once = {"metadata": {"labels": labels}, "spec": {"containers": [HONEST], "restartPolicy": "Never"}}
    yield JOBS.format(VICTIM), {"metadata": {"name": "j"}, "spec": {"suspend": True, "template": once}}
    for kind in ("secrets", "configmaps", "serviceaccounts"):
        yield f"/api/v1/namespaces/{VICTIM}/{kind}", {"metadata": {"name": "x"}}


def _calls() -> Iterator[Call]:
    yield from _creations()
    yield from _readings()
    yield from _changes()
    yield from _own_objects()


def _creations() -> Iterator[Call]:
    """Work and rights of its own."""
    spec = {"containers": [HONEST], "restartPolicy": "Never"}
    template = {"metadata": {"labels": {"app": "a"}}, "spec": spec}
    for namespace in (VICTIM, EVIL, "kube-system", NAMESPACE):
        yield Call(f"creates a pod in {namespace}", "create", PODS.format(namespace), {"spec": spec})
        jobs, accounts = JOBS.format(namespace), f"/api/v1/namespaces/{namespace}/serviceaccounts"
        yield Call(f"creates a job in {namespace}", "create", jobs, {"spec": {"template": template}})
        selected = {"selector": {"matchLabels": {"app": "a"}}, "template": template}
        for kind in ("deployments", "daemonsets", "statefulsets", "replicasets"):
            path = f"/apis/apps/v1/namespaces/{namespace}/{kind}"
            yield Call(f"creates {kind} in {namespace}", "create", path, {"spec": selected})
        token = {"spec": {"audiences": ["x"]}}
        yield Call(f"makes a token in {namespace}", "create", f"{accounts}/default/token", token)
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
        subjects = [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}]
        bound = {"roleRef": role, "subjects": subjects}
        yield Call(f"binds a role in {namespace}", "create", f"{RBAC}/namespaces/{namespace}/rolebindings", bound)
        for kind in ("secrets", "configmaps", "services", "serviceaccounts", "persistentvolumeclaims"):
            yield Call(f"creates {kind} in {namespace}", "create", f"/api/v1/namespaces/{namespace}/{kind}", {})
    yield Call("binds a role everywhere", "create", f"{RBAC}/clusterrolebindings", bound)
    for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations", "validatingadmissionpolicies"):
        yield Call(f"creates {kind}", "create", f"{ADMISSION}/{kind}", {})
    signing = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    yield Call("asks for a certificate", "create", signing, {})
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    yield Call("defines a kind", "create", definitions, {})
    yield Call("creates a namespace", "create", "/api/v1/namespaces", {"metadata": {"name": "new"}})


def _readings() -> Iterator[Call]:
    for kind in ("secrets", "configmaps", "serviceaccounts", "persistentvolumeclaims", "services"):
        yield Call(f"reads all {kind}", "list", f"/api/v1/{kind}")
        for namespace in (VICTIM, "kube-system", NAMESPACE):
            if (kind, namespace) != ("configmaps", NAMESPACE):
                yield Call(f"reads {kind} of {namespace}", "list", f"/api/v1/namespaces/{namespace}/{kind}")
    yield Call("reads a secret", "get", f"/api/v1/namespaces/{VICTIM}/secrets/x")
    yield Call("reads the other secrets of its namespace", "get", f"/api/v1/namespaces/{NAMESPACE}/secrets/other")
    for part in ("log", "exec", "attach", "portforward", "proxy"):
        yield Call(f"reaches into a pod by {part}", "get", f"{pod_path(VICTIM, 'p')}/{part}")
    for part in ("exec", "attach", "portforward", "proxy"):
        yield Call(f"opens {part} of a pod", "create", f"{pod_path(VICTIM, 'p')}/{part}")
    yield Call("reaches a kubelet", "get", "/api/v1/nodes/n0/proxy/pods")
    yield Call("reads roles", "list", f"{RBAC}/clusterroles")


def _changes() -> Iterator[Call]:
    """Of work of others: the first ones by roles, the others by the policy."""
    one, gated = pod_path(VICTIM, "p"), pod_path(VICTIM, "gated")
    deployment, job = f"{DEPLOYMENTS.format(VICTIM)}/d", f"{JOBS.format(VICTIM)}/j"
    debug = {"spec": {"ephemeralContainers": [{"name": "debug", "image": "evil"}]}}
    yield Call("debugs a pod", "patch", f"{one}/ephemeralcontainers", debug)
    yield Call("resizes a pod", "patch", f"{one}/resize", {"spec": {"containers": OTHER_IMAGE}})
    yield Call("scales a Deployment", "patch", f"{deployment}/scale", {"spec": {"replicas": 9}})
    for path, name in ((deployment, "a Deployment"), (job, "a job")):
        yield Call(f"deletes {name}", "delete", path)
    for kind in ("secrets", "configmaps", "serviceaccounts"):
        path = f"/api/v1/namespaces/{VICTIM}/{kind}/x"
        yield Call(f"changes {kind}", "patch", path, {"metadata": {"labels": {"a": "b"}}})
        yield Call(f"deletes {kind}", "delete", path)
    label = {"metadata": {"labels": {"a": "b"}}}
    cluster_wide = (
        "/api/v1/nodes/n0", "/api/v1/nodes/n0/status", f"/api/v1/namespaces/{VICTIM}",
        f"{RBAC}/clusterroles/hived", f"{RBAC}/clusterrolebindings/hived",
        f"{ADMISSION}/validatingadmissionpolicies/hived-own-writes",
        f"{ADMISSION}/validatingadmissionpolicybindings/hived-own-writes",
        f"{ADMISSION}/mutatingwebhookconfigurations/hived",
    )  # fmt: skip
    for path in cluster_wide:
        yield Call(f"changes {path}", "patch", path, label)
        if not path.endswith("/status"):
            yield Call(f"deletes {path}", "delete", path)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "q", "uid": "u"}
    of_pod: dict[str, Json] = {
        "the image": {"spec": {"containers": OTHER_IMAGE}},
        "the deadline": {"spec": {"activeDeadlineSeconds": 1}},
        "a label": label,
        "an annotation": {"metadata": {"annotations": {"example.com/a": "b"}}},
        "the profile of AppArmor": {"metadata": {"annotations": {UNCONFINED: "unconfined"}}},
        "the owner": {"metadata": {"ownerReferences": [owner]}},
        "a finalizer": {"metadata": {"finalizers": ["example.com/never"]}},
        "the tolerations": {"spec": {"tolerations": [{"operator": "Exists"}]}},
    }  # fmt: skip
    for what, change in of_pod.items():
        yield Call(f"changes {what} of a pod", "patch", one, change, by_policy=True)
    lifted = {"spec": {"schedulingGates": [{"name": GATES[0]["name"], "$patch": "delete"}]}}
    yield Call("lifts another's gate", "patch", gated, lifted, by_policy=True)
    for what, status in {"phase": {"phase": "Succeeded"}, "address": {"podIP": "10.0.0.1"}}.items():
        yield Call(f"writes the {what} of a pod", "patch", f"{one}/status", {"status": status}, by_policy=True)
    account = {"spec": {"template": {"spec": {"serviceAccountName": "admin"}}}}
    image = {"spec": {"template": {"spec": {"containers": OTHER_IMAGE}}}}
    for path, name in ((deployment, "a Deployment"), (job, "a job")):
        size: Json = {"spec": {"replicas": 9} if path == deployment else {"parallelism": 9}}
        of_object: dict[str, Json] = {"the image": image, "the account": account, "the size": size, "a label": label}
        for what, change in of_object.items():
            yield Call(f"changes {what} of {name}", "patch", path, change, by_policy=True)


def _own_objects() -> Iterator[Call]:
    """Objects of its kinds, that are not its own."""
    leases = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
    for namespace, name in (("kube-system", "kube-scheduler"), (NAMESPACE, "other"), (VICTIM, "hived")):
        yield Call(f"takes the Lease {name} of {namespace}", "patch", f"{leases.format(namespace)}/{name}")
    yield Call("deletes its own Secret of proofs", "delete", f"/api/v1/namespaces/{NAMESPACE}/secrets/hived-bindings")


def _of_features() -> Iterator[Call]:
    """Calls that a feature needs, where it is off."""
    job, deployment = f"{JOBS.format(VICTIM)}/j", f"{DEPLOYMENTS.format(VICTIM)}/d"
    resumed, note = {"spec": {"suspend": False}}, {"metadata": {"annotations": {"hivedscheduler.microsoft.com/a": "b"}}}
    yield Call("resumes a job without queues", "patch", job, resumed)
    yield Call("annotates a job without queues", "patch", job, note)
    yield Call("annotates a Deployment without queues", "patch", deployment, note)
    yield Call("reads all jobs without queues", "list", "/apis/batch/v1/jobs")
    for kind in ("jobset.x-k8s.io/v1alpha2/jobsets", "ray.io/v1/rayjobs", "kubeflow.org/v1/pytorchjobs"):
        group, version, plural = kind.split("/")
        path = f"/apis/{group}/{version}/namespaces/{VICTIM}/{plural}/x"
        yield Call(f"resumes {plural} without queues", "patch", path, resumed)
    queues = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/kube-queue/queues"
    yield Call("deletes a Queue without queues", "delete", f"{queues}/x")
    trees = "/apis/scheduling.sigs.k8s.io/v1beta1/namespaces/kube-system/elasticquotatrees"
    yield Call("reads quota trees without queues", "list", trees)
    workloads = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{VICTIM}/workloads/x/status"
    yield Call("admits a Workload without Kueue", "patch", workloads, {"status": {}})


_ASKED = (
    ("impersonate", "users", ""), ("impersonate", "groups", ""), ("impersonate", "serviceaccounts", ""),
    ("escalate", "clusterroles", "rbac.authorization.k8s.io"), ("bind", "clusterroles", "rbac.authorization.k8s.io"),
    ("approve", "signers", "certificates.k8s.io"), ("*", "*", "*"), ("get", "secrets", ""), ("create", "pods", ""),
    ("update", "pods", ""), ("update", "deployments", "apps"), ("deletecollection", "pods", ""),
    ("create", "serviceaccounts/token", ""), ("get", "nodes/proxy", ""),
)  # fmt: skip
"""Verbs without a call of their own, or that name no object: the API server says whether the thief may."""


def _answer(thief: KubeClient, call: Call) -> str:
    """The refusal, "" where the call was let through. Content is refused too, but only once a role allows the call."""
    named = {"metadata": {"name": "mine"}, **call.body}
    try:
        match call.verb:
            case "create":
                thief.create(call.path + DRY, named)
            case "patch":
                by_lists = "$patch" in str(call.body) or "containers" in str(call.body)
                (thief.patch_lists if by_lists else thief.patch)(call.path + DRY, call.body)
            case "delete":
                thief.delete(call.path + DRY)
            case _:
                thief.get(call.path)
    except KubeError as error:
        is_refused = error.status == FORBIDDEN or (call.by_policy and error.status == INVALID)
        return str(error) if is_refused else ""
    return ""


def _may(thief: KubeClient, verb: str, resource: str, group: str) -> bool:
    kind, _, part = resource.partition("/")
    asked = {"verb": verb, "resource": kind, "subresource": part, "group": group}
    return bool(thief.create(REVIEWS, {"spec": {"resourceAttributes": asked}})["status"]["allowed"])


# -- the shipped roles, where there is no API server that goes by them


def _roles(*, with_features: bool) -> list[tuple[str, Json]]:
    """(the namespace that a rule is for, "" for all; the rule), for all rules of hived's account."""
    root = deploy_folder()
    components = [str(root / "components" / name) for name in ("queues-rbac", "kueue-rbac") if with_features]
    documents = build(Path("/"), {"resources": [str(root / "overlays" / "ha")], "components": components})
    roles = {(one["kind"], one["metadata"]["name"]): one for one in documents if one["kind"].endswith("Role")}
    found = []
    for one in documents:
        if one["kind"].endswith("RoleBinding") and ACCOUNT in [each["name"] for each in one["subjects"]]:
            namespace = NAMESPACE if one["kind"] == "RoleBinding" else ""
            reference = one["roleRef"]
            found += [(namespace, rule) for rule in roles[reference["kind"], reference["name"]]["rules"]]
    return found


def _is_granted(rules: list[tuple[str, Json]], call: Call) -> bool:
    group, namespace, resource, name = _parts(call.path)
    return any(
        where in ("", namespace)
        and _has(rule, "apiGroups", group)
        and _has(rule, "resources", resource)
        and _has(rule, "verbs", call.verb)
        and (not rule.get("resourceNames") or name in rule["resourceNames"])
        for where, rule in rules
    )


def _has(rule: Json, key: str, wanted: str) -> bool:
    return any(fnmatchcase(wanted, each) for each in rule.get(key, ()))


def _parts(path: str) -> tuple[str, str, str, str]:
    """(API group, namespace, resource with its part, name) of the path of an object or a collection."""
    words = urlparse(path).path.strip("/").split("/")
    group, rest = ("", words[2:]) if words[0] == "api" else (words[1], words[3:])
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    resource, name, *part = [*rest, "", ""][:3]
    return group, namespace, f"{resource}/{part[0]}" if part[0] else resource, name


# -- the tenant


def _write_as_hived(cluster: Cluster, run: Run) -> None:
    """All that a policy keeps for hived, by a tenant with every right to the pods of its namespace."""
    cases = [case for case in CASES if case.user == TENANT and case.said]
    writes = Writes({TENANT: cluster.tenant, HIVED: cluster.admin, ADMIN: cluster.admin}, EVIL)
    if cluster.real is not None:
        text = yaml.safe_dump_all(_every_right())
        cluster.real.plane.kubectl("apply", "--server-side", "-f", "-", stdin=text)
        path, made = pod("trial", gpus=0)
        cluster.create(cluster.admin, path, made)
        cluster.await_so("the tenant has its rights", lambda: _writes_status(cluster))
    for case in cases[: run.count(len(cases))]:
        try:
            _judge(cluster, f"as a tenant: {case.name}", writes.answer(case))
        except KubeError as error:
            cluster.outcome.fault(f"{case.name}: {error}")


def _writes_status(cluster: Cluster) -> bool:
    with suppress(KubeError):
        cluster.tenant.patch(f"{pod_path(EVIL, 'trial')}/status{DRY}", {"status": {"message": "x"}})
        return True
    return False


def _every_right() -> Iterator[Json]:
    rbac: Json = {"apiVersion": "rbac.authorization.k8s.io/v1"}
    meta = {"name": "every-right", "namespace": EVIL}
    pods: Any = {"apiGroups": [""], "resources": ["pods", "pods/status", "pods/binding", "bindings"], "verbs": ["*"]}
    bind = {"apiGroups": ["hivedscheduler.microsoft.com"], "resources": ["pods"], "verbs": ["bind"]}
    yield {**rbac, "kind": "Role", "metadata": meta, "rules": [pods, bind]}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "every-right"}
    subjects = [{"kind": "User", "name": MALLORY, "apiGroup": "rbac.authorization.k8s.io"}]
    yield {**rbac, "kind": "RoleBinding", "metadata": meta, "roleRef": reference, "subjects": subjects}


RIGHTS = Hostile(attack)
