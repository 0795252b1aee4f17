"""Every check of dependencies notices a planted violation, and what is locked passes them."""

import datetime
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from delivery.advisories import check_advisories, fetch_advisories
from delivery.bills import is_allowed, licence_of, read_lock
from delivery.checks import check, check_installed, check_licences
from delivery.project import CheckError
from tests.places import ROOT
from tests.stub_server import Request, StubServer

TODAY = datetime.date(2026, 6, 1)


@pytest.fixture
def policy() -> dict[str, Any]:
    """The policy that is committed."""
    read: dict[str, Any] = json.loads((ROOT / ".ci" / "policy.json").read_text())
    return read


# -- what is committed ------------------------------------------------------------------------------------------------


def test_everything_that_is_locked_passes() -> None:
    findings = check(TODAY)
    assert findings.problems == []
    assert any("packages are locked" in note for note in findings.notes)


def test_no_index_is_named_in_a_lock() -> None:
    for path in (ROOT / ".ci").glob("*.lock"):
        assert "//" not in path.read_text()


def test_each_line_of_a_lock_is_a_pin_with_digests() -> None:
    for path in (ROOT / ".ci").glob("*.lock"):
        words = {line.split("==")[0] for line in path.read_text().splitlines() if line and line[0] not in " #-"}
        assert words == read_lock(path.name).keys()
        assert all(each["externalReferences"][0]["hashes"] for each in read_lock(path.name).values())


# -- what is installed -------------------------------------------------------------------------------------------------


def test_what_is_not_installed_as_it_is_locked_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "some.lock").write_text("packaging==0.1\n")
    (problem,) = check_installed("--no-deps", "--requirement", str(tmp_path / "some.lock"))
    assert problem.startswith(f"this environment is not as {tmp_path}/some.lock says: make lock, make setup")
    assert "packaging" in problem


def test_a_dependency_that_is_not_locked_is_noticed(tmp_path: Path) -> None:
    wanted = (ROOT / "pyproject.toml").read_text().replace('"msgspec', '"left-pad>=1", "msgspec')
    (tmp_path / "pyproject.toml").write_text(wanted)
    (problem,) = check_installed("--requirement", str(tmp_path / "pyproject.toml"))
    assert "left-pad" in problem


# -- licences ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "good"),
    [
        ("MIT", True),
        ("GPL-3.0-only", False),
        ("MIT OR GPL-3.0-only", True),
        ("GPL-3.0-only OR MIT", True),
        ("MIT AND GPL-3.0-only", False),
        ("BSD-2-Clause AND Apache-2.0 WITH LLVM-exception", True),
        ("GPL-2.0-only WITH Classpath-exception-2.0", False),
        ("(MIT OR GPL-3.0-only) AND Apache-2.0", True),
        ("(MIT OR Apache-2.0) AND GPL-3.0-only", False),
        ("GPL-3.0-only AND MIT OR Apache-2.0", True),
        ("MIT GPL-3.0-only", False),
        ("(MIT", False),
        ("", False),
    ],
)
def test_a_licence_has_to_leave_a_choice_that_is_allowed(expression: str, good: bool, policy: dict[str, Any]) -> None:
    assert is_allowed(expression, policy["allowed_licences"]) == good


def component(name: str, *licences: dict[str, str]) -> dict[str, Any]:
    """A package as cyclonedx-py describes it."""
    return {"purl": f"pkg:pypi/{name}@1", "licenses": [{"license": each} for each in licences]}


@pytest.mark.parametrize(
    ("package", "expected"),
    [
        (component("some", {"id": "MIT"}), "MIT"),
        (component("some", {"id": "MIT"}, {"name": "License :: DFSG approved"}), "MIT"),
        (component("some", {"name": "License :: OSI Approved :: Apache Software License"}), "Apache-2.0"),
        (component("some", {"name": "License :: OSI Approved :: BSD License"}), ""),
        (component("jinja2", {"name": "License :: OSI Approved :: BSD License"}), "BSD-3-Clause"),
        (component("some") | {"licenses": [{"expression": "MIT OR ISC"}]}, "MIT OR ISC"),
        (component("some"), ""),
    ],
)
def test_a_licence_is_that_of_the_policy_or_of_the_metadata(
    package: dict[str, Any], expected: str, policy: dict[str, Any]
) -> None:
    assert licence_of(package, policy) == expected


