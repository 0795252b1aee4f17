"""Pods that start together: none is bound before kube-scheduler has accepted the place of each."""

from collections.abc import Sequence

import msgspec

from hived.errors import UserError
from hived_extender.service.effects import HoldBindings, ReleaseBindings
from hived_extender.service.gangs.plans import listed
from hived_extender.service.gangs.table import Gangs
from hived_extender.service.outbox import Outbox
from hived_extender.service.pods import PodRecord

START = "start"

START_S = 30.0
"""How long kube-scheduler has to accept the places of all pods that start together, until they are taken back."""


class Start(msgspec.Struct, eq=False):
    """Pods that start together: by uid those whose place is not accepted yet.

    `joined` have come to their places by themselves since, because these pods have theirs.
    """

    members: tuple[PodRecord, ...]
    pending: dict[str, PodRecord]
    joined: list[PodRecord] = msgspec.field(default_factory=list)

    @property
    def pods(self) -> list[PodRecord]:
        """All whose bindings are held back."""
        return [*self.members, *self.joined]

    @property
    def uids(self) -> tuple[str, ...]:
        """The same by uid."""
        return tuple(record.uid for record in self.pods)


class Starts:
    """The starts that are under way. A start is known by its first pod, whose timer it has."""

    def __init__(self, gangs: Gangs, outbox: Outbox) -> None:
        self._gangs = gangs
        self._outbox = outbox
        self._starts: dict[str, Start] = {}  # by the uid of each pod

    def begin(self, members: Sequence[PodRecord]) -> None:
        """These pods have got their places at once. A single one waits for nobody."""
        if len(members) > 1:
            start = Start(tuple(members), {record.uid: record for record in members})
            self._starts |= dict.fromkeys(start.pending, start)
            self._outbox.send(HoldBindings(start.uids))
            self._outbox.wake_in((START, members[0].uid), START_S)

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
        if start is not None:
            start.pending.pop(record.uid, None)
            if not start.pending:
                self.end(start)

    def of(self, uid: str) -> Start | None:
        """The start of a pod, None if nothing holds it back."""
        return self._starts.get(uid)

    def check_not_held(self, record: PodRecord) -> None:
        """Raise UserError if a pod may not be bound yet."""
        start = self._starts.get(record.uid)
        if start is not None:
            names = listed([one.name for one in start.pending.values()])
            raise UserError(f"{record.key} is bound when kube-scheduler has accepted the nodes of its mates: {names}")

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
        self._outbox.timers.drop((START, start.members[0].uid))
        self._outbox.send(ReleaseBindings(start.uids))

    def forget_all(self) -> None:
        """The term is over."""
        for start in dict.fromkeys(self._starts.values()):
            self.end(start)
