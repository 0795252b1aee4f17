"""The JSON schema (draft 7) of the scheduler's configuration file, for editors, and what the reference is made of.

A schema judges keys and kinds of values one by one; whether cells exist, fit and are given once is for the loader to
say. What the loader accepts is valid here, too: names may look like numbers (`cellAddress: 4`), and a key without a
value counts as left out. Beside the words of JSON schema, `x-default` is a default that is no value but a rule.
"""

from typing import Any

from hived.specs import MAX_GUARANTEED_PRIORITY, MAX_LEVELS, OPPORTUNISTIC_PRIORITY
from hived_config.access import Access, Operator
from hived_config.chains import MAX_CHILD_COUNT
from hived_config.json_schema import TEXT_TYPES, Schema, choice, integer, list_of, mapping, record, reference, text
from hived_config.reader import FALSES, INT64_MAX, TRUES
from hived_config.rules import GPU_DEVICE_CLASS, GPU_RESOURCE, PREEMPTIBLE, PRIORITY_WORDS, SCHEDULER_NAMES, Foreign
from hived_config.settings import Budgets, PreemptBy, Settings

_DEFAULTS = Settings()
_WORDS = ", ".join(f"`{word}` ({number})" for word, number in PRIORITY_WORDS.items() if number > 0)
_BOOLEAN_WORDS = sorted(word for word in TRUES | FALSES if word.lower() not in ("true", "false"))
"""What YAML 1.1 takes for a boolean, and editors for text."""

_PATH_PATTERN = r"^[^\s.]([^.]*[^\s.])?(\.[^\s.]([^.]*[^\s.])?)*$"
_QUANTITY_PATTERN = r"^[0-9]{1,15}(\.[0-9]{1,15})?(k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$"
_NAMESPACE_PATTERN = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
_LABEL_PATTERN = r"^([a-z0-9.-]+/)?[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$"
_LABEL_VALUE_PATTERN = r"^([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?$"
_RESOURCE_PATTERN = r"^[a-z0-9.-]+/[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$"
_DEVICE_CLASS_PATTERN = r"^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?)?$"
_NAME_PATTERN = r"^\S(.*\S)?$"
_ADDRESS_PATTERN = r"^([^/\s]([^/]*[^/\s])?)?$"
_LISTEN_PATTERN = r"^(\[[0-9A-Fa-f:.]+\]|[^:\[\]/\s]*):[0-9]{1,5}$"
_API_SERVER_PATTERN = r"^([Hh][Tt][Tt][Pp][Ss]?://)?(\[[0-9A-Fa-f:.]+\]|[^:\[\]/\s]+)(:[0-9]{1,5})?(/\S*)?$"


def _namespace_or(definition: str) -> Schema:
    """The name of a namespace, or a mapping of that definition."""
    return {"anyOf": [{"type": TEXT_TYPES, "pattern": _NAMESPACE_PATTERN}, reference(definition)]}


_CELL_TYPE = record(
    f"A cell type above the leaf cells. A chain has at most {MAX_LEVELS} levels, exactly one of them the node level.",
    {
        "childCellType": text(
            "the type of its children; a type that is not defined is a leaf cell type: one device",
            _NAME_PATTERN,
            is_nullable=False,
        ),
        "childCellNumber": integer("how many children a cell has, at least 1", 1, MAX_CHILD_COUNT),
        "isNodeLevel": {
            "description": "whether such a cell is one Kubernetes node",
            "enum": [True, False, *_BOOLEAN_WORDS, None],
            "default": False,
        },
    },
    required=("childCellType", "childCellNumber"),
)

