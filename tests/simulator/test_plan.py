"""Inputs and options are checked before anything runs; folders and examples have both."""

import subprocess
import sys
import tomllib
from pathlib import Path

import msgspec
import pytest

from hived.values.errors import UserError
from hived_simulator.campaign import Campaign
from hived_simulator.plan import AGAINST, Options, OverQuota, config_in, folder_of, make_plan, trace_in
from tests.places import ROOT
from tests.simulator.test_checkpoints import CONFIG

SAMPLES = ROOT / "tests" / "simulator" / "traces" / "samples"
TRACE = "job,tenant,submitted_s,duration_s,gpus\none,a,0,10,4\ntwo,b,5,10,8\n"


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    config, trace = tmp_path / "now.yaml", tmp_path / "jobs.csv"
    config.write_text(CONFIG)
    trace.write_text(TRACE)
    return config, trace


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            Options(against=("privat",)),
            "--against 'privat': expected private, quota-bestfit, quota-spread, easy, over-quota, queue,",
        ),
        (Options(opportunistic_share=1.5), "--opportunistic-share 1.5: expected a number from 0 to 1"),
        (Options(draws=-1), "--resample -1"),
        (Options(every_s=0.0), "--every"),
        (Options(what=("drain=rack-1",)), "--what 'drain=rack-1': expected drain"),
        (Options(what=("add=2xROW@1h",)), "'ROW' is no type of top cells"),
        (Options(what=("push=missing.yaml@1h",)), "missing.yaml"),
        (Options(tenants=("c=a",)), "the trace has no tenant 'c'"),
    ],
)
def test_wrong_options_are_told(files: tuple[Path, Path], options: Options, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make_plan(*files, options)


def test_private_clusters_run_first(files: tuple[Path, Path]) -> None:
    plan = make_plan(*files, Options(against=("quota-bestfit", "private")))
    assert [policy.name for policy in plan.policies] == ["private", "hived", "quota-bestfit"]


def test_only_hived_lends_over_quota(files: tuple[Path, Path]) -> None:
    plan = make_plan(*files, Options(against=("quota-bestfit", "private"), over_quota=OverQuota.OPPORTUNISTIC))
    assert [policy.over_quota.value for policy in plan.policies] == ["wait", "opportunistic", "wait"]


def test_other_configurations_have_the_names_of_their_files(files: tuple[Path, Path], tmp_path: Path) -> None:
    for name in ("hived.yaml", "next week.yaml"):
        (tmp_path / name).write_text(CONFIG)
    against = tuple(str(tmp_path / name) for name in ("hived.yaml", "next week.yaml"))
    plan = make_plan(*files, Options(against=against))
    assert [policy.name for policy in plan.policies] == ["hived", "hived-2", "next-week"]


def test_gangs_have_the_shape_of_the_nodes(files: tuple[Path, Path]) -> None:
    plan = make_plan(*files, Options())
    assert [task.shape.pods for task in plan.tasks(plan.trace)] == [((1, 4),), ((2, 4),)]


def test_the_share_of_opportunistic_jobs_is_drawn_by_the_seed(files: tuple[Path, Path]) -> None:
    config, trace = files
    trace.write_text(TRACE + "".join(f"n{number},a,9,10,1\n" for number in range(200)))
    drawn = [
        [job.priority for job in make_plan(config, trace, Options(opportunistic_share=0.3, seed=seed)).trace.jobs]
        for seed in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] != drawn[2]
    assert 40 < drawn[0].count(-1) < 80


def test_checkpoints_of_the_options_come_before_those_of_the_trace(files: tuple[Path, Path]) -> None:
    plan = make_plan(*files, Options(checkpoint_s=60.0))
    assert {task.checkpoint_s for task in plan.tasks(plan.trace)} == {60.0}


def test_the_identity_depends_on_files_and_options(files: tuple[Path, Path]) -> None:
    config, trace = files
    first = make_plan(config, trace, Options()).identity
    assert make_plan(config, trace, Options()).identity == first
    assert make_plan(config, trace, Options(grace_s=1.0)).identity != first
    config.write_text(CONFIG + "\n")
    assert make_plan(config, trace, Options()).identity != first


@pytest.mark.parametrize("option", ["push", "add", "against"])
def test_the_identity_depends_on_other_configurations(files: tuple[Path, Path], option: str) -> None:
    other = files[0].with_name("other.yaml")
    other.write_text(CONFIG)
    options = Options(against=(str(other),)) if option == "against" else Options(what=(f"{option}={other}@1h",))
    first = make_plan(*files, options).identity
    assert make_plan(*files, options).identity == first
    other.write_text(CONFIG + "\n")
    assert make_plan(*files, options).identity != first


def test_the_identity_depends_on_tables_beside_the_trace(files: tuple[Path, Path], tmp_path: Path) -> None:
    for name in ("pai_task_table.csv", "pai_job_table.csv"):
        (tmp_path / name).write_bytes((SAMPLES / name).read_bytes())
    options = Options(tenants=("auto",))
    first = make_plan(files[0], tmp_path / "pai_task_table.csv", options).identity
    (tmp_path / "pai_job_table.csv").unlink()
    assert make_plan(files[0], tmp_path / "pai_task_table.csv", options).identity != first


def test_options_are_read_from_plain_values() -> None:
    assert msgspec.convert({"over_quota": "opportunistic"}, Options).over_quota is OverQuota.OPPORTUNISTIC


def test_a_change_needs_its_cells_under_every_policy(files: tuple[Path, Path]) -> None:
    other = files[0].with_name("other.yaml")
    other.write_text(CONFIG.replace("n0", "m0"))
    options = Options(what=("fail=n0@1h",), against=(str(other),))
    with pytest.raises(UserError, match="--what 'fail=n0@1h', under other: 'n0': expected a node"):
        make_plan(*files, options)


PHILLY = ROOT / "examples" / "philly"


def test_an_example_is_found_by_its_name_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert folder_of("philly").samefile(PHILLY)
    assert folder_of("examples/philly").samefile(PHILLY)


def test_a_folder_of_ones_own_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "philly").mkdir()
    assert folder_of("philly").resolve() == tmp_path / "philly"


