"""Koordinator's annotations, which ACK and DLRover use as well.

The name of the gang is that of the coscheduling labels if the pod has them.
"""

from msgspec.structs import replace

from hived.values.errors import UserError
from hived_extender.jobs.dialects.coscheduling_labels import GROUP_NAME, MIN_AVAILABLE
from hived_extender.jobs.dialects.description import Description, GangKey, Lookup
from hived_extender.jobs.dialects.vocabulary import ANNOTATIONS, LABELS, ignores, reads, refuses, says
from hived_extender.jobs.dialects.words import Words, count, duration_s, gangs, match_policy, name, one_of
from hived_extender.jobs.wire import Pod

NAME = "Koordinator"
PREFIX = "gang.scheduling.koordinator.sh/"
GANG_NAME = PREFIX + "name"
MINIMUM = PREFIX + "min-available"
TOTAL = PREFIX + "total-number"
WAITING_TIME = PREFIX + "waiting-time"
MODE = PREFIX + "mode"
GROUPS = PREFIX + "groups"
MATCH_POLICY = PREFIX + "match-policy"
PODGROUP_LABEL = "pod-group.scheduling.sigs.k8s.io"
KEYS = frozenset({GANG_NAME, MINIMUM, TOTAL, WAITING_TIME, MODE, GROUPS, MATCH_POLICY})
WAITING_S = 600.0
SCHEDULING = "scheduling.koordinator.sh/"
(NETWORK_TOPOLOGY,) = refuses(
    ANNOTATIONS, "pods gathered in a layer of the network", PREFIX + "network-topology-spec", when=says("MustGather")
)
VOCABULARY = (
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


def describe(pod: Pod, _objects: Lookup) -> Description | None:
    """The gang of the annotations, if there are any. UserError for a name without a minimum."""
    if KEYS.isdisjoint(pod.annotations):
        return None
    labels, annotations = Words("label ", pod.labels), Words("annotation ", pod.annotations)
    said = replace(options(annotations), minimum=annotations.read(MINIMUM, count))
    group = labels.read(PODGROUP_LABEL, name) or labels.read(GROUP_NAME, name)
    if group is None:
        group = annotations.read(GANG_NAME, name)
        if group is not None and said.minimum is None and not labels.has(MIN_AVAILABLE):
            raise UserError(f"annotation {GANG_NAME} is there, but no minimum: set annotation {MINIMUM} as well")
    return said if group is None else replace(said, gang=GangKey(pod.metadata.namespace, group))


def options(annotations: Words) -> Description:
    """The gang as annotations of a pod or a PodGroup describe it, name and minimum left aside."""
    mode = annotations.read(MODE, one_of("Strict", "NonStrict"))
    return Description(
        NAME,
        total=annotations.read(TOTAL, count),
        groups=annotations.read(GROUPS, gangs),
        match_policy=annotations.read(MATCH_POLICY, match_policy),
        is_strict=None if mode is None else mode == "Strict",
        waiting_s=annotations.read(WAITING_TIME, duration_s),
    )
