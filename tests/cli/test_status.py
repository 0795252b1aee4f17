"""`hived status`: one command says whether anything is to be done, and what."""

import json
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import urllib3
from click.testing import CliRunner

from hived_cli import main
from hived_config.loader import load
from hived_extender.api.status import FailedPod, Recovered, Status
from hived_extender.api.waiting import MASKED
from hived_extender.http.access import Security
from hived_extender.http.tls import ServerTls
from hived_extender.kube.client import KubeClient
from hived_extender.kube.lease import LeaseName
from hived_lab.embedded.cluster import EmbeddedCluster
from tests.expecting import expect_soon
from tests.extender.http.secured import Files
from tests.extender.http.test_masking import mask
from tests.extender.machine.small_cluster import SmallCluster, spec_text
from tests.extender.queues.embedded_jobs import CONFIG, jobs_on
from tests.extender.queues.test_restart import service
from tests.extender.replica import start

NODES = "/api/v1/nodes"


def say(url: str, *words: str) -> tuple[int, str]:
    """Exit code and output of the command."""
    result = CliRunner().invoke(main, ["status", "--server", url, *words])
    return result.exit_code, result.output


def look(url: str, *words: str) -> dict[str, Any]:
    """Its JSON."""
    found: dict[str, Any] = json.loads(say(url, "-o", "json", *words)[1])
    return found


def short_cells(url: str) -> dict[str, float]:
    """What the metric says by virtual cluster, on which an alert rests."""
    text = urllib3.request("GET", f"{url}/metrics").data.decode()
    return {vc: float(n) for vc, n in re.findall(r'^hived_short_leaf_cells\{vc="(\w+)"\} (\S+)', text, re.MULTILINE)}


def test_nothing_is_to_be_done_where_all_is_well(tmp_path: Path) -> None:
    with jobs_on(tmp_path) as jobs:
        url = jobs.running.extender.url
        jobs.create("runs", "b")
        jobs.expect(lambda: jobs.runs("runs"), lambda: look(url)["queues"]["running"] == 1)
        code, text = say(url)
        assert (code, text.splitlines()[0]) == (0, "healthy")
        assert "all can be kept" in text
        jobs.create("waits", "b")
        expect_soon(lambda: look(url)["jobs"]["now"] == {"Running": 1, "Waiting": 1})
        assert "with 1 job waiting and 1 running" in say(url)[1]
        found = look(url)
        assert (found["nodes"], found["kubernetes"][:3], found["rules"], found["warnings"]) == (2, "v1.", 2, [])


def test_a_promise_that_is_short_names_its_nodes_and_a_remedy(tmp_path: Path) -> None:
    with jobs_on(tmp_path) as jobs:
        url = jobs.running.extender.url
        jobs.create("runs", "b")
        jobs.expect(lambda: jobs.runs("runs"))
        (other,) = {"n1", "n2"} - set(jobs.nodes("runs"))
        jobs.kube.patch(f"{NODES}/{other}", {"spec": {"unschedulable": True}})
        expect_soon(lambda: say(url)[0] == 3)
        found = look(url)
        nodes = [(one["vc"], one["cells"], one["nodes"][0]["node"]) for one in found["short"]]
        assert (found["state"], nodes) == ("degraded", [("a", 8, other)])
        text = say(url)[1]
        assert f"a lacks 8 GPUs that it is promised, on {other}" in text
        remedy = f"kubectl uncordon {other} once it is to be used again"
        assert f"-> {remedy} (hived get nodes --bad), or lower the promise" in text
        jobs.kube.patch(f"{NODES}/{other}", {"spec": {"unschedulable": None}})
        expect_soon(lambda: say(url)[0] == 0)
        (used,) = jobs.nodes("runs")
        jobs.kube.patch(f"{NODES}/{used}", {"spec": {"unschedulable": True}})
        expect_soon(lambda: look(url)["bad_nodes"] == 1)
        assert look(url)["short"] == [], "its own job uses these GPUs"
        (warning,) = look(url)["warnings"]
        assert warning["text"] == "1 of 2 nodes is bad; all promises hold, 8 GPUs of b until the jobs there end"
        assert short_cells(url) == {"a": 0, "b": 0}
        jobs.delete("runs")
        expect_soon(lambda: look(url)["short"] == [])
        jobs.kube.patch(f"{NODES}/{other}", {"spec": {"unschedulable": True}})
        expect_soon(lambda: sum(one["cells"] for one in look(url)["short"]) == 16)
        expect_soon(lambda: short_cells(url) == {"a": 8, "b": 8})


