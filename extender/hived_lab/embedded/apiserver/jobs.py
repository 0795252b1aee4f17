"""Jobs: defaults, the selector that the server makes, what a Job may say, and what an update may change."""

from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from typing import Any, NamedTuple

import msgspec

from hived_lab.embedded.apiserver import models
from hived_lab.embedded.apiserver.bodies import Body
from hived_lab.embedded.apiserver.kinds import Lookup, StatusStrategy
from hived_lab.embedded.apiserver.pods import spec_causes, with_spec_defaults
from hived_lab.embedded.apiserver.statuses import Cause
from hived_lab.embedded.apiserver.validation import label_causes

_JOB_NAME, _CONTROLLER_UID = "batch.kubernetes.io/job-name", "batch.kubernetes.io/controller-uid"
_OLD_JOB_NAME, _OLD_CONTROLLER_UID = "job-name", "controller-uid"
_OWN_LABELS = {_JOB_NAME, _CONTROLLER_UID, _OLD_JOB_NAME, _OLD_CONTROLLER_UID}
_FAILURES, _ANY_FAILURES = 6, 2**31 - 1

Spec = Mapping[str, Any]
"""A Job's spec as JSON has it, None for what it does not say."""


class _Rule(NamedTuple):
    """A rule of a Job's spec: the field, when it is broken, and what is said then; `{}` stands for the value."""

    field: str
    is_broken: Callable[[Spec], bool]
    message: str
    reason: str = "FieldValueInvalid"


def _not_negative(field: str) -> _Rule:
    message = "Invalid value: {}: must be greater than or equal to 0"
    return _Rule(field, lambda spec: (spec[field] or 0) < 0, message)


def _needs_indexes(field: str) -> _Rule:
    message = "Invalid value: {}: requires indexed completion mode"
    return _Rule(field, lambda spec: spec[field] is not None and spec["completionMode"] == "NonIndexed", message)


def _one_of(field: str, *values: str) -> _Rule:
    supported = ", ".join(f'"{value}"' for value in values)
    message = f"Unsupported value: {{}}: supported values: {supported}"
    return _Rule(field, lambda spec: spec[field] not in values, message, "FieldValueNotSupported")


def _required(field: str, message: str, is_missing: Callable[[Spec], bool]) -> _Rule:
    return _Rule(field, is_missing, f"Required value: {message}", "FieldValueRequired")


def _labels(spec: Spec) -> Mapping[str, str]:
    labels: Mapping[str, str] = spec["template"]["metadata"]["labels"]
    return labels


