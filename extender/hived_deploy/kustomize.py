"""The part of kustomize that config/deploy uses, so that `hived manifests` needs no other program and no second source.

Resources, components, ConfigMaps from files, strategic merge patches by path, namespace, labels, images and replicas,
with the result that `kubectl kustomize` gives; a test compares them. Any other key of a kustomization is refused.
Objects are told apart by kind and name.
"""

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

Document = dict[str, Any]

_CLUSTER_SCOPED = {
    "Namespace", "ClusterRole", "ClusterRoleBinding", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration",
    "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
}  # fmt: skip
_FIRST = {"Namespace": 0, "ConfigMap": 1}
_MERGE_KEYS = {
    "containers": ("name",), "env": ("name",), "volumes": ("name",), "volumeMounts": ("mountPath",),
    "ports": ("containerPort", "port"), "webhooks": ("name",), "matchConditions": ("name",),
}  # fmt: skip
"""By which key, the first that they have, the elements of a list are matched; other lists are replaced."""

_KEYS = {
    "apiVersion", "kind", "resources", "components", "generatorOptions", "configMapGenerator", "patches", "namespace",
    "images", "replicas", "labels",
}  # fmt: skip


def build(
    folder: Path, kustomization: Document | None = None, files: Mapping[str, str] | None = None
) -> list[Document]:
    """The objects that a kustomization describes: Namespaces first, and ConfigMaps before the pods that read them.

    Parameters
    ----------
    folder : what paths are relative to
    kustomization : instead of the kustomization.yaml of `folder`
    files : texts that stand for files of `folder`

    Raises ValueError for what kustomize could do and this cannot.
    """
    objects = _Objects()
    objects.apply(folder, kustomization or _read_kustomization(folder), files or {})
    objects.complete_references()
    return sorted(objects.documents, key=lambda document: _FIRST.get(document["kind"], len(_FIRST)))


def merge(document: Any, patch: Any, key: str = "") -> Any:
    """A strategic merge: mappings are merged, some lists too, everything else is replaced; null removes.

    `key` is the one that both stand under. Elements that are new in a list come first, as kustomize has it.
    """
    if isinstance(document, dict) and isinstance(patch, dict):
        merged = {name: merge(document.get(name), value, name) for name, value in patch.items()}
        return {name: value for name, value in (document | merged).items() if value is not None}
    if isinstance(document, list) and key in _MERGE_KEYS:
        merge_key = next(name for name in _MERGE_KEYS[key] if all(name in each for each in patch))
        new = {each[merge_key]: each for each in patch}
        kept = [merge(each, new.pop(each[merge_key], {})) for each in document]
        return [*new.values(), *kept]
    return patch


class _Objects:
    """The objects so far; a kustomization adds to them and changes them."""

    def __init__(self) -> None:
        self.documents: list[Document] = []

    def apply(self, folder: Path, kustomization: Document, files: Mapping[str, str]) -> None:
        if unknown := kustomization.keys() - _KEYS:
            raise ValueError(f"{folder}: {', '.join(sorted(unknown))} is not among {', '.join(sorted(_KEYS))}")

        def read(name: str) -> str:
            return files[name] if name in files else (folder / name).read_text(encoding="utf-8")

        for name in kustomization.get("resources", ()):
            self.documents += build(folder / name) if (folder / name).is_dir() else _parse(read(name))
        for generator in kustomization.get("configMapGenerator", ()):
            named = [file.rpartition("=") for file in generator["files"]]
            data = {key or Path(file).name: read(file) for key, _, file in named}
            self._put_config_map(generator["name"], data, generator.get("options", {}).get("labels"))
        for name in kustomization.get("components", ()):
            self.apply(folder / name, _read_kustomization(folder / name), {})
        for patch in kustomization.get("patches", ()):
            for document in _parse(read(patch["path"])):
                self._patch(document)
        for replicas in kustomization.get("replicas", ()):
            self._find("Deployment", replicas["name"])["spec"]["replicas"] = replicas["count"]
        for image in kustomization.get("images", ()):
            self._set_image(image)
        for labels in kustomization.get("labels", ()):
            self._set_labels(labels["pairs"], has_templates=labels.get("includeTemplates", False))
        if "namespace" in kustomization:
            self._set_namespace(kustomization["namespace"])

    def _find(self, kind: str, name: str) -> Document:
        for document in self.documents:
            if (document["kind"], document["metadata"]["name"]) == (kind, name):
                return document
        raise ValueError(f"there is no {kind} {name} to change")

    def _put_config_map(self, name: str, data: Mapping[str, str], labels: Mapping[str, str] | None) -> None:
        """A new ConfigMap, or the new data of one that is there: `behavior: replace`."""
        try:
            self._find("ConfigMap", name)["data"] = data
        except ValueError:
            metadata = {"name": name, "labels": dict(labels)} if labels else {"name": name}
            self.documents.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})

    def _patch(self, patch: Document) -> None:
        document = self._find(patch["kind"], patch["metadata"]["name"])
        document.update(merge(document, patch))

    def _set_image(self, image: Document) -> None:
        for container in self._containers():
            name = container["image"].rpartition(":")[0]
            if name == image["name"]:
                tag = f"@{image['digest']}" if "digest" in image else f":{image['newTag']}"
                container["image"] = image["newName"] + tag

    def _containers(self) -> Iterator[Document]:
        for document in self.documents:
            if document["kind"] == "Deployment":
                yield from document["spec"]["template"]["spec"]["containers"]

    def _set_labels(self, labels: Mapping[str, str], *, has_templates: bool) -> None:
        for document in self.documents:
            labelled = [document["metadata"]]
            if has_templates and document["kind"] == "Deployment":
                labelled.append(document["spec"]["template"]["metadata"])
            for metadata in labelled:
                metadata["labels"] = metadata.get("labels", {}) | labels

    def _set_namespace(self, namespace: str) -> None:
        for document in self.documents:
            if document["kind"] == "Namespace":
                document["metadata"]["name"] = namespace
            if document["kind"] not in _CLUSTER_SCOPED:
                document["metadata"]["namespace"] = namespace

    def complete_references(self) -> None:
        """Bindings name accounts and webhooks Services without their namespace: each gets the one that these are in."""
        for document in self.documents:
            for subject in document.get("subjects", ()):
                subject["namespace"] = self._find("ServiceAccount", subject["name"])["metadata"]["namespace"]
            for webhook in document.get("webhooks", ()):
                service = webhook["clientConfig"]["service"]
                service["namespace"] = self._find("Service", service["name"])["metadata"]["namespace"]


def _read_kustomization(folder: Path) -> Document:
    return _parse((folder / "kustomization.yaml").read_text(encoding="utf-8"))[0]


def _parse(text: str) -> list[Document]:
    """The documents of a text; what anchors shared there is written out, so that each can be changed alone."""
    return [json.loads(document) for document in _documents(text)]


@lru_cache(maxsize=256)
def _documents(text: str) -> list[str]:
    """The documents of a text as JSON. All installations are made of the same few dozen files."""
    return [json.dumps(each) for each in yaml.load_all(text, yaml.CSafeLoader) if each is not None]
