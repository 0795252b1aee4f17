"""ResourceFlavors, Topologies and quotas -> machines, and the cells that each virtual cluster is promised.

A flavor's nodes are a leaf cell type of their own. A quota becomes as many whole nodes as it covers, and single devices
for the rest. Where there are not enough, ClusterQueues get them in the order of the files.
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import msgspec
from msgspec.structs import replace

from hived.values.errors import UserError
from hived.values.specs import MAX_GUARANTEED_PRIORITY, OPPORTUNISTIC_PRIORITY
from hived_cli.migrate.objects import KueueObject, KueueObjects
from hived_config.document import ConfigError, Mistake
from hived_config.generating.cells import Cell, Shape, TypeNames, names_of, trees_of
from hived_config.generating.generate import document, flow_list
from hived_config.generating.machines import Machine, in_order, leaf_names, level_names, short_name
from hived_config.generating.nodes import Reading, labels_of, machines_of, name_of
from hived_config.generating.shares import Allotment
from hived_config.loader import Configuration, load_text
from hived_config.text.places import scalar
from hived_config.words import counted, listed

HOSTNAME = "kubernetes.io/hostname"
CPU = "cpu"
NOT_DEVICES = ("cpu", "memory", "ephemeral-storage", "pods", "hugepages-")

Node = Mapping[str, Any]


class FlavorQuota(msgspec.Struct, frozen=True):
    """The quota of one flavor and resource in an object; limits are None where there are none. `path` is its place."""

    path: str
    flavor: str
    resource: str
    nominal: Fraction
    borrowing: Fraction | None
    lending: Fraction | None


def quotas_of(found: KueueObject) -> list[FlavorQuota]:
    """The quotas of a ClusterQueue or Cohort, in order."""
    quotas = []
    for group in found.each("spec.resourceGroups"):
        for flavor in found.each(f"{group}.flavors"):
            for at in found.each(f"{flavor}.resources"):
                limits = (found.value(f"{at}.{key}") for key in ("borrowingLimit", "lendingLimit"))
                name, resource = found.value(f"{flavor}.name", ""), found.value(f"{at}.name", "")
                nominal = Fraction(found.value(f"{at}.nominalQuota", 0))
                quotas.append(FlavorQuota(at, name, resource, nominal, *limits))
    return quotas


def namespaces_of(objects: KueueObjects) -> dict[str, list[str]]:
    """By ClusterQueue, the namespaces of its LocalQueues; without any those that its selector names."""
    found: dict[str, list[str]] = {each.name: [] for each in objects.of("ClusterQueue")}
    for queue in objects.of("LocalQueue"):
        own = found.get(queue.value("spec.clusterQueue", ""), [])
        own += [queue.namespace] * (queue.namespace not in own)
    for queue in objects.of("ClusterQueue"):
        found[queue.name] = found[queue.name] or _named_in(queue.value("spec.namespaceSelector"))
    return found


def _named_in(selector: Any) -> list[str]:
    """The namespaces that a selector names one by one; none if it chooses them in another way."""
    match selector:
        case {"matchLabels": {"kubernetes.io/metadata.name": str(name), **labels}, **others} if (
            not labels and not others
        ):
            return [name]
        case {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(names)}],
              **others} if not others:  # fmt: skip
            return [str(name) for name in names]
    return []


def configuration_of(
    objects: KueueObjects, nodes: Iterable[Node], reading: Reading
) -> tuple[str, Configuration, list[str]]:
    """The configuration as text and as values, and notes for people that belong to no line of a file.

    Raises UserError if no node belongs to a flavor, or one is given twice.
    """
    levels = reading.levels or _levels(objects)
    reading = _with_resources(objects, replace(reading, levels=levels))
    nodes = list(nodes)
    found = machines_of(nodes, reading)
    machines, notes = _of_flavors(objects, found.machines, {name_of(node): labels_of(node) for node in nodes})
    notes = [*found.notes, *notes]
    if not machines:
        raise UserError("\n".join(["no node with devices belongs to a ResourceFlavor: see its nodeLabels", *notes]))
    products = {machine.product: machine.product for machine, _ in machines}
    ordered = in_order(machine for machine, _ in machines)
    types = leaf_names(products, products)
    tops = trees_of(ordered, level_names(levels), pads=False)
    names = names_of(tops, types)
    flavors: dict[tuple[str, str], set[str]] = {}
    for machine, flavor in machines:
        flavors.setdefault((flavor, machine.resource or CPU), set()).add(machine.product)
    shared = _promised(objects, tops, flavors)
    text = document(
        _comment(len({machine.name for machine in ordered})),
        ordered,
        tops,
        names,
        shared,
        _keys(objects, names, levels),
        _vc_keys(objects, shared),
    )
    try:
        return text, load_text(text, "the configuration", environ={}), notes
    except ConfigError as error:
        raise ConfigError([_at_its_queue(objects, each) for each in error.mistakes]) from error


def _at_its_queue(objects: KueueObjects, mistake: Mistake) -> Mistake:
    """A mistake of the configuration at what it was made from: the ClusterQueue of its virtual cluster."""
    for queue in objects.of("ClusterQueue"):
        if f"{mistake.path}.".startswith(f"virtualClusters.{queue.name}."):
            users = mistake.path.startswith(f"virtualClusters.{queue.name}.namespaces")
            place = queue.at("spec.namespaceSelector") if users else queue.place
            return replace(mistake, file=place.file, line=place.line)
    return mistake


def _comment(count: int) -> list[str]:
    return [
        f"Made by `hived migrate kueue` from {counted(count, 'machine')}: a virtual cluster for each ClusterQueue.",
        "Apply the ElasticQuotaTree that comes with it. `hived config sync` keeps the nodes up to date.",
    ]


# ---- machines


def _levels(objects: KueueObjects) -> tuple[str, ...]:
    """The node labels above the node, outermost first, of the Topology that flavors name first."""
    topologies = objects.by_name("Topology")
    levels: tuple[str, ...] | None = None
    for flavor in objects.of("ResourceFlavor"):
        topology = topologies.get(flavor.value("spec.topologyName", ""))
        if topology is None:
            continue
        labels = (topology.value(f"{each}.nodeLabel", "") for each in topology.each("spec.levels"))
        own = tuple(label for label in labels if label != HOSTNAME)
        levels = own if levels is None else levels
        if own != levels:
            text = f"its levels differ from {', '.join(levels) or 'none'}, which all cells have here"
            objects.remark(flavor, "spec.topologyName", text, is_lost=True)
    return levels or ()


def _with_resources(objects: KueueObjects, reading: Reading) -> Reading:
    """Read the device resources that quotas name besides those of the options."""
    named = [quota.resource for each in objects.of("ClusterQueue") for quota in quotas_of(each)]
    devices = [name for name in named if not name.startswith(NOT_DEVICES)]
    return replace(reading, resources=tuple(dict.fromkeys((*reading.resources, *devices))))


def _of_flavors(
    objects: KueueObjects, machines: Sequence[Machine], labels: Mapping[str, Mapping[str, str]]
) -> tuple[list[tuple[Machine, str]], list[str]]:
    """The machines of flavors, each with its flavor, with a product for each flavor; and notes on the others.

    A node belongs to the flavor that asks for most of its labels, and of equal ones to the first.
    """
    flavors = sorted(objects.of("ResourceFlavor"), key=lambda each: -len(_labels(each)))
    own: list[tuple[Machine, KueueObject]] = []
    left = []
    for machine in machines:
        has = labels.get(machine.name, {}).items()
        flavor = next((each for each in flavors if _labels(each).items() <= has), None)
        if flavor is None:
            left.append(machine.name)
        else:
            own.append((machine, flavor))
    products: dict[str, set[str]] = {}
    for machine, flavor in own:
        products.setdefault(flavor.name, set()).add(machine.product)
    for flavor in objects.of("ResourceFlavor"):
        if flavor.name not in products:
            text = "no node with devices is of this flavor, or others ask for more of its labels: it has no cells"
            objects.remark(flavor, "spec.nodeLabels", text)
    notes = [f"{counted(len(left), 'node')} of no ResourceFlavor, left out: {listed(left)}"] if left else []
    return [(_named(machine, flavor, len(products[flavor.name])), flavor.name) for machine, flavor in own], notes


def _labels(flavor: KueueObject) -> Mapping[str, str]:
    return dict(flavor.value("spec.nodeLabels") or {})


def _named(machine: Machine, flavor: KueueObject, products: int) -> Machine:
    """A machine whose product is the flavor, with the product's own name behind it if the flavor has several."""
    name = flavor.name.replace(".", "-")
    labels = _labels(flavor)
    if products > 1:
        name, labels = f"{name}-{short_name(machine.product)}", {**machine.node_labels, **labels}
    return dataclasses.replace(machine, product=name, node_labels=labels)


