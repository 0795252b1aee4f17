"""What a piece of YAML on a page is, and whether it would be accepted where it belongs.

Each kind is read by the product's own reader, or by Kubernetes' own models. Objects of other schedulers, which nothing
here reads, are compared with the fields of their API types (`others.py`).
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

import kubernetes.client
import msgspec
import yaml
from click.testing import CliRunner

from hived_cli import main
from hived_config.generating.layout import read_layout
from hived_config.loader import DOCUMENT, Configuration, load_text
from hived_extender.jobs.annotations import SCHEDULING_SPEC, read_spec
from hived_extender.jobs.interpreter import Interpreter
from hived_extender.jobs.kinds import table
from hived_extender.jobs.quotas.tree import read_tree
from hived_extender.jobs.wire import Pod
from hived_lab.demo.experiment import Experiment
from tests.docs.others import FIELDS
from tests.places import ROOT

Object = dict[str, Any]

NODE_TYPE, LEAF_TYPE = "NODE", "V100"
BASE: Object = {
    "physicalCluster": {
        "cellTypes": {
            NODE_TYPE: {"childCellType": LEAF_TYPE, "childCellNumber": 8, "isNodeLevel": True},
            "RACK": {"childCellType": NODE_TYPE, "childCellNumber": 4},
        },
        "physicalCells": [{"cellType": "RACK"}, {"cellType": "RACK"}],
    },
    "virtualClusters": {},
}
"""The cluster that parts of a configuration are put into."""

JOBS = {"PyTorchJob", "TFJob", "MPIJob", "Job", "JobSet", "Deployment", "ElasticJob", "Pod"}
GANGS = {f"{kind.group}/{version}" for kind in table.OBJECTS for version in kind.versions}
KUBE_SCHEDULER = (ROOT / "config" / "deploy" / "components" / "tls" / "kube-scheduler-config.yaml").read_text()
KUSTOMIZATION = {
    "apiVersion", "kind", "resources", "components", "namespace", "generatorOptions", "configMapGenerator", "images",
    "patches",
}  # fmt: skip


class WrongExampleError(Exception):
    """An example that would not be accepted, and why."""


def check(text: str, configuration: Configuration | None = None) -> list[str]:
    """Check the documents of a piece of YAML; returns what each was taken for.

    Pods are read by `configuration`, by default a small cluster of the virtual cluster `research`. Raises whatever the
    reader raises, and WrongExampleError for a piece of no known kind.
    """
    documents = [each for each in yaml.safe_load_all(_without_gaps(text)) if each is not None]
    return [_check(each, text, configuration or _small()) for each in documents]


def _without_gaps(text: str) -> str:
    """The text without lines that stand for something left out."""
    return re.sub(r"^ *\.\.\.$\n?", "", text, flags=re.MULTILINE)


def _small() -> Configuration:
    vc = {"virtualCells": [{"cellType": f"RACK.{NODE_TYPE}", "cellNumber": 4}]}
    return _loaded({**BASE, "virtualClusters": {"research": vc}})


def _loaded(document: Object) -> Configuration:
    return load_text(yaml.safe_dump(document, sort_keys=False), "page.yaml", environ={})


def _check(document: Object, text: str, configuration: Configuration) -> str:
    if "kind" in document and "apiVersion" in document:
        return _check_object(document, configuration)
    for keys, name, reader in _PARTS:
        if document.keys() <= keys:
            reader(document, text)
            return name
    if document.keys() <= {"metadata", "spec"}:
        _check_object({"apiVersion": "v1", "kind": "Pod", **document}, configuration)
        return "part of a pod"
    raise WrongExampleError(f"nothing here reads {sorted(document)}")


def _check_object(manifest: Object, configuration: Configuration) -> str:
    group, kind = manifest["apiVersion"], manifest["kind"]
    if kind == "KubeSchedulerConfiguration":
        _has_only(manifest, yaml.safe_load(KUBE_SCHEDULER), kind)
    elif kind == "ElasticQuotaTree":
        read_tree(manifest)
    elif kind == "Kustomization":
        _check_kustomization(manifest, "")
    elif (group, kind) in FIELDS:
        _check_other(manifest.get("spec", {}), FIELDS[group, kind], f"{kind}.spec")
    elif group in GANGS:
        _check_gang(manifest, configuration)
    elif kind in JOBS:
        _check_job(manifest, configuration)
    else:
        check_model(manifest)
    return f"{kind} of {group}"


def check_model(manifest: Object) -> None:
    """Compare an object with Kubernetes' own model. WrongExampleError if there is none, or a field is not its own."""
    group, _, version = manifest["apiVersion"].rpartition("/")
    name = version.capitalize() + manifest["kind"]
    models = kubernetes.client
    if not hasattr(models, name) or group.partition(".")[0] not in {"", "apps", "batch", "policy", *_K8S_GROUPS}:
        raise WrongExampleError(f"no known kind: {manifest['apiVersion']} {manifest['kind']}")
    _fits(manifest, name, manifest["kind"])