@pytest.mark.parametrize(
    ("name", "licences", "word"),
    [
        ("some", [{"expression": "GPL-3.0-only"}], "some: its licence GPL-3.0-only is not among those allowed"),
        ("some", [], "some: its metadata name no clear licence"),
        ("some", [{"expression": "MPL-2.0"}], "MPL-2.0 is not among those allowed"),
    ],
)
def test_a_licence_that_is_not_allowed_or_not_clear_is_noticed(
    name: str, licences: list[dict[str, str]], word: str, policy: dict[str, Any]
) -> None:
    (problem,) = check_licences([{"purl": f"pkg:pypi/{name}@1", "licenses": licences}], policy)
    assert word in problem


def test_a_licence_may_be_allowed_for_one_package(policy: dict[str, Any]) -> None:
    assert check_licences([{"purl": "pkg:pypi/certifi@1", "licenses": [{"expression": "MPL-2.0"}]}], policy) == []


# -- advisories -------------------------------------------------------------------------------------------------------

HOLE = {
    "id": "PYSEC-2026-1",
    "aliases": ["CVE-2026-1"],
    "package": "some",
    "summary": "a hole",
    "versions": ["0.9rc1"],
    "ranges": [[{"introduced": "0"}, {"fixed": "1.2"}, {"introduced": "2.0"}, {"last_affected": "2.3"}]],
}


def check_version(version: str, **options: Any) -> Any:
    """The findings about a version of a package with a hole."""
    known = {"date": TODAY.isoformat(), "advisories": [HOLE]} | options.pop("known", {})
    return check_advisories({"some": version}, known, options.get("accepted", {}), TODAY)


@pytest.mark.parametrize("version", ["0.1", "0.9rc1", "1.1.9", "2.0", "2.3"])
def test_a_version_with_a_known_hole_is_noticed(version: str) -> None:
    assert check_version(version).problems == [f"some {version}: CVE-2026-1 PYSEC-2026-1: a hole"]


@pytest.mark.parametrize("version", ["1.2", "1.9", "2.3.1", "3"])
def test_a_version_without_the_hole_passes(version: str) -> None:
    findings = check_version(version)
    assert findings.problems == []
    assert findings.notes == ["known vulnerabilities: 1 advisories as of 2026-06-01"]


def test_a_hole_may_be_accepted_with_a_reason() -> None:
    assert check_version("1.0", accepted={"CVE-2026-1": "we do not call that"}).problems == []


def test_an_old_list_is_worth_a_warning() -> None:
    old = {"date": (TODAY - datetime.timedelta(days=31)).isoformat()}
    assert any(note.startswith("WARNING: that is 31 days ago") for note in check_version("3", known=old).notes)


def test_it_is_said_that_nothing_was_checked_without_a_list() -> None:
    findings = check_advisories({}, None, {}, TODAY)
    assert findings.problems == []
    assert "NOT checked" in findings.notes[0]


def answer_query(request: Request) -> tuple[int, dict[str, Any]]:
    """Speak as osv.dev does, with two pages about one package."""
    asked = json.loads(request.body)
    assert asked["package"]["ecosystem"] == "PyPI"
    if asked["package"]["name"] != "some":
        return 200, {}
    if asked.get("page_token") != "next":
        withdrawn = {"id": "OLD", "withdrawn": "2026-01-01", "affected": []}
        return 200, {"vulns": [withdrawn], "next_page_token": "next"}
    ours = {
        "package": {"name": "Some", "ecosystem": "PyPI"},
        "versions": HOLE["versions"],
        "ranges": [
            {"type": "GIT", "events": [{"introduced": "0"}]},
            {"type": "ECOSYSTEM", "events": HOLE["ranges"][0]},
        ],
    }
    other = {"package": {"name": "other", "ecosystem": "PyPI"}, "versions": ["5"], "ranges": []}
    hole = {"id": HOLE["id"], "aliases": HOLE["aliases"], "summary": "a hole", "affected": [ours, other]}
    return 200, {"vulns": [hole]}


@pytest.fixture
def osv() -> Iterator[str]:
    """Where advisories are to be had."""
    with StubServer(answer_query) as server:
        yield f"{server.url}/v1/query"


def test_advisories_are_fetched_for_every_package(osv: str) -> None:
    known = fetch_advisories(["some", "flask"], TODAY, osv)
    assert known == {"date": "2026-06-01", "source": "osv.dev", "advisories": [HOLE]}


def test_it_is_said_that_advisories_cannot_be_fetched(osv: str) -> None:
    with pytest.raises(CheckError, match="cannot be fetched"):
        fetch_advisories(["some"], TODAY, "http://127.0.0.1:9/v1/query")
    with pytest.raises(CheckError, match="cannot be fetched"):
        fetch_advisories(["some"], TODAY, osv.replace("/v1/query", "").replace("http", "nothing"))
