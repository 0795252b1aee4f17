"""OpenPAI's scheduling lab: two machines of one GPU, four users, five experiments; what its users type and see."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlencode

import pytest
import urllib3
from click.testing import CliRunner, Result

from hived_cli import main
from hived_jobs.records import read_named
from hived_lab.embedded.nodes import RUN_SECONDS
from tests.cases.played import PATHS, Played, played_on
from tests.expecting import expect_equal, expect_soon
from tests.extender.http.pages.test_cluster_pages import BROWSER, text_of
from tests.extender.http.pages.test_submit_page import token_in, yaml_in

pytestmark = pytest.mark.sample(4)

FILES = Path(__file__).parent / "openpai_lab"
TWO_VCS, ONE_VC = FILES / "two-vcs", FILES / "one-vc"
CONFIG = (TWO_VCS / "service-configuration.yaml").read_text(encoding="utf-8")
CAROL, DAN = "hostname-carol", "hostname-dan"
USERS = ("alice", "bob", "carol", "dan")

JOB = """\
protocolVersion: 2
name: {name}
type: job
prerequisites:
  - protocolVersion: 2
    name: example
    type: dockerimage
    uri: example/train
taskRoles:
  train:
    instances: {instances}
    completion:
      minFailedInstances: 1
      minSucceededInstances: 1
    dockerImage: example
    resourcePerInstance:
      cpu: 2
      memoryMB: 4096
      gpu: 1
    commands:
      - python3 train.py

defaults:
  virtualCluster: {vc}

extras:{gang}
  hivedScheduler:
    jobPriorityClass: {priority}
