"""Events at job objects: their words, and how few there are."""

from collections.abc import Mapping
from typing import Any

from hived_extender.jobs.job import JobRef
from hived_extender.jobs.kinds.gangs import KIND as GANG
from hived_extender.kube.client import KubeError
from hived_extender.kube.events import BURST, REFILL_S, RESERVE, EventRecorder
from hived_extender.machine.pods import PodName
from hived_extender.queues.announcing import MOST_JOBS, MOST_PODS, NEW_S, JobEvents, write_events


class Api:
    """Takes events in, each name once; refuses all calls while it is away."""

    def __init__(self) -> None:
        self.events: list[Mapping[str, Any]] = []
        self.is_away = False

    def create(self, path: str, body: Mapping[str, Any]) -> Any:
        if self.is_away:
            raise KubeError(503, "NoAnswer", "away")
        if body["metadata"]["name"] in {each.get("metadata", {}).get("name") for each in self.events}:
            raise KubeError(409, "AlreadyExists", path)
        self.events.append(body)

    def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        self.events.append({"counted": path})

    def get(self, path: str, item_type: type[Any]) -> Any:
        return item_type(1)

    def told(self) -> list[tuple[str, str]]:
        return [(each["reason"], each["message"]) for each in self.events]


class Case:
    """Events, and all that was written of them."""

    def __init__(self, api: Api | None = None) -> None:
        self.api = api or Api()
        self.events, self._recorder = JobEvents(), EventRecorder(self.api, "hived")

    def write(self, limit: int = 1000) -> int:
        taken = self.events.take(limit, pods_of)
        write_events(self._recorder, taken, lambda: True)
        return sum(len(each.about) for each in taken)


def pods_of(gang: JobRef) -> list[PodName]:
    """The pods of a gang: more than have its events."""
    return [PodName(f"u-{number}", gang.namespace, f"{gang.name}-{number}") for number in range(MOST_PODS + 1)]


def ref(name: str = "train") -> JobRef:
    return JobRef("kubeflow.org/v1", "PyTorchJob", "team", name, f"u-{name}")


def test_the_course_of_a_job_is_told_in_its_order() -> None:
    case = Case()
    case.events.enqueued(ref(), "root/a", 1.0, 0.0)
    case.events.dequeued(ref(), "root/a", 1.0, is_borrowed=True)
    case.events.evicted(ref(), "root/a", "Job/team/owner/u-1", 2.0)
    case.events.dequeued(ref(), "root/a", 3.0, is_borrowed=False)
    case.write()
    assert case.api.told() == [
        ("Enqueued", "waits in queue root/a"),
        ("Dequeued", "leaves queue root/a: its whole gang has idle cells, which may be reclaimed"),
        ("Preempted", "its cells go to Job/team/owner (uid u-1); it waits again in queue root/a"),
        (
            "Dequeued",
            "leaves queue root/a: its whole gang has cells of its virtual cluster; it runs again after it "
            "was suspended",
        ),
    ]


def test_only_the_first_start_after_a_job_was_called_back_is_said_to_be_one_again() -> None:
    case = Case()
    case.events.evicted(ref(), "a", "", 0.0)
    case.events.insufficient(ref(), "too little", 1.0)
    for moment in (2.0, 3.0):
        case.events.dequeued(ref(), "a", moment, is_borrowed=False)
    case.write()
    told = [message for reason, message in case.api.told() if reason == "Dequeued"]
    assert [message.endswith("; it runs again after it was suspended") for message in told] == [True, False]


def test_an_event_is_about_the_job_object() -> None:
    case = Case()
    case.events.enqueued(ref(), "a", 0.0, 0.0)
    case.write()
    assert case.api.events[0]["involvedObject"] == {
        "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "namespace": "team", "name": "train", "uid": "u-train",
    }  # fmt: skip


def test_the_events_of_a_gang_are_at_its_pods() -> None:
    case = Case()
    case.events.enqueued(JobRef("v1", GANG, "team", "ring", "u-ring"), "a", 0.0, 0.0)
    assert case.write() == MOST_PODS
    abouts = [(each["involvedObject"]["kind"], each["involvedObject"]["uid"]) for each in case.api.events]
    assert abouts == [("Pod", f"u-{number}") for number in range(MOST_PODS)]


