"""The page of results: what it shows is what the files say, and it needs nothing but itself."""

import base64
import csv
import hashlib
import re
import shutil
from html import escape, unescape
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from hived.values.errors import UserError
from hived_simulator.campaign import Campaign
from hived_simulator.plan import Options, OverQuota, make_plan
from hived_simulator.report.page import report, write_pictures, write_report
from hived_simulator.report.reading import read_simulations
from hived_simulator.traces.jobs import Trace
from hived_simulator.traces.own import to_lines
from tests.simulator.builders import random_jobs
from tests.simulator.test_checkpoints import CONFIG

pytestmark = pytest.mark.sample(10)

AGAINST = ("private", "quota-bestfit", "quota-spread", "over-quota", "over-quota:5m")
SVG = "{http://www.w3.org/2000/svg}"


def simulated(folder: Path, out: str, options: Options, jobs: int = 60) -> Path:
    """The folder of a finished simulation."""
    folder.mkdir(exist_ok=True)
    (folder / "now.yaml").write_text(CONFIG)
    trace = Trace("random <jobs> & more", tuple(random_jobs(3, ("a", "b", "c"), jobs)))
    (folder / "trace.jsonl").write_bytes(b"".join(to_lines(trace)))
    campaign = Campaign(make_plan(folder / "now.yaml", folder / "trace.jsonl", options), folder / out)
    assert campaign.run(lambda _: None, lambda: False, lambda: 0.0, 1e9)
    return folder / out


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated(tmp_path_factory.mktemp("one"), "results", Options(against=AGAINST, draws=2))


@pytest.fixture(scope="module")
def page(results: Path) -> str:
    return report([results])


@pytest.fixture
def copied(results: Path, tmp_path: Path) -> Path:
    """Results that a test may damage."""
    return Path(shutil.copytree(results, tmp_path / "results"))


def pictures(page: str) -> list[ElementTree.Element]:
    """The plots of a page, without signs of legends."""
    found = [ElementTree.fromstring(each) for each in re.findall(r"<svg.*?</svg>", page, re.DOTALL) if "role=" in each]
    assert found
    return found


def table(page: str, heading: str) -> list[list[str]]:
    """The cells of the first table after a heading."""
    part = page.split(f">{escape(heading)}<", 1)[1].split("</table>", 1)[0]
    rows = re.findall(r"<tr>(.*?)</tr>", part, re.DOTALL)
    return [[unescape(cell) for cell in re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row)] for row in rows]


@pytest.mark.long
def test_it_asks_for_nothing_outside_and_runs_nothing(page: str) -> None:
    assert "<script" not in page
    assert re.findall(r"""(?:src|href)=["'](?!#)[^"']*|url\(|@import|\son\w+=| style=""", page) == []
    assert set(re.findall(r"https?://[^\s\"']+", page)) == {"http://www.w3.org/2000/svg"}


def test_the_policy_of_the_page_allows_its_own_style_alone(page: str) -> None:
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'sha256-{digest}'" in page


def test_every_plot_is_told_in_words_and_has_a_table(page: str) -> None:
    for picture in pictures(page):
        assert picture.get("role") == "img"
        assert all((picture.findtext(f"{SVG}{name}") or "").strip() for name in ("title", "desc"))
    sections = re.findall(r'<section id="(.*?)".*?</section>', page, re.DOTALL)
    assert sections == [
        "delays", "delays-by-virtual-cluster", "later-than-in-a-private-cluster", "use", "free-cells", "waits-by-cause",
        "preemptions", "locality-of-gangs", "differences", "inputs",
    ]  # fmt: skip
    for section in re.findall(r'<section id="(?!inputs).*?</section>', page, re.DOTALL):
        assert "<table" in section


def test_nothing_is_drawn_outside_of_its_plot(page: str) -> None:
    for picture in pictures(page):
        _, _, width, height = map(float, picture.get("viewBox", "").split())
        points = [pair.split(",") for line in picture.iter(f"{SVG}polyline") for pair in line.get("points", "").split()]
        assert all(0 <= float(x) <= width and 0 <= float(y) <= height for x, y in points)
        for box in picture.iter(f"{SVG}rect"):
            assert 0 <= float(box.get("x", "")) <= float(box.get("x", "")) + float(box.get("width", "")) <= width
            assert float(box.get("y", "")) + float(box.get("height", "")) <= height


