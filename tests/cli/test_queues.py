"""`hived get queue`, `hived hold`, `release`, `move` and `why` against an embedded cluster with queues."""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import urllib3
from click.testing import CliRunner, Result

from hived_cli import main
from hived_cli.helpers.listing import order_of
from hived_cli.serve import introduce
from hived_extender.jobs.annotations import SCHEDULING_SPEC
from hived_extender.jobs.job import JobName
from hived_extender.jobs.kinds.gates import GATE
from hived_extender.jobs.kinds.marks import BEGIN, USER
from hived_extender.jobs.progress import seconds_of
from hived_extender.kube.answers import KubeError
from hived_extender.queues.table import STATE
from tests.expecting import expect_soon
from tests.extender.queues.embedded_jobs import GPU, JOBS, PODS, PYTORCH_JOBS, Jobs, jobs_on, template
from tests.extender.queues.test_gangs import KOORDINATOR


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    """One job that runs in queue b, two that wait, and one with a mistake."""
    with jobs_on(tmp_path_factory.mktemp("queues")) as found:
        found.kube.create("/api/v1/namespaces", {"metadata": {"name": "elsewhere"}})
        found.create("first", "b")
        found.expect(lambda: found.runs("first"))
        found.create("second", "b", annotations={USER: "ann"})
        found.create("third", "b")
        found.create("wrong", "nowhere")
        found.expect(lambda: found.queued("b") == ["second", "third"], lambda: found.state("wrong") == "Refused")
        found.expect(lambda: found.state("first") == "Running", found.rest)
        yield found


def hived(jobs: Jobs, *arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments, "--server", jobs.running.extender.url])


def delete(jobs: Jobs, *arguments: str) -> Result:
    """`hived delete`, by the API server of the cluster."""
    return hived(jobs, "delete", *arguments, "--kubeconfig", str(jobs.running.cluster.hived_kubeconfig))


def rows(result: Result) -> list[list[str]]:
    assert result.exit_code == 0, result.output
    return [line.split() for line in result.output.splitlines()[1:]]


def html_of(jobs: Jobs, path: str) -> str:
    url = f"{jobs.running.extender.url}/page/{path}"
    return urllib3.request("GET", url, headers={"Accept": "text/html"}).data.decode()


def places(jobs: Jobs) -> list[str]:
    """The names of the jobs that wait in queue b."""
    return [row[1] for row in rows(hived(jobs, "get", "queue", "b")) if row[0] != "-"]


def test_queues_are_listed_with_their_jobs(jobs: Jobs) -> None:
    (row,) = [row for row in rows(hived(jobs, "get", "queue")) if row[0] == "b"]
    assert row == ["b", "b", "hived", "2", "1", "0", "8", "gpu", "8", "gpu", "-", "-"]


def test_a_queue_without_jobs_is_listed_and_has_none(jobs: Jobs) -> None:
    (row,) = [row for row in rows(hived(jobs, "get", "queue")) if row[0] == "a"]
    assert row == ["a", "a", "hived", "0", "0", "0", "-", "8", "gpu", "-", "-"]
    assert hived(jobs, "get", "queue", "a").output == "No job is in a queue.\n"


def test_the_pods_of_each_job_are_counted_in_its_queue_and_on_the_pages(tmp_path: Path) -> None:
    with jobs_on(tmp_path) as jobs:
        jobs.create("many", "b", gpus=2, pods=3)
        jobs.expect(lambda: len(jobs.nodes("many")) == 3)
        listed, queued = (jobs.inspector.fetch(path) for path in ("/v1/inspect/jobs", "/v1/inspect/queues/jobs/b"))
        since = [seconds_of(json.loads(listed)["items"][0]["since"]), json.loads(queued)["items"][0]["since"]]
        assert since[0] == since[1], "since its first pod runs"
        jobs.create("later", "b", gpus=4, pods=2)
        jobs.expect(lambda: jobs.queued("b") == ["later"])
        jobs.expect(lambda: "3 of 3 run" in hived(jobs, "get", "queue", "b").output, jobs.rest)
        header, later, many = hived(jobs, "get", "queue", "b", "-o", "wide").output.splitlines()
        place = header.index("PODS")
        assert [row[place:].split("  ")[0] for row in (later, many)] == ["2 to come", "3 of 3 run"]
        for path, told in (("queues/b", ["3 of 3 run", "2 to come"]), ("jobs", ["3 of 3 run"])):
            text = html_of(jobs, path)
            assert ">Pods</th>" in text
            assert [words in text for words in told] == [True] * len(told)


