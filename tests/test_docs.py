"""Every setting is documented, with its default."""

import json
import re

import msgspec
import pytest

from hived.values.specs import MAX_GUARANTEED_PRIORITY, MIN_GUARANTEED_PRIORITY
from hived_config import chains
from hived_config.access import PRIORITY_WORDS
from hived_config.rules import SCHEDULER_NAMES
from hived_config.settings import Settings
from hived_config.skus import GPU_RESOURCE
from hived_extender.jobs import annotations
from hived_extender.jobs import asks as requests
from hived_extender.jobs.annotations import OLD_SPELLINGS, PREFIX
from hived_extender.kube.events import MESSAGE_LIMIT
from hived_extender.machine.announcements import BOARD_LIMIT
from hived_extender.machine.notices import CONDITION_REASONS, CONDITION_TYPE, Pace, Reason
from hived_extender.queues.reasons import DEQUEUED, ENQUEUED, EVICTED, INSUFFICIENT
from tests.places import ROOT

CONFIGURATION = (ROOT / "docs" / "configuration.md").read_text()
PODS = (ROOT / "docs" / "pods.md").read_text()
EVENTS = (ROOT / "docs" / "events.md").read_text()


def rows(text: str, heading: str) -> dict[str, str]:
    """The rows of the tables under a heading of a page, by what their first column names."""
    section = re.split(r"^#", text.split(f"{heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]
    return {row[1]: row[0] for row in re.finditer(r"^\| `(\w+)` \|.*$", section, re.MULTILINE)}


@pytest.mark.parametrize(
    ("key", "default"),
    [
        ("webServerAddress", Settings().web_server_address),
        ("forcePodBindThreshold", Settings().force_pod_bind_threshold),
        ("waitingPodSchedulingBlockMilliSec", Settings().waiting_pod_block_ms),
        ("preemptionBy", Settings().preempt_by.value),
        ("podDisruptionBudgets", Settings().disruption_budgets.value),
        ("evictionGraceSeconds", Settings().eviction_grace_s),
        ("borrowedResources", Settings().borrowed_resources.value),
    ],
)
def test_the_default_of_a_setting_is_documented(key: str, default: object) -> None:
    assert f"| `{key}` | `{default}` |" in rows(CONFIGURATION, "## The document")[key]


def test_the_defaults_of_how_pods_are_read_are_documented() -> None:
    document = rows(CONFIGURATION, "## The document")
    assert f"`[{', '.join(SCHEDULER_NAMES)}]`" in document["schedulerNames"]
    numbers = {word: number for word, number in PRIORITY_WORDS.items() if number > 0}
    assert all(f"`{word}` ({number})" in document["priorityClasses"] for word, number in numbers.items())
    assert f"| `{GPU_RESOURCE}` |" in rows(CONFIGURATION, "### A SKU type")["resource"]


def test_annotations_that_say_what_a_pod_asks_for_are_documented() -> None:
    section = CONFIGURATION.split("## How other pods are read\n", 1)[1].split("\n### ", 1)[0]
    annotations = {requests.VIRTUAL_CLUSTER, requests.PRIORITY, requests.LEAF_CELL_TYPE, requests.PINNED_CELL}
    assert set(re.findall(rf"`({re.escape(PREFIX)}[\w-]+)`", section)) == annotations


@pytest.mark.parametrize(
    ("heading", "structs"),
    [("## Fields", [annotations._Spec]), ("### The affinity group", [annotations._Group, annotations._Member])],
)
def test_exactly_the_fields_of_the_pod_annotation_are_documented(
    heading: str, structs: list[type[msgspec.Struct]]
) -> None:
    fields = {each.encode_name for struct in structs for each in msgspec.structs.fields(struct)}
    assert rows(PODS, heading).keys() == fields


def test_the_old_spellings_of_the_pod_annotation_are_documented() -> None:
    today = rows(PODS, "## Fields").keys()
    section = PODS.split("## Old spellings\n", 1)[1].split("\n## ", 1)[0]
    documented = set(re.findall(r"`(gpu\w+)`", section))
    assert documented == {old for old, new in OLD_SPELLINGS.items() if new in today}


def test_the_defaults_of_the_pod_annotation_are_documented() -> None:
    text = '{"virtualCluster": "a", "leafCellNumber": 1}'
    spec = annotations.pod_request("", "p", "ns", {annotations.SCHEDULING_SPEC: text}).spec
    documented = rows(PODS, "## Fields")
    for name, default in {
        "priority": str(spec.priority),
        "lazyPreemptionEnable": str(spec.lazy_preemption).lower(),
        "ignoreK8sSuggestedNodes": str(spec.ignore_suggested_nodes).lower(),
        "gangReleaseEnable": str(spec.gang_release).lower(),
        "elastic": str(spec.elastic).lower(),
    }.items():
        assert f"| `{name}` | `{default}` |" in documented[name]
    required = {name for name, row in documented.items() if f"| `{name}` | required |" in row}
    assert required == set(json.loads(text))
    assert f"`{MIN_GUARANTEED_PRIORITY}` to `{MAX_GUARANTEED_PRIORITY}`" in documented["priority"]


def test_every_sample_cluster_is_listed() -> None:
    samples = {path.name for path in (ROOT / "config" / "samples").glob("*.yaml")}
    assert samples == set(re.findall(r"\]\(\.\./config/samples/([\w-]+\.yaml)\)", CONFIGURATION))


def test_limits_are_documented_as_they_are() -> None:
    assert f"at most {chains.MAX_LEVELS} levels" in CONFIGURATION
    assert f"at most {chains.MAX_CHILD_COUNT:,} children" in CONFIGURATION
    assert f"at most {chains.MAX_CELL_COUNT:,} cells" in CONFIGURATION
    assert f"{chains.MAX_NODE_COUNT:,} nodes" in CONFIGURATION
    assert f"at most {chains.MAX_PAIR_COUNT:,}:" in CONFIGURATION


def test_the_events_of_jobs_in_queues_are_documented() -> None:
    assert {ENQUEUED, DEQUEUED, EVICTED, INSUFFICIENT} <= rows(EVENTS, "## Events of queues").keys()


def test_exactly_the_reasons_of_events_are_documented_with_their_types() -> None:
    types = {name: row.split(" | ")[1] for name, row in rows(EVENTS, "## Events").items()}
    assert types == {reason.value: reason.event_type for reason in Reason}


def test_exactly_the_reasons_of_the_condition_are_documented() -> None:
    section = EVENTS.split("## The condition\n", 1)[1].split("```")[0]
    documented = {
        reason
        for row in re.findall(r"^\| `(?:True|False)` \|(.*?)\|", section, re.MULTILINE)
        for reason in re.findall(r"`(\w+)`", row)
    }
    assert documented == set(CONDITION_REASONS)
    assert f"The type is `{CONDITION_TYPE}`" in section


def test_limits_of_events_are_documented_as_they_are() -> None:
    pace = Pace()
    for text in (
        f"after {pace.repeat_s:.0f} s at the earliest",
        f"has {pace.burst} tokens and gets another one every {pace.refill_s / 60:.0f} minutes",
        f"leave {pace.reserve} of them",
        f"cut at {MESSAGE_LIMIT:,} bytes",
        f"more than {BOARD_LIMIT:,} pods",
    ):
        assert text in " ".join(EVENTS.split())
