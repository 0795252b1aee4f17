"""Every check of dependencies notices a planted violation, and what is locked passes them."""

import datetime
import json
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from delivery import locking
from delivery.advisories import check_advisories, fetch_advisories
from delivery.checks import check, check_installed, check_locks
from delivery.licences import check_licences, is_allowed
from delivery.locks import TARGETS, Pin, closure, environment_of, marker_for, read_lock, roots, write_lock
from delivery.project import CheckError, read_pyproject
from tests.places import ROOT
from tests.stub_server import Request, StubServer

TODAY = datetime.date(2026, 6, 1)
HASHES = ("sha256:" + "a" * 64,)


@pytest.fixture(scope="module")
def locks() -> dict[str, dict[str, Any]]:
    """The lock files that are committed."""
    names = ("requirements.lock", "build.lock", "dev.lock")
    return {name: read_lock((ROOT / ".ci" / name).read_text()) for name in names}


@pytest.fixture(scope="module")
def wanted() -> dict[str, list[Requirement]]:
    """The requirements in pyproject.toml."""
    found: dict[str, list[Requirement]] = roots(read_pyproject(ROOT))
    return found


@pytest.fixture
def policy() -> dict[str, Any]:
    """The policy that is committed."""
    read: dict[str, Any] = json.loads((ROOT / ".ci" / "policy.json").read_text())
    return read


# -- what is committed ------------------------------------------------------------------------------------------------


def test_everything_that_is_locked_passes() -> None:
    findings = check(ROOT, TODAY)
    assert findings.problems == []
    assert any("packages are locked" in note for note in findings.notes)


def test_no_index_is_named_in_a_lock() -> None:
    for path in (ROOT / ".ci").glob("*.lock"):
        assert "//" not in path.read_text()


def test_compiled_packages_have_wheels_for_every_python_and_platform(locks: dict[str, dict[str, Any]]) -> None:
    assert len(locks["requirements.lock"]["numpy"].hashes) == len(TARGETS)


# -- lock files -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("flask>=3 --hash=sha256:" + "a" * 64, "pins nothing"),
        ("flask==3", "flask has no SHA-256 digest"),
        ("flask==3 --hash=md5:" + "a" * 32, "md5"),
        ("flask==3 --hash=sha256:" + "a" * 63, "sha256"),
        ("--index-url https://example.com flask==3", "pins nothing"),
        ("flask @ https://example.com/flask.whl", "pins nothing"),
        ("flask==3 --hash=sha256:{0}\nFlask==4 --hash=sha256:{0}".format("a" * 64), "pinned twice"),
    ],
)
def test_a_line_that_is_no_pin_with_a_digest_is_refused(line: str, word: str) -> None:
    with pytest.raises(CheckError, match=word):
        read_lock(line)


def test_a_lock_is_read_as_it_was_written() -> None:
    pins = {
        "a": Pin("a", "1.0", "", HASHES),
        "b": Pin("b", "2", marker_for({("3.11", "linux-x86_64")}), (*HASHES, "sha256:" + "b" * 64)),
    }
    assert read_lock(write_lock("dev.lock", pins.values())) == pins


@pytest.mark.parametrize(
    "targets",
    [
        set(TARGETS),
        {each for each in TARGETS if each[0] == "3.11"},
        {each for each in TARGETS if each[1] == "macos-arm64"},
        {("3.12", "linux-aarch64"), ("3.13", "linux-x86_64")},
    ],
)
def test_a_marker_holds_on_the_targets_that_need_a_package_and_nowhere_else(targets: set[tuple[str, str]]) -> None:
    pin = Pin("some", "1", marker_for(targets))
    assert {each for each in TARGETS if pin.applies(environment_of(*each))} == targets


def test_all_that_is_needed_is_found_with_extras_and_markers() -> None:
    requires = {
        "server": ["loop; extra == 'standard' and sys_platform != 'win32'", "h11", "colorama; extra == 'color'"],
        "h11": ["backport; python_version < '3.12'"],
        "loop": ["server"],
    }
    asked = [Requirement("server[standard]")]
    names = {
        python: set(closure(asked, requires, environment_of(python, "linux-x86_64"))) for python in ("3.11", "3.12")
    }
    assert names == {"3.11": {"server", "loop", "h11", "backport"}, "3.12": {"server", "loop", "h11"}}


