"""Limits of a quota tree on all cells, whoever asks: queued jobs, pods of no queue and Kueue's Workloads.

Each affinity group with cells or reservations is charged to a leaf: its job's if cells are held for it, else by the
labels of its pod or its namespace (rule 25.2). A queued job is charged its whole request once cells are held for it.
Work beyond a `max` or `kube-queue/max-jobs` waits (rule 25.4), and work that may not be preempted beyond a `min` (rule
25.5). Changes are counted when asked; without a tree, never. Not thread-safe.

    charge of a job == max(asked when cells were held, sum of its groups), by resource
    use of a leaf == sum of the charges of its jobs
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from hived.cells.state import Group, State
from hived.cells.topology import NO_CELL
from hived.values.decisions import Wait
from hived.values.errors import UserError
from hived.values.specs import MIN_GUARANTEED_PRIORITY, PodRequest, PodSpec, count_leaves
from hived_extender.jobs.amounts import amounts_of
from hived_extender.jobs.job import JobName
from hived_extender.jobs.kinds import marks
from hived_extender.jobs.quotas.tree import LABELS, QuotaTree, quota_of
from hived_extender.jobs.quotas.usage import EPSILON, TOO_LARGE, WAIT, Usage
from hived_extender.jobs.wire import Pod
from hived_extender.machine.cluster_cache import ClusterCache
from hived_extender.machine.core import Core
from hived_extender.machine.held import HeldJobs
from hived_extender.machine.pods import PodRecord
from hived_extender.machine.retries import Retries
from hived_extender.machine.stand_ins import held_job
from hived_extender.machine.stimuli import Hold, QuotasFollowed

UNKNOWN_REASON = "quotas are being read: it is tried again in a moment"

Amounts = Mapping[str, float]
Key = tuple[str, JobName | str]
"""A leaf of the tree, and a job as it counts jobs: a job object, a gang, or an affinity group."""


@dataclass(frozen=True, slots=True)
class OverQuota(Wait):
    """The message that a quota is used up."""


class Words(msgspec.Struct, frozen=True):
    """A pod for quotas: the labels that they read, and its amounts."""

    labels: Mapping[str, str]
    amounts: Amounts

    @property
    def is_preemptible(self) -> bool:
        """True if it may be preempted."""
        return marks.is_preemptible(self.labels)


class Charge(msgspec.Struct, frozen=True):
    """The use of a leaf by one job. `guaranteed` is the part that no other VC can reclaim.

    `lent` are its opportunistic groups, and those on lent cells.
    """

    leaf: str
    job: JobName | str
    amounts: Amounts
    guaranteed: Amounts
    lent: tuple[str, ...] = ()


class _Account(msgspec.Struct):
    """One job: `asked` when cells were held for it, `groups` with cells, and `counted` of both.

    sum == the amounts of all groups, own == those of the guaranteed ones.
    """

    is_preemptible: bool = True
    asked: Amounts | None = None
    groups: dict[str, tuple[Amounts, bool]] = msgspec.field(default_factory=dict)
    sum: dict[str, float] = msgspec.field(default_factory=dict)
    own: dict[str, float] = msgspec.field(default_factory=dict)
    counted: Amounts | None = None

    def put(self, name: str, amounts: Amounts, *, is_own: bool) -> None:
        """Add a group with cells."""
        self.groups[name] = amounts, is_own
        self._add(amounts, is_own=is_own)

    def pop(self, name: str) -> None:
        """Remove a group without cells."""
        amounts, is_own = self.groups.pop(name)
        self._add({resource: -amount for resource, amount in amounts.items()}, is_own=is_own)
        if not self.groups:  # sums of fractions leave crumbs
            self.sum.clear()
            self.own.clear()

    def total(self) -> Amounts | None:
        """The amounts to count, None if there are none."""
        if self.asked is None and not self.groups:
            return None
        return dict(_most(self.asked or {}, self.sum))

    def _add(self, amounts: Amounts, *, is_own: bool) -> None:
        for sums in (self.sum, self.own) if is_own else (self.sum,):
            for name, amount in amounts.items():
                sums[name] = sums.get(name, 0.0) + amount


_NOTHING = Words({}, {})

_PLANNED = "_planned"
"""Stands for groups that do not exist; no group is called so."""


class QuotaBound:
    """Charges all groups to the tree and checks requests. `version` grows with every change of the charges."""

    def __init__(self, cache: ClusterCache, holds: HeldJobs, retries: Retries) -> None:
        self._cache, self._holds, self._retries = cache, holds, retries
        self._tree: QuotaTree | None = None
        self._is_known = True
        self._usage: Usage | None = None
        self._empty: Usage | None = None
        self._state: State | None = None
        self._asked: dict[str, Words] = {}  # by the uid of a pod
        self._equal: dict[tuple[tuple[str, object], ...], Words] = {}  # pods are alike
        self._changed: dict[str, None] = {}  # groups
        self._key_of: dict[str, Key] = {}  # by group
        self._accounts: dict[Key, _Account] = {}
        self._held: dict[JobName, Key] = {}
        self.version = 0
        cache.rounds.bound = self
        cache.bound.quota_labels = self._labels_to_keep

    # Facts

    @property
    def tree(self) -> QuotaTree | None:
        """The quota tree; None without quotas."""
        return self._tree

    def follow(self, told: QuotasFollowed) -> None:
        """Count by this tree, or by none. Cost O(groups) if it is another one."""
        is_news = (told.tree, told.is_known) != (self._tree, self._is_known)
        self._is_known = told.is_known
        if told.tree != self._tree:
            self._tree = told.tree
            self._forget_all()
            if told.tree is None:
                self._holds.changed = None
                if self._cache.core is not None:
                    self._cache.core.touched = None
        if is_news:
            self._retries.room_made()

    def begin_term(self) -> None:
        """Begin a term: held jobs are unknown until its queues have begun."""
        self._is_known = self._is_known and self._tree is None
        self._forget_all()

    def see(self, pod: Pod) -> None:
        """Take in a pod. Its labels count as they are when it gets its cells; see also `_words_of`."""
        uid = pod.metadata.uid
        record = self._cache.pods.get(uid)
        if record is None:
            return
        before, found = self._asked.get(uid), self.read(pod)
        if before is not None and record.place.info is not None:
            found = msgspec.structs.replace(found, labels=before.labels)
        if found != before:
            self._asked[uid] = found
            if record.request is not None:
                self._changed[record.request.spec.group.name] = None

    def forget(self, uid: str) -> None:
        """Remove a pod."""
        self._asked.pop(uid, None)

    # Questions

    @property
    def is_asked(self) -> bool:
        """True if there is a tree to check."""
        return self._tree is not None or not self._is_known

    def refusal(
        self,
        core: Core,
        pods: Sequence[tuple[PodRecord, PodRequest]],
        *,
        beside: Sequence[tuple[PodRecord, PodRequest]] = (),
        instead: Iterable[str] = (),
        said: Mapping[str, Words] | None = None,
    ) -> Wait | None:
        """The reason why these may not have cells together, beside all present users; None if they may.

        They get cells `beside` future pods, and `instead` of groups that reserve some. `said` describes future pods, by
        uid. Cost O(pods + changes since the last question).
        """
        if not self.is_asked:
            return None
        if not self._is_known:
            has_new = any(not core.has_group(request.spec.group.name) for _, request in pods)
            return OverQuota(UNKNOWN_REASON) if has_new else None
        self._settle(core)
        for name in instead:
            self._leave_out(name)
        planned = self._more_for_all(core, beside, said or {})
        for key, amounts in planned.items():
            self._account(key, is_preemptible=True).put(_PLANNED, amounts, is_own=False)
            self._recount(key)
        more = self._more_for_all(core, pods, said or {})
        found = self._beyond({key: (amounts, None) for key, amounts in more.items()})
        for key in planned:
            self._accounts[key].pop(_PLANNED)
            self._recount(key)
        return found

    def allows(self, core: Core, pods: Sequence[tuple[PodRecord, PodRequest]]) -> bool:
        """True if quotas allow these cells together."""
        return self.refusal(core, pods) is None

    def moment(self, core: Core) -> object:
        """A value that changes whenever answers may."""
        return (self.settled_version(core), id(self._tree), self._is_known) if self.is_asked else None

    def refusal_of_hold(self, core: Core, hold: Hold) -> Wait | None:
        """The reason why cells may not be held for a job; None if they may.

        A running job may hold as much as it is charged, even above its quota; more only within it.
        """
        if self._tree is None:
            return None
        self._settle(core)
        leaf = self._leaf_of_hold(hold)
        asked = None if not leaf else self._amounts_of_hold(hold)
        if asked is None:
            return None
        key = leaf, hold.job.job_name
        placed = [one.request.spec.group.name for one in self._holds.placed(hold.job) if one.request is not None]
        moved = [name for name in dict.fromkeys(placed) if self._key_of.get(name, key) != key]
        for name in moved:  # its hold charges them to its own leaf
            self._leave_out(name)
        return self._beyond({key: ({}, asked)})

    def read(self, pod: Pod) -> Words:
        """A pod for quotas."""
        try:
            amounts = amounts_of(pod)
        except UserError:
            amounts = {}
        labels = {label: pod.labels[label] for label in (*LABELS, *marks.PREEMPTIBLE) if label in pod.labels}
        words = (*labels.items(), *sorted(amounts.items()))
        if words not in self._equal:
            if len(self._equal) > 4 * len(self._asked) + 64:
                self._equal.clear()
            self._equal[words] = Words(labels, amounts)
        return self._equal[words]

    def charges(self, core: Core) -> Sequence[Charge]:
        """The use of all jobs. Cost O(groups)."""
        if self._tree is None:
            return ()
        self._settle(core)
        return [
            Charge(
                leaf,
                job,
                one.counted or {},
                self._guaranteed(job, one),
                tuple(name for name, (_, is_own) in one.groups.items() if not is_own),
            )
            for (leaf, job), one in self._accounts.items()
        ]

    def settled_version(self, core: Core) -> int:
        """`version`, once all changes are counted."""
        if self._tree is not None:
            self._settle(core)
        return self.version

    # Counting

    def _settle(self, core: Core) -> None:
        if core.state is not self._state or core.touched is None or self._holds.changed is None:
            self._forget_all()
            self._state, self._usage = core.state, None if self._tree is None else Usage(self._tree)
            core.touched = dict.fromkeys(core.state.groups)
            self._holds.changed = dict.fromkeys(held.hold.job.job_name for held in self._holds.by_key.values())
        if not (core.touched or self._changed or self._holds.changed):
            return
        held, self._holds.changed = self._holds.changed, {}
        for name in held:
            self._take_hold(name)
            for record in self._cache.jobs.pods_of(name):
                if record.request is not None:
                    self._changed[record.request.spec.group.name] = None
        changed, self._changed, core.touched = self._changed | core.touched, {}, {}
        for group in changed:
            self._take_group(core, group)

    def _take_hold(self, name: JobName) -> None:
        """Count a new, changed or dropped hold of a job."""
        held, before = self._holds.of(name), self._held.pop(name, None)
        if before is not None:
            self._accounts[before].asked = None
            self._recount(before)
        leaf = "" if held is None else self._leaf_of_hold(held.hold)
        if held is not None and leaf:
            key = self._held[name] = leaf, name
            account = self._account(key, is_preemptible=held.hold.is_preemptible)
            account.asked = self._amounts_of_hold(held.hold)
            self._recount(key)

    def _take_group(self, core: Core, name: str) -> None:
        """Count a group that got or lost cells, or has other pods."""
        if (before := self._key_of.pop(name, None)) is not None:
            self._accounts[before].pop(name)
        group = core.state.groups.get(name)
        key = None if group is None else self._key_of_group(group)
        if group is not None and key is not None:
            account = self._account(key, is_preemptible=self._asked_of(group).is_preemptible)
            is_own = group.virtual is not None and group.priority >= MIN_GUARANTEED_PRIORITY
            account.put(name, self._amounts_of_group(core, group), is_own=is_own)
            self._key_of[name] = key
        for each in dict.fromkeys((before, key)):
            if each is not None:
                self._recount(each)

    def _leave_out(self, name: str) -> None:
        """Skip a group until changes are counted next."""
        if (key := self._key_of.pop(name, None)) is not None:
            self._accounts[key].pop(name)
            self._recount(key)
            self._changed[name] = None

    def _guaranteed(self, job: JobName | str, account: _Account) -> Amounts:
        held = self._holds.of(job) if isinstance(job, JobName) and account.asked is not None else None
        if held is not None and held.hold.spec.priority >= MIN_GUARANTEED_PRIORITY:
            return account.counted or {}
        return dict(account.own)

    def _account(self, key: Key, *, is_preemptible: bool) -> _Account:
        if key not in self._accounts:
            self._accounts[key] = _Account(is_preemptible)
        return self._accounts[key]

    def _recount(self, key: Key) -> None:
        account, usage = self._accounts[key], self._usage
        before, account.counted = account.counted, account.total()
        if account.counted is None:
            del self._accounts[key]
        if usage is None or before == account.counted:
            return
        self.version += 1
        if before is not None:
            usage.give_back(key[0], before, is_preemptible=account.is_preemptible)
        if account.counted is not None:
            usage.take(key[0], account.counted, is_preemptible=account.is_preemptible)

    def _forget_all(self) -> None:
        for each in (self._changed, self._key_of, self._accounts, self._held):
            each.clear()
        self._usage = self._empty = self._state = None
        self.version += 1

    # Values

    def _asked_of(self, group: Group) -> Words:
        """The first pod of a group, for quotas."""
        return next((self._words_of(pod.uid) for pod in _pods_of(group) if pod.uid in self._asked), _NOTHING)

    def _words_of(self, uid: str) -> Words:
        """A pod for quotas. Labels stored with its binding win over present ones."""
        record, asked = self._cache.pods.get(uid), self._asked[uid]
        kept = None if record is None else record.place.quota
        return asked if kept is None else msgspec.structs.replace(asked, labels=kept)

    def _labels_to_keep(self, uid: str) -> Mapping[str, str] | None:
        """The labels to store with a pod's binding for later leaders; None without a tree."""
        return self._words_of(uid).labels if self.is_asked and uid in self._asked else None

    def _key_of_group(self, group: Group) -> Key | None:
        """The account of a group, None if it has no leaf, or counts with its job's hold."""
        pod = next(iter(_pods_of(group)), None)
        if pod is None or held_job(group.name) is not None:
            return None
        record = self._cache.pods.get(pod.uid)
        if record is not None:
            return self._key_of_pod(record, self._asked_of(group), group.name)
        leaf = self._leaf({}, pod.namespace)
        return (leaf, group.name) if leaf else None

    def _key_of_pod(self, record: PodRecord, asked: Words, group: str) -> Key | None:
        held = self._holds.of_pod(record)
        if held is not None:
            return self._held.get(held.hold.job.job_name)
        leaf = self._leaf(asked.labels, record.namespace)
        job = record.job_object or (group if record.gang is None else f"podgroup/{record.gang}")
        return (leaf, job) if leaf else None

    def _leaf_of_hold(self, hold: Hold) -> str:
        if self._tree is not None and hold.queue in self._tree.quotas:
            return hold.queue
        return self._leaf(hold.pods[0].labels if hold.pods else {}, hold.job.namespace)

    def _leaf(self, labels: Mapping[str, str], namespace: str) -> str:
        """The leaf of work outside queues, "" for none. A forbidden label counts as none."""
        if self._tree is None:
            return ""
        try:
            leaf = quota_of(self._tree, labels, namespace)
        except UserError:
            leaf = self._tree.leaf_of_namespace.get(namespace)
        return "" if leaf is None else leaf.name

    def _amounts_of_hold(self, hold: Hold) -> Amounts:
        if hold.request:
            return hold.request
        known = {id(pod): amounts_of(pod) for pod in hold.pods}
        leaf_count = count_leaves(hold.spec.group.members)
        total = _sum(known[id(pod)] for pod in hold.pods)
        return self._cache.interpreter.cell_amounts.at_least(total, hold.spec.leaf_cell_type, leaf_count)

    def _amounts_of_group(self, core: Core, group: Group, more: PodRequest | None = None) -> Amounts:
        """The amounts of a group, as if this pod had a slot too. Empty slots count like others of their size."""
        leaves = group.physical[group.physical != NO_CELL]
        leaf_type = core.state.topology.cell_type(int(leaves[0])) if len(leaves) else group.spec.leaf_cell_type
        pods = {pod.uid: pod for pod in (*_pods_of(group), *((more,) if more is not None else ()))}
        said = [(self._asked.get(pod.uid, _NOTHING), pod.spec) for pod in pods.values()]
        return self._amounts(said, count_leaves(group.spec.group.members), leaf_type)

    def _amounts(self, pods: Sequence[tuple[Words, PodSpec]], leaf_count: int, leaf_type: str) -> Amounts:
        total = _sum(asked.amounts for asked, _ in pods)
        known = sum(spec.leaf_cell_count for _, spec in pods)
        if 0 < known < leaf_count:
            total = {name: amount * leaf_count / known for name, amount in total.items()}
        return self._cache.interpreter.cell_amounts.at_least(total, leaf_type, leaf_count)

    def _more_for_all(
        self, core: Core, pods: Iterable[tuple[PodRecord, PodRequest]], said: Mapping[str, Words]
    ) -> dict[Key, Amounts]:
        more: dict[Key, Amounts] = {}
        for record, request in pods:
            found = self._more_for(core, record, request, said)
            if found is not None:
                key, amounts = found
                more[key] = _sum((more[key], amounts)) if key in more else amounts
        return more

    def _more_for(
        self, core: Core, record: PodRecord, request: PodRequest, said: Mapping[str, Words]
    ) -> tuple[Key, Amounts] | None:
        """The account of a pod that asks for cells, with its amounts; None if already counted or without a leaf."""
        spec, asked = request.spec, said.get(record.uid) or self._asked.get(record.uid, _NOTHING)
        group = core.state.groups.get(spec.group.name)
        if group is None:
            key = self._key_of_pod(record, asked, spec.group.name)
            found = self._amounts([(asked, spec)], count_leaves(spec.group.members), spec.leaf_cell_type)
            return None if key is None else (key, found)
        key = self._key_of.get(group.name)
        if key is None or request.uid in group.slots_of or request.uid in group.preempting_pods:
            return None
        before, _ = self._accounts[key].groups[group.name]
        after = self._amounts_of_group(core, group, request)
        return key, {name: max(amount - before.get(name, 0.0), 0.0) for name, amount in after.items()}

    def _beyond(self, wanted: Mapping[Key, tuple[Amounts, Amounts | None]]) -> Wait | None:
        """The quota that refuses these accounts more groups of these amounts, or a larger request."""
        usage = self._usage
        if usage is None:
            return None
        together: dict[tuple[str, bool], tuple[Amounts, int]] = {}
        for (leaf, job), (more, asked) in wanted.items():
            account = self._accounts.get((leaf, job)) or _Account()
            groups = _sum((account.sum, more))
            total, before = _most(_most(account.asked or {}, asked or {}), groups), account.counted or {}
            delta = {name: amount - before.get(name, 0.0) for name, amount in total.items()}
            delta = {name: amount for name, amount in delta.items() if abs(amount) > EPSILON}
            so_far, jobs = together.get((leaf, account.is_preemptible), ({}, 0))
            jobs += account.counted is None
            together[leaf, account.is_preemptible] = _sum((so_far, delta)), jobs
        taken, found = [], None
        for (leaf, is_preemptible), (amounts, jobs) in together.items():
            found = usage.refusal(leaf, amounts, jobs=jobs)
            if not is_preemptible:
                found = found or usage.refusal(leaf, amounts, is_preemptible=False, jobs=jobs)
            if found is not None:
                break
            usage.take(leaf, amounts, is_preemptible=is_preemptible, jobs=jobs)
            taken.append((leaf, is_preemptible))
        for leaf, is_preemptible in taken:
            amounts, jobs = together[leaf, is_preemptible]
            usage.give_back(leaf, amounts, is_preemptible=is_preemptible, jobs=jobs)
        if found is None or self._tree is None:
            return None
        self._empty = self._empty or Usage(self._tree)
        never = any(self._empty.refusal(leaf, amounts, jobs=jobs) for (leaf, _), (amounts, jobs) in together.items())
        return OverQuota(found.text.replace(WAIT, TOO_LARGE) if never else found.text)


def _pods_of(group: Group) -> list[PodRequest]:
    """The pods with a group's cells or waiting for them, once each."""
    pods = {pod.uid: pod for pod in group.holders if pod is not None}
    return list((pods | group.preempting_pods).values())


def _sum(all_amounts: Iterable[Amounts]) -> dict[str, float]:
    total: dict[str, float] = {}
    for amounts in all_amounts:
        for name, amount in amounts.items():
            total[name] = total.get(name, 0.0) + amount
    return total


def _most(one: Amounts, other: Amounts) -> Amounts:
    """The larger of both, by resource."""
    if not other:
        return one
    return {name: max(one.get(name, 0.0), other.get(name, 0.0)) for name in one.keys() | other.keys()}