def test_a_job_that_has_started_and_whose_pods_all_wait_again_says_so_everywhere(tmp_path: Path) -> None:
    with jobs_on(tmp_path) as jobs:
        jobs.create("one", "b")
        jobs.create("gang", gpus=4, pods=2)
        jobs.expect(lambda: jobs.runs("one", "gang"), lambda: len(jobs.nodes("gang")) == 2)
        for node in ("n1", "n2"):
            jobs.kube.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})

        def drop(count: int, name: str) -> None:
            pods = [pod["metadata"]["name"] for pod in jobs.kube.get(PODS)["items"]]
            for pod in [each for each in pods if each.startswith(f"{name}-")][:count]:
                jobs.kube.create(f"{PODS}/{pod}/eviction", {"apiVersion": "policy/v1", "kind": "Eviction"})

        def tells(name: str, state: str, *words: str) -> bool:
            lines = hived(jobs, "get", "queue", "--jobs").output.splitlines()
            (listed,) = [line for line in lines if f"/{name} " in line]
            queue, page = ("b" if name == "one" else "a"), f"jobs/Job/default/{name}"
            texts = [listed, hived(jobs, "why", name).output, html_of(jobs, f"queues/{queue}"), html_of(jobs, page)]
            told = [" ".join(text.split()).lower() for text in texts]
            return state in listed and all(each in text for each in words for text in told)

        drop(1, "gang")
        jobs.expect(lambda: tells("gang", "Running", "runs on cells of its own", "; of its pods 1 of 2 runs, 1 waits"))
        drop(1, "one")
        jobs.expect(
            lambda: tells("one", "Starting", "has started on cells of its own virtual cluster; its pod waits again")
        )
        jobs.expect(lambda: "evicted at" in jobs.reason("one") and "cordoned" in jobs.reason("one"))
        why = hived(jobs, "why", "one").output
        assert why.count("needs 1 node") == 1, "the sentence about its cells stands there once"
        drop(2, "gang")
        jobs.expect(lambda: tells("gang", "Starting", "has started on cells of its own", "; of its pods 2 of 2 wait"))
        assert [row[3:5] for row in rows(hived(jobs, "get", "queue")) if row[0] in ("a", "b")] == [["0", "1"]] * 2
        for node in ("n1", "n2"):
            jobs.kube.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": None}})
        jobs.expect(lambda: tells("one", "Running", "runs on cells of its own virtual cluster"))
        jobs.expect(lambda: tells("gang", "Running", "runs on cells of its own virtual cluster"))


def test_the_jobs_of_all_queues_are_chosen_by_user_and_labels(jobs: Jobs) -> None:
    every = {row[1] for row in rows(hived(jobs, "get", "queue", "--jobs"))}
    assert {row[1] for row in rows(hived(jobs, "get", "queue", "--user", "ann"))} == {"Job/default/second"}
    for nobody in ("eve", "default"):  # a namespace is no user
        assert hived(jobs, "get", "queue", "--user", nobody).output == "No such job is in a queue.\n"
    assert hived(jobs, "get", "queue", "b", "-l", "nobody-has-this").output == "No such job is in a queue.\n"
    assert {row[1] for row in rows(hived(jobs, "get", "queue", "-l", "!nobody-has-this"))} == every


def test_the_jobs_of_the_caller_are_those_of_the_login(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "ann")
    assert [row[1] for row in rows(hived(jobs, "get", "queue", "b", "--me"))][:1] == ["Job/default/second"]
    assert "Job/default/second" in hived(jobs, "get", "jobs", "--me").output
    monkeypatch.setenv("LOGNAME", "default")  # the namespace is no user
    assert hived(jobs, "get", "queue", "b", "--me").output == "No such job is in a queue.\n"


def test_the_jobs_of_a_queue_are_in_their_order_with_reasons(jobs: Jobs) -> None:
    found = rows(hived(jobs, "get", "queue", "b", "-o", "wide"))
    assert [row[:2] for row in found] == [
        ["1", "Job/default/second"],
        ["2", "Job/default/third"],
        ["-", "Job/default/first"],
    ]
    assert " ".join(found[0]).endswith("is first, and the cells of its virtual cluster are in use")
    assert " ".join(found[1]).endswith("1 job is before it in its queue")


def test_jobs_of_all_queues_have_those_with_mistakes_among_them(jobs: Jobs) -> None:
    items = json.loads(hived(jobs, "get", "queue", "--jobs", "-o", "json").output)["items"]
    (wrong,) = [item for item in items if item["name"] == "Job/default/wrong"]
    assert (wrong["state"], wrong["position"], wrong["user"]) == ("Refused", 0, "")
    assert "set it to a virtual cluster: a, b" in wrong["reason"]


def test_a_job_with_a_mistake_has_no_numbers_that_are_not_known(jobs: Jobs) -> None:
    (wrong,) = [row for row in rows(hived(jobs, "get", "queue", "--jobs", "-o", "wide")) if "wrong" in row[1]]
    assert wrong[:7] == ["-", "Job/default/wrong", "-", "-", "-", "-", "Refused"]