_PHYSICAL_CELL = record(
    "A physical cell, with what is written of the cells below it.",
    {
        "cellType": text(
            "required for a top-level cell, which is at node level or above",
            rule="of a child: its parent's `childCellType`",
        ),
        "cellAddress": text(
            "its part of the address; for a cell at node level the name of the Kubernetes node, for a leaf cell the "
            "index of its device",
            _ADDRESS_PATTERN,
            rule="the cell's running index",
        ),
        "pinnedCellId": text("a name by which one virtual cluster can have exactly this cell"),
        "cellChildren": list_of(
            "its children, either all `childCellNumber` of them or none",
            reference("physicalCell"),
            rule="generated",
        ),
    },
)

_SKU_TYPE = record(
    "What one leaf cell of a type stands for to those who ask for devices, CPUs and memory.",
    {
        "gpu": integer(
            "devices; a type without any is only had by pods that name it in HiveD's own words",
            0,
            rule="`1`, but `0` where `cpu` or `memory` is given and no `resource`",
        ),
        "cpu": {"description": "CPUs", "type": "number", "minimum": 0, "default": 0},
        "memory": {
            "description": "memory, such as `4096Mi` or `32Gi`; a plain number is bytes",
            "type": ["string", "number"],
            "pattern": _QUANTITY_PATTERN,
            "minimum": 0,
            "default": 0,
        },
        "resource": {
            "description": "the resource that a device is to Kubernetes",
            "type": "string",
            "pattern": _RESOURCE_PATTERN,
            "default": GPU_RESOURCE,
        },
        "deviceClass": text(
            "the DeviceClass by which claims ask for its devices; `''` for none",
            _DEVICE_CLASS_PATTERN,
            rule=f"`{GPU_DEVICE_CLASS}` where `resource` is `{GPU_RESOURCE}`",
        ),
        "nodeLabels": mapping(
            "labels that its nodes have; a pod whose nodeSelector has one of them wants this type",
            text("the value of the label", _LABEL_VALUE_PATTERN),
            names=_LABEL_PATTERN,
        ),
    },
    is_nullable=True,
)

_VIRTUAL_CELL = record(
    "Cells of one type that a virtual cluster is promised.",
    {
        "cellType": text(
            "a path down a chain, `CHAIN.TYPE.TYPE`: the first part names the chain, the last one the type of the "
            "promised cells",
            _PATH_PATTERN,
            is_nullable=False,
        ),
        "cellNumber": integer("how many", 0),
    },
    required=("cellType", "cellNumber"),
)

_PINNED_CELL = record(
    "A pinned cell that a virtual cluster has.",
    {
        "pinnedCellId": text(
            "the id of a physical cell that no other virtual cluster uses", _NAME_PATTERN, is_nullable=False
        )
    },
    required=("pinnedCellId",),
)


def _priority(description: str, **more: Any) -> Schema:
    """A priority in words or as a number."""
    words: Schema = {"enum": [*PRIORITY_WORDS, PREEMPTIBLE, *([None] if more else [])]}
    number: Schema = {"type": "integer", "minimum": OPPORTUNISTIC_PRIORITY, "maximum": MAX_GUARANTEED_PRIORITY}
    return {"description": description, "anyOf": [words, number], **more}


_SELECTION: dict[str, Schema] = {
    "name": {
        "description": "the name of a namespace; an entry has either this or a selector",
        "type": TEXT_TYPES,
        "pattern": _NAMESPACE_PATTERN,
    },
    "matchLabels": mapping(
        "labels that a namespace has to have, all of them",
        text("the value of the label", _LABEL_VALUE_PATTERN),
        names=_LABEL_PATTERN,
    ),
    "matchExpressions": list_of("further conditions that a namespace has to fulfil", reference("condition")),
}

_CONDITION = record(
    "A condition on a label of a namespace, as in a Kubernetes label selector.",
    {
        "key": text("the name of the label", _LABEL_PATTERN, is_nullable=False),
        "operator": {
            "description": "how the label is compared with `values`, or whether there is one",
            "enum": [each.value for each in Operator],
        },
        "values": list_of(
            "at least one with `In` and `NotIn`, none with the others",
            text("a value of the label", _LABEL_VALUE_PATTERN),
        ),
    },
    required=("key", "operator"),
)

