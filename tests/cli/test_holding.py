"""Jobs that no queue has are held, released, deleted and planned for by any of their names, on an embedded cluster."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3
from click.testing import CliRunner, Result

from hived_cli import main
from hived_extender.jobs.kinds.marks import BEGIN
from hived_extender.jobs.progress import write_time
from hived_extender.kube.client import KubeClient
from hived_lab.start import Embedded, start_embedded
from tests.expecting import expect_soon

CONFIGURATION = """
rules: 2
webServerAddress: 127.0.0.1:0
physicalCluster:
  cellTypes: {NODE: {childCellType: GPU, childCellNumber: 4, isNodeLevel: true}}
  physicalCells: [{cellType: NODE, cellAddress: n0}, {cellType: NODE, cellAddress: n1}]
virtualClusters: {default: {virtualCells: [{cellType: NODE, cellNumber: 2}]}}
"""


def containers(limits: str = "nvidia.com/gpu: 1") -> str:
    """The field of a pod's spec with one container, which has these limits."""
    return f"containers: [{{name: m, image: x, resources: {{limits: {{{limits}}}}}}}]"


def pod_text(name: str, limits: str = "nvidia.com/gpu: 1") -> str:
    """A plain pod."""
    return f"---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{{containers(limits)}}}\n"


LATER = pod_text("later") + pod_text("plain-later", "cpu: 1")
SOON = f"""{pod_text("soon-pod")}---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: soon-web}}
spec:
  selector: {{matchLabels: {{app: soon-web}}}}
  template:
    metadata: {{labels: {{app: soon-web}}}}
    spec: {{{containers()}}}
---
apiVersion: batch/v1
kind: Job
metadata: {{name: soon-job}}
spec: {{template: {{spec: {{restartPolicy: Never, {containers()}}}}}}}
"""
OPENPAI = """
protocolVersion: 2
name: pai
type: job
prerequisites: [{name: torch, type: dockerimage, uri: example/torch}]
taskRoles: {worker: {instances: 2, dockerImage: torch, resourcePerInstance: {gpu: 1}, commands: [run]}}
defaults: {virtualCluster: default}
"""
SENT = f"""---
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {{name: sent}}
spec:
  tasks:
  - name: w
    replicas: 2
    template: {{spec: {{{containers("cpu: 1")}}}}}
"""


class Cluster:
    """A running service, and the commands of this test on it."""

    def __init__(self, running: Embedded, folder: Path) -> None:
        self.running, self.folder, self.kube = (
            running,
            folder,
            KubeClient.connect(kubeconfig=str(running.cluster.hived_kubeconfig)),
        )

    def run(self, *words: str, says: str = "") -> Result:
        """A command that asks the service and the API server, and what is said to its questions."""
        options = ["--server", self.running.extender.url, "--kubeconfig", str(self.running.cluster.hived_kubeconfig)]
        return CliRunner().invoke(main, [*words, *options], input=says)

    def ask(self, *words: str) -> Result:
        """A command that asks the service alone."""
        return CliRunner().invoke(main, [*words, "--server", self.running.extender.url])

    def job(self, name: str, namespace: str = "default", gpus: int = 1, **spec: Any) -> None:
        """A batch Job of two pods."""
        limits = {"nvidia.com/gpu": gpus} if gpus else {"cpu": 1}
        pods = {"restartPolicy": "Never", "containers": [{"name": "m", "image": "x", "resources": {"limits": limits}}]}
        body = {"parallelism": 2, "completions": 2, "template": {"spec": pods}, **spec}
        document = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": body}
        self.kube.create(f"/apis/batch/v1/namespaces/{namespace}/jobs", document)

    def row(self, name: str) -> str:
        """The state and the counts of a job, "" if it is in no list."""
        lines = self.ask("get", "jobs", name).output.splitlines()[1:]
        return " ".join(lines[0].split()[2:3] + lines[0].split("   ")[-3:]) if lines else ""

    def pods(self, start: str) -> int:
        """How many pods there are whose names begin so, in all namespaces."""
        return sum(pod["metadata"]["name"].startswith(start) for pod in self.kube.get("/api/v1/pods")["items"])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("holding")
    (folder / "cluster.yaml").write_text(CONFIGURATION)
    (folder / "jobs.yaml").write_text(pod_text("solo") + SENT)
    with start_embedded(folder / "cluster.yaml") as running:
        found = Cluster(running, folder)
        found.kube.create("/api/v1/namespaces", {"metadata": {"name": "far"}})
        yield found