def test_jobs_of_an_embedded_cluster_with_queues_are_made_so_that_they_wait(
    jobs: Jobs, capsys: pytest.CaptureFixture[str]
) -> None:
    introduce(jobs.running)
    said = capsys.readouterr().out
    assert "\n  kubectl apply -f job.yaml\n  hived get queue --jobs\n" in said
    assert "hived submit" not in said


def test_a_job_is_moved_to_the_front_and_back_and_before_another_one(jobs: Jobs) -> None:
    assert hived(jobs, "move", "third", "--front").output == "Job/default/third: Waiting, place 1 in queue b\n"
    assert places(jobs) == ["Job/default/third", "Job/default/second"]
    hived(jobs, "move", "default/third", "--back")
    assert places(jobs) == ["Job/default/second", "Job/default/third"]
    hived(jobs, "move", "Job/default/third", "--before", "second")
    assert places(jobs) == ["Job/default/third", "Job/default/second"]
    hived(jobs, "move", "second", "--front")


def test_a_job_that_is_held_says_so_until_it_is_released(jobs: Jobs) -> None:
    assert hived(jobs, "hold", "second").output.startswith("Job/default/second: Held")
    assert "hived release" in hived(jobs, "why", "second").output
    assert json.loads(hived(jobs, "release", "second", "-o", "json").output)["state"] == "Waiting"


def test_a_job_that_begins_later_waits_at_its_place_once_it_is_released(jobs: Jobs) -> None:
    jobs.create("later", "b", annotations={BEGIN: "2100-01-01T00:00:00Z"})
    jobs.expect(lambda: jobs.state("later") == "Held", jobs.rest)
    begins = "begins at 2100-01-01T00:00:00Z, as its author says"
    assert hived(jobs, "hold", "later").exit_code == 0
    held = "is held: hived release lets it take its turn"
    assert hived(jobs, "why", "later").output.count(f"{held}; {begins}") == 1
    told = f"Held, place 3 in queue b: {begins}; hived release Job/default/later --now starts it at once\n"
    assert hived(jobs, "release", "later").output == f"Job/default/later: {told}"
    assert hived(jobs, "release", "later", "--now").output == "Job/default/later: Waiting, place 3 in queue b\n"
    jobs.delete("later")
    jobs.expect(lambda: not jobs.state("later"), jobs.rest)


def test_a_set_whose_pods_queue_one_by_one_is_one_row_which_runs_and_is_held(tmp_path: Path) -> None:
    with jobs_on(tmp_path) as jobs:
        limits = {"resources": {"limits": {"nvidia.com/gpu": 8}}}
        spec = {"schedulingGates": [{"name": GATE}], "containers": [{"name": "main", "image": "x"} | limits]}
        labels = {"app": "web"}
        template = {"metadata": {"labels": labels}, "spec": spec}
        whole = {"replicas": 3, "podManagementPolicy": "Parallel", "selector": {"matchLabels": labels}}
        web = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "web"}}
        submitted = submit(jobs, tmp_path / "web.json", web | {"spec": whole | {"template": template}}, "--vc", "b")
        assert submitted.exit_code == 0, submitted.output
        name = "StatefulSet/default/web"

        def row(*words: str) -> str:
            """The one row of the set, and of its pods."""
            (found,) = [line for line in hived(jobs, "get", *words).output.splitlines() if "web" in line]
            return found

        expect_soon(lambda: "1 of 3 runs, 2 wait" in hived(jobs, "get", "jobs").output)
        assert row("jobs").startswith(name)
        expect_soon(lambda: f" {name} " in row("queue", "b"))
        expect_soon(lambda: row("queue", "b").split()[3] == "24")
        page = html_of(jobs, "queues/b")
        assert re.findall(r'<a href="(/page/jobs/[^"]*web[^"]*)"', page) == [f"/page/jobs/{name}"]
        assert ">24<" in page
        assert ">1 job: " in page
        assert f"<h1>{name}</h1>" in html_of(jobs, f"jobs/{name}")
        parts = rows(hived(jobs, "get", "queue", "b", "-o", "wide"))
        assert sorted(part[1] for part in parts) == [f"Gang/default/web-{number}" for number in range(3)]
        (waiting,) = [part[1] for part in parts if part[0] == "1"]
        for pod in ("web-0", "web-1", "web-2"):
            assert hived(jobs, "why", pod).exit_code == 0
        assert hived(jobs, "hold", waiting).output.startswith(f"{waiting}: Held, place 1 in queue b: ")
        expect_soon(lambda: "Held" in row("jobs"))
        assert "Held" in row("jobs", "--state", "running")


