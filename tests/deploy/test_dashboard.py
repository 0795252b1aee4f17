"""The dashboard for Grafana, and the alerts: their forms, and no expression about a metric that is not served."""

import re
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import jsonschema
import msgspec
import pytest
import yaml

from docs.site.pages import Page
from hived_extender.insight.history import HistoryRings, Sampler
from hived_extender.kube.metrics import QueueGauges
from tests.extender.machine.small_cluster import SmallCluster
from tests.places import ROOT

Json = dict[str, Any]

DASHBOARD: Json = msgspec.json.decode((ROOT / "config" / "deploy" / "grafana" / "hived.json").read_bytes())
PANELS: list[Json] = DASHBOARD["panels"]
MONITOR = ROOT / "config" / "deploy" / "components" / "service-monitor"
ALERTS: list[Json] = [
    rule for group in yaml.safe_load((MONITOR / "alerts.yaml").read_text())["spec"]["groups"] for rule in group["rules"]
]

DATASOURCE = {
    "type": "object",
    "properties": {"type": {"const": "prometheus"}, "uid": {"const": "${datasource}"}},
    "required": ["type", "uid"],
    "additionalProperties": False,
}
TARGET = {
    "type": "object",
    "properties": {
        "refId": {"type": "string", "pattern": "^[A-Z]$"},
        "datasource": DATASOURCE,
        "expr": {"type": "string", "minLength": 1},
        "legendFormat": {"type": "string"},
    },
    "required": ["refId", "datasource", "expr"],
}
PANEL = {
    "type": "object",
    "properties": {
        "id": {"type": "integer", "minimum": 1},
        "type": {"enum": ["row", "stat", "timeseries"]},
        "title": {"type": "string", "minLength": 1},
        "gridPos": {
            "type": "object",
            "properties": {
                "x": {"type": "integer", "minimum": 0, "maximum": 23},
                "y": {"type": "integer", "minimum": 0},
                "w": {"type": "integer", "minimum": 1, "maximum": 24},
                "h": {"type": "integer", "minimum": 1},
            },
            "required": ["x", "y", "w", "h"],
        },
    },
    "required": ["id", "type", "title", "gridPos"],
    "if": {"properties": {"type": {"const": "row"}}},
    "then": {"properties": {"panels": {"type": "array"}, "collapsed": {"type": "boolean"}}, "required": ["panels"]},
    "else": {
        "properties": {
            "datasource": DATASOURCE,
            "targets": {"type": "array", "items": TARGET, "minItems": 1},
            "fieldConfig": {"type": "object", "required": ["defaults", "overrides"]},
            "options": {"type": "object"},
        },
        "required": ["datasource", "targets", "fieldConfig", "options"],
    },
}
VARIABLE = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z]+$"},
        "type": {"enum": ["datasource", "query"]},
        "refresh": {"enum": [1, 2]},
        "hide": {"const": 0},
    },
    "required": ["name", "type", "query", "refresh", "current", "options"],
}
FORM = {
    "type": "object",
    "properties": {
        "uid": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,40}$"},
        "id": {"const": None},
        "title": {"type": "string", "minLength": 1},
        "schemaVersion": {"type": "integer", "minimum": 36, "maximum": 42},
        "version": {"type": "integer"},
        "panels": {"type": "array", "items": PANEL},
        "templating": {"type": "object", "properties": {"list": {"type": "array", "items": VARIABLE}}},
        "time": {"type": "object", "required": ["from", "to"]},
        "annotations": {
            "type": "object",
            "properties": {
                "list": {
                    "type": "array",
                    "items": {"type": "object", "required": ["name", "datasource", "enable", "iconColor", "expr"]},
                }
            },
        },
    },
    "required": ["uid", "title", "schemaVersion", "panels", "templating", "time", "annotations"],
}

METRIC = re.compile(r"\bhived_[a-z_]+\b")
SELECTOR = re.compile(r"(hived_[a-z_]+)\{([^}]*)\}")
GROUPING = re.compile(r"by \(([a-z_, ]+)\)")
LEGEND = re.compile(r"\{\{([a-z_]+)\}\}")


def expressions() -> Iterator[tuple[str, str]]:
    """Every expression with its legend."""
    for panel in PANELS:
        for target in panel.get("targets", ()):
            yield target["expr"], target["legendFormat"]
    for annotation in DASHBOARD["annotations"]["list"]:
        yield annotation["expr"], ""
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["definition"], ""
    for rule in ALERTS:
        yield (
            rule["expr"],
            re.sub(r"\$labels\.", "", rule["annotations"]["summary"]).replace("{{ ", "{{").replace(" }}", "}}"),
        )


