"""The cells that a Workload needs: all its pods as one affinity group, and the words that its pods have to get.

A pod set is read as a pod of it would be. Where the pods themselves say less than the Workload, such as no virtual
cluster where the ClusterQueue has its name, `podSetUpdates` have it: hived then reads the same from the pods.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from hived.values.errors import UserError
from hived.values.specs import OPPORTUNISTIC_PRIORITY, GroupSpec, MemberSpec, PodSpec
from hived_config.words import counted
from hived_extender.jobs.asks import PRIORITY, VIRTUAL_CLUSTER, Ask
from hived_extender.jobs.bind_info import asks_in_own_words
from hived_extender.jobs.interpreter import Interpreter
from hived_extender.jobs.kinds import kueue
from hived_extender.jobs.kinds.description import Description
from hived_extender.jobs.kinds.marks import HOLD
from hived_extender.jobs.wire import Pod, PodMetadata
from hived_extender.jobs.wire import PodSpec as WirePodSpec
from hived_extender.queues.kueue.workloads import Object, PodSet, Workload

MOST_PODS = 2**14
"""Pods of one Workload; each takes a slot of its own."""


class Gang(msgspec.Struct, frozen=True):
    """`spec` is the whole gang as one affinity group, whose name is the Workload's key.

    `pods` has for each slot a pod as its controller will make it, with the labels of nodes that Kueue wants. `updates`
    are `podSetUpdates` as JSON has them. `sets` has the pod set of each slot.
    """

    spec: PodSpec
    pods: tuple[Pod, ...] = ()
    updates: tuple[Object, ...] = ()
    sets: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """The gang as people read it, such as "2 pods x 8 A100 in virtual cluster a at priority 0"."""
        spec = self.spec
        leaf = spec.pinned_cell_id or spec.leaf_cell_type or "devices"
        sizes = " and ".join(
            f"{counted(each.pod_count, 'pod')} x {each.leaf_cell_count} {leaf}" for each in spec.group.members
        )
        if spec.priority == OPPORTUNISTIC_PRIORITY:
            return f"{sizes}, opportunistic, by virtual cluster {spec.virtual_cluster}"
        return f"{sizes} in virtual cluster {spec.virtual_cluster} at priority {spec.priority}"


class NoCells(msgspec.Struct, frozen=True):
    """Nothing is to be held, and `why`."""

    why: str


class _Role(msgspec.Struct, frozen=True):
    """The `pods` of one pod set; `spec` is of one of them, in a group without a name."""

    name: str
    pods: tuple[Pod, ...]
    spec: PodSpec
    words: Mapping[str, str]


def gang_of(
    workload: Workload, interpreter: Interpreter, flavors: Callable[[str], Mapping[str, str]]
) -> Gang | NoCells:
    """The cells that a Workload needs. `flavors` has the node labels of a ResourceFlavor by name.

    Raises UserError, which names the pod set, where the pods cannot be read, may not be there or are not one gang.
    """
    sets = [each for each in workload.pod_sets if each.count > 0]
    if sum(each.count for each in sets) > MOST_PODS:
        raise UserError(f"it has more than {MOST_PODS} pods: make several jobs of it")
    roles = [role for each in sets for role in _role(workload, each, interpreter, flavors)]
    if not roles:
        return NoCells("none of its pods asks hived for devices: hived holds no cells for it")
    _check_agreement(roles)
    roles.sort(key=lambda role: role.spec.leaf_cell_count)  # stable: in the order of the Workload within a size
    sizes: Counter[int] = Counter()
    for role in roles:
        sizes[role.spec.leaf_cell_count] += len(role.pods)
    members = tuple(MemberSpec(count, size) for size, count in sizes.items())
    spec = dataclasses.replace(roles[0].spec, group=GroupSpec(workload.key, members))
    pods = tuple(pod for role in roles for pod in role.pods)
    updates = tuple(_updates(workload, {role.name: role.words for role in roles}))
    return Gang(spec, pods, updates, tuple(role.name for role in roles for _ in role.pods))


def gang_elsewhere(
    workload: Workload, interpreter: Interpreter, flavors: Callable[[str], Mapping[str, str]]
) -> Gang | None:
    """The same gang, wherever its own words allow it, for one whose nodes Kueue has chosen one by one; else None.

    Kueue does not know cells: those of the nodes that it has chosen may be others' while there are others.
    """
    chosen = [labels for each in workload.pod_sets for labels, _ in each.domains]
    can_be_told = workload.job.api_version.endswith("/v1beta2")
    if not chosen or not can_be_told or any(labels.keys() != {kueue.HOST} for labels in chosen):
        return None
    sets = tuple(replace(each, domains=()) for each in workload.pod_sets)
    try:
        found = gang_of(replace(workload, pod_sets=sets), interpreter, flavors)
    except UserError:
        return None  # its words, such as slices, mean something to Kueue alone
    return found if isinstance(found, Gang) else None


def _role(
    workload: Workload, pod_set: PodSet, interpreter: Interpreter, flavors: Callable[[str], Mapping[str, str]]
) -> Iterator[_Role]:
    """The pod set as hived places it; none if its pods are for another scheduler, or take no cells."""
    try:
        pod = _pod(workload, pod_set, flavors)
        if not interpreter.is_ours(pod):
            return
        if asks_in_own_words(pod.annotations):
            spec, words = interpreter.own_spec(pod), dict[str, str]()
        else:
            placed = next(_pods(pod, pod_set))  # with the labels of the nodes that Kueue has chosen
            ask, words = _ask(workload, pod, interpreter.describe(placed), interpreter)
            if not ask.leaf_cell_count:
                return
            spec = ask.spec(GroupSpec("", (MemberSpec(1, ask.leaf_cell_count),)))
        interpreter.check_access(workload.job.namespace, spec.virtual_cluster, spec.priority)
    except UserError as error:
        raise UserError(f"pod set {pod_set.name}: {error.message}") from error
    yield _Role(pod_set.name, tuple(_pods(pod, pod_set)), spec, words)


def _pod(workload: Workload, pod_set: PodSet, flavors: Callable[[str], Mapping[str, str]]) -> Pod:
    """A pod of the set as its controller makes it once Kueue has admitted the Workload."""
    template = pod_set.template
    meta, spec = template.get("metadata") or {}, template.get("spec") or {}
    labels = {key: value for name in pod_set.flavors for key, value in flavors(name).items()}
    try:
        found = msgspec.convert(spec, WirePodSpec)
        said = msgspec.convert(meta, PodMetadata)
    except msgspec.ValidationError as error:
        raise UserError(f"its template is not one of pods: {error}") from None
    found.node_selector = labels | (found.node_selector or {})
    if found.priority_class_name and found.priority_class_name == workload.class_name:
        found.priority = workload.priority  # Kubernetes looks it up for pods, and Kueue has done so
    said.name, said.namespace = f"{workload.job.name}-{pod_set.name}", workload.job.namespace
    return Pod(said, found)


def _pods(pod: Pod, pod_set: PodSet) -> Iterator[Pod]:
    """The pods of a set; equal ones are one object. Those that Kueue has chosen nodes for have their labels."""
    chosen: list[Pod] = []
    for labels, count in pod_set.domains:
        spec = pod.spec or WirePodSpec()
        there = msgspec.structs.replace(spec, node_selector={**(spec.node_selector or {}), **labels})
        chosen += [msgspec.structs.replace(pod, spec=there)] * min(count, pod_set.count - len(chosen))
    yield from (*chosen, *[pod] * (pod_set.count - len(chosen)))


def _ask(
    workload: Workload, pod: Pod, description: Description | None, interpreter: Interpreter
) -> tuple[Ask, dict[str, str]]:
    """The request of a pod by its own words and its Workload's, and the annotations that it lacks for that."""
    plain = _said_by(interpreter, pod, description)
    queue = (description and description.queue) or ""
    vc = next((each for each in (workload.cluster_queue, workload.queue) if each in interpreter.virtual_clusters), "")
    told = description or Description(kueue.KUEUE.name)
    if vc and queue not in interpreter.virtual_clusters:
        told = replace(told, queue=vc)
    ask = None
    if workload.class_name and workload.has_workload_class and not told.priority_class:
        # A class that only orders Kueue's queues need not be known here.
        ask = _said_by(interpreter, pod, replace(told, priority_class=workload.class_name))
    ask = ask or interpreter.ask(pod, told)
    words = {}
    if plain is None or plain.virtual_cluster != ask.virtual_cluster:
        words[VIRTUAL_CLUSTER] = ask.virtual_cluster
    if plain is None or plain.priority != ask.priority:
        words[PRIORITY] = str(ask.priority)
    return ask, words