"""
JOBS = {
    "job-config-0": ("vc1", "prod", 1, ""),
    "job-config-1": ("vc1", "test", 1, ""),
    "job-config-2": ("vc1", "prod", 1, ""),
    "job-config-3": ("vc1", "prod", 1, ""),
    "job-config-4": ("vc1", "oppo", 1, ""),
    "owner": ("default", "test", 1, ""),
    "job-config-5": ("default", "prod", 1, ""),
    "job-config-6": ("default", "prod", 2, "true"),
    "job-config-7": ("default", "prod", 2, "false"),
    "four": ("default", "prod", 4, "false"),
    "four-at-once": ("default", "prod", 4, "true"),
}
"""By name: virtual cluster, priority, instances, and what the file says of gangs."""


class Lab:
    """Commands as the users type them, against one embedded cluster."""

    def __init__(self, played: Played, folder: Path) -> None:
        self.played, self._folder = played, folder
        self._service = ("--server", played.running.extender.url)
        self._api_server = ("--kubeconfig", str(played.running.cluster.kubeconfig))

    def ask(self, *words: str, typed: str = "") -> Result:
        """A command that asks the service."""
        return CliRunner().invoke(main, [*words, *self._service], input=typed)

    def call(self, *words: str) -> Result:
        """A command that asks the API server too."""
        return CliRunner().invoke(main, [*words, *self._service, *self._api_server])

    def submit(self, name: str, user: str = "alice", *words: str) -> Result:
        """`hived submit NAME.yaml --user USER`."""
        vc, priority, instances, is_gang = JOBS[name]
        gang = f"\n  gangAllocation: {is_gang}" if is_gang else ""
        file = self._folder / f"{name}-of-{user}.yaml"  # users submit at once
        file.write_text(JOB.format(name=name, vc=vc, priority=priority, instances=instances, gang=gang))
        return self.call("submit", str(file), "--user", user, *words)

    def submitted(self, name: str, user: str = "alice") -> None:
        """The same, which is taken."""
        result = self.submit(name, user)
        assert result.exit_code == 0, result.output

    def nodes_of(self, full_name: str) -> list[str]:
        """The nodes on which pods of a job run, "" for one that does not."""
        user, _, name = full_name.partition("~")
        running = self.played.running_pods()
        return sorted(
            running.get(pod, "")
            for pod, one in self.played.pods().items()
            if (one["metadata"]["labels"]["userName"], one["metadata"]["labels"]["jobName"]) == (user, name)
        )

    def expect(self, **nodes: list[str]) -> None:
        """Jobs, `USER~NAME` by keyword, run there soon, all at the same moment."""
        expect_equal(lambda: {name: self.nodes_of(name) for name in nodes}, nodes, "the nodes of these jobs")

    def end(self, full_name: str, count: int = 1) -> None:
        """So many running pods of a job end well."""
        user, _, name = full_name.partition("~")
        running = self.played.running_pods()
        pods = [
            pod
            for pod, one in self.played.pods().items()
            if pod in running
            and (one["metadata"]["labels"]["userName"], one["metadata"]["labels"]["jobName"]) == (user, name)
        ]
        for pod in sorted(pods)[:count]:
            self.played.kube.patch(
                f"{PATHS['Pod'].format('default')}/{pod}", {"metadata": {"annotations": {RUN_SECONDS: "0"}}}
            )

    def phase(self, full_name: str) -> str:
        """Where a job stands by its record."""
        return read_named(self.played.kube, "default", full_name).state.phase.value

    def ended_state(self, full_name: str) -> str:
        """How a job has ended, as `hived get jobs --ended` says; "" if it does not know."""
        listed = json.loads(self.ask("get", "jobs", "--ended", "-o", "json").stdout)["items"]
        return next((one["state"] for one in listed if full_name in one["name"]), "")

    def post(self, path: str, **fields: str) -> tuple[int, str]:
        """Send the form of a page, as a browser does; returns the status, and where that leads or what it shows."""
        url = self.played.running.extender.url
        headers = {"Accept": "text/html", "Origin": url, "Content-Type": "application/x-www-form-urlencoded"}
        form = urllib3.request("GET", f"{url}/page/submit", headers=headers).data.decode()
        body = urlencode({"token": token_in(form), **fields})
        sent = urllib3.request("POST", f"{url}{path}", body=body, headers=headers, redirect=False)
        return sent.status, sent.headers.get("Location", sent.data.decode())

    def push(self, folder: Path, typed: str = "pai") -> Result:
        """`echo pai | hived config push -p DIR -m service`."""
        return self.ask("config", "push", "-p", str(folder), "-m", "service", typed=f"{typed}\n")


@pytest.fixture
def lab(played: Played, tmp_path: Path) -> Iterator[Lab]:
    """The cluster with a virtual cluster for each machine."""
    return Lab(played, tmp_path)


@pytest.fixture
def one_vc(lab: Lab) -> Lab:
    """The same after the push that puts both machines into one virtual cluster, between paictl's other two lines."""
    assert lab.ask("config", "get-id").output == "pai\n"
    stopped = CliRunner().invoke(main, ["service", "stop", "-n", "rest-server", "hivedscheduler"])
    pushed = lab.push(ONE_VC)
    started = lab.ask("service", "start", "-n", "rest-server", "hivedscheduler")
    assert [one.exit_code for one in (stopped, pushed, started)] == [0, 0, 0], pushed.output
    assert "version 2 of its configuration in force" in started.output
    return lab


def test_vc_safety_four_users_submit_one_file_at_once(lab: Lab) -> None:
    """One after the other on vc1's machine, though the other one is idle."""
    with ThreadPoolExecutor(len(USERS)) as pool:
        results = list(pool.map(lambda user: lab.submit("job-config-0", user), USERS))
    assert [one.exit_code for one in results] == [0] * len(USERS), [one.output for one in results]
    names, order = [f"{user}~job-config-0" for user in USERS], list[str]()
    for _ in USERS:
        running = expect_soon(lambda: [name for name in names if lab.nodes_of(name) == [DAN]])
        assert [lab.nodes_of(name) for name in names if name not in (*running, *order)] == [[""]] * (3 - len(order))
        order += running
        assert CAROL not in lab.played.running_pods().values()
        lab.end(running[0])
        expect_soon(lambda done=running[0]: lab.phase(done) == "Completed")
    assert sorted(order) == names


