"""One gang: its pods and their common terms for its start; with growth, leaders and group names.

Answers wait while a gang is being created (rule 26.13), as a refused pod backs off for seconds, and kube-scheduler asks
about no other pod meanwhile. Leaders start before their followers (rule 26.9). `GroupNames`: the core names a group
`namespace:name`, so no tenant can take another's group. Groups from before this rule have the bare name until their
last pod is gone.
"""

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from hived.values.errors import UserError
from hived_extender.jobs.kinds.description import Description, GangKey, JobPart, MatchPolicy, ObjectRef
from hived_extender.jobs.wire import Owner
from hived_extender.machine.pods import PodRecord, PodState, UnknownPodError

T = TypeVar("T")


class Ended(msgspec.Struct, frozen=True):
    """A pod of a gang that has ended and is not deleted."""

    description: Description
    has_succeeded: bool
    created: str = ""
    owner: Owner | None = None
    is_leaving: bool = False


class Terms(msgspec.Struct, frozen=True):
    """The common description of a gang by its pods; see `Description` for the fields."""

    minimum: int = 1
    total: int | None = None
    task_minimums: Mapping[str, int] = msgspec.field(default_factory=dict)
    match_policy: MatchPolicy = MatchPolicy.ONCE_SATISFIED
    is_strict: bool = True
    waiting_s: float | None = None
    kube_priority: int | None = None
    source: ObjectRef | None = None
    is_missing: bool = False


@dataclass(slots=True, eq=False)
class Gang:
    """Pods by uid; `lists` counts, for each other gang, the pods that name it as starting together.

    `namesakes` are all gangs of this name in any namespace.
    """

    key: GangKey
    namesakes: dict[GangKey, "Gang"] = field(default_factory=dict)
    members: dict[str, PodRecord] = field(default_factory=dict)
    ended: dict[str, Ended] = field(default_factory=dict)
    lists: Counter[GangKey] = field(default_factory=Counter)
    _order: list[PodRecord] | None = field(default=None, repr=False)
    _present: list[PodRecord] | None = field(default=None, repr=False)
    _terms: "Terms | UserError | None" = field(default=None, repr=False)

    def changed(self) -> None:
        """Clear cached terms after a change of its pods."""
        self._order = self._present = self._terms = None

    def in_order(self) -> list[PodRecord]:
        """Members by age, then name: their order of start. Not to be changed."""
        if self._order is None:
            self._order = sorted(self.members.values(), key=age)
        return self._order

    def present(self) -> list[PodRecord]:
        """Members that stay (rule 26.1), in order."""
        if self._present is None:
            latest = self._latest_owners()
            self._present = [
                one for one in self.in_order() if not one.seen.is_leaving and _is_of(latest, one.seen.owner)
            ]
        return self._present

    def succeeded(self) -> list[Ended]:
        """Succeeded pods that stay, as `present` has it."""
        latest, well = self._latest_owners(), [one for one in self.ended.values() if one.has_succeeded]
        return [one for one in well if not one.is_leaving and _is_of(latest, one.owner)]

    def _latest_owners(self) -> dict[tuple[str, str], set[str]]:
        """By kind and name of owners, the uid with the youngest pod; several if their pods have the same age."""
        youngest: dict[tuple[str, str], dict[str, str]] = {}
        seen = [(one.seen.owner, one.seen.created) for one in self.members.values()]
        seen += [(one.owner, one.created) for one in self.ended.values()]
        for owner, created in seen:
            if owner is not None:
                of_uid = youngest.setdefault((owner.kind, owner.name), {})
                of_uid[owner.uid] = max(created, of_uid.get(owner.uid, ""))
        return {key: _latest(of_uid) for key, of_uid in youngest.items()}

    def terms(self) -> Terms:
        """The terms of the pods that stay, or of the others if none do. Raises UserError if they disagree (rule 26.1).

        Cost O(pods) after a change.
        """
        if self._terms is None:
            try:
                self._terms = self._agree()
            except UserError as error:
                self._terms = error
        if isinstance(self._terms, UserError):
            raise UserError(self._terms.message)
        return self._terms

    def _agree(self) -> Terms:
        members = self.present() or self.in_order()
        translated = [(record.name, record.translation.description) for record in members]
        said = [(name, description) for name, description in translated if description is not None]
        if not said:
            said = [(uid, ended.description) for uid, ended in sorted(self.ended.items())]

        def agreed(name: str, what: str, default: T) -> T:
            values = [(pod, getattr(description, name)) for pod, description in said]
            values = [(pod, value) for pod, value in values if value is not None]
            for pod, value in values[1:]:
                if value != values[0][1]:
                    first, other = (_text(one) for one in (values[0][1], value))
                    raise UserError(
                        f"the pods of podgroup/{self.key} disagree: {what} is {first} by {values[0][0]} and "
                        f"{other} by {pod}; make them equal"
                    )
            return values[0][1] if values else default

        return Terms(
            minimum=agreed("minimum", "the minimum", 1),
            total=max((d.total for _, d in said if d.total is not None), default=None),
            task_minimums=agreed("task_minimums", "the minimums of tasks", {}),
            match_policy=agreed("match_policy", "the match policy", MatchPolicy.ONCE_SATISFIED),
            is_strict=agreed("is_strict", "the mode", True),
            waiting_s=agreed("waiting_s", "the waiting time", None),
            kube_priority=agreed("kube_priority", "the priority of the object that describes it", None),
            source=agreed("source", "the object that describes it", None),
            is_missing=bool(self.members) and any(description.missing for _, description in said),
        )


