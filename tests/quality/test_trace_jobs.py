"""Jobs of a trace at a load: what is left out, joined and moved."""

from pathlib import Path

import pytest

from tests.quality import trace_jobs
from tests.quality.large import NODES
from tests.quality.trace_jobs import Workload, trace_workload

HEAD = "job,tenant,submitted_s,duration_s,gpus\n"


def workload(folder: Path, rows: str, load: float = 0.5) -> Workload:
    (folder / "jobs.csv").write_text(HEAD + rows)
    return trace_workload(str(folder / "jobs.csv"), load)


def test_arrivals_are_moved_to_the_load_and_durations_stay(tmp_path: Path) -> None:
    jobs, nodes, notes = workload(tmp_path, "a,x,0,600,8\nb,x,7,600,8\nc,y,100,600,8\n")
    assert [(job.duration, job.sizes) for job in jobs] == [(600.0, (8,))] * 3
    assert jobs[2].submitted * NODES * 8 * 0.5 == pytest.approx(3 * 8 * 600)
    assert jobs[1].submitted / jobs[2].submitted == pytest.approx(0.07)
    assert sum(nodes.values()) == NODES
    assert notes == ()


def test_jobs_without_a_tenant_have_a_vc(tmp_path: Path) -> None:
    assert set(workload(tmp_path, "a,,0,600,8\nb,,9,600,8\n").nodes) == {"default"}


def test_what_is_left_out_or_joined_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_jobs, "MOST_VCS", 2)
    monkeypatch.setattr(trace_jobs, "MOST_JOBS", 4)
    rows = "a,a,0,9,8\nb,b,1,8,8\nc,c,2,7,8\n"
    jobs, nodes, notes = workload(tmp_path, rows + "d,c,7,1,2496\ne,c,9,1,8\n")
    assert {job.vc for job in jobs} == set(nodes) == {"c", "others"}
    assert [job.name for job in jobs] == ["j0", "j1", "j2"]
    assert notes == (
        "4 of 5 jobs, the first ones whose pods fit on a node",
        "the smallest 2 tenants are one VC",
        "1 jobs are larger than their VC, and left out",
    )
