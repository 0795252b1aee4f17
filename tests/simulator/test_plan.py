"""Inputs and options are checked before anything runs."""

from pathlib import Path

import msgspec
import pytest

from hived.errors import UserError
from hived_simulator.plan import Options, OverQuota, make_plan
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