_RULES = (
    *map(_not_negative, ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit")),
    *map(_not_negative, ("ttlSecondsAfterFinished", "backoffLimitPerIndex", "maxFailedIndexes")),
    *map(_needs_indexes, ("backoffLimitPerIndex", "maxFailedIndexes", "successPolicy")),
    _one_of("completionMode", "NonIndexed", "Indexed"),
    _one_of("podReplacementPolicy", "Failed", "TerminatingOrFailed"),
    _required(
        "backoffLimitPerIndex",
        "when maxFailedIndexes is specified",
        lambda spec: spec["maxFailedIndexes"] is not None and spec["backoffLimitPerIndex"] is None,
    ),
    _required(
        "completions",
        "when completion mode is Indexed",
        lambda spec: spec["completionMode"] == "Indexed" and spec["completions"] is None,
    ),
    _required(
        "template.spec.restartPolicy",
        'valid values: "OnFailure", "Never"',
        lambda spec: spec["template"]["spec"]["restartPolicy"] == "Always",
    ),
    _Rule(
        "maxFailedIndexes",
        lambda spec: (
            None not in (spec["maxFailedIndexes"], spec["completions"])
            and spec["maxFailedIndexes"] > spec["completions"]
            and spec["completionMode"] == "Indexed"
        ),
        "Invalid value: {}: must be less than or equal to completions",
    ),
    _Rule(
        "selector",
        lambda spec: not (spec["manualSelector"] or spec["selector"].get("matchLabels", {}).keys() <= _OWN_LABELS),
        "Invalid value: {}: `selector` not auto-generated",
    ),
    _Rule(
        "template.metadata.labels",
        lambda spec: not spec["selector"].get("matchLabels", {}).items() <= _labels(spec).items(),
        "Invalid value: {}: `selector` does not match template `labels`",
    ),
)
_IMMUTABLE = ("selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy")
_MUTABLE_AT_REST = ("nodeSelector", "tolerations", "schedulingGates")
"""Of the pods of a suspended Job that has none, beside their labels, annotations, node affinity and resources."""


class JobStrategy(StatusStrategy[models.Job]):
    """Jobs of Kubernetes: a selector of the server's own, a template that hardly changes."""

    def default(self, body: Body) -> Body:
        spec = {"suspend": False, "manualSelector": False, "completionMode": "NonIndexed", **body.get("spec", {})}
        if "parallelism" not in spec:
            spec = {"completions": 1, **spec, "parallelism": 1}
        spec.setdefault("backoffLimit", _ANY_FAILURES if "backoffLimitPerIndex" in spec else _FAILURES)
        spec.setdefault("podReplacementPolicy", "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed")
        template = spec.get("template", {})
        spec["template"] = {**template, "spec": with_spec_defaults(template.get("spec", {}))}
        return {**body, "spec": spec}

    def admit(self, body: Body, lookup: Lookup) -> Body:
        spec, name, uid = dict(body["spec"]), body["metadata"]["name"], body["metadata"]["uid"]
        if not spec["manualSelector"]:
            own = {_OLD_JOB_NAME: name, _JOB_NAME: name, _OLD_CONTROLLER_UID: uid, _CONTROLLER_UID: uid}
            metadata = spec["template"].get("metadata", {})
            labelled = {**metadata, "labels": {**own, **metadata.get("labels", {})}}
            spec["template"] = {**spec["template"], "metadata": labelled}
            selector = spec.get("selector", {})
            spec["selector"] = {**selector, "matchLabels": {_CONTROLLER_UID: uid, **selector.get("matchLabels", {})}}
        return {**body, "spec": spec, "status": {}}

    def causes(self, view: models.Job, old: models.Job | None) -> Iterator[Cause]:
        spec = msgspec.to_builtins(view.spec)
        for rule in _RULES:
            if rule.is_broken(spec):
                value = reduce(lambda part, key: part[key], rule.field.split("."), spec)
                yield Cause(f"spec.{rule.field}", rule.message.format(_written(value)), rule.reason)
        yield from label_causes(view.spec.template.metadata, "spec.template.metadata")
        yield from spec_causes(view.spec.template.spec, "spec.template.spec")

    def change_causes(self, old: Body, new: Body) -> Iterator[Cause]:
        before, after = old["spec"], new["spec"]
        completions = after.get("completions")
        if completions != before.get("completions"):
            if after["completionMode"] != "Indexed":
                yield _immutable("completions", completions)
            elif completions is not None and completions != after["parallelism"]:
                message = f"Invalid value: {completions}: can only be modified in tandem with spec.parallelism"
                yield Cause("spec.completions", message)
        for field in _IMMUTABLE:
            if before.get(field) != after.get(field):
                yield _immutable(field, after.get(field))
        may_change = _is_at_rest(old)
        if _fixed_part(before["template"], may_change) != _fixed_part(after["template"], may_change):
            yield _immutable("template", after["template"])


def _immutable(field: str, value: object) -> Cause:
    return Cause(f"spec.{field}", f"Invalid value: {_written(value)}: field is immutable")


def _written(value: object) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


def _is_at_rest(job: Body) -> bool:
    """Tell whether a Job is suspended, and its controller has seen that."""
    status = job.get("status", {})
    is_seen = any(one["type"] == "Suspended" and one["status"] == "True" for one in status.get("conditions", ()))
    return bool(job["spec"]["suspend"] and not status.get("active") and (is_seen or "startTime" not in status))


def _fixed_part(template: Body, may_change: bool) -> Body:
    """Return what an update has to leave of a template."""
    if not may_change:
        return template
    metadata = {
        key: value for key, value in template.get("metadata", {}).items() if key not in ("labels", "annotations")
    }
    spec = {key: value for key, value in template["spec"].items() if key not in _MUTABLE_AT_REST}
    affinity = {key: value for key, value in spec.pop("affinity", {}).items() if key != "nodeAffinity"}
    for field in ("containers", "initContainers"):
        if field in spec:
            spec[field] = [{key: value for key, value in one.items() if key != "resources"} for one in spec[field]]
    return {"metadata": metadata, "spec": spec, "affinity": affinity}
