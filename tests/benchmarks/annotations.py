"""The scheduling spec of a pod as its author writes it: in JSON, and in YAML as the README and HiveD show it."""

import json

from hived.values.specs import PodRequest


def spec_json(pod: PodRequest) -> str:
    """As `hived submit` writes it."""
    spec = pod.spec
    members = [{"podNumber": one.pod_count, "leafCellNumber": one.leaf_cell_count} for one in spec.group.members]
    wanted = {
        "virtualCluster": spec.virtual_cluster,
        "priority": spec.priority,
        "leafCellNumber": spec.leaf_cell_count,
        "affinityGroup": {"name": spec.group.name, "members": members},
    }
    if spec.lazy_preemption:
        wanted["lazyPreemptionEnable"] = True
    return json.dumps(wanted)


def spec_yaml(pod: PodRequest) -> str:
    """The same by hand."""
    spec = pod.spec
    lines = [f"virtualCluster: {spec.virtual_cluster}", f"priority: {spec.priority}"]
    lines += [f"leafCellNumber: {spec.leaf_cell_count}", "affinityGroup:", f"  name: {spec.group.name}", "  members:"]
    for one in spec.group.members:
        lines += [f"  - podNumber: {one.pod_count}", f"    leafCellNumber: {one.leaf_cell_count}"]
    lines += ["lazyPreemptionEnable: true"] if spec.lazy_preemption else []
    return "\n".join(lines) + "\n"
