"""The bill of materials is one by its format's schema, and names what is locked."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from delivery.bills import LICENCES, SBOM, make_bills, name_of, read_lock
from delivery.checks import check_bills, check_vendored
from hived import __version__
from tests.places import ROOT


@pytest.fixture(scope="module")
def text() -> str:
    """The bill that is committed."""
    return (ROOT / ".ci" / SBOM).read_text()


@pytest.fixture(scope="module")
def bill(text: str) -> dict[str, Any]:
    """The same as an object."""
    read: dict[str, Any] = json.loads(text)
    return read


def packages(bill: dict[str, Any]) -> list[dict[str, Any]]:
    """The components that pip installs."""
    return [each for each in bill["components"] if each["purl"].startswith("pkg:pypi/")]


def test_the_bill_names_the_files_of_others_that_the_checkout_has(bill: dict[str, Any]) -> None:
    named = {
        file["name"]: file["hashes"][0]["content"]
        for each in bill["components"]
        if each["purl"].startswith("pkg:npm/")
        for file in each["components"]
    }
    folder = ROOT / "extender" / "hived_extender" / "http" / "pages" / "static" / "vendor"
    there = {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".txt"}
    assert named == {name: hashlib.sha256(content).hexdigest() for name, content in there.items()}
    assert len(list(folder.glob("*-LICENSE.txt"))) == 2


def test_a_vendored_file_that_was_changed_is_noticed(tmp_path: Path) -> None:
    policy = json.loads((ROOT / ".ci" / "policy.json").read_text())
    assert check_vendored(ROOT, policy) == []
    problems = check_vendored(tmp_path, policy)
    assert len(problems) == 3
    assert "it is not the file of htmx.org" in problems[0]


def test_the_bill_follows_the_schema_of_its_format(text: str) -> None:
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None


def test_the_bill_names_what_is_locked_with_its_digests(bill: dict[str, Any]) -> None:
    locked = read_lock("requirements.lock")
    assert locked.keys() - {"colorama"} == {name_of(each) for each in packages(bill)}  # colorama is for Windows
    for each in packages(bill):
        assert each["version"] == locked[name_of(each)]["version"]
        assert each["externalReferences"] == locked[name_of(each)]["externalReferences"]


def test_every_package_of_the_bill_has_a_licence(bill: dict[str, Any]) -> None:
    assert [each["name"] for each in bill["components"] if not each.get("licenses")] == []


def test_the_bill_is_of_this_version(bill: dict[str, Any]) -> None:
    assert bill["metadata"]["component"]["version"] == __version__


def test_every_package_of_the_bill_is_needed_by_hived(bill: dict[str, Any]) -> None:
    needs = {each["ref"]: each["dependsOn"] for each in bill["dependencies"]}
    reached, todo = set(), [bill["metadata"]["component"]["bom-ref"]]
    while todo:
        package = todo.pop()
        if package not in reached:
            reached.add(package)
            todo += needs[package]
    assert reached == needs.keys()


@pytest.mark.parametrize("name", [SBOM, LICENCES])
def test_a_file_that_is_not_that_of_the_lock_is_noticed(name: str, tmp_path: Path) -> None:
    for file, content in make_bills().items():
        (tmp_path / file).write_text(content)
    assert check_bills(tmp_path) == []
    (tmp_path / name).write_text('{"components": []}')
    assert check_bills(tmp_path) == [f"{name}: it is not that of requirements.lock: make sbom"]
