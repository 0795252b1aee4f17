"""With queues too, a gang whose minimum is less than its pods starts with any of them that fit."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cases.played import Played, played_on
from tests.cases.test_gang_minimums import CONFIG, VOLCANO_JOB, koordinator, submit
from tests.cases.test_shrunk_jobs import job, pods_of
from tests.expecting import expect_soon

pytestmark = pytest.mark.sample(3)

QUEUED = CONFIG.replace("rules: 2\n", "rules: 2\nqueues: {enabled: true}\n")


@pytest.fixture
def played(tmp_path: Path) -> Iterator[Played]:
    with played_on(tmp_path, QUEUED, has_webhook=True) as running:
        yield running


def test_of_a_volcano_job_that_never_fits_whole_the_two_small_pods_run(played: Played, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(VOLCANO_JOB)
    assert submit(played, file).exit_code == 0
    expect_soon(lambda: set(played.running_pods()) == {"j-small-0", "j-small-1"})


def test_so_it_is_with_a_gang_of_plain_pods(played: Played) -> None:
    played.create(koordinator("w1-0", 2), koordinator("w2-0", 1), koordinator("w2-1", 1))
    played.expect_running("w2-0", "w2-1")
    assert set(played.running_pods()) == {"w2-0", "w2-1"}, "they have all GPUs, and the large one waits"


def test_two_of_three_start_beside_a_queued_job(played: Played, tmp_path: Path) -> None:
    played.create(job("first", 1))
    expect_soon(lambda: pods_of(played, "first"))
    file = tmp_path / "job.yaml"
    file.write_text(VOLCANO_JOB.replace("minAvailable: 2", "minAvailable: 1"))
    assert submit(played, file).exit_code == 0
    expect_soon(lambda: len(pods_of(played, "j")) == 1)
    assert pods_of(played, "first")
