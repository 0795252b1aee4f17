"""A user's values -> the objects to apply.

The values become a kustomization above one of the overlays of config/deploy, which `kubectl kustomize` would build to
the same objects. A kube-scheduler for each virtual cluster is beyond kustomize: each is a copy of the one there is.
"""

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import msgspec
import yaml

from hived.values.errors import UserError
from hived_config.access import DEFAULT_VIRTUAL_CLUSTER
from hived_config.rules import SCHEDULER_NAMES, names_for
from hived_config.skus import GPU_RESOURCE
from hived_deploy.kustomize import Document, build

OVERLAYS = ("single", "ha", "tls")
NAMESPACE = "hived-system"

SCHEDULER = "hived-kube-scheduler"
"""Name of the kube-scheduler's Deployment, budget and Lease; its ConfigMap is called SCHEDULER_CONFIG."""

SCHEDULER_CONFIG = f"{SCHEDULER}-config"
CONFIG = "hived-config"
"""Name of the ConfigMap with the configuration."""

SCHEDULER_IMAGE = "registry.k8s.io/kube-scheduler"

DIGEST_ANNOTATION = "hived/configuration"
"""Of kube-scheduler's pods: they are replaced when their configuration has changed. hived's own follow theirs."""

COMPONENT_LABEL = "app.kubernetes.io/component"
INSTANCE_LABEL = "app.kubernetes.io/instance"
"""Of every object: the namespace that hived is installed in."""

VC_LABEL = "hived/virtual-cluster"
"""Of a kube-scheduler's objects: its virtual cluster, spelt as in their names."""

WEBHOOK = "devices.hivedscheduler.microsoft.com"
REFUSING_WEBHOOK = "foreign-devices.hivedscheduler.microsoft.com"
QUOTAS_WEBHOOK = "quotas.hivedscheduler.microsoft.com"
JOBS_WEBHOOK = "jobs.hivedscheduler.microsoft.com"
FAILURE_POLICIES = ("Fail", "Ignore")

TENANTS = "hived-tenants"
"""Name of the role for changes of tenants' pods; names of roles for jobs begin with it."""

CONFIG_LIMIT = 1_000_000
"""Bytes of the configuration; Kubernetes allows 1 MiB for all of a ConfigMap."""

_NAME_LIMIT = 40
_DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_IMAGE = re.compile(r"(?P<name>[^@\s]+?)(?::(?P<tag>[\w][\w.-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?")