def test_a_restart_says_what_it_recovered(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(CONFIG)
    with (
        EmbeddedCluster(load(file).cluster) as cluster,
        closing(KubeClient.connect(kubeconfig=str(cluster.hived_kubeconfig))) as kube,
    ):
        with service(file, cluster, kube) as jobs:
            for name in ("runs", "too"):
                jobs.create(name, "b", gpus=4)
            jobs.expect(lambda: jobs.runs("runs", "too"))
        with service(file, cluster, kube) as jobs:
            url = jobs.running.extender.url
            jobs.expect(lambda: look(url)["recovered"]["queued"] == 2)
            found = look(url)["recovered"]
            assert (found["bound"], found["failed"]) == (2, [])


def test_a_history_that_cannot_be_kept_and_a_certificate_that_ends_soon_are_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way of a folder")
    file = tmp_path / "cluster.yaml"
    file.write_text(CONFIG + f"historyFile: {tmp_path / 'file' / 'history.db'}\n")
    certificates = Files(tmp_path)
    tls = ServerTls(certificates.certificate, certificates.key)
    with (
        EmbeddedCluster(load(file).cluster) as cluster,
        start(file, cluster, security=Security(tls=tls), serves_every_name=True) as extender,
    ):
        assert extender.wait_ready()
        code, text = say(extender.url, "--certificate-authority", str(certificates.ca))
        assert code == 3
        assert "the serving certificate expires at" in text
        assert "the history is kept in memory only" in text


def test_a_replica_that_follows_says_so(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(CONFIG)
    with (
        EmbeddedCluster(load(file).cluster) as cluster,
        start(file, cluster, lease=LeaseName("default", "hived", "r0"), serves_every_name=True) as first,
    ):
        assert first.wait_ready()
        with start(file, cluster, lease=LeaseName("default", "hived", "r1"), serves_every_name=True) as second:
            expect_soon(lambda: "r0 leads" in say(second.url)[1])
            code, text = say(second.url)
            assert (code, text.splitlines()[0]) == (3, "not leading")
            assert look(first.url)["replica"] == "r0"


def test_pods_that_run_without_cells_are_named_with_the_reason() -> None:
    cluster = SmallCluster()
    cluster.place("first", spec_text("b"))
    cluster.service.follow("another leads")
    cluster.lead()
    began, failed = cluster.service.term_began()
    assert (began.bound, failed) == (1, [])
    cluster.create("stranger", spec_text("a"), node="n2")
    ((pod, reason),) = cluster.service.term_began()[1]
    assert (pod, "Invalid pod bind info" in reason) == ("ns/stranger", True)


def test_their_names_are_masked_for_other_tenants() -> None:
    failed = [FailedPod("cv/mine", "no such cell"), FailedPod("nlp/theirs", "no such cell of nlp/theirs")]
    status = Status(state="degraded", recovered=Recovered(at="", bound=1, waiting=0, failed=failed, failed_count=2))
    found = mask("cv").status(status).recovered
    assert found is not None
    assert [(one.pod, one.reason) for one in found.failed] == [("cv/mine", "no such cell"), (MASKED, "")]


def test_a_service_that_does_not_answer_is_an_error() -> None:
    code, text = say("http://127.0.0.1:1")
    assert (code, "no answer" in text) == (1, True)