def test_a_later_leader_does_not_say_again_that_a_job_waits() -> None:
    first = Case()
    later = Case(first.api)
    for case in (first, later):
        case.events.enqueued(ref(), "a", 0.0, 0.0)
        case.write()
    assert first.api.told() == [("Enqueued", "waits in queue a")]


def test_a_later_leader_counts_other_events_up() -> None:
    first = Case()
    later = Case(first.api)
    for case in (first, later):
        case.events.refused(ref(), "too large", 0.0)
        case.write()
    assert [list(each) for each in first.api.events[1:]] == [["counted"]]


def test_a_winner_of_another_namespace_is_named_by_its_uid_alone() -> None:
    case = Case()
    case.events.evicted(ref(), "a", "Job/secret/owner/u-1", 0.0)
    case.write()
    assert case.api.told()[0][1] == "its cells go to a job of another namespace (uid u-1); it waits again in queue a"


def test_words_in_place_of_a_winner_stay_as_they_are() -> None:
    case = Case()
    case.events.evicted(ref(), "a", "root/a, which was lowered", 0.0)
    case.write()
    assert case.api.told()[0][1].startswith("its cells go to root/a, which was lowered; ")


def test_an_old_job_is_not_told_again_that_it_waits() -> None:
    case = Case()
    case.events.enqueued(ref(), "a", NEW_S, 0.0)
    assert case.write() == 0


def test_the_same_reason_is_written_once() -> None:
    case = Case()
    for now in range(100):
        case.events.insufficient(ref(), "Insufficient quota", float(now))
        case.write()
    assert case.api.told() == [("InsufficientQuota", "Insufficient quota")]


def test_reasons_that_change_all_the_time_leave_tokens_to_other_events() -> None:
    case = Case()
    for number in range(100):
        case.events.insufficient(ref(), f"used {number}", 0.0)
        case.write()
    assert len(case.api.events) == BURST - RESERVE
    case.events.dequeued(ref(), "a", 0.0, is_borrowed=False)
    assert case.write() == 1


def test_a_job_that_comes_and_goes_has_so_many_events_and_gets_more_with_time() -> None:
    case = Case()
    for number in range(100):
        case.events.evicted(ref(), f"a{number}", "", 0.0)
        case.write()
    assert len(case.api.events) == BURST
    case.events.evicted(ref(), "b", "", REFILL_S)
    assert case.write() == 1


def test_few_events_are_written_at_a_time_those_of_each_job_in_turn() -> None:
    case = Case()
    for name in ("x", "y"):
        case.events.enqueued(ref(name), "a", 0.0, 0.0)
        case.events.dequeued(ref(name), "a", 0.0, is_borrowed=False)
    assert (case.write(3), case.write(3)) == (3, 1)
    names = [each["involvedObject"]["name"] for each in case.api.events]
    assert names == ["x", "y", "x", "y"]


def test_nothing_is_said_of_a_job_that_is_gone() -> None:
    case = Case()
    case.events.enqueued(ref(), "a", 0.0, 0.0)
    case.events.gone(ref().key)
    assert case.write() == 0


def test_nothing_is_written_by_a_replica_that_does_not_lead() -> None:
    case = Case()
    case.events.enqueued(ref(), "a", 0.0, 0.0)
    write_events(EventRecorder(case.api, "hived"), case.events.take(10, pods_of), lambda: False)
    assert case.api.events == []


def test_an_api_server_that_is_away_stops_nothing() -> None:
    case = Case()
    case.api.is_away = True
    case.events.enqueued(ref(), "a", 0.0, 0.0)
    assert case.write() == 1
    case.api.is_away = False
    case.events.dequeued(ref(), "a", 1.0, is_borrowed=False)
    case.write()
    assert [reason for reason, _ in case.api.told()] == ["Dequeued"]


def test_too_many_jobs_push_out_the_one_that_was_silent_longest() -> None:
    case = Case()
    for number in range(MOST_JOBS + 1):
        case.events.enqueued(ref(f"j{number}"), "a", 0.0, 0.0)
    assert case.write(2) == 2
    assert [each["involvedObject"]["name"] for each in case.api.events] == ["j1", "j2"]
