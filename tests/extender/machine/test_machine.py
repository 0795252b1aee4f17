"""The machine as a table: after these stimuli, this one has this answer and these effects.

Steps and effects are in the words of `machine_table`. Nobody carries an effect out unless a step says so.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from hived_config.loader import load_text
from hived_config.settings import Budgets
from hived_extender.jobs.kinds.description import ObjectRef
from hived_extender.machine.devices.dra import ResourceSlice
from hived_extender.machine.notices import Reason
from hived_extender.machine.preemptions import PreemptionPolicy
from hived_extender.machine.stimuli import (
    Closing,
    Configured,
    DeviceSeen,
    DevicesListed,
    NamespaceChanged,
    NodesListed,
    ObjectSeen,
    Reconfigured,
    Stimulus,
    Switched,
    WhatIfAsked,
)
from hived_extender.reconfiguration.successor import Successor
from tests.extender.machine.machine_table import Table
from tests.extender.machine.small_cluster import CONFIG

FULL = "own p q; place p q; settle; "
"""VC a has no room left; pod p is on n0 and q on n3."""

BOUND = "own p; filter p; bind p n0; "
"""Pod p is being bound to n0."""

AGAIN = BOUND + "fails changed: bind p to n0; "
"""kube-scheduler is to ask about pod p again, and does not."""

BY_FORCE = AGAIN + "wait 435; "
"""Pod p is being bound by force."""

PREEMPTING = FULL + "own r priority=5; filter r; "
"""Pod p is to leave for r."""

LAZY = "own p lazyPreemptionEnable=yes; own q lazyPreemptionEnable=yes; place p q; own r priority=5; settle; "
"""As FULL, but p and q may stay where they are when r, which comes, takes their place in the VC."""

WOKEN = FULL + "own r; filter r; gone p; wait 0.3; "
"""Pod r was refused before p went, and kube-scheduler is being told."""

WAITED = FULL + "own r; filter r; wait 1.5; "
"""People are being told that r waits."""

CHANGED = "own p; place p; settle; tamper p; "
"""The owner of the bound pod p has changed what it says."""

GANG = "gang a b minimum=2; filter a; settle; wait 1; settle; "
"""kube-scheduler has accepted n0 for pod a of a gang, and has not asked about pod b, which is to run on n3."""

JOINED = "gang a b c minimum=2 gpus=2; filter a; settle; "
"""The same, and c may join them."""

AWAY = "503: not ready: another leads"
BEING_BOUND = "hivedscheduler: being bound to node n0, which was not among the nodes offered"
NO_ROOM = "hivedscheduler: needs 1 node of 4 GPUs; a has 2 of 2 in use by p (priority 0) and q (priority 0)"
TOGETHER = "needs 2 nodes of 4 GPUs each at once; a has 2 of 2 in use by p (priority 0) and q (priority 0)"
REJECTED = 'hivedscheduler: Gang "ns/train" gets rejected due to member Pod "{}" is unschedulable with reason "{}"'
DOUBTED = REJECTED.format(
    "a", "podgroup/ns/train has room; kube-scheduler has found no node yet for b (see the events there)"
)
PLACED = REJECTED.format("b", "it has its place; kube-scheduler has found no node yet for a (see the events there)")
VICTIM = "n0: node(s) with pods to preempt: ns/p; gone by about 00:17:11"

BY_SCHEDULER = PreemptionPolicy(by_service=False)
PATIENT = PreemptionPolicy(budgets=Budgets.RESPECT)
KEYS = (b"0123456789abcdef",)


@dataclass
class Row:
    """After `given` and whatever follows from it, `when` has `sent` these effects, and its last step `answer`."""

    sentence: str
    given: str
    when: str
    sent: list[str] = field(default_factory=list)
    answer: str = ""
    more: dict[str, Any] = field(default_factory=dict)


def row(sentence: str, given: str, when: str, sent: Iterable[str] = (), answer: str = "", **more: Any) -> Any:
    return pytest.param(Row(sentence, given, when, list(sent), answer, more), id=sentence)


CONFIGURATION = load_text(CONFIG, "small.yaml", environ={})
OTHER = load_text(CONFIG.replace("cellNumber: 2}]", "cellNumber: 1}]"), "other.yaml", environ={})
SLICE = msgspec.convert(
    {"metadata": {"name": "s"}, "spec": {"nodeName": "n0", "driver": "gpu.nvidia.com", "devices": []}}, ResourceSlice
)


def switched(table: Table) -> Stimulus:
    """VC a has one node instead of two, which is known to a state that holds what is held."""
    successor = Successor(OTHER.cluster)
    successor.catch_up(table.machine.terms.inputs())
    return Switched(OTHER, successor.core, successor.losses, successor.unaccounted)


OTHERS: dict[str, Callable[[Table], Stimulus]] = {
    "no nodes": lambda table: NodesListed(()),
    "object": lambda table: ObjectSeen(ObjectRef("PodGroup.scheduling.x-k8s.io", "ns", "train")),
    "labels of ns": lambda table: NamespaceChanged("ns"),
    "labels of other": lambda table: NamespaceChanged("other"),
    "no slices": lambda table: DevicesListed(ResourceSlice, ()),
    "slice": lambda table: DeviceSeen(SLICE),
    "closing": lambda table: Closing(),
    "configured": lambda table: Configured(CONFIGURATION, CONFIG),
    "switched": switched,
    "reconfigured": lambda table: Reconfigured(((("uid-p",), (Reason.UNACCOUNTED, "no room")),)),
    "what if": lambda table: WhatIfAsked(()),
}

ROWS = [
    # Questions
    row("a pod gets a node", "own p", "filter p", [], "node n0"),
    row("a pod that is asked about again keeps its node", "own p; filter p", "filter p", [], "node n0"),
    row("a pod that is not offered its node gets another", "own p; filter p", "filter p n1 n2", [], "node n1"),
    row("a pod keeps its node when another alone is offered once", "own p; filter p", "filter p n1", [], BEING_BOUND),
    row("and gets that one when it is offered again", "own p; filter p; filter p n1", "filter p n1", [], "node n1"),
    row("a pod without room waits", FULL + "own r", "filter r", [], NO_ROOM),
    row("people are told after a while that it waits", FULL + "own r; filter r", "wait 1.5", ["tell r Waiting"]),
    row("nobody answers without a term", "own p; depose", "filter p", [], AWAY),
    row("nobody binds without a term", "own p; filter p; depose", "bind p n0", [], AWAY),
    row("a node that an earlier term gave away is free", "own p; own q; filter p; depose; elect", "filter q n0", [],
        "node n0"),
    row("a pod without a node is not bound", "own p", "bind p n0", [],
        "400: ns/p cannot be bound: no node has been decided for it"),
    row("a pod is bound to the node that it was given", "own p; filter p", "bind p n0", ["bind p to n0"],
        "awaits bind p to n0"),
    row("a pod is bound to no other node", "own p; filter p", "bind p n1", [],
        "400: ns/p cannot be bound to 'n1': its node is n0"),
    row("a pod that is bound is not bound again", "own p; place p", "bind p n0"),
    row("a pod that nobody has told of is read first", "own p; hidden p", "bind p n0", ["read p"], "awaits read p"),
    row("a pod that cannot be read is not bound", "own p; hidden p; bind p n0", "fails silent: read p", [],
        "502: ns/p cannot be read: it is away"),
    row("a what-if about no pods is answered with none", "", "hand what if", [], "[]"),
    # Bindings that fail
    row("kube-scheduler is to try a pod again whose binding is refused", BOUND, "fails conflict: bind p to n0",
        ["touch p"], "502: ns/p cannot be bound to n0: the version differs (409 Conflict)"),
    row("a pod that others change all the time needs no touch for that", BOUND, "fails changed: bind p to n0", [],
        "409: ns/p cannot be bound to n0: the pod changed 5 times meanwhile"),
    row("a place stays while it is written", BOUND, "filter p n1 n2", [], BEING_BOUND),
    row("a place stays after a binding without an answer", BOUND + "fails silent: bind p to n0", "filter p n1 n2", [],
        BEING_BOUND),
    row("it stays until the pod has another version", BOUND + "fails silent: bind p to n0; see p", "filter p n1 n2", [],
        "node n1"),
    row("a binding of an earlier term keeps no place", BOUND + "depose; elect; fails silent: bind p to n0",
        "filter p n1 n2", [], "node n1"),
    row("a pod that goes while it is bound leaves nothing behind", BOUND + "gone p; fails missing: bind p to n0",
        "wait 1000"),
    # Without kube-scheduler
    row("kube-scheduler is told again of a pod that it does not ask about", AGAIN, "wait 15", ["touch p", "touch p"]),
    row("a pod that it has forgotten is bound by force", AGAIN + "wait 434", "wait 1",
        ["tell p ForcedBinding", "bind p to n0 by force"]),
    row("a pod with a volume never is", "claim p; filter p; bind p n0; fails changed: bind p to n0; wait 434", "wait 1",
        ["tell p NotHandled"]),
    row("a pod that ignores offers is bound where it is", "own p ignoreK8sSuggestedNodes=yes; filter p",
        "filter p n1 n2", ["tell p ForcedBinding", "bind p to n0 by force"], BEING_BOUND),
    row("a forced binding is tried again", BY_FORCE + "fails conflict: bind p to n0 by force", "wait 0.2",
        ["bind p to n0 by force"]),
    row("after four attempts kube-scheduler is to try the pod again",
        BY_FORCE + "fails changed: bind p to n0 by force; wait 5; " * 3, "fails changed: bind p to n0 by force",
        ["touch p"], "409: ns/p cannot be bound to n0: the pod changed 5 times meanwhile"),
    row("a place stays after a forced binding without an answer",
        BY_FORCE + "fails silent: bind p to n0 by force; wait 5; "
        + "fails changed: bind p to n0 by force; wait 5; " * 3, "filter p n1 n2", [], BEING_BOUND),
    # Pods that start together
    row("a gang that forms is told so", "gang a minimum=2; filter a; settle", "wait 2", ["tell a Waiting"]),
    row("all pods of a gang start at the first question", "gang a b minimum=2; settle", "filter a", ["hold a b"],
        "node n0"),
    row("none is bound before all are accepted", GANG, "bind a n0", ["release a b", "hold a b"],
        "400: ns/a is bound when kube-scheduler has accepted the nodes of its mates: b"),
    row("a refused binding ends the acceptance of all", GANG + "bind a n0", "filter b",
        [], PLACED),
    row("all are woken at once when there is a node for each", GANG + "bind a n0; filter b; filter a; settle", "wait 2",
        ["touch a", "touch b"]),
    row("and are let go when kube-scheduler has accepted all of them again",
        GANG + "bind a n0; filter b; filter a; settle; wait 2; filter a", "filter b", ["release a b"], "node n3"),
    row("the last one that is accepted lets all go", GANG, "filter b", ["release a b"], "node n3"),
    row("each can be bound then", GANG + "filter b", "bind a n0", ["bind a to n0"], "awaits bind a to n0"),
    row("kube-scheduler is told of those that it does not ask about", GANG, "wait 4", ["touch b"]),
    row("a start that is not accepted is taken back", GANG + "wait 28.9", "wait 0.1",
        ["release a b", "write statuses of ns/train"]),
    row("the pod that was not asked about is to be asked about first, then", GANG + "wait 30; settle", "filter a",
        [], DOUBTED),
    row("pods that were told that their gang forms are asked about anew when it is complete and has no room",
        FULL + "gang a minimum=2; filter a; settle; gang b minimum=2", "filter b",
        ["touch a"], REJECTED.format("b", TOGETHER)),
    row("once", FULL + "gang a minimum=2; filter a; settle; gang b minimum=2; filter b; settle", "filter a; filter b",
        [], REJECTED.format("b", TOGETHER)),
    row("a pod that goes takes the start back", GANG, "gone b", ["release a b"]),
    row("a pod that leaves does as well", GANG, "leave b", ["release a b"]),
    row("a pod that others have bound holds nobody back", GANG, "see b nodeName=n1",
        ["tell b ForeignDevices", "release a b"]),
    row("a pod that is refused its node takes the start back", GANG, "filter b n1 n2",
        ["release a b", "touch a", "hold a b"], "node n2"),
    row("a pod that joins is held back too", JOINED, "filter c", ["hold c"], "node n3"),
    row("a pod that joined and goes is let go alone", JOINED + "filter c", "gone c", ["release c"]),
    row("pods without cells may run anywhere", "gang a gpus=0 minimum=1", "filter a", [], "node n0 n1 n2 n3"),
    row("the end of a term holds nobody back", GANG, "depose", ["release a b"]),
    # Preemption
    row("victims are evicted", FULL + "own r priority=5", "filter r", ["tell p Preempted", "evict p"], VICTIM),
    row("a victim is evicted once", PREEMPTING, "filter r", [], VICTIM),
    row("people are told that a budget forbids it", PREEMPTING, "fails budget: evict p", ["tell r PreemptionBlocked"]),
    row("the victim is evicted again then", PREEMPTING + "fails budget: evict p", "wait 0.5", ["evict p"]),
    row("after the grace period it is deleted", PREEMPTING + "fails budget: evict p; wait 10; " * 3,
        "fails budget: evict p; wait 10", ["delete p"]),
    row("it is not where budgets are respected", PREEMPTING + "fails budget: evict p; wait 10; " * 3,
        "fails budget: evict p; wait 10", ["evict p"], policy=PATIENT),
    row("a victim that is not there is left alone", PREEMPTING + "settle; wait 2", "wait 20"),
    row("a victim is spared when its preemptor goes", PREEMPTING + "fails budget: evict p", "gone r; wait 5"),
    row("an eviction of an earlier term that fails is no reason to try again", PREEMPTING + "depose; elect; filter r",
        "fails budget: evict p; wait 1", []),
    row("the cells of a victim are free when it is gone", PREEMPTING + "gone p", "filter r", [], "node n0"),
    row("kube-scheduler is told that they are", PREEMPTING + "settle; gone p", "wait 0.3", ["touch r"]),
    row("kube-scheduler evicts where it is to", FULL + "own r priority=5", "preempt r", [], "n0: uid-p",
        policy=BY_SCHEDULER),
    row("a pod that was preempted lazily is annotated", LAZY, "filter r", ["tell p LazyPreempted", "annotate p"],
        "node n2"),
    row("and again if that fails", LAZY + "filter r", "fails conflict: annotate p; wait 0.2", ["annotate p"]),
    row("but not if it is gone", LAZY + "filter r", "fails missing: annotate p; wait 30"),
    # Pods that wait
    row("kube-scheduler is told of a pod for which room was made", FULL + "own r; filter r; gone p", "wait 0.3",
        ["touch r"]),
    row("and again if that fails", WOKEN, "fails conflict: touch r; wait 2", ["tell r Waiting", "touch r"]),
    row("a silent API server is left alone for a moment", WOKEN + "fails silent: touch r", "own s; wait 0.9"),
    row("kube-scheduler is told of all pods that wait when a term begins", "own p; depose; elect", "wait 0.3",
        ["touch p"]),
    row("an announcement is written again after a while", WAITED, "fails silent: tell r Waiting; wait 0.5",
        ["tell r Waiting"]),
    row("no other is tried while the API server is away", WAITED + "fails silent: tell r Waiting",
        "own s spec=bad; wait 0.4"),
    # Statuses of gangs, and kept annotations
    row("the status of a gang is written", "", "gang a b minimum=3", ["write statuses of ns/train"]),
    row("once a second", "gang a minimum=3; done write statuses of ns/train", "gang b minimum=3; wait 0.9"),
    row("and then again", "gang a minimum=3; done write statuses of ns/train", "gang b minimum=3; wait 1",
        ["write statuses of ns/train"]),
    row("at once if somebody was faster", "gang a minimum=3", "fails conflict: write statuses of ns/train; wait 1",
        ["write statuses of ns/train"]),
    row("and later if it failed", "gang a minimum=3; fails silent: write statuses of ns/train; wait 9.9", "wait 0.1",
        ["write statuses of ns/train"]),
    row("an object without pods is looked at", "", "hand object", ["write statuses of ns/train"]),
    row("what a pod does not say any more is kept", "own p; place p; settle", "tamper p", ["keep p"], keys=KEYS),
    row("no longer than it does not", CHANGED + "done keep p; repent p", "wait 0.5", ["keep"], keys=KEYS),
    row("and tried again", CHANGED + "fails conflict: keep p", "wait 2", ["keep p"], keys=KEYS),
    row("at the end the rest is written at once", CHANGED + "settle; repent p", "hand closing", ["keep"], keys=KEYS),
    row("and when a term begins", "", "elect", ["keep"], is_leading=False),
    # Nodes, devices and configurations
    row("a pod gets no bad node", "own p; node n0 is_ready=no", "filter p", [], "node n1"),
    row("nor one that is gone", "own p; hand no nodes; node n1", "filter p", [], "node n1"),
    row("people are told of a pod that others have bound", "own p", "see p nodeName=n0", ["tell p ForeignDevices"]),
    row("a namespace with pods that wait concerns them", "own p", "hand labels of ns", [], "True"),
    row("another namespace concerns nobody", "own p", "hand labels of other", [], "False"),
    row("a list of no devices changes nothing", "", "hand no slices"),
    row("devices that nobody asks for change nothing", "", "hand slice"),
    row("a configuration is taken up without a term", "depose", "hand configured", [], "True"),
    row("but not within one", "", "hand configured", [], "False"),
    row("a state of another configuration replaces the present one", "own p; place p; own q; hand switched", "filter q",
        [], "hivedscheduler: needs 1 node of 4 GPUs; a has 1 of 1 in use by p (priority 0)"),
    row("owners are told what it does to their pods", "own p; place p; settle", "hand reconfigured",
        ["tell p Unaccounted"]),
]  # fmt: skip


@pytest.mark.sample(40)
@pytest.mark.parametrize("row", ROWS)
def test_the_machine_does_as_the_table_says(row: Row) -> None:
    table = Table(**row.more)
    table.others = OTHERS
    table.do(row.given)
    table.sent()
    answer = table.do(row.when)
    assert (table.sent(), answer) == (row.sent, row.answer)
