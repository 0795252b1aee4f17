"""Plain pod manifests: only what is missing is filled in."""

import json
from dataclasses import replace

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert

from hived.values.errors import UserError
from hived_extender.jobs.annotations import SCHEDULING_SPEC, pod_request
from hived_extender.jobs.kinds import table
from hived_extender.jobs.kinds.description import NoObjects
from hived_extender.jobs.kinds.marks import USER
from hived_extender.jobs.wire import Pod
from hived_jobs.submission import Submission
from tests.job_files import plan_file

POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: notebook
spec:
  containers:
  - name: main
    image: example/notebook
    resources: {limits: {nvidia.com/gpu: "2"}}
"""
ANNOTATED = POD.replace(
    "  name: notebook\n",
    f"  name: notebook\n  annotations:\n    {SCHEDULING_SPEC}: |\n"
    "      virtualCluster: research\n      priority: 5\n      leafCellNumber: 1\n",
)


def planned(file, submission):
    pods, _ = plan_file(file, submission)
    manifest = pods[0].manifest
    return manifest, json.loads(manifest["metadata"]["annotations"][SCHEDULING_SPEC])


VIRTUAL_CLUSTER = "hivedscheduler.microsoft.com/virtual-cluster"
PRIORITY = "hivedscheduler.microsoft.com/priority"


def test_a_pod_without_a_spec_keeps_its_gang_and_says_what_the_command_line_does(write, submission):
    gang = {"pod-group.scheduling.sigs.k8s.io/name": "g", "pod-group.scheduling.sigs.k8s.io/min-available": "2"}
    text = POD.replace("  name: notebook\n", f"  name: notebook\n  labels: {json.dumps(gang | {PRIORITY: '5'})}\n")
    [pod], _ = plan_file(write(text), replace(submission, virtual_cluster="research", priority=-1))
    metadata, spec = pod.manifest["metadata"], pod.manifest["spec"]
    assert metadata["annotations"] == {USER: "me", VIRTUAL_CLUSTER: "research", PRIORITY: "-1"}
    assert metadata["labels"] == gang
    assert (spec["schedulerName"], spec["priorityClassName"]) == ("hivedscheduler-ds-research", "hived-opportunistic")
    assert spec["containers"] == yaml.safe_load(POD)["spec"]["containers"]
    assert table.describe(convert(pod.manifest, Pod), NoObjects()).gang.name == "g"


def test_a_pod_that_says_nothing_is_left_to_its_namespace(write, submission):
    [pod], _ = plan_file(write(POD.replace("spec:\n  cont", "spec:\n  schedulerName: no\n  cont")), submission)
    assert (pod.manifest["metadata"]["annotations"], pod.priority) == ({USER: "me"}, None)
    assert pod.manifest["spec"] == yaml.safe_load(POD)["spec"] | {"schedulerName": "no"}


def test_an_annotated_pod_keeps_what_its_author_wrote(write, submission):
    file = write(ANNOTATED.replace("spec:\n  cont", "spec:\n  schedulerName: own\n  priorityClassName: urgent\n  cont"))
    manifest, spec = planned(file, submission)
    assert spec == {"virtualCluster": "research", "priority": 5, "leafCellNumber": 1}
    assert (manifest["spec"]["schedulerName"], manifest["spec"]["priorityClassName"]) == ("own", "urgent")


def test_the_command_line_wins_over_the_annotation(write, submission):
    _, spec = planned(write(ANNOTATED), replace(submission, virtual_cluster="product", priority=9))
    assert (spec["virtualCluster"], spec["priority"]) == ("product", 9)


NAMES = ["no", "010", "1e3", "12:30:45", "~x", "2024-13-45", "0x1F", "'null'", "Ünï"]


@pytest.mark.parametrize("name", NAMES)
def test_names_in_the_annotation_are_kept_as_written(name, write, submission):
    text = ANNOTATED.replace("virtualCluster: research", f"virtualCluster: {name}").replace(
        "      leafCellNumber: 1\n",
        f"      leafCellNumber: 1\n      leafCellType: {name}\n      pinnedCellId: {name}\n"
        f"      affinityGroup: {{name: {name}, members: [{{podNumber: 1, leafCellNumber: 1}}]}}\n",
    )
    manifest, spec = planned(write(text), submission)
    written = name.strip("'")
    assert (spec["virtualCluster"], spec["leafCellType"], spec["pinnedCellId"]) == (written, written, written)
    assert spec["affinityGroup"]["name"] == written
    assert manifest["spec"]["schedulerName"] == f"hivedscheduler-ds-{written.lower()}"


@pytest.mark.parametrize("name", NAMES)
def test_names_that_we_act_on_are_kept_as_written(name, write, submission):
    text = ANNOTATED.replace("  name: notebook\n", f"  name: {name}\n  namespace: {name}\n")
    manifest, _ = planned(write(text.replace("containers:", f"schedulerName: {name}\n  containers:")), submission)
    places = [manifest["metadata"]["name"], manifest["metadata"]["namespace"], manifest["spec"]["schedulerName"]]
    assert places == [name.strip("'")] * 3


def test_an_annotation_in_json_or_quotes_reads_the_same(write, submission):
    spec = '{"virtualCluster": "no", "priority": -1, "leafCellNumber": 1, "ignoreK8sSuggestedNodes": false}'
    text = POD.replace("name: notebook", f"name: notebook\n  annotations: {{{SCHEDULING_SPEC}: '{spec}'}}", 1)
    assert planned(write(text), submission)[1] == json.loads(spec)


def test_old_spellings_become_those_of_today(write, submission):
    text = ANNOTATED.replace("leafCellNumber: 1", "gpuNumber: 1\n      gpuType: K80").replace(
        "priority: 5", "affinityGroup: {name: g, members: [{podNumber: 2, gpuNumber: 1}]}"
    )
    assert planned(write(text), submission)[1] == {
        "virtualCluster": "research",
        "leafCellType": "K80",
        "leafCellNumber": 1,
        "affinityGroup": {"name": "g", "members": [{"podNumber": 2, "leafCellNumber": 1}]},
    }


def test_an_unknown_key_of_the_annotation_is_a_warning_with_its_line(write, submission):
    file = write(ANNOTATED.replace("      priority: 5\n", "      priority: 5\n      leafCellTyp: BIG\n"))
    warning = f"{file}:9: metadata.annotations['{SCHEDULING_SPEC}'].leafCellTyp: unknown key, ignored"
    assert plan_file(file, submission)[1] == [f"{warning}; did you mean leafCellType?"]


@pytest.mark.parametrize("wish", ["010", {"required": "RACK"}, {"preferred": ""}])
def test_how_near_and_how_dispensable_a_pod_is_stays_as_written(wish, write, submission):
    written = f"\n      elastic: yes\n      withinCell: {wish if isinstance(wish, str) else json.dumps(wish)}\n"
    file = write(ANNOTATED.replace("leafCellNumber: 1\n", f"leafCellNumber: 1{written}"))
    _, spec = planned(file, submission)
    assert (spec["elastic"], spec["withinCell"]) == (True, wish)
    assert plan_file(file, submission)[1] == []


def test_what_is_absent_or_null_is_filled_in(write, submission):
    text = ANNOTATED.replace("leafCellNumber: 1", "leafCellNumber: ~").replace(
        "spec:\n  cont", "spec:\n  schedulerName:\n  priorityClassName:\n  cont"
    )
    manifest, spec = planned(write(text.replace("  annotations:", "  namespace:\n  annotations:")), submission)
    assert spec["leafCellNumber"] == 2
    assert "namespace" not in manifest["metadata"]
    assert manifest["spec"]["schedulerName"] == "hivedscheduler-ds-research"
    assert manifest["spec"]["priorityClassName"] == "hived-priority-5"


def test_containers_that_share_an_alias_do_not_share_the_limit_that_makes_the_pod_ours(write, submission):
    text = ANNOTATED.replace("{limits:", "&r {limits:") + "  - {name: side, resources: *r}\n"
    containers = planned(write(text), submission)[0]["spec"]["containers"]
    assert [len(container["resources"]["limits"]) for container in containers] == [2, 1]


LIMITS = '{limits: {nvidia.com/gpu: "2"}}'
WITHOUT_NUMBER = ANNOTATED.replace("leafCellNumber: 1", "leafCellType: X")
ANNOTATION = f"metadata.annotations['{SCHEDULING_SPEC}']"
GPUS = "spec.containers[0].resources.limits['nvidia.com/gpu']"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            ANNOTATED.replace("research", "''"),
            "5: metadata.annotations: it names no virtual cluster: add --vc ",
        ),
        (POD.replace("  name: notebook\n", "  labels: {}\n"), "3: metadata.name: missing; expected a text"),
        (POD.replace("containers:", "initContainers:"), "5: spec.containers: missing"),
        (
            POD.replace("- name: main", "- ~\n  - name: main"),
            "7: spec.containers[0]: found nothing, expected a mapping",
        ),
        (
            ANNOTATED.replace("priority: 5", "priority: 1001"),
            f"8: {ANNOTATION}.priority: found '1001', expected a whole number from -1 to 1000",
        ),
        (ANNOTATED.replace("priority: 5", "priority: 010"), f"8: {ANNOTATION}.priority: found '010', expected"),
        (ANNOTATED.replace("leafCellNumber: 1", "leafCellNumber: 0"), f"9: {ANNOTATION}.leafCellNumber: found '0'"),
        (
            ANNOTATED.replace("priority: 5", "gpuNumber: 1"),
            f"8: {ANNOTATION}.gpuNumber: the old spelling of leafCellNumber, which is there too",
        ),
        (
            ANNOTATED.replace("priority: 5", "affinityGroup: {name: g, members: [{podNumber: 1, leafCellNumber: 2}]}"),
            f"6: {ANNOTATION}: Pod annotation {SCHEDULING_SPEC}: AffinityGroup.Members does not contains current Pod",
        ),
        (
            ANNOTATED.replace("priority: 5", "affinityGroup: {name: g, members: [1]}"),
            f"8: {ANNOTATION}.affinityGroup.members[0]: found 1, expected a mapping",
        ),
        (ANNOTATED.replace("priority: 5", "priority: [5"), f"9: {ANNOTATION}: found text that is not YAML"),
        (ANNOTATED.replace("priority: 5", "---"), f"6: {ANNOTATION}: found 2 YAML documents, expected one"),
        (ANNOTATED.replace("priority: 5", "virtualCluster: b"), f"8: {ANNOTATION}.virtualCluster: found 'virtualClus"),
        (ANNOTATED.replace("priority: 5", "a: " + "[" * 5000), f"8: {ANNOTATION}: found text that is not YAML (nest"),
        (ANNOTATED.replace("|\n", "\n"), f"6: {ANNOTATION}: found a mapping, expected a text in YAML"),
        (
            WITHOUT_NUMBER.replace("nvidia.com/gpu", "cpu"),
            "11: spec.containers: no leafCellNumber in the annotation, and no limit such as nvidia.com/gpu",
        ),
        (WITHOUT_NUMBER.replace('"2"', ""), f"14: {GPUS}: missing; expected a whole number"),
        (WITHOUT_NUMBER.replace('"2"', "[1]"), f"14: {GPUS}: found a list, expected a whole number"),
        (WITHOUT_NUMBER.replace('"2"', "1.5"), f"14: {GPUS}: found '1.5', expected a whole number"),
        (POD.replace('{nvidia.com/gpu: "2"}', "[1]"), "9: spec.containers[0].resources.limits: found a list, expected"),
        (POD.replace(LIMITS, "[1]"), "9: spec.containers[0].resources: found a list, expected a mapping"),
        (POD.replace('"2"', '"2", [a]: 1'), "9: spec.containers[0].resources.limits['?']: found a list as a key"),
        (POD.replace("example/notebook", "!foo x"), "8: spec.containers[0].image: found a value tagged '!foo', expect"),
    ],
)
def test_a_pod_that_cannot_be_scheduled_is_refused_before_it_exists(text, message, write, submission):
    vc = None if "virtual cluster" in message else "research"
    file = write(text)
    with pytest.raises(UserError) as caught:
        plan_file(file, replace(submission, virtual_cluster=vc))
    assert caught.value.message.startswith(f"{file}:{message}")


def test_a_limit_whose_name_is_a_number_is_passed_on(write, submission):
    manifest, spec = planned(write(ANNOTATED.replace('"2"', '"2", 5: 1')), submission)
    assert (spec["leafCellNumber"], manifest["spec"]["containers"][0]["resources"]["limits"]["5"]) == (1, 1)


SCALARS = st.sampled_from(
    [
        *NAMES,
        "5",
        "-1",
        "1001",
        "0",
        "'5'",
        "true",
        "Off",
        "y",
        "~",
        "",
        "0b1",
        "1_0",
        "a, b",
        '"\\u00e9"',
        "g # c",
        "!!str 5",
    ]
)


@given(st.dictionaries(st.sampled_from(["virtualCluster", "priority", "gpuType", "leafCellNumber", "pinnedCellId",
    "gangReleaseEnable", "lazyPreemptionEnable", "ignoreK8sSuggestedNodes", "group", "number"]), SCALARS))  # fmt: skip
def test_the_scheduler_reads_from_a_submitted_pod_what_it_would_have_read_from_the_file(tmp_path_factory, values):
    group = f"{{name: {values.pop('group', 'g')}, members: [{{podNumber: {values.pop('number', 1)}, gpuNumber: 5}}]}}"
    values = {"virtualCluster": "v", "leafCellNumber": "5", "affinityGroup": group} | values
    lines = [f"      {key}: {value}\n" for key, value in values.items()]
    text = (
        ANNOTATED[: ANNOTATED.index("      virtualCluster")] + "".join(lines) + ANNOTATED[ANNOTATED.index("spec:\n") :]
    )
    file = tmp_path_factory.mktemp("pods") / "pod.yaml"
    file.write_text(text, encoding="utf-8")
    try:
        pods, _ = plan_file(str(file), Submission("me"))
        expected = pod_request("", "n", "d", {SCHEDULING_SPEC: "".join(lines)})
    except UserError:
        return
    assert pod_request("", "n", "d", pods[0].manifest["metadata"]["annotations"]) == expected


def test_documents_of_one_file_are_planned_in_order(write, submission):
    file = write(ANNOTATED + "---\n" + ANNOTATED.replace("notebook", "second"))
    pods, _ = plan_file(file, submission)
    assert [pod.manifest["metadata"]["name"] for pod in pods] == ["notebook", "second"]