# ---- promises


def _promised(
    objects: KueueObjects, tops: Sequence[Cell], flavors: Mapping[tuple[str, str], set[str]]
) -> dict[str, list[Allotment]]:
    """By ClusterQueue, the cells that its quotas of devices become."""
    chains: dict[str, dict[tuple[Shape, ...], int]] = {}
    for top in tops:
        own = chains.setdefault(top.shape.product, {})
        path = tuple(top.shape.down())
        own[path] = own.get(path, 0) + top.shape.node_count
    shared: dict[str, list[Allotment]] = {each.name: [] for each in objects.of("ClusterQueue")}
    rest: list[tuple[KueueObject, FlavorQuota, list[str], int]] = []
    for queue in objects.of("ClusterQueue"):
        for quota in quotas_of(queue):
            products = sorted(flavors.get((quota.flavor, quota.resource), ()))
            if not products:
                _say_without_cells(objects, queue, quota)
                continue
            left = int(quota.nominal)
            for product in products:
                for path, count in chains[product].items():
                    nodes = min(count, left // path[-1].count)
                    chains[product][path] -= nodes
                    left -= nodes * path[-1].count
                    shared[queue.name] += [Allotment(path, nodes)] * bool(nodes)
            rest.append((queue, quota, products, left))
    free = {(product, path): count * path[-1].count for product, own in chains.items() for path, count in own.items()}
    for queue, quota, products, single in rest:
        left = single
        for (product, path), devices in free.items():
            if product in products and (count := min(left, devices)):
                shared[queue.name].append(Allotment(path, count, is_leaf=True))
                free[product, path] -= count
                left -= count
        _say_remainder(objects, queue, quota, single - left, left)
    return shared


def _say_without_cells(objects: KueueObjects, queue: KueueObject, quota: FlavorQuota) -> None:
    """Quotas of CPUs and memory are in the quota tree; a device that no node of the flavor has is nowhere."""
    if quota.nominal and not quota.resource.startswith(NOT_DEVICES):
        text = f"no node of flavor {quota.flavor} has {quota.resource}: no cells are promised for it"
        objects.remark(queue, f"{quota.path}.nominalQuota", text)


def _say_remainder(objects: KueueObjects, queue: KueueObject, quota: FlavorQuota, single: int, missing: int) -> None:
    at = f"{quota.path}.nominalQuota"
    if missing:
        text = f"only {int(quota.nominal) - missing} {quota.resource} of flavor {quota.flavor} are left to be promised"
        objects.remark(queue, at, text)
    if single:
        text = f"{single} of {int(quota.nominal)} are no whole node: these are single cells, maybe on several nodes"
        objects.remark(queue, at, text)


# ---- the other keys


def _keys(objects: KueueObjects, names: TypeNames, levels: Sequence[str]) -> list[str]:
    lines = [f"queues: {{enabled: true, policy: {policy_of(objects)[0]}}}"]
    if classes := priorities_of(objects):
        lines.append(f"priorityClasses: {_flow(classes)}")
    by_level = dict(zip(level_names(levels), levels, strict=True))
    found: dict[str, str] = {}
    others = []
    for shape, name in names.cells.items():
        if shape.level in by_level and found.setdefault(by_level[shape.level], name) != name:
            others.append(name)
    if others:
        for topology in objects.of("Topology"):
            text = f"a label names one cell type: wishes for {listed(others)} have to name these"
            objects.remark(topology, "spec.levels", text)
    if found:
        lines.append(f"topologyLevels: {_flow(found)}")
    return lines


def _flow(values: Mapping[str, str | int]) -> str:
    """A mapping on one line."""
    words = {key: str(value) if isinstance(value, int) else scalar(value) for key, value in values.items()}
    return f"{{{', '.join(f'{scalar(key)}: {word}' for key, word in words.items())}}}"


def _vc_keys(objects: KueueObjects, shared: Mapping[str, Sequence[Allotment]]) -> dict[str, list[str]]:
    """The lines of each virtual cluster: its users, its queue, and whether pods may take several single devices."""
    namespaces = namespaces_of(objects)
    keys = {}
    for queue in objects.of("ClusterQueue"):
        keys[queue.name] = [f"namespaces: {_users(objects, queue, namespaces[queue.name])}"]
        own = ["borrow: true"] * may_borrow(queue)
        weight = queue.value("spec.fairSharing.weight")
        if weight == 0:
            text = "0, by which it borrows last, is no weight here: it has 1"
            objects.remark(queue, "spec.fairSharing.weight", text, is_lost=True)
        elif weight is not None:
            own.append(f"weight: {float(weight):.9f}".rstrip("0").rstrip("."))
        keys[queue.name] += [f"queue: {{{', '.join(own)}}}"] * bool(own)
        keys[queue.name] += ["combine: true"] * any(each.is_leaf and each.count > 1 for each in shared[queue.name])
    return keys


def _users(objects: KueueObjects, queue: KueueObject, namespaces: Sequence[str]) -> str:
    """The namespaces of a virtual cluster as a list on one line."""
    at, selector = "spec.namespaceSelector", queue.value("spec.namespaceSelector")
    if selector is None:
        objects.remark(queue, at, "without one Kueue admits no job, so no namespace may use this virtual cluster")
        return "[]"
    if namespaces or not selector:
        if not namespaces:
            text = "it has no LocalQueue: list the namespaces that may use its virtual cluster and its quota"
            objects.remark(queue, at, text)
        elif selector and list(namespaces) != _named_in(selector):
            objects.remark(queue, at, "not checked: the namespaces of its LocalQueues may use its virtual cluster")
        return flow_list(namespaces)
    objects.remark(queue, at, "a quota knows namespaces by name alone: list them there, or have jobs name the quota")
    return json.dumps([selector], ensure_ascii=False)


def may_borrow(queue: KueueObject) -> bool:
    """True if a ClusterQueue may use more than its quota."""
    is_in_cohort = bool(cohort_of(queue))
    return is_in_cohort and any(quota.borrowing is None or quota.borrowing > 0 for quota in quotas_of(queue))


def cohort_of(queue: KueueObject) -> str:
    """The cohort of a ClusterQueue, by the word of its version; "" if it has none."""
    return str(queue.value("spec.cohortName") or queue.value("spec.cohort") or "")


DEFAULT_STRATEGY = "BestEffortFIFO"
POLICIES = {"StrictFIFO": "Block", "BestEffortFIFO": "Priority"}


def policy_of(objects: KueueObjects) -> tuple[str, list[KueueObject]]:
    """The policy of most ClusterQueues, the first one of equally many, and those that have another one."""
    queues = objects.of("ClusterQueue")
    policies = [POLICIES[each.value("spec.queueingStrategy", DEFAULT_STRATEGY)] for each in queues]
    chosen = max(policies, key=policies.count)
    return chosen, [each for each, policy in zip(queues, policies, strict=True) if policy != chosen]


def priorities_of(objects: KueueObjects) -> dict[str, int]:
    """By WorkloadPriorityClass, its priority here: above jobs without a class (0), equal to them or below as in Kueue.

    Negative ones are opportunistic. The others keep their values, or their order if one is beyond 1000.
    """
    values = {each.name: int(each.value("value", 0)) for each in objects.of("WorkloadPriorityClass")}
    above = sorted({value for value in values.values() if value > 0})
    ranks = {value: value for value in above}
    if above and above[-1] > MAX_GUARANTEED_PRIORITY:
        step = max(1, min(10, MAX_GUARANTEED_PRIORITY // len(above)))
        ranks = {value: min(place * step, MAX_GUARANTEED_PRIORITY) for place, value in enumerate(above, 1)}
    found = {name: OPPORTUNISTIC_PRIORITY if value < 0 else ranks.get(value, 0) for name, value in values.items()}
    for each in objects.of("WorkloadPriorityClass"):
        value, own = values[each.name], found[each.name]
        if value < 0:
            text = f"becomes {own}, opportunistic, as all below 0: below jobs without a class (0), on idle cells alone"
            objects.remark(each, "value", text)
        elif value != own:
            most = f"priorities are at most {MAX_GUARANTEED_PRIORITY}"
            objects.remark(
                each, "value", f"becomes {own}, in the same order and above jobs without a class (0): {most}"
            )
    return found
