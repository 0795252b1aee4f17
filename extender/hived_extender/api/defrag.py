"""The inputs of a plan for defragmentation, as a file and over HTTP, and the plan itself."""

from typing import Any

import msgspec


class InputPlace(msgspec.Struct, frozen=True, rename="camel"):
    """The place of one pod of a group: its node, device indices, and the preassigned cell type behind each ("" if
    none).
    """

    node: str
    cells: tuple[int, ...]
    types: tuple[str, ...]


class InputPod(msgspec.Struct, frozen=True, rename="camel"):
    """A pod that holds the place of a group with this node and these device indices."""

    uid: str
    namespace: str
    name: str
    node: str
    cells: tuple[int, ...]


class InputGroup(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """An affinity group that has cells, or has reserved them.

    Attributes
    ----------
    spec : as the scheduling-spec annotation has it, of any of its pods
    places : per size of pods, ascending, the place of each pod
    gang : `namespace/name` of the gang of another dialect that the group is one pod of, "" if none
    may_move : the owner lets it be moved
    started_at, checkpointed_at : seconds since 1970, None if not known; when its first pod began to run, and when its
        last save was
    is_reserved : it waits for the users of its cells
    """

    spec: dict[str, Any]
    chain: str
    places: list[list[InputPlace]]
    pods: list[InputPod]
    gang: str = ""
    may_move: bool = False
    started_at: float | None = None
    checkpointed_at: float | None = None
    is_reserved: bool = False


class InputLoss(msgspec.Struct, frozen=True, rename="camel"):
    """Leaf cells of a type that a healthy node cannot give; `known` are device indices of some of them."""

    node: str
    leaf_type: str
    count: int
    known: tuple[int, ...] = ()


class InputJob(msgspec.Struct, frozen=True, rename="camel"):
    """A job that waits: the requests of its parts, which start together, as the annotation would have them."""

    name: str
    pods: list[str]
    specs: list[dict[str, Any]]


class InputRules(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Nodes and pods as Kubernetes' own rules see them, in the forms of `kube_rules`.

    Attributes
    ----------
    nodes : all nodes, as `RuledNode`
    kinds : the different pods, as `RuledPod`
    pods : (uid, node, number of its kind) of pods that have a node; others that no rule tells apart are one per node
    wanted : of each job that waits, for each of its specs, the kind of each pod, in the order of the group's slots; no
        kinds for a spec that takes any node
    offered : by job, the nodes that kube-scheduler offers where its volumes or claims decide
    namespaces : the labels of namespaces, as far as they are known
    """

    nodes: list[Any] = []
    kinds: list[Any] = []
    pods: list[tuple[str, str, int]] = []
    wanted: dict[str, list[list[int]]] = {}
    offered: dict[str, list[str]] = {}
    namespaces: dict[str, dict[str, str]] = {}


class Inputs(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """All that a plan for defragmentation depends on.

    Attributes
    ----------
    at : the moment, in seconds since 1970; work lost is counted up to it
    configuration : the text of the configuration in force
    bad_nodes : nodes that are not healthy; every other configured node is
    rules : facts for Kubernetes' own rules; without them, any node may take any pod
    """

    at: float
    configuration: str
    bad_nodes: list[str] = []
    losses: list[InputLoss] = []
    groups: list[InputGroup] = []
    waiting: list[InputJob] = []
    rules: InputRules | None = None


class PlannedPod(msgspec.Struct, frozen=True, rename="camel"):
    """One pod's place: node, device indices, and the preassigned cell type behind each ("" if none)."""

    node: str
    cells: tuple[int, ...]
    types: tuple[str, ...] = ()


class Move(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One group that leaves its place, and its new one.

    Attributes
    ----------
    step : moves of one step leave together before any of them comes back
    gang : the gang of another dialect that the group belongs to, "" if none; it moves as a whole
    is_guaranteed : false for a group in opportunistic use
    was : the place of each of its pods
    becomes : its new places, for each pod that it may have; smaller pods first. Empty if it has to wait, which only an
        opportunistic group may
    lost_gpu_hours : work since the start or the last checkpoint, times leaf cells; 0 if that is not known
    """

    step: int
    group: str
    gang: str = ""
    vc: str
    priority: int
    is_guaranteed: bool
    was: list[PlannedPod]
    becomes: list[PlannedPod]
    lost_gpu_hours: float


class WantedOutcome(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One thing wanted: whether there is room after the moves, where, and who of other VCs' opportunistic work has to
    leave when it comes.
    """

    shape: str
    is_met: bool
    places: list[PlannedPod] = []
    preempts: list[str] = []


class DefragPlan(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A plan.

    Attributes
    ----------
    outcome : "plan", "nothing needed", "nothing possible", or "not known": no plan was found, though one may exist
    reason : in words, why nothing is possible, or why not everything
    cause : why nothing is possible, for programs: "too few cells", "not allowed", "limits", "no arrangement", "not
        confirmed" or "not known"
    met_before : how many of the wanted things had room before
    is_optimal : no plan meets more, or as much with less work lost, or with as much with fewer groups
    gap_gpu_hours : how much less work a better plan could lose at most; 0 if optimal
    gap_groups : how many groups fewer it could move at most
    gap_wanted : how many wanted things more it could meet at most
    """

    outcome: str
    vc: str
    wanted: list[WantedOutcome]
    moves: list[Move] = []
    reason: str = ""
    cause: str = ""
    met_before: int = 0
    solver: str = ""
    lost_gpu_hours: float = 0.0
    moved_groups: int = 0
    is_optimal: bool = False
    gap_gpu_hours: float = 0.0
    gap_groups: int = 0
    gap_wanted: int = 0


class MoveState(msgspec.Struct, frozen=True, rename="camel"):
    """The progress of one move.

    `state` is "pending", "leaving" until all pods are gone, "returning" while its new cells are held for it, "done" or
    "given up".
    """

    step: int
    group: str
    state: str


class LastLook(msgspec.Struct, frozen=True, rename="camel"):
    """The last search for room that the service made by itself.

    Attributes
    ----------
    at : seconds since 1970
    outcome : "moved", "no job waits", "nothing needed", "nothing possible", "not known", "over budget", "refused" or
        "failed"
    job : the job that room was looked for, "" if none waits
    reason : in words, why no group was moved
    """

    at: float
    outcome: str
    job: str = ""
    reason: str = ""


class AutomaticMoves(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A virtual cluster in which the service makes room by itself: its budget, and how much of it is left this hour.

    Groups are None without a limit. `last_look` is None if there was none in this term.
    """

    vc: str
    max_gpu_hours: float
    left_gpu_hours: float
    max_groups: int | None = None
    left_groups: int | None = None
    last_look: LastLook | None = None


class MovingReport(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The moves under way, or the last ones.

    Attributes
    ----------
    state : "none" if there were none in this term, or nothing was there to be stopped, "moving", "done" or "stopped"
    number : counts the plans that were carried out in this term
    who : who asked for them
    reason : in words, why they were stopped
    automatic : the virtual clusters in which the service makes room by itself; in the answer to a question only
    """

    state: str = "none"
    number: int = 0
    who: str = ""
    vc: str = ""
    reason: str = ""
    moves: list[MoveState] = []
    automatic: list[AutomaticMoves] = []


class DefragArgs(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A plan to carry out.

    `return_seconds` counts for each step: so long may pods take to leave, and so long are new cells held for a group.
    """

    plan: DefragPlan
    return_seconds: float = 600.0
