"""Names of jobs as people write them, and their completion."""

from collections.abc import Iterator

import pytest
from click.shell_completion import ShellComplete
from msgspec.structs import replace

from hived_cli import main
from hived_cli.helpers.names import submitted_as
from hived_extender.api.names import QUEUED_GANG, index, known_as, matching, namespaces_in
from hived_extender.api.waiting import MASKED, Job
from hived_extender.jobs.kinds import gangs
from tests.cli.waiting_service import GANG as WAITING
from tests.cli.waiting_service import WaitingService

JOBS = [
    Job(name="podgroup/lab/gang", state="Waiting", namespace="lab", pods=["lab/gang-0", "lab/gang-1"]),
    Job(name="lab:me~train/worker", state="Running", namespace="lab", pods=["lab/train-worker-0"]),
    Job(name="lab/solo", state="Running", namespace="lab", pods=["lab/solo"]),
]
GANG, GROUP, POD = JOBS


@pytest.mark.parametrize(
    ("name", "namespace", "expected"),
    [
        ("podgroup/lab/gang", "", GANG),
        ("podgroup/gang", "lab", GANG),
        ("lab/gang", "", GANG),
        ("gang", "lab", GANG),
        ("gang", "", GANG),
        ("lab/gang-1", "", GANG),
        ("lab:me~train/worker", "", GROUP),
        ("lab/me~train/worker", "", GROUP),
        ("me~train/worker", "lab", GROUP),
        ("me~train/worker", "", GROUP),
        ("train", "", GROUP),
        ("pod/train-worker-0", "lab", GROUP),
        ("lab/solo", "", POD),
        ("pod/solo", "lab", POD),
        ("solo", "lab", POD),
        ("solo", "", POD),
    ],
)
def test_every_form_of_a_name_finds_its_job(name: str, namespace: str, expected: Job) -> None:
    assert matching(JOBS, name, namespace) == [expected]


@pytest.mark.parametrize(
    "name",
    ["podgroup/lab/fit/w/0", "lab/fit/w/0", "fit/w/0", "podgroup/fit/w/0", "fit", "lab/fit", "workload/fit", "fit-0"],
)
def test_a_gang_of_a_workload_is_found_by_its_name_and_that_of_the_workload(name: str) -> None:
    """A group of a Workload of Kubernetes 1.35 has several parts in its name."""
    gang = Job(name="podgroup/lab/fit/w/0", state="Running", namespace="lab", pods=["lab/fit-0"])
    assert matching([*JOBS, gang], name) == [gang]
    assert matching([*JOBS, gang], name, "lab") == [gang]
    assert index([(gang, gang.pods)])["lab/fit/w/0"] is gang


KINDS = [
    Job(name=f"{kind}/{namespace}/x", state="Running", namespace=namespace, pods=[f"{namespace}/{kind.lower()}-0"])
    for namespace in ("default", "lab")
    for kind in ("PyTorchJob", "Job", "podgroup", "Gang")
]


@pytest.mark.parametrize("kind", ["PyTorchJob", "Job", "podgroup", "Gang"])
@pytest.mark.parametrize("form", ["{}/lab/x", "{}/x"])
def test_a_name_with_a_kind_means_that_kind_alone(kind: str, form: str) -> None:
    """Where the job itself is not there, no other one has its name. A gang of plain pods queues as a Gang."""
    of_gang = ("podgroup", "Gang")
    for name in (form.format(kind), form.format(kind.lower())):
        if name == "job/x":  # as `hived submit` prints the name of any job
            continue
        namespace = "" if "lab" in name else "lab"
        allowed = {f"{each}/lab/x" for each in (of_gang if kind in of_gang else (kind,))}
        found = {job.name for job in matching(KINDS, name, namespace)}
        assert found
        assert found <= allowed
        others = [job for job in KINDS if job.name not in allowed]
        assert matching(others, name, namespace) == []
        assert name not in index([(job, job.pods) for job in others])


