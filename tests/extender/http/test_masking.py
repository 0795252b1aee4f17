"""Names of other tenants' jobs are for those who may see their pods, and rights are asked for once."""

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from hived_extender.api.names import short_name
from hived_extender.api.status import ShortPromise, Status
from hived_extender.api.waiting import (
    MASKED,
    BadNode,
    Certificate,
    Ended,
    Holder,
    IfResult,
    Job,
    NodeView,
    PodOutcome,
    Preempted,
    Unblock,
    Victim,
    Why,
)
from hived_extender.http.access import Gate
from hived_extender.http.answers import Identity
from hived_extender.http.masking import FAILED_S, MOST_REVIEWS, REMEMBERED_S, Mask, Masking
from hived_extender.kube.client import KubeError
from hived_extender.machine.certificates import ended_sentence, with_sentence

ANN = Identity("ann", (), "", ())
NAMESPACES = {"cv/mine": "cv", "podgroup/nlp/theirs": "nlp", "nlp/pod": "nlp"}


class RightsGate(Gate):
    """Ann may see the pods of some namespaces."""

    def __init__(self, *allowed: str) -> None:
        super().__init__()
        self.allowed = allowed
        self.asked: list[str] = []
        self.is_away = False

    @property
    def knows_callers(self) -> bool:
        return True

    def may_do(self, caller: Identity, resource: Mapping[str, str]) -> bool:
        assert (caller, resource["verb"], resource["resource"]) == (ANN, "get", "pods")
        self.asked.append(resource.get("namespace", "all"))
        if self.is_away:
            raise KubeError(0, "", "away")
        return resource.get("namespace", "all") in self.allowed


def mask(*allowed: str) -> Mask:
    return Masking(RightsGate(*allowed)).of(ANN)


def certificate() -> Certificate:
    return Certificate(
        sentence="(with all names)", cause="in-use", vc="a", asks="1 node of 4 GPUs", unit="node", level="NODE",
        in_use=2, total=2,
        holders=[
            Holder(group="cv/mine", namespace="cv", priority=0),
            Holder(group="podgroup/nlp/theirs", namespace="nlp", priority=0),
        ],
        unblock=[
            Unblock(change="ends=cv/mine", text="cv/mine ends"),
            Unblock(change="ends=podgroup/nlp/theirs", text="podgroup/nlp/theirs ends, of gang nlp/theirs"),
            Unblock(change="priority=5", text="priority 5: nlp/pod would have to leave", victims=["nlp/pod"]),
        ],
    )  # fmt: skip


def test_without_callers_that_are_known_everybody_sees_everything() -> None:
    shown = Masking(Gate()).of(None)
    assert shown.shows_all
    assert shown.certificate(certificate(), 0.0, "cv", NAMESPACES) == certificate()


def gone(by: str, namespace: str) -> Job:
    """A job of cv that was preempted, at the first moment of 1970."""
    news = Preempted(at="1970-01-01T00:00:00Z", by=by, namespace=namespace, priority=7, why="reclaim")
    ended = Ended(at=news.at, gpus=2, gpu_hours=1.5, exit_code=1, pod="cv/mine", evictions=[news], eviction_count=1)
    sentence = ended_sentence("Preempted", ended, "1970-01-01", "cv")
    return Job(
        name="cv/mine", state="Preempted", namespace="cv", sentence=sentence, preempted=news, ended=ended, nodes=["n"]
    )


def test_the_job_for_which_another_was_preempted_may_be_hidden() -> None:
    job = gone("podgroup/nlp/theirs", "nlp")
    for found in (mask("cv").listed(job, None, 0.0), mask("cv").why(Why(job=job), 0.0, NAMESPACES).job):
        assert found.preempted == Preempted(at="1970-01-01T00:00:00Z", by=MASKED, why="reclaim")
        assert found.ended is not None
        assert found.ended.evictions == [found.preempted]
        assert found.sentence == "preempted at 00:00 for another tenant's job: lent cells were reclaimed"
    assert mask("cv", "nlp").listed(job, None, 0.0) == job


def test_a_preempted_job_that_is_hidden_says_nothing_of_it() -> None:
    found = mask("nlp").listed(gone("podgroup/nlp/theirs", "nlp"), None, 0.0)
    assert (found.name, found.sentence, found.preempted, found.nodes) == (MASKED, "", None, [])
    assert found.ended == Ended(at="1970-01-01T00:00:00Z", gpus=2, gpu_hours=1.5)


def test_victims_of_a_pod_that_does_not_exist_yet_may_be_hidden() -> None:
    pod = PodOutcome(
        namespace="cv", name="p", outcome="preempt", victims=[Victim("cv/mine", "cv"), Victim("nlp/pod", "nlp", 3)]
    )
    assert mask("cv").forecast(pod, 0.0).victims == [Victim("cv/mine", "cv"), Victim(MASKED, "", 3)]


def test_a_caller_without_a_name_sees_no_namespace() -> None:
    assert not Masking(RightsGate("all")).of(None).shows("cv")


