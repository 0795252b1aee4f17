"""Pitfalls of published traces: Philly, Helios, Acme, Alibaba, gavel, and tables of any kind."""

import json
from pathlib import Path
from typing import Any

import pytest

from hived.values.errors import UserError
from hived_simulator.traces.changing import between, first_part, fold, load
from hived_simulator.traces.describing import describe
from hived_simulator.traces.draft import Options
from hived_simulator.traces.fields import to_text
from hived_simulator.traces.files import Source
from hived_simulator.traces.jobs import Pods, Trace
from hived_simulator.traces.published import LAYOUTS, read_throughputs
from hived_simulator.traces.reading import read_trace, recognised
from tests.places import SHARED
from tests.simulator.traces.test_reading import SAMPLES


def read(path: Path, text: str, **options: Any) -> Trace:
    path.write_text(text)
    return read_trace(path, "", Options(**options))


def test_waiting_in_a_duration_is_taken_out_of_it() -> None:
    trace = read_trace(SAMPLES / "acme.csv")
    assert trace.jobs[0].duration_s == 8.0  # its column says 18, with 10 of waiting
    assert "jobs whose duration is not that from start to end, which is taken: 1" in trace.notes


def test_kinds_of_work_can_be_tenants() -> None:
    trace = read_trace(SAMPLES / "acme.csv", "", Options(tenant_column="type"))
    assert [job.tenant for job in trace.jobs] == ["Pretrain", "Evaluation"]


def test_tasks_without_a_table_of_jobs_are_submitted_when_they_start(tmp_path: Path) -> None:
    trace = read(tmp_path / "tasks.csv", (SAMPLES / "pai_task_table.csv").read_text())
    assert [job.submitted_s for job in trace.jobs] == [0.0, 190.0, 290.0]
    assert [job.started_s for job in trace.jobs] == [0.0, 190.0, 290.0]
    assert any("no table of jobs" in note for note in trace.notes)


def test_users_of_the_table_of_jobs_can_be_tenants() -> None:
    trace = read_trace(SAMPLES / "pai_task_table.csv", "", Options(tenant_column="user"))
    assert [job.tenant for job in trace.jobs] == ["user-1", "user-2", "user-1"]
    with pytest.raises(UserError, match="tenants cannot be taken from 'colour'"):
        read_trace(SAMPLES / "pai_task_table.csv", "", Options(tenant_column="colour"))


def test_tasks_may_have_a_line_of_names_and_parts_of_gpus(tmp_path: Path) -> None:
    text = (
        "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n"
        "a,worker,2.0,Terminated,10.0,20.0,600.0,1.0,250.0,V100\n"
    )
    (job,) = read(tmp_path / "t.csv", text).jobs
    assert to_text(job.pods) == "2x3"


def test_pods_that_end_with_the_trace_and_models_are_remarked() -> None:
    notes = read_trace(SAMPLES / "alibaba-2023.csv").notes
    assert "jobs that end with the trace; some of them ran on: 1" in notes
    assert "jobs that allow several models of GPU, read as any: 1" in notes


@pytest.mark.parametrize("column", ["job_type", "type"])
def test_types_of_jobs_have_two_names(tmp_path: Path, column: str) -> None:
    header = "job_name,organization,gpu_model,gpu_request,worker_num,submit_time,duration,"
    trace = read(tmp_path / "a", f"{header}{column}\n1,1,A10,1,1,0,9,Spot\n2,1,A10,1,1,1,9,HP\n3,1,A10,1,1,2,9,?\n")
    assert [job.priority for job in trace.jobs] == [-1, 0, None]


def test_steps_become_seconds_by_throughputs_a_number_or_a_guess() -> None:
    path = SAMPLES / "gavel.trace"
    rates = str(SAMPLES / "gavel-throughputs.json")
    by_file = read_trace(path, "", Options(throughputs=rates))
    assert [job.duration_s for job in by_file.jobs] == [6000 / 5, 24000 / 60]
    by_number = read_trace(path, "", Options(steps_per_s=100.0))
    assert [job.duration_s for job in by_number.jobs] == [60.0, 240.0]
    assert not any("GUESSED" in note for note in (*by_file.notes, *by_number.notes))
    assert any("GUESSED" in note for note in read_trace(path).notes)


