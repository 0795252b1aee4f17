"""Prohibitions for manifests, as rules over their objects: in the manner of kube-linter and kubesec, for this product.

A rule takes all objects of an installation and yields its findings. `RULES` has every function here that is a rule;
test_rules.py shows for each of them a change that it notices.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import yaml

from hived_config.document import ConfigError
from hived_config.loader import load_text
from hived_deploy.installation import DIGEST_ANNOTATION, VC_LABEL, digest, is_of_tenants
from hived_extender.http.webhook import MUTATE_PATH, VALIDATE_PATH

Object = dict[str, Any]
Objects = list[Object]
Rule = Callable[[Objects], Iterable[str]]

RULES: dict[str, Rule] = {}

BUILT_IN_ROLES = {"system:kube-scheduler", "system:volume-scheduler"}
ROLES_TO_BIND_BY_HAND = {"hived-viewer", "hived-admin"}
CONFIGURATION_KEYS = {
    "apiVersion", "kind", "leaderElection", "clientConnection", "percentageOfNodesToScore", "podInitialBackoffSeconds",
    "podMaxBackoffSeconds", "profiles", "extenders",
}  # fmt: skip
EXTENDER_KEYS = {
    "urlPrefix", "filterVerb", "preemptVerb", "bindVerb", "weight", "enableHTTPS", "tlsConfig", "nodeCacheCapable",
    "ignorable", "httpTimeout",
}  # fmt: skip


def rule(function: Rule) -> Rule:
    """Register a rule under its name."""
    RULES[function.__name__] = function
    return function


def of_kind(objects: Objects, *kinds: str) -> Iterator[tuple[str, Object]]:
    """(kind/name, object) of those kinds."""
    for each in objects:
        if each["kind"] in kinds:
            yield f"{each['kind']}/{each['metadata']['name']}", each


def pods(objects: Objects) -> Iterator[tuple[str, Object]]:
    """(owner, pod spec) of everything that makes pods."""
    for name, owner in of_kind(objects, "Deployment", "StatefulSet", "DaemonSet", "Job"):
        yield name, owner["spec"]["template"]["spec"]


def containers(objects: Objects) -> Iterator[tuple[str, Object, Object]]:
    """(owner, pod spec, container), containers of every kind."""
    for name, pod in pods(objects):
        for key in ("containers", "initContainers", "ephemeralContainers"):
            for container in pod.get(key, ()):
                yield f"{name}:{container['name']}", pod, container


def grants(objects: Objects) -> Iterator[tuple[str, Object]]:
    """(role, RBAC rule)."""
    for name, role in of_kind(objects, "Role", "ClusterRole"):
        for each in role["rules"]:
            yield name, each


def security(pod: Object, container: Object) -> Object:
    """The security context in force: the container's above the pod's."""
    return pod.get("securityContext", {}) | container.get("securityContext", {})


def selected(objects: Objects, labels: Object) -> list[Object]:
    """The pod templates with these labels."""
    return [
        owner["spec"]["template"]
        for _, owner in of_kind(objects, "Deployment", "StatefulSet", "DaemonSet")
        if labels.items() <= owner["spec"]["template"]["metadata"]["labels"].items()
    ]


@rule
def runs_as_somebody_without_rights(objects: Objects) -> Iterator[str]:
    for name, pod, container in containers(objects):
        context = security(pod, container)
        if not context.get("runAsNonRoot") or not context.get("runAsUser") or not context.get("runAsGroup"):
            yield f"{name} may run as root"


@rule
def has_a_read_only_file_system(objects: Objects) -> Iterator[str]:
    for name, _, container in containers(objects):
        if not container.get("securityContext", {}).get("readOnlyRootFilesystem"):
            yield f"{name} may write to its image"


@rule
def has_no_capability(objects: Objects) -> Iterator[str]:
    for name, _, container in containers(objects):
        capabilities = container.get("securityContext", {}).get("capabilities", {})
        if capabilities.get("drop") != ["ALL"] or capabilities.get("add"):
            yield f"{name} keeps capabilities"


@rule
def gains_no_privilege(objects: Objects) -> Iterator[str]:
    for name, _, container in containers(objects):
        context = container.get("securityContext", {})
        if context.get("privileged") or context.get("allowPrivilegeEscalation") is not False:
            yield f"{name} is privileged or may become so"


@rule
def has_a_seccomp_profile(objects: Objects) -> Iterator[str]:
    for name, pod, container in containers(objects):
        if security(pod, container).get("seccompProfile", {}).get("type") not in {"RuntimeDefault", "Localhost"}:
            yield f"{name} may call anything of the kernel"


@rule
def stays_off_the_host(objects: Objects) -> Iterator[str]:
    for name, pod in pods(objects):
        if any(pod.get(key) for key in ("hostNetwork", "hostPID", "hostIPC")):
            yield f"{name} shares a namespace with its node"
        if any("hostPath" in volume for volume in pod.get("volumes", ())):
            yield f"{name} mounts a folder of its node"
    for name, _, container in containers(objects):
        if any("hostPort" in port for port in container.get("ports", ())):
            yield f"{name} takes a port of its node"


@rule
def says_what_it_needs_and_at_most_takes(objects: Objects) -> Iterator[str]:
    for name, _, container in containers(objects):
        for bound in ("requests", "limits"):
            if {"cpu", "memory"} - container.get("resources", {}).get(bound, {}).keys():
                yield f"{name} has no {bound} of cpu and memory"
    for name, pod in pods(objects):
        if any("sizeLimit" not in (volume["emptyDir"] or {}) for volume in pod["volumes"] if "emptyDir" in volume):
            yield f"{name} may fill the disk of its node"


@rule
def is_probed_at_a_port_it_has(objects: Objects) -> Iterator[str]:
    for name, _, container in containers(objects):
        ports = {port["name"] for port in container.get("ports", ())}
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            if container.get(probe, {}).get("httpGet", {}).get("port") not in ports:
                yield f"{name} has no {probe} at one of its ports"


@rule
def has_a_fixed_image(objects: Objects) -> Iterator[str]:
    for name, _, container in containers(objects):
        image = container["image"]
        tag = image.rpartition("/")[2].partition(":")[2]
        if "@sha256:" not in image and tag in {"", "latest"}:
            yield f"{name} may run another image tomorrow: {image}"


@rule
def has_an_account_of_its_own(objects: Objects) -> Iterator[str]:
    accounts = {account["metadata"]["name"] for _, account in of_kind(objects, "ServiceAccount")}
    for name, pod in pods(objects):
        if pod.get("serviceAccountName") not in accounts:
            yield f"{name} runs with an account that is not among these objects"
    for name, account in of_kind(objects, "ServiceAccount"):
        if account.get("automountServiceAccountToken") is not False:
            yield f"{name} gives its token to pods that do not ask for it"


@rule
def mounts_what_there_is(objects: Objects) -> Iterator[str]:
    maps = {each["metadata"]["name"] for _, each in of_kind(objects, "ConfigMap")}
    for name, pod in pods(objects):
        for volume in pod.get("volumes", ()):
            if volume.get("configMap", {"name": next(iter(maps), "")})["name"] not in maps:
                yield f"{name} mounts a ConfigMap that is not among these objects"
    for name, pod, container in containers(objects):
        mounts = container.get("volumeMounts", ())
        if {mount["name"] for mount in mounts} - {volume["name"] for volume in pod.get("volumes", ())}:
            yield f"{name} mounts a volume that its pod does not have"


@rule
def grants_nothing_wholesale(objects: Objects) -> Iterator[str]:
    for name, grant in grants(objects):
        if any("*" in grant.get(key, ()) for key in ("verbs", "resources", "apiGroups", "nonResourceURLs")):
            yield f"{name} has a wildcard"


@rule
def grants_no_way_to_more_rights(objects: Objects) -> Iterator[str]:
    dangerous_verbs = {"escalate", "bind", "impersonate", "deletecollection"}
    dangerous_resources = {"secrets", "serviceaccounts/token", "pods/exec", "pods/attach", "nodes/proxy"}
    for name, grant in grants(objects):
        if grant.get("apiGroups") == ["hivedscheduler.microsoft.com"]:
            continue  # nobody serves it: a permission that our own policies ask for
        if dangerous_verbs & set(grant["verbs"]):
            yield f"{name} may {dangerous_verbs & set(grant['verbs'])}"
        is_ours_alone = grant.get("resourceNames") == ["hived-bindings"] and set(grant["verbs"]) == {"get", "patch"}
        if dangerous_resources & set(grant.get("resources", ())) and not is_ours_alone:
            yield f"{name} may reach {dangerous_resources & set(grant['resources'])}"
        if "rbac.authorization.k8s.io" in grant.get("apiGroups", ()):
            yield f"{name} may change roles"
    for name, binding in of_kind(objects, "RoleBinding", "ClusterRoleBinding"):
        if binding["roleRef"]["name"] in {"cluster-admin", "admin", "edit"}:
            yield f"{name} binds {binding['roleRef']['name']}"


@rule
def names_the_leases_it_changes(objects: Objects) -> Iterator[str]:
    for name, grant in grants(objects):
        is_lease = "leases" in grant.get("resources", ())
        if is_lease and (
            name.startswith("Cluster") or (grant["verbs"] != ["create"] and not grant.get("resourceNames"))
        ):
            yield f"{name} may take the Lease of others"


@rule
def names_the_config_maps_it_reads_and_changes(objects: Objects) -> Iterator[str]:
    for name, grant in grants(objects):
        is_config_map = "configmaps" in grant.get("resources", ())
        if is_config_map and (name.startswith("Cluster") or not grant.get("resourceNames")):
            yield f"{name} may reach the ConfigMaps of others"


@rule
def binds_every_role_to_accounts_there_are(objects: Objects) -> Iterator[str]:
    roles = {(each["kind"], each["metadata"]["name"]) for _, each in of_kind(objects, "Role", "ClusterRole")}
    accounts = {
        (each["metadata"]["namespace"], each["metadata"]["name"]) for _, each in of_kind(objects, "ServiceAccount")
    }
    bound = set()
    for name, binding in of_kind(objects, "RoleBinding", "ClusterRoleBinding"):
        role = (binding["roleRef"]["kind"], binding["roleRef"]["name"])
        bound.add(role)
        if role not in roles and role[1] not in BUILT_IN_ROLES:
            yield f"{name} binds a role that is neither here nor Kubernetes' own"
        for subject in binding["subjects"]:
            if subject["kind"] != "ServiceAccount" or (subject["namespace"], subject["name"]) not in accounts:
                yield f"{name} gives its role to somebody else"
    for role in roles - bound:
        if role[1] not in ROLES_TO_BIND_BY_HAND:
            yield f"{role} is bound to nobody"


@rule
def selects_pods_there_are(objects: Objects) -> Iterator[str]:
    for name, each in of_kind(objects, "Deployment", "PodDisruptionBudget"):
        if len(selected(objects, each["spec"]["selector"]["matchLabels"])) != 1:
            yield f"{name} selects not exactly one kind of pod"
    for name, each in of_kind(objects, "NetworkPolicy"):
        if not selected(objects, each["spec"]["podSelector"]["matchLabels"]):
            yield f"{name} selects no pod"
    for name, each in of_kind(objects, "ServiceMonitor"):
        labels = each["spec"]["selector"]["matchLabels"].items()
        if not any(labels <= service["metadata"]["labels"].items() for _, service in of_kind(objects, "Service")):
            yield f"{name} selects no Service"


@rule
def serves_ports_that_pods_have(objects: Objects) -> Iterator[str]:
    for name, service in of_kind(objects, "Service"):
        for template in selected(objects, service["spec"]["selector"]) or [{"spec": {"containers": []}}]:
            ports = {port["name"] for each in template["spec"]["containers"] for port in each.get("ports", ())}
            if {port["targetPort"] for port in service["spec"]["ports"]} - ports:
                yield f"{name} leads to a port that no pod has"
        if service["spec"].get("publishNotReadyAddresses"):
            yield f"{name} leads to followers"


@rule
def can_be_drained(objects: Objects) -> Iterator[str]:
    for name, budget in of_kind(objects, "PodDisruptionBudget"):
        if budget["spec"].get("maxUnavailable", 0) == 0:
            yield f"{name} may keep a node from being drained"


@rule
def protects_every_pod_by_a_network_policy(objects: Objects) -> Iterator[str]:
    policies = [each["spec"] for _, each in of_kind(objects, "NetworkPolicy")]
    for name, owner in of_kind(objects, "Deployment"):
        labels = owner["spec"]["template"]["metadata"]["labels"].items()
        covering = [policy for policy in policies if policy["podSelector"]["matchLabels"].items() <= labels]
        if not covering:
            yield f"{name} can be called by every pod"
    for policy in policies:
        if any(not rule.get("from") for rule in policy["ingress"]):
            yield f"the policy for {policy['podSelector']['matchLabels']} lets everybody in"


@rule
def lives_in_one_restricted_namespace(objects: Objects) -> Iterator[str]:
    names = [each["metadata"] for _, each in of_kind(objects, "Namespace")]
    for metadata in names:
        if metadata["labels"].get("pod-security.kubernetes.io/enforce") != "restricted":
            yield f"namespace {metadata['name']} allows any pod"
    found = {
        each["metadata"]["namespace"]
        for each in objects
        if "namespace" in each["metadata"] and not is_of_tenants(each["metadata"]["name"])
    }
    if found != {metadata["name"] for metadata in names}:
        yield f"objects are in {sorted(found)}"


@rule
def carries_a_sound_configuration(objects: Objects) -> Iterator[str]:
    found = [each["data"]["hivedscheduler.yaml"] for _, each in of_kind(objects, "ConfigMap") if "hived-config" in _]
    for text in found:
        try:
            load_text(text, "hivedscheduler.yaml")
        except ConfigError as error:
            yield str(error)
    if len(found) != 1:
        yield "there is not exactly one configuration"


@rule
def follows_a_configuration_that_it_may_read_and_write(objects: Objects) -> Iterator[str]:
    there = {f"{each['metadata']['namespace']}/{each['metadata']['name']}" for _, each in of_kind(objects, "ConfigMap")}
    followed = set()
    for name, pod, container in containers(objects):
        fields = {each["name"]: each.get("valueFrom", {}).get("fieldRef", {}) for each in container.get("env", ())}
        for namespace in [each["metadata"]["name"] for _, each in of_kind(objects, "Namespace")]:
            is_told = fields.get("POD_NAMESPACE", {}).get("fieldPath") == "metadata.namespace"
            for argument in container["args"]:
                option, _, value = argument.partition("=")
                if option == "--config-map":
                    followed.add((pod["serviceAccountName"], value.replace("$(POD_NAMESPACE)", namespace * is_told)))
                if option == "--config" and container["name"] == "hived":
                    yield f"{name} has a configuration that nobody can change while it runs"
    if [config_map for _, config_map in followed] != [each for each in there if each.endswith("/hived-config")]:
        yield f"ConfigMaps followed {sorted(followed)}, there are {sorted(there)}"
    if followed != set(writable_config_maps(objects)):
        yield f"ConfigMaps followed {sorted(followed)}, writable are {sorted(writable_config_maps(objects))}"


def writable_config_maps(objects: Objects) -> Iterator[tuple[str, str]]:
    """(ServiceAccount, namespace/name) of the ConfigMaps that one may follow and change."""
    bound = {binding["roleRef"]["name"]: binding["subjects"] for _, binding in of_kind(objects, "RoleBinding")}
    for _, role in of_kind(objects, "Role"):
        for grant in role["rules"]:
            if "configmaps" in grant.get("resources", ()) and {"get", "list", "watch", "update"} <= set(grant["verbs"]):
                for subject in bound.get(role["metadata"]["name"], ()):
                    for name in grant.get("resourceNames", ()):
                        yield subject["name"], f"{role['metadata']['namespace']}/{name}"


def scheduler_configurations(objects: Objects) -> Iterator[tuple[str, Object]]:
    """(ConfigMap, KubeSchedulerConfiguration)."""
    for name, each in of_kind(objects, "ConfigMap"):
        if "config.yaml" in each["data"]:
            yield name, yaml.safe_load(each["data"]["config.yaml"])


@rule
def configures_kube_scheduler_as_it_expects(objects: Objects) -> Iterator[str]:
    names: list[str] = []
    for name, config in scheduler_configurations(objects):
        if config.keys() - CONFIGURATION_KEYS or config["apiVersion"] != "kubescheduler.config.k8s.io/v1":
            yield f"{name}: {sorted(config.keys() - CONFIGURATION_KEYS)}"
        for extender in config["extenders"]:
            if extender.keys() - EXTENDER_KEYS:
                yield f"{name}: {sorted(extender.keys() - EXTENDER_KEYS)}"
        names += [profile["schedulerName"] for profile in config["profiles"]]
    if len(set(names)) < len(names) or not names:
        yield f"schedulerNames {names}: a pod needs exactly one kube-scheduler"


@rule
def calls_the_extender_where_it_listens(objects: Objects) -> Iterator[str]:
    services = {service["metadata"]["name"]: service for _, service in of_kind(objects, "Service")}
    arguments = [argument for _, _, each in containers(objects) if each["name"] == "hived" for argument in each["args"]]
    scheme = "https" if any(argument.startswith("--tls-cert-file") for argument in arguments) else "http"
    urls = {
        f"{scheme}://{name}:{port['port']}/v1/extender"
        for name, service in services.items()
        for port in service["spec"]["ports"]
        if f"--listen=:{port['port']}" in arguments
    }
    for name, config in scheduler_configurations(objects):
        for extender in config["extenders"]:
            if extender["urlPrefix"] not in urls:
                yield f"{name} calls {extender['urlPrefix']}, the extender listens at {urls}"
            if extender["enableHTTPS"] != (scheme == "https") or ("tlsConfig" in extender) != (scheme == "https"):
                yield f"{name} speaks another protocol than the extender"
            if extender.get("tlsConfig", {}).get("insecure"):
                yield f"{name} does not check whom it speaks to"


OWN_WRITES = "hived-own-writes"
"""The policy that binds hived itself; the others bind everybody else."""


def policies(objects: Objects) -> dict[str, Object]:
    """Admission policies by their names."""
    return {each["metadata"]["name"]: each["spec"] for _, each in of_kind(objects, "ValidatingAdmissionPolicy")}


@rule
def denies_what_its_policies_forbid(objects: Objects) -> Iterator[str]:
    bound = {each["spec"]["policyName"]: each for _, each in of_kind(objects, "ValidatingAdmissionPolicyBinding")}
    for name in policies(objects).keys() ^ bound.keys():
        yield f"{name} is a policy without a binding, or a binding without a policy"
    for name, each in bound.items():
        if each["spec"]["validationActions"] != ["Deny"] or "matchResources" in each["spec"]:
            yield f"{name} lets something through"
    for name, spec in policies(objects).items():
        if spec["failurePolicy"] != "Fail" or ("matchConditions" in spec and name != OWN_WRITES):
            yield f"{name} lets something through"


@rule
def watches_over_every_way_to_write_a_pod(objects: Objects) -> Iterator[str]:
    watched = {
        (operation, resource)
        for name, spec in policies(objects).items()
        if name != OWN_WRITES
        for each in spec["matchConstraints"]["resourceRules"]
        for operation in each["operations"]
        for resource in each["resources"]
    }
    created, updated = ("pods", "pods/binding", "bindings"), ("pods", "pods/status", "pods/ephemeralcontainers")
    wanted = {("CREATE", each) for each in created} | {("UPDATE", each) for each in (*updated, "pods/resize")}
    yield from (f"nobody checks {operation} of {resource}" for operation, resource in wanted - watched)


@rule
def watches_over_hived_wherever_it_may_patch(objects: Objects) -> Iterator[str]:
    spec = policies(objects)[OWN_WRITES]
    watched = [
        (set(each["apiGroups"]), set(each["resources"]))
        for each in spec["matchConstraints"]["resourceRules"]
        if "UPDATE" in each["operations"]
    ]
    own = {"events", "workloads/status", "admissionchecks/status", "queues", "queueunits", "queues/status"}
    own |= {"queueunits/status", "podgroups/status"}
    for name, grant in grants(objects):
        if not name.startswith("ClusterRole/hived") or not {"patch", "update"} & set(grant["verbs"]):
            continue
        for group in grant.get("apiGroups", ()):
            for resource in set(grant["resources"]) - own:
                if not any(group in groups and {"*", resource} & resources for groups, resources in watched):
                    yield f"{name} may patch {resource}.{group}, and nobody looks at what it writes"


@rule
def lets_hived_alone_write_what_only_hived_writes(objects: Objects) -> Iterator[str]:
    asked = "authorizer.group('hivedscheduler.microsoft.com').resource('pods').check('bind').allowed()"
    for name, spec in policies(objects).items():
        if name == OWN_WRITES:
            continue
        if {"name": "isHived", "expression": asked} not in spec["variables"]:
            yield f"{name} knows hived by something else"
        for each in spec["validations"]:
            if not each["expression"].endswith("|| variables.isHived") or each.get("reason") != "Forbidden":
                yield f"{name} forbids hived something, or asks for its permission first: {each['expression']}"
    holders = [
        name
        for name, grant in grants(objects)
        if "bind" in grant["verbs"]
        and "hivedscheduler.microsoft.com" in grant.get("apiGroups", ())
        and "pods" in grant.get("resources", ())
    ]
    if holders != ["ClusterRole/hived"]:
        yield f"what only hived writes may be written by {holders}"


def webhooks(objects: Objects) -> Iterator[tuple[str, Object]]:
    """(configuration, webhook)."""
    for name, each in of_kind(objects, "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        for webhook in each["webhooks"]:
            yield name, webhook


@rule
def has_the_webhook_called_where_it_is_served(objects: Objects) -> Iterator[str]:
    services = {service["metadata"]["name"]: service for _, service in of_kind(objects, "Service")}
    for name, webhook in webhooks(objects):
        called = webhook["clientConfig"]["service"]
        path = VALIDATE_PATH if name.startswith("Validating") else MUTATE_PATH
        service = services[called["name"]]
        ports = {port["port"]: port["targetPort"] for port in service["spec"]["ports"]}
        if called["namespace"] != service["metadata"]["namespace"] or called["path"] != path:
            yield f"{name} calls {called}"
        for template in selected(objects, service["spec"]["selector"]):
            for container in template["spec"]["containers"]:
                env = {each["name"]: each.get("value", "") for each in container.get("env", ())}
                named = {port["name"]: str(port["containerPort"]) for port in container["ports"]}
                if named.get(ports.get(called["port"], "")) != env.get("WEBHOOK_PORT", ""):
                    yield f"{name} calls a port at which no webhook is"
                folders = [mount["mountPath"] + "/" for mount in container["volumeMounts"]]
                for variable in ("WEBHOOK_TLS_CERT_FILE", "WEBHOOK_TLS_PRIVATE_KEY_FILE"):
                    if not env.get(variable, "").startswith(tuple(folders)):
                        yield f"{variable} is no file that the pod has"
        if not webhook["clientConfig"].get("caBundle"):
            yield f"{name} trusts nobody"


@rule
def asks_the_webhook_about_our_pods_only(objects: Objects) -> Iterator[str]:
    served = {
        profile["schedulerName"] for _, config in scheduler_configurations(objects) for profile in config["profiles"]
    }
    for name, webhook in webhooks(objects):
        if name.startswith("Validating"):
            continue  # of quota trees
        holds_jobs = webhook["name"].startswith("jobs.") and webhook["failurePolicy"] == "Ignore"
        if webhook["name"].startswith("foreign-devices.") and webhook["failurePolicy"] == "Ignore":
            continue  # of pods of other schedulers
        expressions = [each["expression"] for each in webhook.get("matchConditions", ())]
        known = [set(json.loads(text.removeprefix("object.spec.schedulerName in "))) for text in expressions]
        if known != [served] and not holds_jobs:
            yield f"{name} is asked about pods of {known}, served are {served}"
        for each in webhook["rules"]:
            is_of_pods = each["resources"] in (["pods"], ["pods/ephemeralcontainers"])
            operations = ["UPDATE"] if each["resources"] == ["pods/ephemeralcontainers"] else ["CREATE"]
            if (each["operations"], each["scope"]) != (operations, "Namespaced") or is_of_pods == holds_jobs:
                yield f"{name} is asked about {each}"
        if webhook["sideEffects"] != "None" or webhook["timeoutSeconds"] > 5:
            yield f"{name} may hold up the API server"


@rule
def lets_quota_trees_pass_while_nobody_checks_them(objects: Objects) -> Iterator[str]:
    for name, each in of_kind(objects, "ValidatingWebhookConfiguration"):
        for webhook in each["webhooks"]:
            if [rule["resources"] for rule in webhook["rules"]] != [["elasticquotatrees"]]:
                yield f"{name} is asked about {webhook['rules']}"
            if webhook["failurePolicy"] != "Ignore" or webhook["sideEffects"] != "None":
                yield f"{name} keeps trees from being changed, which are checked again when they are read"


@rule
def holds_a_lease_it_may_hold(objects: Objects) -> Iterator[str]:
    allowed = {name for _, grant in grants(objects) if "leases" in grant.get("resources", ())
               for name in grant.get("resourceNames", ())}  # fmt: skip
    held = []
    for _, _, container in containers(objects):
        named = [
            each.partition("=")[2] for each in container["args"] if each.startswith("--leader-elect-resource-name=")
        ]
        held += named or ["hived-scheduler"] * ("--leader-elect" in container["args"])
    if len(held) != len(list(containers(objects))) or len(set(held)) != len(held) or set(held) != allowed:
        yield f"leases held {sorted(held)}, allowed {sorted(allowed)}"


@rule
def says_what_it_belongs_to(objects: Objects) -> Iterator[str]:
    (namespace,) = [each["metadata"]["name"] for _, each in of_kind(objects, "Namespace")]
    common = {"app.kubernetes.io/part-of": "hived", "app.kubernetes.io/instance": namespace}
    components = {"extender", "kube-scheduler"}
    labelled = [(f"{each['kind']}/{each['metadata']['name']}", each["metadata"]) for each in objects]
    labelled += [
        (f"pods of {name}", each["spec"]["template"]["metadata"]) for name, each in of_kind(objects, "Deployment")
    ]
    for name, metadata in labelled:
        labels = metadata.get("labels", {})
        if not common.items() <= labels.items():
            yield f"{name} has labels {labels}"
        if labels.get("app.kubernetes.io/component") not in components and not name.startswith("Namespace/"):
            yield f"{name} is of no component"


@rule
def replaces_a_kube_scheduler_with_its_configuration(objects: Objects) -> Iterator[str]:
    config_maps = dict(of_kind(objects, "ConfigMap"))
    for name, deployment in of_kind(objects, "Deployment"):
        own = config_maps.get(f"ConfigMap/{name.removeprefix('Deployment/')}-config", {})
        metadata = deployment["spec"]["template"]["metadata"]
        if not own or DIGEST_ANNOTATION not in metadata.get("annotations", {}):
            continue  # the extender follows its own, and config/deploy has none: its texts are changed by hand
        if metadata["annotations"][DIGEST_ANNOTATION] != digest(own["data"]["config.yaml"]):
            yield f"{name} does not notice a change of its configuration"
        if own["metadata"]["labels"].get(VC_LABEL) != deployment["metadata"]["labels"].get(VC_LABEL):
            yield f"{name} and its configuration are not of one virtual cluster"