def test_lines_of_delays_only_rise(page: str) -> None:
    part = page.split('id="delays"', 1)[1].split("</section>", 1)[0]
    (picture,) = pictures(part)
    for line in picture.iter(f"{SVG}polyline"):
        points = [tuple(map(float, pair.split(","))) for pair in line.get("points", "").split()]
        assert all(before[0] <= after[0] and before[1] >= after[1] for before, after in pairwise(points))


def test_starts_against_private_are_those_of_the_jobs(results: Path, page: str) -> None:
    rows = {(row[0], row[1]): row for row in table(page, "Later than in a private cluster as a table")[1:]}
    for policy in ("hived", "quota-spread", "over-quota", "over-quota-5m"):
        with (results / policy / "jobs.csv").open() as file:
            jobs = [row for row in csv.DictReader(file) if int(row["priority"]) >= 0 and row["excess_start_s"]]
        assert rows[policy, "all"][8] == "0"  # so that no job is later without a start
        later = sum(float(row["excess_start_s"]) > 0.001 for row in jobs)
        earlier = sum(float(row["excess_start_s"]) < -0.001 for row in jobs)
        assert (rows[policy, "all"][2], rows[policy, "all"][7]) == (str(later), str(earlier))
        assert f"{policy}: {later} of" in page


def test_a_job_that_starts_only_in_its_private_cluster_is_later_and_beside_the_mean(tmp_path: Path) -> None:
    config, trace = tmp_path / "now.yaml", tmp_path / "jobs.csv"
    config.write_text(CONFIG)
    (tmp_path / "less.yaml").write_text(CONFIG.replace("cellNumber: 2", "cellNumber: 1"))
    trace.write_text("job,tenant,submitted_s,duration_s,gpus\none,a,0,100,4\nlarge,a,50,100,8\n")
    plan = make_plan(config, trace, Options(against=("private", str(tmp_path / "less.yaml"))))
    assert Campaign(plan, tmp_path / "out").run(lambda _: None, lambda: False, lambda: 0.0, 1e9)
    less = msgspec.json.decode((tmp_path / "out" / "vcs.json").read_bytes())["less"][0]
    assert (less["delay"]["mean"], less["delay"]["never"], less["later"]["count"], less["later"]["never"]) == (
        0,
        1,
        1,
        1,
    )
    found = report([tmp_path / "out"])
    assert "Guaranteed jobs that start later than in their private cluster, or not at all: less 1." in found
    assert "less 0 without 1 that never start" in found
    assert "less: 1 of 2 later" in found
    assert table(found, "Delays as a table")[3][:3] == ["less", "0", "1"]


def test_waits_are_summed_by_their_cause(results: Path, page: str) -> None:
    with (results / "hived" / "jobs.csv").open() as file:
        jobs = [row for row in csv.DictReader(file) if row["cause"] == "behind-others"]
    hours = sum(float(row["waited_s"]) * int(row["leaf_cells"]) for row in jobs) / 3600
    row = next(
        row
        for row in table(page, "Waits by cause as a table")
        if row[:2] == ["hived", "behind others of its virtual cluster"]
    )
    assert (row[2], float(row[3].replace(",", ""))) == (str(len(jobs)), pytest.approx(hours, rel=0.01, abs=0.05))


def test_differences_have_intervals_of_the_draws(page: str) -> None:
    rows = {row[0]: row for row in table(page, "hived less private")[1:]}
    assert " to " in rows["mean delay, min"][5]
    assert "2 draws of durations, the same for both." in page


def test_names_of_users_are_text(page: str) -> None:
    assert "<jobs>" not in page
    assert "random &lt;jobs&gt; &amp; more" in page


def test_the_same_results_give_the_same_bytes(results: Path, page: str, tmp_path: Path) -> None:
    write_report([results], tmp_path / "again.html")
    assert (tmp_path / "again.html").read_text() == page


