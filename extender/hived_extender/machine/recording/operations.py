"""The operations of a scenario, one for each line: a recorder writes and a replay reads the same (rule 16.1)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from hived.values import specs
from hived.values.errors import UserError
from hived_extender.machine.recording.recorded_offer import Names, OfferText

STAND_IN = "_moving:"
"""The beginning of names of groups and pods that only hold cells for pods to come; no namespace is called so."""


def held_for(group: str) -> str:
    """The group on the move, or the job's key, that a stand-in, `_moving:NUMBER:NAME`, holds cells for; else ""."""
    return group.split(":", 2)[2] if group.startswith(STAND_IN) else ""


class ScenarioError(UserError):
    """The scenario itself cannot be read or followed; the message names file and line."""


class _Op(msgspec.Struct, tag_field="op", rename="camel"):
    """One line of a scenario, told apart by its key "op"."""


class Header(_Op, tag="header"):
    """The first line; it describes the scenario to people and does nothing."""

    name: Any = msgspec.UNSET
    config: Any = msgspec.UNSET


class New(_Op, tag="new"):
    """Start afresh from a configuration, with every node bad."""

    config: str


class AddNodes(_Op, tag="addNodes"):
    """Report nodes as healthy, in order; all configured ones by default."""

    nodes: list[str] | None = None


class AddNode(_Op, tag="addNode"):
    """Report one node."""

    node: str
    healthy: bool


class UpdateNode(_Op, tag="updateNode"):
    """Report that a node's health changed; ignored if it did not."""

    node: str
    old: bool
    new: bool


class DeleteNode(_Op, tag="deleteNode"):
    """Report that a node is gone."""

    node: str


class LoseLeaves(_Op, tag="loseLeaves"):
    """Report how many leaf cells of a type on a node cannot be had, although it is healthy; 0 if all can."""

    node: str
    leaf_type: str
    count: int
    known: list[int] = []


class Schedule(_Op, tag="schedule", kw_only=True):
    """Ask where a pod could run; with `commit`, a binding is carried out.

    `annotation` is the scheduling spec verbatim, instead of `spec`. Without an `offer`, any node will do. `now` is the
    time in seconds since 1970; without it, no work counts. `own` are the virtual leaf cells that the group is to
    have if they are free, as ids in slot order. `job` is for traces, here and elsewhere: the gang or queued job of the
    pod, where that is not its affinity group.
    """

    pod: str
    spec: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    phase: Literal["Filtering", "Preempting"]
    suggested: Names
    commit: bool = False
    offer: OfferText | msgspec.UnsetType | None = msgspec.UNSET
    annotation: str | msgspec.UnsetType | None = msgspec.UNSET
    now: float | msgspec.UnsetType = msgspec.UNSET
    own: list[int] | msgspec.UnsetType = msgspec.UNSET
    job: str | msgspec.UnsetType = msgspec.UNSET

    @property
    def text(self) -> str:
        """The scheduling spec of the pod."""
        return self.annotation if isinstance(self.annotation, str) else bytes(self.spec or b"").decode()

    @property
    def own_cells(self) -> npt.NDArray[np.int32] | None:
        """`own` as the core takes it. Raises UserError for numbers that are no ids."""
        if self.own is msgspec.UNSET:
            return None
        try:
            return np.array(self.own, np.int32)
        except OverflowError:
            raise UserError(f"own has a number of {max(map(abs, self.own))}, expected ids of leaf cells") from None


class Progress(_Op, tag="progress", omit_defaults=True):
    """Report when a pod started and when it last saved its work, in seconds since 1970."""

    pod: str
    started: float | None = None
    saved: float | None = None


class Delete(_Op, tag="delete"):
    """Report that a pod is gone, or waits again. No decision depends on the rest, which is for traces.

    `bound` is false for a pod that had a place and was never bound to it.
    """

    pod: str
    now: float | msgspec.UnsetType = msgspec.UNSET
    bound: bool | msgspec.UnsetType = msgspec.UNSET


