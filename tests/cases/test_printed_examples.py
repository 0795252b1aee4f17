"""Examples that manuals of other schedulers print: their YAML as printed does what their pages show.

The files of `printed/` are a manual's own, with nothing but indentation restored. Where a page shows a job and not its
file, the file is one that fits.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3
import yaml
from click.testing import CliRunner, Result

from hived_cli import main
from hived_lab.embedded.nodes import RUN_SECONDS
from tests.cases.played import QUEUES, Played, nodes_config, played_on, pod
from tests.expecting import expect_equal, expect_soon
from tests.places import SHARED

pytestmark = pytest.mark.sample(4)

PRINTED = Path(__file__).parent / "printed"
QUEUED = nodes_config(2, 2, more=QUEUES)
NODES = nodes_config(2, 2)
LAB = NODES.replace("namespaces: [default]", "namespaces: [default, dlrover]")
LABEL = "scheduling.x-k8s.io/pod-group"
OLD_LABEL = "pod-group.scheduling.sigs.k8s.io"


def printed(name: str, *changes: tuple[str, str]) -> str:
    """The text of an example, with changes."""
    text = (PRINTED / f"{name}.yaml").read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


def hived(played: Played, *words: str) -> Result:
    """A command of hived to this cluster."""
    return CliRunner().invoke(main, [*words, "--api-server", played.running.cluster.api_url])


def submit(played: Played, folder: Path, text: str, *options: str) -> Result:
    """`hived submit` of a text."""
    file = folder / "job.yaml"
    file.write_text(text)
    return hived(played, "submit", str(file), "--server", played.running.extender.url, *options)


def events(played: Played, name: str, namespace: str = "default") -> dict[str, str]:
    """The last message of each reason of events about an object."""
    found = played.kube.get(f"/api/v1/namespaces/{namespace}/events")["items"]
    return {one["reason"]: one["message"] for one in found if one["involvedObject"]["name"] == name}


def items(played: Played, path: str) -> dict[str, dict[str, Any]]:
    """The objects of a collection by name."""
    return {one["metadata"]["name"]: one for one in played.kube.get(path)["items"]}


def shown(played: Played, path: str) -> dict[str, str]:
    """The second column of `kubectl get` by name."""
    form = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    answer = urllib3.request("GET", f"{played.running.cluster.api_url}{path}", headers=form)
    return {row["cells"][0]: row["cells"][1] for row in answer.json()["rows"]}


def conditions(played: Played, path: str, name: str) -> dict[str, dict[str, Any]]:
    """The conditions of an object by type."""
    return {one["type"]: one for one in items(played, path)[name].get("status", {}).get("conditions", ())}


def cordon(played: Played, node: str, is_closed: bool) -> None:
    """Close a node for new pods, or open it, and wait until hived knows."""
    played.patch_node(node, {"spec": {"unschedulable": is_closed}})


PAGES = SHARED / "documents"
FITTING = {"pytorch-test.yaml"}
"""Jobs that a page shows, and not their files."""


@pytest.mark.skipif(not PAGES.is_dir(), reason=f"{PAGES} has the manuals' texts, and is not there")
def test_files_are_as_printed() -> None:
    pages = [" ".join(page.read_text(encoding="utf-8").split()) for page in PAGES.iterdir()]
    files = [*PRINTED.iterdir(), *(PRINTED.parent / "openpai_lab").rglob("*.yaml")]
    texts = {file.name: " ".join(file.read_text(encoding="utf-8").split()) for file in files}
    assert {name for name, text in texts.items() if not any(text in page for page in pages)} == FITTING


PODS = "/api/v1/namespaces/default/pods"
PYTORCH_JOBS = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
TF_JOBS = "/apis/kubeflow.org/v1/namespaces/default/tfjobs"
VOLCANO_JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"
VOLCANO_POD_GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
ELASTIC_JOBS = "/apis/elastic.iml.github.io/v1alpha1/namespaces/dlrover/elasticjobs"

# ---- a tree of quotas (Kube Queue)

TREES = "/apis/scheduling.sigs.k8s.io/v1beta1/namespaces/kube-system/elasticquotatrees"


@pytest.fixture(params=[False, True], ids=["without webhook", "with webhook"])
def queued(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Played]:
    """A cluster with queues."""
    with played_on(tmp_path, QUEUED, has_webhook=request.param) as running:
        yield running


def test_a_tree_whose_root_has_another_min_than_max_is_in_force(queued: Played) -> None:
    queued.create(printed("quota-tree"))
    assert set(items(queued, TREES)) == {"elasticquotatree"}
    said = expect_soon(lambda: events(queued, "elasticquotatree", "kube-system"))
    assert "min cpu is 9999 and max 999900: the max counts for both" in said["MisspeltQuotaTree"]
    queues = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/kube-queue/queues"
    expected = ["root", "root-child-2"]
    expect_equal(lambda: sorted(name.rpartition("-")[0] for name in items(queued, queues)), expected, "Queue objects")


def test_one_job_at_a_time_leaves_the_queue(queued: Played) -> None:
    queued.create(printed("quota-tree"))
    expect_soon(lambda: events(queued, "elasticquotatree", "kube-system"))
    first, second = (printed("pytorch-test", ("pytorch-test", name)) for name in ("first", "second"))
    queued.create(first)
    queued.expect_running("first-master-0", "first-worker-0", "first-worker-1")
    queued.create(second)
    quota = expect_soon(lambda: events(queued, "second").get("InsufficientQuota", ""))
    assert quota.startswith("Insufficient quota(kube-queue/max-jobs) in quota root/child-2: request 1, max 1, used 1")


def test_a_job_says_how_far_it_is(tmp_path: Path) -> None:
    with played_on(tmp_path, QUEUED, has_webhook=True) as played:

        def expect_states(first: str, **second: str) -> None:
            expect_equal(lambda: shown(played, PYTORCH_JOBS), {"first": first, **second}, "the states of the jobs")

        played.create(printed("pytorch-test", ("pytorch-test", "first")))
        expect_states("Running")
        played.create(printed("pytorch-test", ("pytorch-test", "second")))
        expect_states("Running", second="Suspended")
        for name in ("first-master-0", "first-worker-0", "first-worker-1"):
            played.kube.patch(f"{PODS}/{name}", {"metadata": {"annotations": {RUN_SECONDS: "0"}}})
        expect_states("Succeeded", second="Running")


def test_a_job_without_room_is_created(tmp_path: Path) -> None:
    with played_on(tmp_path, nodes_config(2)) as played:
        played.create(printed("pytorch-test"))
        expect_soon(lambda: shown(played, PYTORCH_JOBS) == {"pytorch-test": "Created"})
        assert played.running_pods() == {}


# ---- PodGroups (ACK)


@pytest.mark.parametrize("label", [OLD_LABEL, f"{OLD_LABEL}/name", LABEL])
@pytest.mark.parametrize("group", ["scheduling.sigs.k8s.io", "scheduling.x-k8s.io"])
def test_pods_start_when_the_minimum_of_their_podgroup_is_there(tmp_path: Path, group: str, label: str) -> None:
    with played_on(tmp_path, NODES) as played:
        played.create(printed("podgroup-nginx", ("scheduling.sigs.k8s.io", group)))
        played.create(*(pod(f"nginx-{index}", labels={label: "nginx"}) for index in range(2)))
        expect_soon(lambda: "2 of 3 pods created" in events(played, "nginx-1").get("Waiting", ""))
        assert played.running_pods() == {}
        played.create(pod("nginx-2", labels={label: "nginx"}))
        played.expect_running("nginx-0", "nginx-1", "nginx-2")
        path = f"/apis/{group}/v1alpha1/namespaces/default/podgroups"
        expect_soon(lambda: items(played, path)["nginx"].get("status", {}).get("phase") == "Running")


KOORDINATOR = "gang.scheduling.koordinator.sh"
GROUPS = '["default/gang-example1", "default/gang-example2"]'


def test_annotations_of_koordinator_are_a_gang(tmp_path: Path) -> None:
    said = {f"{KOORDINATOR}/name": "gang-example", f"{KOORDINATOR}/min-available": "2"}
    with played_on(tmp_path, NODES) as played:
        played.create(pod("a", annotations=said))
        expect_soon(lambda: "1 of 2 pods created" in events(played, "a").get("Waiting", ""))
        assert played.running_pods() == {}
        played.create(pod("b", annotations=said))
        played.expect_running("a", "b")


@pytest.mark.parametrize("key", [f"{OLD_LABEL}/groups", f"{KOORDINATOR}/groups"])
def test_gangs_of_one_group_start_together(tmp_path: Path, key: str) -> None:
    def member(gang: str) -> dict[str, Any]:
        said = {f"{KOORDINATOR}/name": gang, f"{KOORDINATOR}/min-available": "1", key: GROUPS}
        return pod(gang, annotations=said)

    with played_on(tmp_path, NODES) as played:
        played.create(member("gang-example1"))
        expect_soon(lambda: "no pods created" in events(played, "gang-example1").get("Waiting", ""))
        assert played.running_pods() == {}
        played.create(member("gang-example2"))
        played.expect_running("gang-example1", "gang-example2")


@pytest.mark.parametrize(
    ("policy", "starts"),
    [
        ("only-waiting", False),
        ("waiting-and-running", True),
        ("waiting-running-succeed", True),
        ("once-satisfied", True),
    ],
)
def test_a_match_policy_says_whether_a_pod_that_is_replaced_starts(tmp_path: Path, policy: str, starts: bool) -> None:
    words = {f"{OLD_LABEL}/name": "g", f"{OLD_LABEL}/min-available": "2", f"{OLD_LABEL}/match-policy": policy}
    with played_on(tmp_path, NODES) as played:
        played.create(*(pod(name, labels=words) for name in ("a", "b")))
        played.expect_running("a", "b")
        played.delete("b")
        expect_soon(lambda: "b" not in played.pods())
        played.create(pod("b", labels=words))
        if starts:
            played.expect_running("b")
        else:
            expect_soon(lambda: "by match policy only-waiting" in events(played, "b").get("Waiting", ""))
        assert ("b" in played.running_pods()) is starts, f"{policy} says whether a pod that is replaced starts"


# ---- a gang by labels (ACK)


def test_a_gang_by_labels_starts_as_a_whole_once_there_is_room(tmp_path: Path) -> None:
    with played_on(tmp_path, nodes_config(2, 4)) as played:
        for node in ("n3", "n4"):
            cordon(played, node, True)
        played.create(printed("tf-smoke-gpu"))
        rejected = (
            "rejected by podgroup/default/tf-smoke-gpu: needs 4 nodes of 2 GPUs each at once; default has 2 of 4 on bad"
        )
        expect_soon(lambda: rejected in events(played, "tf-smoke-gpu-ps-0").get("FailedScheduling", ""))
        expect_soon(
            lambda: events(played, "tf-smoke-gpu-ps-0").get("Waiting", "").startswith("needs 4 nodes of 2 GPUs each")
        )
        assert played.running_pods() == {}
        for node in ("n3", "n4"):
            cordon(played, node, False)
        expect_soon(lambda: len(played.running_pods()) == 5)
        expect_soon(lambda: shown(played, TF_JOBS) == {"tf-smoke-gpu": "Running"})


def test_a_gang_by_labels_has_a_podgroup_until_its_last_pod_goes(tmp_path: Path) -> None:
    path = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/default/podgroups"

    def groups() -> dict[str, tuple[int, str]]:
        return {
            name: (one["spec"]["minMember"], one.get("status", {}).get("phase", ""))
            for name, one in items(played, path).items()
        }

    with played_on(tmp_path, NODES) as played:
        played.create(printed("tf-smoke-gpu", ("replicas: 4", "replicas: 1"), ('"5"', '"2"')))
        expect_soon(lambda: groups() == {"tf-smoke-gpu": (2, "Running")})
        played.kube.delete(f"{TF_JOBS}/tf-smoke-gpu")
        expect_soon(lambda: groups() == {})
        played.create(printed("podgroup-nginx"))
        words = {f"{OLD_LABEL}/name": "nginx", f"{OLD_LABEL}/min-available": "3"}
        played.create(*(pod(f"nginx-{index}", labels=words) for index in range(3)))
        played.create(pod("other", labels={f"{OLD_LABEL}/name": "No_Object", f"{OLD_LABEL}/min-available": "1"}))
        played.expect_running("nginx-0", "nginx-1", "nginx-2", "other")
        for index in range(3):
            played.delete(f"nginx-{index}")
        expect_soon(lambda: played.pods().keys() == {"other"})
        assert list(groups()) == ["nginx"], "its own author deletes it"


@pytest.mark.parametrize("minimum", [None, 1])
def test_without_its_labels_a_job_is_a_gang_unless_its_minimum_is_one(tmp_path: Path, minimum: int | None) -> None:
    (job,) = yaml.safe_load_all(printed("tf-smoke-gpu"))
    for role in job["spec"]["tfReplicaSpecs"].values():
        del role["template"]["metadata"]
    if minimum is not None:
        job["spec"]["runPolicy"] = {"schedulingPolicy": {"minAvailable": minimum}}
    with played_on(tmp_path, NODES) as played:
        played.create(job)
        if minimum is None:
            rejected = (
                'Gang "default/tf-smoke-gpu" gets rejected due to member Pod "tf-smoke-gpu-ps-0" is unschedulable'
            )
            expect_soon(lambda: rejected in events(played, "tf-smoke-gpu-ps-0").get("FailedScheduling", ""))
            assert played.running_pods() == {}
        else:
            three = {f"tf-smoke-gpu-{name}" for name in ("ps-0", "worker-0", "worker-1")}
            expect_equal(lambda: set(played.running_pods()), three, "the pods that have room, one by one")


# ---- Jobs of Volcano


@pytest.mark.parametrize("name", ["tensorflow-benchmark", "lm-mpi-job"])
def test_a_job_of_volcano_runs_until_a_policy_completes_it(tmp_path: Path, name: str) -> None:
    ender = {"tensorflow-benchmark": "tensorflow-benchmark-worker-", "lm-mpi-job": "lm-mpi-job-mpimaster-"}[name]
    with played_on(tmp_path, NODES) as played:
        played.create(printed(name))
        expect_soon(lambda: shown(played, VOLCANO_JOBS) == {name: "Running"})
        for pod_name in played.running_pods():
            if pod_name.startswith(ender):
                played.kube.patch(f"{PODS}/{pod_name}", {"metadata": {"annotations": {RUN_SECONDS: "0"}}})
        expect_equal(lambda: shown(played, VOLCANO_JOBS), {name: "Completed"}, "the job after its policy")
        expect_equal(played.running_pods, {}, "pods of a completed job")


def test_a_job_of_volcano_has_the_podgroup_that_the_page_shows(tmp_path: Path) -> None:
    with played_on(tmp_path, NODES) as played:
        played.create(printed("lm-mpi-job"))
        (name, group), *others = expect_soon(lambda: list(items(played, VOLCANO_POD_GROUPS).items()))
        (page,) = yaml.safe_load_all(printed("lm-mpi-podgroup"))
        job = items(played, VOLCANO_JOBS)["lm-mpi-job"]
        assert (others, name) == ([], f"lm-mpi-job-{job['metadata']['uid']}")
        assert group["spec"] == page["spec"]
        assert group["metadata"]["labels"] == page["metadata"]["labels"]
        expect_soon(lambda: conditions(played, VOLCANO_POD_GROUPS, name).get("Scheduled"))
        said = conditions(played, VOLCANO_POD_GROUPS, name)["Scheduled"]
        assert said["reason"] == "tasks in gang are ready to be scheduled"
        played.kube.delete(f"{VOLCANO_JOBS}/lm-mpi-job")
        expect_soon(lambda: items(played, VOLCANO_POD_GROUPS) == {})


def test_an_evicted_pod_restarts_the_job(tmp_path: Path) -> None:
    with played_on(tmp_path, NODES) as played:
        played.create(printed("lm-mpi-job"))
        expect_soon(lambda: len(played.running_pods()) == 4)
        before = {one["metadata"]["uid"] for one in played.pods().values()}
        played.delete("lm-mpi-job-mpiworker-1")
        expect_soon(lambda: len(played.running_pods()) == 4 and not before & played.uids())
        assert items(played, VOLCANO_JOBS)["lm-mpi-job"]["status"]["retryCount"] == 1


def test_of_two_jobs_of_volcano_one_starts_whole_and_the_other_is_pending(tmp_path: Path) -> None:
    with played_on(tmp_path, nodes_config(1, 2, cpu=2)) as played:
        played.create(*(printed("lm-mpi-job", ("lm-mpi-job", name)) for name in ("a", "b")))
        expect_soon(lambda: sorted(shown(played, VOLCANO_JOBS).values()) == ["Pending", "Running"])
        (waits,) = (name for name, state in shown(played, VOLCANO_JOBS).items() if state == "Pending")
        (group,) = (name for name in items(played, VOLCANO_POD_GROUPS) if name.startswith(f"{waits}-"))
        expect_soon(lambda: "Unschedulable" in conditions(played, VOLCANO_POD_GROUPS, group))
        said = conditions(played, VOLCANO_POD_GROUPS, group)["Unschedulable"]
        lacks = "4/4 tasks in gang unschedulable: pod group is not ready, 4 Pending, 4 minAvailable"
        expect_soon(lambda: conditions(played, VOLCANO_POD_GROUPS, group)["Unschedulable"]["message"].startswith(lacks))
        assert said["reason"] in ("NotEnoughResources", "NotEnoughTasks")
        assert not [name for name in played.running_pods() if name.startswith(f"{waits}-")]


def test_a_job_of_volcano_waits_in_a_queue(tmp_path: Path) -> None:
    gpus = ('cpu: "1000m"\n', 'cpu: "1000m"\n                  nvidia.com/gpu: "1"\n')
    with played_on(tmp_path, nodes_config(3, more=QUEUES), has_webhook=True) as played:
        played.create(*(printed("lm-mpi-job", ("lm-mpi-job", name), gpus) for name in ("a", "b")))
        expect_soon(lambda: sorted(shown(played, VOLCANO_JOBS).values()) == ["Pending", "Running"])
        (first,) = (name for name, state in shown(played, VOLCANO_JOBS).items() if state == "Running")
        assert {name.partition("-")[0] for name in played.pods()} == {first}
        played.kube.delete(f"{VOLCANO_JOBS}/{first}")
        expect_soon(lambda: list(shown(played, VOLCANO_JOBS).values()) == ["Running"])


# ---- an ElasticJob (DLRover)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Played]:
    """A cluster with the namespace of the page."""
    with played_on(tmp_path, LAB) as running:
        running.kube.create("/api/v1/namespaces", {"metadata": {"name": "dlrover"}})
        yield running


def test_a_minimum_without_quotes_is_a_minimum(lab: Played, tmp_path: Path) -> None:
    result = submit(lab, tmp_path, printed("torch-mnist-gang"))
    assert result.exit_code == 0, result.output
    assert "min-available']: found 4, taken as a text; Kubernetes refuses it without quotes: write '4'" in result.output
    expect_soon(lambda: len(lab.running_pods("dlrover")) == 5)


def test_a_minimum_without_quotes_is_one_in_a_queue_too(tmp_path: Path) -> None:
    with played_on(tmp_path, LAB.replace("rules: 2", f"rules: 2\n{QUEUES}"), has_webhook=True) as played:
        played.kube.create("/api/v1/namespaces", {"metadata": {"name": "dlrover"}})
        played.create(printed("torch-mnist-gang"))
        expect_soon(lambda: shown(played, ELASTIC_JOBS) == {"torch-mnist-gang": "Running"})
        assert "Dequeued" in events(played, "torch-mnist-gang", "dlrover")


@pytest.mark.parametrize("way", ["apply", "submit"])
def test_all_workers_wait_where_there_is_room_for_two(lab: Played, tmp_path: Path, way: str) -> None:
    cordon(lab, "n2", True)
    if way == "apply":
        lab.create(printed("torch-mnist-gang"))
    else:
        assert submit(lab, tmp_path, printed("torch-mnist-gang")).exit_code == 0
    worker = "torch-mnist-gang-edljob-worker-2"
    rejected = (
        f'Gang "dlrover/torch-mnist-gang" gets rejected due to member Pod "{worker}" is unschedulable with reason "'
    )
    expect_soon(lambda: rejected in events(lab, worker, "dlrover").get("FailedScheduling", ""))
    ours = "needs 4 pods of 1 GPU at once; default has 2 of 4 GPUs on bad nodes: node n2 is cordoned (since "
    expect_soon(lambda: events(lab, worker, "dlrover").get("Waiting", "").startswith(ours))
    expect_soon(lambda: set(lab.running_pods("dlrover")) == {"elasticjob-torch-mnist-gang-dlrover-master-0"})
    cordon(lab, "n2", False)
    expect_soon(lambda: len(lab.running_pods("dlrover")) == 5)


def test_with_a_minimum_of_two_two_run_and_two_wait(lab: Played) -> None:
    cordon(lab, "n2", True)
    lab.create(printed("torch-mnist-gang", ("min-available: 4", "min-available: 2")))
    expect_soon(lambda: len(lab.running_pods("dlrover")) == 3)
    waiting = sorted(lab.pods("dlrover").keys() - lab.running_pods("dlrover").keys())
    assert len(waiting) == 2
    assert all("edljob-worker" in name for name in waiting)


@pytest.mark.parametrize("way", ["edit", "resume"])
def test_a_suspended_elastic_job_has_its_master_alone_until_it_is_resumed(lab: Played, way: str) -> None:
    lab.create(printed("torch-mnist"))
    expect_soon(lambda: shown(lab, ELASTIC_JOBS) == {"torch-mnist": "Suspended"})
    expect_soon(lambda: set(lab.running_pods("dlrover")) == {"elasticjob-torch-mnist-dlrover-master-0"})
    counts = ("Held", "1 of 5 runs, 4 to come")
    expect_soon(lambda: [(job.state, job.counts.words) for job in lab.inspector.jobs()] == [counts], every_s=0.5)
    if way == "edit":
        lab.kube.patch(f"{ELASTIC_JOBS}/torch-mnist", {"spec": {"suspend": False}})
    else:
        assert hived(lab, "resume", "torch-mnist", "-n", "dlrover").output == "job torch-mnist resumed\n"
    expect_soon(lambda: shown(lab, ELASTIC_JOBS) == {"torch-mnist": "Running"})
    lab.kube.patch(f"{ELASTIC_JOBS}/torch-mnist", {"spec": {"suspend": True}})
    expect_soon(lambda: set(lab.pods("dlrover")) == {"elasticjob-torch-mnist-dlrover-master-0"})
    assert shown(lab, ELASTIC_JOBS) == {"torch-mnist": "Suspended"}


def test_a_submitted_elastic_job_is_resumed_as_the_answer_to_its_edited_file_says(lab: Played, tmp_path: Path) -> None:
    assert submit(lab, tmp_path, printed("torch-mnist")).exit_code == 0
    edited = submit(lab, tmp_path, printed("torch-mnist", ("suspend: true", "suspend: false")))
    assert (edited.exit_code, "hived release torch-mnist -n dlrover" in edited.output) == (1, True), edited.output
    assert hived(lab, "resume", "torch-mnist", "-n", "dlrover").exit_code == 0
    expect_soon(lambda: len(lab.pods("dlrover")) == 5)