def test_who_may_see_all_pods_is_asked_about_no_namespace() -> None:
    gate = RightsGate("all")
    shown = Masking(gate).of(ANN)
    assert shown.shows("cv")
    assert gate.asked == ["all"]


def test_a_certificate_names_nobody_hidden() -> None:
    found = mask("cv").certificate(certificate(), 0.0, "cv", NAMESPACES)
    assert [holder.group for holder in found.holders] == ["cv/mine", MASKED]
    assert found.sentence == "needs 1 node of 4 GPUs; a has 2 of 2 in use by mine (priority 0) and another tenant's job"
    assert [(one.change, one.text, one.victims) for one in found.unblock] == [
        ("ends=cv/mine", "cv/mine ends", []),
        (f"ends={MASKED}", f"{MASKED} ends, of gang {MASKED}", []),
        ("priority=5", f"priority 5: {MASKED} would have to leave", [MASKED]),
    ]


def test_a_hidden_job_with_an_object_is_named_in_no_way() -> None:
    named = {"Job/nlp/secret": "nlp", "Job/cv/mine": "cv"}
    unblock = [
        Unblock(change=f"ends={name}", text=f"once {short_name(name, namespace, 'cv')} has ended", victims=[name])
        for name, namespace in named.items()
    ]
    found = mask("cv").certificate(replace(certificate(), unblock=unblock), 0.0, "cv", named)
    assert "secret" not in str(found)
    assert [one.text for one in found.unblock] == [f"once {MASKED} has ended", "once mine has ended"]


def test_a_hidden_job_keeps_what_names_nobody() -> None:
    job = Job(
        name="nlp/pod", state="Waiting", namespace="nlp", user="bob", vc="a", pods=["nlp/pod"], asks="3 GPUs",
        sentence="needs 3 GPUs; bob", nodes=["n0"], cause="in-use",
    )  # fmt: skip
    assert mask("cv").job(job) == Job(name=MASKED, state="Waiting", vc="a", asks="3 GPUs", cause="in-use")
    assert mask("nlp").job(job) == job


def test_nodes_and_results_name_nobody_hidden() -> None:
    shown = mask("cv")
    assert shown.node(NodeView(node="n0", groups=["cv/mine", "nlp/pod"]), NAMESPACES).groups == ["cv/mine", MASKED]
    reason = "short of devices: 1 used by cv/mine, 2 used by claim nlp/pod; allocatable 5 of 8 nvidia.com/gpu"
    without = reason.replace("nlp/pod", MASKED)
    assert shown.node(NodeView(node="n0", reason=reason), NAMESPACES).reason == without
    assert shown.bad_node(BadNode("n0", reason)).reason == without
    short = [ShortPromise(vc="a", cells=1, nodes=[BadNode("n0", reason)])]
    assert shown.status(Status(state="healthy", short=short)).short[0].nodes == [BadNode("n0", without)]
    held = Holder(
        group="nlp/pod", namespace="nlp", vc="b", priority=0, user="eve", since="2026-01-01T00:00:00Z", lent_by=["a"]
    )
    assert shown.holder(held) == replace(held, group=MASKED, namespace="", user="")
    tried = IfResult(starts=True, nodes=["n0"], victims=["nlp/pod"])
    assert shown.outcome(tried, 0.0, "cv", NAMESPACES).victims == [MASKED]
    job = Job(name="cv/x", state="Waiting", namespace="cv", sentence="in use by podgroup/nlp/theirs")
    why = Why(job=job, certificate=certificate())
    assert "theirs" not in str(shown.why(why, 0.0, NAMESPACES))


def test_a_pod_that_is_tried_is_told_no_hidden_name_of_the_namespace_that_it_says_it_is_in() -> None:
    told = with_sentence(certificate(), 0.0, "nlp")
    tried = PodOutcome(namespace="nlp", name="x", outcome="wait", reason=f"no room; {told.sentence}", certificate=told)
    found = mask("cv").forecast(tried, 0.0)
    assert "theirs" in tried.reason
    assert "theirs" not in str(found)
    assert found.reason.startswith("no room; needs 1 node of 4 GPUs; ")


def test_a_group_of_which_nothing_is_known_is_hidden() -> None:
    assert mask("cv").node(NodeView(node="n0", groups=["old"]), NAMESPACES).groups == [MASKED]


@pytest.mark.parametrize(("is_away", "kept_s"), [(False, REMEMBERED_S), (True, FAILED_S)])
def test_rights_are_remembered_for_a_while(is_away: bool, kept_s: float) -> None:
    gate, now = RightsGate("cv"), [0.0]
    gate.is_away = is_away
    masking = Masking(gate, lambda: now[0])
    for at in (0.0, kept_s / 2, kept_s * 1.5):
        now[0] = at
        assert masking.of(ANN).shows("cv") is not is_away
    assert gate.asked == ["all", "cv"] * 2


def test_one_answer_asks_only_so_often() -> None:
    gate = RightsGate("n99")
    shown = Masking(gate).of(ANN)
    assert not any(shown.shows(f"n{number}") for number in range(100))
    assert len(gate.asked) == MOST_REVIEWS