def _said_by(interpreter: Interpreter, pod: Pod, description: Description | None) -> Ask | None:
    try:
        return interpreter.ask(pod, description)
    except UserError:
        return None


def _check_agreement(roles: list[_Role]) -> None:
    """Raise UserError unless all roles ask for cells of one kind, of one virtual cluster, at one priority."""
    names = {
        "virtual_cluster": "virtual cluster",
        "priority": "priority",
        "leaf_cell_type": "leaf cell type",
        "pinned_cell_id": "pinned cell",
        "within_cell": "topology",
        "within_is_required": "topology",
    }
    for field, name in names.items():
        first = getattr(roles[0].spec, field)
        for role in roles[1:]:
            if (value := getattr(role.spec, field)) != first:
                raise UserError(
                    f"its pod sets disagree: the {name} of {roles[0].name} is {first!r}, of {role.name} {value!r}; "
                    "cells are held for one gang: make them equal, or make two jobs of them"
                )


def _updates(workload: Workload, words: Mapping[str, Mapping[str, str]]) -> Iterator[Object]:
    """`podSetUpdates` of all pod sets with cells. Kueue refuses a key that the template has with another value."""
    for each in workload.pod_sets:
        if each.name in words:
            said = (each.template.get("metadata") or {}).get("annotations") or {}
            told = {HOLD: workload.key, **words[each.name]}
            annotations: dict[str, Any] = {key: value for key, value in told.items() if key not in said}
            yield {"name": each.name, "annotations": annotations}
