"""How much of each resource a pod counts for in quotas: what Kubernetes sets aside for it, and its cells."""

from collections.abc import Mapping

from hived.values.specs import ClusterSpec
from hived_config.rules import PodRules
from hived_extender.jobs.asks import taken_away
from hived_extender.jobs.requests import all_requested, own_requests
from hived_extender.jobs.wire import ENABLE_LIMIT, Pod


def amounts_of(pod: Pod) -> dict[str, float]:
    """The amounts that a pod asks for by resource, with the devices that the admission webhook has taken away.

    The limit that makes a pod ours is no amount of anything.

    Raises UserError for an annotation of the webhook that cannot be read. Cost O(containers x resources).
    """
    taken = taken_away(pod)
    return dict([taken] if taken else ()) | all_requested(pod, _resources(pod))


class CellAmounts:
    """The devices that leaf cells stand for. Whatever the containers of a pod say, it has the devices of its cells."""

    def __init__(self, cluster: ClusterSpec, rules: PodRules) -> None:
        skus = cluster.sku_types
        self._devices = {
            leaf_type: (resource, float(skus[leaf_type].gpu if leaf_type in skus else 1))
            for leaf_type, resource in rules.resources_in(cluster).items()
        }

    def at_least(self, amounts: Mapping[str, float], leaf_type: str, leaf_count: int) -> dict[str, float]:
        """The amounts of pods that have so many leaf cells together, or would have them; any type if it is "".

        Of any type, each resource that the pods name counts; all of them if they name none.
        """
        found = dict(amounts)
        if leaf_type in self._devices:
            devices = [self._devices[leaf_type]]
        else:
            devices = [each for each in self._devices.values() if each[0] in amounts] or list(self._devices.values())
        for resource, per_leaf in devices:
            found[resource] = max(found.get(resource, 0.0), per_leaf * leaf_count)
        return found


def _resources(pod: Pod) -> set[str]:
    spec = pod.spec
    if spec is None:
        return set()
    names = {name for each in (*(spec.containers or ()), *(spec.init_containers or ())) for name in own_requests(each)}
    whole = spec.resources
    said = ((whole.limits or {}).keys() | (whole.requests or {}).keys()) if whole is not None else set()
    return (names | said | (spec.overhead or {}).keys()) - {ENABLE_LIMIT}
