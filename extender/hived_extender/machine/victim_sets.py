"""Evictions that let a pod or a gang really bind: cells and Kubernetes' own rules together.

The core chooses victims by cells. Its choice stands, or another set leaves, or none (rule 27.2): with a set gone, the
core has to find cells, on nodes that Kubernetes' rules allow then. Changes nothing. Not thread-safe.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cached_property
from heapq import heappop, heappush
from itertools import combinations

import msgspec
import numpy as np

from hived.cells.state import NO_GROUP, Group, GroupState
from hived.cells.topology import NO_CELL, BoolArray
from hived.life.losses import loss_of, weighed_losses
from hived.scenario import Asked, first_enough
from hived.values.decisions import Bind, Preempt, Wait
from hived.values.errors import UserError
from hived.values.events import Offer
from hived.values.specs import OPPORTUNISTIC_PRIORITY, BindInfo, PodRequest, PodSpec, Rules, sizes_of
from hived_extender.kube_rules.demands import RuledPod
from hived_extender.kube_rules.residents import NO_ANTI_AFFINITY, NO_ANTI_AFFINITY_OF_OTHERS
from hived_extender.machine.cluster_cache import ClusterCache
from hived_extender.machine.core import Core
from hived_extender.machine.pods import PodName, PodRecord, PodState

MOST_QUESTIONS = 256
"""To the core about one pod or gang, in a small cluster."""

LEAST_QUESTIONS = 16

MOST_CHECKS = 2048
"""Sets of which Kubernetes' rules are asked, for one pod."""

MOST_NODES = 256
"""Nodes that are looked at for one pod, those with pods that could leave."""

MOST_TOGETHER = 9
"""Groups of which every set is tried; of more, the dearest stay first."""

MOST_KEPT = 512
"""Answers that are kept until something changes."""

NAMED_NODES = 16
"""Nodes of which the lasting obstacle is looked up for a message."""

_ALL_CELLS = 4_000_000

Key = tuple[int | str, ...]


class Who(Enum):
    """The work that may leave: all that priorities allow, opportunistic work alone, or only its pods without cells."""

    ANYBODY = 0
    LENT = 1
    LENT_WITHOUT_CELLS = 2


class Wanted(msgspec.Struct, frozen=True, eq=False):
    """A request, the pods of its slots (or the first for all of them), and the nodes that Kubernetes offers."""

    request: PodRequest
    members: Sequence[PodRecord]
    offer: Offer | None


class Leaver(msgspec.Struct, frozen=True, eq=False):
    """Pods that can only leave together.

    `groups` are theirs in the core, `nodes` where they run. `loss` is their lost work in leaf-milliseconds, `priority`
    the highest of them; `rank` that of a pod without cells in Kubernetes.
    """

    name: str
    uids: frozenset[str]
    pods: tuple[PodRequest, ...]
    groups: frozenset[str]
    nodes: frozenset[str]
    loss: int
    priority: int
    leaves: int
    is_elastic: bool = False
    rank: int = 0


class Chosen(msgspec.Struct, frozen=True, eq=False):
    """`places` are the cells of each request once `uids` have left; those of `strangers` have none themselves.

    `leaving` are pods with cells that leave already, and have to be gone as well. Without `uids`, no other has to.
    """

    places: tuple[tuple[PodRequest, BindInfo], ...]
    uids: frozenset[str]
    strangers: tuple[PodName, ...] = ()
    leaving: frozenset[str] = frozenset()


