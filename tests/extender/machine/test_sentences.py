"""A certificate begins with one sentence. It has moments but no ages, and names nobody whom its reader may not see."""

import pytest
from msgspec.structs import replace

from hived_extender.api.waiting import MASKED, BadNode, Certificate, Holder
from hived_extender.machine.certificates import is_derived, limit, moment, sentence_of

TODAY = "2026-11-23"
TRAIN = Holder(group="podgroup/cv/train-7", namespace="cv", priority=100, cells=16, since="2026-11-23T14:02:10Z")
SWEEP = Holder(group="cv/sweep", namespace="cv", priority=-1, cells=8, since="2026-11-22T09:30:00Z")
BAD = BadNode("dgx-3", "NotReady", "2026-11-23T13:50:00Z")
FULL = Certificate(
    sentence="", cause="in-use", vc="vision", chain="H100", level="DGX-H100", unit="node", leaf_type="H100",
    asks="1 node of 8 H100", asked=1, total=3, in_use=2, bad=1, holders=[TRAIN], bad_nodes=[BAD], largest_ever=8,
)  # fmt: skip


def test_the_sentence_has_who_holds_the_cells_and_which_node_is_bad() -> None:
    found = replace(FULL, also=["bad"])
    assert sentence_of(found, TODAY, "cv") == (
        "needs 1 node of 8 H100; vision has 2 of 3 in use by train-7 (priority 100, since 14:02) "
        "and node dgx-3 is NotReady (since 13:50)"
    )


PIECES = replace(
    FULL, cause="in-pieces", in_use=0, bad=0, in_pieces=3, free_leaves=8, largest_fit=4, holders=[], bad_nodes=[]
)
SWITCH = replace(FULL, asks="1 pod of 3 H100", level="SWITCH", unit="SWITCH", bad=0, bad_nodes=[])

CASES = [
    (PIECES, "needs 1 node of 8 H100; vision has 8 H100 free, in pieces of at most 4"),
    (
        replace(PIECES, cause="in-use", in_use=2, in_pieces=1, also=["in-pieces"], holders=[TRAIN, SWEEP]),
        "needs 1 node of 8 H100; vision has 2 of 3 in use by train-7 (priority 100, since 14:02) and "
        "sweep (opportunistic, since Nov 22 09:30) and the free ones are in pieces",
    ),
    (
        replace(FULL, in_use=1, in_pieces=1, holders=[TRAIN, SWEEP]),
        "needs 1 node of 8 H100; vision has 1 of 3 in use and 1 in part by train-7 (priority 100, since 14:02) and "
        "sweep (opportunistic, since Nov 22 09:30)",
    ),
    (
        SWITCH,
        "needs 1 pod of 3 H100; vision has 2 of 3 SWITCH in use by train-7 (priority 100, since 14:02)",
    ),
    (
        replace(FULL, cause="bad", in_use=0),
        "needs 1 node of 8 H100; vision has 1 of 3 on bad nodes: node dgx-3 is NotReady (since 13:50)",
    ),
    (
        replace(FULL, cause="bad", bad=5, bad_nodes=[BadNode(f"n{index}", "cordoned") for index in range(5)]),
        "needs 1 node of 8 H100; vision has 5 of 3 on bad nodes: nodes n0, n1, n2 and 2 more are cordoned",
    ),
    (
        replace(FULL, cause="bad", bad=5, bad_nodes=[BadNode(f"n{index}", f"bad {index}") for index in range(5)]),
        "needs 1 node of 8 H100; vision has 5 of 3 on bad nodes: node n0 is bad 0, node n1 is bad 1, node n2 is bad 2 "
        "and 2 nodes more cannot be used",
    ),
    (
        replace(FULL, cause="kubernetes", refused=1, rules="tainted: n0"),
        "needs 1 node of 8 H100; Kubernetes rules out 1 of 3 nodes of vision: tainted: n0",
    ),
    (
        replace(FULL, cause="never", asks="1 pod of 16 H100", largest_asked=16),
        "needs 1 pod of 16 H100; it can never run: a pod can have at most 8 H100 in vision",
    ),
    (
        replace(FULL, cause="never", asks="4 nodes of 8 H100 each", asked=4),
        "needs 4 nodes of 8 H100 each; it can never run: vision has 3 in all",
    ),
    (
        replace(FULL, cause="never", asks="2 nodes of 8 H100 each at once in one RACK", asked=2),
        "needs 2 nodes of 8 H100 each at once in one RACK; it can never run: vision has no place of this shape",
    ),
    (
        replace(FULL, cause="never", largest_ever=0),
        "needs 1 node of 8 H100; it can never run: vision has no cells for it",
    ),
    (
        replace(FULL, pinned="front", holders=[]),
        "needs 1 node of 8 H100; pinned cell front has 2 of 3 in use",
    ),
    (
        replace(FULL, is_opportunistic=True, holders=[replace(TRAIN, is_leaving=True, until="2026-11-23T14:10:00Z")]),
        "needs 1 node of 8 H100; the cluster has 2 of 3 in use by train-7 "
        "(priority 100, since 14:02, gone by 14:10)",
    ),
    (
        replace(FULL, cause="lent", holders=[replace(SWEEP, is_leaving=True)]),
        "needs 1 node of 8 H100; its cells are being reclaimed from sweep "
        "(opportunistic, since Nov 22 09:30, leaving)",
    ),
    (
        replace(FULL, holders=[replace(TRAIN, since="", is_waiting=True)]),
        "needs 1 node of 8 H100; vision has 2 of 3 in use by train-7 (priority 100, has reserved them)",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("found", "sentence"), CASES)
def test_a_sentence_for_each_cause(found: Certificate, sentence: str) -> None:
    assert is_derived(found)
    assert sentence_of(found, TODAY, "cv") == sentence


def test_other_tenants_are_counted_not_named() -> None:
    hidden = replace(TRAIN, group=MASKED, namespace="")
    assert "in use by sweep (opportunistic, since Nov 22 09:30) and another tenant's job" in sentence_of(
        replace(FULL, holders=[SWEEP, hidden]), TODAY, "cv"
    )
    assert "in use by 2 jobs of other tenants" in sentence_of(replace(FULL, holders=[hidden, hidden]), TODAY, "cv")


def test_many_holders_are_counted() -> None:
    many = [replace(SWEEP, group=f"cv/s{index}", since="") for index in range(5)]
    text = sentence_of(replace(FULL, holders=many, more_holders=4), TODAY, "cv")
    assert "by s0 (opportunistic), s1 (opportunistic), s2 (opportunistic) and 6 more" in text


def test_jobs_of_another_namespace_keep_it_in_their_names() -> None:
    assert "in use by cv/train-7 (" in sentence_of(FULL, TODAY, "nlp")


def test_messages_of_the_service_are_not_derived() -> None:
    assert not is_derived(replace(FULL, cause="incomplete"))
    assert not is_derived(replace(FULL, cause="lent", holders=[]))


def test_a_moment_has_its_day_unless_it_is_today() -> None:
    assert [moment(at, TODAY) for at in ("2026-11-23T14:02:10Z", "2026-01-02T03:04:05Z", "")] == [
        "14:02", "Jan 2 03:04", ""
    ]  # fmt: skip


def test_a_limit_is_not_said_too_early() -> None:
    assert [limit(f"2026-11-23T14:02:{seconds}Z", TODAY) for seconds in ("00", "10")] == ["14:02", "14:02:10"]
