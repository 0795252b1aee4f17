"""Pods that start together: none is bound before kube-scheduler has accepted the place of each.

An acceptance is good for as long as kube-scheduler counts the pod as on its node: until its binding, which is held back
for a few seconds, is refused. From then on the node's room is anybody's. So all are bound in one moment, in which
kube-scheduler counts every one of them.

Where that did not come about in time, the start *gathers*: kube-scheduler may look for nodes, but no pod gets its own,
and nothing is held up. When there is a node for each, and kube-scheduler lets the last of them try again, all are woken
at once. One start at a time is *repeated* like this: two gangs could keep each other from the room that both need, of
CPU for instance, which nobody holds for them.

A refusal costs all of them their places, unless their gang says that it is not strict (Koordinator's `NonStrict`).
Of such a gang only the refused pod looks for another place. The others keep theirs for the gang's waiting time.
"""

from collections.abc import Sequence

import msgspec

from hived.values.errors import UserError
from hived_extender.service.effects import HoldBindings, ReleaseBindings
from hived_extender.service.gangs.plans import listed
from hived_extender.service.gangs.table import Gangs
from hived_extender.service.outbox import Outbox
from hived_extender.service.pods import PodRecord, PodState
from hived_extender.service.wakes import Wakes

START = "start"
REPEAT = "repeat start"

START_S = 30.0
"""How long kube-scheduler has to accept the places of all pods that start together, until they are taken back."""

MOST_KEPT_S = 600.0
"""How long pods of a gang that is not strict keep their cells for one that is refused, at most."""

BACKOFF_S = (2.0, 4.0, 8.0, 10.0)
"""How long after a refusal kube-scheduler may leave a pod alone, whoever wakes it; longer after each."""

IN_TURN_S = 1.0
"""Until a start that waits for its turn looks again."""


class Start(msgspec.Struct, eq=False):
    """Pods that start together: by uid those whose place is not accepted now.

    `joined` have come to their places by themselves since, because these pods have theirs. `failures` counts how often
    a binding was held back for too long. While it `is_gathering`, `found` has the moments at which kube-scheduler last
    had a node for a pod, by uid. Until `kept_until` a refused pod costs the others nothing; 0 if their gang is strict.
    """

    members: tuple[PodRecord, ...]
    pending: dict[str, PodRecord]
    joined: list[PodRecord] = msgspec.field(default_factory=list)
    failures: int = 0
    is_gathering: bool = False
    kept_until: float = 0.0
    found: dict[str, float] = msgspec.field(default_factory=dict)

    @property
    def pods(self) -> list[PodRecord]:
        """All whose bindings are held back."""
        return [*self.members, *self.joined]

    @property
    def uids(self) -> tuple[str, ...]:
        """The same by uid."""
        return tuple(record.uid for record in self.pods)

    @property
    def is_repeated(self) -> bool:
        """Is kube-scheduler to accept all pods once more, after it has found a node for each?"""
        return self.failures > 0 and not self.is_gathering

    @property
    def lacking(self) -> list[PodRecord]:
        """Pods that kube-scheduler has no node for, as far as is known."""
        if self.is_gathering:
            return [record for record in self.members if record.uid not in self.found]
        return list(self.pending.values())