class Installation(msgspec.Struct, frozen=True, kw_only=True):
    """The choices of a user.

    Attributes
    ----------
    configuration : text of the scheduler's configuration file, known to be sound
    virtual_clusters : the names of its virtual clusters
    overlay : one of OVERLAYS
    image, scheduler_image : with a tag or a digest; "" for those of config/deploy
    replicas : of the extender; None for what the overlay has
    scheduler_names : schedulerNames to serve, {vc} stands for each virtual cluster
    webhook_ca : PEM text, who has signed the admission webhook's certificate; "" for no webhook
    webhook_failure_policy : what becomes of a pod while no webhook answers, one of FAILURE_POLICIES
    refused_resources : device resources that pods of other schedulers are refused, by the webhook
    holds_jobs : whether the webhook holds job objects when they are created and checks quota trees, for queues
    has_queues, has_kueue : whether hived gets the rights for queues, and the rights beside Kueue
    has_configuration : whether the ConfigMap with the configuration is among the objects, or is left as it is
    tenant_namespaces : where hived may change pods and jobs of tenants; none for everywhere
    is_scheduler_per_vc : whether each virtual cluster gets a kube-scheduler, with a queue of its own, or one serves all
    """

    configuration: str
    virtual_clusters: Sequence[str]
    overlay: str = "ha"
    namespace: str = NAMESPACE
    image: str = ""
    scheduler_image: str = ""
    replicas: int | None = None
    scheduler_names: Sequence[str] = SCHEDULER_NAMES
    has_service_monitor: bool = False
    webhook_ca: str = ""
    webhook_failure_policy: str = "Fail"
    refused_resources: Sequence[str] = (GPU_RESOURCE,)
    holds_jobs: bool = False
    has_queues: bool = False
    has_kueue: bool = False
    has_configuration: bool = True
    tenant_namespaces: Sequence[str] = ()
    is_scheduler_per_vc: bool = True

    def objects(self) -> list[Document]:
        """The objects to apply, in this order. Raises UserError for values that cannot be used."""
        kustomization, files = self.kustomization()
        documents = build(Path("/"), kustomization, files)
        if not self.has_configuration:
            documents = [
                each for each in documents if each["metadata"]["name"] != CONFIG or each["kind"] != "ConfigMap"
            ]
        if self.tenant_namespaces:
            documents = self._within_tenants(documents)
        return self._with_scheduler_per_vc(documents) if self.is_scheduler_per_vc else documents

    def left_over(self) -> str:
        """A label selector: Deployments, budgets and ConfigMaps of kube-schedulers that are not among `objects`."""
        ours = f"notin ({','.join(_suffixes(self.virtual_clusters).values())})" if self.is_scheduler_per_vc else ""
        return f"{COMPONENT_LABEL}=kube-scheduler,{VC_LABEL} {ours}".rstrip()

    def kustomization(self) -> tuple[Document, dict[str, str]]:
        """(kustomization, files that it names) for these values, with one kube-scheduler; paths are absolute."""
        self._check()
        root = deploy_folder()
        scheduler_config = self._scheduler_config(self.virtual_clusters)
        files = {
            "hivedscheduler.yaml": self.configuration,
            "config.yaml": scheduler_config,
            "digest.yaml": yaml.safe_dump(_digest_patch(SCHEDULER, scheduler_config)),
        }
        kustomization: Document = {
            "resources": [str(root / "overlays" / self.overlay)],
            "components": [],
            "namespace": self.namespace,
            "labels": [{"pairs": {INSTANCE_LABEL: self.namespace}, "includeTemplates": True}],
            "generatorOptions": {"disableNameSuffixHash": True},
            "configMapGenerator": [
                {"name": CONFIG, "behavior": "replace", "files": ["hivedscheduler.yaml"]},
                {"name": SCHEDULER_CONFIG, "behavior": "replace", "files": ["config.yaml"]},
            ],
            "patches": [{"path": "digest.yaml"}],
            "images": [
                _image_change(name, image)
                for name, image in (("hived", self.image), (SCHEDULER_IMAGE, self.scheduler_image))
                if image
            ],
            "replicas": [] if self.replicas is None else [{"name": "hived", "count": self.replicas}],
        }
        if self.has_service_monitor:
            component = "service-monitor-tls" if self.overlay == "tls" else "service-monitor"
            kustomization["components"].append(str(root / "components" / component))
        for is_there, component in ((self.has_queues, "queues-rbac"), (self.has_kueue, "kueue-rbac")):
            if is_there:
                kustomization["components"].append(str(root / "components" / component))
        if self.webhook_ca:
            kustomization["components"].append(str(root / "components" / "webhook"))
            if self.refused_resources:
                kustomization["components"].append(str(root / "components" / "foreign-devices-webhook"))
            if self.holds_jobs:
                kustomization["components"].append(str(root / "components" / "queue-webhook"))
            kustomization["patches"].append({"path": "webhook.yaml"})
            files["webhook.yaml"] = yaml.safe_dump(self._webhook_patch())
            if self.holds_jobs:
                kustomization["patches"].append({"path": "quotas.yaml"})
                files["quotas.yaml"] = yaml.safe_dump(self._quotas_patch())
        return kustomization, files

    def _webhook_patch(self) -> Document:
        """The part of the webhook's configuration that config/deploy cannot know."""
        names = json.dumps(self._expand(self.virtual_clusters))  # a list in CEL as well
        authority = self._authority
        webhooks: list[Document] = [
            {
                "name": WEBHOOK,
                "clientConfig": authority,
                "failurePolicy": self.webhook_failure_policy,
                "matchConditions": [{"name": "for-hived", "expression": f"object.spec.schedulerName in {names}"}],
            }
        ]
        if self.refused_resources:
            webhooks.insert(0, self._refusing_webhook(authority, names))
        if self.holds_jobs:
            webhooks.insert(0, {"name": JOBS_WEBHOOK, "clientConfig": authority})
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "hived"},
            "webhooks": webhooks,
        }

    @property
    def _authority(self) -> Document:
        return {"caBundle": base64.b64encode(self.webhook_ca.encode()).decode()}

    def _quotas_patch(self) -> Document:
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "hived"},
            "webhooks": [{"name": QUOTAS_WEBHOOK, "clientConfig": self._authority}],
        }

    def _refusing_webhook(self, authority: Document, names: str) -> Document:
        """The part of the webhook for pods of other schedulers that config/deploy cannot know."""
        resources = json.dumps(list(self.refused_resources))
        asks = " || ".join(
            f"(has(c.resources.{part}) && c.resources.{part}.exists(r, r in {resources}))"
            for part in ("limits", "requests")
        )
        containers = "object.spec.containers + (has(object.spec.initContainers) ? object.spec.initContainers : [])"
        return {
            "name": REFUSING_WEBHOOK,
            "clientConfig": authority,
            "matchConditions": [
                {"name": "of-others", "expression": f"!(object.spec.schedulerName in {names})"},
                {"name": "with-devices", "expression": f"({containers}).exists(c, has(c.resources) && ({asks}))"},
            ],
        }

    def _check(self) -> None:
        if not _DNS_LABEL.fullmatch(self.namespace):
            raise UserError(f"namespace {self.namespace!r}: expected at most 63 of a-z, 0-9 and '-'")
        if self.namespace == "default" or self.namespace.startswith("kube-"):
            raise UserError(
                f"namespace {self.namespace!r}: expected one of hived's own, because it is restricted to pods without "
                "rights; leave the option out or give another name"
            )
        if len(self.configuration.encode()) > CONFIG_LIMIT:
            raise UserError(
                f"the configuration has {len(self.configuration.encode()):,} bytes, and a ConfigMap holds "
                f"{CONFIG_LIMIT:,}; leave out children of cells whose addresses can be generated"
            )

    def _scheduler_config(self, virtual_clusters: Sequence[str]) -> str:
        """The KubeSchedulerConfiguration of the overlay with a profile for every schedulerName."""
        config = _scheduler_config_in(build(deploy_folder() / "overlays" / self.overlay))
        (profile,) = config["profiles"]
        config["profiles"] = [deepcopy(profile) | {"schedulerName": name} for name in self._expand(virtual_clusters)]
        return yaml.safe_dump(config, sort_keys=False)

    def _expand(self, virtual_clusters: Sequence[str]) -> list[str]:
        """The schedulerNames for these virtual clusters. One without {vc} is for all of them, but must be served once:
        by the kube-scheduler of the virtual cluster `default`, else of the first one.
        """
        names = self.scheduler_names
        if not all(names):
            raise UserError("scheduler name '': expected what pods have as schedulerName, such as 'gpus-{vc}'")
        if self.is_scheduler_per_vc and not any("{vc}" in name for name in names):
            raise UserError(
                f"scheduler name {names[0]!r}: one kube-scheduler per virtual cluster needs a name for each; add one "
                f"with '{{vc}}' in it, such as '{names[0]}-{{vc}}', or give --one-scheduler"
            )
        host = next(iter(self.virtual_clusters), "")
        host = DEFAULT_VIRTUAL_CLUSTER if DEFAULT_VIRTUAL_CLUSTER in self.virtual_clusters else host
        if self.is_scheduler_per_vc and host not in virtual_clusters:
            names = [name for name in names if "{vc}" in name]
        names = names_for(names, virtual_clusters)
        if not names:
            raise UserError("there is no virtual cluster to name a scheduler after; give --scheduler-name without {vc}")
        return names

    def _with_scheduler_per_vc(self, documents: list[Document]) -> list[Document]:
        """The objects with a copy of each of kube-scheduler's for every virtual cluster instead."""
        suffixes = _suffixes(self.virtual_clusters)
        result = []
        for document in documents:
            name = document["metadata"]["name"]
            if (document["kind"], name) in _PER_VC:
                result += [self._copy_for(vc, suffix, document) for vc, suffix in suffixes.items()]
                continue
            for rule in document.get("rules", ()) if name == f"{SCHEDULER}-election" else ():
                rule["resourceNames"] = [f"{SCHEDULER}-{suffix}" for suffix in suffixes.values()]
            result.append(document)
        return result

    def _within_tenants(self, documents: list[Document]) -> list[Document]:
        """The objects, with bindings in the namespaces of tenants instead of the whole cluster."""
        result = []
        for document in documents:
            if document["kind"] == "ClusterRoleBinding" and is_of_tenants(document["metadata"]["name"]):
                result += [binding_in(document, namespace) for namespace in self.tenant_namespaces]
            else:
                result.append(document)
        return result

    def _copy_for(self, vc: str, suffix: str, document: Document) -> Document:
        config = self._scheduler_config([vc])
        name = f"{SCHEDULER}-{suffix}"
        copy: Document = _renamed(document, {SCHEDULER: name, SCHEDULER_CONFIG: f"{name}-config"})
        copy["metadata"]["labels"][VC_LABEL] = suffix
        if copy["kind"] == "ConfigMap":
            copy["data"] = {"config.yaml": config}
        if copy["kind"] == "Deployment":
            template = copy["spec"]["template"]["metadata"]
            template["labels"][VC_LABEL] = suffix
            template["annotations"][DIGEST_ANNOTATION] = digest(config)
        return copy