def page(cluster: Cluster, path: str) -> str:
    """A page as a browser gets it."""
    url = f"{cluster.running.extender.url}/page/{path}"
    return urllib3.request("GET", url, headers={"Accept": "text/html"}).data.decode()


@pytest.mark.parametrize("gpus", [1, 0])
def test_a_job_is_suspended_and_resumed_by_its_short_name_in_any_namespace(cluster: Cluster, gpus: int) -> None:
    name = f"train{gpus}"
    cluster.job(name, "far", gpus)
    expect_soon(lambda: "Running" in cluster.row(name))
    assert cluster.run("hold", name, "--yes").output.endswith(
        f"\nJob/far/{name}: held: its controller deletes its pods\n"
    )
    expect_soon(lambda: "Held" in cluster.row(name) and not cluster.pods(name))
    assert cluster.run("hold", name, "-n", "far").output == f"Job/far/{name}: is held already\n"
    assert cluster.run("release", f"Job/far/{name}").output == f"Job/far/{name}: released\n"
    expect_soon(lambda: "Running" in cluster.row(name))
    deleted = cluster.run("delete", name, "-n", "far", "--yes")
    assert (deleted.exit_code, f"Job/far/{name}, which goes with its pods" in deleted.output) == (0, True)


def test_lists_after_a_change_of_a_job_are_newer_than_it(cluster: Cluster) -> None:
    insight = cluster.running.extender.insight
    cluster.job("listed", gpus=0)
    expect_soon(lambda: bool(cluster.row("listed")))
    for words in (["hold", "listed", "--yes"], ["release", "listed"], ["delete", "listed", "--yes"]):
        before = insight.view()
        assert cluster.run(*words).exit_code == 0
        assert insight.view() is not before


def test_a_held_job_names_the_command_that_releases_it_and_since_when_it_is_held(cluster: Cluster) -> None:
    cluster.job("asleep")
    expect_soon(lambda: "Running" in cluster.row("asleep"))
    assert cluster.run("hold", "asleep", "--yes").exit_code == 0
    expect_soon(lambda: "Held" in cluster.row("asleep") and not cluster.pods("asleep"))
    [job] = json.loads(cluster.ask("get", "jobs", "asleep", "-o", "json").output)["items"]
    conditions = cluster.kube.get("/apis/batch/v1/namespaces/default/jobs/asleep")["status"]["conditions"]
    [held] = [one for one in conditions if one["type"] == "Suspended"]
    assert job["since"] == held["lastTransitionTime"]
    told = cluster.ask("why", "asleep").output
    assert "suspended, and in no queue: hived release asleep -n default starts it" in told


def test_a_job_that_may_not_start_yet_is_released_whatever_its_kind(cluster: Cluster) -> None:
    (cluster.folder / "soon.yaml").write_text(SOON)
    submitted = cluster.run("submit", str(cluster.folder / "soon.yaml"), "--begin", "+9h", "--unchecked")
    assert submitted.exit_code == 0, submitted.output
    for name in ("soon-pod", "soon-web", "soon-job"):
        expect_soon(lambda name=name: cluster.row(name))
        assert "Running" not in cluster.row(name)
        later = f"hived release {name} -n default --now starts it at once"
        told = f"is not held: it starts once --begin and --after let it; {later}\n"
        assert cluster.run("release", name).output.endswith(f": {told}")
        assert "Running" not in cluster.row(name)
        assert cluster.run("release", name, "--now").output.endswith(": released\n")
        expect_soon(lambda name=name: "Running" in cluster.row(name))
    assert "is not held" in cluster.run("release", "soon-pod", "--now").output


