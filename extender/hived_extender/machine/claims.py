"""Cells that others are to have first: room is being made for them, and a hold must not disturb that.

Played in a scenario, claim by claim. Only asked while jobs leave for others.

A `Lender` knows the jobs of queues on lent cells, which guaranteed work of no queue may reclaim (rule 31.11).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Protocol, TypeVar, cast

import msgspec
import numpy as np

from hived.cells.state import State
from hived.cells.topology import BoolArray
from hived.scenario import Asked, Scenario, least_prefix, nodes_of, once_left
from hived.scheduler import Fact
from hived.values.errors import UserError
from hived.values.events import Limit, Offer, PodDeleted, Spread, Together
from hived.values.specs import PodRequest
from hived_extender.jobs.job import JobRef
from hived_extender.machine.stimuli import Claimed, Hold

Name = TypeVar("Name")

Allowed = Callable[[Sequence[PodRequest], BoolArray], Offer]
"""The nodes that Kubernetes' rules allow a request once these pods have left these nodes: bool, shape (nodes,)."""


class Present(Protocol):
    """A cluster now: its state, and the time in seconds since 1970, None if that does not count."""

    @property
    def state(self) -> State:
        """The state; it stays as it is."""

    @property
    def version(self) -> int:
        """Another one once the state has changed."""

    @property
    def now_s(self) -> float | None:
        """The time."""


@dataclass(frozen=True, slots=True)
class Claim:
    """`asked` gets its cells once the pods of `leaving` have left; None if it has them all."""

    asked: Asked | None
    leaving: Sequence[PodRequest]


@dataclass(slots=True)
class _Play:
    """Claims get their cells in turn on a copy of a state, once the pods of `leaving` have left.

    `left` are the nodes that pods have left so far; `first_left` those before the first claim.
    """

    leaving: tuple[PodRequest, ...]
    first_left: BoolArray
    scenario: Scenario
    left: BoolArray
    claims: list[Claim]

    def begins(self, leaving: Sequence[PodRequest], left: BoolArray, claims: Sequence[Claim]) -> bool:
        """Does a play of these claims begin like this one?"""
        return (
            len(self.claims) <= len(claims)
            and self.leaving == tuple(leaving)
            and np.array_equal(self.first_left, left)
            and all(map(_is_same, self.claims, claims))
        )

    def go_on(self, claims: Sequence[Claim], now_s: float | None) -> None:
        """Further claims are next."""
        self.scenario.now_s = now_s
        for claim in claims:
            self.left |= _nodes_of(self.scenario.state, claim.leaving)
            self.scenario.leave(claim.leaving)
            if claim.asked is not None:
                with suppress(UserError):
                    self.scenario.start(once_left(claim.asked, self.left))
            self.claims.append(claim)


class Stage:
    """Plays claims of one cluster, and goes on from an earlier play if only claims have come since.

    So that a turn that makes many claims plays each of them a few times, and not once for each other.
    """

    def __init__(self) -> None:
        self._state: State | None = None
        self._version = 0
        self._plays: dict[bool, _Play] = {}
        self._spare: dict[bool, Scenario] = {}  # of plays that are over
        self.afterwards: Scenario | None = None

    def play(
        self, core: Present, claims: Sequence[Claim], leaving: Sequence[PodRequest] = (), left: BoolArray | None = None
    ) -> _Play:
        """Claims in turn, once others have left these nodes. Its state is not to be changed."""
        if self._state is not core.state or self._version != core.version:
            self._state, self._version = core.state, core.version
            self._plays.clear()
        left = _nodes_of(core.state, leaving) if left is None else left
        found = self._plays.get(bool(leaving))
        if found is None or not found.begins(leaving, left, claims):
            scenario = Scenario.copied(core.state, core.now_s, self._spare.get(bool(leaving)))
            self._spare[bool(leaving)] = scenario
            scenario.leave(leaving)
            found = self._plays[bool(leaving)] = _Play(tuple(leaving), left, scenario, left.copy(), [])
        found.go_on(claims[len(found.claims) :], core.now_s)
        return found


def met(core: Present, claims: Sequence[Claim], first: Asked | None = None) -> tuple[list[bool], list[bool]]:
    """Say which claims get their cells beside all that holds cells now, and beside the pod of `first`, which starts.

    At first where they get them one by one, each as soon as its own pods have left; then where all have left together:
    they may choose other cells then. Cost: a search for each claim, twice, and that of `Scenario.tentatively`.
    """
    in_turn = _met(core, claims, first)
    leaving = [pod for claim in claims for pod in claim.leaving]
    if len(claims) == 1 or not leaving:
        return in_turn, in_turn
    together = [Claim(None, leaving), *(Claim(claim.asked, ()) for claim in claims)]
    return in_turn, _met(core, together, first)[1:]


def _met(core: Present, claims: Sequence[Claim], first: Asked | None) -> list[bool]:
    left = np.zeros(len(core.state.topology.node_names), np.bool_)
    steps: list[tuple[list[Fact], Asked | None]] = [([], first)]
    for claim in claims:
        left = left | _nodes_of(core.state, claim.leaving)
        asked = None if claim.asked is None else once_left(claim.asked, left)
        steps.append(([PodDeleted(pod) for pod in claim.leaving], asked))
    return Scenario(core.state, core.now_s).start_in_turn(steps)[1:]