def test_a_job_of_the_page_is_its_users_and_ends_there(lab: Lab) -> None:
    """No token is needed: this API server asks nobody for one."""
    fields = {"name": "train", "user": "alice", "namespace": "default", "vc": "vc1", "leaf_type": "GPU-D"}
    status, shown = lab.post("/page/submit", do="write", **fields, gpus="1", pods="1", priority="test", image="x")
    assert (status, "The API server would take it from you." in shown) == (200, True), shown
    made = lab.post("/page/submit", do="create", yaml=yaml_in(shown))
    assert made == (303, "/page/jobs/Job/default/train")
    expect_soon(lambda: list(lab.played.running_pods().values()) == [DAN])
    found = expect_soon(lambda: json.loads(lab.ask("get", "jobs", "--user", "alice", "-o", "json").stdout)["items"])
    assert [(one["name"], one["user"]) for one in found] == [("Job/default/train", "alice")]
    status, _ = lab.post("/page/cancel", job="Job/default/train", version="batch/v1")
    expect_soon(lambda: (status, lab.played.running_pods()) == (303, {}))


def test_a_gpu_that_is_a_whole_node_is_counted_once(lab: Lab) -> None:
    lab.submitted("job-config-0")
    lab.expect(**{"alice~job-config-0": [DAN]})
    told = expect_soon(lambda: "1 running" in (said := lab.ask("top").output) and said, every_s=0.5)
    rows = [line.split() for line in told.splitlines() if "-NODE-POOL" in line]
    assert {vc: sums[:5] for vc, _, *sums in rows} == {
        "default": ["1", "0", "0", "0", "0"],
        "vc1": ["1", "1", "0", "0", "0"],
    }, told
    page = urllib3.request("GET", f"{lab.played.running.extender.url}/page/vcs", headers={"Accept": BROWSER})
    words = text_of(page.data.decode())
    assert "default 1 0 0 0 1 0" in words, words
    assert "vc1 1 1 0 0 0 0" in words, words


def test_a_user_finds_the_job_by_the_name_that_openpai_shows(lab: Lab) -> None:
    lab.submitted("job-config-0", "alice")
    lab.expect(**{"alice~job-config-0": [DAN]})
    lab.submitted("job-config-0", "bob")
    told = expect_soon(lambda: (said := lab.ask("why", "bob~job-config-0")).exit_code == 0 and said.output, every_s=0.2)
    assert "bob~job-config-0" in told.splitlines()[0]
    assert "alice~job-config-0" in told, "who has its cells"
    found = json.loads(lab.ask("get", "jobs", "bob~job-config-0", "-o", "json").stdout)["items"]
    assert [(one["user"], one["state"]) for one in found] == [("bob", "Waiting")]
    refused = lab.call("delete", "job-config-0", "--yes")
    assert (refused.exit_code, "name one of alice~job-config-0, bob~job-config-0" in refused.output) == (1, True)
    deleted = lab.call("delete", "bob~job-config-0", "--yes")
    assert (deleted.exit_code, lab.nodes_of("bob~job-config-0")) == (0, []), deleted.output
    lab.expect(**{"alice~job-config-0": [DAN]})


def test_priority_a_preempted_job_comes_back_and_both_end(lab: Lab) -> None:
    test, prod = "alice~job-config-1", "alice~job-config-2"
    lab.submitted("job-config-1")
    lab.expect(**{test: [DAN]})
    lab.submitted("job-config-2")
    lab.expect(**{test: [""], prod: [DAN]})
    expect_equal(lambda: lab.phase(test), "Pending", "the record of the preempted job, whose pod waits again")
    lab.end(prod)
    lab.expect(**{test: [DAN]})
    lab.end(test)
    expect_equal(lambda: [lab.phase(test), lab.phase(prod)], ["Completed"] * 2, "both jobs at the end")
    assert lab.played.running_pods() == {}, "no job has cells after its end"


def test_an_opportunistic_job_leaves_as_soon_as_the_owner_comes_and_comes_back(lab: Lab) -> None:
    oppo = "alice~job-config-4"
    lab.submitted("job-config-3")
    lab.submitted("job-config-4")
    lab.expect(**{"alice~job-config-3": [DAN], oppo: [CAROL]})
    lab.submitted("owner")
    lab.expect(**{"alice~job-config-3": [DAN], "alice~owner": [CAROL], oppo: [""]})
    assert lab.nodes_of(oppo) == [""], "its owner runs on its cells"
    lab.end("alice~owner")
    lab.expect(**{oppo: [CAROL]})