def test_one_state_has_one_word_in_all_lists(jobs: Jobs) -> None:
    hived(jobs, "hold", "second")
    expected = {"first": "Running", "second": "Held", "third": "Waiting", "wrong": "Refused"}
    for arguments in (["queue", "--jobs"], ["jobs"]):
        found = json.loads(hived(jobs, "get", *arguments, "-o", "json").output)["items"]
        assert {one["name"].rpartition("/")[2]: one["state"] for one in found} == expected
    for name in ("second", "third", "wrong"):
        assert json.loads(hived(jobs, "why", name, "-o", "json").output)["job"]["state"] == expected[name]
    assert [row[0] for row in rows(hived(jobs, "get", "jobs", "--state", "held"))] == ["Job/default/second"]
    assert hived(jobs, "why", "wrong").output.startswith("Job/default/wrong   Refused   since ")
    hived(jobs, "release", "second")


def test_a_job_larger_than_the_cluster_never_runs_and_has_the_priority_that_it_asks_for(jobs: Jobs) -> None:
    jobs.create("huge", "b", pods=100, priority="7")
    jobs.expect(lambda: "huge" in hived(jobs, "get", "queue", "--jobs").output)
    told = hived(jobs, "why", "huge").output
    assert told.startswith("Job/default/huge   Refused   100 nodes of 8 GPUs each at once   b, priority 7   ")
    assert "\n  cause never" in told
    assert " of type NODE " not in told
    assert "\n  no change could be tried: it is larger than the cluster\n" in told
    assert told.endswith("\nWhen\n  never\n")
    items = json.loads(hived(jobs, "get", "jobs", "-o", "json").output)["items"]
    (row,) = [one for one in items if one["name"] == "Job/default/huge"]
    assert (row["cause"], row["when"]["kind"], row["vc"], row["priority"]) == ("never", "never", "b", 7)
    jobs.kube.delete("/apis/batch/v1/namespaces/default/jobs/huge")
    jobs.expect(lambda: "huge" not in hived(jobs, "get", "queue", "--jobs").output)


def test_holding_a_job_that_runs_says_that_it_runs_on(jobs: Jobs) -> None:
    said = "runs on cells of its own virtual cluster"
    held = hived(jobs, "hold", "first").output
    assert held == f"Job/default/first: Running: {said}; is held once it waits again\n"
    assert hived(jobs, "release", "first").output == f"Job/default/first: Running: {said}\n"


def test_a_place_is_kept_on_the_job(jobs: Jobs) -> None:
    desk = jobs.running.extender.queues
    name = JobName("batch", "Job", "default", "third")

    def seen() -> str:
        """The state on the job, as the watch has told of it."""
        return desk.jobs._jobs[name].job.annotations.get(STATE, "")

    was = seen()
    hived(jobs, "move", "third", "--front")
    expect_soon(lambda: seen() != was)
    jobs.begin_queues_anew()
    assert places(jobs) == ["Job/default/third", "Job/default/second"]
    hived(jobs, "move", "second", "--front")
    expect_soon(lambda: "has no time limit" in hived(jobs, "why", "second").output)  # a turn is over


def test_why_tells_the_place_of_a_job_without_pods_and_who_has_its_cells(jobs: Jobs) -> None:
    said = hived(jobs, "why", "second").output
    assert said.startswith("Job/default/second   Waiting   1 node of 8 GPUs   b, priority 10")
    assert "place 1 in queue b: is first, and the cells of its virtual cluster are in use" in said
    assert "b has 1 of 1 in use by first" in said
    assert "cause in-use: 1 of 1 node of type NODE is in use" in said
    assert "unknown; first, which has the cells, has no time limit" in said


def test_why_of_a_later_job_names_the_order_and_promises_no_change(jobs: Jobs) -> None:
    found = json.loads(hived(jobs, "why", "third", "-o", "json").output)
    assert (found["job"]["queue"], found["job"]["place"]) == ("b", 2)
    assert (found["certificate"]["cause"], found["certificate"]["also"]) == ("order", ["in-use"])
    assert [one["group"] for one in found["certificate"]["holders"]] == ["Job/default/first"]
    assert "unblock" not in found["certificate"]
    assert found["when"] == {"kind": "unknown", "because": "1 job of its queue comes first"}


def test_changes_that_would_help_a_job_without_pods_are_tried(jobs: Jobs) -> None:
    unblock = json.loads(hived(jobs, "why", "second", "-o", "json").output)["certificate"]["unblock"]
    assert "ends=Job/default/first" in [one["change"] for one in unblock]
    result = hived(jobs, "why", "second", "--if", "ends=Job/default/first")
    assert (result.exit_code, "would start at once" in result.output) == (0, True)
    result = hived(jobs, "why", "second", "--if", "priority=9")
    assert (result.exit_code, "would wait all the same" in result.output) == (3, True)