def test_plots_are_files_of_their_own_with_their_legend(results: Path, tmp_path: Path) -> None:
    paths = write_pictures([results], tmp_path / "plots")
    assert {"delays.svg", "later-than-in-a-private-cluster.svg", "use-1.svg"} <= {path.name for path in paths}
    root = ElementTree.parse(tmp_path / "plots" / "delays.svg").getroot()
    (inner,) = [each for each in root.findall(f"{SVG}svg") if each.get("role") == "img"]
    left, top, width, height = map(float, root.get("viewBox", "").split())
    assert left + width >= float(inner.get("width", ""))
    assert top + height >= float(inner.get("y", "")) + float(inner.get("height", ""))
    legend = [each.text for each in root.findall(f"{SVG}g/{SVG}text")]
    assert legend == ["private", "hived", "quota-bestfit", "quota-spread", "over-quota", "over-quota-5m"]


def test_a_policy_of_two_folders_with_the_same_results_is_shown_once(results: Path, tmp_path: Path) -> None:
    other = simulated(tmp_path, "lending", Options(against=("private",), over_quota=OverQuota.OPPORTUNISTIC, draws=2))
    labels = [result.label for each in read_simulations([results, other]) for result in each.results]
    assert labels == [
        "private", "hived (results)", "quota-bestfit", "quota-spread", "over-quota", "over-quota-5m", "hived (lending)"
    ]  # fmt: skip
    both = report([results, other])
    rows = {row[0]: row for row in table(both, "hived (lending) less hived (results)")[1:]}
    assert " to " in rows["utilisation"][5]


def test_folders_of_one_name_are_told_apart(results: Path, tmp_path: Path) -> None:
    other = simulated(tmp_path, "results", Options(), jobs=10)
    labels = [result.label for each in read_simulations([results, other]) for result in each.results]
    assert labels[-1] == "hived (results) 2"
    assert "ran different traces" in report([results, other])


def test_a_run_without_private_clusters_has_no_anomaly_to_show(tmp_path: Path) -> None:
    alone = report([simulated(tmp_path, "alone", Options())])
    assert "later-than-in-a-private-cluster" not in alone
    assert "No guaranteed job starts later" not in alone


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("run.json", "hived-simulation/1", "hived-simulation/9", "format: found 'hived-simulation/9'"),
        ("run.json", '"policies"', '"police"', "run.json: .*policies"),
        ("vcs.json", '"hived":', '"hive":', "vcs.json: has no figures of 'hived'"),
        ("hived/jobs.csv", "delay_s", "delays", r"hived/jobs.csv:1: has no column 'delay_s'"),
        ("hived/jobs.csv", "\n", "\nx,", r"hived/jobs.csv:2: has 23 fields, expected 22"),
        ("hived/series.csv", "\n0,", "\nnever,", r"hived/series.csv:2: at_s: found 'never', expected a number"),
    ],
)
def test_damaged_results_are_told_with_their_place(copied: Path, file: str, old: str, new: str, message: str) -> None:
    text = (copied / file).read_text()
    assert old in text
    (copied / file).write_text(text.replace(old, new, 1))
    with pytest.raises(UserError, match=message):
        write_report([copied], copied / "page.html")
    assert not (copied / "page.html").exists()


@pytest.mark.parametrize("file", ["run.json", "vcs.json", "hived/jobs.csv"])
def test_missing_results_are_told(copied: Path, file: str) -> None:
    (copied / file).unlink()
    with pytest.raises(UserError, match=Path(file).name):
        report([copied])


def test_the_size_is_bounded_with_many_virtual_clusters_and_policies(copied: Path) -> None:
    """Two hundred virtual clusters, twenty policies."""
    run = msgspec.json.decode((copied / "run.json").read_bytes())
    rows = msgspec.json.decode((copied / "vcs.json").read_bytes())
    hived = next(each for each in run["policies"] if each["name"] == "hived")
    names = [f"policy-{number}" for number in range(20)]
    run["policies"] = [{**hived, "name": name} for name in names]
    vcs = [{**rows["hived"][1], "vc": f"virtual-cluster-{number}"} for number in range(200)]
    (copied / "run.json").write_bytes(msgspec.json.encode(run))
    (copied / "vcs.json").write_bytes(msgspec.json.encode({name: [rows["hived"][0], *vcs] for name in names}))
    page = report([copied])
    assert "Plots are of the first 12 of 200." in page
    assert "The first 300 of 4000 rows; vcs.csv has all." in page
    assert len(page.encode()) < 1_000_000
