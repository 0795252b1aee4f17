"""Koordinator's annotations, which ACK and DLRover use as well.

The name of the gang is that of the coscheduling labels if the pod has them.
"""

from msgspec.structs import replace

from hived.values.errors import UserError
from hived_extender.jobs.document import Part, count, duration_s, name, one_of
from hived_extender.jobs.kinds.description import Description, GangKey, Lookup, gangs, match_policy
from hived_extender.jobs.kinds.kind import ANNOTATIONS, LABELS, Dialect, Source, ignores, reads, refuses, says
from hived_extender.jobs.wire import Pod

PREFIX = "gang.scheduling.koordinator.sh/"
GANG_NAME = PREFIX + "name"
MINIMUM = PREFIX + "min-available"
TOTAL = PREFIX + "total-number"
WAITING_TIME = PREFIX + "waiting-time"
MODE = PREFIX + "mode"
GROUPS = PREFIX + "groups"
MATCH_POLICY = PREFIX + "match-policy"
PODGROUP_LABEL = "pod-group.scheduling.sigs.k8s.io"
GROUP_NAME = "pod-group.scheduling.sigs.k8s.io/name"
MIN_AVAILABLE = "pod-group.scheduling.sigs.k8s.io/min-available"
"""Labels that name a gang or its PodGroup, and its minimum; `coscheduling` reads them too."""

_KEYS = frozenset({GANG_NAME, MINIMUM, TOTAL, WAITING_TIME, MODE, GROUPS, MATCH_POLICY})
SCHEDULING = "scheduling.koordinator.sh/"
(NETWORK_TOPOLOGY,) = refuses(
    ANNOTATIONS, "pods gathered in a layer of the network", PREFIX + "network-topology-spec", when=says("MustGather")
)
_VOCABULARY = (
    *reads(ANNOTATIONS, GANG_NAME, MINIMUM, TOTAL, WAITING_TIME, MODE, GROUPS, MATCH_POLICY),
    *reads(LABELS, PODGROUP_LABEL),
    NETWORK_TOPOLOGY,
    *ignores(ANNOTATIONS, "an order of pods within the network", PREFIX + "network-topology-index"),
    *ignores(ANNOTATIONS, "written by its scheduler", PREFIX + "timeout"),
    *refuses(ANNOTATIONS, "a Reservation", SCHEDULING + "reservation-affinity"),
    *refuses(
        ANNOTATIONS,
        "devices of one scope",
        SCHEDULING + "device-joint-allocate",
        SCHEDULING + "device-allocate-hint",
        when=says("requiredScope", "requiredTopologyScope", "elector", "exclusivePolicy"),
    ),
    *refuses(ANNOTATIONS, "a partition of GPUs", SCHEDULING + "gpu-partition-spec", when=says("Restricted")),
    *refuses(
        ANNOTATIONS,
        "one NUMA node",
        SCHEDULING + "numa-topology-spec",
        when=says("SingleNUMANode", "Restricted", "Required"),
    ),
    *refuses(ANNOTATIONS, "CPUs bound to the pod", SCHEDULING + "resource-spec", when=says("requiredCPUBindPolicy")),
    *ignores(LABELS, "read by its agent on the node", "koordinator.sh/qosClass"),
)


def _describe(pod: Pod, _objects: Lookup) -> Description | None:
    if _KEYS.isdisjoint(pod.annotations):
        return None
    labels, annotations = Part("label ", pod.labels), Part("annotation ", pod.annotations)
    said = replace(options(annotations), minimum=annotations.read(MINIMUM, count))
    group = labels.read(PODGROUP_LABEL, name) or labels.read(GROUP_NAME, name)
    if group is None:
        group = annotations.read(GANG_NAME, name)
        if group is not None and said.minimum is None and MIN_AVAILABLE not in labels:
            raise UserError(f"annotation {GANG_NAME} is there, but no minimum: set annotation {MINIMUM} as well")
    return said if group is None else replace(said, gang=GangKey(pod.metadata.namespace, group))


def options(annotations: Part) -> Description:
    """The gang as annotations of a pod or a PodGroup describe it, without name and minimum."""
    mode = annotations.read(MODE, one_of("Strict", "NonStrict"))
    return Description(
        KOORDINATOR.name,
        total=annotations.read(TOTAL, count),
        groups=annotations.read(GROUPS, gangs),
        match_policy=annotations.read(MATCH_POLICY, match_policy),
        is_strict=None if mode is None else mode == "Strict",
        waiting_s=annotations.read(WAITING_TIME, duration_s),
    )


def _refusal(gang: GangKey, pod: str, _minimum: int, reason: str) -> str:
    return f'Gang "{gang}" gets rejected due to member Pod "{pod}" is unschedulable with reason "{reason}"'


KOORDINATOR = Dialect(
    "Koordinator",
    _VOCABULARY,
    _describe,
    _KEYS,
    waiting_s=600.0,
    refusal=_refusal,
)
SOURCE = Source(dialects=(KOORDINATOR,))
