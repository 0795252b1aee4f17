"""Changes of the user's own are tried together; mistakes in them are answered with the words that would do."""

import difflib
import threading
from collections.abc import Sequence

import pytest

from hived.values.errors import UserError
from hived.why.relaxing import Emptied
from hived_config.access import Access, AccessRules, VirtualClusterAccess
from hived_config.rules import PodRules
from hived_extender.api.waiting import IfResult
from hived_extender.insight import trials as changes_of_insight
from hived_extender.insight.answering import read_changes, try_changes
from hived_extender.insight.judge import Judge
from hived_extender.insight.snapshot import take
from hived_extender.insight.trials import ACCEPTED, Known, read_change
from tests.extender.machine.small_cluster import SmallCluster, spec_text
from tests.extender.machine.small_gangs import SmallGangCluster, koordinator


def full() -> SmallCluster:
    """Virtual cluster a has both its nodes in use, and a pod waits."""
    small = SmallCluster(bad_nodes=("n3",))
    small.place("one", spec_text(priority=5))
    small.place("two", spec_text(priority=7))
    small.filter(small.create("late"))
    return small


def tried(small: SmallCluster, *changes: str, name: str = "ns/late") -> IfResult:
    """The answer, after which the state is as before."""
    snapshot = take(small.service)
    entry = snapshot.find(name)
    assert entry is not None
    before = snapshot.state.cells.memory.tobytes()
    read = read_changes(snapshot, entry, changes)
    found = try_changes(snapshot, entry, read, lambda one: Judge(one, Emptied(), threading.Lock()))
    assert snapshot.state.cells.memory.tobytes() == before
    return found


@pytest.mark.parametrize(
    ("changes", "victims"),
    [
        (["priority=6"], ["ns/one"]),
        (["priority=1000"], ["ns/one"]),
        (["opportunistic"], []),
        (["priority=-1"], []),
        (["vc=b"], []),
        (["ends=ns/one"], []),
        (["ends=ns/one,ns/two", "pods=2x4"], []),
        (["ends=ns/one", "pods=4x1"], []),
        (["vc=b", "pods=2x2"], []),
        (["priority=6", "pods=1x1+1x2"], ["ns/one"]),
        (["cells=a:+1xNODE"], []),
        (["cells=a:+1xRACK.NODE,b:-1xRACK.NODE"], []),
        (["cells=b:-1xNODE", "cells=a:+1xNODE", "heal=n3"], []),
        (["cells=a:+2xNODE", "heal=n3", "pods=2x4", "cells=b:-1xNODE"], []),
    ],
)
def test_changes_that_let_the_job_start(changes: Sequence[str], victims: Sequence[str]) -> None:
    found = tried(full(), *changes)
    assert found.starts
    assert found.nodes
    assert found.victims == victims


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (["priority=5"], "needs 1 node of 4 GPUs; a has 2 of 2 in use by one (priority 5) and two (priority 7)"),
        (["heal=n3"], "needs 1 node of 4 GPUs; a has 2 of 2 in use by one (priority 5) and two (priority 7)"),
        (["pods=4x1"], "needs 4 pods of 1 GPU at once; a has 8 of 8 GPUs in use by one (priority 5)"),
        (["pods=2x4", "ends=ns/one"], "needs 2 nodes of 4 GPUs each at once; a has 1 of 2 in use by two (priority 7)"),
        (["pods=8x4", "ends=ns/one"], "needs 8 nodes of 4 GPUs each at once; it can never run: a has 2 in all"),
        (["vc=b", "pods=2x4"], "needs 2 nodes of 4 GPUs each at once; it can never run: b has 1 in all"),
        (["vc=empty"], "it can never run: empty has no cells for it"),
        (["cells=b:-1xNODE", "vc=b"], "it can never run: b has no cells for it"),
        (["move=ns/one"], "others would have to leave, or a group that moves finds no other place"),
    ],
)
def test_changes_that_do_not_are_answered_with_the_cause_that_is_left(changes: Sequence[str], why: str) -> None:
    found = tried(full(), *changes)
    assert not found.starts
    assert found.certificate is not None
    assert why in found.certificate.sentence


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (["heal=n3"], "needs 1 node of 4 GPUs; a has 2 of 2 in use by one (priority 5) and two (priority 7)"),
        (
            ["pods=4x1"],
            "needs 4 pods of 1 GPU at once; a has 8 of 8 GPUs in use by one (priority 5) and two (priority 7)",
        ),
        (["pods=8x4", "ends=ns/one"], "needs 8 nodes of 4 GPUs each at once; it can never run: a has 2 in all"),
        (["vc=empty"], "needs 1 pod of 4 GPUs; it can never run: empty has no cells for it"),
    ],
)
def test_the_certificate_is_of_the_changed_job_on_the_changed_state(changes: Sequence[str], sentence: str) -> None:
    found = tried(full(), *changes).certificate
    assert found is not None
    assert (found.sentence, found.never) == (sentence, "never" in sentence)


def test_jobs_may_be_named_without_their_namespace() -> None:
    assert tried(full(), "ends=one").starts
    small = SmallCluster()
    small.place("one", spec_text(group="x~same"))
    small.place("two", spec_text(group="y~same"))
    small.create("late")
    with pytest.raises(UserError, match=r"same is part of 2 names: .*x~same, .*y~same; give one of them"):
        tried(small, "ends=same")


def test_a_group_may_be_named_as_its_pods_write_it() -> None:
    known = Known({"lab:me~train/worker": ["lab:me~train/worker"]}, (), (), (), ())
    assert read_change("ends=me~train/worker", known) == read_change("ends=lab:me~train/worker", known)


