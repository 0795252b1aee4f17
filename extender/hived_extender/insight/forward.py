"""The queue played forward: the real core on a copy of the state, in virtual time, all virtual clusters together.

Jobs that run end at moments that the caller chooses. At each such moment all that wait are tried in their order; later
ones pass those that have no room, as kube-scheduler lets them. A job for which others have to leave reserves its cells,
and starts when their time to leave is over. Whoever was evicted is not seen again, and nobody new comes. So a play is a
guess of one future; `forecast` draws many. Deterministic, with no clock and no chance of its own.

The waiting jobs of a play, in the order in which they are tried, and the leaf cells that guaranteed groups have.

Jobs of one kind get the same answers. So one of each kind is tried, and once it is refused, the others wait with it
until cells come free that may help them.
"""

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from enum import IntEnum

from hived.cells.state import Group, GroupState
from hived.cells.topology import BoolArray
from hived.scenario import Asked, Scenario, nodes_of, pods_of
from hived.scheduler import handle
from hived.values.decisions import Applied, Bind, Preempt, Wait
from hived.values.errors import UserError
from hived.values.events import Offer, Phase, PodAllocated, PodDeleted
from hived.values.specs import OPPORTUNISTIC_PRIORITY, PodRequest, Rules
from hived_extender.insight.scene import GRACE_S, Scene, has_own_cells, leaf_count, may_have
from hived_extender.insight.snapshot import WaitingEntry
from hived_extender.machine.certificates import NEVER_PREEMPTS


class Lineup:
    """Waiting jobs by number; lower numbers come first. `begin` opens a round, and `next` has the jobs to be tried."""

    def __init__(self, scene: Scene) -> None:
        """Jobs that cannot be asked for are left out."""
        self._scene = scene
        self._kinds: dict[Hashable, list[int]] = {}  # the next one of each kind last
        self._refused: set[Hashable] = set()
        self._heads: list[tuple[int, Hashable]] = []
        self._tried: Hashable | None = None
        for number in reversed(range(len(scene.waiters))):
            if scene.waiters[number].is_asked:
                self._kinds.setdefault(scene.waiters[number].kind, []).append(number)

    def __bool__(self) -> bool:
        """Does anybody wait?"""
        return bool(self._kinds)

    def begin(self) -> None:
        """All that wait are tried in their order, but for kinds that were refused."""
        self._heads = [(numbers[-1], kind) for kind, numbers in self._kinds.items() if kind not in self._refused]
        heapq.heapify(self._heads)
        self._tried = None

    def next(self) -> int | None:
        """The next job of the round; None at its end. Cost O(log kinds)."""
        if self._tried in self._kinds and self._tried not in self._refused:
            heapq.heappush(self._heads, (self._kinds[self._tried][-1], self._tried))
        while self._heads:
            number, kind = heapq.heappop(self._heads)
            if kind not in self._refused and self._kinds.get(kind, [-1])[-1] == number:
                self._tried = kind
                return number
        self._tried = None
        return None

    def refuse(self, number: int) -> None:
        """A job has no room, nor have others of its kind."""
        self._refused.add(self._scene.waiters[number].kind)

    def add(self, number: int) -> None:
        """A job waits again."""
        waiting = self._kinds.setdefault(self._scene.waiters[number].kind, [])
        if number not in waiting:
            waiting.append(number)
            waiting.sort(reverse=True)

    def drop(self, number: int) -> None:
        """A job does not wait any more."""
        kind = self._scene.waiters[number].kind
        if number in self._kinds.get(kind, ()):
            self._kinds[kind].remove(number)
            if not self._kinds[kind]:
                del self._kinds[kind]

    def reopen(self, vc: str) -> None:
        """Cells of a virtual cluster are free: those that they may help are tried again.

        By VC safety they help its own guaranteed jobs alone, where every node is healthy and offered.
        """
        if not self._scene.is_whole:
            self._refused.clear()
            return
        waiting = ((kind, self._scene.waiters[numbers[-1]]) for kind, numbers in self._kinds.items())
        for kind, one in waiting:
            if one.entry.vc == vc or one.is_opportunistic or one.is_restricted:
                self._refused.discard(kind)


