"""One gang: its pods, and their common terms for its start."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from hived.values.errors import UserError
from hived_extender.pods.dialects.description import Description, GangKey, MatchPolicy, ObjectRef
from hived_extender.pods.wire import Owner
from hived_extender.service.pods import PodRecord, PodState

T = TypeVar("T")


class Ended(msgspec.Struct, frozen=True):
    """A pod of a gang that is over, but still there to be seen."""

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
    """Pods by uid; `lists` counts, for each other gang, how many of them say that it starts together with this one.

    `namesakes` are all gangs of this name, whatever their namespace.
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
        """Its pods are not what they were."""
        self._order = self._present = self._terms = None

    def in_order(self) -> list[PodRecord]:
        """Members by age, then name: the order in which they may start. Not to be changed."""
        if self._order is None:
            self._order = sorted(self.members.values(), key=age)
        return self._order

    def present(self) -> list[PodRecord]:
        """Members that are to stay, in order: not being deleted, nor of an owner that was created anew since."""
        if self._present is None:
            latest = self._latest_owners()
            self._present = [
                one for one in self.in_order() if not one.seen.is_leaving and _is_of(latest, one.seen.owner)
            ]
        return self._present

    def succeeded(self) -> list[Ended]:
        """Pods that have ended well and are to stay, as `present` has it."""
        latest, well = self._latest_owners(), [one for one in self.ended.values() if one.has_succeeded]
        return [one for one in well if not one.is_leaving and _is_of(latest, one.owner)]

    def _latest_owners(self) -> dict[tuple[str, str], set[str]]:
        """By kind and name of owners the uid that has the youngest pod; several if their pods are of the same age."""
        youngest: dict[tuple[str, str], dict[str, str]] = {}
        seen = [(one.seen.owner, one.seen.created) for one in self.members.values()]
        seen += [(one.owner, one.created) for one in self.ended.values()]
        for owner, created in seen:
            if owner is not None:
                of_uid = youngest.setdefault((owner.kind, owner.name), {})
                of_uid[owner.uid] = max(created, of_uid.get(owner.uid, ""))
        return {key: _latest(of_uid) for key, of_uid in youngest.items()}

    def terms(self) -> Terms:
        """The terms of the pods that are to stay, or of the others if none is. Raises UserError if they disagree.

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
    """Could the pod start, as far as it itself goes?"""
    return record.state is PodState.WAITING and record.translation.ask is not None


def task_of(record: PodRecord) -> str | None:
    """Its role in the gang, if it says one."""
    description = record.translation.description
    return description.task if description is not None else None


def age(record: PodRecord) -> tuple[str, str, str]:
    """Older pods come first."""
    return record.seen.created, record.name, record.uid


def _text(value: object) -> str:
    return str(value.value) if isinstance(value, MatchPolicy) else str(value)