def test_a_change_of_a_job_of_a_queue_is_carried_out_with_hived_too(jobs: Jobs) -> None:
    said = " ".join(hived(jobs, "why", "second").output.split())
    way = "hived delete JOB, and submit it again with the change, such as hived submit FILE --priority N"
    assert f"how: {way}; hived delete OTHER ends another job" in said
    assert "kubectl" not in said


def test_top_says_how_many_jobs_of_queues_it_does_not_show(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "more in queues" not in hived(jobs, "top").output
    monkeypatch.setattr("hived_cli.top.QUEUED", "1")
    shown = hived(jobs, "top", "--vc", "b").output
    assert "jobs: 1 waiting, 1 running, 1 more in queues" in shown
    assert shown.endswith("and 1 more in queues: hived get queue --jobs\n")


def test_jobs_without_pods_are_among_all_jobs_with_their_places(jobs: Jobs) -> None:
    found = rows(hived(jobs, "get", "jobs", "--waiting"))
    assert [row[0] for row in found] == ["Job/default/second", "Job/default/third", "Job/default/wrong"]
    assert "place 2 in queue b: 1 job is before it" in " ".join(found[1])
    assert hived(jobs, "get", "jobs", "--waiting", "--vc", "a").output == "No such job waits or runs.\n"
    assert "place 1 in queue b" in hived(jobs, "top").output


@pytest.mark.parametrize("name", ["first", "default/first", "Job/default/first", "job/default/first", "its pod"])
def test_a_job_that_runs_is_known_by_the_name_of_its_object(jobs: Jobs, name: str) -> None:
    assert [row[0] for row in rows(hived(jobs, "get", "jobs", "--state", "running"))] == ["Job/default/first"]
    (pod,) = [one["metadata"]["name"] for one in jobs.kube.get(PODS)["items"] if "first-" in one["metadata"]["name"]]
    lines = hived(jobs, "why", pod if name == "its pod" else name).output.splitlines()
    assert lines[0].startswith("Job/default/first   Running   1 node of 8 GPUs")
    assert lines[1] == "  in queue b: runs on cells of its own virtual cluster"
    if name != "its pod":
        assert "would start at once" in hived(jobs, "why", "second", "--if", f"ends={name}").output


@pytest.mark.parametrize("name", ["first", "default/second", "Job/default/third"])
def test_the_object_of_a_job_would_be_deleted_whether_it_runs_or_waits(jobs: Jobs, name: str) -> None:
    answer = json.loads(delete(jobs, name, "--dry-run", "-o", "json").output)
    short = name.rpartition("/")[2]
    assert answer == {"pods": [], "jobs": [f"Job/default/{short}"], "deleted": False}


@pytest.mark.parametrize("command", ["delete", "why", "hold", "release"])
@pytest.mark.parametrize("name", ["PyTorchJob/default/{}", "podgroup/default/{}", "podgroup/{}", "Gang/default/{}"])
@pytest.mark.parametrize("short", ["first", "second"], ids=["that runs", "that waits"])
def test_a_job_is_not_called_as_another_kind(jobs: Jobs, command: str, name: str, short: str) -> None:
    name = name.format(short)
    result = delete(jobs, name, "--yes") if command == "delete" else hived(jobs, command, name)
    assert (result.exit_code, f"{name!r}" in result.output) == (1, True), result.output
    assert jobs.state(short) == ("Running" if short == "first" else "Waiting")


def test_deleting_a_job_deletes_its_object_with_its_pods(jobs: Jobs) -> None:
    jobs.create("short", "a")
    jobs.expect(lambda: jobs.runs("short"))
    result = delete(jobs, "short", "--yes")
    assert result.output == "Job/default/short, which goes with its pods\nJob/default/short deleted\n"
    jobs.expect(lambda: jobs.state("short") == "" and jobs.nodes("short") == [])


@pytest.mark.parametrize("waits", [False, True], ids=["while it runs", "while it waits"])
@pytest.mark.parametrize("name", ["far", "job/far", "Job/far"])
def test_a_job_of_a_namespace_that_was_not_given_is_deleted_after_a_question_alone(
    jobs: Jobs, name: str, waits: bool
) -> None:
    jobs.create("far", "b" if waits else "a", namespace="elsewhere")
    jobs.expect(lambda: jobs.state("far") == ("Waiting" if waits else "Running"))
    told = "Job/elsewhere/far, which goes with its pods"
    refused = delete(jobs, name, "--yes")
    command = f"hived delete {name} -n elsewhere --yes"
    assert (refused.exit_code, refused.output) == (
        1,
        f"Error: {told}: it is in namespace elsewhere, which was not given, so --yes deletes nothing: say {command}\n",
    )
    assert delete(jobs, name, "--dry-run", "--yes").output == f"{told}\n"
    assert "no job" in delete(jobs, name, "-n", "default", "--yes").output
    assert jobs.state("far") == ("Waiting" if waits else "Running")
    result = delete(jobs, *command.split()[2:])
    assert result.output == f"{told}\nJob/elsewhere/far deleted\n"
    jobs.expect(lambda: jobs.state("far") == "")


@pytest.mark.parametrize("command", ["delete", "why", "hold"])
def test_a_short_name_of_two_jobs_is_that_of_none(jobs: Jobs, command: str) -> None:
    for namespace in ("default", "elsewhere"):
        jobs.create("twin", "b", namespace=namespace)
        jobs.expect(lambda namespace=namespace: jobs.state(f"{namespace}/twin") == "Waiting")
    result = delete(jobs, "twin", "--yes") if command == "delete" else hived(jobs, command, "twin")
    told = "twin is 2 jobs: Job/default/twin, Job/elsewhere/twin; give one of them"
    assert (result.exit_code, told in result.output) == (1, True)
    for namespace in ("default", "elsewhere"):
        delete(jobs, "twin", "-n", namespace, "--yes")
        jobs.expect(lambda namespace=namespace: jobs.state(f"{namespace}/twin") == "")


def test_a_short_name_may_say_that_it_is_that_of_a_job(jobs: Jobs) -> None:
    for command in ("hold", "release", "why"):
        assert "Job/default/second" in hived(jobs, command, "job/second").output


def test_a_part_of_a_queue_says_how_much_is_left(jobs: Jobs) -> None:
    lines = hived(jobs, "get", "queue", "b", "--limit", "1").output.splitlines()
    assert (len(lines), lines[-1]) == (3, "2 more: --limit 0 shows all")
    assert len(hived(jobs, "get", "queue", "b", "--limit", "0").output.splitlines()) == 4
    assert len(json.loads(hived(jobs, "get", "queue", "b", "-o", "json", "--limit", "2").output)["items"]) == 2


@pytest.mark.parametrize(
    ("words", "incomplete", "found"),
    [
        ("get queue", "", ["a", "b"]),
        ("get queue", "x", []),
        ("hold", "default/", ["default/first", "default/second", "default/third"]),
        ("move", "Job/default/t", ["Job/default/third"]),
        ("move", "default/", ["default/second", "default/third"]),
        ("move second --before", "default/", ["default/third"]),
        ("move Job/default/third --before", "s", ["second"]),
        ("release", "default/", []),
        ("why", "Job/default/s", ["Job/default/second"]),
    ],
)
def test_queues_and_their_jobs_are_completed(jobs: Jobs, words: str, incomplete: str, found: list[str]) -> None:
    assert completed(jobs, words, incomplete) == found


def test_jobs_that_are_held_are_completed_for_release(jobs: Jobs) -> None:
    hived(jobs, "hold", "second")
    hived(jobs, "hold", "first")
    found = completed(jobs, "release", "default/"), completed(jobs, "hold", "default/")
    for name in ("first", "second"):
        assert hived(jobs, "release", name).exit_code == 0
    assert found == (["default/first", "default/second"], ["default/third"])


def completed(jobs: Jobs, words: str, incomplete: str) -> list[str]:
    """The names that a shell offers."""
    result = CliRunner().invoke(
        main,
        [],
        env={
            "_HIVED_COMPLETE": "bash_complete",
            "COMP_WORDS": f"hived {words} {incomplete}",
            "COMP_CWORD": str(len(words.split()) + 1),
            "HIVED_SERVER": jobs.running.extender.url,
        },
        prog_name="hived",
    )
    return sorted(line.partition(",")[2] for line in result.output.splitlines() if line)


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        (("get", "queue", "x"), "there is no queue 'x'; there are a, b", 1),
        (("move", "nobody", "--front"), "no job, gang, group or pod 'nobody' waits or runs", 1),
        (("hold", "thrid"), "no job 'thrid' is in a queue; nearest: third", 1),
        (("move", "first", "--front"), "does not wait, so it has no place", 1),
        (("move", "second"), "give one of --front, --back and --before JOB", 2),
        (("move", "second", "--front", "--back"), "give one of", 2),
        (("hold", "wrong"), "is in no queue", 1),
        (("why", "second", "--if", "move=front"), "move= has a job start anew on other cells", 1),
        (
            ("why", "second", "--if", "ends=nobody"),
            "no job 'nobody' has cells; cells are held by Job/default/first\n",
            1,
        ),
        (
            ("move", "second", "--before", "first"),
            "Job/default/second cannot be moved before Job/default/first: expected",
            1,
        ),
    ],
)
def test_a_mistake_is_said(jobs: Jobs, arguments: tuple[str, ...], said: str, code: int) -> None:
    result = hived(jobs, *arguments)
    assert (result.exit_code, said in result.output) == (code, True), result.output