@pytest.mark.parametrize("wrong", ["Job/lab/x", "Job/x", "podgroup/lab/x", "podgroup/x"])
def test_a_job_is_not_named_by_another_kind(wrong: str) -> None:
    known = Known({"PyTorchJob/lab/x": ["lab/x-0"]}, (), (), (), ())
    for name in ("PyTorchJob/lab/x", "pytorchjob/lab/x", "pytorchjob/x", "job/x", "lab/x", "x"):
        assert read_change(f"ends={name}", known) == read_change("ends=PyTorchJob/lab/x", known)
    with pytest.raises(UserError, match="no job"):
        read_change(f"ends={wrong}", known)


def test_jobs_that_are_hidden_cannot_be_named_and_are_not_told() -> None:
    snapshot = take(full().service)
    entry = snapshot.find("ns/late")
    assert entry is not None
    for name in ("ns/one", "one"):
        with pytest.raises(UserError) as error:
            read_changes(snapshot, entry, [f"ends={name}"], lambda name: name == "ns/two")
        assert "ns/one" not in error.value.message.replace(f"'{name}'", "").replace(f"ends={name}", "")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([], "0 changes; name 1 to 16 of priority=NUMBER, "),
        (["faster"], f"'faster' is no change that can be tried; expected {ACCEPTED[0]}, "),
        (["speed=2"], "'speed=2' is no change that can be tried"),
        (["priority="], "'priority=' is no change that can be tried"),
        (["priority=high"], "'priority=high': expected a priority from -1 (opportunistic) to 1000"),
        (["priority=1001"], "expected a priority from -1"),
        (["pods=16"], "'pods=16': expected PODSxCELLS, such as pods=16x1"),
        (["pods=0x4"], "expected PODSxCELLS"),
        (["pods=99999x1"], "at most 16384 pods can be tried"),
        (["vc=c"], "'vc=c': there is no virtual cluster 'c'; there are a, b, empty"),
        (["leafType=TPU"], "there is no leaf cell type 'TPU'; there is GPU"),
        (["ends=ns/on"], "'ends=ns/on': no job 'ns/on' has cells; nearest: ns/one"),
        (["ends=ns/late"], "no job 'ns/late' has cells; nearest: ns/two, ns/one"),
        (["ends=qqq"], "no job 'qqq' has cells; cells are held by ns/one, ns/two"),
        (["heal=n9"], "there is no node 'n9'"),
        (["move=ns/one,ns/none"], "no job 'ns/none' has cells; nearest: ns/one"),
        (["ends=" + ",".join(f"ns/{number}" for number in range(40))], "40 names; at most 32 can be tried together"),
        (["ends=" + "x" * 10**6], "xxx'... has cells; cells are held by ns/one, ns/two"),
        (["cells=a:2xNODE"], "expected VC:+NUMBERxTYPE or VC:-NUMBERxTYPE"),
        (["cells=a:+1xNOD"], "there is no cell type 'NOD'; there is NODE"),
        (["cells=a:+9xNODE"], "there is not enough hardware for the promises to all virtual clusters"),
        (["cells=b:-2xNODE"], "virtual cluster b has 1 cell of RACK.NODE, 2 cannot be taken"),
        (["cells=a:-1xNODE"], "would lose its cells, or the guarantee of its virtual cluster"),
        (["priority=1", "priority=2"], "'priority=1' and 'priority=2' cannot both be; keep only one"),
        (["opportunistic", "priority=2"], "'opportunistic' and 'priority=2' cannot both be"),
    ],
)
def test_a_change_that_cannot_be_tried_is_refused(changes: Sequence[str], message: str) -> None:
    with pytest.raises(UserError) as error:
        tried(full(), *changes)
    assert message in error.value.message
    assert len(error.value.message) < 2000


def test_a_wrong_name_is_compared_with_a_bounded_number_of_names(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []
    real = difflib.get_close_matches

    def counted(name: str, names: Sequence[str], most: int) -> list[str]:
        compared.append(len(names))
        return real(name, names, most)

    monkeypatch.setattr(difflib, "get_close_matches", counted)
    monkeypatch.setattr(changes_of_insight, "MOST_COMPARED", 20)
    known = Known({f"ns/job-{number:05}": [] for number in range(3000)}, (), (), (), ())
    for wrong in ("ns/job-x01234", "ns/job-012345"):
        with pytest.raises(UserError, match=r"nearest: .*ns/job-01234"):
            read_change(f"ends={wrong}", known)
    assert compared == [20, 20]


def test_a_job_that_is_not_complete_cannot_be_tried() -> None:
    small = SmallGangCluster()
    small.pod("g-0", annotations=koordinator("g", 2))
    with pytest.raises(UserError, match=r"^no change can be tried: rejected by podgroup/ns/g: 1 of 2 pods created"):
        tried(small, "priority=5", name="ns/g-0")


def test_a_priority_that_the_namespace_may_not_have_is_refused() -> None:
    access = AccessRules(Access.EVERYBODY, {"a": VirtualClusterAccess(max_priority=7)})
    small = SmallCluster(rules=PodRules(access=access))
    small.create("late")
    with pytest.raises(UserError, match="up to priority 7, not 8"):
        tried(small, "priority=8")


def test_a_name_with_a_comma_is_understood_where_it_stands_alone() -> None:
    small = SmallCluster()
    small.place("one", spec_text(group="a,b"))
    small.place("two")
    small.create("late")
    (name,) = [name for name in small.state.groups if "a,b" in name]
    assert tried(small, f"ends={name}").starts
