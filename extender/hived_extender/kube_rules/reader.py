"""Reads the demands of pods, once for all pods of one template."""

from collections import OrderedDict
from weakref import WeakValueDictionary, ref

import msgspec

from hived_extender.kube_rules.demands import Demands, RuledPod, beyond_of, demands_of
from hived_extender.pods.wire import Pod, PodSpec

KEPT_TEXTS = 1024
KEPT_SIZE = 4096
"""Specs that a reader has read lately, and the bytes of each as JSON: a longer one is read anew for each pod."""


class DemandsReader:
    """Reads pods, and gives equal demands as one object.

    A rule of more than MOST_PARTS is left to kube-scheduler, unless the reader `is_unbounded`: it stands in for
    kube-scheduler.
    """

    def __init__(self, *, is_unbounded: bool = False) -> None:
        self._is_unbounded = is_unbounded
        self._known: WeakValueDictionary[Demands, Demands] = WeakValueDictionary()
        self._read: OrderedDict[bytes, ref[Demands]] = OrderedDict()  # by all that they were read from

    def read(self, pod: Pod) -> RuledPod:
        """The pod as the rules see it. Raises UserError if its affinity or its spread constraints cannot be read.

        Cost: 2 us for a pod like one that was read lately, else some 20.
        """
        source = _source(pod)
        kept = self._read.get(source)
        demands = kept() if kept is not None else None
        if demands is None:
            found = demands_of(pod, is_unbounded=self._is_unbounded)
            demands = self._known.setdefault(found, found)
            if source:
                self._read[source] = ref(demands)
                if len(self._read) > KEPT_TEXTS:
                    self._read.popitem(last=False)
        else:
            self._read.move_to_end(source)
        return RuledPod(pod.metadata.namespace, pod.labels, demands)


_encoder = msgspec.json.Encoder()


def _source(pod: Pod) -> bytes:
    """All that the demands of a pod follow from, the same for pods of one template; b"" if that is long.

    Volumes have names of their own in each pod, so only their consequence is part of it.
    """
    spec = pod.spec or PodSpec()
    has_rules = spec.affinity or spec.topology_spread_constraints
    parts = (
        spec.containers, spec.init_containers, spec.resources, spec.overhead, spec.tolerations, spec.node_selector,
        spec.affinity, spec.topology_spread_constraints, beyond_of(spec),
        (pod.metadata.namespace, pod.metadata.labels) if has_rules else None,
    )  # fmt: skip
    try:
        text = _encoder.encode(parts)
    except RecursionError:
        return b""
    return text if len(text) <= KEPT_SIZE else b""