def with_api_server(jobs: Jobs, *arguments: str) -> Result:
    return hived(jobs, *arguments, "--kubeconfig", str(jobs.running.cluster.hived_kubeconfig))


def test_resume_releases_a_job_that_waits_in_a_queue_and_says_where_it_is(jobs: Jobs) -> None:
    hived(jobs, "hold", "second")
    result = with_api_server(jobs, "resume", "second")
    assert result.output == "Job/default/second: Waiting, place 1 in queue b\nhived starts it when its turn comes\n"
    assert jobs.waits("second")


def test_a_job_of_a_name_that_waits_in_a_queue_is_not_to_be_resumed(jobs: Jobs, tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    file.write_text(json.dumps(jobs.kube.get(f"{JOBS}/second") | {"apiVersion": "batch/v1", "kind": "Job"}))
    result = with_api_server(jobs, "submit", str(file))
    assert result.exit_code == 1
    end = "it is suspended, and starts when its turn in its queue comes: hived why second -n default"
    assert end in result.stderr, result.output


def cells(header: str, line: str) -> dict[str, str]:
    """The cells of a row by their titles: each begins where its title does, or ends there."""
    titles, found = (list(re.finditer(r"\S+(?: {1,2}\S+)*", text)) for text in (header, line))
    return {
        title[0]: next((one[0] for one in found if one.start() == title.start() or one.end() == title.end()), "")
        for title in titles
    }


@pytest.mark.parametrize(
    "words",
    [
        "cluster -o wide",
        "vc",
        "groups -o wide",
        "jobs -o wide",
        "jobs --ended",
        "jobs --ended -o wide",
        "nodes",
        "queue",
        "queue b",
        "queue --jobs",
        "free",
    ],
)
def test_each_column_of_each_table_sorts_it(jobs: Jobs, words: str) -> None:
    if "--ended" in words:
        for name in ("brief", "brief-2"):
            with suppress(KubeError):
                jobs.create(name, seconds="0", suspend=False, gpus=1)
        jobs.expect(lambda: len(rows(hived(jobs, "get", "jobs", "--ended"))) >= 2)
    header, *_ = hived(jobs, "get", *words.split()).output.splitlines()
    for title in cells(header, header):
        shown = hived(jobs, "get", *words.split(), "--sort-by", title)
        assert shown.exit_code == 0, shown.output
        table, _, _ = shown.output.partition("\n\n")
        column = [order_of(cells(table.splitlines()[0], line)[title]) for line in table.splitlines()[1:]]
        assert column == sorted(column)


def submit(jobs: Jobs, file: Path, document: dict[str, Any], *arguments: str) -> Result:
    file.write_text(json.dumps(document))
    return with_api_server(jobs, "submit", str(file), *arguments)


def batch_job(name: str) -> dict[str, Any]:
    """One pod on one node."""
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": BARE}}


WIDE = "{virtualCluster: a, priority: 10, leafCellNumber: 16}"
BARE = {
    "spec": {
        "restartPolicy": "Never",
        "containers": [{"name": "pytorch", "image": "x", "resources": {"limits": {GPU: 8}}}],
    }
}


@pytest.mark.parametrize(
    ("vc", "array", "says"),
    [
        (
            "a",
            "3",
            "the cluster has 16: it can never run; ask for fewer at once: spec.parallelism: 2, or hived submit",
        ),
        (
            "b",
            "2",
            "queue b does not borrow, and has 8: it can never run; ask for fewer at once: spec.parallelism: 1",
        ),
    ],
)
def test_an_array_that_never_has_cells_at_once_is_refused_with_the_remedy(
    jobs: Jobs, tmp_path: Path, vc: str, array: str, says: str
) -> None:
    file = tmp_path / "array.json"
    result = submit(jobs, file, batch_job("array"), "--vc", vc, "--array", array)
    assert result.exit_code == 1
    assert says in result.stderr
    assert submit(jobs, file, batch_job("array"), "--vc", vc, "--array", array, "--dry-run").exit_code == 4
    limit = {"a": 2, "b": 1}[vc]
    result = submit(jobs, file, batch_job("array"), "--vc", vc, "--array", f"{array}%{limit}")
    assert result.exit_code == 0, result.output
    jobs.delete("array")
    expect_soon(lambda: jobs.state("array") == "")


def test_a_gang_larger_than_its_virtual_cluster_is_taken_where_its_queue_borrows(jobs: Jobs, tmp_path: Path) -> None:
    roles = {role: {"replicas": 1, "template": BARE} for role in ("Master", "Worker")}
    gang = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "gang"}}
    document = gang | {"spec": {"pytorchReplicaSpecs": roles}}
    for vc, code in (("b", 1), ("a", 0)):
        result = submit(jobs, tmp_path / "gang.json", document, "--vc", vc)
        assert result.exit_code == code, result.output
    jobs.expect(lambda: jobs.state("gang") == "Waiting")
    jobs.kube.delete(f"{PYTORCH_JOBS}/gang")
    jobs.expect(lambda: jobs.state("gang") == "")


