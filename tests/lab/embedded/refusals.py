"""Requests that an API server refuses, and its words: played on the embedded one, and by `make e2e-controllers` on a
real one.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

GPU = "nvidia.com/gpu"
PODS = "/api/v1/namespaces/{}/pods"
JOBS = "/apis/batch/v1/namespaces/{}/jobs"
RESOURCES = "spec.containers[0].resources"
TEMPLATE = "spec.template.spec"
NUMBERS = ("parallelism", "completions", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished")
IMMUTABLE = "field is immutable"
NOT_NEGATIVE = "must be greater than or equal to 0"

Json = dict[str, Any]
Call = Callable[[str, str, Json], tuple[int, Json]]
"""Sends a request, with its method, path and body, and returns the code and the body of the answer."""


@dataclass(frozen=True)
class Refusal:
    """A request and the answer to it.

    Attributes
    ----------
    path, body : of an object that is created, or that `patch` is merged into after it has been
    patch : what is refused; None for the creation
    code : the HTTP status
    causes : field and message of each broken rule; "..." in a message stands for anything
    """

    path: str
    body: Json
    causes: Mapping[str, str] | tuple[tuple[str, str], ...] = ()
    patch: Json | None = None
    code: int = 422


def pod(limits: Json | None = None, requests: Json | None = None, **metadata: Any) -> Json:
    """A pod of one container with these resources."""
    resources = {"limits": limits, "requests": requests}
    container = {"name": "m", "image": "x", "resources": {key: value for key, value in resources.items() if value}}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one", **metadata}, "spec": {"containers": [container]}
    }  # fmt: skip


def job(limits: Json | None = None, restart_policy: str = "Never", **spec: Any) -> Json:
    """A Job whose pods have one container with these limits."""
    pod_spec = {**pod(limits)["spec"], "restartPolicy": restart_policy}
    return {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "one"},
        "spec": {"template": {"spec": pod_spec}, **spec},
    }  # fmt: skip


def _both(at: str, name: str, message: str) -> tuple[tuple[str, str], ...]:
    """What is wrong with a limit, and with the request that it becomes."""
    return tuple((f"{at}.{side}[{name}]", message) for side in ("limits", "requests"))


def _pod(causes: Any, limits: Json | None = None, requests: Json | None = None, **metadata: Any) -> Refusal:
    return Refusal(PODS, pod(limits, requests, **metadata), causes)


def _job(causes: Any, limits: Json | None = None, restart_policy: str = "Never", **spec: Any) -> Refusal:
    return Refusal(JOBS, job(limits, restart_policy, **spec), causes)


def _changed(before: Json, causes: Any, **after: Any) -> Refusal:
    return Refusal(JOBS, job(**before), causes, {"spec": after})


_WHOLE = 'Invalid value: "500m": must be an integer'
_INDEXED = {"completionMode": "Indexed", "completions": 2}

REFUSALS: Mapping[str, Refusal] = {
    "devices without a limit": _pod(
        {f"{RESOURCES}.limits": "Required value: Limit must be set for non overcommitable resources"}, None, {GPU: 1}
    ),
    "devices whose request is less than the limit": _pod(
        {f"{RESOURCES}.requests": f'Invalid value: "1": must be equal to {GPU} limit of 2'}, {GPU: 2}, {GPU: 1}
    ),
    "half a device": _pod(_both(RESOURCES, GPU, _WHOLE), {GPU: "0.5"}),
    "a negative number of devices": _pod(_both(RESOURCES, GPU, f'Invalid value: "-1": {NOT_NEGATIVE}'), {GPU: -1}),
    "a negative amount of memory": _pod(
        _both(RESOURCES, "memory", f'Invalid value: "-1Gi": {NOT_NEGATIVE}'), {"memory": "-1Gi"}
    ),
    "more CPU requested than the limit": _pod(
        {f"{RESOURCES}.requests": 'Invalid value: "2": must be less than or equal to cpu limit of 1500m'},
        {"cpu": "1.5"},
        {"cpu": 2},
    ),
    "a resource without a domain": _pod(
        tuple(
            cause
            for message in (
                "must be a standard resource type or fully qualified",
                "must be a standard resource for containers",
            )
            for cause in _both(RESOURCES, "gpu", f'Invalid value: "gpu": {message}')
        ),
        {"gpu": 1},
    ),
    "a quantity that is none": Refusal(PODS, pod({"cpu": "lots"}), code=400),
    "a name with capitals": _pod(
        {"metadata.name": 'Invalid value: "One": a lowercase RFC 1123 subdomain must ...'}, name="One"
    ),
    "a label with a space": _pod(
        {"metadata.labels": 'Invalid value: "a b": a valid label must be ...'}, labels={"team": "a b"}
    ),
    "a key of a label with a space": _pod(
        {"metadata.labels": 'Invalid value: "a b": name part must consist of ...'}, labels={"a b": "team"}
    ),
    "half a device for the pods of a Job": _job(
        {f"{TEMPLATE}.containers[0].resources.limits[{GPU}]": _WHOLE}, {GPU: "0.5"}
    ),
    "a Job whose pods restart for ever": _job(
        {f"{TEMPLATE}.restartPolicy": 'Required value: valid values: "OnFailure", "Never"'}, restart_policy="Always"
    ),
    "a Job without pods": Refusal(
        JOBS,
        {"metadata": {"name": "one"}, "spec": {}},
        {
            f"{TEMPLATE}.containers": "Required value",
            f"{TEMPLATE}.restartPolicy": 'Required value: valid values: "OnFailure", "Never"',
        },
    ),
    "a Job with negative numbers": _job(
        {
            f"spec.{name}": f"Invalid value: -1: {NOT_NEGATIVE}"
            for name in (
                "parallelism",
                "completions",
                "backoffLimit",
                "activeDeadlineSeconds",
                "ttlSecondsAfterFinished",
            )
        },
        parallelism=-1,
        completions=-1,
        backoffLimit=-1,
        activeDeadlineSeconds=-1,
        ttlSecondsAfterFinished=-1,
    ),
    "an unknown completion mode": _job(
        {"spec.completionMode": 'Unsupported value: "Some": supported values: "NonIndexed", "Indexed"'},
        completionMode="Some",
    ),
    "an unknown policy of replacement": _job(
        {"spec.podReplacementPolicy": 'Unsupported value: "Never": supported values: "Failed", "TerminatingOrFailed"'},
        podReplacementPolicy="Never",
    ),
    "an Indexed Job without completions": _job(
        {"spec.completions": "Required value: when completion mode is Indexed"}, completionMode="Indexed", parallelism=2
    ),
    "limits by index of a Job that has none": _job(
        {
            "spec.backoffLimitPerIndex": "Invalid value: 1: requires indexed completion mode",
            "spec.maxFailedIndexes": "Invalid value: 1: requires indexed completion mode",
        },
        backoffLimitPerIndex=1,
        maxFailedIndexes=1,
    ),
    "failed indexes without their limit": _job(
        {"spec.backoffLimitPerIndex": "Required value: when maxFailedIndexes is specified"},
        maxFailedIndexes=1,
        **_INDEXED,
    ),
    "more failed indexes than there are": _job(
        {"spec.maxFailedIndexes": "Invalid value: 3: must be less than or equal to completions"},
        backoffLimitPerIndex=1,
        maxFailedIndexes=3,
        **_INDEXED,
    ),
    "a Job with a selector of its own": _job(
        (
            ("spec.selector", "Invalid value: {...`selector` not auto-generated"),
            ("spec.template.metadata.labels", "Invalid value: {...`selector` does not match template `labels`"),
        ),
        selector={"matchLabels": {"a": "b"}},
    ),
    "other completions": _changed(
        {"completions": 2}, {"spec.completions": f"Invalid value: 3: {IMMUTABLE}"}, completions=3
    ),
    "other completions of an Indexed Job than pods at a time": _changed(
        {"parallelism": 1, **_INDEXED},
        {"spec.completions": "Invalid value: 3: can only be modified in tandem with spec.parallelism"},
        completions=3,
    ),
    "another template": _changed(
        {}, {"spec.template": f"Invalid value: {{...{IMMUTABLE}"}, template={"spec": {"priorityClassName": "high"}}
    ),
    "another restart policy": _changed(
        {}, {"spec.template": f"Invalid value: {{...{IMMUTABLE}"}, template={"spec": {"restartPolicy": "OnFailure"}}
    ),
    "another selector": _changed(
        {},
        (
            ("spec.selector", f"Invalid value: {{...{IMMUTABLE}"),
            ("spec.selector", "Invalid value: {...`selector` not auto-generated"),
            ("spec.template.metadata.labels", "Invalid value: {...`selector` does not match template `labels`"),
        ),
        selector={"matchLabels": {"a": "b"}},
    ),
    "another completion mode": _changed(
        {"completions": 2}, {"spec.completionMode": f'Invalid value: "Indexed": {IMMUTABLE}'}, completionMode="Indexed"
    ),
    "another limit by index": _changed(
        {"backoffLimitPerIndex": 1, **_INDEXED},
        {"spec.backoffLimitPerIndex": f"Invalid value: 2: {IMMUTABLE}"},
        backoffLimitPerIndex=2,
    ),
    "a negative number of pods at a time": _changed(
        {}, {"spec.parallelism": f"Invalid value: -1: {NOT_NEGATIVE}"}, parallelism=-1
    ),
}

TAKEN: Mapping[str, Refusal] = {
    "whole devices": _pod((), {GPU: "2"}, {GPU: 2}),
    "less CPU requested than the limit": _pod((), {"cpu": 2, "memory": "1Gi"}, {"cpu": "500m"}),
    "memory without a limit": _pod((), None, {"memory": "1.5Gi"}),
    "huge pages": _pod((), {"hugepages-2Mi": "4Mi", "memory": "1Gi"}),
    "more pods at a time": _changed({"completions": 4}, (), parallelism=3),
    "a resumed Job": _changed({"suspend": True}, (), suspend=False),
    "other nodes of a suspended Job": _changed(
        {"suspend": True}, (), template={"spec": {"nodeSelector": {"disk": "ssd"}}}
    ),
    "more completions and pods of an Indexed Job": _changed(
        {"parallelism": 2, **_INDEXED}, (), completions=3, parallelism=3
    ),
    "another limit of failures": _changed({}, (), backoffLimit=2),
}
"""Requests like these that are taken."""


def play(refusal: Refusal, call: Call, namespace: str) -> None:
    """Send the request in a namespace without such an object, and compare the answer."""
    path = refusal.path.format(namespace)
    code, answer = call("POST", path, refusal.body)
    if refusal.patch is not None:
        assert code == 201, answer
        code, answer = call("PATCH", f"{path}/{refusal.body['metadata']['name']}", refusal.patch)
    if not refusal.causes and refusal.code == 422:
        assert code < 300, answer
        return
    assert (answer["kind"], answer["status"], answer["code"]) == ("Status", "Failure", code)
    assert (code, answer["reason"]) == (refusal.code, "Invalid" if refusal.code == 422 else "BadRequest"), answer
    if refusal.code == 422:
        _compare(refusal, answer)


def _compare(refusal: Refusal, answer: Json) -> None:
    details, is_job = answer["details"], refusal.path == JOBS
    name, kind = refusal.body["metadata"]["name"], "Job" if is_job else "Pod"
    assert {key: value for key, value in details.items() if key != "causes"} == {
        "name": name, "kind": kind, **({"group": "batch"} if is_job else {})
    }  # fmt: skip
    what = f"{kind}.batch" if is_job else kind
    assert answer["message"].startswith(f'{what} "{name}" is invalid: '), answer["message"]
    given = refusal.causes
    wanted = set(given.items() if isinstance(given, Mapping) else given)
    # A real one looks at an updated Job twice.
    found = {(cause["field"], cause["message"]) for cause in details["causes"]}
    assert len(found) == len(wanted), found
    for at, message in wanted:
        pattern = ".*".join(map(re.escape, message.split("...")))
        assert any(field == at and re.fullmatch(pattern, said) for field, said in found), found