def test_pins_are_kept_unless_they_are_not_allowed_any_more(tmp_path: Path) -> None:
    pins = [Pin("a", "1.5", "", HASHES), Pin("b", "1.5", "", HASHES), Pin("c", "7", "", HASHES)]
    (tmp_path / "dev.lock").write_text(write_lock("dev.lock", pins))
    assert locking._kept(tmp_path, [Requirement("a<2"), Requirement("b>=2")]) == {"a": "1.5", "c": "7"}


# -- locks against pyproject.toml and what is installed ---------------------------------------------------------------


def test_a_version_outside_the_bounds_is_noticed(
    locks: dict[str, dict[str, Any]], wanted: dict[str, list[Requirement]]
) -> None:
    bounded = wanted | {"requirements.lock": [*wanted["requirements.lock"], Requirement("numba<0.1")]}
    (problem,) = check_locks(locks, bounded)
    assert "numba" in problem
    assert "numba<0.1: make lock" in problem


def test_a_dependency_that_is_not_locked_is_noticed(
    locks: dict[str, dict[str, Any]], wanted: dict[str, list[Requirement]]
) -> None:
    more = wanted | {"build.lock": [*wanted["build.lock"], Requirement("left-pad>=1")]}
    assert check_locks(locks, more) == ["build.lock: left-pad>=1 is not in it: make lock"]


def test_locks_that_disagree_are_noticed(
    locks: dict[str, dict[str, Any]], wanted: dict[str, list[Requirement]]
) -> None:
    other = Pin("flask", locks["dev.lock"]["flask"].version, "", HASHES)
    changed = locks | {"requirements.lock": locks["requirements.lock"] | {"flask": other}}
    assert check_locks(changed, wanted) == ["requirements.lock: flask is not the same in dev.lock: make lock"]


def test_what_is_not_installed_as_it_is_locked_is_noticed() -> None:
    installed = metadata.version("packaging")
    pins = {
        "packaging": Pin("packaging", "0.1"),
        "left-pad": Pin("left-pad", "1"),
        "elsewhere": Pin("elsewhere", "1", 'python_version == "2.7"'),
    }
    assert check_installed(pins) == [
        f"packaging 0.1 is locked, but {installed} is installed: make setup",
        "left-pad 1 is locked, but not installed: make setup",
    ]


def test_what_an_installed_package_needs_has_to_be_locked() -> None:
    (problem,) = check_installed({"jinja2": Pin("jinja2", metadata.version("jinja2"))})
    assert problem.lower() == "jinja2 needs markupsafe, which is not locked: make lock"


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


def test_a_licence_that_is_not_allowed_is_noticed(policy: dict[str, Any]) -> None:
    policy["allowed_licences"].remove("BSD-3-Clause")
    problems = check_licences({"flask": Pin("flask", "1"), "pytest": Pin("pytest", "1")}, policy)
    assert problems == ["flask: its licence BSD-3-Clause is not among those allowed in .ci/policy.json"]


def test_a_licence_that_is_not_clear_is_noticed(policy: dict[str, Any]) -> None:
    del policy["licences"]["jinja2"]
    (problem,) = check_licences({"jinja2": Pin("jinja2", "1")}, policy)
    assert problem.startswith("jinja2: its metadata name no clear licence")


def test_the_licence_of_a_package_that_is_not_installed_has_to_be_in_the_table(policy: dict[str, Any]) -> None:
    (problem,) = check_licences({"left-pad": Pin("left-pad", "1")}, policy)
    assert problem.startswith("left-pad: not installed")
    policy["licences"]["left-pad"] = "MIT"
    assert check_licences({"left-pad": Pin("left-pad", "1")}, policy) == []


def test_a_licence_may_be_allowed_for_one_package(policy: dict[str, Any]) -> None:
    pins = {"certifi": Pin("certifi", "1")}
    assert check_licences(pins, policy) == []
    policy["allowed_for"] = {}
    assert "MPL-2.0" in check_licences(pins, policy)[0]


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
    return check_advisories({"some": Pin("some", version)}, known, options.get("accepted", {}), TODAY)


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