@pytest.mark.parametrize("says_spec", [False, True])
def test_a_pod_larger_than_every_node_is_refused_where_its_queue_borrows(
    jobs: Jobs, tmp_path: Path, *, says_spec: bool
) -> None:
    """The cluster has its 16 GPUs, but on two nodes of 8."""
    document = batch_job("wide")
    pod = document["spec"]["template"]["spec"]
    container = pod["containers"][0] | {"resources": {"limits": {GPU: 16}}}
    template: dict[str, Any] = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    if says_spec:
        template["metadata"] = {"annotations": {SCHEDULING_SPEC: WIDE}}
    document["spec"] = {"template": template}
    result = submit(jobs, tmp_path / "wide.json", document, "--vc", "a")
    assert (result.exit_code, "can never run" in result.stderr) == (1, True), result.output
    assert jobs.state("wide") == ""


def test_a_job_larger_than_the_cluster_is_listed_in_its_queue_as_refused(jobs: Jobs) -> None:
    jobs.create("huge", "a", pods=3)
    jobs.expect(lambda: jobs.state("huge") == "Refused")
    (row,) = rows(hived(jobs, "get", "queue", "a"))
    assert row[:2] == ["-", "Job/default/huge"]
    assert "place" not in hived(jobs, "why", "huge").output
    assert "Refused" in row
    jobs.delete("huge")


