"""charts/hived is what config/deploy makes of it, and its values are documented."""

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from delivery.chart import BY_HAND, CHART, make_chart
from delivery.chart_values import VALUES
from delivery.layout import CONFIG_TYPE, CONTENT_TYPE, write_package
from delivery.project import read_version

FILES = sorted(path.relative_to(CHART).as_posix() for path in CHART.rglob("*") if path.is_file())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    """The files as config/deploy makes them."""
    return make_chart()


@pytest.mark.parametrize("name", [name for name in FILES if Path(name).name not in BY_HAND])
def test_a_file_of_the_chart_is_what_config_deploy_makes_of_it(made: dict[str, str], name: str) -> None:
    assert (CHART / name).read_text() == made.get(name), "make chart"


def test_the_chart_has_all_files_that_are_made_and_no_others(made: dict[str, str]) -> None:
    assert {*FILES} == made.keys() | {f"templates/{name}" for name in BY_HAND}


def test_the_defaults_follow_their_schema() -> None:
    assert not list(jsonschema.validators.validator_for(SCHEMA)(SCHEMA).iter_errors(DEFAULTS))


@pytest.mark.parametrize(
    "values",
    [{"replica": 2}, {"replicas": 0}, {"image": "hived"}, {"tls": {"on": True}}, {"webhook": {"failurePolicy": "No"}}],
    ids=str,
)
def test_a_value_that_is_misspelt_or_of_another_type_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(values, SCHEMA)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: value.name)
def test_a_value_has_its_default_and_its_meaning_in_the_schema(value: Any) -> None:
    node, default = SCHEMA, DEFAULTS
    for part in value.name.split("."):
        node, default = node["properties"][part], default[part]
    assert (node["type"], node["description"], node["default"]) == (value.type, value.description, default)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: value.name)
def test_a_value_is_used_by_a_template(value: Any) -> None:
    texts = [path.read_text() for path in (CHART / "templates").iterdir()]
    short = value.name.replace("kubeScheduler.image.", "image.").rpartition(".Values.")[2]
    expressions = (f".Values.{value.name}", f"${short}")
    assert any(expression in text for text in texts for expression in expressions)


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