class Restart(_Op, tag="restart"):
    """Start afresh and replay nodes and bound pods, in one order or the other."""

    config: str
    order: Literal["nodesFirst", "podsFirst"]
    bad_nodes: list[str]
    pods: list[str]


class AddBound(_Op, tag="addBound"):
    """Report a bound pod with this bind info annotation, unchecked."""

    pod: str
    node: str
    spec: msgspec.Raw
    bind_info: str = ""
    job: str | msgspec.UnsetType = msgspec.UNSET


class NamedPod(msgspec.Struct):
    """One of several pods that an operation names."""

    pod: str
    spec: msgspec.Raw


class SplitPod(NamedPod):
    """The same, with its job."""

    job: str | msgspec.UnsetType = msgspec.UNSET


class Split(_Op, tag="split"):
    """Report that the pods of an allocated group go on as other groups: one for each slot, or with these `slots`."""

    group: str
    pods: list[SplitPod]
    slots: list[list[int]] | msgspec.UnsetType = msgspec.UNSET

    @property
    def slots_of_pods(self) -> tuple[tuple[int, ...], ...]:
        """`slots` as the core takes them."""
        return () if self.slots is msgspec.UNSET else tuple(map(tuple, self.slots))


class BoundPod(NamedPod, rename="camel"):
    """The same, with its bind info annotation."""

    bind_info: str


class Upgrade(_Op, tag="upgrade"):
    """Report that groups on lent cells have their place in their VC now, behind these virtual leaf cells.

    `pods` are all of theirs, as they ask now; `own` is as in `schedule`, in any order.
    """

    pods: list[BoundPod]
    own: list[int]


class Limit(msgspec.Struct):
    """Of these groups of a gang at most `spare` pods may leave without all others of the gang."""

    groups: list[str]
    spare: int


class Gang(_Op, tag="gang"):
    """Report that allocated groups go on together, in place of what was told of a gang of this name."""

    name: str
    groups: list[str] = []
    limits: list[Limit] = []

    @property
    def told(self) -> specs.Gang:
        """As the core takes it."""
        limits = (specs.GangLimit(tuple(limit.groups), limit.spare) for limit in self.limits)
        return specs.Gang(self.name, tuple(self.groups), tuple(limits))


class Reserve(_Op, tag="reserve"):
    """Report that a group had reserved the cells of this bind info annotation, and that these pods of it wait."""

    pods: list[NamedPod]
    node: str = ""
    bind_info: str = ""
    may_be_free: bool | msgspec.UnsetType = msgspec.UNSET


class Plan(_Op, tag="plan"):
    """Ask where several pods could run at once; nothing is carried out."""

    pods: list[NamedPod]
    suggested: Names = "all"


class Inspect(_Op, tag="inspect"):
    """Ask for a view of the state."""

    what: str


Operation: TypeAlias = (
    New
    | AddNodes
    | AddNode
    | UpdateNode
    | DeleteNode
    | LoseLeaves
    | Schedule
    | Progress
    | Delete
    | Restart
    | AddBound
    | Split
    | Upgrade
    | Gang
    | Reserve
    | Plan
    | Inspect
)
_decoder = msgspec.json.Decoder(Header | Operation)


def decode_operation(line: bytes) -> Operation | Header:
    """Read one line of a scenario. Raises UserError if it is no operation."""
    try:
        operation: Operation | Header = _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise UserError(str(error)) from None
    return operation


def read_scenario(path: Path) -> Iterator[tuple[int, Operation]]:
    """Yield (line number, operation) without the header. Raises ScenarioError at a line that is no operation."""
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    operation = decode_operation(line)
                except UserError as error:
                    raise ScenarioError(f"{path}:{number}: {error}") from None
                if not isinstance(operation, Header):
                    yield number, operation
                elif number != 1:
                    raise ScenarioError(f"{path}:{number}: a header may stand on the first line only")
    except OSError as error:
        raise ScenarioError(f"{path}: {error.strerror}") from None
