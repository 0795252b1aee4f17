"""The bound of queues on a sample: small jobs come all the time, and gangs of 16 GPUs in both virtual clusters."""

import pytest

from tests.quality.queues_bound import main
from tests.quality.test_queues import CONFIG, LARGE, SMALL


@pytest.fixture
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("bound")
    config, trace = folder / "now.yaml", folder / "jobs.csv"
    config.write_text(CONFIG)
    others = [
        (at + 30, row.replace(",a,", ",b,").replace("small", "other").replace("large", "wide")) for at, row in LARGE
    ]
    rows = [row for _, row in sorted([*SMALL, *LARGE, *others])]
    trace.write_text("\n".join(["job,tenant,submitted_s,duration_s,gpus", *rows, ""]))
    return ["--config", str(config), "--trace", str(trace)]


@pytest.mark.long
def test_no_job_of_a_trace_is_later_than_its_virtual_cluster_alone_by_more_than_a_grace_period(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(files) == 0
    said = capsys.readouterr().out
    assert "126 starts" in said
    assert " 0 by more than the grace period" in said
