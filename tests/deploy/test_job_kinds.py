"""Every kind of job object has its rules in config/deploy and in the chart, and no other kind has any."""

import re
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from hived_extender.jobs.job import JobRef
from hived_extender.jobs.kinds import dlrover
from hived_extender.jobs.kinds.kind import Kind, Switch, Verb, kind_with
from hived_extender.jobs.kinds.table import KINDS
from tests.deploy.installations import DEPLOY
from tests.places import ROOT

CHART = ROOT / "charts" / "hived" / "templates"
Rule = dict[str, Any]


class Place(NamedTuple):
    """The object `name` in two files; `wording` is a rule of it for a kind, without group and resource.

    Rules of the groups `others` are of no kind of job.
    """

    deploy: Path
    chart: Path
    name: str
    wording: Rule
    others: tuple[str, ...] = ()


RIGHTS = DEPLOY / "components" / "queues-rbac" / "queues-rbac.yaml"
POLICY = Place(
    DEPLOY / "base" / "own-writes-policy.yaml",
    CHART / "validatingadmissionpolicy.yaml",
    "hived-own-writes",
    {"apiVersions": ["*"], "operations": ["CREATE", "UPDATE"]},
    ("scheduling.volcano.sh",),
)
PLACES = (
    Place(
        RIGHTS,
        CHART / "clusterrole.yaml",
        "hived-queues",
        {"verbs": ["get", "list", "watch"]},
        ("scheduling.k8s.io", "scheduling.sigs.k8s.io"),
    ),
    Place(RIGHTS, CHART / "clusterrole.yaml", "hived-tenants-queues", {"verbs": ["patch"]}),
    Place(
        DEPLOY / "components" / "queue-webhook" / "jobs.yaml",
        CHART / "mutatingwebhookconfiguration.yaml",
        "jobs.hivedscheduler.microsoft.com",
        {"operations": ["CREATE"], "scope": "Namespaced"},
    ),
    POLICY,
)
FILES = [
    pytest.param(place, file, id=f"{place.name} {file.name}")
    for place in PLACES
    for file in (place.deploy, place.chart)
]
NEW = tuple(
    kind_with(Switch(plural, path), group, kind, ("v7",), lambda _, document: dlrover.ELASTIC_JOB.read(document))
    for plural, path, group, kind in (
        ("experiments", ("spec", "runPolicy", "suspend"), "lab.example.org", "Experiment"),
        ("sweeps", ("spec", "suspend"), "kubeflow.org", "Sweep"),
    )
)
"""A kind of a new group, and one of a group that is there."""


def documents(file: Path) -> list[Rule]:
    """The objects of a file; a template of the chart is read without its expressions."""
    return [each for each in yaml.safe_load_all(re.sub(r"\{\{.*?\}\}", "", file.read_text())) if each]


def rules_of(place: Place, file: Path) -> list[Rule]:
    """The rules of a place with its wording, in one of its files."""
    objects = [each for each in documents(file) if not each["kind"].endswith("Binding")]
    named = {each["metadata"]["name"]: each for each in objects}
    named |= {each["name"]: each for one in objects for each in one.get("webhooks", ())}
    found = named[place.name]
    rules: list[Rule] = found["rules"] if "rules" in found else found["spec"]["matchConstraints"]["resourceRules"]
    return [each for each in rules if place.wording.items() <= each.items()]


def covers(rule: Rule, kind: Kind, version: str) -> bool:
    """Are objects of the kind with this version among those of the rule?"""
    versions, plurals = rule.get("apiVersions", ["*"]), rule["resources"]
    is_there = not {"*", version}.isdisjoint(versions) and not {"*", kind.plural}.isdisjoint(plurals)
    return kind.group in rule["apiGroups"] and is_there


