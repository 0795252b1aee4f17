"""Kueue's fields, and what becomes of each here: one table, which reading, remarks and the documentation share.

A path names the kind, then keys; `[]` stands for the items of a list. What lies below a field that is read whole has no
row of its own. Kinds and fields are those of v1beta1 and v1beta2.
"""

import sys
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec
import yaml

from hived_config.quantities import LARGEST, exact
from hived_config.reader import Choice, Integer, Reader, Schema, Text, ValueKind, describe, is_null, name_text

GROUP = "kueue.x-k8s.io"
VERSIONS = ("v1beta1", "v1beta2")


class Quantity(ValueKind):
    """A quantity of Kubernetes that is not negative, exactly."""

    what = "a quantity of at least 0, such as 8 or 64Gi"
    words = "quantity"

    def read(self, reader: Reader, node: yaml.Node) -> Any:
        """The value as a fraction; 0 after noting why there is none."""
        value = exact(node.value) if isinstance(node, yaml.ScalarNode) else None
        if value is None:
            reader.note(node, describe(node), self.what)
        elif value >= LARGEST:
            reader.note(node, describe(node), f"less than {LARGEST}, the most of any quantity")
        return value or 0

    def schema(self) -> Schema:
        """A number, or a text with a suffix."""
        return {"type": ["number", "string"]}


class Whole(ValueKind):
    """Anything, as the texts, lists and mappings that stand in the file."""

    what = "a value"
    words = "any"

    def read(self, reader: Reader, node: yaml.Node) -> Any:
        """The value; scalars are texts."""
        if isinstance(node, yaml.MappingNode):
            return {name: self.read(reader, value) for name, _, value in reader.fields(node, self.what)}
        if isinstance(node, yaml.SequenceNode):
            return [self.read(reader, item) for item in node.value]
        return None if is_null(node) else node.value

    def schema(self) -> Schema:
        """Anything."""
        return {}


class Labels(ValueKind):
    """Labels of nodes."""

    what = "a mapping of labels to texts"
    words = "labels"

    def read(self, reader: Reader, node: yaml.Node) -> dict[str, str]:
        """The labels; none after noting why there are none."""
        if not isinstance(node, yaml.MappingNode):
            reader.note(node, describe(node), self.what)
            return {}
        return {name: reader.text(value, "a text") for name, _, value in reader.fields(node, self.what)}

    def schema(self) -> Schema:
        """A mapping of texts."""
        return {"type": "object", "additionalProperties": {"type": "string"}}


class QueueingStrategy(Enum):
    """The order of a ClusterQueue."""

    STRICT = "StrictFIFO"
    BEST_EFFORT = "BestEffortFIFO"


class StopPolicy(Enum):
    """The effect of stopping a queue."""

    NONE = "None"
    HOLD = "Hold"
    DRAIN = "HoldAndDrain"


class ReclaimPolicy(Enum):
    """Whom an owner may preempt to have its quota back."""

    NEVER = "Never"
    LOWER = "LowerPriority"
    ANY = "Any"


class WithinPolicy(Enum):
    """Whom a job may preempt in its own ClusterQueue."""

    NEVER = "Never"
    LOWER = "LowerPriority"
    NEWER = "LowerOrNewerEqualPriority"


class BorrowPolicy(Enum):
    """The right of a job that borrows to preempt others."""

    NEVER = "Never"
    LOWER = "LowerPriority"