class VictimSets:
    """`are_told` has the uids of all pods that were told to leave already. `may_evict_in` says it of a namespace."""

    def __init__(
        self, cache: ClusterCache, are_told: Callable[[], Iterable[str]], may_evict_in: Callable[[str], bool]
    ) -> None:
        self._cache = cache
        self._are_told = are_told
        self._may_evict_in = may_evict_in
        self._ruled_of: dict[str, tuple[RuledPod, ...]] = {}  # of each slot, by the name of a group that reserves cells
        self._none_at: object = None
        self._none: set[object] = set()  # requests that no eviction helps, at that moment

    def note_reserved(self, wanted: Sequence[Wanted]) -> None:
        """These requests reserve cells: their pods count as if they were there already."""
        for one in wanted:
            if one.members and all(record.ruled is not None for record in one.members):
                self._ruled_of[one.request.spec.group.name] = tuple(_ruled_of(one))

    def help(self, core: Core, wanted: Sequence[Wanted], found: Sequence[Bind | Preempt | Wait]) -> bool:
        """Would all of these start once the victims of a decision have left?"""
        if not any(isinstance(one, Preempt) for one in found) or not all(map(_is_ruled, wanted)):
            return True
        places = _bound(core.plan([_asked(wanted)], (), []))
        if places is None:
            return False
        named = _named(found)
        records = [record for record in map(self._cache.pods.get, named) if record is not None]
        uids = named | {one.uid for one in self._cache.gangs.leaving_with(records)}
        return self._World(self, core, wanted).takes(places, uids)

    def fewer(self, core: Core, wanted: Sequence[Wanted], found: Sequence[Bind | Preempt | Wait]) -> Chosen | None:
        """Some of the victims of a decision, or none of them, if these are enough (rule 27.8); else None."""
        if core.state.spec.rules is not Rules.BETTER or not all(map(_is_ruled, wanted)):
            return None
        vc = core.state.spec.virtual_clusters.get(wanted[0].request.spec.virtual_cluster)
        has_rules = any(one.offer is not None and one.offer.rules for one in wanted)
        if not (has_rules or (vc is not None and vc.spares)):
            return None
        is_limited = has_rules or any(one.offer is not None and not one.offer.nodes.all() for one in wanted)
        if not is_limited and sum(len(sizes_of(one.request.spec.group.members)) for one in wanted) < 2:
            return None
        world, named = self._World(self, core, wanted), _named(found)
        leavers = world.of(named)
        if named - {uid for one in leavers for uid in one.uids} or (len(leavers) < 2 and not is_limited):
            return None
        chosen = world.pruned(sorted(leavers, key=lambda one: _cost((one,))))
        if chosen is None or not named - chosen.uids:
            return None
        # how long pods of others take to leave is unknown
        return chosen if chosen.uids or self.is_free(core, wanted, chosen) else None

    def is_free(self, core: Core, wanted: Sequence[Wanted], chosen: Chosen) -> bool:
        """Would kube-scheduler take all pods to the places of a choice now, with those there who leave already?"""
        if chosen.uids or chosen.leaving:
            return False
        world = self._World(self, core, wanted)
        world.gone.clear()
        return world.takes([info for _, info in chosen.places], ())

    def are_leaving(self, core: Core, wanted: Sequence[Wanted]) -> bool:
        """Would all of these start once those have left who leave already?"""
        return all(map(_is_ruled, wanted)) and self._World(self, core, wanted).without(()) is not None

    def enough_leaving(
        self, core: Core, wanted: Sequence[Wanted], found: Sequence[Bind | Preempt | Wait], who: Who
    ) -> Chosen | None:
        """The places of all once groups have left of which every pod leaves already (rule 27.5).

        None if these are not enough, or if a decision names no other victims.
        """
        leaving = self._cache.nodes.residents.leaving
        if not leaving or any(isinstance(one, Wait) for one in found) or _named(found) <= leaving.keys():
            return None
        world = self._World(self, core, wanted, who)
        leavers = [one for one in world.of(leaving) if one.uids <= leaving.keys()]
        chosen = world.pruned(leavers) if leavers else None
        return None if chosen is None or chosen.uids or not chosen.leaving else chosen

    def find(self, core: Core, wanted: Sequence[Wanted], who: Who = Who.ANYBODY) -> Iterator[Chosen]:
        """Sets without which all of these would start, cheapest first as far as it is known; none for opportunistic
        pods, and for pods of which the rules are not known. One that is empty: those who leave already are enough.
        """
        if not all(map(_is_ruled, wanted)) or any(
            one.request.spec.priority <= OPPORTUNISTIC_PRIORITY for one in wanted
        ):
            return
        world = self._World(self, core, wanted, who)
        if len(wanted) == 1 and len(sizes_of(wanted[0].request.spec.group.members)) == 1:
            yield from world.for_one(wanted[0])
        else:
            yield from world.for_all()

    def obstacle(self, core: Core, wanted: Sequence[Wanted]) -> str:
        """The obstacle that no eviction removes, on the first node that could ever take the pods; "" if unknown."""
        world = self._World(self, core, wanted)
        for one in wanted:
            if not _is_ruled(one) or one.offer is None:
                continue
            could = np.flatnonzero(self._cache.offers.could_clear(one.members[0], one.offer, 0)).tolist()
            for at in could[:NAMED_NODES]:
                node = core.node_names[at]
                if reasons := world.lasting_reasons(one, node):
                    return f"{node}: {', '.join(reasons)}"
        return ""

    def is_hopeless(self, core: Core, wanted: Sequence[Wanted], who: Who) -> bool:
        """Has no eviction helped pods alike since anything changed?"""
        return self._moment(core) == self._none_at and (who, self._kind(wanted)) in self._none

    def gave_up(self, core: Core, wanted: Sequence[Wanted], who: Who) -> None:
        """Remember that no eviction helps these."""
        moment = self._moment(core)
        if moment != self._none_at or len(self._none) >= MOST_KEPT:
            self._none_at, self._none = moment, set()
        self._none.add((who, self._kind(wanted)))

    def _moment(self, core: Core) -> object:
        return core.number, core.change_count, self._cache.nodes.residents.changes, self._cache.offers.changes

    @staticmethod
    def _kind(wanted: Sequence[Wanted]) -> object:
        return tuple(
            (
                one.request.spec.of_group(""),
                tuple((pod.demands, pod.namespace, tuple(sorted(pod.labels.items()))) for pod in _ruled_of(one)),
                tuple(record.seen.priority for record in one.members),
                b"" if one.offer is None else one.offer.nodes.tobytes() + one.offer.after.tobytes(),
            )
            for one in wanted
        )

    class _World:
        """The cluster as one question sees it (rule 27.4)."""

        def __init__(self, sets: "VictimSets", core: Core, wanted: Sequence[Wanted], who: Who = Who.ANYBODY) -> None:
            self.core, self.wanted, self.cache, self.who = core, wanted, sets._cache, who
            self.residents, self.offers = self.cache.nodes.residents, self.cache.offers
            own = {one.request.spec.group.name for one in wanted}
            self.may_evict_in = sets._may_evict_in
            self.gone = {*sets._are_told(), *self.residents.leaving}
            self.come = self._coming(sets, own)
            cells = len(core.state.cells.priority)
            self.questions = max(LEAST_QUESTIONS, min(MOST_QUESTIONS, _ALL_CELLS // max(cells, 1)))
            self.checks = MOST_CHECKS
            self.spec = wanted[0].request.spec
            self.rank = min(record.seen.priority for one in wanted for record in one.members)
            self._leavers: dict[str, Leaver] | None = None
            self._weighed: dict[str, int] = {}  # losses of groups on lent cells

        @cached_property
        def repels(self) -> bool:
            """Does any pod that is there, or comes, keep others from its surroundings?"""
            if self.residents.repelling:
                return True
            return any(pod.demands.anti_affinity for _, pod in self.come.values())

        def _coming(self, sets: "VictimSets", own: set[str]) -> dict[str, tuple[str, RuledPod]]:
            come = {
                record.uid: (record.place.node, record.ruled)
                for record in self.cache.pods.records(PodState.BINDING)
                if record.ruled is not None
            }
            state = self.core.state
            reserving = {name for name, group in state.groups.items() if group.state is GroupState.PREEMPTING}
            for name in sets._ruled_of.keys() - reserving:
                del sets._ruled_of[name]
            for name in sorted(reserving - own):
                group = state.groups[name]
                nodes = self.core.slot_nodes(group)
                known = sets._ruled_of.get(name)
                if known is None:
                    records = map(self.cache.pods.get, group.preempting_pods)
                    first = next((one.ruled for one in records if one is not None and one.ruled is not None), None)
                    known = () if first is None else (first,) * len(nodes)
                for slot, (node, ruled) in enumerate(zip(nodes, known, strict=False)):
                    if node:
                        come[f"{name}#{slot}"] = node, ruled
            return come

        # Who may leave

        @property
        def leavers(self) -> Mapping[str, Leaver]:
            """All that may leave for these pods, by the uid of each of their pods. Cost O(groups + pods)."""
            if self._leavers is None:
                self._leavers = {}
                for group in self.core.state.groups.values():
                    if self._may_take(group) and (found := self._leaver(group)) is not None:
                        for uid in found.uids:
                            self._leavers.setdefault(uid, found)
            return self._leavers

        def of(self, uids: Iterable[str]) -> list[Leaver]:
            """Those of some pods with cells, each once. Cost O(their pods)."""
            found: dict[str, Leaver] = {}
            for uid in sorted(uids):
                record = self.cache.pods.get(uid)
                if uid in found or record is None or record.request is None:
                    continue
                group = self.core.state.groups.get(record.request.spec.group.name)
                if group is not None and self._may_take(group) and (leaver := self._leaver(group)) is not None:
                    found |= dict.fromkeys(leaver.uids - found.keys(), leaver)
            return list({one.name: one for one in found.values()}.values())

        def _may_take(self, group: Group) -> bool:
            """Is its work lent, or below the pods' own in their virtual cluster (rule 27.6)?"""
            if group.state is GroupState.PREEMPTING or not group.slots_of or self.who is Who.LENT_WITHOUT_CELLS:
                return False
            return group.virtual is None or (
                self.who is Who.ANYBODY
                and group.spec.virtual_cluster == self.spec.virtual_cluster
                and group.spec.priority < self.spec.priority
            )

        def _leaver(self, group: Group) -> Leaver | None:
            records = [self.cache.pods.get(uid) for uid in group.slots_of]
            known = [one for one in records if one is not None]
            if len(known) < len(records):
                return None  # cells that are held for others
            return self._together(group.name, self.cache.gangs.leaving_with(known), group.name)

        def _together(self, name: str, records: Iterable[PodRecord], *more: str) -> Leaver:
            """Pods that leave together, with all pods of their groups; `more` are names of groups."""
            records = list(records)
            names = dict.fromkeys([*more, *(one.request.spec.group.name for one in records if one.request)])
            groups = [found for name in names if (found := self.core.state.groups.get(name)) is not None]
            pods = {pod.uid: pod for one in groups for pod in one.holders if pod is not None}
            return self._made(name, {*pods, *(one.uid for one in records)}, tuple(pods.values()), groups)

        def _made(self, name: str, uids: set[str], pods: tuple[PodRequest, ...], groups: list[Group]) -> Leaver:
            now_ms = -1 if self.core.now_s is None else int(self.core.now_s * 1000)
            are_leaving = uids <= self.gone
            nodes = {found.node for uid in uids if (found := self.residents.get(uid)) is not None}
            records = [one for one in map(self.cache.pods.get, uids) if one is not None]
            nodes |= {one.place.node for one in records if one.place.node}
            priorities = [OPPORTUNISTIC_PRIORITY if one.virtual is None else one.spec.priority for one in groups]
            loss = 0 if now_ms < 0 or are_leaving else sum(self._loss(one, now_ms) for one in groups)
            return Leaver(
                name, frozenset(uids), pods, frozenset(one.name for one in groups), frozenset(nodes), loss,
                max(priorities, default=0),
                0 if are_leaving else sum(int((one.physical != NO_CELL).sum()) for one in groups),
                is_elastic=are_leaving or all(one.spec.elastic for one in groups),
            )  # fmt: skip

        def _loss(self, group: Group, now_ms: int) -> int:
            if group.virtual is not None or not self.core.state.has_saves:
                return loss_of(group, now_ms)
            if not self._weighed:
                lent = [
                    one for one in self.core.state.groups.values()
                    if one.virtual is None and one.state is not GroupState.PREEMPTING
                ]  # fmt: skip
                true = np.array([loss_of(one, now_ms) for one in lent], np.int64)
                weighed = weighed_losses(self.core.state, lent, true, now_ms).tolist()
                self._weighed = {one.name: loss for one, loss in zip(lent, weighed, strict=True)}
            return self._weighed[group.name]

        def closed(self, leaving: Sequence[Leaver]) -> tuple[Leaver, ...]:
            """These, and the rest of gangs that cannot go on without them, though they could without each of them."""
            if len(leaving) < 2:
                return tuple(leaving)
            uids = {uid for one in leaving for uid in one.uids}
            records = [one for one in map(self.cache.pods.get, uids) if one is not None and one.gang is not None]
            more = {one.uid: one for one in self.cache.gangs.leaving_with(records) if one.uid not in uids}
            if not more:
                return tuple(leaving)
            return *leaving, self._together(min(one.key for one in more.values()), more.values())

        def on(self, node: str) -> list[Leaver]:
            """All that may leave and have pods on a node."""
            found: dict[str, Leaver] = {}
            for uid in self.residents.on(node):
                leaver = self.leavers.get(uid) or self._stranger(uid)
                if leaver is not None:
                    found.setdefault(leaver.name, leaver)
            return list(found.values())

        def _stranger(self, uid: str) -> Leaver | None:
            """A pod without cells that leaves for these, and all of its gang that cannot go on without it."""
            record = self.cache.pods.get(uid)
            if record is None:
                return self._without_cells(uid, (uid,)) if self._yields(uid) else None
            together = self.cache.gangs.leaving_with([record])
            if not all(self._may_leave(one) for one in together):
                return None
            if any(one.place.info is not None for one in together):
                return self._together(record.key, together)
            return self._without_cells(uid, [one.uid for one in together])

        def _may_leave(self, record: PodRecord) -> bool:
            """May a pod of ours leave for these, if it has cells or a node?"""
            if record.place.info is None:
                return self._yields(record.uid)
            group = self.core.state.groups.get(record.request.spec.group.name) if record.request is not None else None
            return group is not None and self._may_take(group)

        def _yields(self, uid: str) -> bool:
            """May a pod without cells leave for these (rule 27.6)?"""
            resident, record = self.residents.get(uid), self.cache.pods.get(uid)
            if resident is None:
                return record is not None  # it has no node either
            standing = resident.standing
            if standing is None or standing.is_static or uid in self.gone:
                return False
            if not self.may_evict_in(resident.pod.namespace):
                return False
            ask = record.ask if record is not None else None
            is_lent = standing.is_lent if ask is None else ask.priority <= OPPORTUNISTIC_PRIORITY
            return is_lent or (self.who is Who.ANYBODY and standing.priority < self.rank)

        def _without_cells(self, uid: str, uids: Collection[str]) -> Leaver:
            residents = [found for each in uids if (found := self.residents.get(each)) is not None]
            ranks = [one.standing.priority for one in residents if one.standing is not None]
            nodes = frozenset(one.node for one in residents)
            return Leaver(
                f"pod:{self._named(uid).key}", frozenset(uids), (), frozenset(), nodes, 0, OPPORTUNISTIC_PRIORITY, 0,
                rank=max(ranks, default=0),
            )  # fmt: skip

        # Questions

        def takes(self, places: Sequence[BindInfo], uids: Iterable[str]) -> bool:
            """Would kube-scheduler take all these pods to their nodes, one after the other, once others have left?"""
            pods: list[tuple[RuledPod, str]] = []
            for one, info in zip(self.wanted, places, strict=True):
                if not _is_ruled(one):
                    continue
                nodes = [place.node for size in info.members for place in size]
                if not self._are_known(one, nodes):
                    return False
                pods += zip(_ruled_of(one), nodes, strict=True)
            with self.residents.supposing(*self._nearby({node for _, node in pods}, uids)):
                return self.offers.refusal_in_turn(pods) is None

        def _are_known(self, wanted: Wanted, nodes: Sequence[str]) -> bool:
            """Does kube-scheduler offer its node, or clear it, to each pod of which it alone knows the nodes?"""
            index, offer = self.core.state.topology.node_index, wanted.offer
            for slot, node in enumerate(nodes):
                record = wanted.members[slot] if len(wanted.members) == len(nodes) else wanted.members[0]
                if offer is None or record.ruled is None or not record.ruled.demands.beyond:
                    continue
                if not self.offers.could_clear(record, offer, slot)[index[node]]:
                    return False
            return True

        def _nearby(self, nodes: set[str], uids: Iterable[str]) -> tuple[set[str], Mapping[str, tuple[str, RuledPod]]]:
            """All that leave and come, as far as they matter to pods on some nodes: the others do by rules alone that
            look at other nodes.
            """
            gone, come = {*self.gone, *uids}, self.come
            asking = (pod for one in self.wanted if _is_ruled(one) for pod in _ruled_of(one))
            if self.repels or any(pod.demands.has_neighbour_rules for pod in asking):
                return gone, come
            found = ((uid, self.residents.get(uid)) for uid in gone)
            near = {uid for uid, one in found if one is not None and one.node in nodes}
            return near, {uid: one for uid, one in come.items() if one[0] in nodes}

        def without(self, leaving: Sequence[Leaver], only: BoolArray | None = None) -> Chosen | None:
            """The places of all once these have left, on some nodes `only`; None if they would not start."""
            if self.questions <= 0:
                return None
            leaving = self.closed(leaving)
            uids = frozenset(uid for one in leaving for uid in one.uids)
            left = self._left([*self.gone, *uids])
            asks: list[Asked] = []
            with self.residents.supposing({*self.gone, *uids}, self.come):
                for one in self.wanted:
                    if one.offer is None:
                        asks.append(Asked(one.request))
                        continue
                    offer = self.offers.once_left(one.request, one.members, one.offer, left)
                    if only is not None:
                        offer = Offer(offer.nodes & only, offer.after, offer.rules)
                    if not offer.nodes.any(axis=1).all():
                        return None
                    asks.append(Asked(one.request, offer=offer))
            self.questions -= 1
            pods = {pod.uid: pod for one in leaving for pod in one.pods}
            places = _bound(self.core.plan([asks], list(pods.values())))
            if places is None or not self.takes(places, uids):
                return None
            strangers = tuple(self._named(uid) for one in leaving if not one.groups for uid in one.uids)
            requests = (one.request for one in self.wanted)
            already = frozenset(uid for one in leaving if one.groups for uid in one.uids & self.gone)
            return Chosen(tuple(zip(requests, places, strict=True)), uids - self.gone, strangers, already)

        def _named(self, uid: str) -> PodName:
            resident, record = self.residents.get(uid), self.cache.pods.get(uid)
            if record is not None:
                return record.named
            assert resident is not None
            assert resident.standing is not None
            return PodName(uid, resident.pod.namespace, resident.standing.name)

        def _left(self, uids: Iterable[str]) -> BoolArray:
            found = np.zeros(len(self.core.node_names), np.bool_)
            index = self.core.state.topology.node_index
            for uid in uids:
                resident = self.residents.get(uid)
                if resident is not None and (at := index.get(resident.node)) is not None:
                    found[at] = True
            for node, _ in self.come.values():
                if (at := index.get(node)) is not None:
                    found[at] = True
            return found

        # One pod

        def for_one(self, wanted: Wanted) -> Iterator[Chosen]:
            """Sets for a pod by itself: all have pods on its node, or keep it from the domain of its node."""
            if wanted.offer is None:
                return
            record, names = wanted.members[0], self.core.node_names
            could = self.offers.could_clear(record, wanted.offer, 0)
            heap: list[tuple[Key, int, int, list[tuple[Leaver, ...]]]] = []
            looked_at = 0
            for at in np.flatnonzero(could).tolist():
                found = self._concerned(wanted, names[at])
                if not found:
                    continue
                looked_at += 1
                if looked_at > MOST_NODES:
                    break
                sets = self._sets(wanted, at, found)
                if sets:
                    heappush(heap, (_cost(sets[0]), at, 0, sets))
            while heap and self.questions > 0 and self.checks > 0:
                _, at, number, sets = heappop(heap)
                leaving = sets[number]
                if number + 1 < len(sets):
                    heappush(heap, (_cost(sets[number + 1]), at, number + 1, sets))
                if self._has_leaves(wanted.request.spec, at, leaving) and self._is_taken(wanted, names[at], leaving):
                    only = np.zeros(len(names), np.bool_)
                    only[at] = True
                    chosen = self.without(leaving, only)
                    if chosen is not None:
                        yield chosen

        def _concerned(self, wanted: Wanted, node: str) -> list[Leaver]:
            """All whose leaving may matter to a pod on a node."""
            pod = _ruled_of(wanted)[0]
            found = {one.name: one for one in self.on(node)}
            if pod.demands.anti_affinity or self.residents.repelling:
                gone = {uid for one in found.values() for uid in one.uids} | self.gone
                with self.residents.supposing(gone, self.come):
                    reasons = self.offers.refusals_on(pod, [node]).get(node, ())
                if {NO_ANTI_AFFINITY, NO_ANTI_AFFINITY_OF_OTHERS} & {*reasons}:
                    for uid in self.offers.excluding(pod):
                        leaver = self.leavers.get(uid)
                        if leaver is not None:
                            found.setdefault(leaver.name, leaver)
            return list(found.values())

        def _sets(self, wanted: Wanted, at: int, found: list[Leaver]) -> list[tuple[Leaver, ...]]:
            """Sets of these that may be worth asking about, cheapest first."""
            node = self.core.node_names[at]
            if not self._is_taken(wanted, node, found):
                return []
            found = self._relevant(wanted, node, found)
            if len(found) <= MOST_TOGETHER:
                sets = (each for count in range(len(found) + 1) for each in combinations(found, count))
                return sorted(map(self.closed, sets), key=_cost)
            return [tuple(self._thinned(wanted, at, found))]

        def _relevant(self, wanted: Wanted, node: str, found: list[Leaver]) -> list[Leaver]:
            """Without pods that have no cells and nothing that the pod lacks there."""
            demands = _ruled_of(wanted)[0].demands
            if not any(not one.groups for one in found):
                return found
            names = {name for name, _ in demands.requests}
            kept: list[Leaver] = []
            for one in found:
                others = [resident.pod.demands for uid in one.uids if (resident := self.residents.get(uid)) is not None]
                if (
                    one.groups
                    or demands.has_neighbour_rules
                    or any(
                        each.anti_affinity or each.ports or not names.isdisjoint(name for name, _ in each.requests)
                        for each in others
                    )
                    or self._is_full(node)
                ):
                    kept.append(one)
            return kept

        def _is_full(self, node: str) -> bool:
            ruled = self.cache.nodes.ruled(node)
            allocatable = dict(ruled.allocatable or ()) if ruled is not None else {}
            return len(self.residents.on(node)) >= allocatable.get("pods", 1 << 30)

        def _thinned(self, wanted: Wanted, at: int, found: list[Leaver]) -> list[Leaver]:
            """All of these less those that can stay: as kube-scheduler, the dearest first."""
            node, leaving = self.core.node_names[at], sorted(found, key=lambda one: _cost((one,)), reverse=True)
            for one in list(leaving):
                rest = [each for each in leaving if each is not one]
                if self._has_leaves(wanted.request.spec, at, rest) and self._is_taken(wanted, node, rest):
                    leaving = rest
            return leaving

        def lasting_reasons(self, wanted: Wanted, node: str) -> tuple[str, ...]:
            """Return why a node would refuse a pod though all had left it that may leave for the pod."""
            uids = {uid for one in self.on(node) for uid in one.uids}
            with self.residents.supposing({*self.gone, *uids}, self.come):
                return self.offers.refusals_on(_ruled_of(wanted)[0], [node]).get(node, ())

        def _is_taken(self, wanted: Wanted, node: str, leaving: Sequence[Leaver]) -> bool:
            self.checks -= 1
            uids = {uid for one in leaving for uid in one.uids}
            with self.residents.supposing({*self.gone, *uids}, self.come):
                return self.offers.refusals_on(_ruled_of(wanted)[0], [node]).get(node) == ()

        def _has_leaves(self, spec: PodSpec, at: int, leaving: Sequence[Leaver]) -> bool:
            """Are enough leaf cells of a node free then, wherever they are in one chain?"""
            state = self.core.state
            leaves = state.topology.leaves_of(at)
            if spec.leaf_cell_type:
                leaves = leaves[[state.topology.cell_type(leaf) == spec.leaf_cell_type for leaf in leaves.tolist()]]
            gone = [state.groups[name].number for one in leaving for name in one.groups if name in state.groups]
            using = state.cells.using[leaves]
            free = leaves[(using == NO_GROUP) | np.isin(using, gone)]
            chains = state.arrays.chain_of_level[state.arrays.chain_level[free]]
            return int(np.bincount(chains, minlength=1).max()) >= spec.leaf_cell_count

        # Gangs

        def for_all(self) -> Iterator[Chosen]:
            """Sets for pods that start together."""
            found: dict[str, Leaver] = {}
            for node in self._nodes():
                for one in self.on(node):
                    found.setdefault(one.name, one)
            for uid in self._excluding():
                leaver = self.leavers.get(uid)
                if leaver is not None:
                    found.setdefault(leaver.name, leaver)
            all_of_them = sorted(found.values(), key=lambda one: _cost((one,)))
            if len(all_of_them) <= MOST_TOGETHER - 1:
                sets = (each for count in range(len(all_of_them) + 1) for each in combinations(all_of_them, count))
                for leaving in sorted(map(self.closed, sets), key=_cost):
                    if (chosen := self.without(leaving)) is not None:
                        yield chosen
                return
            enough = first_enough(all_of_them, lambda some: self.without(some) is not None)
            if enough is not None and (chosen := self.pruned(enough)) is not None:
                yield chosen

        def _nodes(self) -> list[str]:
            could = np.zeros(len(self.core.node_names), np.bool_)
            for one in self.wanted:
                if one.offer is not None:
                    for slot, record in enumerate(one.members):
                        could |= self.offers.could_clear(record, one.offer, slot)
            return [self.core.node_names[at] for at in np.flatnonzero(could).tolist()]

        def _excluding(self) -> Iterator[str]:
            for pod in {id(pod): pod for one in self.wanted for pod in _ruled_of(one)}.values():
                if pod.demands.anti_affinity or self.residents.repelling:
                    yield from self.offers.excluding(pod)

        def pruned(self, leaving: list[Leaver]) -> Chosen | None:
            """The places without those that can stay, from the dearest on."""
            best = self.without(leaving)
            for one in reversed(leaving[:]):
                rest = [each for each in leaving if each is not one]
                if (chosen := self.without(rest)) is not None:
                    leaving, best = rest, chosen
            return best


def _named(found: Sequence[Bind | Preempt | Wait]) -> set[str]:
    """The uids of all victims of some decisions."""
    return {uid for one in found if isinstance(one, Preempt) for uid in one.victims}


def _asked(wanted: Sequence[Wanted]) -> list[Asked]:
    return [Asked(one.request, offer=one.offer) for one in wanted]


def _bound(found: Sequence[Sequence[Bind | Preempt | Wait] | UserError]) -> list[BindInfo] | None:
    """The places of all requests of the one bundle; None if one of them has none."""
    decisions = found[0]
    if isinstance(decisions, UserError):
        return None
    places = [one.bind_info for one in decisions if isinstance(one, Bind)]
    return places if len(places) == len(decisions) else None


def _is_ruled(wanted: Wanted) -> bool:
    """Are the rules of all its pods known, and do they matter to it?"""
    return (
        wanted.offer is not None
        and bool(wanted.members)
        and all(record.ruled is not None for record in wanted.members)
        and not wanted.request.spec.ignore_suggested_nodes
    )


def _ruled_of(wanted: Wanted) -> list[RuledPod]:
    """The pod of each slot; the first speaks for all where there are not as many."""
    pods = [record.ruled for record in wanted.members if record.ruled is not None]
    count = len(sizes_of(wanted.request.spec.group.members))
    return pods if len(pods) == count else pods[:1] * count


def _cost(leaving: Sequence[Leaver]) -> Key:
    """The order in which sets are tried (rule 27.3)."""
    return (
        int(any(not one.is_elastic for one in leaving)),
        sum(one.loss for one in leaving),
        sum(max(len(one.groups), 1) for one in leaving if one.leaves or not one.groups),
        max((one.priority for one in leaving), default=OPPORTUNISTIC_PRIORITY),
        sum(one.leaves for one in leaving),
        max((one.rank for one in leaving), default=0),
        sum(len(one.uids) for one in leaving),
        *sorted(one.name for one in leaving),
    )