def faults(place: Place, file: Path, kinds: Sequence[Kind]) -> list[str]:
    """The rules that a file lacks for these kinds, as text to add, and the resources in it that are of none."""
    where, rules, found = f"{file.relative_to(ROOT)}, {place.name}", rules_of(place, file), []
    for kind, version in [(each, version) for each in kinds for version in each.versions]:
        if not any(covers(each, kind, version) for each in rules):
            versions = {} if "verbs" in place.wording else {"apiVersions": [version]}
            rule = {"apiGroups": [kind.group], "resources": [kind.plural], **versions, **place.wording}
            text = yaml.safe_dump([rule], default_flow_style=None, sort_keys=False)
            found.append(f"{where}: no rule for {kind.kind}, add\n{text}")
    for rule in rules:
        for group, version, plural in product(rule["apiGroups"], rule.get("apiVersions", ["*"]), rule["resources"]):
            theirs = [each for each in kinds if each.group == group]
            has_plural = any(plural in ("*", each.plural) for each in theirs)
            has_version = any(version in ("*", *each.versions) for each in theirs)
            if group not in place.others and not (has_plural and has_version):
                found.append(f"{where}: {plural} of {group}/{version} is of no kind in kinds/table.py")
    return found


def forbidden(file: Path, kinds: Sequence[Kind]) -> list[str]:
    """The fields that suspend these kinds, but not by the policy in a file, with the text to add."""
    (policy,) = [
        each
        for each in documents(file)
        if each["kind"] == "ValidatingAdmissionPolicy" and each["metadata"]["name"] == POLICY.name
    ]
    (fields,) = [
        each["expression"] for each in policy["spec"]["validations"] if "variables.fields" in each["expression"]
    ]
    found = []
    for kind in kinds:
        job = JobRef(kind.api_versions[0], kind.kind, "team", "train", "uid")
        writes = [each for each in (*kind.suspend(job, {}, ""), *kind.resume(job, {}, "")) if each.verb is Verb.PATCH]
        for field in sorted({field for each in writes for field in each.body.get("spec", {})} - {"suspend"}):
            text = f"request.resource.group == '{kind.group}' ? key == '{field}'"
            if text not in fields:
                found.append(f"{file.relative_to(ROOT)}, {POLICY.name}: {kind.kind} is refused, add {text}")
    return found


@pytest.mark.parametrize(("place", "file"), FILES)
def test_exactly_the_kinds_of_the_table_have_rules(place: Place, file: Path) -> None:
    assert not (found := faults(place, file, KINDS)), "\n".join(found)


@pytest.mark.parametrize(("place", "file"), FILES)
def test_a_kind_in_the_table_alone_is_noticed_everywhere_and_so_are_rules_without_a_kind(
    place: Place, file: Path
) -> None:
    found = faults(place, file, (*KINDS, *NEW))
    noticed = [each.kind for each in NEW if any(f"no rule for {each.kind}," in fault for fault in found)]
    assert noticed == ["Experiment", *(["Sweep"] if place is not POLICY else [])]  # it has all of kubeflow.org
    assert any("is of no kind" in each for each in faults(place, file, KINDS[1:]))


@pytest.mark.parametrize("file", [POLICY.deploy, POLICY.chart], ids=lambda file: file.name)
def test_the_policy_allows_the_field_that_suspends_a_kind(file: Path) -> None:
    assert not (found := forbidden(file, KINDS)), "\n".join(found)
    (refused,) = forbidden(file, NEW[:1])
    assert refused.endswith("add request.resource.group == 'lab.example.org' ? key == 'runPolicy'")


def test_every_kind_is_on_the_page_of_jobs_that_wait_in_queues() -> None:
    rows = [line for line in (ROOT / "docs" / "queued-jobs.md").read_text().splitlines() if line.startswith("| ")]
    missing = [
        f"docs/queued-jobs.md: no row for {kind.kind} (`{kind.group}/{version}`)"
        for kind in KINDS
        for version in kind.versions
        if not any(kind.kind in row and f"`{kind.group}/" in row and f"{version}`" in row for row in rows)
    ]
    assert not missing, "\n".join(missing)
