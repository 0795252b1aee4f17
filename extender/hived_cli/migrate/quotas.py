"""ClusterQueues and Cohorts -> an ElasticQuotaTree, and the labels by which jobs of each LocalQueue belong to it.

A Cohort becomes a quota of all that its members have, a ClusterQueue a leaf. What a queue may borrow is the distance
from `min` to `max`, over all of its flavors; of a flavor without a limit it is what the others in its cohorts have.
"""

import json
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

import msgspec

from hived_cli.migrate.objects import KueueObject, KueueObjects
from hived_cli.migrate.promises import (
    DEFAULT_STRATEGY,
    POLICIES,
    FlavorQuota,
    cohort_of,
    namespaces_of,
    policy_of,
    quotas_of,
)
from hived_config.generating.machines import Names
from hived_config.quantities import canonical
from hived_config.reader import closest, shorten
from hived_extender.jobs.asks import VIRTUAL_CLUSTER as VC_ANNOTATION
from hived_extender.jobs.quotas.tree import LABELS, LEND_LIMIT, MAX_JOBS, NAMESPACE, ROOT, VIRTUAL_CLUSTER

Amounts = dict[str, Fraction]
Tree = dict[str, Any]
_ByFlavor = dict[tuple[str, str], Fraction]

QUOTA_LABEL = LABELS[-1]
PODS = "pods"
GIB, MIB = 2**30, 2**20


class LocalQueueUse(msgspec.Struct, frozen=True, rename="camel"):
    """The labels that jobs of a LocalQueue need from now on; none where their namespace is enough."""

    namespace: str
    name: str
    cluster_queue: str
    job_labels: Mapping[str, str]
    pod_annotations: Mapping[str, str]


def refuse_unknown(objects: KueueObjects) -> None:
    """Note names of objects that are not in the files, and Cohorts that contain themselves.

    Names say nothing where an object has none that can be read: it may be the one that is named.
    """
    if not objects.is_whole:
        return
    flavors, queues, checks = (objects.by_name(kind) for kind in ("ResourceFlavor", "ClusterQueue", "AdmissionCheck"))
    topologies = objects.by_name("Topology")
    for each in (*objects.of("ClusterQueue"), *objects.of("Cohort")):
        for path, (value, place) in each.values.items():
            if path.endswith(".name") and ".flavors[" in path and ".resources[" not in path and value not in flavors:
                near = closest(value, flavors)
                place.reader.note(place.node, f"flavor {shorten(value)}", "a ResourceFlavor of these files", near)
    for each in objects.of("ResourceFlavor"):
        name = each.value("spec.topologyName")
        if name is not None and name not in topologies:
            at = each.at("spec.topologyName")
            at.reader.note(at.node, f"topology {shorten(name)}", "a Topology of these files", closest(name, topologies))
    for each in objects.of("LocalQueue"):
        name, at = each.value("spec.clusterQueue", ""), each.at("spec.clusterQueue")
        if name not in queues:
            near = closest(name, queues)
            at.reader.note(at.node, f"ClusterQueue {shorten(name)}", "a ClusterQueue of these files", near)
    for each in objects.of("ClusterQueue"):
        for path, (value, _) in each.values.items():
            if "dmissionChecks[" in path and not path.endswith("onFlavors"):
                _remark_check(objects, each, path, value, checks)
    _refuse_circles(objects)


HIVEDS_CHECK = "hivedscheduler.microsoft.com/admission-check"


def _remark_check(
    objects: KueueObjects, queue: KueueObject, path: str, name: str, checks: Mapping[str, KueueObject]
) -> None:
    controller = checks[name].value("spec.controllerName", "") if name in checks else ""
    if controller == HIVEDS_CHECK:
        text = f"check {name} is hived's own: its queues hold cells before a job starts, so none is needed"
        objects.remark(queue, path, text)
    else:
        of = f" of {controller}" if controller else ""
        objects.remark(queue, path, f"check {name}{of}: jobs start without it", is_lost=True)


def _refuse_circles(objects: KueueObjects) -> None:
    parents = {each.name: each.value("spec.parentName", "") for each in objects.of("Cohort")}
    for cohort in objects.of("Cohort"):
        seen, name = [cohort.name], parents[cohort.name]
        while name and name not in seen:
            seen.append(name)
            name = parents.get(name, "")
        if name == cohort.name:
            at = cohort.at("spec.parentName")
            at.reader.note(at.node, f"a circle: {' -> '.join([*seen, name])}", "a Cohort that is not below itself")


class QuotasOfQueues(msgspec.Struct, frozen=True):
    """The object, and the labels that jobs of each LocalQueue need."""

    tree: Tree
    local_queues: tuple[LocalQueueUse, ...]