class Usage:
    """Leaf cells of guaranteed groups, by virtual cluster and priority."""

    def __init__(self) -> None:
        """Nobody has any."""
        self._used: defaultdict[str, Counter[int]] = defaultdict(Counter)
        self._counted: dict[str, tuple[str, int, int]] = {}

    def add(self, group: str, vc: str, priority: int, leaves: int) -> None:
        """A group has cells; twice counts once."""
        if group not in self._counted:
            self._counted[group] = (vc, priority, leaves)
            self._used[vc][priority] += leaves

    def remove(self, group: str) -> None:
        """A group has its cells no more, or no more as a guaranteed one."""
        vc, priority, leaves = self._counted.pop(group, ("", 0, 0))
        self._used[vc][priority] -= leaves

    def held(self, vc: str, priority: int, without: Iterable[str]) -> int:
        """Leaf cells of groups of a virtual cluster of at least this priority, without some of its groups."""
        held = sum(count for level, count in self._used[vc].items() if level >= priority)
        return held - sum(self._counted.get(group, ("", 0, 0))[2] for group in without)


MOST_ENDS = 4000
"""Jobs that end in one play."""

MOST_ASKS = 6000
"""Questions to the core in one play."""


class _Act(IntEnum):
    """Of one moment, lower numbers come first: cells come free before anybody asks for them."""

    END = 0  # of a job that ran at the beginning
    END_OF_WAITER = 1
    EMPTIED = 2  # the cells that a job reserves


