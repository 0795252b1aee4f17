"""No manifest breaks a rule; and every rule notices a manifest that does."""

import copy
import json
from collections.abc import Callable
from functools import cache

import pytest

from hived_deploy.installation import COMPONENT_LABEL, INSTANCE_LABEL, SCHEDULER, SCHEDULER_CONFIG, VC_LABEL
from hived_deploy.kustomize import Document
from tests.deploy.installations import CA, NAMES, installation, manifests
from tests.deploy.rules import RULES, Object, Objects, of_kind

ELECTION = "hived-election"
CONFIG = "hived-config"


@cache
def sound_objects() -> list[Document]:
    """An installation that breaks no rule."""
    return manifests("--service-monitor", "--one-scheduler", "--webhook", str(CA))


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", NAMES)
def test_an_installation_breaks_no_rule(name: str) -> None:
    objects = installation(name)
    assert {rule: list(check(objects)) for rule, check in RULES.items()} == {rule: [] for rule in RULES}


def find(objects: Objects, kind: str, name: str = "hived") -> Object:
    return next(each for found, each in of_kind(objects, kind) if found == f"{kind}/{name}")


def pod(objects: Objects) -> Object:
    return find(objects, "Deployment")["spec"]["template"]["spec"]


def container(objects: Objects) -> Object:
    return pod(objects)["containers"][0]


def context(objects: Objects) -> Object:
    return container(objects)["securityContext"]


def grant(objects: Objects, **changes: list[str]) -> None:
    find(objects, "ClusterRole")["rules"].append({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]} | changes)


def rewrite(objects: Objects, old: str, new: str, name: str = SCHEDULER_CONFIG) -> None:
    data = find(objects, "ConfigMap", name)["data"]
    for key in data:
        assert old in data[key]
        data[key] = data[key].replace(old, new)


def validating(**changes: object) -> Object:
    """A webhook of quota trees, but for some changes."""
    sound = {"failurePolicy": "Ignore", "sideEffects": "None", "rules": [{"resources": ["elasticquotatrees"]}]}
    return {"kind": "ValidatingWebhookConfiguration", "metadata": {"name": "hived"}, "webhooks": [sound | changes]}


def webhook(objects: Objects) -> Object:
    """The one of pods that are for hived."""
    webhooks = find(objects, "MutatingWebhookConfiguration")["webhooks"]
    return next(each for each in webhooks if each["name"].startswith("devices."))


def called(objects: Objects) -> Object:
    return webhook(objects)["clientConfig"]["service"]


def labels_of(objects: Objects, kind: str, key: str, name: str = "hived") -> Object:
    return find(objects, kind, name)["spec"][key]["matchLabels"]


def named(elements: list[Object], name: str) -> Object:
    return next(each for each in elements if each["name"] == name)


def policy(objects: Objects, name: str = "hived-pods", kind: str = "ValidatingAdmissionPolicy") -> Object:
    return find(objects, kind, name)["spec"]


def bound(objects: Objects) -> Object:
    return policy(objects, kind="ValidatingAdmissionPolicyBinding")