def quotas(objects: KueueObjects) -> QuotasOfQueues:
    """The tree of all ClusterQueues. Remarks go to the objects."""
    namespaces = namespaces_of(objects)
    every = [name for own in namespaces.values() for name in own]
    shared = {name for name in every if every.count(name) > 1}
    names = Names([ROOT])
    leaves: dict[str, str] = {}
    for queue in objects.of("ClusterQueue"):
        leaves[queue.name] = names.new(queue.name)
    listed = {queue: [] if shared.intersection(own) else own for queue, own in namespaces.items()}
    builder = _Builder(objects, leaves, names, listed)
    tree = builder.tree()
    chosen, others = policy_of(objects)
    for queue in others:
        own = POLICIES[queue.value("spec.queueingStrategy", DEFAULT_STRATEGY)]
        where = f"spec.queuePolicy of the Queue of {builder.full_names[queue.name]} in namespace kube-queue"
        objects.remark(
            queue, "spec.queueingStrategy", f"the configuration has {chosen} for all queues: write {own} into {where}"
        )
    _remark_uncovered(objects, tree)
    local_queues = tuple(_use(queue, leaves, namespaces, shared) for queue in objects.of("LocalQueue"))
    return QuotasOfQueues(tree, local_queues)


def _use(
    queue: KueueObject, leaves: Mapping[str, str], namespaces: Mapping[str, list[str]], shared: set[str]
) -> LocalQueueUse:
    name = queue.value("spec.clusterQueue", "")
    needs_label = bool(shared.intersection(namespaces[name]))
    labels = {QUOTA_LABEL: leaves[name]} if needs_label else {}
    annotations = {VC_ANNOTATION: name} if queue.namespace in shared else {}
    return LocalQueueUse(queue.namespace, queue.name, name, labels, annotations)


def _remark_uncovered(objects: KueueObjects, tree: Tree) -> None:
    """Kueue admits no job that asks for a resource that its queue does not cover; here nothing of it is guaranteed."""
    every = tree["spec"]["root"]["min"]
    for queue in objects.of("ClusterQueue"):
        covered = {quota.resource for quota in quotas_of(queue)}
        if left := [name for name in every if name not in covered and name != MAX_JOBS]:
            names = ", ".join(left)
            text = f"no quota of {names}, which others have: its jobs are guaranteed none, and borrow it"
            objects.remark(queue, "spec.resourceGroups", text)


class _Builder:
    """Builds the tree from the roots down, so that no `max` is larger than the one above."""

    def __init__(
        self, objects: KueueObjects, leaves: Mapping[str, str], names: Names, namespaces: Mapping[str, list[str]]
    ) -> None:
        self._objects = objects
        self._leaves = leaves
        self._namespaces = namespaces
        self._cohorts = objects.by_name("Cohort")
        self._members: dict[str, list[str]] = {}
        self._queues: dict[str, list[KueueObject]] = {}
        for queue in objects.of("ClusterQueue"):
            self._queues.setdefault(cohort_of(queue), []).append(queue)
        known = [*dict.fromkeys([*self._cohorts, *filter(None, self._queues)])]
        for name in known:
            parent = self._cohorts[name].value("spec.parentName", "") if name in self._cohorts else ""
            while parent and parent not in known:
                known.append(parent)
            self._members.setdefault(parent, []).append(name)
        self._names = {name: names.new(name if name != ROOT else "cohort-root") for name in known}
        self.full_names: dict[str, str] = {}

    def tree(self) -> Tree:
        """The object."""
        total = self._least("")
        children = self._children("", total, ROOT, {})
        root = {"name": ROOT, "min": _written(total), "max": _written(total), "children": children}
        return {
            "apiVersion": "scheduling.sigs.k8s.io/v1beta1",
            "kind": "ElasticQuotaTree",
            "metadata": {"name": "elasticquotatree", "namespace": NAMESPACE},
            "spec": {"root": root},
        }

    def _children(self, cohort: str, ceiling: Amounts, path: str, whole: _ByFlavor) -> list[Tree]:
        """The quotas below one. `whole` is all that its topmost Cohort has, nothing above these."""
        cohorts = [self._cohort(name, ceiling, path, whole) for name in self._members.get(cohort, [])]
        return [*cohorts, *(self._leaf(queue, ceiling, path, whole) for queue in self._queues.get(cohort, []))]

    def _cohort(self, name: str, ceiling: Amounts, path: str, whole: _ByFlavor) -> Tree:
        own = self._by_flavor(name)
        least = _by_resource(own)
        most, lends = least, {}
        if path != ROOT:
            found = [] if name not in self._cohorts else quotas_of(self._cohorts[name])
            limits = {(each.flavor, each.resource): each.borrowing for each in found}
            most = _most({key: (amount, limits.get(key)) for key, amount in own.items()}, whole, ceiling)
        if name in self._cohorts:
            lends = _lends(self._cohorts[name], least)
            self._remark_flavors(self._cohorts[name], most)
        full = f"{path}/{self._names[name]}"
        return {
            "name": self._names[name], "min": _written(least), "max": _written(most), **_attributes({}, lends),
            "children": self._children(name, most, full, whole or own),
        }  # fmt: skip

    def _leaf(self, queue: KueueObject, ceiling: Amounts, path: str, whole: _ByFlavor) -> Tree:
        own, name = self._own(queue), self._leaves[queue.name]
        least = most = _by_resource(own)
        if cohort_of(queue):
            limits = {(each.flavor, each.resource): each.borrowing for each in quotas_of(queue)}
            most = _most({key: (amount, limits[key]) for key, amount in own.items()}, whole, ceiling)
        self._remark_flavors(queue, most)
        self.full_names[queue.name] = f"{path}/{name}"
        written = _written(most)
        if queue.value("spec.stopPolicy", "None") != "None":
            written[MAX_JOBS] = "0"
        attributes = {VIRTUAL_CLUSTER: queue.name} if name != queue.name else {}
        namespaces = {"namespaces": users} if (users := self._namespaces[queue.name]) else {}
        return {
            "name": name, **namespaces, "min": _written(least), "max": written,
            **_attributes(attributes, _lends(queue, least)),
        }  # fmt: skip

    def _least(self, cohort: str) -> Amounts:
        """All that the members of a Cohort have, and its own."""
        return _by_resource(self._by_flavor(cohort))

    def _by_flavor(self, cohort: str) -> _ByFlavor:
        """The same by flavor."""
        own = [self._own(self._cohorts[cohort])] if cohort in self._cohorts else []
        cohorts = (self._by_flavor(name) for name in self._members.get(cohort, []))
        return _sum([*own, *cohorts, *(self._own(queue) for queue in self._queues.get(cohort, []))])

    def _own(self, found: KueueObject) -> _ByFlavor:
        """An object's own amounts, without those of its members."""
        own: _ByFlavor = {}
        for quota in quotas_of(found):
            if quota.resource == PODS:
                text = "pods are not counted, but jobs are: kube-queue/max-jobs"
                self._objects.remark(found, f"{quota.path}.nominalQuota", text, is_lost=True)
                continue
            key = quota.flavor, quota.resource
            own[key] = own.get(key, Fraction()) + quota.nominal
        return own

    def _remark_flavors(self, found: KueueObject, most: Amounts) -> None:
        """A limit of one flavor of several counts in their sum alone."""
        own = quotas_of(found)
        for quota in own:
            if quota.resource in most and sum(quota.resource == each.resource for each in own) > 1:
                counted = f"{quota.resource} of all flavors count together"
                if quota.borrowing is not None:
                    text = f"{counted}: at most {_quantity(most[quota.resource])}, with what it may borrow of others"
                    self._objects.remark(found, f"{quota.path}.borrowingLimit", text)
                if quota.lending is not None:
                    self._objects.remark(found, f"{quota.path}.lendingLimit", f"{counted} in what it lends")


