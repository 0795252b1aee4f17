"""Names in the code of pages exist: keys, metrics, routes, variables, annotations, commands of others left aside.

`tests/net.txt` lists what users can touch. A page that names something else is stale, or speaks of others: their names
are in one table here, with those who have them.
"""

import re
from collections.abc import Callable, Iterator

import kubernetes.client
import pytest

from docs.site.pages import Page, pages
from tests.docs.others import FIELDS
from tests.places import ROOT

NET = (ROOT / "tests" / "net.txt").read_text().splitlines()
WORDS = frozenset(re.findall(r"\w+", "\n".join(NET)))
ROUTES = [re.compile(re.sub(r"<[^>]+>", ".+", line.split()[2])) for line in NET if line.startswith("route ")]
METRICS = frozenset(line.split()[2] for line in NET if line.startswith("metric "))
MODELS = [getattr(kubernetes.client, name) for name in dir(kubernetes.client)]
FIELDS_OF_KUBERNETES = frozenset(field for each in MODELS for field in getattr(each, "attribute_map", {}).values())

OTHERS = {
    "KubeSchedulerConfiguration": {
        "nodeCacheCapable", "managedResources", "podInitialBackoffSeconds", "podMaxBackoffSeconds", "serverName",
        "percentageOfNodesToScore", "minCandidateNodesPercentage", "tlsConfig",
    },
    "kubernetes' workload API": {"podGroupPolicy"},
    "batch systems": {"submitTime", "occupiedBy"},
    "virtual clusters of Philly": {"vcvGl", "vcvlY"},
    "a mistake that a page shows": {"leafCellTyp"},
    "the version of an example": {"vX"},
    "options of click and of the build, made of names": {
        "HIVED_TOKEN_FILE", "HIVED_CERTIFICATE_AUTHORITY", "HIVED_CLIENT_CERTIFICATE", "HIVED_CLIENT_KEY",
        "HIVED_WHEEL",
    },
    "a format of traces": {"hived_trace"},
    "OpenPAI": {"HIVED_WEBSERVICE_URI"},
}  # fmt: skip
"""Names on pages that are not hived's, by their owner."""

ABOUT_CODE = {"docs/house.md", "docs/service.md", "docs/alternatives.md", "docs/rules.md"}
"""Pages that name modules, classes and functions."""


def names_in(value: object) -> Iterator[str]:
    """The names of fields, at any depth."""
    if isinstance(value, dict):
        for name, below in value.items():
            yield name
            yield from names_in(below)


THEIRS = frozenset().union(*OTHERS.values(), *(names_in(each) for each in FIELDS.values()))


def is_key(name: str) -> bool:
    """A key of a configuration, of an object, or of an answer."""
    return name in WORDS or name in FIELDS_OF_KUBERNETES or name in THEIRS


def is_route(name: str) -> bool:
    """A path, or the beginning of one."""
    whole = name.rstrip("/.")
    return any(route.fullmatch(name) or route.pattern.startswith(whole) for route in ROUTES)


def is_metric(name: str) -> bool:
    """A metric, or what Prometheus makes of it; packages of the code are named alike."""
    plain = re.sub(r"_(total|bucket|sum|count|created)$", "", name)
    return plain in METRICS or name in METRICS | THEIRS or (ROOT / "extender" / name).is_dir()


KINDS: dict[str, tuple[str, Callable[[str], bool]]] = {
    "key": (r"(?<![\w/.-])[a-z]+[A-Z]\w*", is_key),
    "route": (r"(?:GET |POST |PUT |DELETE |^)(/(?:v1|page|healthz|readyz|metrics|openapi)[\w/.-]*)", is_route),
    "metric": (r"\bhived_[a-z_]+[a-z]", is_metric),
    "variable": (r"\bHIVED_[A-Z_]+[A-Z]", lambda name: name in WORDS or name in THEIRS),
    "annotation": (r"hivedscheduler\.microsoft\.com/[\w-]*\w", lambda name: any(name in line for line in NET)),
}


def unknown(page: Page, kind: str) -> list[str]:
    """The names of a kind in the code of a page that nobody has."""
    pattern, exists = KINDS[kind]
    return sorted({name for span in page.spans for name in re.findall(pattern, span) if not exists(name)})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("page", [page for page in pages() if page.path not in ABOUT_CODE], ids=lambda page: page.path)
def test_every_name_in_code_exists(page: Page, kind: str) -> None:
    assert unknown(page, kind) == []


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("key", "disruptionBudgets"), ("route", "/v1/inspect/nothing"), ("metric", "hived_nothing_total"),
        ("variable", "HIVED_NOTHING"), ("annotation", "hivedscheduler.microsoft.com/nothing"),
    ],
)  # fmt: skip
def test_a_name_that_nobody_has_is_found(kind: str, name: str) -> None:
    pattern, exists = KINDS[kind]
    assert [found for found in re.findall(pattern, name) if not exists(found)] == [name]


def test_names_of_others_are_still_on_a_page() -> None:
    texts = "\n".join(page.text for page in pages())
    assert [name for names in OTHERS.values() for name in sorted(names) if name not in texts] == []