OURS = {"apiGroups": ["hivedscheduler.microsoft.com"], "resources": ["pods"], "verbs": ["bind"]}
DENIES = "denies_what_its_policies_forbid"
EVERY_WAY = "watches_over_every_way_to_write_a_pod"
HIVED_ALONE = "lets_hived_alone_write_what_only_hived_writes"
OWN_DIGEST = "replaces_a_kube_scheduler_with_its_configuration"
CAN_CHANGE = "follows_a_configuration_that_it_may_read_and_write"
OWN = "watches_over_hived_wherever_it_may_patch"
CHANGES: list[tuple[str, Callable[[Objects], object]]] = [
    ("runs_as_somebody_without_rights", lambda o: pod(o)["securityContext"].update(runAsUser=0)),
    ("runs_as_somebody_without_rights", lambda o: context(o).update(runAsNonRoot=False)),
    ("has_a_read_only_file_system", lambda o: context(o).pop("readOnlyRootFilesystem")),
    ("has_no_capability", lambda o: context(o)["capabilities"].update(add=["NET_ADMIN"])),
    ("has_no_capability", lambda o: context(o).pop("capabilities")),
    ("gains_no_privilege", lambda o: context(o).update(privileged=True)),
    ("gains_no_privilege", lambda o: context(o).pop("allowPrivilegeEscalation")),
    ("has_a_seccomp_profile", lambda o: pod(o)["securityContext"].pop("seccompProfile")),
    ("stays_off_the_host", lambda o: pod(o).update(hostNetwork=True)),
    ("stays_off_the_host", lambda o: pod(o).update(hostPID=True)),
    ("stays_off_the_host", lambda o: pod(o)["volumes"].append({"name": "host", "hostPath": {"path": "/"}})),
    ("stays_off_the_host", lambda o: container(o)["ports"][0].update(hostPort=9096)),
    ("says_what_it_needs_and_at_most_takes", lambda o: container(o)["resources"]["limits"].pop("memory")),
    ("says_what_it_needs_and_at_most_takes", lambda o: pod(o)["volumes"].append({"name": "disk", "emptyDir": {}})),
    ("is_probed_at_a_port_it_has", lambda o: container(o).pop("readinessProbe")),
    ("is_probed_at_a_port_it_has", lambda o: container(o)["livenessProbe"]["httpGet"].update(port="other")),
    ("has_a_fixed_image", lambda o: container(o).update(image="registry.example:5000/hived")),
    ("has_a_fixed_image", lambda o: container(o).update(image="hived:latest")),
    ("has_an_account_of_its_own", lambda o: pod(o).update(serviceAccountName="default")),
    ("has_an_account_of_its_own", lambda o: find(o, "ServiceAccount").pop("automountServiceAccountToken")),
    ("mounts_what_there_is", lambda o: o.remove(find(o, "ConfigMap", SCHEDULER_CONFIG))),
    ("mounts_what_there_is", lambda o: pod(o)["volumes"].pop()),
    (OWN, lambda o: grant(o, apiGroups=["apps"], resources=["statefulsets"], verbs=["patch"])),
    (OWN, lambda o: policy(o, "hived-own-writes")["matchConstraints"]["resourceRules"].pop(0)),
    ("grants_nothing_wholesale", lambda o: grant(o, verbs=["*"])),
    ("grants_nothing_wholesale", lambda o: grant(o, resources=["*"])),
    ("grants_nothing_wholesale", lambda o: grant(o, apiGroups=["*"])),
    ("grants_no_way_to_more_rights", lambda o: grant(o, resources=["secrets"])),
    ("grants_no_way_to_more_rights", lambda o: find(o, "Role", "hived-bindings")["rules"][0].pop("resourceNames")),
    ("grants_no_way_to_more_rights", lambda o: find(o, "Role", "hived-bindings")["rules"][0]["verbs"].append("create")),
    ("grants_no_way_to_more_rights", lambda o: grant(o, verbs=["impersonate"])),
    ("grants_no_way_to_more_rights", lambda o: grant(o, apiGroups=["rbac.authorization.k8s.io"])),
    ("grants_no_way_to_more_rights", lambda o: find(o, "ClusterRoleBinding")["roleRef"].update(name="cluster-admin")),
    ("names_the_leases_it_changes", lambda o: grant(o, resources=["leases"], verbs=["update"])),
    ("names_the_leases_it_changes", lambda o: find(o, "Role", ELECTION)["rules"][1].pop("resourceNames")),
    ("names_the_config_maps_it_reads_and_changes", lambda o: grant(o, resources=["configmaps"], resourceNames=["x"])),
    ("names_the_config_maps_it_reads_and_changes", lambda o: find(o, "Role", CONFIG)["rules"][0].pop("resourceNames")),
    ("binds_every_role_to_accounts_there_are", lambda o: o.remove(find(o, "ClusterRoleBinding"))),
    ("binds_every_role_to_accounts_there_are", lambda o: o.remove(find(o, "ServiceAccount"))),
    ("binds_every_role_to_accounts_there_are", lambda o: find(o, "RoleBinding", ELECTION)["roleRef"].update(name="x")),
    ("selects_pods_there_are", lambda o: labels_of(o, "PodDisruptionBudget", "selector", SCHEDULER).update(a="b")),
    ("selects_pods_there_are", lambda o: labels_of(o, "NetworkPolicy", "podSelector").update(a="b")),
    ("selects_pods_there_are", lambda o: labels_of(o, "ServiceMonitor", "selector").update(a="b")),
    ("serves_ports_that_pods_have", lambda o: find(o, "Service")["spec"]["ports"][0].update(targetPort="other")),
    ("serves_ports_that_pods_have", lambda o: find(o, "Service")["spec"]["selector"].update(a="b")),
    ("serves_ports_that_pods_have", lambda o: find(o, "Service")["spec"].update(publishNotReadyAddresses=True)),
    ("can_be_drained", lambda o: find(o, "PodDisruptionBudget", SCHEDULER).update(spec={"minAvailable": 2})),
    ("protects_every_pod_by_a_network_policy", lambda o: o.remove(find(o, "NetworkPolicy", SCHEDULER))),
    ("protects_every_pod_by_a_network_policy", lambda o: find(o, "NetworkPolicy")["spec"]["ingress"][0].pop("from")),
    ("lives_in_one_restricted_namespace", lambda o: find(o, "Namespace", "hived-system")["metadata"].update(labels={})),
    ("lives_in_one_restricted_namespace", lambda o: find(o, "Service")["metadata"].update(namespace="default")),
    ("carries_a_sound_configuration", lambda o: rewrite(o, "cellTypes", "celltypes", CONFIG)),
    *((CAN_CHANGE, change) for change in (
        lambda o: o.remove(find(o, "RoleBinding", CONFIG)),
        lambda o: o.remove(find(o, "ConfigMap", CONFIG)),
        lambda o: find(o, "Role", CONFIG)["rules"][0]["verbs"].remove("update"),
        lambda o: find(o, "Role", CONFIG)["rules"][0].update(resourceNames=["x"]),
        lambda o: container(o)["args"].remove("--config-map=$(POD_NAMESPACE)/hived-config"),
        lambda o: container(o)["args"].append("--config=/etc/hived/hivedscheduler.yaml"),
        lambda o: container(o)["env"].remove(named(container(o)["env"], "POD_NAMESPACE")),
    )),
    ("configures_kube_scheduler_as_it_expects", lambda o: rewrite(o, "percentageOfNodesToScore", "percentage")),
    ("configures_kube_scheduler_as_it_expects", lambda o: rewrite(o, "nodeCacheCapable", "nodeCache")),
    ("configures_kube_scheduler_as_it_expects", lambda o: rewrite(o, ": hivedscheduler-ds-research", ": hived")),
    ("calls_the_extender_where_it_listens", lambda o: rewrite(o, "http://hived:9096", "http://hived:30096")),
    ("calls_the_extender_where_it_listens", lambda o: rewrite(o, "http://hived:9096", "https://hived:9096")),
    ("calls_the_extender_where_it_listens", lambda o: container(o)["args"].append("--tls-cert-file=/x")),
    ("has_the_webhook_called_where_it_is_served", lambda o: webhook(o)["clientConfig"].pop("caBundle")),
    ("has_the_webhook_called_where_it_is_served", lambda o: called(o).update(port=443)),
    ("has_the_webhook_called_where_it_is_served", lambda o: called(o).update(path="/")),
    ("has_the_webhook_called_where_it_is_served", lambda o: called(o).update(namespace="default")),
    ("has_the_webhook_called_where_it_is_served", lambda o: container(o)["env"].pop(0)),
    ("has_the_webhook_called_where_it_is_served", lambda o: container(o)["volumeMounts"].pop(0)),
    ("asks_the_webhook_about_our_pods_only", lambda o: webhook(o).pop("matchConditions")),
    ("asks_the_webhook_about_our_pods_only", lambda o: rewrite(o, ": hivedscheduler-ds-research", ": another")),
    ("asks_the_webhook_about_our_pods_only", lambda o: webhook(o)["rules"][0].update(operations=["*"])),
    ("asks_the_webhook_about_our_pods_only", lambda o: webhook(o).update(timeoutSeconds=30)),
    (DENIES, lambda o: o.remove(find(o, "ValidatingAdmissionPolicyBinding", "hived-bindings"))),
    (DENIES, lambda o: o.remove(find(o, "ValidatingAdmissionPolicy", "hived-bindings"))),
    (DENIES, lambda o: bound(o).update(validationActions=["Warn"])),
    (DENIES, lambda o: bound(o).update(matchResources={"namespaceSelector": {"matchLabels": {"a": "b"}}})),
    (DENIES, lambda o: policy(o).update(failurePolicy="Ignore")),
    (DENIES, lambda o: policy(o).update(matchConditions=[{"name": "x", "expression": "false"}])),
    (EVERY_WAY, lambda o: policy(o)["matchConstraints"]["resourceRules"][0]["operations"].remove("UPDATE")),
    (EVERY_WAY, lambda o: policy(o)["matchConstraints"]["resourceRules"][1]["resources"].remove("pods/status")),
    (EVERY_WAY, lambda o: policy(o, "hived-bindings")["matchConstraints"]["resourceRules"][0].update(resources=[])),
    (HIVED_ALONE, lambda o: policy(o)["variables"].pop(0)),
    (HIVED_ALONE, lambda o: policy(o)["validations"][0].update(expression="variables.written.size() == 0")),
    (HIVED_ALONE, lambda o: policy(o)["validations"][0].pop("reason")),
    (HIVED_ALONE, lambda o: find(o, "ClusterRole", "hived-viewer")["rules"].append(OURS)),
    ("lets_quota_trees_pass_while_nobody_checks_them", lambda o: o.append(validating(failurePolicy="Fail"))),
    ("lets_quota_trees_pass_while_nobody_checks_them", lambda o: o.append(validating(rules=[{"resources": ["pods"]}]))),
    ("holds_a_lease_it_may_hold", lambda o: container(o)["args"].remove("--leader-elect")),
    ("holds_a_lease_it_may_hold", lambda o: find(o, "Role", ELECTION)["rules"][1].update(resourceNames=["x"])),
    ("says_what_it_belongs_to", lambda o: find(o, "ConfigMap", SCHEDULER_CONFIG)["metadata"].pop("labels")),
    ("says_what_it_belongs_to", lambda o: find(o, "ClusterRole")["metadata"]["labels"].pop(INSTANCE_LABEL)),
    ("says_what_it_belongs_to", lambda o: find(o, "Role", ELECTION)["metadata"]["labels"].pop(COMPONENT_LABEL)),
    ("says_what_it_belongs_to", lambda o: find(o, "Deployment")["spec"]["template"]["metadata"].update(labels={})),
    (OWN_DIGEST, lambda o: rewrite(o, "percentageOfNodesToScore: 100", "percentageOfNodesToScore: 99")),
    (OWN_DIGEST, lambda o: find(o, "ConfigMap", SCHEDULER_CONFIG)["metadata"]["labels"].update({VC_LABEL: "x"})),
]  # fmt: skip


@pytest.mark.sample(30)
@pytest.mark.parametrize(("rule", "change"), CHANGES, ids=[f"{rule}-{i}" for i, (rule, _) in enumerate(CHANGES)])
def test_a_rule_notices_what_it_forbids(rule: str, change: Callable[[Objects], object]) -> None:
    objects: list[Document] = copy.deepcopy(sound_objects())
    change(objects)
    assert json.dumps(objects) != json.dumps(sound_objects())
    assert list(RULES[rule](objects))


def test_every_rule_is_shown_to_notice_something() -> None:
    assert {rule for rule, _ in CHANGES} == RULES.keys()