def test_a_gang_waits_as_a_whole_and_one_success_completes_it(one_vc: Lab) -> None:
    first, gang = "alice~job-config-5", "alice~job-config-6"
    one_vc.submitted("job-config-5")
    expect_soon(lambda: any(one_vc.nodes_of(first)))
    one_vc.submitted("job-config-6")
    told = expect_soon(lambda: (said := one_vc.ask("why", gang)).exit_code == 0 and said.output, every_s=0.2)
    assert "needs 2" in told
    assert one_vc.nodes_of(gang) == ["", ""]
    one_vc.end(first)
    one_vc.expect(**{gang: [CAROL, DAN]})
    one_vc.end(gang)
    expect_equal(lambda: one_vc.phase(gang), "Completed", "the record after one success")
    expect_equal(lambda: one_vc.nodes_of(gang), [""], "the pods that are left: the one that has ended")
    expect_equal(lambda: one_vc.ended_state(gang), "Completed", "the state among ended jobs")


def test_an_incremental_job_starts_one_by_one(one_vc: Lab) -> None:
    first, one_by_one = "alice~job-config-5", "alice~job-config-7"
    one_vc.submitted("job-config-5")
    expect_soon(lambda: any(one_vc.nodes_of(first)))
    one_vc.submitted("job-config-7")
    expect_equal(lambda: sum(map(bool, one_vc.nodes_of(one_by_one))), 1, "running pods beside the other job")

    def rows() -> list[tuple[str, str, int, int]]:
        """The one job that its name means: its user, its state, and how many of its pods run and wait."""
        listed = json.loads(one_vc.ask("get", "jobs", one_by_one, "-o", "json").stdout)["items"]
        return [(one["user"], one["state"], one["counts"]["running"], one["counts"]["waiting"]) for one in listed]

    expect_equal(rows, [("alice", "Waiting", 1, 1)], "the rows of its name", every_s=0.2)
    assert one_vc.ask("why", one_by_one).exit_code == 0
    one_vc.end(first)
    one_vc.expect(**{one_by_one: [CAROL, DAN]})
    assert "with 2 pods and its record" in one_vc.call("delete", one_by_one, "--yes").output
    expect_equal(lambda: one_vc.nodes_of(one_by_one), [], "pods of a deleted job")


def test_more_than_there_is_runs_in_part_and_never_as_a_gang(one_vc: Lab) -> None:
    one_vc.submitted("four")
    one_vc.expect(**{"alice~four": ["", "", CAROL, DAN]})
    refused = one_vc.submit("four-at-once")
    assert (refused.exit_code, one_vc.nodes_of("alice~four-at-once")) == (1, [])
    assert "gang 'default' requests 4 SKUs, exceeds maximum 2 SKUs in VC default" in refused.output
    assert one_vc.submit("four-at-once", "alice", "--dry-run").exit_code == 4


def test_a_wrong_cluster_id_pushes_nothing(lab: Lab) -> None:
    result = lab.push(ONE_VC, "prod")
    assert (result.exit_code, lab.push(TWO_VCS).output) == (1, "Nothing to do: identical to version 1\n")
    assert "the id of this cluster is pai, not prod" in result.output


def test_a_push_that_takes_a_place_away_wants_more_than_the_id(lab: Lab) -> None:
    lab.submitted("job-config-0")
    lab.expect(**{"alice~job-config-0": [DAN]})
    result = lab.push(ONE_VC)
    assert (result.exit_code, "lazily preempted" in result.output) == (1, True), result.output


def test_a_deleted_pod_of_a_gang_has_all_of_it_start_again(one_vc: Lab) -> None:
    one_vc.submitted("job-config-6")
    one_vc.expect(**{"alice~job-config-6": [CAROL, DAN]})
    before = one_vc.played.uids()
    one_vc.played.delete("job-config-6-train-0")
    expect_soon(lambda: not before & one_vc.played.uids())
    one_vc.expect(**{"alice~job-config-6": [CAROL, DAN]})
    assert len(one_vc.played.uids()) == 2, "each pod is replaced once"


def test_the_id_in_openpais_file_is_that_of_the_cluster_from_the_start(tmp_path: Path) -> None:
    named = f"cluster:\n  common:\n    cluster-id: lab\n{CONFIG}"
    with played_on(tmp_path, named) as played:
        lab = Lab(played, tmp_path)
        assert lab.ask("config", "get-id").output == "lab\n"
        assert lab.push(ONE_VC, "pai").exit_code == 1
        assert lab.push(ONE_VC, "lab").exit_code == 0