def test_a_job_that_may_start_with_fewer_pods_says_how_many_start_at_once(jobs: Jobs, tmp_path: Path) -> None:
    pod = {"restartPolicy": "Never", "containers": [{"name": "m", "image": "x", "resources": {"limits": {GPU: 1}}}]}
    spec = {"minAvailable": 3, "tasks": [{"name": "w", "replicas": 5, "minAvailable": 3, "template": {"spec": pod}}]}
    document = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "few"}, "spec": spec}
    result = submit(jobs, tmp_path / "few.json", document, "--vc", "b")
    assert "hived reads 5 pods of 1 GPU, 3 of them at once in virtual cluster b" in result.output
    found = expect_soon(lambda: jobs.inspector.queued_job("few"))
    assert found is not None
    assert found.asks == "5 pods of 1 GPU, 3 of them at once"
    jobs.kube.delete("/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs/few")


def gated(name: str, gang: str) -> dict[str, Any]:
    """One of two pods of a gang with the gate of queues, whose queue gives the gang another name."""
    pod = template("b", 4, "10", "100")
    said = {f"{KOORDINATOR}name": gang, f"{KOORDINATOR}min-available": "2"}
    gate = {"schedulingGates": [{"name": GATE}]}
    annotations = pod["metadata"]["annotations"] | said
    return {"metadata": {"name": name, "annotations": annotations}, "spec": pod["spec"] | gate}


def test_a_gang_that_waits_in_a_queue_is_held_released_and_deleted_by_both_of_its_names(jobs: Jobs) -> None:
    for number in range(2):
        jobs.kube.create(PODS, gated(f"ring-{number}", "Ring"))
    expect_soon(lambda: any("Gang/" in one.name for one in jobs.inspector.queued_jobs().items))
    (name,) = (one.name for one in jobs.inspector.queued_jobs().items if one.name.startswith("Gang/"))
    expect_soon(lambda: jobs.state(name) == "Waiting")
    expect_soon(lambda: hived(jobs, "why", "podgroup/default/Ring").exit_code != 1)  # lists are up to two seconds old
    for each in (name, "podgroup/default/Ring", "ring-0"):
        assert hived(jobs, "hold", each).output.startswith(f"{name}: Held"), each
        assert hived(jobs, "release", each).output.startswith(f"{name}: Waiting"), each
    for each in ("podgroup/default/Ring", name):
        assert "2 pods of Gang/default/" in delete(jobs, each, "--dry-run").output
    assert delete(jobs, name, "--yes").exit_code == 0
    expect_soon(lambda: jobs.state(name) == "")


def test_no_change_is_tried_on_a_job_that_hived_cannot_read(jobs: Jobs) -> None:
    tried = hived(jobs, "why", "wrong", "--if", "vc=a")
    assert (tried.exit_code, tried.output[:30]) == (1, "Error: no change can be tried:")
