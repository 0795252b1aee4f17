"""Calls on the API server as values. The shell of queues carries them out, in their order."""

from collections.abc import Mapping
from enum import Enum
from typing import Any
from urllib.parse import quote

import msgspec

from hived_extender.job_kinds.job import JobRef


class Verb(Enum):
    """The way of a call; `KubeClient` has a method for each."""

    PATCH = "patch"  # JSON merge patch
    PATCH_LISTS = "patch lists"  # strategic merge patch
    CREATE = "create"
    DELETE = "delete"


class Write(msgspec.Struct, frozen=True):
    """One call. Carried out twice it has the effect of once.

    `path` is the object's, for CREATE the collection's. `uid` is the object's: a later one of the same name is left
    alone (PATCH has it in its body as well). `may_be_missing`: that the object is not there is as good as success.
    """

    verb: Verb
    path: str
    body: Mapping[str, Any] = msgspec.field(default_factory=dict)
    uid: str = ""
    may_be_missing: bool = False


def path_of(api_version: str, plural: str, namespace: str, name: str = "") -> str:
    """The path of an object, or of the collection without a name."""
    base = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
    path = f"{base}/namespaces/{quote(namespace, safe='')}/{plural}"
    return f"{path}/{quote(name, safe='')}" if name else path


def merge(
    job: JobRef, plural: str, spec: Mapping[str, Any], annotations: Mapping[str, str | None], version: str = ""
) -> Write:
    """Merge `spec` and annotations (None removes one) into a job object, in one call.

    It is refused for a later job of the same name; with `version`, a resourceVersion, also for one that has changed.
    """
    metadata: dict[str, Any] = {"uid": job.uid} if job.uid else {}
    if annotations:
        metadata["annotations"] = dict(annotations)
    if version:
        metadata["resourceVersion"] = version
    body: dict[str, Any] = {"metadata": metadata} if metadata else {}
    if spec:
        body["spec"] = dict(spec)
    return Write(Verb.PATCH, path_of(job.api_version, plural, job.namespace, job.name), body, job.uid)