def is_of_tenants(role: str) -> bool:
    """Is this a role, or its binding, of what hived may change of tenants' objects?"""
    return role == TENANTS or role.startswith(f"{TENANTS}-")


def binding_in(document: Document, namespace: Any) -> Document:
    """The rights of a ClusterRoleBinding in one namespace: its name, or what stands for it in a template."""
    return document | {"kind": "RoleBinding", "metadata": document["metadata"] | {"namespace": namespace}}


_PER_VC = {("Deployment", SCHEDULER), ("PodDisruptionBudget", SCHEDULER), ("ConfigMap", SCHEDULER_CONFIG)}


def kinds_of_queues() -> list[Document]:
    """The kinds of objects that queues are written as, and their namespace, for a cluster without Kube Queue's."""
    folder = deploy_folder() / "queues"
    names = yaml.safe_load((folder / "kustomization.yaml").read_text(encoding="utf-8"))["resources"]
    return [yaml.safe_load((folder / name).read_text(encoding="utf-8")) for name in names]


def deploy_folder() -> Path:
    """The folder of the manifests: beside this module in an installed package, else in the checkout's config."""
    installed = Path(__file__).parent / "manifests"
    return installed if installed.is_dir() else Path(__file__).parents[2] / "config" / "deploy"


def _scheduler_config_in(documents: Iterable[Document]) -> Document:
    config_map = next(each for each in documents if each["metadata"]["name"] == SCHEDULER_CONFIG)
    config: Document = yaml.safe_load(config_map["data"]["config.yaml"])
    return config


