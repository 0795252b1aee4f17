"""A pod whose resources no API server takes is refused, with the reason, and so it is by `hived submit --dry-run`."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from hived_cli import main
from hived_extender.kube.client import KubeError
from tests.cases.played import GPU, Played, nodes_config, played_on, pod

pytestmark = pytest.mark.sample(3)

CONFIG = nodes_config(8)
INVALID: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "no limit": ({"requests": {GPU: 1}}, "Limit must be set"),
    "another limit": ({"requests": {GPU: 1}, "limits": {GPU: 2}}, "must be equal to nvidia.com/gpu limit of 2"),
    "half": ({"limits": {GPU: "0.5"}}, "must be an integer"),
    "negative": ({"limits": {GPU: -1}}, "must be greater than or equal to 0"),
    "more than the limit": ({"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}}, "less than or equal"),
    "no domain": ({"limits": {"gpu": 1}}, "must be a standard resource type or fully qualified"),
}
VALID: Mapping[str, Mapping[str, Any]] = {
    "a limit alone": {"limits": {GPU: 1}},
    "whole in another form": {"limits": {GPU: "1000m"}},
    "less CPU than the limit": {"limits": {GPU: 1, "cpu": 2}, "requests": {"cpu": "500m"}},
}


def asking(resources: Mapping[str, Any]) -> dict[str, Any]:
    """A pod of one container with these resources."""
    made = pod("one")
    made["spec"]["containers"][0]["resources"] = resources
    return made


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    with played_on(tmp_path_factory.mktemp("invalid"), CONFIG) as running:
        yield running


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "pod.yaml"


def dry_run(played: Played, file: Path) -> Any:
    """What `hived submit --dry-run` says of a file."""
    options = ["--server", played.running.extender.url, "--kubeconfig", str(played.running.cluster.kubeconfig)]
    return CliRunner().invoke(main, ["submit", str(file), "--dry-run", *options])


@pytest.mark.parametrize("name", INVALID)
def test_it_is_refused_and_the_reason_said(played: Played, file: Path, name: str) -> None:
    resources, reason = INVALID[name]
    with pytest.raises(KubeError, match=reason) as refusal:
        played.create(asking(resources))
    assert refusal.value.is_invalid
    file.write_text(yaml.safe_dump(asking(resources)))
    result = dry_run(played, file)
    assert result.exit_code == 1, result.output
    assert reason in result.output
    assert "pod one" in result.output


@pytest.mark.parametrize("name", VALID)
def test_one_like_it_that_is_valid_runs(played: Played, file: Path, name: str) -> None:
    file.write_text(yaml.safe_dump(asking(VALID[name])))
    result = dry_run(played, file)
    assert result.exit_code == 0, result.output
    played.create(asking(VALID[name]))
    played.expect_running("one")
    played.kube.delete_pod("default", "one", grace_period_s=0)
