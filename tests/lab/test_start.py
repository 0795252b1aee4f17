"""A whole cluster in one process, and the command that serves it."""

import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path

import pytest
from click.testing import CliRunner

from hived.values.errors import UserError
from hived_cli import main
from hived_extender.kube.client import pod_path
from hived_lab.start import Embedded, start_embedded
from tests.expecting import expect_soon
from tests.extender.machine.small_cluster import CONFIG, NODES, spec_text
from tests.extender.replica import DEADLINE_S, connect, create_pod, metric, status_of
from tests.programs import hived

pytestmark = pytest.mark.sample(3)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "hivedscheduler.yaml"
    path.write_text(CONFIG)
    return path


def test_an_embedded_cluster_whose_extender_fails_does_not_start(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hived_extender.machine.service.Service.lead", lambda *_: 1 / 0)
    with pytest.raises(UserError, match="the extender has not become ready"), start_embedded(config):
        pass


def test_an_embedded_cluster_runs_the_pods_it_is_given(config: Path) -> None:
    with start_embedded(config) as running:
        kube = connect(running.cluster)
        create_pod(kube, "p")
        expect_soon(lambda: kube.get(pod_path("ns", "p"))["status"].get("phase") == "Running")
        assert kube.get(pod_path("ns", "p"))["spec"]["nodeName"] in NODES
        kube.close()


def test_a_pod_that_is_refused_again_and_again_is_warned_of_once(
    config: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    with start_embedded(config) as running:
        kube = connect(running.cluster)
        create_pod(kube, "p", spec_text(vc="nowhere"))
        expect_soon(
            lambda: (metric(running.extender, "hived_decisions_total", verb="filter", outcome="error") or 0) >= 3
        )
        kube.close()
    told = [record for record in caplog.records if "scheduling ns/p failed" in record.getMessage()]
    # On a busy machine an attempt may fail for another reason, which is told as well.
    warned = [record.getMessage() for record in told if record.levelname == "WARNING"]
    assert sum("nowhere" in message for message in warned) == 1, warned
    assert any(record.levelname == "INFO" for record in told)


def test_an_embedded_cluster_that_is_told_to_stop_does_not_wait_until_it_is_ready(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop, has_ended = threading.Event(), threading.Event()

    def compile_for_long(tell: Callable[[int, int], None]) -> None:
        stop.set()
        has_ended.wait(DEADLINE_S)

    monkeypatch.setattr("hived_extender.running.load_kernels", compile_for_long)
    began = time.monotonic()
    with start_embedded(config, stop=stop) as running:
        assert not running.extender.service.is_ready
    has_ended.set()
    assert time.monotonic() - began < DEADLINE_S / 2


def test_where_an_embedded_cluster_answers_is_told_before_it_is_ready(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go_on = threading.Event()
    told: list[tuple[bool, bool, int]] = []

    def note(running: Embedded) -> None:
        extender = running.extender
        told.append(
            (running.cluster.kubeconfig.exists(), extender.service.is_ready, status_of(f"{extender.url}/healthz"))
        )
        may_go_on.set()

    monkeypatch.setattr("hived_extender.running.load_kernels", lambda tell: may_go_on.wait(DEADLINE_S))
    with start_embedded(config, on_answering=note) as running:
        assert running.extender.service.is_ready
    assert told == [(True, False, 200)]


def test_the_command_serves_until_sigterm_and_exits_with_zero(config: Path, tmp_path: Path) -> None:
    words = ["serve", "--embedded", str(config), "--listen", "127.0.0.1:0"]
    words += ["--record", str(tmp_path / "records"), "--log-format", "json"]
    with hived(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        lines = [line.split() for line in takewhile(lambda line: not line.startswith("Ready"), process.stdout)]
        addresses = {words[0]: words[-1] for words in lines if words}
        assert status_of(f"{addresses['extender']}/readyz") == 200
        assert status_of(f"{addresses['API']}/api/v1/nodes/n0") == 200
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    assert all(json.loads(line)["level"] in {"info", "warning"} for line in log.splitlines())
    assert len(list((tmp_path / "records").glob("*-0001.jsonl"))) == 1


@pytest.mark.long
def test_a_configuration_that_refuses_pods_in_vain_is_warned_of(config: Path) -> None:
    config.write_text(f"foreignDevices: {{nvidia.com/gpu: refuse}}\n{config.read_text()}")
    words = ["serve", "--embedded", str(config), "--listen", "127.0.0.1:0", "--log-format", "json"]
    with hived(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        told = json.loads(process.stderr.readline())
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    assert told["level"] == "warning"
    assert "refuses pods that ask for nvidia.com/gpu, and there is none: add --webhook;" in told["message"]


def test_the_command_refuses_two_configurations() -> None:
    words = ["serve", "--config", "a", "--embedded", "b"]
    result = CliRunner().invoke(main, words)
    assert (result.exit_code, "exclude each other" in result.stderr) == (2, True)