def _most(
    own: Mapping[tuple[str, str], tuple[Fraction, Fraction | None]], whole: _ByFlavor, ceiling: Amounts
) -> Amounts:
    """The `max` of each resource: the sum over flavors of own amount and borrowing limit, or of all in the Cohorts."""
    bounds = {
        key: whole[key] if borrowing is None else min(whole[key], amount + borrowing)
        for key, (amount, borrowing) in own.items()
    }
    return {resource: min(ceiling[resource], amount) for resource, amount in _by_resource(bounds).items()}


def _lends(found: KueueObject, least: Amounts) -> Amounts:
    """Return the amounts that others may borrow, where limited. A flavor without a limit lends all it has."""
    given: dict[str, list[FlavorQuota]] = {}
    for quota in quotas_of(found):
        given.setdefault(quota.resource, []).append(quota)
    lends = {}
    for name, own in given.items():
        limits = [quota.nominal if quota.lending is None else quota.lending for quota in own]
        if name in least and any(quota.lending is not None for quota in own) and sum(limits) < least[name]:
            lends[name] = sum(limits, Fraction())
    return lends


def _attributes(attributes: Mapping[str, str], lends: Amounts) -> dict[str, Any]:
    found = dict(attributes)
    if lends:
        found[LEND_LIMIT] = json.dumps(_written(lends))
    return {"attributes": found} if found else {}


def _sum(amounts: Iterable[_ByFlavor]) -> _ByFlavor:
    total: _ByFlavor = {}
    for each in amounts:
        for key, amount in each.items():
            total[key] = total.get(key, Fraction()) + amount
    return total


def _by_resource(amounts: _ByFlavor) -> Amounts:
    total: Amounts = {}
    for (_, name), amount in amounts.items():
        total[name] = total.get(name, Fraction()) + amount
    return total


def _written(amounts: Amounts) -> dict[str, str]:
    """Amounts as quantities: bytes in Gi or Mi where they are whole."""
    return {name: _quantity(amount) for name, amount in amounts.items()}


def _quantity(amount: Fraction) -> str:
    for unit, suffix in ((GIB, "Gi"), (MIB, "Mi")):
        if amount >= unit and amount % unit == 0:
            return f"{int(amount // unit)}{suffix}"
    return str(int(amount)) if amount.denominator == 1 else canonical(f"{-int(-amount * 10**9 // 1)}n")