class Afterwards:
    """The state once claims have their cells, and others have left as well. Cost O(cells + groups).

    Claims get their cells as soon as their own pods have left, or when all have left together. They may choose other
    cells then, so a request has to have cells either way.
    """

    def __init__(
        self,
        stage: Stage,
        core: Present,
        claims: Sequence[Claim],
        leaving: Sequence[PodRequest],
        allowed: Allowed | None = None,
    ) -> None:
        """`allowed` is asked where a request's offer has nodes on which others have to leave; without it any may."""
        self._stage, self._core, self._allowed = stage, core, allowed
        self._all_leaving = [*(pod for claim in claims for pod in claim.leaving), *leaving]
        self._claims = [Claim(claim.asked, ()) for claim in claims if claim.asked is not None]
        self._left = _nodes_of(core.state, self._all_leaving)
        played = stage.play(core, claims).scenario.state
        self._later = stage.afterwards = Scenario.copied(played, core.now_s, stage.afterwards)
        self._later.leave(leaving)

    def least_leaving(self, asked: Asked, pods: Mapping[Name, Sequence[PodRequest]]) -> list[Name] | None:
        """The first of these without whose pods a request has cells, as `least_prefix` has it.

        Cost: a search for each of its questions, and a play of all claims; rarely a play for each question.
        """

        def of(names: Sequence[Name]) -> list[PodRequest]:
            return [pod for name in names for pod in pods[name]]

        def binds(names: Sequence[Name]) -> bool:
            return self.binds_in_turn(asked, of(names))

        found = least_prefix(list(pods), binds)
        if found is None or self.binds_together(asked, of(found)):
            return found
        return least_prefix(list(pods), lambda names: binds(names) and self.binds_together(asked, of(names)))

    def binds_in_turn(self, asked: Asked, gone: Sequence[PodRequest]) -> bool:
        """Would a request have cells without evictions, if these pods left last?"""
        asked = self._offered(asked, gone)
        return self._later.places([asked], [PodDeleted(pod) for pod in gone]) is not None

    def binds_together(self, asked: Asked, gone: Sequence[PodRequest]) -> bool:
        """The same if all left before the first claim has its cells."""
        if not self._claims:
            return True
        left = self._left | _nodes_of(self._core.state, gone)
        together = self._stage.play(self._core, self._claims, [*self._all_leaving, *gone], left).scenario
        return together.places([self._offered(asked, gone)]) is not None

    def _offered(self, asked: Asked, gone: Sequence[PodRequest]) -> Asked:
        left = self._left | _nodes_of(self._core.state, gone)
        if self._allowed is None or asked.offer is None or not (asked.offer.after & left).any():
            return once_left(asked, left)
        return replace(asked, offer=self._allowed([*self._all_leaving, *gone], left))


def _is_same(one: object, other: object) -> bool:
    """Are two claims, or parts of them, equal? Arrays and what has some do not compare by themselves."""
    if one is other or type(one) is not type(other):
        return one is other
    if isinstance(one, np.ndarray):
        return np.array_equal(one, cast(np.ndarray, other))
    if isinstance(one, tuple):
        pairs = zip(one, cast(tuple[object, ...], other), strict=False)
        return len(one) == len(cast(tuple[object, ...], other)) and all(_is_same(*pair) for pair in pairs)
    if isinstance(one, Claim | Asked | Offer | Limit | Spread | Together):
        return all(_is_same(getattr(one, each.name), getattr(other, each.name)) for each in fields(one))
    return one == other


def _nodes_of(state: State, pods: Sequence[PodRequest]) -> BoolArray:
    """The nodes with cells of these pods' groups."""
    return nodes_of(state, dict.fromkeys(pod.spec.group.name for pod in pods))


class Lent(msgspec.Struct, frozen=True):
    """Jobs on borrowed cells.

    `borrowers` are in the order in which they should leave. `leaving` are being preempted already; `claims` get
    their cells once these have left.
    """

    borrowers: tuple[JobRef, ...] = ()
    leaving: tuple[JobRef, ...] = ()
    claims: tuple[Claimed, ...] = ()


class Lender(Protocol):
    """Knows the jobs on borrowed cells. For any thread."""

    def lent(self) -> Lent:
        """As it is now."""

    def reclaim(self, hold: Hold, jobs: Sequence[JobRef]) -> None:
        """Preempt these jobs for a hold. No other job gets the cells that it needs until it is forgotten."""

    def forget_others(self, keys: Collection[str]) -> None:
        """Only holds of these keys still wait for jobs to leave."""


class NoLender:
    """There are no queues."""

    def lent(self) -> Lent:
        """See `Lender`."""
        return Lent()

    def reclaim(self, hold: Hold, jobs: Sequence[JobRef]) -> None:
        """See `Lender`."""

    def forget_others(self, keys: Collection[str]) -> None:
        """See `Lender`."""
