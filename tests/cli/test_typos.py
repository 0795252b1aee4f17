"""Typing errors in job files: told at `hived submit` with file and line, also by --dry-run."""

import pytest
from click.testing import CliRunner

from hived_cli import main
from hived_extender.kube.client import KubeClient
from hived_lab.start import start_embedded
from tests.cli.test_submit_objects import CONFIGURATION

WORD = "hivedscheduler.microsoft.com/"
JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: typo}
spec:
  template:
    metadata:
      annotations: {}
    spec:
      restartPolicy: Never
      containers:
      - name: c
        image: x
        resources:
          limits:
            nvidia.com/gpu: 1
"""
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: typo}
spec:
  restartPolicy: Never
  containers:
  - {name: c, image: x, resources: {limits: {nvidia.com/gpu: 1}}}
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    file = tmp_path_factory.mktemp("typos") / "cluster.yaml"
    file.write_text(CONFIGURATION.replace("research: {", "research: {namespaces: [default], "))
    with start_embedded(file) as running:
        yield running


@pytest.fixture
def submit(cluster, write, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    where = ["--api-server", cluster.cluster.api_url, "--server", cluster.extender.url]
    yield lambda text, *options: CliRunner().invoke(main, ["submit", write(text), *where, *options])
    kube = KubeClient.connect(cluster.cluster.api_url)
    assert kube.list_objects("/apis/batch/v1/jobs", dict).items == []
    assert kube.list_objects("/api/v1/pods", dict).items == []
    kube.close()


def annotated(text: str) -> str:
    return JOB.replace("annotations: {}", f"annotations:\n        {WORD}{text}")


@pytest.mark.parametrize("options", [(), ("--dry-run",)])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (annotated("virtualcluster: lab"), f"{WORD}virtualcluster means nothing, did you mean {WORD}virtual-cluster?"),
        (annotated('prioritty: "5"'), f"{WORD}prioritty means nothing, did you mean {WORD}priority?"),
        (
            JOB.replace("restartPolicy", "restartPolcy"),
            'yaml:9: job/typo: strict decoding error: unknown field "spec.template.spec.restartPolcy"',
        ),
        (
            JOB.replace("  template:", "  paralelism: 2\n  template:"),
            'yaml:5: job/typo: strict decoding error: unknown field "spec.paralelism"',
        ),
        (POD.replace("restartPolicy", "restartPolcy"), 'unknown field "spec.restartPolcy"'),
        (JOB.replace("gpu: 1", "gpu: one"), "yaml:15: pod typo-0 is invalid: "),
        (POD.replace("gpu: 1", "gpu: one"), "yaml:7: pod typo is invalid: "),
    ],
)
def test_a_typing_error_is_refused(text, said, options, submit):
    result = submit(text, *options)
    assert (result.exit_code, said in result.output) == (1, True), result.output


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (annotated("prioritty: '5'"), "yaml:8: spec.template.metadata.annotations"),
        (
            annotated(
                "pod-scheduling-spec: |\n          virtualCluster: research\n          leafCellTyp: GPU\n"
                "          leafCellNumber: 1"
            ),
            "yaml:10: spec.template.metadata.annotations['hivedscheduler.microsoft.com/pod-scheduling-spec']."
            "leafCellTyp: unknown key, ignored; did you mean leafCellType?",
        ),
        (JOB.replace("gpu: 1", "gpus: 1"), "typo: nvidia.com/gpus is no device, did you mean nvidia.com/gpu?"),
        (POD.replace("gpu: 1", "gpus: 1"), "typo: nvidia.com/gpus is no device, did you mean nvidia.com/gpu?"),
    ],
)
def test_a_typing_error_is_a_warning(text, said, submit):
    assert f"{said}" in submit(text, "--dry-run").stderr
