"""The files in config/deploy agree with the program, with the documentation, and with itself."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from hived import __version__
from hived_cli.serve import command
from hived_deploy.installation import deploy_folder, is_of_tenants
from hived_deploy.kustomize import build
from hived_extender.api.paths import (
    CONFIG_PATH,
    DEFRAG_PATH,
    DEFRAG_STOP_PATH,
    PAGE_CANCEL_PATH,
    PAGE_CONFIG_PLAN_PATH,
    PAGE_CONFIG_PUSH_PATH,
    PAGE_PATH,
    PAGE_QUEUE_CHANGES_PATH,
    PAGE_SUBMIT_PATH,
    QUEUE_CHANGES_PATH,
)
from hived_extender.http.access import DEFAULT_VERB_CALLERS
from hived_extender.http.routes import ROUTES
from hived_extender.jobs.kinds.table import OBJECTS
from tests.deploy.installations import DEPLOY, FOLDERS, ROOT
from tests.deploy.rules import of_kind

INSTALL = (ROOT / "docs" / "install.md").read_text()
SECURITY = (ROOT / "docs" / "security.md").read_text()
RBAC_FILES = sorted(DEPLOY.rglob("*rbac.yaml"))


def rule_nodes(file: Path) -> list[tuple[str, yaml.Node, dict[str, Any]]]:
    """(role, node, rule) of each RBAC rule in a file."""
    found = []
    for document in yaml.compose_all(file.read_text()):
        values = {key.value: value for key, value in document.value}
        if "rules" in values:
            name = next(value.value for key, value in values["metadata"].value if key.value == "name")
            nodes = values["rules"].value
            found += [(name, node, yaml.safe_load(yaml.serialize(node))) for node in nodes]
    return found


@pytest.mark.parametrize("file", RBAC_FILES, ids=lambda file: file.name)
def test_every_rule_has_its_reason_above_it(file: Path) -> None:
    lines = file.read_text().splitlines()
    without = [name for name, node, _ in rule_nodes(file) if not lines[node.start_mark.line - 1].startswith("# ")]
    assert not without


def test_there_are_no_rules_but_those_in_these_files() -> None:
    known = [rule for file in RBAC_FILES for _, _, rule in rule_nodes(file)]
    found = [
        rule
        for folder in FOLDERS.values()
        for _, role in of_kind(build(folder), "Role", "ClusterRole")
        for rule in role["rules"]
    ]
    assert found
    assert [rule for rule in found if rule not in known] == []


def test_every_rule_is_documented_verb_by_verb() -> None:
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in INSTALL.splitlines() if line.startswith("| ")]
    documented = {(frozenset(row[1].split(", ")), frozenset(re.split(", only.*|, ", row[2])) - {""})
                  for row in rows if len(row) == 4}  # fmt: skip
    rules = [rule for file in RBAC_FILES for _, _, rule in rule_nodes(file)]
    granted = {
        (frozenset(rule["verbs"]), frozenset(rule.get("resources") or rule["nonResourceURLs"])) for rule in rules
    }
    assert granted - documented == set()


def test_the_table_of_what_a_thief_could_do_has_exactly_the_rights_of_the_account() -> None:
    rows = [
        [cell.strip(" `") for cell in line.split("|")[1:-1]] for line in SECURITY.splitlines() if "| `hived" in line
    ]
    told = {(role, may, on) for role, may, on, *_ in (row for row in rows if len(row) == 5)}
    account = ("extender-rbac.yaml", "queues-rbac.yaml", "kueue-rbac.yaml")
    granted = {
        (role, ", ".join(rule["verbs"]), ", ".join(rule["resources"]))
        for file in RBAC_FILES
        if file.name in account
        for role, _, rule in rule_nodes(file)
        if role in ("hived", "hived-queues", "hived-kueue") or is_of_tenants(role)
    }
    assert told == granted


def test_every_kind_of_gang_objects_can_be_followed() -> None:
    (role,) = [each for name, each in of_kind(build(DEPLOY), "ClusterRole") if name == "ClusterRole/hived"]
    allowed = {
        (group, plural)
        for rule in role["rules"]
        if {"list", "watch"} <= set(rule["verbs"])
        for group in rule["apiGroups"]
        for plural in rule["resources"]
    }
    assert {(kind.group, kind.plural) for kind in OBJECTS} <= allowed


PAGE_POSTS = (
    PAGE_CONFIG_PLAN_PATH,
    PAGE_CONFIG_PUSH_PATH,
    PAGE_QUEUE_CHANGES_PATH,
    PAGE_SUBMIT_PATH,
    PAGE_CANCEL_PATH,
)


def allowed(role: str) -> set[tuple[str, str]]:
    """(verb, path) that a ClusterRole allows."""
    rules = dict(of_kind(build(DEPLOY), "ClusterRole"))[f"ClusterRole/{role}"]["rules"]
    return {(verb, path) for rule in rules for verb in rule["verbs"] for path in rule["nonResourceURLs"]}


def test_who_administers_may_call_every_path_of_the_configuration_and_who_looks_all_that_change_nothing() -> None:
    routes = [route for route in ROUTES if route.path.startswith((CONFIG_PATH, DEFRAG_PATH, QUEUE_CHANGES_PATH))]
    paths = {(route.method.lower(), route.path.replace("{name}", "*")) for route in routes}
    paths |= {("get", "/"), ("get", f"{PAGE_PATH}/*")}
    paths |= {("post", path) for path in PAGE_POSTS}
    assert allowed("hived-admin") == paths
    changing = (CONFIG_PATH, PAGE_CONFIG_PUSH_PATH, DEFRAG_PATH, DEFRAG_STOP_PATH)  # owners may hold their own jobs
    assert paths - allowed("hived-viewer") == {("post", path) for path in changing}


def test_the_image_has_the_version_of_the_program() -> None:
    images = [
        each["spec"]["template"]["spec"]["containers"][0]["image"] for _, each in of_kind(build(DEPLOY), "Deployment")
    ]
    assert f"hived:{__version__}" in images


def extender_args(overlay: str) -> list[str]:
    (deployment,) = [
        each for name, each in of_kind(build(FOLDERS[overlay]), "Deployment") if name == "Deployment/hived"
    ]
    args: list[str] = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    return args


@pytest.mark.parametrize("overlay", FOLDERS)
def test_the_extender_gets_options_that_it_has(overlay: str) -> None:
    known = {name for parameter in command.params for name in parameter.opts}
    serve, *options = extender_args(overlay)
    assert serve == "serve"
    assert [each for each in options if each.partition("=")[0] not in known] == []


def test_tls_adds_options_and_changes_none() -> None:
    plain, tls = extender_args("overlay ha"), extender_args("overlay tls")
    assert tls[: len(plain)] == plain
    (name,) = [each.partition("=")[2] for each in tls if each.startswith("--allowed-client-name=")]
    assert name in DEFAULT_VERB_CALLERS


def test_with_tls_the_configuration_of_kube_scheduler_differs_in_how_it_calls_the_extender() -> None:
    base, tls = (
        yaml.safe_load((DEPLOY / folder / "kube-scheduler-config.yaml").read_text())
        for folder in ("base", "components/tls")
    )
    assert {key for key in base if base[key] != tls[key]} == {"extenders"}
    changed = {key for key in base["extenders"][0] if base["extenders"][0][key] != tls["extenders"][0][key]}
    assert changed == {"urlPrefix", "enableHTTPS"}


def test_the_manifests_of_a_checkout_are_those_of_config_deploy() -> None:
    assert deploy_folder() == DEPLOY