_NAME = name_text("a name", r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_WHOLE = Whole()
_QUANTITY = Quantity()
_LABELS = Labels()


class KueueField(msgspec.Struct, frozen=True):
    """One field: how it is read, its counterpart in hived ("" for none), and the difference, in the words of the docs.

    `remarks` are what people are told of some values. Without that key a field that has no counterpart is remarked on
    with its difference, whatever its value.
    """

    kind: ValueKind
    becomes: str
    difference: str = ""
    remarks: Mapping[str, str] | None = None

    def remark(self, value: object) -> str:
        """Return the remark for people about a value, "" for none."""
        if self.remarks is not None:
            return self.remarks.get(str(value.value if isinstance(value, Enum) else value), "")
        return "" if self.becomes else self.difference


def _quotas(cells: str) -> dict[str, KueueField]:
    """The fields of `resourceGroups`, which ClusterQueues and Cohorts share."""
    of = "spec.resourceGroups[]"
    one = f"{of}.flavors[].resources[]"
    return {
        f"{of}.coveredResources[]": KueueField(Text("the name of a resource"), "`min` and `max` of a quota name it"),
        f"{of}.flavors[].name": KueueField(_NAME, "a leaf cell type"),
        f"{one}.name": KueueField(
            Text("the name of a resource"), "the device of a leaf cell, or a resource of the quota"
        ),
        f"{one}.nominalQuota": KueueField(_QUANTITY, cells),
        f"{one}.borrowingLimit": KueueField(
            _QUANTITY, "`max` of its quota is `min` and so much more", "the sum of its flavors"
        ),
        f"{one}.lendingLimit": KueueField(
            _QUANTITY, "`alibabacloud.com/lendlimit` of its quota", "the sum of its flavors"
        ),
    }


ALWAYS_RECLAIMED = "owners always take lent cells back, whatever the priority of the borrower"
NEVER_BORROWED = "a borrower evicts no job that runs on its own cells"

FIELDS: dict[str, dict[str, KueueField]] = {
    "ResourceFlavor": {
        "spec.nodeLabels": KueueField(
            _LABELS, "`skuTypes.TYPE.nodeLabels`", "a pod chooses the type by these labels in its nodeSelector"
        ),
        "spec.nodeTaints": KueueField(_WHOLE, "", "taints stay on the nodes; pods need tolerations of their own"),
        "spec.tolerations": KueueField(_WHOLE, "", "hived adds no toleration: write them into the pod templates"),
        "spec.topologyName": KueueField(_NAME, "the levels of cells", "all cells have the same levels"),
        "spec.resourceWeights": KueueField(_WHOLE, "", "shares have no weights by resource"),
    },
    "Topology": {
        "spec.levels[].nodeLabel": KueueField(
            Text("the name of a node label"), "`cellTypes` and `topologyLevels`", "devices and nodes are cells as well"
        ),
    },
    "ClusterQueue": {
        **_quotas("`virtualCells[].cellNumber`, and `min` of its quota"),
        "spec.cohort": KueueField(_NAME, "the parent of its quota", "v1beta1's word for `cohortName`"),
        "spec.cohortName": KueueField(_NAME, "the parent of its quota"),
        "spec.queueingStrategy": KueueField(
            Choice(QueueingStrategy),
            "`queues.policy`, or `spec.queuePolicy` of its Queue",
            "`StrictFIFO` becomes `Block`, `BestEffortFIFO` `Priority`; `hived` reserves a start instead",
        ),
        "spec.namespaceSelector": KueueField(
            _WHOLE,
            "`virtualClusters.NAME.namespaces`",
            "the namespaces of its LocalQueues; the selector itself where it has no LocalQueue",
        ),
        "spec.flavorFungibility": KueueField(_WHOLE, "", "a pod without a leaf cell type gets any type that fits"),
        "spec.preemption.reclaimWithinCohort": KueueField(
            Choice(ReclaimPolicy),
            "always as `Any`",
            ALWAYS_RECLAIMED,
            {"Never": ALWAYS_RECLAIMED, "LowerPriority": ALWAYS_RECLAIMED},
        ),
        "spec.preemption.withinClusterQueue": KueueField(
            Choice(WithinPolicy),
            "always as `LowerPriority`",
            "a higher priority preempts a lower one in its virtual cluster; equals never do",
            {
                "Never": "a higher priority preempts lower ones: give all jobs one priority to have none preempted",
                "LowerOrNewerEqualPriority": "jobs of equal priority never preempt each other",
            },
        ),
        "spec.preemption.borrowWithinCohort.policy": KueueField(
            Choice(BorrowPolicy), "always as `Never`", NEVER_BORROWED, {"LowerPriority": NEVER_BORROWED}
        ),
        "spec.preemption.borrowWithinCohort.maxPriorityThreshold": KueueField(
            Integer("a whole number", -(2**31)), "", NEVER_BORROWED
        ),
        "spec.admissionChecks[]": KueueField(
            _NAME, "see AdmissionCheck", "v1beta1's word for `admissionChecksStrategy`"
        ),
        "spec.admissionChecksStrategy.admissionChecks[].name": KueueField(_NAME, "see AdmissionCheck"),
        "spec.admissionChecksStrategy.admissionChecks[].onFlavors": KueueField(_WHOLE, "", "checks are Kueue's"),
        "spec.stopPolicy": KueueField(
            Choice(StopPolicy),
            "`kube-queue/max-jobs: 0` in `max` of its quota",
            "it [stops the queue](quotas.md#stop-a-queue): jobs that run go on until they end",
            {"HoldAndDrain": "none starts (kube-queue/max-jobs: 0), but jobs that run go on: hived delete ends them"},
        ),
        "spec.fairSharing.weight": KueueField(_QUANTITY, "`virtualClusters.NAME.queue.weight`", "above 0"),
        "spec.admissionScope": KueueField(
            _WHOLE, "", "set `queues.halfLifeMinutes` for borrowed use of the past to count in the order"
        ),
        "spec.concurrentAdmissionPolicy": KueueField(_WHOLE, "", "a job starts once, on the cells that it gets"),
    },
    "Cohort": {
        **_quotas(
            "`min` of its quota",
        ),
        "spec.parentName": KueueField(_NAME, "the parent of its quota"),
        "spec.fairSharing.weight": KueueField(
            _QUANTITY, "", "shares are those of ClusterQueues alone: give these the weights"
        ),
    },
    "LocalQueue": {
        "spec.clusterQueue": KueueField(
            _NAME, "the namespace in `namespaces` of the virtual cluster and of the quota", "else a label of the job"
        ),
        "spec.stopPolicy": KueueField(
            Choice(StopPolicy),
            "",
            "a namespace is not stopped: `hived hold` its jobs",
            dict.fromkeys(("Hold", "HoldAndDrain"), "a namespace is not stopped: hived hold its jobs"),
        ),
        "spec.fairSharing": KueueField(_WHOLE, "", "namespaces of one quota share it in the order of its queue"),
        "spec.wallTimePolicy": KueueField(_WHOLE, "", "quotas count what is in use, not hours"),
    },
    "WorkloadPriorityClass": {
        "value": KueueField(
            Integer("a whole number", -(2**31)),
            "`priorityClasses`",
            "1 to 1000 in the same order if one is beyond; below 0 is `-1`, opportunistic; pods name a PriorityClass "
            "of this name",
        ),
        "description": KueueField(_WHOLE, "a comment"),
    },
    "AdmissionCheck": {
        "spec.controllerName": KueueField(
            Text("the name of a controller"),
            "none needed for hived's own check",
            "queues hold cells before a job starts; checks of others have no counterpart",
        ),
        "spec.retryDelayMinutes": KueueField(_WHOLE, "", "checks are Kueue's"),
        "spec.parameters": KueueField(_WHOLE, "", "checks are Kueue's"),
    },
}

LEFT_OUT = {
    "MultiKueueConfig": "hived has one cluster",
    "MultiKueueCluster": "hived has one cluster",
    "ProvisioningRequestConfig": "hived asks for no nodes: see `hived config sync --max` for nodes to come",
    "Workload": "jobs are read from their own objects",
}
"""Kinds of Kueue that become nothing, and why."""


BEGIN, END = "<!-- fields -->\n", "<!-- end of fields -->\n"


def as_markdown() -> str:
    """The tables of docs/migration-kueue.md: fields that become something, and those without a counterpart."""
    lines = ["| Kueue | hived | difference |", "|---|---|---|"]
    lost = ["| Kueue | in its place |", "|---|---|"]
    for kind, fields in FIELDS.items():
        for path, field in fields.items():
            if field.becomes:
                lines.append(f"| {kind} `{path}` | {field.becomes} | {field.difference} |")
            else:
                lost.append(f"| {kind} `{path}` | {field.difference} |")
    lost += [f"| {kind} | {why} |" for kind, why in LEFT_OUT.items()]
    return "\n".join([*lines, "", "## No counterpart", "", *lost]) + "\n"


def with_tables(page: str) -> str:
    """The page with its tables as the fields are now."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{as_markdown()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":  # python -m hived_cli.migrate.fields docs/migration-kueue.md
    path = Path(sys.argv[1])
    path.write_text(with_tables(path.read_text(encoding="utf-8")), encoding="utf-8")