_K8S_GROUPS = {"networking", "rbac", "scheduling", "admissionregistration", "coordination"}


def _fits(value: Any, model: str, place: str) -> None:
    if found := re.fullmatch(r"[Ll]ist\[(.+)\]|[Dd]ict\[str, (.+)\]", model):
        wanted, inner = (list, found[1]) if found[1] else (dict, found[2])
        if not isinstance(value, wanted):
            raise WrongExampleError(f"{place} is no {wanted.__name__}: {value!r}")
        for each in value if isinstance(value, list) else value.values():
            _fits(each, inner, place)
    elif hasattr(kubernetes.client, model):
        kind = getattr(kubernetes.client, model)
        types = {kind.attribute_map[name]: type_ for name, type_ in kind.openapi_types.items()}
        for key, each in value.items():
            if key not in types:
                raise WrongExampleError(f"{place} has no field {key}")
            _fits(each, types[key], f"{place}.{key}")


def _check_job(manifest: Object, configuration: Configuration) -> None:
    """As `hived submit` reads a file; a plain pod's annotation and words of other dialects as the service does."""
    if manifest["kind"] == "Pod":
        check_model(manifest)
        pod = msgspec.convert({"metadata": {"name": "pod"}, **manifest}, Pod, strict=False)
        if text := pod.annotations.get(SCHEDULING_SPEC):
            read_spec(text)
        elif manifest.get("spec", {}).get("containers"):
            interpreter = Interpreter(configuration.cluster, configuration.rules, _Gang())
            interpreter.describe(pod)
        return
    words = ["submit", "-", "--dry-run", "-o", "yaml"]
    result = CliRunner().invoke(main, words, input=yaml.safe_dump(manifest), catch_exceptions=False)
    if result.exit_code:
        raise WrongExampleError(result.output)


class _Gang:
    """There is every object that a pod names, with a minimum of two."""

    def get(self, _kind: str, _namespace: str, _name: str, /) -> Mapping[str, Any]:
        return {"spec": {"minMember": 2}}


def _check_gang(manifest: Object, configuration: Configuration) -> None:
    """Read a PodGroup by the dialect that knows its kind, for a pod that names it."""
    name = manifest["metadata"]["name"]
    annotations = {"scheduling.k8s.io/group-name": name}
    labels = {"scheduling.x-k8s.io/pod-group": name}
    words = annotations if "volcano" in manifest["apiVersion"] else labels
    pod = msgspec.convert(
        {"metadata": {"name": "pod", "namespace": "default", "annotations": words, "labels": words}}, Pod, strict=False
    )

    class Objects:
        def get(self, _kind: str, _namespace: str, _name: str, /) -> Mapping[str, Any]:
            return manifest

    description = Interpreter(configuration.cluster, configuration.rules, Objects()).describe(pod)
    if description is None or description.minimum != manifest["spec"]["minMember"]:
        raise WrongExampleError(f"its minimum is not read: {description}")


