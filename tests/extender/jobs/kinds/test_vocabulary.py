"""Every key of each dialect is listed and treated so (rule 23.8), and the page on keys is made of the list."""

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from hived.values.errors import UserError
from hived_extender.jobs import kinds
from hived_extender.jobs.kinds import jobset, koordinator, kueue, marks, table
from hived_extender.jobs.kinds.kind import Key, Use
from hived_extender.jobs.wire import Pod, PodMetadata, PodSpec, SchedulingGroup, WorkloadRef
from tests.extender.jobs.kinds.descriptions import NAMESPACE, UID, VOCABULARY, describe, make_pod, podgroups
from tests.test_docs import ROOT

PAGE = ROOT / "docs" / "dialect-keys.md"
EVERY = [key for keys in VOCABULARY.values() for key in keys]
REFUSED = [key for key in EVERY if key.use is Use.REFUSED and not key.place.endswith("field")]
NOT_KEYS = {kueue.HOST, *kueue.GATES, marks.HELD, marks.SUSPEND}
"""Texts with a slash that are no keys of pods: a label of nodes, gates, marks of job objects."""

OF_JOBS = {"gangs", "gates", "kubeflow", "marks", "ray", "table"}
"""Modules without a dialect."""

REQUIRING = {
    koordinator.NETWORK_TOPOLOGY.name: '{"gatherStrategy": [{"layer": "spine", "strategy": "MustGather"}]}',
    "scheduling.koordinator.sh/device-joint-allocate": '{"deviceTypes": ["gpu"], "requiredScope": "SamePCIe"}',
    "scheduling.koordinator.sh/device-allocate-hint": '{"gpu": {"requiredTopologyScope": "PCIe"}}',
    "scheduling.koordinator.sh/gpu-partition-spec": '{"allocatePolicy": "Restricted"}',
    "scheduling.koordinator.sh/numa-topology-spec": '{"numaTopologyPolicy": "SingleNUMANode"}',
    "scheduling.koordinator.sh/resource-spec": '{"requiredCPUBindPolicy": "FullPCPUs"}',
    "volcano.sh/numa-topology-policy": "single-numa-node",
}
"""Values that require something, for keys of which others only prefer it."""

PREFERRING = [
    (koordinator.NETWORK_TOPOLOGY.name, '{"gatherStrategy": [{"layer": "spine", "strategy": "PreferGather"}]}'),
    ("scheduling.koordinator.sh/gpu-partition-spec", '{"allocatePolicy": "BestEffort"}'),
    ("scheduling.koordinator.sh/numa-topology-spec", '{"numaTopologyPolicy": "BestEffort"}'),
    ("scheduling.koordinator.sh/resource-spec", '{"preferredCPUBindPolicy": "FullPCPUs"}'),
    ("scheduling.koordinator.sh/device-allocate-hint", '{"gpu": {"allocateStrategy": "RequestsAsCount"}}'),
    ("volcano.sh/numa-topology-policy", "best-effort"),
    ("kai.scheduler/batch-min-member", "1"),
    (kueue.SLICE_REQUIRED, ""),
]


def rows(keys: tuple[Key, ...]) -> Iterator[str]:
    """The rows of a dialect's table."""
    yield from ("| key | place | use |", "|---|---|---|")
    for key in keys:
        note = f": {'it requires ' if key.use is Use.REFUSED else ''}{key.note}" if key.note else ""
        when = ", depending on the value or the rest of the pod" if key.is_required else ""
        yield f"| `{key.name}` | {key.place} | {key.use.value}{when}{note} |"


def sections() -> str:
    """The part of the page that follows from the code."""
    return "\n".join(f"## {name}\n\n" + "\n".join(rows(keys)) + "\n" for name, keys in VOCABULARY.items())


def test_the_page_has_the_keys_of_the_code() -> None:
    text = PAGE.read_text()
    assert text[text.index("## ") :] == sections(), f"print sections() into {PAGE}"