class Play:
    """One future. `starts[number]` is when a waiting job starts, in seconds from now; infinite if it does not.

    `reserved_s[number]` is when the cells are free at the latest that a job could reserve at once: infinite if nobody
    knows, None if it could not.
    """

    def __init__(
        self, scene: Scene, ends: Sequence[float], lengths: Sequence[float], spare: Scenario | None = None
    ) -> None:
        """`ends`: seconds until each running job ends; `lengths`: how long each waiting one then runs. Infinite: never.

        `spare` is the scenario of an earlier play that is over.
        """
        self.scenario = Scenario.copied(scene.state, room=spare)
        self.state = self.scenario.state
        self.starts = [math.inf] * len(scene.waiters)
        self.reserved_s: list[float | None] = [None] * len(scene.waiters)
        self.asks = 0
        self._scene = scene
        self._ends = ends
        self._lengths = lengths
        self._now_s = 0.0
        self._is_better = scene.state.spec.rules is Rules.BETTER
        self._agenda: list[tuple[float, _Act, int]] = []
        self._runs = [True] * len(scene.runners)
        self._taken: dict[int, dict[PodRequest, bool]] = {}  # requests with cells, by waiter: are they bound?
        self._waiter_of: dict[str, int] = {}  # by group, of those
        self._usage = Usage()
        self._lineup = Lineup(scene)
        self._opened: BoolArray | None = None  # nodes that groups have left
        for group in self.state.groups.values():
            if has_own_cells(group) and group.state is not GroupState.BEING_PREEMPTED:
                self._usage.add(group.name, group.spec.virtual_cluster, group.priority, len(group.physical))
        for number, end_s in enumerate(ends):
            if end_s < math.inf:
                self._agenda.append((max(end_s, 0.0), _Act.END, number))
        heapq.heapify(self._agenda)
        self._set_clock()

    def run(self, target: int | None = None) -> None:
        """Go on until a waiting job has started, or all that can. Work is bounded by MOST_ENDS and MOST_ASKS."""
        self._try_all()
        for _ in range(MOST_ENDS):
            is_over = not self._lineup and not self._taken if target is None else self.starts[target] < math.inf
            if is_over or not self._agenda or self.asks >= MOST_ASKS:
                return
            self.step()

    def step(self) -> None:
        """Go on to the next moment at which something happens, and try those that wait."""
        self._now_s = self._agenda[0][0]
        self._set_clock()
        while self._agenda and self._agenda[0][0] <= self._now_s:
            _, act, number = heapq.heappop(self._agenda)
            if act is _Act.END:
                self._end(number)
            elif act is _Act.END_OF_WAITER:
                self._release(number)
            elif number in self._taken and self.starts[number] == math.inf:
                self._take(number)
        self._try_all()

    def _try_all(self) -> None:
        """All that wait, in their order, one of each kind until it is refused."""
        self._lineup.begin()
        while self.asks < MOST_ASKS and (number := self._lineup.next()) is not None:
            if self._lacks_leaves(number) or not self._try(number):
                self._lineup.refuse(number)

    def _lacks_leaves(self, number: int) -> bool:
        """A quick look: do others of its virtual cluster that it cannot evict leave it too few leaf cells?"""
        waiter = self._scene.waiters[number]
        if waiter.is_opportunistic:
            return False
        entry = waiter.entry
        held = self._usage.held(entry.vc, entry.priority, (one.spec.group.name for one in entry.requests))
        return held + waiter.leaves > self._scene.promised.get(entry.vc, 0)

    def _try(self, number: int) -> bool:
        """Start a waiting job, or reserve its cells; False if it has no room, and nothing has changed."""
        entry = self._scene.waiters[number].entry
        try:
            if len(entry.requests) > 1 and not self._fits(number):
                return False
            is_taken = self._take(number)
        except UserError:
            self._lineup.drop(number)
            return True
        if is_taken:
            self._lineup.drop(number)
        return is_taken

    def _fits(self, number: int) -> bool:
        """Have all parts of a job room together?"""
        entry = self._scene.waiters[number].entry
        offers = self._scene.waiters[number].offers(self._opened)
        asked = [Asked(request, offer=offer) for request, offer in zip(entry.requests, offers, strict=True)]
        self.asks += len(asked)
        (found,) = self.scenario.plan([asked])
        if isinstance(found, UserError):
            raise found
        return all(not isinstance(one, Wait) and may_have(self.state, entry, one) for one in found)

    def _take(self, number: int) -> bool:
        """Have every part of a job bound or its cells reserved; else it lets go of all, and False is returned."""
        entry = self._scene.waiters[number].entry
        taken = self._taken.setdefault(number, {})
        emptied_s = latest_s = self._now_s
        offers = self._scene.waiters[number].offers(self._opened)
        for request, offer in zip(entry.requests, offers, strict=True):
            if taken.get(request):
                continue
            decision = self._ask(entry, request, offer, is_reserving=request in taken)
            self._take_back(decision.cancelled, number)
            if isinstance(decision, Wait):
                if taken:
                    self._let_go(number)
                else:
                    del self._taken[number]
                return False
            self._waiter_of[request.spec.group.name] = number
            if isinstance(decision, Bind):
                applied = handle(self.state, PodAllocated(request, decision.bind_info, decision.lazily_preempted))
                assert isinstance(applied, Applied)
                taken[request] = True
                self._take_back(applied.cancelled, number)
                lent = (*decision.lazily_preempted, *applied.lazily_preempted)
            else:
                taken[request] = False
                gone_s, by_s = self._evict(request.spec.group.name)
                emptied_s, latest_s = max(emptied_s, gone_s), max(latest_s, by_s)
                lent = decision.lazily_preempted
            for name in lent:
                self._usage.remove(name)
            if entry.priority > OPPORTUNISTIC_PRIORITY:
                self._usage.add(request.spec.group.name, entry.vc, entry.priority, leaf_count(request))
        if all(taken.values()):
            self.starts[number] = self._now_s
            if self._lengths[number] < math.inf:
                heapq.heappush(self._agenda, (self._now_s + self._lengths[number], _Act.END_OF_WAITER, number))
        else:
            if self._now_s == 0:
                self.reserved_s[number] = latest_s
            heapq.heappush(self._agenda, (max(emptied_s, self._now_s + 1.0), _Act.EMPTIED, number))
        return True

    def _ask(
        self, entry: WaitingEntry, request: PodRequest, offer: Offer | None, *, is_reserving: bool
    ) -> Bind | Preempt | Wait:
        """The core's answer; cells are reserved for whom others have to leave."""
        phases = [Phase.PREEMPTING] if is_reserving else [Phase.FILTERING, Phase.PREEMPTING]
        for phase in phases:
            self.asks += 1
            decision = self.scenario.ask(Asked(request, offer=offer), phase)
            if not isinstance(decision, Preempt):
                break
            if phase is Phase.FILTERING and not may_have(self.state, entry, decision):
                return Wait(NEVER_PREEMPTS)
        assert isinstance(decision, Bind | Preempt | Wait)
        return decision

    def _set_clock(self) -> None:
        self.scenario.now_s = self._scene.at + self._now_s if self._is_better else None

    def _evict(self, preemptor: str) -> tuple[float, float]:
        """The groups in the cells that a group reserves leave; returns when they have, and when at the latest.

        The first one counts their time to leave alone. The other one is told people, and is for the first round.
        """
        gone_s = by_s = self._now_s
        numbers = self.state.victims[self.state.groups[preemptor].number].groups
        for name in sorted(self.state.group_by_number[number].name for number in numbers):
            self._usage.remove(name)
            runner = self._scene.runner_of.get(name)
            if runner is None:
                leaves_s, by_s = self._now_s + GRACE_S, math.inf
                heapq.heappush(self._agenda, (leaves_s, _Act.END_OF_WAITER, self._waiter_of[name]))
            else:
                one = self._scene.runners[runner]
                leaves_s = one.left_s if one.is_leaving and one.left_s is not None else self._now_s + one.grace_s
                leaves_s = max(min(leaves_s, self._ends[runner]), self._now_s)
                by_s = max(by_s, one.gone_s)
                heapq.heappush(self._agenda, (leaves_s, _Act.END, runner))
            gone_s = max(gone_s, leaves_s)
        return gone_s, by_s

    def _end(self, runner: int) -> None:
        """A job that ran at the beginning is over."""
        if not self._runs[runner]:
            return  # evicted before
        self._runs[runner] = False
        for name in self._scene.runners[runner].groups:
            self._open_nodes(self.state.groups.get(name))
            self.scenario.leave(pods_of(self.state, [name]))
            self._usage.remove(name)
        self._lineup.reopen(self._scene.runners[runner].vc)

    def _release(self, number: int) -> None:
        """A job that waited at the beginning is over, or lets go of the cells that it reserves."""
        for request in self._taken.pop(number, ()):
            self._open_nodes(self.state.groups.get(request.spec.group.name))
            self._delete(request)
            self._usage.remove(request.spec.group.name)
            self._waiter_of.pop(request.spec.group.name, None)
        self._lineup.reopen(self._scene.waiters[number].entry.vc)

    def _let_go(self, number: int) -> None:
        """A job has lost room for a part: it gives the rest back, and waits."""
        self._release(number)
        self._lineup.add(number)

    def _take_back(self, groups: Iterable[str], but: int) -> None:
        """These groups reserve cells no more, and their jobs wait again."""
        for name in groups:
            number = self._waiter_of.get(name)
            if number is not None and number != but and self.starts[number] == math.inf:
                self._let_go(number)

    def _open_nodes(self, group: Group | None) -> None:
        """Pods leave the nodes of a group, so that others fit there."""
        left = [group.name] if group is not None and group.state is not GroupState.PREEMPTING else []
        opened = nodes_of(self.state, left)
        self._opened = opened if self._opened is None else self._opened | opened

    def _delete(self, pod: PodRequest) -> None:
        applied = handle(self.state, PodDeleted(pod))
        self._take_back(applied.cancelled, -1)
