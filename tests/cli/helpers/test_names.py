"""A job is found by every form of its name that people are shown."""

import pytest
from msgspec.structs import replace

from hived_cli.helpers.names import known_as, matching, submitted_as
from hived_extender.api.waiting import Job

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


@pytest.mark.parametrize("name", ["gang", "podgroup/gang", "default/gang", "podgroup/default/gang"])
def test_a_name_without_a_namespace_may_be_of_the_default_one(name: str) -> None:
    here = replace(GANG, name="podgroup/default/gang", namespace="default", pods=["default/gang-0"])
    assert matching([here], name, "") == [here]


def test_a_namespace_may_be_called_like_a_kind() -> None:
    assert known_as("pod/solo", "")[0] == "pod/solo"


@pytest.mark.parametrize("name", ["train", "job/train", "lab/train", "podgroup/lab/train"])
def test_a_submitted_job_has_its_namespace_in_its_name_or_beside_it(name: str) -> None:
    assert submitted_as(name, "lab") == ("lab", "train")