def modules() -> list[Any]:
    """The modules of dialects."""
    names = [each.name for each in pkgutil.iter_modules(kinds.__path__) if each.name not in OF_JOBS]
    return [importlib.import_module(f"{kinds.__name__}.{name}") for name in names]


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.__name__.rpartition(".")[2])
def test_every_key_that_a_module_names_is_listed(module: Any) -> None:
    texts = {
        node.value
        for node in ast.walk(ast.parse(Path(module.__file__).read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    constants = [value for value in vars(module).values() if isinstance(value, str | tuple | frozenset)]
    texts |= {
        text for value in constants for text in ([value] if isinstance(value, str) else value) if isinstance(text, str)
    }
    found = {text for text in texts if re.fullmatch(r"[a-z0-9.-]+\.[a-z0-9.-]+/[A-Za-z0-9._-]+", text)}
    versions = {text for text in found if re.fullmatch(r".*/v\d+((alpha|beta)\d+)?", text)}
    assert found - versions - NOT_KEYS <= {key.name for key in EVERY}


def test_every_key_of_a_dialect_is_listed_as_read() -> None:
    read = {key.name for key in EVERY if key.use is Use.READ}
    assert read >= table.KEYS


def test_no_key_is_listed_twice_with_two_uses() -> None:
    uses: dict[tuple[str, str], set[Use]] = {}
    for dialect, keys in VOCABULARY.items():
        for key in keys:
            uses.setdefault(("" if "/" in key.name else dialect, key.name), set()).add(key.use)
    assert {name: use for name, use in uses.items() if len(use) > 1} == {}


class Noted(dict[str, Any]):
    """Notes which keys are asked for."""

    asked: set[str]

    def __init__(self, values: dict[str, Any], asked: set[str]) -> None:
        super().__init__(values)
        self.asked = asked

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self.asked.add(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self.asked.add(str(key))
        return super().__contains__(key)


class Everywhere:
    """Every object exists, and notes which fields are read."""

    def __init__(self, asked: set[str]) -> None:
        self._asked = asked

    def get(self, _kind: str, _namespace: str, _name: str) -> dict[str, Any]:
        """An object with what each dialect needs."""
        return {"spec": Noted({"podGroups": [{"name": "workers"}]}, self._asked), "metadata": {}}


def test_every_key_that_is_listed_as_read_is_read() -> None:
    asked = {"schedulingGroup", "workloadRef"}  # given below
    spec = PodSpec(scheduling_group=SchedulingGroup("train"), workload_ref=WorkloadRef("train", "workers"))
    empty = dict.fromkeys(table.KEYS, "")
    for values in (empty, *({**empty, key: "train"} for key in sorted(table.KEYS))):
        metadata = PodMetadata(name="pod", namespace=NAMESPACE, uid=UID)
        metadata.labels, metadata.annotations = Noted(values, asked), Noted(values, asked)
        for each in table.DIALECTS:
            with suppress(UserError):
                each.describe and each.describe(Pod(metadata, spec), Everywhere(asked))
    annotations = {jobset.TOPOLOGY: "rack", jobset.REPLICATED_JOB: "w", jobset.REPLICAS: "2", jobset.JOB_INDEX: "0"}
    metadata = PodMetadata(name="pod", namespace=NAMESPACE, annotations=Noted(annotations, asked))
    jobset.part_of(Pod(metadata))
    assert {key.name for key in EVERY if key.use is Use.READ} - asked == set()


@pytest.mark.parametrize("key", REFUSED, ids=lambda key: key.name)
def test_a_pod_that_requires_it_is_refused_by_name_and_value(key: Key) -> None:
    value = REQUIRING.get(key.name, "2")
    values = {key.name: value} | ({kueue.REQUIRED: "rack"} if key.name.endswith("podset-group-name") else {})
    labels, annotations = (values, None) if key.place == "label" else (None, values)
    assert table.is_marked(make_pod(labels, annotations))
    assert table.is_marked_by_author(make_pod(labels, annotations))
    with pytest.raises(UserError, match=re.escape(f"{key.name} is {value!r}: it requires {key.note}")):
        describe(labels, annotations)


@pytest.mark.parametrize(("name", "value"), PREFERRING)
def test_a_pod_that_only_prefers_it_goes_on(name: str, value: str) -> None:
    assert describe({}, {name: value}) is None
    assert not table.is_marked_by_author(make_pod({}, {name: value}))


@pytest.mark.parametrize("key", [key for key in EVERY if key.use is Use.IGNORED], ids=lambda key: key.name)
def test_what_is_ignored_marks_no_pod(key: Key) -> None:
    assert not table.is_marked(make_pod({key.name: "1"}, {key.name: "1"}))


def test_a_pod_that_has_a_node_keeps_its_gang_whatever_it_requires() -> None:
    annotations = {koordinator.GANG_NAME: "train", koordinator.MINIMUM: "2", kueue.SLICE_REQUIRED: "rack"}
    said = describe({}, annotations, spec=PodSpec(node_name="n1"))
    assert said is not None
    assert said.gang is not None


@pytest.mark.parametrize(
    "spec",
    [
        PodSpec(node_selector={"example.com/rack": "r1"}),
        PodSpec(node_selector={"kubernetes.io/hostname": "n1"}),
        PodSpec(scheduling_gates=[{"name": kueue.TOPOLOGY_GATE}]),
    ],
    ids=["rack", "node", "gate"],
)
def test_slices_whose_domain_kueue_chooses_are_none_of_ours(spec: PodSpec) -> None:
    annotations = {kueue.SLICE_REQUIRED: "example.com/rack", "kueue.x-k8s.io/podset-slice-size": "2"}
    assert describe({}, annotations, spec=spec) is None


def test_a_subgroup_whose_gang_a_dialect_names_goes_on() -> None:
    gang = {koordinator.GANG_NAME: "train", koordinator.MINIMUM: "2"}
    for label in ("kai.scheduler/subgroup-name", "grove.io/podgang"):
        assert describe({label: "a"}, gang) is not None


@pytest.mark.parametrize(
    ("group", "spec", "word"),
    [
        ("scheduling.volcano.sh", {"subGroupPolicy": [{"name": "a", "minSubGroups": 2}]}, "subGroupPolicy is 'a'"),
        (
            "scheduling.volcano.sh",
            {"subGroupPolicy": [{"name": "a", "networkTopology": {"highestTierAllowed": 1}}]},
            "subGroupPolicy is 'a'",
        ),
        ("scheduling.k8s.io", {"parentCompositePodGroupName": "all"}, "parentCompositePodGroupName is 'all'"),
    ],
)
def test_what_an_object_requires_is_refused_too(group: str, spec: dict[str, Any], word: str) -> None:
    annotations = {"scheduling.k8s.io/group-name": "train"} if "volcano" in group else {}
    of_pod = PodSpec() if "volcano" in group else PodSpec(scheduling_group=SchedulingGroup("train"))
    with pytest.raises(UserError, match=word):
        describe({}, annotations, podgroups(group, spec), of_pod)


def test_a_subgroup_that_only_prefers_goes_on() -> None:
    spec = {"minMember": 2, "subGroupPolicy": [{"name": "a", "networkTopology": {"mode": "soft"}, "minSubGroups": 0}]}
    said = describe({}, {"scheduling.k8s.io/group-name": "train"}, podgroups("scheduling.volcano.sh", spec))
    assert said is not None
    assert said.minimum == 2


def test_a_network_that_a_podgroup_requires_is_refused_too() -> None:
    name = koordinator.NETWORK_TOPOLOGY.name
    metadata = {"annotations": {name: REQUIRING[name]}}
    with pytest.raises(UserError, match="MustGather"):
        describe(
            {koordinator.PODGROUP_LABEL: "train"}, {}, podgroups("scheduling.sigs.k8s.io", {"minMember": 2}, metadata)
        )
