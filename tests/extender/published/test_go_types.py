"""The reader of Go types: against the definitions that a project generates from its own types, and small ones."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.tools import sources
from tests.extender.published import go_types
from tests.extender.published.reading import differences
from tests.extender.published.schemas import Json, definition, filled, module

JOBSET = "sigs.k8s.io/jobset"
RAY = "github.com/ray-project/kuberay/ray-operator"


def paths(schema: Json, path: str = "") -> Iterator[tuple[str, str | None]]:
    """Every path of a schema with its type."""
    yield path, schema.get("type")
    for name, each in schema.get("properties", {}).items():
        yield from paths(each, f"{path}.{name}")
    for word, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(schema.get(word), dict):
            yield from paths(schema[word], path + mark)


@pytest.mark.parametrize(
    ("path", "package", "file", "kind", "version"),
    [
        (JOBSET, "api/jobset/v1alpha2", "config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml", "JobSet",
         "v1alpha2"),
        (RAY, "apis/ray/v1", "config/crd/bases/ray.io_rayclusters.yaml", "RayCluster", "v1"),
    ],
)  # fmt: skip
def test_types_are_as_the_definition_that_is_made_from_them(
    path: str, package: str, file: str, kind: str, version: str
) -> None:
    read = go_types.schema("controllers", f"{path}/{package}", kind)
    published = definition(module("controllers", path) / file, kind, version)
    for part in ("spec", "status"):
        mine, theirs = (set(paths(each["properties"][part])) for each in (read, published))
        own = {each for each in theirs - mine if not re.search(r"template\.(metadata|spec)\.", each[0])}
        assert own == set()  # the rest is of the Kubernetes that the project was made with


TYPES = """
package v1

import (
	other "sigs.k8s.io/jobset/other"
)

// Thing has { fields.
type Thing struct {
	other.Base `json:",inline"`
	// Name is "quoted".
	Name *string `json:"name,omitempty"`
	Counts map[string]int32 `json:"counts"` // how many
	Parts []Part `json:"parts"`
	Words Words
	hidden bool
	Left out `json:"-"`
}

type Part struct {
	Inner *Thing `json:"inner"`
}

type Words []Word

type Word string
"""
BASE = """
package other

type Base struct {
	IsOn bool `json:"isOn"`
}
"""


@pytest.fixture
def thing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Json:
    """The type of a small module."""
    monkeypatch.setenv("GOMODCACHE", str(tmp_path))
    folder = tmp_path / f"{JOBSET}@{sources.pinned('controllers', JOBSET)}"
    for name, text in (("small", TYPES), ("other", BASE)):
        (folder / name).mkdir(parents=True)
        (folder / name / "types.go").write_text(text)
    return go_types.schema("controllers", f"{JOBSET}/small", "Thing")


def test_fields_have_the_names_and_types_of_json(thing: Json) -> None:
    document = filled(thing, {})
    assert document == {"isOn": True, "name": "text", "counts": {"key": 1}, "parts": [{"inner": {}}], "Words": ["text"]}


def test_a_field_that_is_not_there_or_has_another_type_is_a_difference(thing: Json) -> None:
    reads = {("isOn", "boolean"), ("counts.any", "string"), ("parts[].inner.all", "string"), ("parts[].outer", "")}
    assert differences(thing, reads) == ["counts.any: integer", "parts[].outer"]


def test_a_pin_is_overridden_where_the_module_is_pinned_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIVED_PUBLISHED", f"{JOBSET}@v9.0.0 k8s.io/api@v0.99.0")
    assert sources.pinned("controllers", JOBSET) == "v9.0.0"
    assert sources.pinned("v1.38", "k8s.io/api") == "v0.99.0" != sources.pinned("v1.37", "k8s.io/api")
