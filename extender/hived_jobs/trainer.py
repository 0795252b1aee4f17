"""The pods of a TrainJob (trainer.kubeflow.org/v1alpha1): their templates are those of its runtime.

So the words for its pods are patches of the runtime, in the field of its Trainer: `runtimePatches`, before 2.2
`podTemplateOverrides`, before 2.1 none.
"""

from collections.abc import Collection, Mapping
from typing import Any

from hived.values.errors import UserError
from hived_extender.jobs.annotations import PREFIX

KIND = ("trainer.kubeflow.org", "TrainJob")
NODE = "node"
"""The replicated job of every runtime that trains; others of it ask for no devices."""

PATCHES, OVERRIDES = "runtimePatches", "podTemplateOverrides"
MANAGER = PREFIX + "submit"
"""The manager of our patch."""


def annotate_pods(spec: dict[str, Any], words: Mapping[str, str], known: Collection[str]) -> None:
    """Write annotations of the pods of a TrainJob into its spec.

    `known` are the fields of its spec in the cluster, empty if that is not known. Raises UserError if none of them has
    annotations of pods.
    """
    field = OVERRIDES if OVERRIDES in spec or (known and PATCHES not in known) else PATCHES
    if known and field not in known:
        raise UserError(
            f"the TrainJobs of this cluster have no {field}, which gives {', '.join(words)} to their pods: install "
            "Kubeflow Trainer 2.1 or later, or write it into the runtime, without --vc, --priority and --gpu-type here"
        )
    metadata = {"annotations": dict(words)}
    if field == OVERRIDES:
        others = spec.get(OVERRIDES) or []
        spec[OVERRIDES] = [*others, {"targetJobs": [{"name": NODE}], "metadata": metadata}]
        return
    job: Any = {"name": NODE, "template": {"spec": {"template": {"metadata": metadata}}}}
    patch = {"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}}}
    spec[PATCHES] = [*(each for each in spec.get(PATCHES) or [] if each.get("manager") != MANAGER), patch]


def pod_metadata(spec: Mapping[str, Any], key: str) -> dict[str, str]:
    """The labels or annotations (`key`) that a TrainJob gives to pods of its nodes by patches; later ones count."""
    found: dict[str, str] = {}
    for override in spec.get(OVERRIDES) or []:
        if any(each.get("name") == NODE for each in override.get("targetJobs") or []):
            found |= (override.get("metadata") or {}).get(key) or {}
    for patch in spec.get(PATCHES) or []:
        for job in _below(patch, "trainingRuntimeSpec", "template", "spec").get("replicatedJobs") or []:
            if job.get("name") == NODE:
                found |= _below(job, "template", "spec", "template", "metadata").get(key) or {}
    return found


def _below(value: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    for key in keys:
        value = value.get(key) or {}
    return value