def test_a_job_without_a_throughput_is_left_out_and_a_wrong_file_refused(tmp_path: Path) -> None:
    (tmp_path / "rates.json").write_text(
        """{"k80": {"('A3C', 1)": {"null": 2.0}, "('LM', 1)": {"null": 0}, "x": {}}}"""
    )
    trace = read_trace(SAMPLES / "gavel.trace", "", Options(throughputs=str(tmp_path / "rates.json")))
    assert [job.duration_s for job in trace.jobs] == [3000.0]
    assert any("no throughput is known" in note for note in trace.notes)
    with pytest.raises(UserError, match="expected gavel's throughputs"):
        read_throughputs(str(SAMPLES / "gavel.trace"))


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=len)
@pytest.mark.parametrize("has_names", [False, True])
def test_all_layouts_of_gavel_are_told_apart(tmp_path: Path, layout: tuple[str, ...], has_names: bool) -> None:
    values = {"total_steps": "600", "arrival_s": "5.0", "scale_factor": "2", "duration": "60"}
    row = "\t".join(values.get(name, "x") for name in layout)
    path = tmp_path / "a"
    path.write_text(("\t".join(layout) + "\n" if has_names else "") + row + "\n")
    assert recognised(Source(path)) == "gavel"
    (job,) = read_trace(path).jobs
    assert (job.duration_s, job.pods) == (60.0, (Pods(1, 2),))


@pytest.mark.parametrize(
    "text",
    [
        "id;submitted;runtime;gpus;team\n7;2026-03-01T08:00:00Z;60;20;red\n",
        "sep=,\nid,submitted,runtime,gpus,team\n7,2026-03-01 09:00:00+01:00,60,20,red\n",
        ",id,submitted,start,end,gpus,team\n0,7,1772352000,1772352000,1772352060,20.0,red\n",
        "ID\tSubmit_Time\tDuration\tNum_GPUs\tVC\n7\t1772352000000\t60\t20\tred\n",
        'id | submit_time | duration | gpu_count | vc\n7 | 2026-03-01 08:00:00 | "60" | 20 | red\n'.replace('"', ""),
    ],
)
def test_tables_of_many_kinds_are_read_alike(tmp_path: Path, text: str) -> None:
    trace = read(tmp_path / "a", text)
    (job,) = trace.jobs
    assert (trace.start, job.name, job.tenant, job.duration_s, to_text(job.pods)) == (
        1772352000.0, "7", "red", 60.0, "4+2x8",
    )  # fmt: skip


def test_a_table_may_tell_nodes_and_priorities(tmp_path: Path) -> None:
    text = "submit_time,duration,gpus,nodes,priority\n0,1,16,4,-1\n1,1,16,,7\n2,1,1,1,1e300\n3,1,1,1,4294901758\n"
    trace = read(tmp_path / "a", text)
    assert [to_text(job.pods) for job in trace.jobs] == ["4x4", "2x8", "1", "1"]
    assert [job.priority for job in trace.jobs] == [-1, 7, None, None]