class Starts:
    """The starts that are under way. A start is known by its first pod, whose timers it has."""

    def __init__(self, gangs: Gangs, outbox: Outbox, wakes: Wakes) -> None:
        self._gangs = gangs
        self._outbox = outbox
        self._wakes = wakes
        self._starts: dict[str, Start] = {}  # by the uid of each pod

    def begin(self, members: Sequence[PodRecord]) -> None:
        """These pods have got their places at once. A single one waits for nobody.

        Pods without cells only gather while others are accepted once more: they could take the room of those.
        """
        if len(members) > 1:
            start = Start(tuple(members), {record.uid: record for record in members})
            has_cells = any(record.place.info is not None for record in members)
            start.is_gathering = not has_cells and any(one.is_repeated for one in self._starts.values())
            if kept_s := self._kept_s(members):
                start.kept_until = self._outbox.now.at + kept_s
            self._starts |= dict.fromkeys(start.pending, start)
            self._outbox.send(HoldBindings(start.uids))
            self._watch(start)

    def join(self, record: PodRecord) -> None:
        """A pod has got its place by itself. If its gang is starting, it is bound no earlier than the gang is."""
        if record.gang is None or record.uid in self._starts:
            return
        mates = self._gangs.placed_with(record.gang)
        start = next((start for mate in mates if (start := self._starts.get(mate.uid)) is not None), None)
        if start is not None:
            start.joined.append(record)
            self._starts[record.uid] = start
            self._outbox.send(HoldBindings((record.uid,)))

    def has_asked(self, record: PodRecord) -> None:
        """kube-scheduler has taken the node of a pod, or any node of one that takes no cells."""
        start = self._starts.get(record.uid)
        if start is None:
            return
        if start.is_gathering:
            start.found[record.uid] = self._outbox.now.at
            self._plan_repetition(start)
            return
        start.pending.pop(record.uid, None)
        if not start.pending:
            self.end(start)

    def of(self, uid: str) -> Start | None:
        """The start of a pod, None if nothing holds it back."""
        return self._starts.get(uid)

    def puts_off(self, record: PodRecord) -> str:
        """Why a pod does not get its node now although kube-scheduler offers it, "" if it does."""
        start = self._starts.get(record.uid)
        if start is None or not start.is_gathering:
            return ""
        if lacking := start.lacking:
            names = listed([one.name for one in lacking])
            return f"it has its place; kube-scheduler has found no node yet for {names} (see the events there)"
        return f"it has its place; its {len(start.members)} pods are tried together in a moment"

    def held_for(self, record: PodRecord) -> str:
        """Why a pod may not be bound yet, "" if it may."""
        start = self._starts.get(record.uid)
        if start is None:
            return ""
        names = listed([one.name for one in start.lacking if one is not record]) or "all have to be accepted anew"
        return f"{record.key} is bound when kube-scheduler has accepted the nodes of its mates: {names}"

    def lapse(self, record: PodRecord) -> None:
        """The binding of a pod was held back, and is refused: all places have to be accepted anew."""
        start = self._starts.get(record.uid)
        if start is None or start.is_gathering or all(one is not record for one in start.members):
            return
        start.failures += 1
        start.is_gathering = True
        start.found = {one.uid: self._outbox.now.at for one in start.members if one.state is PodState.BOUND}
        self._outbox.send(ReleaseBindings(start.uids))  # kube-scheduler gets their room back
        self._outbox.send(HoldBindings(start.uids))
        self._watch(start)

    def is_hopeless(self, start: Start) -> bool:
        """Has it been tried so often that other places should be looked for, or could other pods start instead?"""
        return (self.has_others(start) or start.failures > len(BACKOFF_S)) and not self.keeps_places(start)

    def has_others(self, start: Start) -> bool:
        """Have pods come since that could start in place of one without cells, which no node may take?"""
        return bool(start.joined) and any(record.place.info is None for record in start.lacking)

    def keeps_places(self, start: Start) -> bool:
        """Do its pods keep their places where one of them is refused?"""
        return self._outbox.now.at < start.kept_until

    def refused(self, start: Start, record: PodRecord) -> None:
        """A pod of a start that goes on has lost its place: it is to get another, and the others wait for it."""
        start.pending[record.uid] = record
        start.found.pop(record.uid, None)

    def look_on(self, start: Start) -> None:
        """Those without a node look for another place; the others go on waiting for them."""
        self._watch(start)

    def _watch(self, start: Start) -> None:
        left_s = start.kept_until - self._outbox.now.at
        self._outbox.wake_in((START, start.members[0].uid), min(START_S, left_s) if left_s > 0 else START_S)

    def _kept_s(self, members: Sequence[PodRecord]) -> float:
        """For how long these pods keep their places where one is refused: 0 if one of their gangs is strict."""
        gangs = [self._gangs.get(record.gang) if record.gang is not None else None for record in members]
        kept_s = MOST_KEPT_S
        for gang in dict.fromkeys(gangs):
            try:
                terms = gang.terms() if gang is not None else None
            except UserError:
                terms = None
            if terms is None or terms.is_strict:
                return 0.0
            kept_s = min(kept_s, terms.waiting_s or MOST_KEPT_S)
        return kept_s

    def _plan_repetition(self, start: Start) -> None:
        """Set the moment for a start to be repeated, once kube-scheduler has a node for each pod."""
        if start.lacking:
            return
        latest = max(start.found[record.uid] for record in start.members)
        delay_s = BACKOFF_S[min(max(start.failures - 1, 0), len(BACKOFF_S) - 1)]
        self._outbox.wake_in((REPEAT, start.members[0].uid), latest + delay_s - self._outbox.now.at)

    def repeat(self, start: Start) -> None:
        """kube-scheduler is to accept all pods at once, unless it does so for others."""
        if not start.is_gathering or start.lacking:
            return
        first = start.members[0].uid
        if any(one.is_repeated for one in self._starts.values()):
            self._outbox.wake_in((REPEAT, first), IN_TURN_S)
            return
        start.failures, start.is_gathering = max(start.failures, 1), False
        start.pending = {record.uid: record for record in start.members if record.state is not PodState.BOUND}
        self._watch(start)
        for record in start.pods:
            if record.state is not PodState.BOUND:
                record.is_asked = False  # until kube-scheduler, which is awake then, asks
                self._wakes.ask(record)
        if not start.pending:
            self.end(start)

    def leave(self, start: Start, uid: str) -> bool:
        """Let a pod go that only joined; False if the start cannot do without it."""
        joined = [one for one in start.joined if one.uid != uid]
        if len(joined) == len(start.joined):
            return False
        start.joined = joined
        del self._starts[uid]
        self._outbox.send(ReleaseBindings((uid,)))
        return True

    def end(self, start: Start) -> None:
        """Hold nothing back any more."""
        for uid in start.uids:
            self._starts.pop(uid, None)
        for kind in (START, REPEAT):
            self._outbox.timers.drop((kind, start.members[0].uid))
        self._outbox.send(ReleaseBindings(start.uids))

    def forget_all(self) -> None:
        """The term is over."""
        for start in dict.fromkeys(self._starts.values()):
            self.end(start)