def test_a_job_that_begins_later_is_held_until_it_is_released_and_begins_then(cluster: Cluster) -> None:
    """Its hold outlives the moment at which it would begin, and its release leaves a moment that is yet to come."""
    for name in ("early", "late"):
        (cluster.folder / "timed.yaml").write_text(SOON.rpartition("---")[2].replace("soon-job", name))
        submitted = cluster.run("submit", str(cluster.folder / "timed.yaml"), "--begin", "+9h", "--unchecked")
        assert submitted.exit_code == 0, submitted.output
        held = cluster.run("hold", name).output
        assert held == f"Job/default/{name}: held: it does not start before it is released\n"
        assert cluster.run("hold", name).output == f"Job/default/{name}: is held already\n"
    begun = {"metadata": {"annotations": {BEGIN: write_time(time.time())}}}
    cluster.kube.patch("/apis/batch/v1/namespaces/default/jobs/early", begun)
    expect_soon(lambda: "hived release late -n default ends that; begins at " in cluster.ask("why", "late").output)
    expect_soon(lambda: "in no queue: hived release early -n default starts it" in cluster.ask("why", "early").output)
    assert not cluster.pods("early")
    assert cluster.run("release", "early").output == "Job/default/early: released\n"
    expect_soon(lambda: "Running" in cluster.row("early"))
    told = "it starts once --begin and --after let it; hived release late -n default --now starts it at once"
    assert cluster.run("release", "late").output == f"Job/default/late: released: {told}\n"
    expect_soon(lambda: "ends that" not in cluster.ask("why", "late").output)
    assert cluster.run("release", "late").output == f"Job/default/late: is not held: {told}\n"
    assert not cluster.pods("late")
    assert cluster.run("delete", "early", "--yes").exit_code == 0


