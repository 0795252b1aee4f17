"""The Helm chart of charts/hived, made from the objects of config/deploy as `hived manifests` gives them.

Templates, values.yaml, its schema and the table of the README are made; the helpers and NOTES.txt are written by hand.
Each template is all variants of an installation at once: with and without TLS, webhook and service monitor. An object
cannot change in config/deploy alone, as a test compares the files with what is made.
"""

import base64
import json
from hashlib import sha256
from itertools import chain, combinations
from typing import Any

import yaml

from delivery.chart_values import FROM_OBJECTS, VALUES, Value
from delivery.project import ROOT, read_version
from delivery.templates import (
    ABSENT,
    Block,
    Each,
    Flags,
    More,
    Scalar,
    Template,
    Text,
    When,
    render,
    replaced,
    superpose,
)
from hived_extender.deploy.installation import (
    CONFIG,
    DIGEST_ANNOTATION,
    NAMESPACE,
    SCHEDULER,
    SCHEDULER_CONFIG,
    VC_LABEL,
    Installation,
    binding_in,
    is_of_tenants,
)

CHART = ROOT / "charts" / "hived"
QUEUES = ROOT / "config" / "deploy" / "queues"
HEADER = "Made by `make chart` from config/deploy, which has the reasons as comments. Do not edit."

BY_HAND = {"_helpers.tpl", "NOTES.txt"}

CONDITIONS = {
    "tls": "$.Values.tls.enabled",
    "monitor": "$.Values.serviceMonitor.enabled",
    "webhook": "$.Values.webhook.enabled",
    "refused": "$.Values.webhook.refusedResources",
    "jobs": "$.Values.webhook.holdsJobs",
    "queues": "$.Values.queues.enabled",
    "kueue": "$.Values.kueue.enabled",
}
"""The choices that add or change objects."""

MARK = "vnd.example/mark"
"""Stands for a user's value where `hived manifests` builds a longer text of it."""

_CA = 'required "the webhook needs webhook.caBundle" $.Values.webhook.caBundle | b64enc | quote'

NAMES = ("hived",)
"""The schedulerNames of config/deploy."""

Objects = dict[tuple[str, str], Any]


def make_chart() -> dict[str, str]:
    """The files that are made: text by path below charts/hived."""
    variants = {flags: _objects(flags) for flags in _all_flags()}
    defaults = _defaults(variants)
    files = {
        "Chart.yaml": _chart_file(),
        "values.yaml": _values_file(defaults),
        "values.schema.json": json.dumps(_schema(defaults), indent=1) + "\n",
        "README.md": _readme(defaults),
    }
    templates: dict[str, list[str]] = {}
    for key in dict.fromkeys(chain.from_iterable(variants.values())):
        placed = {flags: _placed(*key, each[key]) if key in each else ABSENT for flags, each in variants.items()}
        templates.setdefault(key[0].lower(), []).append(_document(key, superpose(placed, CONDITIONS)))
    for kind, documents in templates.items():
        files[f"templates/{kind}.yaml"] = f"{{{{- /* {HEADER} */}}}}\n" + "\n".join(documents) + "\n"
    files["templates/_made.tpl"] = _definitions(variants)
    return files | _queue_kinds()


def _queue_kinds() -> dict[str, str]:
    """The kinds of objects of queues, which Helm installs where they are missing, and their namespace."""
    namespace = render(yaml.safe_load((QUEUES / "namespace.yaml").read_text(encoding="utf-8")))
    text = f"{{{{- if $.Values.queues.createNamespace }}}}\n---\n{namespace}\n{{{{- end }}}}\n"
    kinds = sorted(path for path in QUEUES.glob("*.yaml") if path.stem not in {"namespace", "kustomization"})
    files = {f"crds/{path.name}": path.read_text(encoding="utf-8") for path in kinds}
    return {"templates/kube-queue.yaml": f"{{{{- /* {HEADER} */}}}}\n{text}"} | files


def write_chart() -> None:
    """Write what is made below charts/hived, and remove templates that are made no more."""
    files = make_chart()
    for path in chain(CHART.glob("templates/*"), CHART.glob("crds/*")):
        if path.relative_to(CHART).as_posix() not in files and path.name not in BY_HAND:
            path.unlink()
    for name, text in files.items():
        (CHART / name).parent.mkdir(parents=True, exist_ok=True)
        (CHART / name).write_text(text)
    print(f"charts/hived: {len(files)} files, {len(VALUES)} values")


