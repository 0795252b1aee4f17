"""Whatever is in a file, it becomes pods that can be sent, or the answer names file, line and place."""

import io
import re
from dataclasses import replace

import msgspec
import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hived.values.errors import UserError
from hived_extender.jobs.annotations import SCHEDULING_SPEC, pod_request
from hived_extender.jobs.asks import PRIORITY
from hived_jobs.documents import read_documents
from hived_jobs.submission import PlannedPod, Submission
from tests.job_files import plan_file
from tests.property.examples import examples

pytestmark = pytest.mark.sample(4)

JOB = """\
protocolVersion: 2
name: train
type: job
jobRetryCount: 0
prerequisites:
- {name: torch, type: dockerimage, uri: example/torch}
parameters: {lr: 0.1}
taskRoles:
  worker:
    instances: 2
    dockerImage: torch
    resourcePerInstance: {gpu: 1, cpu: 2.5, memoryMB: 100, ports: {ssh: 1}}
    completion: {minFailedInstances: 1}
    extraContainerOptions: {shmMB: 64}
    commands: ["run <% $parameters.lr %>"]
defaults: {virtualCluster: research, deployment: blue}
deployments:
- {name: blue, taskRoles: {worker: {preCommands: [before]}}}
extras:
  gangAllocation: true
  hivedScheduler:
    jobPriorityClass: prod
    taskRoles: {worker: {skuType: BIG, affinityGroupName: group}}
"""
POD = f"""\
apiVersion: v1
kind: Pod
metadata:
  name: notebook
  namespace: lab
  labels: {{app: notebook}}
  annotations:
    {SCHEDULING_SPEC}: |
      virtualCluster: research
      priority: 5
      gpuType: BIG
      pinnedCellId: PIN
      lazyPreemptionEnable: true
      affinityGroup: {{name: group, members: [{{podNumber: 2, leafCellNumber: 1}}, {{podNumber: 1, gpuNumber: 2}}]}}
spec:
  hostNetwork: true
  schedulerName: default-scheduler
  containers:
  - name: main
    image: example/notebook
    resources: {{limits: {{nvidia.com/gpu: "2"}}}}
    args: [x, 1]
"""


def expect_planned_or_refused(content: bytes, submission: Submission) -> int:
    """The number of pods in standard input, each fit to be sent; 0 if it is refused with its place."""
    pods: list[PlannedPod] = []
    refusal = ""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
        try:
            pods, _ = plan_file("-", submission)
        except UserError as error:
            refusal = error.message
    assert all(re.match("<stdin>(:[0-9]+)?: .", line) for line in refusal.splitlines())
    for pod in pods:
        metadata = pod.manifest["metadata"]
        if SCHEDULING_SPEC in metadata["annotations"]:
            pod_request("", metadata["name"], metadata.get("namespace", ""), metadata["annotations"])
        assert metadata["annotations"].get(PRIORITY, "7") == "7"
        msgspec.json.encode(pod.manifest)
        yaml.safe_dump(pod.manifest)
    return len(pods)


def test_the_files_that_are_damaged_below_are_sound(submission):
    assert [expect_planned_or_refused(text.encode(), submission) for text in (JOB, POD, BARE_POD)] == [2, 1, 1]


WORDS = ["research", "BIG", "torch", "main", "0", "1", "2", "-1", "1.5", "1e9", "1e308", "9" * 30, "1" * 5000, "010",
    "no", "true", "~", "''", "'2'", "12:30:45", "2024-13-45", "a/b", "v1", "Pod", ".inf", "!!int foo", "!!str 5",
    "!t x", "&a x", "*a", "!!binary ''", '"\\u0000"', '"a\\nb"', "|", "[" * 300 + "]" * 300,
    "[" * 200 + "]" * 200]  # fmt: skip
KEYS = ["name", "type", "uri", "gpu", "cpu", "instances", "worker", "limits", "nvidia.com/gpu", "members", "podNumber",
    "virtualCluster", SCHEDULING_SPEC, "<<", "[]", "~", "no", "5", "!t k"]  # fmt: skip
VALUES = st.recursive(
    st.sampled_from(WORDS),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]")
        | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4).map(
            lambda items: "{" + ", ".join(f"{key}: {value}" for key, value in items.items()) + "}"
        )
    ),
    max_leaves=6,
)
SCALAR = re.compile(r"(?<=[:\-\[,] )[^\s{}\[\],|][^{}\[\],\n]*|\[.*\]|\{.*\}|(?<=\n)  [\w.]+(?=:)")
"""Values of the sound files, of every kind and in every place, and keys of the second level."""


def places(text: str) -> st.SearchStrategy[list[tuple[int, int]]]:
    return st.lists(st.sampled_from([match.span() for match in SCALAR.finditer(text)]), min_size=1, max_size=2)


def with_values(text: str, spans: list[tuple[int, int]], values: list[str]) -> str:
    """The text with values at places, of which those that overlap another count once."""
    end = len(text) + 1
    for (start, stop), value in zip(sorted(spans, reverse=True), values, strict=False):
        if stop <= end:
            text, end = f"{text[:start]}{value}{text[stop:]}", start
    return text


BARE_POD = POD[: POD.index("  annotations:")] + "  annotations: {a: b}\n" + POD[POD.index("spec:\n") :]


