"""The state that inputs describe: a core that was told of the same nodes, pods and reservations as the service's."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import msgspec
import numpy as np

from hived.cells.state import State
from hived.cells.topology import NO_CELL
from hived.scheduler import handle, new_state
from hived.values.errors import UserError
from hived.values.events import GroupReserved, LeavesLost, NodeHealthChanged, PodAllocated
from hived.values.specs import BindInfo, ClusterSpec, PodPlacement, PodRequest, PodSpec, WorkTimes
from hived_extender.api.defrag import InputGroup, InputPod, Inputs
from hived_extender.defrag.kube_facts import KubeFacts
from hived_extender.pods.annotations import read_spec
from hived_extender.service.state_inputs import Placed, in_replay_order


class Running(msgspec.Struct, frozen=True):
    """A group of the inputs: the requests of its pods, with their places, and its entry there."""

    name: str
    requests: tuple[PodRequest, ...]
    infos: tuple[BindInfo, ...]
    entry: InputGroup


class Copy(msgspec.Struct, frozen=True):
    """A state of its own, made of inputs. `refused` are groups whose place cannot be, with why; they are left
    out. `at` is the time of the inputs. `facts` are about Kubernetes' own rules, None where nothing is known.
    """

    state: State
    running: Mapping[str, Running]
    refused: Mapping[str, str]
    at: float
    facts: KubeFacts | None = None


def read_groups(inputs: Inputs) -> dict[str, Running]:
    """The groups by name. Raises UserError for a spec that cannot be read, or a pod without a place of its group."""
    found: dict[str, Running] = {}
    for entry in inputs.groups:
        spec = spec_of(entry.spec)
        if spec.group.name in found:
            raise UserError(f"affinity group {spec.group.name} is listed twice")
        found[spec.group.name] = _running(spec, entry)
    return found


def spec_of(fields: Mapping[str, object]) -> PodSpec:
    """A spec as `pods.annotations.spec_fields` writes it. Raises UserError."""
    spec = read_spec(msgspec.json.encode(fields).decode(), ignores_by_default=True)
    beside = fields.get("beside", "")
    return spec if not isinstance(beside, str) or not beside else replace(spec, beside=beside)


def copy_of(cluster: ClusterSpec, inputs: Inputs) -> Copy:
    """A state that was told of all inputs. Cost O(cells + pods)."""
    running = read_groups(inputs)
    state = new_state(cluster)
    bad = frozenset(inputs.bad_nodes)
    for node in state.topology.node_names:
        if node not in bad:
            handle(state, NodeHealthChanged(node, True))
    refused: dict[str, str] = {}
    for placed in in_replay_order(_placed(running.values())):
        try:
            handle(state, PodAllocated(placed.request, placed.info, times=placed.times))
        except UserError as error:
            refused[placed.request.spec.group.name] = error.message
    for loss in inputs.losses:
        handle(state, LeavesLost(loss.node, loss.leaf_type, loss.count, loss.known))
    for name in sorted(name for name, group in running.items() if group.entry.is_reserved):
        try:
            handle(state, GroupReserved(running[name].requests, running[name].infos[0]))
        except UserError as error:
            refused[name] = error.message
    return Copy(state, running, refused, inputs.at, _facts(state, inputs))


def _facts(state: State, inputs: Inputs) -> KubeFacts | None:
    """Raises UserError for facts that cannot be read."""
    if inputs.rules is None:
        return None
    arrays, names = state.arrays, state.topology.node_names
    is_leaf = (arrays.level == 1) & (arrays.vc == NO_CELL)
    leaf_counts = np.bincount(arrays.node[is_leaf], minlength=len(names)).astype(np.int32)
    try:
        return KubeFacts(inputs.rules, names, leaf_counts)
    except (msgspec.ValidationError, IndexError) as error:
        raise UserError(f"the rules of the inputs cannot be read: {error}") from None


def _placed(groups: Iterable[Running]) -> Iterator[Placed]:
    for group in groups:
        if not group.entry.is_reserved:
            times = WorkTimes(group.entry.started_at, group.entry.checkpointed_at)
            yield from (Placed(*one, times) for one in zip(group.requests, group.infos, strict=True))


def _running(spec: PodSpec, entry: InputGroup) -> Running:
    places = tuple(tuple(PodPlacement(one.node, one.cells, one.types) for one in size) for size in entry.places)
    known = {(one.node, one.leaf_cell_indices) for size in places for one in size}
    specs: dict[int, PodSpec] = {}
    requests, infos = [], []
    for pod in entry.pods:
        size = len(pod.cells)
        if (pod.node, pod.cells) not in known:
            raise UserError(
                f"pod {pod.namespace}/{pod.name} is not at a place of its affinity group {spec.group.name}: "
                f"{pod.node} {list(pod.cells)} is not among its places"
            )
        if size not in specs:
            specs[size] = _sized(spec, size)
        requests.append(_request(pod, specs[size]))
        infos.append(BindInfo(pod.node, pod.cells, entry.chain, places))
    if not requests:
        raise UserError(f"affinity group {spec.group.name} has no pods")
    return Running(spec.group.name, tuple(requests), tuple(infos), entry)


def _request(pod: InputPod, spec: PodSpec) -> PodRequest:
    return PodRequest(pod.uid, pod.name, pod.namespace, spec)


def _sized(spec: PodSpec, size: int) -> PodSpec:
    return spec if spec.leaf_cell_count == size else replace(spec, leaf_cell_count=size)