def _all_flags() -> list[Flags]:
    every = [frozenset(each) for count in range(len(CONDITIONS) + 1) for each in combinations(CONDITIONS, count)]
    return [flags for flags in every if "webhook" in flags or "refused" not in flags]


def _objects(flags: Flags) -> Objects:
    """The objects of an installation by kind and name."""
    installation = Installation(
        configuration=_configuration(),
        virtual_clusters=(),
        overlay="tls" if "tls" in flags else "ha",
        scheduler_names=NAMES,
        is_scheduler_per_vc=False,
        has_service_monitor="monitor" in flags,
        webhook_ca=MARK if "webhook" in flags else "",
        refused_resources=(MARK,) if "refused" in flags else (),
        holds_jobs="jobs" in flags,
        has_queues="queues" in flags,
        has_kueue="kueue" in flags,
    )
    return {(each["kind"], each["metadata"]["name"]): each for each in installation.objects()}


def _configuration() -> str:
    return (ROOT / "config" / "deploy" / "base" / "hivedscheduler.yaml").read_text(encoding="utf-8")


# -- values ----------------------------------------------------------------------------------------------------------


def _defaults(variants: dict[Flags, Objects]) -> dict[str, Any]:
    """The default of each value by its name."""
    objects: Objects = {}
    for each in variants.values():
        objects = each | objects
    image, scheduler_image = (
        objects["Deployment", name]["spec"]["template"]["spec"]["containers"][0]["image"].rpartition(":")[0]
        for name in ("hived", SCHEDULER)
    )
    known = {
        "configuration": _configuration(),
        "image.repository": image,
        "kubeScheduler.image.repository": scheduler_image,
        "kubeScheduler.names": list(NAMES),
        "tls.secretName": "hived-extender-tls",
        "tls.clientSecretName": "hived-scheduler-client-tls",
        "serviceMonitor.namespace": "monitoring",
    }
    return {each.name: _default(each, objects, known) for each in VALUES}


def _default(value: Value, objects: Objects, known: dict[str, Any]) -> Any:
    if value.default is not FROM_OBJECTS:
        return value.default
    if value.name in known:
        return known[value.name]
    kind, name, path = value.places[0]
    node = objects[kind, name]
    for part in path.split("."):
        node = node[-1] if part == "*" else node[part]
    return node