def test_a_table_without_what_is_needed_says_so(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("submit_time,gpus,colour\n0,1,red\n")
    with pytest.raises(UserError, match=r"columns submit_time, gpus, colour lacks one for duration; name it"):
        read_trace(tmp_path / "a", "table")


@pytest.mark.parametrize(
    "head",
    [
        "Job ID,Submit Time,Run Time (min),Requested GPUs,Team",
        "jobId,submitTime,runtimeMinutes,numGPUs,team",
        "job-id,arrival_sec,duration_mins,gpu-count,VC_Name",
    ],
)
def test_names_of_columns_are_known_however_they_are_written_and_tell_units(tmp_path: Path, head: str) -> None:
    (job,) = read(tmp_path / "a", f"{head}\n7,0,1.5,4,red\n").jobs
    assert (job.name, job.tenant, job.duration_s, to_text(job.pods)) == ("7", "red", 90.0, "4")


def test_milliseconds_and_clocks_are_times(tmp_path: Path) -> None:
    text = "arrival_ms,start_ms,end_ms,gpus\n0,0,9,1\n1500,2000,62000,1\n"
    assert [(job.submitted_s, job.duration_s) for job in read(tmp_path / "a", text).jobs] == [(0, 0.009), (1.5, 60.0)]
    text = "time,elapsed,gpus\n0,1-00:00:01,1\n1,0 days 00:10:00,1\n"
    assert [job.duration_s for job in read(tmp_path / "b", text).jobs] == [86401.0, 600.0]


def test_a_user_says_what_is_in_which_column(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("when,lasted_h,Cards,duration,crew\n0,2,4,9,red\n")
    columns = ("submitted=when", "duration=lasted_h", "gpus=cards", "tenant=crew")
    (job,) = read_trace(tmp_path / "a", "", Options(columns=columns)).jobs
    assert (job.tenant, job.duration_s, job.leaf_count) == ("red", 7200.0, 4)
    for column, message in (
        ("user=none", "there is no column 'none'"),
        ("cards=Cards", "PROPERTY is one of submitted"),
        ("gpus=duration", "gpus is cards already"),
    ):
        with pytest.raises(UserError, match=message):
            read_trace(tmp_path / "a", "", Options(columns=(*columns, column)))


def test_a_needed_column_that_a_user_names_has_to_be_there(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("when,lasted,cards\n0,2,4\n")
    columns = ("submitted=when", "duration=lasted", "gpus=card")
    with pytest.raises(UserError, match="a:1: --column gpus=card: there is no column 'card', only when, lasted"):
        read_trace(tmp_path / "a", "", Options(columns=columns))


def test_columns_are_chosen_for_any_table_only(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("when,lasted,cards\n0,2,4\n")
    with pytest.raises(UserError, match="--column is for --format table, not for helios"):
        read_trace(tmp_path / "a", "helios", Options(columns=("gpus=cards",)))


def test_a_note_names_the_column_that_a_user_chose_for_tenants(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("time,duration,gpus,team,owner\n0,1,1,red,ann\n")
    trace = read_trace(tmp_path / "a", "", Options(tenant_column="owner"))
    assert trace.jobs[0].tenant == "ann"
    assert "tenant from owner" in " ".join(trace.notes)


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (
            "name,time,application,num_replicas",
            "lacks one for duration; name it with --column duration=COLUMN of `hived trace convert`",
        ),
        (
            "owner,gpus,queued,began,finished",
            "or a duration with --column started=COLUMN --column ended=COLUMN; not read yet: queued, began, finished",
        ),
        ("job_name,inst_id,user,status,start_time,end_time", "PAI's table of jobs, .*; read pai_task_table.csv"),
        ("0a,worker,1b,2c,3d,Failed,1.0,2.0,4e", "PAI's table of instances, .*; read pai_task_table.csv"),
        ("sn,cpu_milli,memory_mib,gpu,model", "a list of nodes; read the list of pods or jobs"),
    ],
)
def test_another_table_of_a_trace_says_which_one_to_read(tmp_path: Path, head: str, message: str) -> None:
    (tmp_path / "a").write_text(f"{head}\n")
    with pytest.raises(UserError, match=f"a:1: .*{message}"):
        read_trace(tmp_path / "a")


def read_attempts(path: Path, *attempts: dict[str, object], **options: Any) -> Trace:
    entry = {"jobid": "a", "vc": "red", "user": "u", "status": "Pass", "submitted_time": "2017-10-16 08:00:00"}
    path.write_text(json.dumps([entry | {"attempts": attempts}]))
    return read_trace(path, "", Options(**options))


def attempt(start: str | None, end: str | None, *sizes: int) -> dict[str, object]:
    detail = [{"ip": f"m{n}", "gpus": [f"gpu{m}" for m in range(size)]} for n, size in enumerate(sizes)]
    return {"start_time": start, "end_time": end, "detail": detail}


def test_a_gang_is_shaped_as_placed_only_if_that_is_wanted(tmp_path: Path) -> None:
    ran = attempt("2017-10-16 09:00:00", "2017-10-16 10:00:00", 3, 5, 3)
    assert read_attempts(tmp_path / "a", ran).jobs[0].pods == (Pods(1, 3), Pods(1, 8))
    assert read_attempts(tmp_path / "a", ran, is_as_placed=True).jobs[0].pods == (Pods(2, 3), Pods(1, 5))


def test_attempts_are_added_without_the_waits_between_them(tmp_path: Path) -> None:
    (job,) = read_attempts(
        tmp_path / "a",
        attempt("2017-10-16 09:00:00", "2017-10-16 09:10:00", 1),
        attempt("2017-10-16 10:00:00", None, 1),
        attempt("2017-10-16 11:00:00", "2017-10-16 11:20:00", 2),
    ).jobs
    assert (job.started_s, job.duration_s, job.pods) == (3600.0, 1800.0, (Pods(1, 2),))


def test_the_user_can_be_the_tenant(tmp_path: Path) -> None:
    ran = attempt("2017-10-16 09:00:00", "2017-10-16 10:00:00", 1)
    assert read_attempts(tmp_path / "a", ran, tenant_column="user").jobs[0].tenant == "u"


def test_times_of_a_zone_are_moved_to_utc() -> None:
    summer = read_trace(SAMPLES / "philly.csv", "", Options(time_zone="America/Los_Angeles"))
    assert summer.start == 1508140800.0 + 7 * 3600
    assert "times have no zone: read as America/Los_Angeles" in summer.notes


def test_numbers_are_times_as_well(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("timestamp,duration,num_gpus,gpu_time,cluster\n100,60,4,240,a\n40,60,4,240,b\n")
    trace = read_trace(tmp_path / "a")
    assert (trace.start, [job.submitted_s for job in trace.jobs]) == (None, [0.0, 60.0])


PATH = SHARED / "data" / "philly.csv.gz"
DAY = 86_400.0
START_OF_WEEKS = 1508112000.0  # 2017-10-16 00:00:00


@pytest.fixture(scope="module")
def philly() -> Trace:
    if not PATH.exists():
        pytest.skip("there is no trace beside the checkout")
    return read_trace(PATH)


@pytest.mark.long
def test_it_has_82247_jobs_of_15_tenants(philly: Trace) -> None:
    found = describe(philly)
    assert (found.jobs, len(found.tenants)) == (82_247, 15)
    assert (found.start, found.end) == ("2017-09-04T10:30:41+00:00", "2017-12-22T08:02:11+00:00")
    assert {row.gpus: row.jobs for row in found.sizes} == {
        1: 76627, 2: 1818, 4: 1870, 8: 1643, 12: 7, 16: 199, 24: 7, 32: 67, 64: 6, 128: 3,
    }  # fmt: skip
    assert not any(note.startswith("left out") for note in philly.notes)


@pytest.mark.long
def test_13_days_from_the_first_job_of_october_16_have_21736_jobs_of_11_tenants(philly: Trace) -> None:
    """From that job on, at 00:02:04. Calendar days give 21,735 jobs up to October 29, and 21,933 with that day."""
    assert philly.start is not None
    since = START_OF_WEEKS - philly.start
    weeks = first_part(between(philly, since, None), 13 * DAY)
    assert (len(weeks.jobs), len({job.tenant for job in weeks.jobs})) == (21_736, 11)
    assert weeks.start == START_OF_WEEKS + 124
    assert len(between(philly, since, since + 13 * DAY).jobs) == 21_735
    assert len(between(philly, since, since + 14 * DAY).jobs) == 21_933
    assert load(fold(weeks, 1.5 * DAY), 2496) == pytest.approx(2.558, abs=0.001)