_NAMESPACE = record(
    "Namespaces that may use a virtual cluster: one by its name, or all that a selector chooses.",
    {
        **_SELECTION,
        "maxPriority": _priority(
            "the highest priority that they have in this virtual cluster; only with `access: namespaces`",
            default=MAX_GUARANTEED_PRIORITY,
        ),
    },
)

_OPPORTUNIST = record("Namespaces that may run opportunistically.", _SELECTION)

_OPPORTUNISTIC = record(
    "Who may run opportunistically (priority -1).",
    {
        "namespaces": list_of(
            "names of namespaces, or selectors without `maxPriority`; `[]` for none",
            _namespace_or("opportunist"),
            is_nullable=False,
        )
    },
    required=("namespaces",),
    is_nullable=True,
)

_VIRTUAL_CLUSTER = record(
    "What one virtual cluster is promised, and who may use it.",
    {
        "virtualCells": list_of("how many cells of which type it is promised", reference("virtualCell")),
        "pinnedCells": list_of("which pinned cells are its own", reference("pinnedCell")),
        "namespaces": list_of(
            "who may use it, each a name or a mapping: see [who may use what](#who-may-use-what); their pods are its "
            "own unless they name another virtual cluster",
            _namespace_or("namespace"),
        ),
        "maxPriority": _priority(
            "the highest priority that any pod has in it: a number, or a word as in `priorityClasses`",
            default=MAX_GUARANTEED_PRIORITY,
        ),
        "placement": choice(
            "`topology`: its gangs are kept below the lowest cell that has room, then where the fewest cells are "
            "broken; `packed`: as HiveD does it, also gangs of other dialects whose pods fill nodes",
            "topology",
            "packed",
            rule="as HiveD does, but gangs of other dialects whose pods fill nodes near together",
        ),
    },
    is_nullable=True,
)

_PHYSICAL_CLUSTER = record(
    "The hardware.",
    {
        "cellTypes": mapping(
            "by name, the cell types above the leaf cells",
            reference("cellType"),
            is_nullable=False,
            names=_NAME_PATTERN,
        ),
        "physicalCells": list_of(
            "the trees of cells there are; at least one",
            {
                "allOf": [
                    reference("physicalCell"),
                    {"required": ["cellType"], "properties": {"cellType": {"type": TEXT_TYPES}}},
                ]
            },
            is_nullable=False,
            minItems=1,
        ),
        "skuTypes": mapping(
            "by leaf cell type, what one leaf cell stands for to those who ask for devices, CPUs and memory; placement "
            "does not look at it",
            reference("skuType"),
        ),
    },
    required=("cellTypes", "physicalCells"),
)