def _nested(flat: dict[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for name, value in flat.items():
        *parents, last = name.split(".")
        node = nested
        for parent in parents:
            node = node.setdefault(parent, {})
        node[last] = value
    return nested


def _values_file(defaults: dict[str, Any]) -> str:
    """values.yaml, with each value's description above it."""
    lines = [f"# {HEADER}"]
    above: list[str] = []
    for value in VALUES:
        *parents, last = value.name.split(".")
        for depth, parent in enumerate(parents):
            if above[: depth + 1] != parents[: depth + 1]:
                lines.append("  " * depth + f"{parent}:")
        above = parents
        space = "  " * len(parents)
        lines.append(f"{space}# {value.description}")
        lines += [space + line for line in render({last: defaults[value.name]}).splitlines()]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _schema(defaults: dict[str, Any]) -> dict[str, Any]:
    """JSON schema of the values; it knows no other ones, so that a misspelt one is refused."""
    leaves = _nested({each.name: each for each in VALUES})

    def of(node: Any) -> dict[str, Any]:
        if isinstance(node, Value):
            schema: dict[str, Any] = {"type": node.type, "description": node.description}
            schema |= {"default": defaults[node.name]}
            schema |= {"items": {"type": node.items}} if node.items else {}
            schema |= {"enum": list(node.choices)} if node.choices else {}
            return schema | ({"minimum": node.minimum} if node.minimum is not None else {})
        properties = {name: of(child) for name, child in node.items()}
        return {"type": "object", "additionalProperties": False, "properties": properties}

    whole = of(leaves)
    whole["properties"]["global"] = {"type": "object", "description": "values that Helm hands to every chart; not used"}
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Values of hived's chart"} | whole


def _chart_file() -> str:
    version = read_version()
    return yaml.safe_dump(
        {
            "apiVersion": "v2",
            "name": "hived",
            "description": "Guaranteed GPU cells for every team that shares a Kubernetes cluster",
            "type": "application",
            "version": version,
            "appVersion": version,
            "kubeVersion": ">=1.30.0-0",
            "keywords": ["scheduler", "gpu", "gang scheduling", "quota"],
        },
        sort_keys=False,
    )


def _readme(defaults: dict[str, Any]) -> str:
    rows = [f"| `{each.name}` | {each.type} | {_shown(defaults[each.name])} | {each.description} |" for each in VALUES]
    return (
        "# The Helm chart of hived\n\n"
        f"{HEADER}\n\n"
        "The objects are those of `config/deploy`; `docs/install.md` says how the chart is installed.\n\n"
        "| value | type | default | meaning |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"
    )


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return f"`{text}`" if len(text) <= 40 else "see `values.yaml`"


# -- objects ---------------------------------------------------------------------------------------------------------


def _placed(kind: str, name: str, source: Any) -> Any:
    """An object with nodes in the places of values."""
    document = replaced(source, _text)
    for value in VALUES:
        node = (
            Scalar(value.expression + (" | quote" if value.type == "string" else ""))
            if value.type in {"string", "integer", "boolean"}
            else Block(value.expression)
        )
        for place in value.places:
            if place[:2] == (kind, name):
                _put(document, place[2].split("."), node, is_new=value.default is not FROM_OBJECTS)
    labels = More("$.Values.commonLabels")
    document["metadata"]["labels"][labels] = labels
    if kind == "Deployment":
        template = document["spec"]["template"]
        template["metadata"]["labels"][labels] = labels
        template["spec"]["imagePullSecrets"] = Block("$.Values.imagePullSecrets")
        (container,) = template["spec"]["containers"]
        container["image"] = Scalar(f'include "{name}.image" $ | quote')
        if name == "hived":
            container["args"].append(More("$.Values.extraArgs"))
            container["env"].append(More("$.Values.extraEnv"))
    if kind == "Role":
        config_map = Scalar('include "hived.configMap" $')
        for rule in document["rules"]:
            rule.update(replaced({key: each for key, each in rule.items() if key == "resourceNames"},
                                 lambda text: config_map if text == CONFIG else text))  # fmt: skip
    if kind == "ServiceMonitor":
        more = More("$.Values.serviceMonitor.labels")
        document["metadata"]["labels"][more] = more
    if kind == "Secret":
        # Bindings of running pods are proved with it: it outlives the release.
        document["metadata"]["annotations"] = {"helm.sh/resource-policy": "keep"}
    if (kind, name) == ("ConfigMap", CONFIG):
        document["metadata"]["annotations"] = {"hived/chart-configuration": Scalar('include "hived.digest" $ | quote')}
        document["data"] = {"hivedscheduler.yaml": Text('include "hived.configuration" $')}
    return _per_scheduler(kind, name, document)


def _text(text: str) -> Any:
    """A text, or the node that stands for it in every object."""
    lists = {json.dumps(list(NAMES)): "hived.schedulerNames", json.dumps([MARK]): "hived.refusedResources"}
    if any(each in text for each in lists):
        for each, helper in lists.items():
            text = text.replace(each, f'{{{{ include "{helper}" $ }}}}')
        return Template(text)
    nodes: dict[str, Any] = {
        base64.b64encode(MARK.encode()).decode(): Scalar(_CA),
        NAMESPACE: Scalar("$.Release.Namespace"),
        "hived-extender-tls": Scalar("$.Values.tls.secretName | quote"),
        "hived-scheduler-client-tls": Scalar("$.Values.tls.clientSecretName | quote"),
        "monitoring": Scalar("$.Values.serviceMonitor.namespace | quote"),
        f"--config-map=$(POD_NAMESPACE)/{CONFIG}": Scalar(
            'include "hived.configMap" $', "--config-map=$(POD_NAMESPACE)/"
        ),
    }
    return nodes.get(text, text)


def _put(document: Any, path: list[str], node: Any, *, is_new: bool) -> None:
    """Put a node into its place, which there has to be already unless it is new; if empty, what is there stays."""
    *parents, last = path
    for part in parents:
        document = document[-1] if part == "*" else document[part]
    if last not in document and not is_new:
        raise ValueError(f"there is no {'.'.join(path)} in config/deploy any more")
    document[last] = When(node.expression, node, document[last]) if is_new and last in document else node


_CONTEXT = '(dict "Values" $.Values "names" $scheduler.names)'
_PER_SCHEDULER = {("Deployment", SCHEDULER), ("PodDisruptionBudget", SCHEDULER), ("ConfigMap", SCHEDULER_CONFIG)}


def _per_scheduler(kind: str, name: str, document: Any) -> Any:
    """An object that there is for each kube-scheduler, or that names them; `$scheduler` is the one at hand."""
    names = {SCHEDULER: Scalar("$scheduler.name"), SCHEDULER_CONFIG: Scalar("$scheduler.name", "", "-config")}
    flag = "--leader-elect-resource-name="
    if (kind, name) in _PER_SCHEDULER:
        service_account = document.get("spec", {}).get("template", {}).get("spec", {}).get("serviceAccountName")
        document = replaced(
            document,
            lambda text: Scalar("$scheduler.name", flag) if text == flag + SCHEDULER else names.get(text, text),
        )
        suffix = When("$scheduler.suffix", Scalar("$scheduler.suffix | quote"))
        document["metadata"]["labels"][VC_LABEL] = suffix
        if kind == "ConfigMap":
            document["data"] = {"config.yaml": Text(f'include "hived.schedulerConfig" {_CONTEXT}')}
        if kind == "Deployment":
            template = document["spec"]["template"]
            template["spec"]["serviceAccountName"] = service_account
            template["metadata"]["labels"][VC_LABEL] = suffix
            annotation = Scalar(f'include "hived.schedulerDigest" {_CONTEXT} | quote')
            template["metadata"]["annotations"][DIGEST_ANNOTATION] = annotation
    if (kind, name) == ("Role", f"{SCHEDULER}-election"):
        for rule in document["rules"]:
            rule["resourceNames"] = Block('include "hived.schedulerLeases" $ | fromJsonArray')
    return document


def _document(key: tuple[str, str], node: Any) -> str:
    """The text of an object, under the conditions that it is there."""
    if isinstance(node, When):
        if node.otherwise is not ABSENT or node.then is ABSENT:
            raise ValueError(f"{key} is there without {node.condition} only")
        return f"{{{{- if {node.condition} }}}}\n{_document(key, node.then)}\n{{{{- end }}}}"
    text = f"---\n{render(node)}"
    if key in _PER_SCHEDULER:
        text = (
            f'{{{{- range $scheduler := include "hived.kubeSchedulers" $ | fromJsonArray }}}}\n{text}\n{{{{- end }}}}'
        )
    if key[0] == "ClusterRoleBinding" and is_of_tenants(key[1]):
        within = render(binding_in(node, Scalar("$namespace | quote")))
        each = f"{{{{- range $namespace := $.Values.rbac.namespaces }}}}\n---\n{within}"
        text = f"{each}\n{{{{- else }}}}\n{text}\n{{{{- end }}}}"
    condition = _THERE.get(key)
    return f"{{{{- if {condition} }}}}\n{text}\n{{{{- end }}}}" if condition else text


_THERE = {("Namespace", NAMESPACE): "$.Values.createNamespace", ("ConfigMap", CONFIG): "not $.Values.existingConfigMap"}


def _definitions(variants: dict[Flags, Objects]) -> str:
    """The templates that helpers and NOTES.txt include: the KubeSchedulerConfiguration for its names, and a digest."""
    configs = {}
    for flags, objects in variants.items():
        config = yaml.safe_load(objects["ConfigMap", SCHEDULER_CONFIG]["data"]["config.yaml"])
        (profile,) = config["profiles"]
        config["profiles"] = [Each("$name", "$.names", profile | {"schedulerName": Scalar("$name | quote")})]
        configs[flags] = config
    defined = {
        "hived.schedulerConfig": render(superpose(configs, CONDITIONS)),
        "hived.sampleDigest": sha256(_configuration().encode()).hexdigest()[:16],
    }
    texts = [f'{{{{- define "{name}" -}}}}\n{text}\n{{{{- end }}}}\n' for name, text in defined.items()]
    return f"{{{{- /* {HEADER} */}}}}\n" + "\n".join(texts)
