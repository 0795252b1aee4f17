"""Rules that hold for objects of every kind: names, labels, annotations, and fields that no kind has."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args, get_origin

import msgspec

from hived_lab.embedded.apiserver import models
from hived_lab.embedded.apiserver.bodies import Body
from hived_lab.embedded.apiserver.models import Model, ObjectMeta
from hived_lab.embedded.apiserver.statuses import Cause

MAX_ANNOTATION_BYTES = 256 * 1024

_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_DNS_LABEL = re.compile(_LABEL)
_DNS_SUBDOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
DNS_LABEL_RULE = "a lowercase RFC 1123 label must have letters a-z, digits and '-', and begin and end with no '-'"
_DNS_RULE = "a lowercase RFC 1123 subdomain must have labels of letters a-z, digits and '-', with '.' between them"
_KEY_RULE = "name part must consist of letters, digits, '-', '_' or '.', and begin and end with a letter or digit"
_VALUE_RULE = "a valid label must be empty, or be as the name of a key: letters, digits and '-', '_', '.' between them"
_KEY_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Every field of these objects is read by a view.
_WHOLE = (
    models.Pod, models.WorkloadRef, models.SchedulingGroup, models.Toleration, models.Node, models.Lease,
    models.ConfigMap, models.PriorityClass, models.PodGroup,
)  # fmt: skip
# Fields that Kubernetes knows in these objects and that no view reads. Objects that are not listed may have any field.
_UNREAD_FIELDS: dict[type[Model], frozenset[str]] = {
    **dict.fromkeys(_WHOLE, frozenset()),
    ObjectMeta: frozenset({"generation", "managedFields", "selfLink"}),
    models.OwnerReference: frozenset({"apiVersion", "blockOwnerDeletion"}),
    models.PodSpec: _names(
        "activeDeadlineSeconds automountServiceAccountToken dnsConfig dnsPolicy enableServiceLinks "
        "ephemeralContainers hostAliases hostIPC hostPID hostUsers hostname hostnameOverride "
        "imagePullSecrets os readinessGates runtimeClassName securityContext serviceAccount "
        "setHostnameAsFQDN shareProcessNamespace subdomain"
    ),
    models.Container: _names(
        "args command env envFrom imagePullPolicy lifecycle livenessProbe readinessProbe resizePolicy "
        "restartPolicyRules securityContext startupProbe stdin stdinOnce terminationMessagePath "
        "terminationMessagePolicy tty volumeDevices volumeMounts workingDir"
    ),
    models.ResourceRequirements: frozenset({"claims"}),
    models.ContainerPort: frozenset({"name"}),
    models.Taint: frozenset({"timeAdded"}),
    models.NodeSpec: frozenset({"configSource", "externalID", "podCIDR", "podCIDRs", "providerID"}),
    models.Event: frozenset({"action", "related", "reportingInstance"}),
    models.LeaseSpec: frozenset({"preferredHolder", "strategy"}),
    models.PodGroupSpec: frozenset({"minResources", "networkTopology", "subGroupPolicy"}),
    models.OpenObject: frozenset({"status"}),
    models.Job: frozenset(),
    models.JobSpec: frozenset(),
    models.Namespace: frozenset({"spec"}),
}


def is_dns_label(text: str) -> bool:
    """Tell whether `text` is one part of a DNS name."""
    return len(text) <= 63 and _DNS_LABEL.fullmatch(text) is not None


def is_dns_subdomain(text: str) -> bool:
    """Tell whether `text` is a DNS name."""
    return len(text) <= 253 and _DNS_SUBDOMAIN.fullmatch(text) is not None


def metadata_causes(meta: ObjectMeta, is_label_name: bool) -> Iterator[Cause]:
    """Yield what is wrong with name, labels and annotations; `is_label_name` asks for a DNS label as the name."""
    if not (is_dns_label(meta.name) if is_label_name else is_dns_subdomain(meta.name)):
        yield Cause("metadata.name", f'Invalid value: "{meta.name}": {DNS_LABEL_RULE if is_label_name else _DNS_RULE}')
    yield from label_causes(meta, "metadata")
    for key in meta.annotations:
        if not is_qualified_name(key.lower()):
            yield Cause("metadata.annotations", f'Invalid value: "{key}": {_KEY_RULE}')
    size = sum(len(key.encode()) + len(value.encode()) for key, value in meta.annotations.items())
    if size > MAX_ANNOTATION_BYTES:
        message = f"Too long: may not be more than {MAX_ANNOTATION_BYTES} bytes"
        yield Cause("metadata.annotations", message, "FieldValueTooLong")


def label_causes(meta: ObjectMeta, path: str) -> Iterator[Cause]:
    """Yield what is wrong with the labels of an object, or of a template."""
    for key, value in meta.labels.items():
        if not is_qualified_name(key):
            yield Cause(f"{path}.labels", f'Invalid value: "{key}": {_KEY_RULE}')
        if value and (len(value) > 63 or not _KEY_NAME.fullmatch(value)):
            yield Cause(f"{path}.labels", f'Invalid value: "{value}": {_VALUE_RULE}')


def is_qualified_name(text: str) -> bool:
    """Tell whether `text` may be a label key: a name of at most 63 characters behind an optional DNS prefix and `/`."""
    prefix, slash, name = text.rpartition("/")
    return (not slash or is_dns_subdomain(prefix)) and len(name) <= 63 and _KEY_NAME.fullmatch(name) is not None


def unknown_fields(body: Body, model: type[Model], path: str = "") -> Iterator[str]:
    """Yield the paths of fields that Kubernetes does not have where they stand; most are misspelt.

    Looks only into the objects that have a view; `$` begins a directive of a strategic merge patch.
    """
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(model)}
    for key, value in body.items():
        if key in fields:
            yield from _unknown_inside(value, fields[key], f"{path}{key}")
        elif model in _UNREAD_FIELDS and key not in _UNREAD_FIELDS[model] and not key.startswith("$"):
            yield f"{path}{key}"


def _unknown_inside(value: Any, declared: Any, path: str) -> Iterator[str]:
    if isinstance(declared, type) and issubclass(declared, Model) and isinstance(value, Mapping):
        yield from unknown_fields(dict(value), declared, f"{path}.")
    elif get_origin(declared) is list and isinstance(value, list):
        (item_type,) = get_args(declared)
        for index, item in enumerate(value):
            yield from _unknown_inside(item, item_type, f"{path}[{index}]")
