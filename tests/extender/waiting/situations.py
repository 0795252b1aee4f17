"""Situations in which a job `late` waits: what its owner is told, who is in the way, and what would help.

Each is a row of a table: how it comes about, step by step in an office (`office.py`), and the answer that is expected.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from tests.extender.waiting.office import Office

Step = Callable[[Office], object]


class Situation(msgspec.Struct, frozen=True):
    """The answer of `hived why` after these steps; lists are words in their order, `helps` those of changes."""

    cause: str
    title: str
    steps: list[Step]
    sentence: str
    also: str = ""
    holders: str = ""
    bad: str = ""
    helps: str = ""

    @property
    def is_gated(self) -> bool:
        """Do pods have scheduling gates? Kubernetes itself has a condition for these."""
        return "scheduling gate" in self.sentence or "Kueue" in self.sentence

    @property
    def is_masked(self) -> bool:
        """Is a job of another namespace in the way, which pods do not name?"""
        return any(not holder.startswith(("ns/", "ns:", "podgroup/ns/")) for holder in self.holders.split())


def run(name: str, shape: str = "1x8", **more: Any) -> Step:
    """A job starts at once."""
    return lambda office: office.run(name, shape, **more)


def submit(name: str, shape: str = "1x8", **more: Any) -> Step:
    """The pods of a job are created."""
    return lambda office: office.submit(name, shape, **more)


def late(shape: str, **more: Any) -> Step:
    """The job is submitted that the situation is about."""
    return submit("late", shape, **more)


def end(name: str) -> Step:
    """A job ends."""

    def step(office: Office) -> None:
        office.end(name)
        office.go_on()

    return step


def leave(name: str) -> Step:
    """A job ends, and nothing else has happened yet."""
    return lambda office: office.end(name)


def node(name: str, **more: Any) -> Step:
    """A node changes."""

    def step(office: Office) -> None:
        office.node(name, **more)
        office.go_on()

    return step


def bad(name: str) -> Step:
    """A node is not ready any more."""
    return node(name, is_ready=False)


def gone(name: str) -> Step:
    """A node is removed from Kubernetes."""

    def step(office: Office) -> None:
        office.remove_node(name)
        office.go_on()

    return step


def evict(name: str) -> Step:
    """Somebody evicts the pods of a job."""

    def step(office: Office) -> None:
        office.evict(name)
        office.go_on()

    return step


def patient(office: Office) -> None:
    """Pods that are evicted take their time from now on."""
    office.is_patient = True


H100 = {"leaf_type": "H100"}
PINNED = {"vc": "inference", "pinned": "INFERENCE-A10"}
NODE = "H100-RACK.H100-NODE"
MORE = f"cells=vision:+1x{NODE} cells=vision:+1x{NODE},foundation:-1x{NODE}"

in_use = partial(Situation, "in-use")
in_pieces = partial(Situation, "in-pieces")
never = partial(Situation, "never")
invalid = partial(Situation, "invalid")
kubernetes = partial(Situation, "kubernetes")
on_bad = partial(Situation, "bad")
incomplete = partial(Situation, "incomplete")
preempting = partial(Situation, "preempting")
lent = partial(Situation, "lent")
order = partial(Situation, "order")

SITUATIONS = [
    in_use(
        "VC full by jobs of the same priority",
        [run("one", **H100), run("two", **H100), late("1x8", **H100)],
        "needs 1 node of 8 H100; vision has 2 of 2 in use by one (priority 0, since 14:00) and two (priority "
        "0, since 14:00)",
        holders="ns/one ns/two",
        helps=f"vc=foundation priority=1 opportunistic ends=ns/two ends=ns/one {MORE}",
    ),
    in_use(
        "holder has a higher priority",
        [run("one", priority=100), run("two", priority=150), late("1x8", priority=10)],
        "needs 1 node of 8 H100; vision has 2 of 2 in use by one (priority 100, since 14:00) and two "
        "(priority 150, since 14:00)",
        holders="ns/one ns/two",
        helps=f"vc=foundation priority=101 opportunistic ends=ns/two ends=ns/one {MORE}",
    ),
    in_pieces(
        "free GPUs, but in pieces",
        [
            run("x", "1x4", **H100),
            run("y", "1x4", **H100),
            run("z", "1x3", may_move=True, **H100),
            end("x"),
            late("1x8", **H100),
        ],
        "needs 1 node of 8 H100; vision has 9 H100 free, in pieces of at most 5",
        holders="ns/y ns/z",
        helps=f"pods=2x4 vc=foundation priority=1 opportunistic move=ns/z ends=ns/z ends=ns/y {MORE}",
    ),
    never(
        "16-GPU pod, largest cell 8",
        [late("1x16")],
        "needs 1 pod of 16 H100; it can never run: a pod can have at most 8 H100 in vision",
        helps="pods=2x8",
    ),
    never(
        "gang 4x8, VC is promised 2 nodes",
        [late("4x8", **H100)],
        "needs 4 nodes of 8 H100 each at once; it can never run: vision has 2 in all",
        helps="opportunistic pods=2x8",
    ),
    never(
        "a gang of another scheduler is larger than its virtual cluster",
        [late("2x8", vc="foundation", is_gang=True)],
        "needs 2 nodes of 8 H100 each at once; it can never run: foundation has 1 in all",
        helps="vc=vision opportunistic pods=1x8 cells=foundation:+2xH100-RACK.H100-NODE,vision:-2xH100-RACK.H100-NODE",
    ),
    in_use(
        "pinned cell full",
        [run("serve", "1x4", **PINNED), late("1x2", **PINNED)],
        "needs 1 pod of 2 A10; pinned cell INFERENCE-A10 has 1 of 1 node in use by serve (priority 0, since 14:00)",
        holders="ns/serve",
        helps="vc=foundation vc=vision priority=1 opportunistic ends=ns/serve",
    ),
    in_use(
        "opportunistic, no room",
        [*(run(f"o{i}", priority=-1, **H100) for i in range(4)), late("1x8", priority=-1, **H100)],
        "needs 1 node of 8 H100; the cluster has 4 of 4 in use by o0 (opportunistic, since 14:00), o1 "
        "(opportunistic, since 14:00), o2 (opportunistic, since 14:00) and 1 more",
        holders="ns/o0 ns/o1 ns/o2 ns/o3",
        helps="priority=0 ends=ns/o3 ends=ns/o2",
    ),
    invalid(
        "wrong pinned cell",
        [late("1x2", vc="inference", pinned="INFERNCE-A10", is_gang=True)],
        "hivedscheduler.microsoft.com/pinned-cell-id is 'INFERNCE-A10'; set it to one of virtual cluster "
        "inference: INFERENCE-A10",
    ),
    invalid(
        "wrong leafCellType",
        [late("1x2", leaf_type="V100", is_gang=True)],
        "hivedscheduler.microsoft.com/leaf-cell-type is 'V100'; set it to a type that virtual cluster vision "
        "has: A10, H100",
    ),
    invalid(
        "wrong leafCellType, in our own words",
        [late("1x2", leaf_type="V100")],
        "Pod requesting leaf cell type V100 which the whole cluster does not have; set it to a type that "
        "virtual cluster vision has: A10, H100",
        helps="leafType=A10 leafType=H100",
    ),
    invalid(
        "nodeSelector against type",
        [late("1x2", selector={"gpu": "tpu"}, is_gang=True)],
        "its nodeSelector rules out every leaf cell type of nvidia.com/gpu: H100 has gpu=h100; A10 has gpu=a10",
    ),
    kubernetes(
        "nodeSelector matches nothing",
        [late("1x2", selector={"zone": "moon"})],
        "needs 1 pod of 2 H100; no node has the labels that it selects: zone=moon",
    ),
    kubernetes(
        "nodeSelector matches nothing, and others have all cells",
        [run("one", **H100), run("two", **H100), late("1x8", selector={"zone": "moon", "gpu": "h100"})],
        "needs 1 node of 8 H100; no node has the labels that it selects: zone=moon",
    ),
    kubernetes(
        "nodeSelector matches nothing, in a gang beside bad nodes",
        [bad("dgx-2"), bad("dgx-3"), late("2x8", selector={"zone": "moon"}, is_gang=True)],
        "needs 2 nodes of 8 H100 each at once; no node has the labels that it selects: zone=moon",
    ),
    on_bad(
        "bad node",
        [*(bad(f"dgx-{i}") for i in (2, 3, 4)), run("one", **H100), late("1x8", **H100)],
        "needs 1 node of 8 H100; vision has 1 of 2 on bad nodes: nodes dgx-2, dgx-3 and dgx-4 are NotReady "
        "(since 14:00)",
        holders="ns/one",
        bad="dgx-2 dgx-3 dgx-4",
        helps="priority=1 heal=dgx-2 heal=dgx-3 ends=ns/one",
    ),
    on_bad(
        "the only free nodes are cordoned",
        [*(node(f"dgx-{i}", is_cordoned=True) for i in (2, 3, 4)), run("one", **H100), late("1x8", **H100)],
        "needs 1 node of 8 H100; vision has 1 of 2 on bad nodes: nodes dgx-2, dgx-3 and dgx-4 are cordoned "
        "(since 14:00)",
        holders="ns/one",
        bad="dgx-2 dgx-3 dgx-4",
        helps="priority=1 heal=dgx-2 heal=dgx-3 ends=ns/one",
    ),
    on_bad(
        "a gang needs two of the bad nodes",
        [*(bad(f"dgx-{i}") for i in (1, 2, 3, 4)), late("2x8", **H100)],
        "needs 2 nodes of 8 H100 each at once; vision has 2 of 2 on bad nodes: nodes dgx-1, dgx-2 and dgx-3 are "
        "NotReady (since 14:00) and 1 node more cannot be used",
        bad="dgx-1 dgx-2 dgx-3 dgx-4",
        helps="heal=dgx-2,dgx-3",
    ),
    on_bad(
        "the free nodes have lost a device",
        [*(node(f"dgx-{i}", gpus=7) for i in (1, 2, 3, 4)), late("1x8", **H100)],
        "needs 1 node of 8 H100; vision has 2 of 2 on bad nodes: nodes dgx-1, dgx-2 and dgx-3 are short of "
        "devices: device missing: allocatable 7 of 8 nvidia.com/gpu (since 14:00) and 1 node more cannot be "
        "used",
        bad="dgx-1 dgx-2 dgx-3 dgx-4",
        helps="pods=2x4 heal=dgx-1 heal=dgx-4",
    ),
    incomplete(
        "gang incomplete",
        [late("4x2", is_gang=True, missing=2)],
        "rejected by podgroup/ns/late: 2 of 4 pods created (missing late-2, late-3)",
    ),
    in_use(
        "after the gang is complete",
        [run("one", "2x8", is_gang=True, **H100), late("2x8", is_gang=True, **H100)],
        "needs 2 nodes of 8 H100 each at once; vision has 2 of 2 in use by one (priority 0, since 14:00)",
        holders="podgroup/ns/one",
        helps="priority=1 opportunistic ends=podgroup/ns/one",
    ),
    preempting(
        "own lower-priority job in the way",
        [run("lo", "2x8", priority=1), patient, late("1x8", priority=5)],
        "needs 1 node of 8 H100; its cells are being reclaimed from lo (priority 1, since 14:00, gone by 14:00:55)",
        holders="ns:lo",
    ),
    lent(
        "its lent cells are being reclaimed",
        [*(run(f"o{i}", priority=-1, **H100) for i in range(4)), patient, late("1x8", **H100)],
        "needs 1 node of 8 H100; its cells are being reclaimed from o3 (opportunistic, since 14:01, gone by 14:01:55)",
        holders="ns/o3",
    ),
    invalid(
        "no VC",
        [late("1x8", vc="", namespace="stranger", is_gang=True)],
        "it names no virtual cluster: have the configuration list namespace stranger under "
        "virtualClusters.NAME.namespaces",
    ),
    invalid(
        "the virtual cluster does not exist",
        [late("1x2", vc="visoin", is_gang=True)],
        "hivedscheduler.microsoft.com/virtual-cluster is 'visoin'; set it to a virtual cluster: foundation, "
        "inference, vision",
    ),
    invalid(
        "the namespace may not have such a priority",
        [late("1x8", priority=500)],
        "namespace ns may use virtual cluster vision up to priority 200, not 500",
    ),
    invalid(
        "the pod asks for no cells",
        [late("1x8", more={"leafCellNumber": 0})],
        "Pod annotation hivedscheduler.microsoft.com/pod-scheduling-spec: LeafCellNumber is non-positive",
    ),
    incomplete(
        "scheduling gates hold the pods",
        [late("2x8", is_gang=True, is_gated=True)],
        "held by a scheduling gate",
    ),
    incomplete(
        "Kueue holds the pods",
        [late("2x8", is_gang=True, is_gated=True, gate="kueue.x-k8s.io/admission")],
        "Kueue has not admitted it yet",
    ),
    kubernetes(
        "the free nodes are tainted",
        [*(node(f"dgx-{i}", taint="maintenance") for i in (1, 2, 3, 4)), late("1x8", **H100)],
        "needs 1 node of 8 H100; Kubernetes rules out 2 of 2 nodes of vision: 4 of 6 nodes cannot take it "
        "(node(s) had untolerated taint {maintenance: }: dgx-1 and 3 more)",
    ),
    kubernetes(
        "the selector leaves nodes that are in use",
        [run("one", "1x4", leaf_type="A10"), late("1x4", leaf_type="", selector={"gpu": "a10"})],
        "needs 1 pod of 4 H100; Kubernetes rules out 4 of 4 H100-QUAD of vision: 4 of 6 nodes cannot take it "
        "(node(s) didn't match Pod's node affinity/selector: dgx-1 and 3 more)",
        helps="priority=1 opportunistic ends=ns/one",
    ),
    in_use(
        "cells of the asked type are in use, of another they are not",
        [run("one", "1x4", leaf_type="A10"), late("1x4", leaf_type="A10")],
        "needs 1 node of 4 A10; vision has 1 of 1 in use by one (priority 0, since 14:00)",
        holders="ns/one",
        helps="leafType=H100 priority=1 opportunistic ends=ns/one",
    ),
    never(
        "a gang fits but for one pod",
        [late("3x8", **H100)],
        "needs 3 nodes of 8 H100 each at once; it can never run: vision has 2 in all",
        helps="opportunistic pods=2x8",
    ),
    in_use(
        "pods of several sizes wait together",
        [run("one", **H100), late("1x8+2x4", **H100)],
        "needs 2 pods of 4 and 1 pod of 8 H100 at once; vision has 1 of 2 nodes in use by one (priority 0, "
        "since 14:00)",
        holders="ns/one",
        helps="priority=1 opportunistic ends=ns/one",
    ),
    in_use(
        "two jobs are in the way of a gang",
        [run("one", priority=1), run("two", priority=1), late("2x8")],
        "needs 2 nodes of 8 H100 each at once; vision has 2 of 2 in use by one (priority 1, since 14:00) and two "
        "(priority 1, since 14:00)",
        holders="ns/one ns/two",
        helps="priority=2 opportunistic ends=ns/two,ns/one",
    ),
    in_use(
        "two jobs are in the way on one node",
        [*(run(name, "1x4", **H100) for name in "abcd"), late("1x8", **H100)],
        "needs 1 node of 8 H100; vision has 2 of 2 in use by a (priority 0, since 14:00), b (priority 0, "
        "since 14:00), c (priority 0, since 14:00) and 1 more",
        holders="ns/a ns/b ns/c ns/d",
        helps=f"vc=foundation priority=1 opportunistic ends=ns/d,ns/c ends=ns/b,ns/a {MORE}",
    ),
    in_use(
        "guaranteed jobs have the hardware that an opportunistic one would borrow",
        [run("one", "2x8"), run("two", vc="foundation"), run("o", priority=-1), late("1x8", priority=-1, **H100)],
        "needs 1 node of 8 H100; the cluster has 4 of 4 in use by one (priority 0, since 14:00), two "
        "(priority 0, since 14:00) and o (opportunistic, since 14:00)",
        holders="ns:one ns/two ns/o",
        helps="priority=1 ends=ns/o ends=ns/two",
    ),
    in_pieces(
        "no node has room for all pods within one cell",
        [
            run("x", "1x4", **H100),
            run("y", "1x4", **H100),
            run("z", "1x4", **H100),
            run("w", "1x4", **H100),
            end("x"),
            end("z"),
            late("2x4", more={"withinCell": "H100-NODE"}, **H100),
        ],
        "needs 2 pods of 4 H100 each at once in one H100-NODE; vision has 8 H100 free, in pieces of at most 4",
        holders="ns/y ns/w",
        helps=f"vc=foundation priority=1 opportunistic pods=1x4 move=ns/w ends=ns/w ends=ns/y {MORE}",
    ),
    never(
        "no cell of the wished type can hold all pods",
        [late("2x8", more={"withinCell": "H100-NODE"}, **H100)],
        "needs 2 nodes of 8 H100 each at once in one H100-NODE; it can never run: vision has no place of this shape",
        helps="pods=1x8",
    ),
    in_use(
        "holders have the highest priority that the namespace may have",
        [run("one", priority=200, **H100), run("two", priority=200, **H100), late("1x8", priority=200, **H100)],
        "needs 1 node of 8 H100; vision has 2 of 2 in use by one (priority 200, since 14:00) and two "
        "(priority 200, since 14:00)",
        holders="ns/one ns/two",
        helps=f"vc=foundation opportunistic ends=ns/two ends=ns/one {MORE}",
    ),
    in_use(
        "the own virtual cluster is full, and another is idle",
        [run("one", vc="foundation"), late("1x8", vc="foundation")],
        "needs 1 node of 8 H100; foundation has 1 of 1 in use by one (priority 0, since 14:00)",
        holders="ns/one",
        helps="vc=vision priority=1 opportunistic ends=ns/one cells=foundation:+1xH100-RACK.H100-NODE "
        "cells=foundation:+1xH100-RACK.H100-NODE,vision:-1xH100-RACK.H100-NODE",
    ),
    on_bad(
        "the only node of a type is bad",
        [bad("a10-2"), late("1x4", leaf_type="A10")],
        "needs 1 node of 4 A10; vision has 1 of 1 on bad nodes: node a10-2 is NotReady (since 14:00)",
        bad="a10-2",
        helps="leafType=H100 opportunistic heal=a10-2",
    ),
    in_use(
        "many small pods fit but for some",
        [run("one", "1x4", **H100), late("16x1", **H100)],
        "needs 16 pods of 1 H100 at once; vision has 4 of 16 H100 in use by one (priority 0, since 14:00)",
        holders="ns/one",
        helps="priority=1 opportunistic pods=12x1 ends=ns/one",
    ),
    in_use(
        "others have reserved the cells",
        [
            run("lo", "2x8", **H100),
            patient,
            submit("hi", priority=7, **H100),
            submit("hi2", priority=7, **H100),
            late("1x8", priority=5, **H100),
        ],
        "needs 1 node of 8 H100; vision has 2 of 2 in use by hi (priority 7, has reserved them) and hi2 "
        "(priority 7, has reserved them)",
        holders="ns/hi ns/hi2",
        helps=f"vc=foundation priority=8 opportunistic ends=ns/hi ends=ns/hi2 {MORE}",
    ),
    in_use(
        "one of the nodes in use is bad as well",
        [run("one", **H100), run("two", **H100), bad("dgx-1"), late("1x8", **H100)],
        "needs 1 node of 8 H100; vision has 2 of 2 in use by one (priority 0, since 14:00) and two (priority "
        "0, since 14:00)",
        holders="ns/one ns/two",
        bad="dgx-1",
        helps=f"vc=foundation priority=1 opportunistic ends=ns/two ends=ns/one {MORE}",
    ),
    on_bad(
        "another virtual cluster has the hardware that is left",
        [bad("dgx-3"), bad("dgx-4"), run("one", "2x8", **H100), late("1x8", vc="foundation")],
        "needs 1 node of 8 H100; foundation has 1 of 1 on bad nodes: nodes dgx-3 and dgx-4 are NotReady (since 14:00)",
        bad="dgx-3 dgx-4",
        helps="heal=dgx-3 heal=dgx-4 ends=ns:one",
    ),
    on_bad(
        "the pinned cell is bad",
        [bad("a10-1"), late("1x4", **PINNED)],
        "needs 1 node of 4 A10; pinned cell INFERENCE-A10 has 1 of 1 on bad nodes: node a10-1 is NotReady "
        "(since 14:00)",
        bad="a10-1",
        helps="vc=foundation vc=vision opportunistic heal=a10-1",
    ),
    never(
        "the virtual cluster has no cells but pinned ones",
        [late("1x8", vc="inference")],
        "needs 1 pod of 8 GPUs; it can never run: inference has no cells for it",
        helps="vc=foundation vc=vision opportunistic",
    ),
    never(
        "the cluster has fewer nodes than an opportunistic gang",
        [late("5x8", priority=-1, **H100)],
        "needs 5 nodes of 8 H100 each at once; it can never run: the cluster has 4 in all",
        helps="pods=4x8",
    ),
    order(
        "the virtual cluster gets room, and kube-scheduler has not asked yet",
        [run("one", "2x8", **H100), late("1x8", **H100), leave("one")],
        "needs 1 node of 8 H100; vision has room now; it starts when kube-scheduler asks about it next",
    ),
    in_use(
        "the holders say when they end",
        [run("one", limit_s=3600, **H100), run("two", limit_s=5400, **H100), late("1x8", **H100)],
        "needs 1 node of 8 H100; vision has 2 of 2 in use by one (priority 0, since 14:00, ends by 15:00:35) "
        "and two (priority 0, since 14:00, ends by 15:30:55)",
        holders="ns/one ns/two",
        helps=f"vc=foundation priority=1 opportunistic ends=ns/two ends=ns/one {MORE}",
    ),
    in_use(
        "one of the holders is of another team",
        [run("one", namespace="elsewhere", **H100), run("two", **H100), late("1x8", **H100)],
        "needs 1 node of 8 H100; vision has 2 of 2 in use by elsewhere/one (priority 0, since 14:00) and two "
        "(priority 0, since 14:00)",
        holders="elsewhere/one ns/two",
        helps=f"vc=foundation priority=1 opportunistic ends=ns/two ends=elsewhere/one {MORE}",
    ),
    in_use(
        "half of its nodes are in use, and the others are bad",
        [run("one", **H100), *(bad(f"dgx-{i}") for i in (2, 3, 4)), late("2x8", **H100)],
        "needs 2 nodes of 8 H100 each at once; vision has 1 of 2 in use by one (priority 0, since 14:00) and nodes"
        " dgx-2 and dgx-3 are NotReady (since 14:00) and node dgx-4 is NotReady (since 14:01)",
        also="bad",
        holders="ns/one",
        bad="dgx-2 dgx-3 dgx-4",
    ),
    invalid(
        "an opportunistic job asks for a pinned cell",
        [late("1x4", vc="inference", pinned="INFERENCE-A10", priority=-1)],
        "opportunistic pod not supported to use pinned cell INFERENCE-A10",
        helps="priority=0",
    ),
    in_use(
        "a gang may have either type of hardware",
        [run("one", **H100), late("2x8", is_gang=True)],
        "needs 2 nodes of 8 H100 each at once; vision has 1 of 2 in use by one (priority 0, since 14:00)",
        holders="ns/one",
        helps="priority=1 opportunistic pods=1x8 ends=ns/one",
    ),
    in_use(
        "all hardware is in use, by others without a guarantee as well",
        [
            run("one", **H100),
            run("two", **H100),
            run("own", vc="foundation"),
            run("guest", priority=-1, **H100),
            late("1x8", **H100),
        ],
        "needs 1 node of 8 H100; vision has 2 of 2 in use by one (priority 0, since 14:00) and two (priority "
        "0, since 14:00)",
        holders="ns/one ns/two",
        helps="priority=1 ends=ns/two ends=ns/one cells=vision:+1xH100-RACK.H100-NODE",
    ),
    in_use(
        "a holder is about to leave",
        [run("one", **H100), run("two", **H100), patient, evict("one"), late("1x8", **H100)],
        "needs 1 node of 8 H100; vision has 2 of 2 in use by one (priority 0, since 14:00, gone by 14:01:15) "
        "and two (priority 0, since 14:00)",
        holders="ns/one ns/two",
        helps=f"vc=foundation priority=1 opportunistic ends=ns/two ends=ns/one {MORE}",
    ),
    on_bad(
        "a node is gone from Kubernetes",
        [gone("a10-2"), late("1x4", leaf_type="A10")],
        "needs 1 node of 4 A10; vision has 1 of 1 on bad nodes: node a10-2 is not in Kubernetes (since 14:00)",
        bad="a10-2",
        helps="leafType=H100 opportunistic heal=a10-2",
    ),
    in_use(
        "many small jobs are in the way of a gang",
        [*(run(f"h{i}", "1x2", **H100) for i in range(8)), late("2x8", **H100)],
        "needs 2 nodes of 8 H100 each at once; vision has 2 of 2 in use by h0 (priority 0, since 14:00), h1 "
        "(priority 0, since 14:00), h2 (priority 0, since 14:00) and 5 more",
        holders="ns/h0 ns/h1 ns/h2 ns/h3 ns/h4 ns/h5 ns/h6 ns/h7",
        helps="priority=1 opportunistic",
    ),
]