@given(places(BARE_POD), st.lists(VALUES, min_size=2, max_size=2))
@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_value_in_any_place_of_a_pod_without_a_spec_is_refused_or_makes_a_pod(submission, spans, values):
    expect_planned_or_refused(
        with_values(BARE_POD, spans, values).encode(), replace(submission, virtual_cluster="research", priority=7)
    )


@given(places(JOB), st.lists(VALUES, min_size=2, max_size=2))
@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_value_in_any_place_of_a_job_is_refused_politely_or_makes_pods(submission, spans, values):
    expect_planned_or_refused(with_values(JOB, spans, values).encode(), submission)


@given(places(POD), st.lists(VALUES, min_size=2, max_size=2))
@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_value_in_any_place_of_a_pod_is_refused_politely_or_makes_a_pod(submission, spans, values):
    expect_planned_or_refused(with_values(POD, spans, values).encode(), submission)


@given(st.sampled_from([JOB, POD]), st.randoms(use_true_random=False))
@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_file_is_refused_politely_or_makes_pods(submission, text, chance):
    content = bytearray(text.encode())
    for _ in range(chance.randint(1, 5)):
        at = chance.randrange(len(content))
        content[at : at + chance.randint(0, 3)] = bytes(chance.choices(b"{}[]:,-'\"\n\t &*!|>~0129xyz\xff", k=2))
    expect_planned_or_refused(bytes(content), submission)


@given(st.binary(max_size=100))
@example(b"\xef\xbb\xbf")
@example(b"{?: ")
@example(b"- " * 5000)
@example(b"a: &a [*a]")
@example(b"a: {" * 5000)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_refused_politely(submission, content):
    assert expect_planned_or_refused(content, submission) == 0


TEXTS = """\
kind: Any
metadata:
  labels: {a: 4, b: yes, c: , d: "5", e: 2026-11-30}
spec:
  replicas: &four 4
  selector: {matchLabels: {a: *four}}
  template:
    metadata:
      annotations: {gang/min: 4, <<: {big: 99999999999999999999}}
    spec:
      nodeSelector: {gpu: true}
      containers:
      - args: [sleep, 1.5]
        env: [{name: A, value: 1}, {name: B, valueFrom: {x: 2}}]
        ports: [{containerPort: 80}]
  envs: {C: {value: 3}}
"""


def test_where_kubernetes_takes_texts_alone_a_number_is_a_text_with_a_warning(write):
    (document,) = read_documents(write(TEXTS))
    value = document.value()
    assert value["metadata"]["labels"] == {"a": "4", "b": "yes", "c": "", "d": "5", "e": "2026-11-30"}
    assert value["spec"]["replicas"] == 4
    assert value["spec"]["selector"] == {"matchLabels": {"a": "4"}}
    assert value["spec"]["envs"] == {"C": {"value": "3"}}
    template = value["spec"]["template"]
    assert template["metadata"]["annotations"] == {"gang/min": "4", "big": "99999999999999999999"}
    assert template["spec"]["nodeSelector"] == {"gpu": "true"}
    (container,) = template["spec"]["containers"]
    assert container["args"] == ["sleep", "1.5"]
    assert container["env"] == [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"x": 2}}]
    assert container["ports"] == [{"containerPort": 80}]
    said = [warning.split("job.yaml:")[1].split(": ", 2)[:2] for warning in document.warnings]
    assert said == [
        ["3", "metadata.labels.a"],
        ["3", "metadata.labels.b"],
        ["5", "spec.selector.matchLabels.a"],
        ["9", "spec.template.metadata.annotations['gang/min']"],
        ["9", "spec.template.metadata.annotations['<<'].big"],
        ["11", "spec.template.spec.nodeSelector.gpu"],
        ["13", "spec.template.spec.containers[0].args[1]"],
        ["14", "spec.template.spec.containers[0].env[0].value"],
        ["16", "spec.envs.C.value"],
    ]
    assert document.warnings[0].endswith("found 4, taken as a text; Kubernetes refuses it without quotes: write '4'")


def test_a_file_of_another_kind_keeps_its_numbers(write):
    (document,) = read_documents(write("protocolVersion: 2\nparameters: {labels: {a: 4}}\n"))
    assert document.value()["parameters"] == {"labels": {"a": 4}}
    assert document.warnings == []


def test_empty_documents_are_skipped(write):
    assert len(read_documents(write("---\n---\na: 1\n---\n# nothing\n---\nb: 2\n---\n"))) == 2


def test_every_key_written_twice_is_named(write):
    with pytest.raises(UserError) as caught:
        read_documents(write("a: {b: 1, b: 2}\nc: 1\nd: [{e: 1, e: 2}]\nc: 2\n"))
    assert [line.split(": found")[0].split("job.yaml:")[1] for line in caught.value.message.splitlines()] == [
        "1: a.b",
        "3: d[0].e",
        "4: c",
    ]


def test_an_anchored_section_is_named_by_the_place_where_it_is_used(write):
    (document,) = read_documents(write("a: &a {b: [1]}\nc: *a\n"))
    with pytest.raises(UserError, match=r"job\.yaml:1: c\.b: found a list, expected a text"):
        document.section().section("c").text("b")