def test_what_a_folder_lacks_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such folder, and no example of that name; examples are philly"):
        folder_of("nowhere")
    with pytest.raises(UserError, match=r"has no hivedscheduler\.yaml"):
        config_in(tmp_path)
    with pytest.raises(UserError, match=r"expected one file trace\.\*, found none"):
        trace_in(tmp_path)
    (tmp_path / "trace.csv").touch()
    assert trace_in(tmp_path).name == "trace.csv"
    (tmp_path / "trace.jsonl").touch()
    with pytest.raises(UserError, match=r"found trace\.csv, trace\.jsonl"):
        trace_in(tmp_path)


def test_the_sample_is_what_its_program_makes() -> None:
    made = subprocess.run([sys.executable, PHILLY / "make_trace.py"], capture_output=True, text=True, check=True)
    assert made.stdout == (PHILLY / "trace.csv").read_text()


def test_the_wheel_carries_the_example_where_it_is_looked_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    carried = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert carried["examples/philly"] == "hived_simulator/cases/philly"


def test_philly_has_the_cluster_that_its_page_says() -> None:
    plan = make_plan(config_in(PHILLY), trace_in(PHILLY), Options(against=AGAINST))
    cluster = plan.cluster(plan.policies[0])
    vcs = plan.specs["hived"].virtual_clusters
    assert [policy.name for policy in plan.policies] == [
        "private", "hived", "quota-bestfit", "quota-spread", "easy", "over-quota", "over-quota-30m"
    ]  # fmt: skip
    assert (len(plan.trace.jobs), len(vcs)) == (3919, 11)
    assert (cluster.measure().leaf_count, sum(map(cluster.promised, vcs))) == (2496, 2496)


@pytest.mark.long
def test_on_a_part_of_philly_sharing_makes_nobody_later(tmp_path: Path) -> None:
    first, *lines = (PHILLY / "trace.csv").read_text().splitlines()
    chosen = [line for line in lines if line.endswith((",103959", ",e13805", ",2869ce"))]
    (tmp_path / "part.csv").write_text("\n".join([first, *chosen]))
    plan = make_plan(config_in(PHILLY), tmp_path / "part.csv", Options(against=("private",)))
    campaign = Campaign(plan, tmp_path / "results")
    assert campaign.run(lambda _: None, lambda: False, lambda: 0.0, 1e9)
    later = campaign.totals()["hived"].later
    assert later is not None
    assert campaign.totals()["private"].delay.mean > 60
    assert (later.count, later.never, later.ends, later.earlier) == (0, 0, 0, 0)