def served() -> set[str]:
    """The names of all series of a service, those without values among them."""
    cluster = SmallCluster()
    Sampler(cluster.service, HistoryRings())
    cluster.service.metrics.observe_queues(QueueGauges)
    names = set()
    for line in cluster.service.metrics.text().decode().splitlines():
        if line.startswith("# TYPE"):
            _, _, name, kind = line.split()
            names |= {f"{name}_bucket", f"{name}_sum", f"{name}_count"} if kind == "histogram" else {name}
    return names


def labels() -> dict[str, set[str]]:
    """The labels of each metric, as the page of metrics has them."""
    found: dict[str, set[str]] = {}
    for row in Page("docs/http.md").text.splitlines():
        cells = row.split("|")
        for name in re.findall(r"`(hived_[a-z_]+)`", cells[1]) if len(cells) > 3 else ():
            found[name] = set(re.findall(r"`([a-z_]+)`", cells[2])) | {"le"}
    return found


def test_grafana_imports_it() -> None:
    jsonschema.Draft202012Validator.check_schema(FORM)
    jsonschema.validate(DASHBOARD, FORM)


def test_panels_have_their_own_number_and_place() -> None:
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    places = [panel["gridPos"] for panel in PANELS]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    assert not [(one, other) for one, other in combinations(places, 2) if overlap(one, other)]


def overlap(one: Json, other: Json) -> bool:
    return all(
        one[start] < other[start] + other[size] and other[start] < one[start] + one[size]
        for start, size in (("x", "w"), ("y", "h"))
    )


def test_every_expression_names_metrics_that_are_served() -> None:
    names = served()
    for expression, _ in expressions():
        found = METRIC.findall(expression)
        assert found, expression
        assert set(found) <= names, expression


def test_every_expression_and_legend_names_labels_that_its_metric_has() -> None:
    known = labels()
    for expression, legend in expressions():
        name = re.sub(r"_(bucket|sum|count)$", "", METRIC.findall(expression)[0])
        for metric, selector in SELECTOR.findall(expression):
            assert set(re.findall(r"([a-z_]+)=", selector)) <= known[re.sub("_bucket$", "", metric)], expression
        grouped = [set(group.replace(" ", "").split(",")) for group in GROUPING.findall(expression)]
        assert all(group <= known[name] for group in grouped), expression
        kept = grouped[0] if grouped else set() if "sum(" in expression else known[name]
        assert set(LEGEND.findall(legend)) <= kept, (expression, legend)


@pytest.mark.parametrize("expression", [expression for expression, _ in expressions()])
def test_brackets_are_closed_and_variables_are_known(expression: str) -> None:
    for opened, closed in ("()", "[]", "{}"):
        assert expression.count(opened) == expression.count(closed)
    variables = {each["name"] for each in DASHBOARD["templating"]["list"]} | {"__rate_interval"}
    assert set(re.findall(r"\$([a-z_]+)", expression)) <= variables


def test_waits_starts_losses_and_free_cells_are_shown() -> None:
    shown = " ".join(expression for expression, _ in expressions())
    for metric in (
        "hived_waiting_pods",
        "hived_start_delay_seconds_bucket",
        "hived_preempted_gpu_hours_total",
        "hived_free_cells",
    ):
        assert metric in shown


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: str(rule["alert"]))
def test_an_alert_says_what_is_wrong_and_is_on_the_page(rule: Json) -> None:
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert set(rule["annotations"]) == {"summary"}
    assert re.fullmatch(r"[1-9]\d*[mh]", rule.get("for", "1m"))
    row = f"| `{rule['alert']}` | {rule['labels']['severity']} | "
    (found,) = (line for line in Page("docs/install.md").text.splitlines() if line.startswith(row))
    assert re.search(r"\]\([a-z-]+\.md", found)


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: str(rule["alert"]))
def test_an_alert_of_a_counter_without_delay_counts_from_the_first_scrape(rule: Json) -> None:
    """A new process may count before the first scrape, and a series with labels begins at 1: neither is an increase."""
    if "for" not in rule and (found := re.match(r"increase\((.*)\[(\w+)\]\)", rule["expr"])):
        counter, time = found.groups()
        assert rule["expr"] == f"{found[0]} > 0 or {counter} > 0 unless {counter} offset {time}"
