"""The example that comes with hived, and folders of one's own."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from hived.errors import UserError
from hived_simulator.campaign import Campaign
from hived_simulator.plan import AGAINST, Options, config_in, folder_of, make_plan, trace_in
from tests.places import ROOT

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