@pytest.mark.parametrize(
    "name",
    ["lab/x", "Job/lab/x", "podgroup/lab/x", "lab:x", "lab:me~x/worker", "lab/me~x/worker", "lab/x-0"],
)
def test_a_name_says_its_namespace(name: str) -> None:
    assert "lab" in namespaces_in(name)


@pytest.mark.parametrize("name", ["lab", "pod/lab", "job/lab", "Job/lab", "me~lab", "lab~x/worker", "Job/other/lab"])
def test_a_name_does_not_say_a_namespace_that_is_called_like_a_part_of_it(name: str) -> None:
    assert "lab" not in namespaces_in(name)


def test_a_gang_of_plain_pods_queues_as_the_kind_that_its_names_know() -> None:
    assert QUEUED_GANG == gangs.KIND


def test_a_gang_of_an_object_is_that_object() -> None:
    ring = Job(name="PyTorchJob/lab/ring", state="Running", namespace="lab", aliases=["podgroup/lab/ring"])
    assert matching([ring, replace(ring, name="Job/lab/ring", aliases=[])], "podgroup/lab/ring") == [ring]


@pytest.mark.parametrize("name", ["gang", "podgroup/gang", "default/gang", "podgroup/default/gang"])
def test_a_name_without_a_namespace_may_be_of_the_default_one(name: str) -> None:
    here = replace(GANG, name="podgroup/default/gang", namespace="default", pods=["default/gang-0"])
    assert matching([here], name, "") == [here]


def test_a_namespace_may_be_called_like_a_kind() -> None:
    assert known_as("pod/solo", "")[0] == "pod/solo"


@pytest.mark.parametrize("name", ["train", "job/train", "lab/train", "podgroup/lab/train"])
def test_a_submitted_job_has_its_namespace_in_its_name_or_beside_it(name: str) -> None:
    assert submitted_as(name, "lab") == ("lab", "train")


@pytest.fixture
def service() -> Iterator[WaitingService]:
    with WaitingService() as running:
        yield running


def completed(words: list[str], incomplete: str) -> list[str]:
    completer = ShellComplete(main, {}, "hived", "_HIVED_COMPLETE")
    return [item.value for item in completer.get_completions(words, incomplete)]


@pytest.mark.parametrize("command", ["why", "delete"])
def test_jobs_are_completed(service: WaitingService, command: str) -> None:
    assert completed([command, "--server", service.url], "pod") == ["podgroup/lab/gang"]


def test_the_service_may_be_named_by_the_environment(service: WaitingService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIVED_SERVER", service.url)
    full = {"podgroup/lab/gang", "default/solo", "me~train/default"}
    assert full < set(completed(["why"], ""))  # shorter names too


def test_gangs_of_a_job_object_are_completed_and_found_by_their_own_names(service: WaitingService) -> None:
    ring = Job(name="PyTorchJob/lab/torch", state="Running", namespace="lab", aliases=["podgroup/lab/ring"])
    service.jobs = [ring]
    assert completed(["why", "--server", service.url], "podgroup") == ["podgroup/lab/ring"]
    assert matching([ring], "podgroup/lab/ring") == matching([ring], "ring", "lab") == [ring]


def test_masked_names_are_left_out(service: WaitingService) -> None:
    service.jobs = [replace(WAITING, name=MASKED)]
    assert completed(["why", "--server", service.url], "") == []


@pytest.mark.parametrize("words", [["get", "vc"], ["get", "free"], ["get", "jobs", "--vc"]])
def test_virtual_clusters_are_completed(
    service: WaitingService, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIVED_SERVER", service.url)
    assert completed(words, "vi") == ["vision"]


def test_a_service_that_does_not_answer_completes_nothing() -> None:
    assert completed(["why", "--server", "http://127.0.0.1:1"], "") == []


def test_a_pod_that_is_named_with_its_kind_is_that_pod_before_a_group_of_the_name() -> None:
    group = Job(name="lab:web", state="Running", namespace="lab", pods=["lab/web-a"])
    other = Job(name="Job/lab/other", state="Running", namespace="lab", pods=["lab/web"])
    assert matching([group, other], "pod/web", "lab") == matching([group, other], "pod/web") == [other]
    assert matching([group, other], "web", "lab") == [group]
