"""charts/hived agrees with config/deploy and with itself, and its package is as Helm wants it."""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from delivery.chart import CHART, CONFIG_TYPE, CONTENT_TYPE, write_package
from delivery.project import read_version
from tests.deploy.installations import DEPLOY

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())


def leaves(node: dict[str, Any], name: str = "") -> dict[str, dict[str, Any]]:
    """The values of a schema by name."""
    children = {f"{name}{key}": each for key, each in node.get("properties", {}).items() if key != "global"}
    found = [leaves(each, f"{key}.") if "properties" in each else {key: each} for key, each in children.items()]
    return {key: each for some in found for key, each in some.items()}


VALUES = leaves(SCHEMA)


def test_the_chart_has_the_version_of_hived() -> None:
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert about["version"] == about["appVersion"] == read_version()


def test_the_chart_has_no_configuration_of_its_own() -> None:
    assert DEFAULTS["configuration"] == ""


def test_the_kinds_of_queues_are_those_of_config_deploy() -> None:
    for path in (CHART / "crds").iterdir():
        assert path.read_text() == (DEPLOY / "queues" / path.name).read_text()


def test_the_defaults_follow_their_schema() -> None:
    assert not list(jsonschema.validators.validator_for(SCHEMA)(SCHEMA).iter_errors(DEFAULTS))


@pytest.mark.parametrize(
    "values",
    [
        {"replica": 2},
        {"replicas": 0},
        {"image": "hived"},
        {"tls": {"on": True}},
        {"webhook": {"failurePolicy": "No"}},
        {"image": {"digest": "latest"}},
        {"image": {"repository": ""}},
        {"kubeScheduler": {"names": [""]}},
        {"serviceMonitor": {"interval": "often"}},
        {"rbac": {"namespaces": ["A"]}},
        {"existingConfigMap": "A b"},
        {"validation": True},
    ],
    ids=str,
)
def test_a_value_that_is_misspelt_or_of_another_type_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(values, SCHEMA)


@pytest.mark.parametrize("name", VALUES)
def test_a_value_has_its_default_and_its_meaning_everywhere(name: str) -> None:
    default: Any = DEFAULTS
    for part in name.split("."):
        default = default[part]
    value = VALUES[name]
    assert value["default"] == default
    shown = f"`{json.dumps(default)}`" if len(json.dumps(default)) <= 40 else "see `values.yaml`"
    row = f"| `{name}` | {value['type']} | {shown} | {value['description']} |\n"
    assert row in (CHART / "README.md").read_text()
    assert f"# {value['description']}\n" in (CHART / "values.yaml").read_text()


@pytest.mark.parametrize("name", VALUES)
def test_a_value_is_used_by_a_template(name: str) -> None:
    texts = [path.read_text() for path in (CHART / "templates").iterdir()]
    short = name.replace("kubeScheduler.image.", "image.")
    assert any(expression in text for text in texts for expression in (f".Values.{name}", f"${short}"))


def test_the_schema_knows_every_default() -> None:
    def names(node: Any, above: str = "") -> Iterator[str]:
        for key, each in node.items():
            yield from names(each, f"{above}{key}.") if f"{above}{key}" not in VALUES else [f"{above}{key}"]

    assert list(names(DEFAULTS)) == list(VALUES)


# -- its package ------------------------------------------------------------------------------------------------------


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """The package; the layout lies beside it."""
    return write_package(tmp_path, 1_700_000_000)


def test_the_package_is_the_same_bytes_twice(packed: Path, tmp_path: Path) -> None:
    assert packed.read_bytes() == write_package(tmp_path / "again", 1_700_000_000).read_bytes()


def test_the_package_holds_the_files_of_the_chart(packed: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(packed.read_bytes()))) as tar:
        held = {each.name.removeprefix("hived/"): each.size for each in tar.getmembers()}
    assert held == {
        path.relative_to(CHART).as_posix(): path.stat().st_size for path in CHART.rglob("*") if path.is_file()
    }


def test_every_blob_of_the_layout_has_its_digest_as_its_name(packed: Path) -> None:
    blobs = list((packed.parent / f"hived-{read_version()}.oci" / "blobs" / "sha256").iterdir())
    assert [hashlib.sha256(each.read_bytes()).hexdigest() for each in blobs] == [each.name for each in blobs]


def test_the_layout_leads_to_the_package(packed: Path) -> None:
    layout = packed.parent / f"hived-{read_version()}.oci"
    (entry,) = json.loads((layout / "index.json").read_text())["manifests"]
    manifest = json.loads((layout / "blobs" / entry["digest"].replace(":", "/")).read_text())
    (layer,) = manifest["layers"]
    assert (manifest["config"]["mediaType"], layer["mediaType"]) == (CONFIG_TYPE, CONTENT_TYPE)
    assert (layout / "blobs" / layer["digest"].replace(":", "/")).read_bytes() == packed.read_bytes()