def test_a_job_that_runs_is_held_after_a_question_alone(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.job("busy")
    expect_soon(lambda: "Running" in cluster.row("busy") and "2 run" in cluster.row("busy"))
    told = "Job/default/busy: 2 pods will be deleted, with 0.0 GPU-hours of work\n"
    refused = cluster.run("hold", "busy")
    assert (refused.exit_code, refused.stdout) == (1, told)
    assert refused.stderr.endswith("nothing was held: cannot ask, as standard input is no terminal; give --yes\n")
    monkeypatch.setattr("hived_cli.helpers.answers.can_ask", lambda: True)
    assert cluster.run("hold", "busy", says="\n").output.endswith("Nothing was held.\n")
    assert cluster.pods("busy") == 2
    assert cluster.run("hold", "busy", "nobody", "--yes").exit_code == 1
    assert cluster.pods("busy") == 2
    held = "Job/default/busy: held: its controller deletes its pods\n"
    assert cluster.run("hold", "busy", "--yes").output == told + held


@pytest.mark.usefixtures("without_operators")
def test_what_hived_submit_has_made_is_held_by_its_record(cluster: Cluster) -> None:
    submitted = cluster.run("submit", str(cluster.folder / "jobs.yaml"), "--unchecked")
    assert submitted.exit_code == 0, submitted.output
    expect_soon(lambda: cluster.pods("sent-") == 2)
    assert cluster.run("hold", "sent", "--yes").output.endswith(
        "Job/default/sent: held: 2 pods deleted, and hived release makes them anew\n"
    )
    expect_soon(lambda: not cluster.pods("sent-"))
    listed = cluster.run("get", "jobs", "sent", "-o", "wide").output
    assert "Held" in listed
    assert "2 to come" in listed
    assert "unknown: it is held" in listed
    told = "it is suspended in its record: held by hived hold; hived release sent -n default starts it"
    assert told in listed
    expect_soon(lambda: told in cluster.run("why", "sent").output)
    assert "Held" in cluster.run("get", "jobs", "--state", "held").output
    assert told in cluster.run("top").output
    for path in ("jobs", "jobs?state=held", "jobs/Job/default/sent"):
        assert told.removeprefix("it ") in page(cluster, path)
    assert "sent" not in page(cluster, "jobs?vc=nobody")
    for others in (["--vc", "default", "--state", "running"], ["--user", "nobody"], ["--node", "n0"], ["other"]):
        assert "sent" not in cluster.run("get", "jobs", *others).stdout
    assert cluster.run("release", "Job/default/sent").output == "Job/default/sent: released: 2 pods created\n"


def test_a_job_of_openpai_that_is_held_is_listed_with_its_virtual_cluster_and_released_by_that_name(
    cluster: Cluster,
) -> None:
    (cluster.folder / "pai.yaml").write_text(OPENPAI)
    submitted = cluster.run("submit", str(cluster.folder / "pai.yaml"), "--unchecked", "--user", "me")
    assert submitted.exit_code == 0, submitted.output
    assert "OpenPAI/default/me~pai: held: " in cluster.run("hold", "me~pai", "--yes").output
    expect_soon(lambda: not cluster.pods("pai-"))
    words = "get", "jobs", "--state", "held", "--vc", "default", "-o", "json", "pai"
    [job] = json.loads(cluster.run(*words).output)["items"]
    assert (job["name"], job["state"], job["priority"], job["user"]) == ("OpenPAI/default/me~pai", "Held", 10, "me")
    assert cluster.run("release", job["name"]).output == "OpenPAI/default/me~pai: released: 2 pods created\n"


@pytest.mark.usefixtures("without_operators")
def test_what_hived_submit_has_made_in_another_namespace_is_released_and_deleted_by_its_name(cluster: Cluster) -> None:
    text = SENT.replace("name: sent", "name: away").replace("cpu: 1", "nvidia.com/gpu: 1")
    (cluster.folder / "away.yaml").write_text(text)
    submitted = cluster.run("submit", str(cluster.folder / "away.yaml"), "-n", "far", "--unchecked")
    assert submitted.exit_code == 0, submitted.output
    expect_soon(lambda: "Running" in cluster.row("away"))
    assert "held: 2 pods deleted" in cluster.run("hold", "away", "--yes").output
    expect_soon(lambda: not cluster.pods("away-") and "Deleted" in cluster.ask("get", "jobs", "--ended").output)
    assert "away" not in cluster.run("get", "jobs", "--ended").output
    assert cluster.run("hold", "away").output == "Job/far/away: is held already\n"
    assert cluster.run("release", "away").output == "Job/far/away: released: 2 pods created\n"
    assert "held: 2 pods deleted" in cluster.run("hold", "away", "-n", "far", "--yes").output
    expect_soon(lambda: not cluster.pods("away-"))
    assert cluster.run("delete", "away", "--dry-run").output == "job far/away, with 0 pods and its record\n"
    assert cluster.run("delete", "away", "-n", "far", "--yes").exit_code == 0


def test_a_job_of_volcano_is_held_and_released_by_commands(cluster: Cluster) -> None:
    """The service leaves it held, though it resumes jobs that no queue has and that hived itself has suspended."""
    (cluster.folder / "ring.yaml").write_text(SENT.replace("name: sent", "name: ring"))
    submitted = cluster.run("submit", str(cluster.folder / "ring.yaml"), "--unchecked")
    assert submitted.exit_code == 0, submitted.output
    expect_soon(lambda: cluster.pods("ring-") == 2)
    assert cluster.run("hold", "ring", "--yes").output.endswith(
        "Job/default/ring: held: its controller deletes its pods\n"
    )
    expect_soon(lambda: "Held" in cluster.row("ring") and not cluster.pods("ring-"))
    assert cluster.run("release", "ring").output == "Job/default/ring: released\n"
    expect_soon(lambda: cluster.pods("ring-") == 2)


@pytest.mark.parametrize("name", ["nightly", "cronjob/nightly", "CronJob/default/nightly"])
def test_a_cron_job_is_suspended_and_goes_on(cluster: Cluster, name: str) -> None:
    path = "/apis/batch/v1/namespaces/default/cronjobs"
    if not cluster.kube.get(path)["items"]:
        spec = {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "m", "image": "x"}]}}}
        body = {"schedule": "0 0 30 2 *", "jobTemplate": {"spec": spec}}
        cluster.kube.create(path, {"metadata": {"name": "nightly"}, "spec": body})
    full = "CronJob/default/nightly"
    assert cluster.run("hold", name).output == f"{full}: held: it starts no more runs\n"
    assert cluster.run("hold", name).output == f"{full}: is held already\n"
    assert cluster.kube.get(f"{path}/nightly")["spec"]["suspend"]
    assert cluster.run("release", name).output == f"{full}: released\n"