_DOCUMENT: dict[str, Schema] = {
    "physicalCluster": {
        "description": "the hardware: what kinds of cells there are, and which cells",
        "allOf": [reference("physicalCluster")],
    },
    "virtualClusters": mapping(
        "by name, what each virtual cluster is promised; may be `{}`",
        reference("virtualCluster"),
        is_nullable=False,
        names=r"^[^/\s]([^/]*[^/\s])?$",
    ),
    "access": choice(
        "who may use a virtual cluster: `namespaces`, those that it lists, or `everybody`: see [who may use "
        "what](#who-may-use-what)",
        *(each.value for each in Access),
        default=Access.EVERYBODY.value,
    ),
    "opportunistic": {
        "description": "the namespaces that may run opportunistically: see [who may use what](#who-may-use-what)",
        "anyOf": [reference("opportunistic"), {"type": "null"}],
        "x-default": "every namespace, in a virtual cluster that it may use",
    },
    "schedulerNames": list_of(
        "what pods have as schedulerName if they are for hived; `{vc}` stands for each virtual cluster in lower case",
        {"type": TEXT_TYPES, "pattern": r"^[^{}\s]?(\{vc\}|[^{}])*$", "minLength": 1},
        minItems=1,
        default=list(SCHEDULER_NAMES),
    ),
    "priorityClasses": mapping(
        f"by name of a PriorityClass, the priority: `{OPPORTUNISTIC_PRIORITY}` (opportunistic, also `{PREEMPTIBLE}` or "
        f"`oppo`) to `{MAX_GUARANTEED_PRIORITY}`, or {_WORDS}",
        _priority("the priority of pods with that PriorityClass"),
    ),
    "topologyLevels": mapping(
        "by what topology wishes call a level, the cell type: see [topology wishes](#topology-wishes)",
        {"description": "a cell type of `cellTypes`", "type": TEXT_TYPES},
    ),
    "foreignDevices": mapping(
        "by device resource, what follows from pods that use it without having got it from hived: `occupy` (default) "
        "takes as many leaf cells of their node out of use, `ignore` nothing, `refuse` as `occupy`, and the admission "
        "webhook refuses the pods of other schedulers: see [devices](devices.md)",
        {"enum": [each.value for each in Foreign]},
        names=_RESOURCE_PATTERN,
    ),
    "kubeApiServerAddress": text(
        "`http[s]://host:port`; goes before the address in the kubeconfig file",
        _API_SERVER_PATTERN,
        rule="`${KUBE_APISERVER_ADDRESS}`",
    ),
    "kubeConfigFilePath": text(
        "a kubeconfig file with the credentials to use",
        rule="`${KUBECONFIG}`, else `${HOME}/.kube/config`, if there is such a file",
    ),
    "webServerAddress": text(
        "`[host]:port` to listen on; without a host, on every interface",
        _LISTEN_PATTERN,
        default=_DEFAULTS.web_server_address,
    ),
    "forcePodBindThreshold": integer(
        "after this many filter calls for a pod that is being bound and says `ignoreK8sSuggestedNodes: true`, the "
        "scheduler binds it itself",
        0,
        is_nullable=True,
        default=_DEFAULTS.force_pod_bind_threshold,
    ),
    "waitingPodSchedulingBlockMilliSec": integer(
        "how long the filter call of a pod that has to wait is held back, in milliseconds: a stricter order of arrival "
        "for less throughput",
        0,
        INT64_MAX,
        is_nullable=True,
        default=_DEFAULTS.waiting_pod_block_ms,
    ),
    "preemptionBy": choice(
        "who makes the victims of a preemption leave: `service` (evicts them itself; always completes) or "
        "`kube-scheduler` (through the preempt verb; see [preemption](preemption.md))",
        *(each.value for each in PreemptBy),
        default=_DEFAULTS.preempt_by.value,
    ),
    "podDisruptionBudgets": choice(
        "what the service does about a victim that a PodDisruptionBudget protects: `override` deletes it after "
        "`evictionGraceSeconds`, `respect` waits for as long as the budget stands",
        *(each.value for each in Budgets),
        default=_DEFAULTS.disruption_budgets.value,
    ),
    "evictionGraceSeconds": integer(
        "how long a refused eviction is tried before the victim is deleted",
        0,
        is_nullable=True,
        default=_DEFAULTS.eviction_grace_s,
    ),
}

SCHEMA: Schema = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "HiveD scheduler configuration",
    **record(
        "The cluster, how it is divided, and how the scheduler runs.",
        _DOCUMENT,
        required=("physicalCluster", "virtualClusters"),
    ),
    "definitions": {
        "physicalCluster": _PHYSICAL_CLUSTER,
        "cellType": _CELL_TYPE,
        "physicalCell": _PHYSICAL_CELL,
        "skuType": _SKU_TYPE,
        "virtualCluster": _VIRTUAL_CLUSTER,
        "namespace": _NAMESPACE,
        "condition": _CONDITION,
        "opportunistic": _OPPORTUNISTIC,
        "opportunist": _OPPORTUNIST,
        "virtualCell": _VIRTUAL_CELL,
        "pinnedCell": _PINNED_CELL,
    },
}