def _suffixes(virtual_clusters: Sequence[str]) -> dict[str, str]:
    """A part of an object's name for every virtual cluster. Raises UserError where names collide or are empty."""
    suffixes: dict[str, str] = {}
    if not virtual_clusters:
        raise UserError("there is no virtual cluster to run a kube-scheduler for; give --one-scheduler")
    for vc in virtual_clusters:
        suffix = re.sub(r"[^a-z0-9]+", "-", vc.lower())[:_NAME_LIMIT].strip("-")
        other = next((name for name, taken in suffixes.items() if taken == suffix), None)
        if not suffix:
            raise UserError(
                f"virtual cluster {vc!r} has no letter or digit that an object's name may have; rename it, or give "
                "--one-scheduler"
            )
        if other is not None:
            raise UserError(
                f"the kube-schedulers of virtual clusters {other!r} and {vc!r} would both be called "
                f"{SCHEDULER}-{suffix}; rename one of them, or give --one-scheduler"
            )
        suffixes[vc] = suffix
    return suffixes


def _renamed(value: Any, names: Mapping[str, str], key: str = "") -> Any:
    """A copy in which names and labels that are keys of `names`, also after the "=" of an argument, are replaced."""
    if isinstance(value, dict):
        return {name: _renamed(each, names, name) for name, each in value.items()}
    if isinstance(value, list):
        return [_renamed(each, names) for each in value]
    if key in {"name", "app.kubernetes.io/name"}:
        return names.get(value, value)
    flag, equals, text = value.partition("=") if isinstance(value, str) and not key else ("", "", "")
    return flag + equals + names.get(text, text) if equals else value


def _image_change(name: str, image: str) -> Document:
    """An entry of a kustomization's images. Raises UserError for an image that may be another one tomorrow."""
    match = _IMAGE.fullmatch(image)
    if match is None or (match["tag"] in (None, "latest") and not match["digest"]):
        raise UserError(f"image {image!r}: expected NAME:TAG with a tag other than latest, or NAME@sha256:DIGEST")
    version = {"digest": match["digest"]} if match["digest"] else {"newTag": match["tag"]}
    return {"name": name, "newName": match["name"], **version}


def _digest_patch(deployment: str, configuration: str) -> Document:
    annotations = {DIGEST_ANNOTATION: digest(configuration)}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": deployment},
        "spec": {"template": {"metadata": {"annotations": annotations}}},
    }


def digest(text: str) -> str:
    """The value of DIGEST_ANNOTATION for a configuration."""
    return "sha256-" + hashlib.sha256(text.encode()).hexdigest()[:16]