def _latest(created: Mapping[str, str]) -> set[str]:
    last = max(created.values())
    return {uid for uid, at in created.items() if at == last}


def _is_of(latest: Mapping[tuple[str, str], Collection[str]], owner: Owner | None) -> bool:
    return owner is None or owner.uid in latest[owner.kind, owner.name]


def is_ready(record: PodRecord) -> bool:
    """True if nothing of the pod itself keeps it from starting."""
    return record.state is PodState.WAITING and record.translation.ask is not None


def task_of(record: PodRecord) -> str | None:
    """The pod's role in the gang, if it has one."""
    description = record.translation.description
    return description.task if description is not None else None


def age(record: PodRecord) -> tuple[str, str, str]:
    """A sort key: older pods first."""
    return record.seen.created, record.name, record.uid


def _text(value: object) -> str:
    return str(value.value) if isinstance(value, MatchPolicy) else str(value)


GROWING_S = 0.1
"""After the last new pod a gang is taken to grow for so long."""

MOST_S = 0.5
REST = 4


class GrowingError(UnknownPodError):
    """The pod's gang may be complete in a moment: ask again."""


class Growth:
    """Delays answers about gangs that are being created (rule 26.13). Not thread-safe; `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._grown: dict[GangKey, float] = {}
        self._waiting: dict[GangKey, float] = {}  # since when answers wait for a gang
        self._not_before = -math.inf

    def has_grown(self, key: GangKey) -> None:
        """Note a new pod of this gang."""
        now = self._clock()
        self._grown.pop(key, None)
        self._grown[key] = now  # the gang that grew last is at the end
        while now - next(iter(self._grown.values())) > GROWING_S:
            del self._grown[next(iter(self._grown))]

    def may_wait(self, key: GangKey, *, is_forming: bool) -> bool:
        """True if the answer about a pod of this gang may wait for more pods."""
        now = self._clock()
        is_worth_it = is_forming and now - self._grown.get(key, -math.inf) <= GROWING_S
        since = self._waiting.get(key)
        if since is None:
            if is_worth_it and now >= self._not_before:
                self._waiting = {one: began for one, began in self._waiting.items() if now - began <= MOST_S}
                self._waiting[key] = now
                return True
            return False
        if is_worth_it and now - since < MOST_S:
            return True
        del self._waiting[key]
        self._not_before = now + REST * min(now - since, MOST_S)
        return False


def part_of(record: PodRecord) -> JobPart | None:
    """The pod's part in its JobSet, None if no pods wait for leaders there."""
    description = record.translation.description
    return description.job_part if description is not None else None


def has_only_led(members: Sequence[PodRecord], ended: Sequence[Ended]) -> bool:
    """True if the leaders of a gang have begun, and none of their followers."""
    parts = [part_of(record) for record in members if record.state.is_placed]
    parts += [one.description.job_part for one in ended]
    return any(part is not None and part.is_leader for part in parts) and all(
        part is None or part.is_leader for part in parts
    )


def followers_of(members: Sequence[PodRecord], minimum: int) -> dict[str, int]:
    """The number of followers of each waiting leader, by its uid (rule 26.9).

    Empty if leaders are missing too, or if pods are missing for another reason.
    """
    parts = [(record, part) for record in members if (part := part_of(record)) is not None]
    leaders = [(record, part) for record, part in parts if part.is_leader]
    replicas = {part.replicated_job: part.replicas for _, part in parts}
    jobs = {part.job for _, part in leaders}
    if any(sum(job[0] == name for job in jobs) < count for name, count in replicas.items()):
        return {}
    followed = {part.job for _, part in parts if not part.is_leader}
    alone = [record for record, part in leaders if part.job not in followed]
    waiting = [record for record in alone if not record.state.is_placed]
    missing = minimum - len(members)
    if missing <= 0 or not waiting or not all(is_ready(record) for record in members if not record.state.is_placed):
        return {}
    share, rest = divmod(missing, len(alone))
    shares = {record.uid: share + (number < rest) for number, record in enumerate(alone)}
    return {record.uid: shares[record.uid] for record in waiting}


class GroupNames:
    """Names of affinity groups in namespaces. Not thread-safe."""

    def __init__(self) -> None:
        self._bare: defaultdict[tuple[str, str], set[str]] = defaultdict(set)  # uids by namespace and name
        self._of: dict[str, tuple[str, str]] = {}

    def name(self, namespace: str, written: str) -> str:
        """The group that pods of a namespace mean by a name."""
        return written if (namespace, written) in self._bare else qualified(namespace, written)

    def is_bare(self, namespace: str, group: str) -> bool:
        """True for a group with the bare name."""
        return (namespace, group) in self._bare

    def keep(self, uid: str, namespace: str, written: str) -> None:
        """Note a bound pod in a group of the bare name; pods of its namespace join that group."""
        self.forget(uid)
        self._of[uid] = namespace, written
        self._bare[namespace, written].add(uid)

    def forget(self, uid: str) -> None:
        """Forget a pod that is gone."""
        key = self._of.pop(uid, None)
        if key is not None:
            self._bare[key].discard(uid)
            if not self._bare[key]:
                del self._bare[key]


def qualified(namespace: str, written: str) -> str:
    """The core's name for the group that a pod of a namespace names."""
    return f"{namespace}:{written}"


def written_name(namespace: str, group: str) -> str:
    """The name that pods of a namespace write for their group; another group's name is unchanged."""
    return group.removeprefix(f"{namespace}:")