def test_who_holds_a_cron_job_is_told_of_its_runs_that_go_on_or_wait(cluster: Cluster) -> None:
    container = {"name": "m", "image": "x", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    spec = {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}
    body = {"schedule": "0 0 30 2 *", "jobTemplate": {"spec": spec}}
    group = "/apis/batch/v1/namespaces/default"
    made = cluster.kube.create(f"{group}/cronjobs", {"metadata": {"name": "hourly"}, "spec": body})
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "hourly", "uid": made["metadata"]["uid"]}
    for name, is_suspended in (("hourly-1", False), ("hourly-2", True)):
        metadata = {"name": name, "ownerReferences": [{**owner, "controller": True}]}
        cluster.kube.create(f"{group}/jobs", {"metadata": metadata, "spec": {**spec, "suspend": is_suspended}})
    expect_soon(lambda: "Running" in cluster.row("hourly-1"))
    expect_soon(lambda: "Held" in cluster.row("hourly-2"))
    told = "it starts no more runs; 1 run goes on; 1 run still waits, to be held by name: hourly-2"
    assert cluster.run("hold", "CronJob/default/hourly").output == f"CronJob/default/hourly: held: {told}\n"


def test_a_cron_job_between_its_runs_is_a_job_that_says_when_it_runs_next(cluster: Cluster) -> None:
    container = {"name": "m", "image": "x", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    spec = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": template}}}
    cluster.kube.create("/apis/batch/v1/namespaces/far/cronjobs", {"metadata": {"name": "yearly"}, "spec": spec})
    listed = cluster.run("get", "jobs", "yearly", "-o", "wide").output
    assert "CronJob/far/yearly" in listed
    assert "Held" in listed
    assert re.search(r"not before 20\d\d-01-01 00:00", listed)
    told = "by its schedule '0 0 1 1 *'; it has not run yet"
    assert told in cluster.run("why", "yearly").output
    assert told.replace("'", "&#39;") in page(cluster, "jobs/CronJob/far/yearly")
    assert cluster.run("hold", "yearly").output == "CronJob/far/yearly: held: it starts no more runs\n"
    assert "it is suspended: hived release yearly -n far lets it run again" in cluster.run("why", "yearly").output
    assert cluster.run("release", "yearly").output == "CronJob/far/yearly: released\n"
    assert cluster.run("delete", "yearly", "-n", "far", "--yes").exit_code == 0
    assert "yearly" not in cluster.run("get", "jobs").output


def test_a_name_of_a_cron_job_between_its_runs_and_of_a_job_means_either(cluster: Cluster) -> None:
    container = {"name": "m", "image": "x", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    spec = {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}
    made = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": spec}}
    cron, job = ("/apis/batch/v1/namespaces/far/cronjobs", "/apis/batch/v1/namespaces/default/jobs")
    cluster.kube.create(cron, {"metadata": {"name": "both"}, "spec": made})
    cluster.kube.create(job, {"metadata": {"name": "both"}, "spec": spec})
    expect_soon(lambda: "Job/default/both" in cluster.run("get", "jobs").output)
    for words in (["hold"], ["release"], ["delete", "--dry-run"]):
        told = cluster.run(*words, "both")
        assert told.exit_code == 1
        assert "both is part of 2 names: CronJob/far/both, Job/default/both; give one of them" in told.output


def test_what_cannot_be_held_says_why(cluster: Cluster) -> None:
    expect_soon(lambda: cluster.row("solo"))
    told = cluster.run("hold", "solo")
    assert (told.exit_code, "Kubernetes suspends no pod that is there" in told.output) == (1, True)
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "u", "controller": True}
    container = {"name": "m", "image": "x", "resources": {"limits": {"cpu": 1}}}
    pod = {"metadata": {"name": "db-0", "ownerReferences": [owner]}, "spec": {"containers": [container]}}
    cluster.kube.create("/api/v1/namespaces/default/pods", pod)
    expect_soon(lambda: cluster.row("db"))
    told = cluster.run("hold", "db")
    assert "kubectl -n default scale statefulset db --replicas=0" in told.output
    assert cluster.run("hold", "nobody").exit_code == 1


@pytest.mark.parametrize("name", ["later", "plain-later"])
def test_a_pod_that_may_not_start_yet_is_one_job(cluster: Cluster, name: str) -> None:
    if not cluster.pods(name):
        (cluster.folder / "later.yaml").write_text(LATER)
        submitted = cluster.run("submit", str(cluster.folder / "later.yaml"), "--begin", "+9h", "--unchecked")
        assert submitted.exit_code == 0, submitted.output

    def held() -> bool:
        lines = cluster.ask("get", "jobs", "-o", "wide", "--no-headers").output.splitlines()
        found = [line for line in lines if f"default/{name} " in line]
        assert len(found) <= 1, found
        return len(found) == 1 and f"default/{name}" == found[0].split()[0] and "begins at" in found[0]

    expect_soon(held)
    told = cluster.ask("why", f"Gang/default/{name}").output
    assert told.startswith(f"default/{name} ")
    assert "begins at" in told


def test_a_job_in_no_queue_has_no_place(cluster: Cluster) -> None:
    expect_soon(lambda: cluster.row("solo"))
    told = cluster.ask("move", "solo", "--front")
    assert (told.exit_code, told.output.startswith("Error: ")) == (1, True)
    assert "is in no queue, and so has no place" in told.output


def test_a_job_is_released_by_the_command_that_its_row_has_though_another_namespace_has_one_of_its_name(
    cluster: Cluster,
) -> None:
    for namespace in ("default", "far"):
        cluster.job("same", namespace)
        expect_soon(lambda namespace=namespace: f"Job/{namespace}/same" in cluster.ask("get", "jobs").output)
    assert cluster.run("hold", "same", "-n", "far", "--yes").exit_code == 0
    expect_soon(lambda: "in no queue: hived release" in cluster.ask("why", "far/same").output)
    told = cluster.ask("why", "far/same").output
    words = told.partition("in no queue: hived ")[2].partition(" starts it")[0].split()
    assert cluster.run(*words).output.startswith("Job/far/same: released")


def test_a_name_of_several_jobs_lists_them(cluster: Cluster) -> None:
    for namespace in ("default", "far"):
        cluster.job("twice", namespace)
    expect_soon(lambda: len(cluster.ask("get", "jobs", "twice").output.splitlines()) == 3)
    told = cluster.run("hold", "twice").output
    assert told == "Error: twice is part of 2 names: Job/default/twice, Job/far/twice; give one of them\n"


def test_room_is_made_for_a_job_by_any_of_its_names(cluster: Cluster) -> None:
    cluster.job("large", "far", 64)
    expect_soon(lambda: "Waiting" in cluster.row("large"))
    for name in ("large", "far/large", "job/large", "Job/far/large"):
        told = cluster.ask("defrag", "plan", "--job", name)
        assert "no job" not in told.output, told.output
    cluster.job("light", "far", 0)
    expect_soon(lambda: "Running" in cluster.row("light"))
    told = cluster.ask("defrag", "plan", "--job", "light")
    assert (told.exit_code, "waits for no cells: it is running" in told.output) == (1, True)