def _check_configuration(document: Object, text: str) -> None:
    """Load it; a part of a configuration is put into a cluster that has the cell types it speaks of."""
    if "cellTypes" in document.get("physicalCluster", {}):
        load_text(text, "page.yaml", environ={})
        return
    whole = yaml.safe_load(yaml.safe_dump(BASE))
    physical = document.get("physicalCluster", {})
    for leaf in physical.get("skuTypes", {}).keys() - {LEAF_TYPE}:
        node = {"childCellType": leaf, "childCellNumber": 8, "isNodeLevel": True}
        whole["physicalCluster"]["cellTypes"][f"{leaf}-NODE"] = node
        whole["physicalCluster"]["physicalCells"].append({"cellType": f"{leaf}-NODE", "cellAddress": leaf.lower()})
    _loaded({**whole, **document, "physicalCluster": {**whole["physicalCluster"], **physical}})


def _check_layout(_document: Object, text: str) -> None:
    read_layout(text, "layout.yaml")


def _check_experiment(_document: Object, text: str) -> None:
    msgspec.yaml.decode(text, type=Experiment)


def _check_env(document: Object, _text: str) -> None:
    _fits(document, "V1Container", "container")


def _check_extender(document: Object, _text: str) -> None:
    _has_only(document, yaml.safe_load(KUBE_SCHEDULER)["extenders"][0], "extender")


def _check_kustomization(document: Object, _text: str) -> None:
    if wrong := document.keys() - KUSTOMIZATION:
        raise WrongExampleError(f"unknown in a Kustomization: {sorted(wrong)}")
    for path in [*document.get("resources", []), *document.get("components", [])]:
        if not (ROOT / path.removeprefix("PATH/") / "kustomization.yaml").is_file():
            raise WrongExampleError(f"there is no {path}")
    for patch in document.get("patches", []):
        check_model(yaml.safe_load(patch["patch"]))


def _check_annotation(document: Object, _text: str) -> None:
    read_spec(document[SCHEDULING_SPEC])


def _check_spec(document: Object, _text: str) -> None:
    read_spec(yaml.safe_dump({"virtualCluster": "research", "leafCellNumber": 1, **document}))


def _has_only(value: Any, known: Any, place: str) -> None:
    """Every field of a value is one of a known value of the same kind."""
    if isinstance(value, dict):
        for key, each in value.items():
            if key not in known:
                raise WrongExampleError(f"{place} has no field {key}, as the installed one has it")
            _has_only(each, known[key], f"{place}.{key}")
    elif isinstance(value, list) and isinstance(known, list) and known and isinstance(known[0], dict):
        for each in value:
            merged = {key: field for entry in known for key, field in entry.items()}
            name = each.get("name")
            _has_only(each, next((entry for entry in known if name and entry.get("name") == name), merged), place)


def _check_other(value: Any, fields: Any, place: str) -> None:
    """Every field of an object of another project is one of its API type; `fields` of ... may hold anything."""
    if fields is ... or not isinstance(value, dict | list):
        return
    if isinstance(value, list):
        for each in value:
            _check_other(each, fields, place)
        return
    for key, each in value.items():
        if key not in fields:
            raise WrongExampleError(f"{place} has no field {key}")
        _check_other(each, fields[key], f"{place}.{key}")


_SPEC_FIELDS = {"elastic", "withinCell", "gangReleaseEnable", "lazyPreemptionEnable", "leafCellType", "affinityGroup"}
_PARTS: tuple[tuple[set[str], str, Callable[[Object, str], None]], ...] = (
    (set(DOCUMENT.keys), "configuration", _check_configuration),
    ({"machine-sku", "machine-list"}, "layout", _check_layout),
    ({"title", "shows", "configuration", "steps"}, "experiment", _check_experiment),
    ({SCHEDULING_SPEC}, "the pod annotation", _check_annotation),
    ({"env"}, "part of a container", _check_env),
    ({"urlPrefix", "enableHTTPS", "tlsConfig"}, "extender of kube-scheduler", _check_extender),
    ({"components", "patches"}, "part of a Kustomization", _check_kustomization),
    (_SPEC_FIELDS, "part of the pod annotation", _check_spec),
)
